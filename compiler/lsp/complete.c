/* What may be written at a place, and what a call takes. See requests.h.
 *
 * The text is seldom one that parses while it is written, so the place is read from its bytes: the word before it, a
 * dot, the call that is open. Names come from what could be parsed around the fault, by where they stand. */
#include <string.h>

#include "lsp/requests.h"
#include "lsp/resolve.h"
#include "lsp/vocabulary.h"

/* Kinds of the protocol. */
enum {
  ITEM_FUNCTION = 3,
  ITEM_FIELD = 5,
  ITEM_VARIABLE = 6,
  ITEM_CLASS = 7,
  ITEM_PROPERTY = 10,
  ITEM_KEYWORD = 14,
  ITEM_TYPE = 25
};

typedef struct Place {
  const Request *request;
  Site site;
  const char *text;
  uint32_t word; /* where the word that is written begins */
  const NameScope *scope;
  json_t *items;
  Map seen;
} Place;

// ---- the text before the place ----

static bool is_word_byte(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (((unsigned char)c | 32u) - 'a' < 26u);
}

static uint32_t word_begin(const char *text, uint32_t at) {
  while (at > 0 && is_word_byte(text[at - 1])) at--;
  return at;
}

enum { FARTHEST = 20000 }; /* bytes before the place that are looked at */

static uint32_t line_begin(const char *text, uint32_t at) {
  while (at > 0 && text[at - 1] != '\n' && text[at - 1] != '\r') at--;
  return at;
}

/* Whether the last byte before `end` stands in a comment or string, and the same of all bytes from `first` on in
 * `flags` (NULL: not wanted). One walk from the beginning of the line of `first`: lines may be as long as texts. */
static bool mark_texts(const char *text, uint32_t first, uint32_t end, bool *flags) {
  bool in_string = false, in_comment = false, is_escaped = false;
  for (uint32_t at = line_begin(text, first); at < end; at++) {
    const char c = text[at];
    if (c == '\n' || c == '\r') in_string = in_comment = is_escaped = false;
    const bool was_string = in_string;
    if (is_escaped)
      is_escaped = false;
    else if (in_string && c == '\\')
      is_escaped = true;
    else if (c == '"' && !in_comment)
      in_string = !in_string;
    else if (c == '#' && !in_string)
      in_comment = true;
    if (flags && at >= first) flags[at - first] = was_string || in_string || in_comment;
  }
  return in_string || in_comment;
}

/* Whether what is written at a place belongs to a comment or string of its line. */
static bool is_in_text(const char *text, uint32_t offset) { return mark_texts(text, offset, offset, NULL); }

/* The bracket that is open before the offset and belongs to a call, and how many commas stand behind it. False: none,
 * or it is too far away. */
static bool open_call(const char *text, uint32_t offset, uint32_t *bracket, uint32_t *n_commas) {
  bool flags[FARTHEST];
  const uint32_t first = offset > FARTHEST ? offset - FARTHEST : 0;
  int depth = 0;
  *n_commas = 0;
  mark_texts(text, first, offset, flags);
  for (uint32_t at = offset; at > first; at--) {
    const char c = text[at - 1];
    if (flags[at - 1 - first]) continue;
    if (c == ')' || c == ']' || c == '}')
      depth++;
    else if (c == '{' || ((c == '(' || c == '[') && depth == 0)) {
      *bracket = at - 1;
      return c == '(' && at > 1 && (is_word_byte(text[at - 2]) || text[at - 2] == ')');
    } else if (c == '(' || c == '[')
      depth--;
    else if (c == ',' && depth == 0)
      ++*n_commas;
  }
  return false;
}

/* Where the bracket begins that the byte before `at` closes; `at` if there is none. */
static uint32_t before_bracket(const char *text, uint32_t at) {
  uint32_t depth = 0;
  for (uint32_t begin = at; begin > 0;) {
    const char c = text[--begin];
    if (c == ')' || c == ']')
      depth++;
    else if ((c == '(' || c == '[') && --depth == 0)
      return begin;
  }
  return at;
}

