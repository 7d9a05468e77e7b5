/* Ragged batches: each item is a run of its own, with every ragged size bound to its length and the batch to 1.
 *
 * In: a run whose inputs are bound, with the lengths of the items. Out: the results, put together and padded with
 * zeros. So padding is never read, and what a batch computes is by definition what its items give alone. All items are
 * checked before the first is computed, so an error leaves no partial result. Refuses lengths that do not fit. */
#include "graph/eval/eval_run.h"

#include <string.h>


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
  tensor_print_dims(&have, given->rank, given->dims);
  diag_error_at(diag, NULL, DIAG_INPUT_SHAPE, "'%s' must be i32[%s = %lld], not %s%s", name, batch, (long long)items,
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
  bool ok = run && eval_checks(run) && eval_check_ids(run, needed, item);
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
bool eval_items(EvalRun *whole, const EvalInputs *inputs, const bool *needed, Arena *arena, Tensor *outputs) {
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
