/* What an editor shows beside the text: shapes of names, costs of lines. See requests.h.
 *
 * In: a text with its values and its graph. Out: inlay hints, code lenses; none where the settings say so. Of a file
 * that an open model includes the costs are those in that model. Refuses nothing. */
#include <string.h>

#include "lsp/requests.h"

// ---- shapes beside names ----

/* Of names that are assigned to, and of members that hold modules nothing: their text says it. */
static void add_hints(const Request *request, const Site *site, const Ast *node, json_t *list) {
  if (!node) return;
  for (uint32_t i = 0; i < node->n_children; i++) add_hints(request, site, node->children[i], list);
  if (node->kind != AST_NAMES) return;
  for (uint32_t i = 0; i < node->n_children; i++) {
    const Ast *name = node->children[i];
    const SeenValue *seen = analysis_value(site->analysis, name);
    if (!seen || seen->first.kind != VALUE_TENSOR || !seen->first.as.tensor) continue;
    StrBuf label = strbuf_new(request->arena);
    strbuf_add(&label, ": ");
    value_describe(&label, site->analysis, &seen->first);
    const uint32_t end = name->span.begin + (uint32_t)strlen(name->name);
    json_array_append_new(
        list, json_pack("{s:o, s:o, s:i}", "position", place_of(site->source, end, request->documents->units), "label",
                        json_text(request->arena, label.text), "kind", 1));
  }
}

json_t *request_hints(const Request *request) {
  Site site;
  if (!request_site(request, &site)) return NULL;
  json_t *list = json_array();
  if (request->documents->shows_hints) add_hints(request, &site, site.file, list);
  return list;
}

// ---- costs above lines ----

/* From the first word of the line to its end. */
static json_t *range_of_line(const Request *request, Source *source, uint32_t line) {
  uint32_t length;
  const char *text = source_line(source, line, &length);
  const uint32_t begin = (uint32_t)(text - source->text);
  uint32_t blanks = 0;
  while (blanks < length && (text[blanks] == ' ' || text[blanks] == '\t')) blanks++;
  return range_of((SrcSpan){source, begin + blanks, begin + length}, request->documents->units);
}

/* A lens is shown if it has a command; one without a name does nothing. */
json_t *request_lenses(const Request *request) {
  Site site;
  LineCosts costs = {0};
  if (!request_site(request, &site)) return NULL;
  const Documents *documents = request->documents;
  if (site.analysis->graph && documents->cost_lines && !documents->hides_costs)
    documents->cost_lines(request->arena, site.analysis->graph, site.source, &costs);
  json_t *list = json_array();
  for (size_t i = 0; i < costs.items.n; i++)
    json_array_append_new(
        list, json_pack("{s:o, s:{s:o, s:s}}", "range", range_of_line(request, site.source, costs.items.items[i].line),
                        "command", "title", json_text(request->arena, costs.items.items[i].text), "command", ""));
  return list;
}