/* What stands before a bracket or dot, as far as it is names, dots, and what calls and indexes them. */
static const Ast *path_before(const Place *place, uint32_t end) {
  Arena *arena = place->request->arena;
  uint32_t begin = end;
  while (begin > 0) {
    const char c = place->text[begin - 1];
    uint32_t next = begin;
    if (is_word_byte(c) || c == '.')
      next = begin - 1;
    else if (c == ')' || c == ']')
      next = before_bracket(place->text, begin);
    if (next == begin) break;
    begin = next;
  }
  Map names = map_new(arena);
  Diag ignored = diag_new(arena);
  const char *text = arena_strndup(arena, place->text + begin, end - begin);
  return parse_expression(arena, &names, &ignored, source_new(arena, "", text, end - begin));
}

// ---- items ----

static void add_item(Place *place, const char *name, int kind, const char *detail, const char *text) {
  if (map_has(&place->seen, name)) return;
  map_put(&place->seen, name, NULL);
  json_t *item = json_pack("{s:s, s:i}", "label", name, "kind", kind);
  if (detail) json_object_set_new(item, "detail", json_text(place->request->arena, detail));
  if (text) json_object_set_new(item, "documentation", json_text(place->request->arena, text));
  json_array_append_new(place->items, item);
}

static int item_kind(const Symbol *symbol) {
  static const int kinds[N_SYMBOL_KINDS] = {
      [SYMBOL_LAYER] = ITEM_CLASS,   [SYMBOL_FUNCTION] = ITEM_FUNCTION, [SYMBOL_CONFIG] = ITEM_PROPERTY,
      [SYMBOL_MEMBER] = ITEM_FIELD,  [SYMBOL_WEIGHT] = ITEM_FIELD,      [SYMBOL_PARAMETER] = ITEM_VARIABLE,
      [SYMBOL_SIZE] = ITEM_VARIABLE, [SYMBOL_LOCAL] = ITEM_VARIABLE};
  return kinds[symbol->kind];
}

static void add_scope(Place *place, const NameScope *scope) {
  Arena *arena = place->request->arena;
  for (size_t i = 0; i < scope->names.n; i++) {
    const Symbol *symbol = scope->names.items[i].value;
    if (symbol->name[0] == '_' && symbol->is_standard) continue;
    add_item(place, symbol->name, item_kind(symbol), symbol_text(arena, symbol), symbol_comment(arena, symbol));
  }
}

/* "name = ": what a call binds. */
static void add_arguments(Place *place, const Symbol *callee) {
  for (size_t i = 0; callee->scope && i < callee->scope->names.n; i++) {
    const Symbol *symbol = callee->scope->names.items[i].value;
    if (symbol->kind != SYMBOL_CONFIG && symbol->kind != SYMBOL_PARAMETER) continue;
    Arena *arena = place->request->arena;
    const char *label = arena_printf(arena, "%s = ", symbol->name);
    add_item(place, label, ITEM_PROPERTY, arena_printf(arena, "%s of %s", symbol_text(arena, symbol), callee->name),
             NULL);
  }
}

static void add_words(Place *place) {
  const Vocables primitives = vocabulary_primitives(), keywords = vocabulary_keywords(),
                 torch = vocabulary_torch_names();
  Arena *arena = place->request->arena;
  for (size_t i = 0; i < primitives.n; i++) {
    const Vocable *row = &primitives.rows[i];
    add_item(place, row->name, ITEM_FUNCTION, arena_printf(arena, "%s(%s)", row->name, row->parameters), row->line);
  }
  for (size_t i = 0; i < keywords.n; i++) add_item(place, keywords.rows[i].name, ITEM_KEYWORD, NULL, NULL);
  const uint32_t length = place->site.offset - place->word;
  for (size_t i = 0; i < torch.n && length >= 2; i++) /* only when they are being written */
    if (strncmp(torch.rows[i].name, place->text + place->word, length) == 0)
      add_item(place, torch.rows[i].name, ITEM_TYPE, torch.rows[i].line, "a name of PyTorch");
}

// ---- requests ----

