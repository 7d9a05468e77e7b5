/* In: the tensors given for a run. Out: them in the order of the graph's inputs and the values of the run-time sizes,
 * or the first thing that is wrong: an input that is missing, unknown, of another type or shape, a size that two inputs
 * disagree about, an id that no table has. All of it before anything is computed. */
#include <string.h>

#include "graph/eval_run.h"

// ---- names and types ----

/* The lengths of a ragged size: "time.lengths". */
static bool is_lengths(const Graph *graph, const char *name) {
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++) {
    size_t n = strlen(graph->sizes->symbols[i]);
    if (!graph->ragged[i] || strncmp(name, graph->sizes->symbols[i], n) != 0) continue;
    if (strcmp(name + n, ".lengths") == 0) return true;
  }
  return false;
}

static const Node *find_input(const Graph *graph, const char *name) {
  for (size_t i = 0; i < graph->inputs.n; i++) {
    if (strcmp(graph->inputs.items[i]->attr.name, name) == 0) return graph->inputs.items[i];
  }
  return NULL;
}

static bool refuse_unknown(Arena *arena, Diag *diag, const Graph *graph, const char *name) {
  StrBuf list = strbuf_new(arena);
  const char **names = ARENA_ARRAY(arena, const char *, graph->inputs.n);
  for (size_t i = 0; i < graph->inputs.n; i++) {
    names[i] = graph->inputs.items[i]->attr.name;
    strbuf_printf(&list, "%s%s", i ? ", " : "", names[i]);
  }
  const char *near = diag_nearest(name, names, graph->inputs.n);
  if (near) {
    diag_error_at(diag, NULL, DIAG_INPUT_UNKNOWN, "%s has no input '%s'; did you mean '%s'?", graph->name, name, near);
  } else {
    diag_error_at(diag, NULL, DIAG_INPUT_UNKNOWN, "%s has no input '%s'; it has %s", graph->name, name, list.text);
  }
  return false;
}

static void print_dims(StrBuf *out, const Tensor *tensor) {
  strbuf_add_char(out, '[');
  for (uint32_t i = 0; i < tensor->rank; i++) strbuf_printf(out, "%s%lld", i ? ", " : "", (long long)tensor->dims[i]);
  strbuf_add_char(out, ']');
}

/* "[batch = 2, 8]"; without a run "[batch, 8]". */
static void print_wanted(StrBuf *out, const EvalRun *run, const Graph *graph, const Node *node) {
  strbuf_add_char(out, '[');
  for (uint8_t i = 0; i < node->rank; i++) {
    int64_t value;
    if (i) strbuf_add(out, ", ");
    size_print(out, graph->sizes, node->dims[i]);
    bool known = run && !size_is_const(node->dims[i], NULL) && size_value(node->dims[i], run->symbols, &value);
    if (known) strbuf_printf(out, " = %lld", (long long)value);
  }
  strbuf_add_char(out, ']');
}

static bool refuse_shape(Arena *arena, Diag *diag, const EvalRun *run, const Graph *graph, const Node *node,
                         const Tensor *given) {
  StrBuf have = strbuf_new(arena), want = strbuf_new(arena);
  print_dims(&have, given);
  print_wanted(&want, run, graph, node);
  diag_error(diag, node->origin.span, DIAG_INPUT_SHAPE, "input '%s' has shape %s, %s is needed", node->attr.name,
             have.text, want.text);
  return false;
}

static bool fits(Arena *arena, Diag *diag, const Graph *graph, const Node *node, const Tensor *given) {
  if (!given) {
    StrBuf want = strbuf_new(arena);
    node_print_shape(&want, graph->sizes, node);
    diag_error(diag, node->origin.span, DIAG_INPUT_MISSING, "input '%s' %s is missing", node->attr.name, want.text);
    return false;
  }
  if (given->dtype != node->dtype) {
    diag_error(diag, node->origin.span, DIAG_INPUT_TYPE, "input '%s' is %s, %s is needed", node->attr.name,
               dtype_names[given->dtype], dtype_names[node->dtype]);
    return false;
  }
  return given->rank == node->rank || refuse_shape(arena, diag, NULL, graph, node, given);
}

const Tensor **eval_find_inputs(Arena *arena, Diag *diag, const Graph *graph, const EvalInputs *inputs) {
  const Tensor **found = ARENA_ARRAY(arena, const Tensor *, graph->inputs.n);
  bool ok = true;
  for (uint32_t i = 0; i < inputs->n; i++) {
    const char *name = inputs->names[i];
    if (!find_input(graph, name) && !is_lengths(graph, name)) ok = refuse_unknown(arena, diag, graph, name);
  }
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const Node *node = graph->inputs.items[i];
    for (uint32_t j = 0; j < inputs->n; j++) {
      if (strcmp(inputs->names[j], node->attr.name) == 0) found[i] = &inputs->tensors[j];
    }
    ok &= fits(arena, diag, graph, node, found[i]);
  }
  return ok ? found : NULL;
}

// ---- sizes ----

