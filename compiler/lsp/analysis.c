/* Parsing, name finding and elaboration of an open text. See analysis.h. */
#include "lsp/analysis.h"

#include <string.h>

#include "elaborate/primitives.h"

// ---- values ----

static bool same_value(const Value *a, const Value *b) {
  if (a->kind != b->kind) return false;
  if (a->kind == VALUE_TENSOR && a->as.tensor && b->as.tensor) {
    bool same = a->as.tensor->dtype == b->as.tensor->dtype && a->as.tensor->rank == b->as.tensor->rank;
    for (uint32_t i = 0; same && i < a->as.tensor->rank; i++) same = a->as.tensor->dims[i] == b->as.tensor->dims[i];
    return same;
  }
  return a->kind == VALUE_TUPLE || a->kind == VALUE_MODULE || a->kind == VALUE_TEMPLATE || values_equal(*a, *b);
}

static void note_value(void *context, const Ast *node, const Value *value) {
  Analysis *analysis = context;
  MapEntry *entry = map_find(&analysis->seen, &node, sizeof node);
  if (value->kind == VALUE_POISON || value->kind == VALUE_MISSING) return;
  if (!entry) {
    SeenValue *seen = ARENA_NEW(analysis->arena, SeenValue);
    *seen = (SeenValue){.first = *value, .n = 1};
    map_put_n(&analysis->seen, &node, sizeof node, seen);
    return;
  }
  SeenValue *seen = entry->value;
  seen->n++;
  seen->differs = seen->differs || !same_value(&seen->first, value);
}

const SeenValue *analysis_value(const Analysis *analysis, const Ast *node) {
  const MapEntry *entry = map_find(&analysis->seen, &node, sizeof node);
  return entry ? entry->value : NULL;
}

// ---- a value in words ----

enum { MOST_ELEMENTS = 6 }; /* of a list or tuple that is shown */

static void describe_list(StrBuf *out, const Analysis *analysis, const List *list) {
  const bool all_modules = list->n > 0 && list->items[0].kind == VALUE_MODULE;
  if (all_modules && list->items[0].as.module) {
    strbuf_printf(out, "%u module%s %s", list->n, list->n == 1 ? "" : "s", list->items[0].as.module->layer->name);
    return;
  }
  strbuf_add_char(out, '[');
  for (uint32_t i = 0; i < list->n && i < MOST_ELEMENTS; i++) {
    if (i) strbuf_add(out, ", ");
    if (list->items[i].kind == VALUE_LIST)
      strbuf_add(out, "[...]");
    else
      value_describe(out, analysis, &list->items[i]);
  }
  strbuf_add(out, list->n > MOST_ELEMENTS ? ", ...]" : "]");
}

static void describe_tuple(StrBuf *out, const Analysis *analysis, const Tuple *tuple) {
  for (uint32_t i = 0; i < tuple->n && i < MOST_ELEMENTS; i++) {
    if (i) strbuf_add(out, ", ");
    if (tuple->items[i])
      node_print_shape(out, analysis->sizes, tuple->items[i]);
    else
      strbuf_add_char(out, '?');
  }
}

static void describe_template(StrBuf *out, const Template *template) {
  if (template->layer) strbuf_printf(out, "module %s", template->layer->name);
  else strbuf_printf(out, "%lld modules", (long long)template->count);
}

/* Numbers, sizes, conditions and texts. False: it is none of these. */
static bool describe_constant(StrBuf *out, const Analysis *analysis, const Value *value) {
  switch (value->kind) {
    case VALUE_NONE:
      strbuf_add(out, "none");
      return true;
    case VALUE_BOOL:
      strbuf_add(out, value->as.boolean ? "true" : "false");
      return true;
    case VALUE_INTEGER:
      strbuf_printf(out, "%lld", (long long)value->as.integer);
      return true;
    case VALUE_NUMBER:
      number_add(out, value->as.number);
      return true;
    case VALUE_SIZE:
      size_print(out, analysis->sizes, value->as.size);
      return true;
    case VALUE_CONDITION:
      cond_print(out, analysis->sizes, value->as.condition);
      return true;
    case VALUE_STRING:
      strbuf_add_quoted(out, value->as.string);
      return true;
    default:
      return false;
  }
}