static bool place_of_request_in_text(const Request *request, Place *place) {
  *place = (Place){.request = request, .seen = map_new(request->arena)};
  if (!request_site(request, &place->site)) return false;
  place->text = place->site.source->text;
  place->word = word_begin(place->text, place->site.offset);
  const Names *names = place->site.analysis->names;
  const Symbol *function = names_around(names, place->site.source, place->site.offset, SYMBOL_FUNCTION);
  const Symbol *layer = names_around(names, place->site.source, place->site.offset, SYMBOL_LAYER);
  const bool in_function = function && (!layer || function->node->span.begin > layer->node->span.begin);
  place->scope = in_function && function->scope ? function->scope : layer && layer->scope ? layer->scope : names->files;
  return true;
}

/* Behind a dot: what the module there has, if the text tells which layer it is of. */
static void complete_members(Place *place) {
  const Ast *path = path_before(place, place->word - 1);
  const Symbol *layer = path ? names_layer_of(path, place->scope) : NULL;
  if (layer && layer->scope) add_scope(place, layer->scope);
}

static void complete_names(Place *place) {
  uint32_t bracket, n_commas;
  if (open_call(place->text, place->word, &bracket, &n_commas)) {
    const Ast *path = path_before(place, bracket);
    const Symbol *callee = path ? names_callee(path, place->scope) : NULL;
    if (callee) add_arguments(place, callee);
  }
  for (const NameScope *scope = place->scope; scope; scope = scope->parent) add_scope(place, scope);
  add_words(place);
}

json_t *request_completions(const Request *request) {
  Place place;
  if (!place_of_request_in_text(request, &place)) return NULL;
  place.items = json_array();
  if (!is_in_text(place.text, place.site.offset)) {
    const bool is_behind_dot = place.word > 0 && place.text[place.word - 1] == '.';
    if (is_behind_dot)
      complete_members(&place);
    else
      complete_names(&place);
  }
  return json_pack("{s:b, s:o}", "isIncomplete", 1, "items", place.items);
}

// ---- what a call takes ----

static json_t *signature_json(Arena *arena, const char *label, const char *parameters, const char *text,
                              uint32_t active) {
  json_t *list = json_array();
  int depth = 0;
  const char *begin = parameters;
  for (const char *at = parameters;; at++) {
    if (strchr("([", *at) && *at) depth++;
    if (strchr(")]", *at) && *at) depth--;
    if (*at && (*at != ',' || depth)) continue;
    while (*begin == ' ') begin++;
    if (at > begin)
      json_array_append_new(
          list, json_pack("{s:o}", "label", json_text(arena, arena_strndup(arena, begin, (size_t)(at - begin)))));
    begin = at + 1;
    if (!*at) break;
  }
  json_t *one = json_pack("{s:o, s:o}", "label", json_text(arena, label), "parameters", list);
  if (text) json_object_set_new(one, "documentation", json_text(arena, text));
  return json_pack("{s:[o], s:i, s:i}", "signatures", one, "activeSignature", 0, "activeParameter", (int)active);
}

/* What stands in the brackets of "layer Linear(in, out)"; "" if there are none. */
static const char *parameters_of(Arena *arena, const char *declaration) {
  const char *open = strchr(declaration, '(');
  const size_t n = open ? strlen(open) : 0;
  return n > 2 ? arena_strndup(arena, open + 1, n - 2) : "";
}

json_t *request_signature(const Request *request) {
  Place place;
  uint32_t bracket, n_commas;
  Arena *arena = request->arena;
  if (!place_of_request_in_text(request, &place)) return NULL;
  if (!open_call(place.text, place.site.offset, &bracket, &n_commas)) return NULL;
  const Ast *path = path_before(&place, bracket);
  const Symbol *callee = path ? names_callee(path, place.scope) : NULL;
  if (callee) {
    const char *label = symbol_text(arena, callee);
    return signature_json(arena, label, parameters_of(arena, label), symbol_comment(arena, callee), n_commas);
  }
  const Vocable *primitive = path && path->kind == AST_NAME ? vocabulary_primitive(path->name) : NULL;
  if (!primitive) return NULL;
  const char *label = arena_printf(arena, "%s(%s)", primitive->name, primitive->parameters);
  return signature_json(arena, label, primitive->parameters, primitive->line, n_commas);
}
