/* The entry of the interpreter: everything the caller gives is checked and bound before anything is computed.
 *
 * In: a graph, weights by name, the tensors of a run. Out: the outputs, or the first error: an input that is missing,
 * unknown, of another type or shape, a size on which two inputs disagree, an id that no table has.
 *
 * With ragged sizes each item is a run of its own (eval_ragged.c).
 *
 * Outputs belong to the caller's arena; the rest is in a scratch arena that is destroyed before the return. */
#include "graph/eval.h"

#include <string.h>

#include "graph/eval/eval_run.h"

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
  tensor_print_dims(&have, given->rank, given->dims);
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
  if (is_ragged(run->graph)) return eval_items(run, inputs, needed, arena, outputs);
  return eval_checks(run) && eval_check_ids(run, needed, 0) && eval_outputs(run, outputs, arena);
}

bool graph_eval(Arena *arena, Diag *diag, const EvalCall *call, Tensor *outputs) {
  Arena *scratch = arena_create();
  EvalRun *run = eval_run_new(scratch, diag, call->graph);
  run->weights = call->weights;
  run->context = call->weights_context;
  run->options = call->options;
  bool ok = evaluate(run, call->inputs, arena, outputs);
  arena_destroy(scratch);
  return ok;
}
