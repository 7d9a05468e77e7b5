/* What stands under the pointer. See requests.h.
 *
 * A name tells how it is declared, its value at this place, and the comment above it; any other expression tells its
 * value. A value is that of the first time it was computed, with a word about how often it was. */
#include <string.h>

#include "lsp/requests.h"
#include "lsp/vocabulary.h"

// ---- symbols ----

/* From the beginning to `end`, without the line ends and blanks of the layout. */
static const char *text_on_one_line(Arena *arena, const Source *source, uint32_t begin, uint32_t end) {
  StrBuf out = strbuf_new(arena);
  for (uint32_t i = begin; i < end; i++) {
    const bool is_blank = strchr(" \t\r\n\f", source->text[i]) != NULL;
    if (source->text[i] == '#')
      i += (uint32_t)strcspn(source->text + i, "\r\n") - 1;
    else if (!is_blank)
      strbuf_add_char(&out, source->text[i]);
    else if (out.length && out.text[out.length - 1] != ' ')
      strbuf_add_char(&out, ' ');
  }
  return out.text;
}

static uint32_t end_of_declaration(const Ast *node) {
  uint32_t end = node->span.end;
  const bool has_block = node->kind == AST_LAYER || node->kind == AST_FN;
  const uint32_t n = has_block                                                                         ? 1
                     : node->kind == AST_MEMBER || node->kind == AST_WEIGHT || node->kind == AST_PARAM ? 2
                                                                                                       : 0;
  for (uint32_t i = 0; i < n && i < node->n_children; i++)
    if (node->children[i] && node->children[i]->span.end > end) end = node->children[i]->span.end;
  return end;
}

const char *symbol_text(Arena *arena, const Symbol *symbol) {
  const Ast *node = symbol->node;
  const bool is_whole = symbol->kind != SYMBOL_LOCAL && symbol->kind != SYMBOL_SIZE;
  if (!is_whole) return symbol->name;
  return text_on_one_line(arena, node->span.source, node->span.begin, end_of_declaration(node));
}

/* The lines above that begin with #, without an empty one between. */
const char *symbol_comment(Arena *arena, const Symbol *symbol) {
  Source *source = symbol->node->span.source;
  const uint32_t line = source_place(source, symbol->node->span.begin).line;
  uint32_t first = line, length;
  StrBuf out = strbuf_new(arena);
  while (first > 1) {
    const char *text = source_line(source, first - 1, &length);
    if (length == 0 || text[strspn(text, " \t")] != '#') break;
    first--;
  }
  for (; first < line; first++) {
    const char *text = source_line(source, first, &length);
    const uint32_t blanks = (uint32_t)strspn(text, " \t#");
    if (blanks < length) strbuf_add_n(&out, text + blanks, length - blanks);
    strbuf_add_char(&out, '\n');
  }
  return out.length ? out.text : NULL;
}

static const char *kind_of(const Symbol *symbol) {
  static const char *const kinds[N_SYMBOL_KINDS] = {
      [SYMBOL_LAYER] = "",         [SYMBOL_FUNCTION] = "", [SYMBOL_CONFIG] = "config value ",
      [SYMBOL_MEMBER] = "member ", [SYMBOL_WEIGHT] = "",   [SYMBOL_PARAMETER] = "parameter ",
      [SYMBOL_SIZE] = "size ",     [SYMBOL_LOCAL] = ""};
  return kinds[symbol->kind];
}

// ---- the text of a hover ----

/* ": f32[batch, time, 768]", and how often. */
static void add_value(StrBuf *out, const Analysis *analysis, const Ast *node, const char *before) {
  const SeenValue *seen = node ? analysis_value(analysis, node) : NULL;
  if (!seen) return;
  strbuf_add(out, before);
  value_describe(out, analysis, &seen->first);
  if (seen->n > 1) strbuf_printf(out, "   # %s%u times", seen->differs ? "the first of " : "", seen->n);
}

static void add_code(StrBuf *out, const char *code) { strbuf_printf(out, "```tfm\n%s\n```\n", code); }

static void add_symbol(StrBuf *out, const Site *site, const Symbol *symbol, const Ast *expression) {
  const char *comment = symbol_comment(out->arena, symbol);
  StrBuf code = strbuf_new(out->arena);
  const bool is_written = symbol->kind == SYMBOL_LAYER || symbol->kind == SYMBOL_FUNCTION;
  strbuf_printf(&code, "%s%s", kind_of(symbol), symbol_text(out->arena, symbol));
  if (symbol->kind != SYMBOL_SIZE && (!is_written || (expression && expression->kind == AST_DOT)))
    add_value(&code, site->analysis, expression ? expression : symbol->node,
              symbol->kind == SYMBOL_LOCAL ? ": " : "\n: ");
  add_code(out, code.text);
  if (comment && (is_written || symbol->kind == SYMBOL_MEMBER)) strbuf_printf(out, "\n%s", comment);
}

static bool add_primitive(StrBuf *out, const char *name) {
  const Vocable *primitive = vocabulary_primitive(name);
  if (!primitive) return false;
  add_code(out, arena_printf(out->arena, "%s(%s)", primitive->name, primitive->parameters));
  strbuf_printf(out, "\n%s\n", primitive->line);
  return true;
}

static json_t *hover_of(const Request *request, const Site *site, StrBuf *text, SrcSpan span) {
  return json_pack("{s:{s:s, s:o}, s:o}", "contents", "kind", "markdown", "value",
                   json_text(request->arena, text->text), "range",
                   range_of((SrcSpan){site->source, span.begin, span.end}, request->documents->units));
}

/* The name at the offset, in any scope. */
static const Ast *name_under(const Ast *node, uint32_t offset) {
  const Ast *found = NULL;
  for (uint32_t i = 0; node && i < node->n_children && !found; i++) found = name_under(node->children[i], offset);
  const bool is_here = node && node->kind == AST_NAME && node->span.begin <= offset && offset <= node->span.end;
  return found ? found : is_here ? node : NULL;
}

json_t *request_hover(const Request *request) {
  Site site;
  if (!request_site(request, &site)) return NULL;
  StrBuf text = strbuf_new(request->arena);
  const Occurrence *place = names_at(site.analysis->names, site.source, site.offset);
  const Ast *expression = site.file ? analysis_expression(site.analysis, site.file, site.offset) : NULL;
  if (place) {
    const bool is_its_own = expression && place->span.begin >= expression->span.begin &&
                            place->span.end == expression->span.end && !place->in_text;
    add_symbol(&text, &site, place->symbol, is_its_own ? expression : NULL);
    return hover_of(request, &site, &text, place->span);
  }
  const Ast *name = site.file ? name_under(site.file, site.offset) : NULL;
  if (name && add_primitive(&text, name->name)) return hover_of(request, &site, &text, name->span);
  if (!expression) return NULL;
  StrBuf code = strbuf_new(request->arena);
  add_value(&code, site.analysis, expression, "");
  add_code(&text, code.text);
  return hover_of(request, &site, &text, expression->span);
}