void value_describe(StrBuf *out, const Analysis *analysis, const Value *value) {
  if (describe_constant(out, analysis, value)) return;
  switch (value->kind) {
    case VALUE_LIST:
      describe_list(out, analysis, value->as.list);
      return;
    case VALUE_PRIMITIVE:
      strbuf_printf(out, "function %s", value->as.primitive->name);
      return;
    case VALUE_FUNCTION:
      strbuf_printf(out, "function %s", value->as.function->name);
      return;
    case VALUE_LAYER:
      strbuf_printf(out, "layer %s", value->as.layer->name);
      return;
    case VALUE_TEMPLATE:
      describe_template(out, value->as.template);
      return;
    case VALUE_MODULE:
      strbuf_printf(out, "module %s", value->as.module->layer->name);
      return;
    case VALUE_TENSOR:
      node_print_shape(out, analysis->sizes, value->as.tensor);
      return;
    case VALUE_TUPLE:
      describe_tuple(out, analysis, value->as.tuple);
      return;
    default:
      strbuf_add(out, value_kind_text(value->kind));
      return;
  }
}

static void find_expression(const Analysis *analysis, const Ast *node, uint32_t offset, const Ast **found) {
  if (!node) return;
  const bool is_inside = node->span.begin <= offset && offset <= node->span.end;
  const bool is_smaller = !*found || node->span.end - node->span.begin <= (*found)->span.end - (*found)->span.begin;
  if (is_inside && is_smaller && analysis_value(analysis, node)) *found = node;
  for (uint32_t i = 0; i < node->n_children; i++) find_expression(analysis, node->children[i], offset, found);
}

const Ast *analysis_expression(const Analysis *analysis, const Ast *file, uint32_t offset) {
  const Ast *found = NULL;
  find_expression(analysis, file, offset, &found);
  return found;
}

// ---- making ----

/* The definitions that this model has config values for: one list serves all files of a workspace. */
static uint32_t fitting_definitions(Arena *arena, const AnalysisRequest *request, const Ast *model,
                                    Definition **fitting) {
  uint32_t n = 0;
  *fitting = ARENA_ARRAY(arena, Definition, request->n_definitions);
  for (uint32_t i = 0; i < request->n_definitions; i++)
    for (uint32_t k = 0; k < model->children[0]->n_children; k++)
      if (strcmp(model->children[0]->children[k]->name, request->definitions[i].name) == 0)
        (*fitting)[n++] = request->definitions[i];
  return n;
}

/* Values are kept of the first model alone. */
static void elaborate_model(Analysis *analysis, Map *interned, const AnalysisRequest *request, const Ast *model) {
  const bool is_first = !analysis->sizes;
  ElaborateObserver observer = {.context = analysis, .saw = note_value};
  Definition *definitions;
  const uint32_t n = fitting_definitions(analysis->arena, request, model, &definitions);
  const ElaborateOptions options = {
      .model = model->name, .definitions = definitions, .n_definitions = n, .observer = is_first ? &observer : NULL};
  Diag diag = diag_new(analysis->arena);
  Graph *graph = elaborate(analysis->arena, interned, &diag, analysis->program, &options);
  for (size_t i = 0; i < diag.messages.n; i++)
    vec_push(analysis->arena, &analysis->diag.messages, diag.messages.items[i]);
  if (!is_first) return;
  analysis->graph = graph;
  analysis->sizes = observer.sizes;
}

Analysis *analysis_new(const AnalysisRequest *request) {
  Arena *arena = arena_create();
  Analysis *analysis = ARENA_NEW(arena, Analysis);
  Map interned = map_new(arena);
  *analysis = (Analysis){.arena = arena, .diag = diag_new(arena), .seen = map_new(arena)};
  analysis->program = parse_open_program(arena, &interned, &analysis->diag, request->path, &request->open);
  if (!analysis->program) {
    analysis->program = ARENA_NEW(arena, ParsedProgram);
  } else {
    const ParsedFile *file = &analysis->program->files.items[analysis->program->files.n - 1];
    analysis->source = file->source;
    analysis->file = file->ast;
  }
  analysis->names = names_of(arena, analysis->program, request->standard);
  if (diag_has_errors(&analysis->diag) || !analysis->file) return analysis;
  for (uint32_t i = 0; i < analysis->file->n_children; i++) {
    const Ast *node = analysis->file->children[i];
    if (node->kind == AST_LAYER && node->flag) elaborate_model(analysis, &interned, request, node);
  }
  return analysis;
}

void analysis_free(Analysis *analysis) {
  if (analysis) arena_destroy(analysis->arena);
}
