/* The entry of the interpreter: everything the caller gives is checked and bound before anything is computed.
 *
 * In: a graph, weights by name, the tensors of a run. Out: the outputs, or the first error: an input that is missing,
 * unknown, of another type or shape, a size on which two inputs disagree, an id that no table has.
 *
 * With ragged sizes each item is a run of its own, with every ragged size bound to its length and the batch to 1; the
 * results are put together and padded with zeros. So padding is never read, and what a batch computes is by definition
 * what its items give alone. All items are checked before the first is computed, so an error leaves no partial result.
 *
 * Outputs belong to the caller's arena; the rest is in a scratch arena that is destroyed before the return. */
#include <string.h>

#include "graph/eval_run.h"

// ---- names and types of inputs ----

/* The lengths of a ragged size: "time.lengths". */
static bool is_lengths(const Graph *graph, const char *name) {
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++) {
    size_t n = strlen(graph->sizes->symbols[i]);
    if (!graph->ragged[i] || strncmp(name, graph->sizes->symbols[i], n) != 0) continue;
    if (strcmp(name + n, ".lengths") == 0) return true;
  }
  return false;
}

/* The input of this name; NULL: the graph has none. */
static const Node *find_input(const Graph *graph, const char *name) {
  for (size_t i = 0; i < graph->inputs.n; i++) {
    if (strcmp(graph->inputs.items[i]->attr.name, name) == 0) return graph->inputs.items[i];
  }
  return NULL;
}

/* Suggests the nearest name, or lists all of them if none is near. Returns false. */
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

/* Names the sizes that are bound so far, because these are what the shape disagrees with. */
static bool refuse_shape(Arena *arena, Diag *diag, const EvalRun *run, const Graph *graph, const Node *node,
                         const Tensor *given) {
  StrBuf have = strbuf_new(arena), want = strbuf_new(arena);
  print_dims(&have, given);
  print_wanted(&want, run, graph, node);
  diag_error(diag, node->origin.span, DIAG_INPUT_SHAPE, "input '%s' has shape %s, %s is needed", node->attr.name,
             have.text, want.text);
  return false;
}

