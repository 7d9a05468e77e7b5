/* A new name for what stands under the pointer. See requests.h.
 *
 * A rename changes the text and nothing else: the changed texts are parsed, names are found and the model is elaborated
 * anew, and unless every name stands for what it did, and the graph has the same operations and weights, nothing is
 * changed. A member that is a module or weight keeps its path in the file of weights: `as` is added with the old name.
 */
#include <stdlib.h>
#include <string.h>

#include "lsp/requests.h"
#include "lsp/vocabulary.h"

typedef struct Edit { /* of the text of a source */
  const Source *source;
  uint32_t begin, end;
  const char *text;
} Edit;

typedef struct Rename {
  const Request *request;
  Site site;
  const Symbol *symbol;
  const char *new_name;
  VEC(Edit) edits;
} Rename;

static bool is_name(const char *text) {
  static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
  const Vocables keywords = vocabulary_keywords();
  if (!strchr(first, *text) || !*text || strlen(text) > 1024) return false;
  if (text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789")]) return false;
  for (size_t i = 0; i < keywords.n; i++)
    if (strcmp(keywords.rows[i].name, text) == 0) return false;
  return true;
}

/* NULL, or why it cannot be renamed. */
static const char *obstacle(const Site *site, const Symbol *symbol) {
  bool is_faulty = false;
  for (size_t i = 0; i < site->analysis->diag.messages.n; i++)
    is_faulty |= site->analysis->diag.messages.items[i].severity == DIAG_ERROR;
  if (symbol->is_standard) return "it belongs to the standard layers";
  if (strcmp(symbol->name, "forward") == 0 && symbol->kind == SYMBOL_FUNCTION)
    return "forward is a word of the language";
  if (is_faulty) return "the text has an error: mend it first";
  const bool is_seen_outside = symbol->kind != SYMBOL_LOCAL && symbol->kind != SYMBOL_SIZE;
  if (is_seen_outside && !site->analysis->sizes)
    return "other files may use it: open the model that includes this file first";
  return NULL;
}

// ---- edits ----

static int by_place(const void *a, const void *b) {
  const Edit *one = a, *other = b;
  if (one->source != other->source) return (uintptr_t)one->source < (uintptr_t)other->source ? -1 : 1;
  return one->begin < other->begin ? -1 : one->begin > other->begin;
}

/* Where ` as "old"` is needed: behind what a member is made of, if that gives its weights their path. */
static void keep_path(Rename *rename, const Ast *node) {
  const SeenValue *seen = analysis_value(rename->site.analysis, node);
  const bool is_weight = node->kind == AST_WEIGHT;
  const bool has_path = is_weight || (seen && (seen->first.kind == VALUE_MODULE || seen->first.kind == VALUE_LIST));
  if (node->text || !has_path) return;
  uint32_t end = 0;
  for (uint32_t i = 0; i < node->n_children; i++)
    if (node->children[i]) end = node->children[i]->span.end;
  Arena *arena = rename->request->arena;
  const Edit edit = {node->span.source, end, end, arena_printf(arena, " as \"%s\"", rename->symbol->name)};
  vec_push(arena, &rename->edits, edit);
}

static void find_declarations(Rename *rename, const Ast *node) {
  const bool is_member = node->kind == AST_MEMBER || node->kind == AST_WEIGHT;
  if (is_member && strcmp(node->name, rename->symbol->name) == 0) keep_path(rename, node);
  const bool goes_on = node->kind == AST_BLOCK || node->kind == AST_IF;
  for (uint32_t i = 0; i < node->n_children && goes_on; i++)
    if (node->children[i]) find_declarations(rename, node->children[i]);
}

static void collect(Rename *rename) {
  Arena *arena = rename->request->arena;
  const Names *names = rename->site.analysis->names;
  for (size_t i = 0; i < names->occurrences.n; i++) {
    const Occurrence *place = &names->occurrences.items[i];
    if (place->symbol != rename->symbol) continue;
    const Edit edit = {place->span.source, place->span.begin, place->span.end, rename->new_name};
    vec_push(arena, &rename->edits, edit);
  }
  const Symbol *layer = rename->symbol->within;
  const bool is_member = rename->symbol->kind == SYMBOL_MEMBER || rename->symbol->kind == SYMBOL_WEIGHT;
  if (is_member && layer && layer->kind == SYMBOL_LAYER) find_declarations(rename, layer->node->children[1]);
  qsort(rename->edits.items, rename->edits.n, sizeof(Edit), by_place);
  size_t n = 0;
  for (size_t i = 0; i < rename->edits.n; i++) /* a size is noted once for each parameter that names it */
    if (!n || by_place(&rename->edits.items[n - 1], &rename->edits.items[i]) != 0)
      rename->edits.items[n++] = rename->edits.items[i];
  rename->edits.n = n;
}

// ---- whether it changes nothing ----

typedef struct ChangedTexts {
  const Documents *documents;
  VEC(NamedText) texts; /* by real path */
} ChangedTexts;

static const NamedText *find_changed(void *context, const char *resolved) {
  const ChangedTexts *changed = context;
  for (size_t i = 0; i < changed->texts.n; i++)
    if (strcmp(changed->texts.items[i].name, resolved) == 0) return &changed->texts.items[i];
  return NULL;
}

static StrBuf edited(const Rename *rename, const Source *source) {
  StrBuf out = strbuf_new(rename->request->arena);
  uint32_t at = 0;
  for (size_t i = 0; i < rename->edits.n; i++) {
    const Edit *edit = &rename->edits.items[i];
    if (edit->source != source) continue;
    strbuf_add_n(&out, source->text + at, edit->begin - at);
    strbuf_add(&out, edit->text);
    at = edit->end;
  }
  strbuf_add_n(&out, source->text + at, source->size - at);
  return out;
}

/* Every place, in the order in which the walk finds them, stands for the symbol that it did: symbols are compared by
 * the place of their first occurrence. */
static bool same_names(const Names *before, const Names *after) {
  if (before->occurrences.n != after->occurrences.n) return false;
  Arena *arena = arena_create();
  Map first = map_new(arena), other = map_new(arena);
  bool same = true;
  for (size_t i = 0; i < before->occurrences.n && same; i++) {
    const Symbol *symbol = before->occurrences.items[i].symbol, *now = after->occurrences.items[i].symbol;
    const MapEntry *a = map_find(&first, &symbol, sizeof symbol), *b = map_find(&other, &now, sizeof now);
    if (!a) map_put_n(&first, &symbol, sizeof symbol, (void *)(uintptr_t)i);
    if (!b) map_put_n(&other, &now, sizeof now, (void *)(uintptr_t)i);
    same = symbol->is_standard == now->is_standard && !a == !b && (!a || a->value == b->value);
  }
  arena_destroy(arena);
  return same;
}

static bool same_node(const Node *a, const Node *b) {
  if (a->op != b->op || a->rank != b->rank || a->dtype != b->dtype || a->inputs.n != b->inputs.n) return false;
  return a->op != OP_WEIGHT || strcmp(a->attr.name, b->attr.name) == 0;
}

static bool same_graph(const Graph *before, const Graph *after) {
  if (!before || !after) return before == after;
  const Node *a = before->first, *b = after->first;
  for (; a && b; a = a->next, b = b->next)
    if (!same_node(a, b)) return false;
  return !a && !b;
}

static bool changes_nothing(const Rename *rename, const Document *main, const ChangedTexts *changed) {
  const Documents *documents = rename->request->documents;
  Analysis *after = analysis_new(&(AnalysisRequest){main->path,
                                                    {(void *)changed, find_changed},
                                                    documents->standard,
                                                    documents->variants[0].definitions,
                                                    documents->variants[0].n});
  bool is_good = true;
  for (size_t i = 0; i < after->diag.messages.n; i++) is_good &= after->diag.messages.items[i].severity != DIAG_ERROR;
  is_good = is_good && same_names(rename->site.analysis->names, after->names) &&
            same_graph(rename->site.analysis->graph, after->graph);
  analysis_free(after);
  return is_good;
}

static const Document *document_of(const Documents *documents, const Analysis *analysis) {
  for (size_t i = 0; i < documents->all.n; i++)
    if (documents->all.items[i]->analyses[0] == analysis) return documents->all.items[i];
  return NULL;
}

static bool is_safe(const Rename *rename) {
  const Analysis *analysis = rename->site.analysis;
  ChangedTexts changed = {.documents = rename->request->documents};
  const Document *main = document_of(rename->request->documents, analysis);
  for (size_t i = 0; i < analysis->program->files.n; i++) {
    const Source *source = analysis->program->files.items[i].source;
    const StrBuf text = edited(rename, source);
    const char *path =
        path_of_uri(rename->request->arena, uri_of_source(rename->request->documents, rename->request->arena, source));
    vec_push(rename->request->arena, &changed.texts,
             (NamedText){path ? path : source->path, text.text, text.length, false});
  }
  return main && changes_nothing(rename, main, &changed);
}

// ---- requests ----

/* The symbol under the pointer; NULL after a fault. */
static const Occurrence *renamed_place(const Request *request, Site *site) {
  if (!request_site(request, site)) return NULL;
  const Occurrence *place = names_at(site->analysis->names, site->source, site->offset);
  const char *why = place ? obstacle(site, place->symbol) : "there is no name here that the text defines";
  if (!why) return place;
  request_fails(request, FAULT_FAILED, arena_printf(request->arena, "it cannot be renamed: %s", why));
  return NULL;
}

json_t *request_rename_place(const Request *request) {
  Site site;
  const Occurrence *place = renamed_place(request, &site);
  return place ? range_of(place->span, request->documents->units) : NULL;
}

static json_t *workspace_edit(const Rename *rename) {
  const Request *request = rename->request;
  json_t *changes = json_object();
  for (size_t i = 0; i < rename->edits.n; i++) {
    const Edit *edit = &rename->edits.items[i];
    const char *uri = uri_of_source(request->documents, request->arena, edit->source);
    if (!uri) continue;
    if (!json_object_get(changes, uri)) json_object_set_new(changes, uri, json_array());
    const SrcSpan span = {(Source *)edit->source, edit->begin, edit->end};
    json_array_append_new(
        json_object_get(changes, uri),
        json_pack("{s:o, s:s}", "range", range_of(span, request->documents->units), "newText", edit->text));
  }
  return json_pack("{s:o}", "changes", changes);
}

json_t *request_renamed(const Request *request) {
  Rename rename = {.request = request, .new_name = json_string_value(json_object_get(request->params, "newName"))};
  const Occurrence *place = renamed_place(request, &rename.site);
  if (!place) return NULL;
  if (!rename.new_name || !is_name(rename.new_name))
    return request_fails(request, FAULT_PARAMS, "the new name is none, or a word of the language");
  rename.symbol = place->symbol;
  if (strcmp(rename.new_name, rename.symbol->name) != 0) collect(&rename);
  if (rename.edits.n && !is_safe(&rename))
    return request_fails(request, FAULT_FAILED,
                         arena_printf(request->arena,
                                      "it cannot be renamed: '%s' would stand for something else, or be "
                                      "looked for in vain, at one place at least",
                                      rename.new_name));
  return workspace_edit(&rename);
}
