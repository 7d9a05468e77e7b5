/* From names to where they are defined and used, and the outline of a text. See requests.h. */
#include <string.h>

#include "lsp/requests.h"

/* Of the protocol. */
enum {
  HIGHLIGHT_READ = 2,
  HIGHLIGHT_WRITE = 3,
  OUTLINE_CLASS = 5,
  OUTLINE_METHOD = 6,
  OUTLINE_FIELD = 8,
  OUTLINE_FUNCTION = 12,
  OUTLINE_CONSTANT = 14,
};

static const Occurrence *place_of_request(const Request *request, Site *site) {
  return request_site(request, site) ? names_at(site->analysis->names, site->source, site->offset) : NULL;
}

static void add_location(const Request *request, json_t *list, SrcSpan span) {
  json_t *location = location_of(request->documents, request->arena, span);
  if (location) json_array_append_new(list, location);
}

// ---- definition ----

/* An include leads to the file. */
static json_t *included_file(const Request *request, const Site *site) {
  for (uint32_t i = 0; site->file && i < site->file->n_children; i++) {
    const Ast *node = site->file->children[i];
    if (node->kind != AST_INCLUDE || site->offset < node->span.begin || site->offset > node->span.end) continue;
    for (size_t k = 0; k < site->analysis->program->files.n; k++) {
      Source *source = site->analysis->program->files.items[k].source;
      const size_t n = strlen(source->path), length = strlen(node->name);
      const bool is_it =
          n > length && strcmp(source->path + n - length, node->name) == 0 && source->path[n - length - 1] == '/';
      if (is_it) return location_of(request->documents, request->arena, (SrcSpan){source, 0, 0});
    }
  }
  return NULL;
}

/* Locals lead to the assignment before the place; what two branches define leads to both. */
static json_t *definitions_of(const Request *request, const Site *site, const Occurrence *place) {
  const Names *names = place->symbol->is_standard ? request->documents->standard : site->analysis->names;
  const Symbol *symbol = place->symbol;
  json_t *list = json_array();
  const Occurrence *last = NULL;
  for (size_t i = 0; i < names->occurrences.n; i++) {
    const Occurrence *other = &names->occurrences.items[i];
    if (other->symbol != symbol || !other->is_declaration) continue;
    if (symbol->kind != SYMBOL_LOCAL)
      add_location(request, list, other->span);
    else if (!last || other->span.begin < place->span.begin || place->is_declaration)
      last = other;
    if (symbol->kind == SYMBOL_LOCAL && place->is_declaration && other->span.begin == place->span.begin) break;
  }
  if (last) add_location(request, list, last->span);
  return list;
}

json_t *request_definition(const Request *request) {
  Site site;
  const Occurrence *place = place_of_request(request, &site);
  if (request->fault->code) return NULL;
  return place ? definitions_of(request, &site, place) : included_file(request, &site);
}

// ---- uses ----

json_t *request_references(const Request *request) {
  Site site;
  const Occurrence *place = place_of_request(request, &site);
  const json_t *context = json_object_get(request->params, "context");
  const bool with_declaration = !json_is_false(json_object_get(context, "includeDeclaration"));
  if (!place) return NULL;
  json_t *list = json_array();
  const Names *names = site.analysis->names;
  for (size_t i = 0; i < names->occurrences.n; i++) {
    const Occurrence *other = &names->occurrences.items[i];
    if (other->symbol == place->symbol && (with_declaration || !other->is_declaration))
      add_location(request, list, other->span);
  }
  return list;
}

json_t *request_highlights(const Request *request) {
  Site site;
  const Occurrence *place = place_of_request(request, &site);
  if (!place) return NULL;
  json_t *list = json_array();
  for (size_t i = 0; i < site.analysis->names->occurrences.n; i++) {
    const Occurrence *other = &site.analysis->names->occurrences.items[i];
    if (other->symbol != place->symbol || other->span.source != site.source) continue;
    json_array_append_new(list, json_pack("{s:o, s:i}", "range", range_of(other->span, request->documents->units),
                                          "kind", other->is_declaration ? HIGHLIGHT_WRITE : HIGHLIGHT_READ));
  }
  return list;
}

// ---- the outline ----

static int outline_kind(const Symbol *symbol) {
  switch (symbol->kind) {
    case SYMBOL_LAYER:
      return OUTLINE_CLASS;
    case SYMBOL_FUNCTION:
      return symbol->within ? OUTLINE_METHOD : OUTLINE_FUNCTION;
    case SYMBOL_CONFIG:
      return OUTLINE_CONSTANT;
    case SYMBOL_MEMBER:
    case SYMBOL_WEIGHT:
      return OUTLINE_FIELD;
    default:
      return 0;
  }
}

/* Below `within`; NULL: what stands in the file. */
static json_t *outline(const Request *request, const Site *site, const Symbol *within) {
  json_t *list = json_array();
  const PlaceUnits units = request->documents->units;
  for (size_t i = 0; i < site->analysis->names->symbols.n; i++) {
    const Symbol *symbol = site->analysis->names->symbols.items[i];
    const int kind = outline_kind(symbol);
    if (!kind || symbol->within != within || symbol->span.source != site->source) continue;
    SrcSpan extent = symbol_extent(symbol);
    if (extent.begin > symbol->span.begin) extent.begin = symbol->span.begin;
    json_t *item = json_pack("{s:o, s:i, s:o, s:o}", "name", json_text(request->arena, symbol->name), "kind", kind,
                             "range", range_of(extent, units), "selectionRange", range_of(symbol->span, units));
    if (symbol->kind == SYMBOL_LAYER) json_object_set_new(item, "children", outline(request, site, symbol));
    json_array_append_new(list, item);
  }
  return list;
}

json_t *request_symbols(const Request *request) {
  Site site;
  return request_site(request, &site) ? outline(request, &site, NULL) : NULL;
}