/* Presence, type and rank; dims are compared once the sizes are bound. */
static bool fits(Arena *arena, Diag *diag, const Graph *graph, const Node *node, const Tensor *given) {
  if (!given && node->attr.has_default) return true;
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

/* The given tensors in the order of graph->inputs, checked for name, type and rank; NULL after an error. */
static const Tensor **find_inputs(Arena *arena, Diag *diag, const Graph *graph, const EvalInputs *inputs) {
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

/* Binds the sizes that stand alone as a dim of one input. `owners`: by symbol, the input that bound it, for the
 * message. A size that occurs only in sums and products is bound by no input. */
static bool bind_input(EvalRun *run, const Node *node, const Tensor *given, const Node **owners) {
  for (uint32_t axis = 0; axis < node->rank; axis++) {
    int32_t symbol = size_symbol_of(node->dims[axis]);
    if (symbol < 0) continue;
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

/* A size that the caller gave by name, such as the `past` of a step, which no input need have in its shape. */
static void bind_given(EvalRun *run, const EvalSize *given) {
  const SizeTable *sizes = run->graph->sizes;
  for (uint32_t i = 0; i < sizes->n_symbols; i++) {
    if (strcmp(sizes->symbols[i], given->name) != 0) continue;
    run->bound[i] = true;
    run->symbols[i] = given->value;
  }
}

/* Binds the run-time sizes, first those that the caller gave, and then checks that every dim of every input agrees. */
static bool bind_sizes(EvalRun *run, const Tensor *const *inputs) {
  const Graph *graph = run->graph;
  const Node *owners[SIZE_MAX_SYMBOLS] = {NULL};
  for (uint32_t i = 0; i < run->options.n_sizes; i++) bind_given(run, &run->options.sizes[i]);
  for (size_t i = 0; i < graph->inputs.n; i++) {
    if (inputs[i] && !bind_input(run, graph->inputs.items[i], inputs[i], owners)) return false;
  }
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const Node *node = graph->inputs.items[i];
    for (uint32_t axis = 0; inputs[i] && axis < node->rank; axis++) {
      int64_t value;
      bool known = size_value(node->dims[axis], run->symbols, &value);
      if (!known || value != inputs[i]->dims[axis]) {
        return refuse_shape(run->scratch, run->diag, run, graph, node, inputs[i]);
      }
    }
  }
  return true;
}

// ---- inputs that are left out ----

/* Every element is the default. NULL after an error: a size of it may still be negative. */
static const Tensor *default_tensor(EvalRun *run, const Node *node) {
  int64_t dims[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) {
    dims[i] = eval_size(run, node->dims[i]);
    if (dims[i] >= 0) continue;
    const EvalNode in = {.run = run, .node = node};
    eval_fault(&in, DIAG_RUN_CHECK, "axis %u of the input has no size", i);
    return NULL;
  }
  Tensor *tensor = tensor_new(run->scratch, node->dtype, node->rank, dims);
  for (int64_t i = 0; i < tensor_elements(tensor); i++) {
    if (node->dtype == DTYPE_F32) ((float *)tensor->data)[i] = (float)node->attr.number;
    else if (node->dtype == DTYPE_I32) ((int32_t *)tensor->data)[i] = (int32_t)node->attr.integer;
    else ((uint8_t *)tensor->data)[i] = (uint8_t)node->attr.integer;
  }
  return tensor;
}

static bool fill_defaults(EvalRun *run, const Tensor **inputs) {
  for (size_t i = 0; i < run->graph->inputs.n; i++)
    if (!inputs[i] && !(inputs[i] = default_tensor(run, run->graph->inputs.items[i]))) return false;
  return true;
}

// ---- ids ----

/* The input that these ids are, behind views that keep all of its elements; NULL if they are computed. A slice ends the
 * walk: ids that it leaves out may be anything. */
static const Node *input_behind(const Node *ids) {
  while (ids->op == OP_RESHAPE || ids->op == OP_PERMUTE) ids = ids->inputs.items[0];
  return ids->op == OP_INPUT ? ids : NULL;
}

/* Reports the first id that is no row of a table of `limit` rows, with its coordinates. */
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

/* Ids that are an input are checked before the run, so that the message can name the element. Computed ids are checked
 * when they are used. */
static bool check_use(const EvalRun *run, const Node *table, const Node *ids, int64_t first) {
  const Node *input = input_behind(ids);
  int64_t rows;
  if (!input || !table->rank || !size_is_const(table->dims[0], &rows)) return true;
  for (size_t i = 0; i < run->graph->inputs.n; i++) {
    if (run->graph->inputs.items[i] == input) return check_id_values(run, input, run->inputs[i], rows, first);
  }
  return true;
}

/* Gathers within the expression of a fused node are checked like gathers of their own. */
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

/* Checks the ids that come from inputs; `first` is added to the first coordinate in messages. */
static bool check_ids(const EvalRun *run, const bool *needed, int64_t first) {
  for (const Node *node = run->graph->first; node; node = node->next) {
    if (!needed[node->id]) continue;
    if (node->op == OP_GATHER && !check_use(run, node->inputs.items[0], node->inputs.items[1], first)) return false;
    if (!check_expr(run, node, first)) return false;
  }
  return true;
}

// ---- items of a ragged batch ----

typedef struct Ragged {
  EvalRun *whole;
  int64_t items;
  const int32_t *lengths[SIZE_MAX_SYMBOLS]; /* by symbol; NULL: all full */
} Ragged;

static const Tensor *find_tensor(const EvalInputs *inputs, const char *name) {
  for (uint32_t i = 0; i < inputs->n; i++) {
    if (strcmp(inputs->names[i], name) == 0) return &inputs->tensors[i];
  }
  return NULL;
}

bool eval_check_lengths(Arena *arena, Diag *diag, const char *name, const char *batch, int64_t items,
                        const Tensor *given) {
  if (given->dtype == DTYPE_I32 && given->rank == 1 && given->dims[0] == items) return true;
  StrBuf have = strbuf_new(arena);
  for (uint32_t i = 0; i < given->rank; i++) strbuf_printf(&have, "%s%lld", i ? ", " : "", (long long)given->dims[i]);
  diag_error_at(diag, NULL, DIAG_INPUT_SHAPE, "'%s' must be i32[%s = %lld], not %s[%s]", name, batch, (long long)items,
                dtype_names[given->dtype], have.text);
  return false;
}

static bool check_lengths(const Ragged *r, uint32_t symbol, const char *key, const Tensor *given) {
  EvalRun *run = r->whole;
  const char *batch = run->graph->sizes->symbols[run->graph->ragged_batch];
  if (!eval_check_lengths(run->scratch, run->diag, key, batch, r->items, given)) return false;
  for (int64_t i = 0; i < r->items; i++) {
    int32_t length = ((const int32_t *)given->data)[i];
    if (length >= 0 && length <= run->symbols[symbol]) continue;
    diag_error_at(run->diag, NULL, DIAG_INPUT_VALUE, "'%s' has a length of %d, but %s is %lld", key, length,
                  run->graph->sizes->symbols[symbol], (long long)run->symbols[symbol]);
    return false;
  }
  return true;
}

/* A ragged size without lengths is full for every item. */
static bool find_lengths(Ragged *r, const EvalInputs *inputs) {
  const Graph *graph = r->whole->graph;
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++) {
    if (!graph->ragged[i]) continue;
    const char *key = arena_printf(r->whole->scratch, "%s.lengths", graph->sizes->symbols[i]);
    const Tensor *given = find_tensor(inputs, key);
    if (given && !check_lengths(r, i, key, given)) return false;
    if (given) r->lengths[i] = given->data;
  }
  return true;
}

/* Copies the part of `whole` that begins at `begin`, or `part` into it if `store`. False if the part does not lie
 * within. */
static bool copy_part(Tensor *whole, const int64_t *begin, Tensor *part, bool store) {
  size_t bytes = dtype_bytes[part->dtype];
  int64_t strides[MAX_RANK], base = 0, stride = 1;
  for (uint32_t i = whole->rank; i > 0; stride *= whole->dims[--i]) {
    strides[i - 1] = stride;
    base += begin[i - 1] * stride;
    if (part->dims[i - 1] < 0 || begin[i - 1] + part->dims[i - 1] > whole->dims[i - 1]) return false;
  }
  Grid grid = grid_of(part->rank, part->dims);
  for (int64_t i = 0; i < grid.points; i++, grid_next(&grid)) {
    char *in_whole = (char *)whole->data + (size_t)(base + grid_offset(&grid, strides)) * bytes;
    char *in_part = (char *)part->data + (size_t)i * bytes;
    if (store) memcpy(in_whole, in_part, bytes);
    else memcpy(in_part, in_whole, bytes);
  }
  return true;
}

static bool refuse_part(EvalRun *run, const Node *node) {
  const EvalNode in = {.run = run, .node = node};
  return eval_fault(&in, DIAG_RUN_CHECK, "the shape of an item does not lie within that of the batch");
}

static bool is_batch(const Graph *graph, const Size *size) {
  return graph->ragged_batch >= 0 && size_symbol_of(size) == graph->ragged_batch;
}

/* The index at which an item begins along each axis. */
static void item_begin(const Graph *graph, const Node *node, int64_t item, int64_t *begin) {
  for (uint8_t i = 0; i < node->rank; i++) begin[i] = is_batch(graph, node->dims[i]) ? item : 0;
}

/* The part of an input that belongs to one item, cut to its lengths. NULL after an error. */
static const Tensor *item_input(EvalRun *run, const Node *node, const Tensor *whole, int64_t item) {
  int64_t dims[MAX_RANK], begin[MAX_RANK];
  for (uint8_t i = 0; i < node->rank; i++) {
    dims[i] = eval_size(run, node->dims[i]);
    if (dims[i] < 0 || dims[i] > whole->dims[i]) {
      refuse_part(run, node);
      return NULL;
    }
  }
  Tensor *part = tensor_new(run->scratch, whole->dtype, whole->rank, dims);
  Tensor source = *whole;
  item_begin(run->graph, node, item, begin);
  return copy_part(&source, begin, part, false) ? part : NULL;
}

/* A run of one item; its memory is `scratch`. NULL after an error. */
static EvalRun *item_run(const Ragged *r, Arena *scratch, int64_t item) {
  const EvalRun *whole = r->whole;
  EvalRun *run = eval_run_new(scratch, whole->diag, whole->graph);
  run->weights = whole->weights;
  run->context = whole->context;
  run->options = whole->options;
  memcpy(run->symbols, whole->symbols, sizeof run->symbols);
  memcpy(run->bound, whole->bound, sizeof run->bound);
  run->symbols[whole->graph->ragged_batch] = 1;
  for (uint32_t i = 0; i < SIZE_MAX_SYMBOLS; i++) {
    if (r->lengths[i]) run->symbols[i] = r->lengths[i][item];
  }
  size_t n = whole->graph->inputs.n;
  const Tensor **inputs = ARENA_ARRAY(scratch, const Tensor *, n);
  for (size_t i = 0; i < n; i++) {
    inputs[i] = item_input(run, whole->graph->inputs.items[i], whole->inputs[i], item);
    if (!inputs[i]) return NULL;
  }
  run->inputs = inputs;
  return run;
}

static bool check_item(const Ragged *r, const bool *needed, int64_t item) {
  Arena *scratch = arena_create();
  EvalRun *run = item_run(r, scratch, item);
  bool ok = run && eval_checks(run) && check_ids(run, needed, item);
  arena_destroy(scratch);
  return ok;
}

/* The outputs of a run, from the engine that computes items if there is one. */
static bool compute(EvalRun *run, Tensor *outputs, Arena *arena) {
  const EvalOptions *options = &run->options;
  return options->item ? options->item(options->item_context, run->inputs, outputs) : eval_outputs(run, outputs, arena);
}

/* Computes one item and stores its part of every output. */
static bool compute_item(const Ragged *r, int64_t item, Tensor *outputs) {
  const Graph *graph = r->whole->graph;
  Arena *scratch = arena_create();
  Tensor *parts = ARENA_ARRAY(scratch, Tensor, graph->outputs.n);
  EvalRun *run = item_run(r, scratch, item);
  bool ok = run && compute(run, parts, scratch);
  for (size_t i = 0; ok && i < graph->outputs.n; i++) {
    const Node *node = graph->outputs.items[i].node;
    int64_t begin[MAX_RANK];
    item_begin(graph, node, item, begin);
    if (!copy_part(&outputs[i], begin, &parts[i], true)) ok = refuse_part(run, node);
  }
  arena_destroy(scratch);
  return ok;
}

/* Outputs of the whole batch, filled with zeros, which stay where an item is shorter. */
static bool make_outputs(const EvalRun *run, Arena *arena, Tensor *outputs) {
  for (size_t i = 0; i < run->graph->outputs.n; i++) {
    const Node *node = run->graph->outputs.items[i].node;
    int64_t dims[MAX_RANK];
    for (uint8_t j = 0; j < node->rank; j++) {
      if (!size_value(node->dims[j], run->symbols, &dims[j]) || dims[j] < 0) {
        const EvalNode in = {.run = (EvalRun *)run, .node = node};
        return eval_fault(&in, DIAG_RUN_CHECK, "axis %u of the output has no size", j);
      }
    }
    outputs[i] = *tensor_new_named(arena, "output", run->graph->outputs.items[i].name, node->dtype, node->rank, dims);
  }
  return true;
}

/* A batch without items is computed whole: its outputs have no elements, but checks still hold or fail. */
static bool run_items(EvalRun *whole, const EvalInputs *inputs, const bool *needed, Arena *arena, Tensor *outputs) {
  Ragged r = {.whole = whole, .items = whole->symbols[whole->graph->ragged_batch]};
  if (!find_lengths(&r, inputs)) return false;
  if (r.items == 0) return eval_checks(whole) && compute(whole, outputs, arena);
  if (!make_outputs(whole, arena, outputs)) return false;
  for (int64_t i = 0; i < r.items; i++) {
    if (!check_item(&r, needed, i)) return false;
  }
  for (int64_t i = 0; i < r.items; i++) {
    if (!compute_item(&r, i, outputs)) return false;
  }
  return true;
}

// ---- entry ----

static bool is_ragged(const Graph *graph) {
  bool ragged = false;
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++) ragged |= graph->ragged[i];
  return ragged && graph->ragged_batch >= 0;
}

static bool evaluate(EvalRun *run, const EvalInputs *inputs, Arena *arena, Tensor *outputs) {
  const Tensor **found = find_inputs(run->scratch, run->diag, run->graph, inputs);
  if (!found || !bind_sizes(run, found) || !fill_defaults(run, found)) return false;
  run->inputs = found;
  const bool *needed = eval_needed(run->scratch, run->graph);
  if (is_ragged(run->graph)) return run_items(run, inputs, needed, arena, outputs);
  return eval_checks(run) && check_ids(run, needed, 0) && eval_outputs(run, outputs, arena);
}

bool graph_eval_with(Arena *arena, Diag *diag, Graph *graph, WeightLookup weights, void *context,
                     const EvalInputs *inputs, const EvalOptions *options, Tensor *outputs) {
  Arena *scratch = arena_create();
  EvalRun *run = eval_run_new(scratch, diag, graph);
  run->weights = weights;
  run->context = context;
  if (options) run->options = *options;
  bool ok = evaluate(run, inputs, arena, outputs);
  arena_destroy(scratch);
  return ok;
}

bool graph_eval(Arena *arena, Diag *diag, Graph *graph, WeightLookup weights, void *context, const EvalInputs *inputs,
                Tensor *outputs) {
  return graph_eval_with(arena, diag, graph, weights, context, inputs, NULL, outputs);
}