bool size_is_symbol(const Size *size, uint32_t *symbol) {
  if (size->n_terms != 1 || size->terms[0].coefficient != 1 || size->terms[0].degree != 1) return false;
  *symbol = size->terms[0].symbols[0];
  return true;
}

/* Binds the sizes that stand alone in one input. `owners`: by symbol, which input bound it. */
static bool bind_input(EvalRun *run, const Node *node, const Tensor *given, const Node **owners) {
  for (uint32_t axis = 0; axis < node->rank; axis++) {
    uint32_t symbol;
    if (!size_is_symbol(node->dims[axis], &symbol)) continue;
    int64_t value = given->dims[axis];
    if (run->bound[symbol] && run->symbols[symbol] != value) {
      if (!owners[symbol]) return refuse_shape(run->scratch, run->diag, run, run->graph, node, given);
      diag_error(run->diag, node->origin.span, DIAG_INPUT_SHAPE, "%s is %lld in input '%s' and %lld in input '%s'",
                 run->graph->sizes->symbols[symbol], (long long)run->symbols[symbol], owners[symbol]->attr.name,
                 (long long)value, node->attr.name);
      return false;
    }
    if (!run->bound[symbol]) owners[symbol] = node;
    run->bound[symbol] = true;
    run->symbols[symbol] = value;
  }
  return true;
}

static void bind_given(EvalRun *run, const EvalSize *given) {
  const SizeTable *sizes = run->graph->sizes;
  for (uint32_t i = 0; i < sizes->n_symbols; i++) {
    if (strcmp(sizes->symbols[i], given->name) != 0) continue;
    run->bound[i] = true;
    run->symbols[i] = given->value;
  }
}

bool eval_bind(EvalRun *run, const Tensor *const *inputs) {
  const Graph *graph = run->graph;
  const Node *owners[SIZE_MAX_SYMBOLS] = {NULL};
  for (uint32_t i = 0; i < run->options.n_sizes; i++) bind_given(run, &run->options.sizes[i]);
  for (size_t i = 0; i < graph->inputs.n; i++) {
    if (!bind_input(run, graph->inputs.items[i], inputs[i], owners)) return false;
  }
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const Node *node = graph->inputs.items[i];
    for (uint32_t axis = 0; axis < node->rank; axis++) {
      int64_t value;
      bool known = size_value(node->dims[axis], run->symbols, &value);
      if (!known || value != inputs[i]->dims[axis]) {
        return refuse_shape(run->scratch, run->diag, run, graph, node, inputs[i]);
      }
    }
  }
  return true;
}

// ---- ids ----

/* The input whose elements these are, all of them, in any order; NULL if they are something else. */
static const Node *input_behind(const Node *ids) {
  while (ids->op == OP_RESHAPE || ids->op == OP_PERMUTE) ids = ids->inputs.items[0];
  return ids->op == OP_INPUT ? ids : NULL;
}

static bool check_id_values(const EvalRun *run, const Node *input, const Tensor *given, int64_t limit, int64_t first) {
  Grid grid = grid_of(given->rank, given->dims);
  for (int64_t i = 0; i < grid.points; i++, grid_next(&grid)) {
    int32_t id = ((const int32_t *)given->data)[i];
    if (id >= 0 && id < limit) continue;
    StrBuf place = strbuf_new(run->scratch);
    for (uint32_t j = 0; j < grid.rank; j++) {
      strbuf_printf(&place, "%s%lld", j ? "," : "[", (long long)(grid.index[j] + (j ? 0 : first)));
    }
    if (grid.rank) strbuf_add_char(&place, ']');
    diag_error(run->diag, input->origin.span, DIAG_INPUT_VALUE, "input \"%s\"%s = %d, legal range is [0, %lld)",
               input->attr.name, place.text, id, (long long)limit);
    return false;
  }
  return true;
}

static bool check_use(const EvalRun *run, const Node *table, const Node *ids, int64_t first) {
  const Node *input = input_behind(ids);
  int64_t rows;
  if (!input || !table->rank || !size_is_const(table->dims[0], &rows)) return true;
  for (size_t i = 0; i < run->graph->inputs.n; i++) {
    if (run->graph->inputs.items[i] == input) return check_id_values(run, input, run->inputs[i], rows, first);
  }
  return true;
}

static bool check_expr(const EvalRun *run, const Node *node, int64_t first) {
  if (!node->attr.expr) return true;
  ExprList list = expr_list(run->scratch, node->attr.expr);
  bool ok = true;
  for (uint32_t i = 0; i < list.n && ok; i++) {
    const Expr *expr = list.items[i];
    if (expr->kind != EXPR_GATHER) continue;
    ok = check_use(run, node->inputs.items[expr->input], node->inputs.items[expr->ids], first);
  }
  return ok;
}

bool eval_check_ids(const EvalRun *run, const bool *needed, int64_t first) {
  for (const Node *node = run->graph->first; node; node = node->next) {
    if (!needed[node->id]) continue;
    if (node->op == OP_GATHER && !check_use(run, node->inputs.items[0], node->inputs.items[1], first)) return false;
    if (!check_expr(run, node, first)) return false;
  }
  return true;
}
