/* One run of the interpreter: a graph whose inputs are whole and whose sizes have values.
 *
 * In: an EvalRun. Out: its outputs, or the first error. Nodes are computed in the order of the list, only those that an
 * output needs, and a value is freed after its last use, so that memory is bounded by what is live at a time. Before a
 * node is computed, the actual shapes of its operands go through the rules that typed the graph, so even a graph
 * without checks cannot read beyond a tensor. Values are malloc'ed; everything else is in run->scratch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "graph/eval/eval_run.h"

EvalRun *eval_run_new(Arena *scratch, Diag *diag, const Graph *graph) {
  EvalRun *run = ARENA_NEW(scratch, EvalRun);
  run->scratch = scratch;
  run->numbers = size_table_new(scratch);
  run->diag = diag;
  run->graph = graph;
  run->values = ARENA_ARRAY(scratch, EvalValue, graph->next_id);
  run->probabilities = ARENA_ARRAY(scratch, Tensor, graph->next_id);
  return run;
}

// ---- checks ----

static bool compare(OpKind op, int64_t left, int64_t right) {
  switch (op) {
    case OP_EQ: return left == right;
    case OP_NE: return left != right;
    case OP_LT: return left < right;
    case OP_GT: return left > right;
    case OP_LE: return left <= right;
    default: return left >= right;
  }
}

/* Both sides are evaluated even if the first decides, so that an unbound size is always reported. NULL or the fault. */
static const char *cond_fault(const EvalRun *run, const Cond *cond, bool *truth) {
  bool other = false;
  int64_t left, right;
  const char *fault;
  if (cond->kind == COND_COMPARE) {
    fault = eval_size_fault(run, cond->left, &left);
    if (!fault) fault = eval_size_fault(run, cond->right, &right);
    if (!fault) *truth = compare(cond->op, left, right);
    return fault;
  }
  fault = cond_fault(run, cond->a, truth);
  if (!fault && cond->b) fault = cond_fault(run, cond->b, &other);
  if (cond->kind == COND_NOT) *truth = !*truth;
  if (cond->kind == COND_AND) *truth = *truth && other;
  if (cond->kind == COND_OR) *truth = *truth || other;
  return fault;
}

/* The message with the values that the sizes have in this run. A size without a value is left out. */
static const char *check_message(const EvalRun *run, const Check *check) {
  StrBuf out = strbuf_new(run->scratch);
  for (size_t i = 0; i < check->message.n; i++) {
    const CheckPart *part = &check->message.items[i];
    int64_t value;
    if (part->text) strbuf_add(&out, part->text);
    if (!part->size || eval_size_fault(run, part->size, &value)) continue;
    if (part->named && !size_is_const(part->size, NULL)) {
      size_print(&out, run->graph->sizes, part->size);
      strbuf_add(&out, " = ");
    }
    strbuf_printf(&out, "%lld", (long long)value);
  }
  return out.text;
}

bool eval_checks(EvalRun *run) {
  for (size_t i = 0; i < run->graph->checks.n; i++) {
    const Check *check = &run->graph->checks.items[i];
    bool truth = false;
    const char *fault = cond_fault(run, check->condition, &truth);
    if (!fault && truth) continue;
    origin_error(run->diag, &check->origin, DIAG_RUN_CHECK, "%s", fault ? fault : check_message(run, check));
    return false;
  }
  return true;
}

// ---- shapes ----

/* Replaces sizes by their values in this run; NULL or the fault. */
static const char *make_constant(EvalRun *run, uint32_t n, const Size **sizes) {
  for (uint32_t i = 0; i < n; i++) {
    int64_t value;
    const char *fault = sizes[i] ? eval_size_fault(run, sizes[i], &value) : NULL;
    if (fault) return fault;
    if (sizes[i]) sizes[i] = size_const(run->numbers, value);
  }
  return NULL;
}

/* Sizes within an expression are evaluated without a check later, so each must have a value here. */
static const char *expr_size_fault(EvalRun *run, const Expr *expr) {
  if (!expr) return NULL;
  ExprList list = expr_list(run->scratch, expr);
  const char *fault = NULL;
  int64_t value;
  for (uint32_t i = 0; i < list.n && !fault; i++) {
    if (list.items[i]->kind == EXPR_SIZE) fault = eval_size_fault(run, list.items[i]->size, &value);
  }
  return fault;
}

/* The node with its sizes as constants, whose operands are concrete too: then infer_node compares numbers, not
 * polynomials, and what size_may_equal let pass at compile time is decided. NULL after a fault, which is reported. */
static Node *make_concrete(const EvalNode *in) {
  EvalRun *run = in->run;
  Node *copy = ARENA_NEW(run->scratch, Node);
  *copy = (Node){.op = in->node->op, .dtype = in->node->dtype, .rank = in->node->rank, .attr = in->node->attr};
  memcpy(copy->dims, in->node->dims, sizeof copy->dims);
  for (size_t i = 0; i < in->node->inputs.n; i++) {
    vec_push(run->scratch, &copy->inputs, run->values[in->node->inputs.items[i]->id].concrete);
  }
  const char *fault = make_constant(run, copy->rank, copy->dims);
  if (!fault) fault = make_constant(run, copy->rank, copy->attr.starts);
  if (!fault) fault = make_constant(run, copy->attr.rank_in, copy->attr.dims_in);
  if (!fault) fault = make_constant(run, 1, &copy->attr.size);
  if (!fault) fault = expr_size_fault(run, copy->attr.expr);
  NodeType type, own = type_of(copy);
  if (!fault) fault = infer_node(run->numbers, copy, &type);
  if (!fault && !infer_same_type(run->numbers, &type, &own)) {
    StrBuf out = strbuf_new(run->scratch);
    type_print(&out, run->numbers, &type);
    strbuf_add(&out, " is not ");
    type_print(&out, run->numbers, &own);
    fault = out.text;
  }
  if (!fault) return copy;
  eval_fault(in, DIAG_RUN_CHECK, "%s", fault);
  return NULL;
}

/* A difference of sizes may be negative in a run, which no tensor can be. */
static bool set_shape(const EvalNode *in, EvalValue *value) {
  value->concrete = make_concrete(in);
  if (!value->concrete) return false;
  value->tensor.dtype = in->node->dtype;
  value->tensor.rank = in->node->rank;
  for (uint8_t i = 0; i < in->node->rank; i++) {
    size_is_const(value->concrete->dims[i], &value->tensor.dims[i]);
    if (value->tensor.dims[i] < 0) {
      return eval_fault(in, DIAG_RUN_CHECK, "axis %u would have %lld elements", i, (long long)value->tensor.dims[i]);
    }
  }
  return true;
}

// ---- nodes ----

typedef bool (*EvalRule)(const EvalNode *in, Tensor *out);

/* The column `eval`; all pointwise operations share one rule, which looks up the function of a row. */
#define RULE_SOURCE(eval) eval_##eval
#define RULE_UNARY(eval) eval_elementwise
#define RULE_BINARY(eval) eval_elementwise
#define RULE_TERNARY(eval) eval_elementwise
#define RULE_VIEW(eval) eval_##eval
#define RULE_REDUCE(eval) eval_##eval
#define RULE_CONTRACT(eval) eval_##eval
#define RULE_OTHER(eval) eval_##eval
static const EvalRule rules[N_OPS] = {
#define OP(Enum, text, category, least, most, takes, gives, shape, eval, ...) [OP_##Enum] = RULE_##category(eval),
#include "graph/ops.def"
};

void eval_spoil_rows(const EvalNode *in, Tensor *out) {
  const Node *of = in->node;
  if (!of->attr.rows_mask || of->attr.rows_are_steps) return;
  const Tensor *mask = in->inputs[of->attr.rows_mask - 1];
  int64_t strides[MAX_RANK], columns = out->dims[out->rank - 1];
  broadcast_strides(mask->rank, mask->dims, 1, out->rank - 1, strides);
  Grid grid = grid_of(out->rank - 1, out->dims);
  for (int64_t row = 0; row < grid.points; row++, grid_next(&grid)) {
    bool holds = ((const uint8_t *)mask->data)[grid_offset(&grid, strides)] != 0;
    for (int64_t i = 0; i < columns && holds != of->attr.rows_where; i++)
      ((float *)out->data)[row * columns + i] = of->attr.rows_zero ? 0 : NAN;
  }
}

static bool compute(const EvalNode *in, EvalValue *value) {
  value->owned = in->node->op != OP_INPUT && in->node->op != OP_WEIGHT; /* these stay with the caller */
  if (value->owned && !eval_allocate(in->run, in->node, &value->tensor)) return false;
  if (!rules[in->node->op](in, &value->tensor)) return false;
  eval_spoil_rows(in, &value->tensor);
  return true;
}

/* Takes one use away; the last one frees the value. */
static void release(EvalRun *run, const Node *node) {
  EvalValue *value = &run->values[node->id];
  if (--value->uses > 0 || !value->owned) return;
  free(value->tensor.data);
  value->tensor.data = NULL;
  value->owned = false;
}

static bool compute_node(EvalRun *run, const Node *node) {
  EvalValue *value = &run->values[node->id];
  const Tensor **inputs = ARENA_ARRAY(run->scratch, const Tensor *, node->inputs.n);
  for (size_t i = 0; i < node->inputs.n; i++) inputs[i] = &run->values[node->inputs.items[i]->id].tensor;
  const EvalNode in = {.run = run, .node = node, .inputs = inputs};
  if (!set_shape(&in, value) || !compute(&in, value)) return false;
  if (run->options.observer) run->options.observer(run->options.observer_context, node, &value->tensor);
  for (size_t i = 0; i < node->inputs.n; i++) release(run, node->inputs.items[i]);
  return true;
}

/* Counts the uses first: a value lives until the last node that is needed has read it. Outputs hold a use of their
 * own. */
static bool compute_nodes(EvalRun *run, const bool *needed) {
  for (const Node *node = run->graph->first; node; node = node->next) {
    if (!needed[node->id]) continue;
    for (size_t i = 0; i < node->inputs.n; i++) run->values[node->inputs.items[i]->id].uses++;
  }
  for (const Node *node = run->graph->first; node; node = node->next) {
    if (needed[node->id] && !compute_node(run, node)) return false;
  }
  return true;
}

/* What is still owned: outputs, and everything after an error. */
static void free_values(EvalRun *run) {
  for (uint32_t i = 0; i < run->graph->next_id; i++) {
    if (run->values[i].owned) free(run->values[i].tensor.data);
    free(run->probabilities[i].data);
  }
}

static Tensor copy_of(Arena *arena, const Tensor *tensor) {
  Tensor *copy = tensor_new(arena, tensor->dtype, tensor->rank, tensor->dims);
  size_t bytes = (size_t)tensor_elements(tensor) * dtype_bytes[tensor->dtype];
  if (bytes) memcpy(copy->data, tensor->data, bytes);
  return *copy;
}

/* Marks what the marked nodes are computed from. */
static void mark_inputs(const Node *last, bool *needed) {
  for (const Node *node = last; node; node = node->prev) {
    for (size_t i = 0; needed[node->id] && i < node->inputs.n; i++) needed[node->inputs.items[i]->id] = true;
  }
}

bool *eval_needed(Arena *arena, const Graph *graph) {
  bool *needed = ARENA_ARRAY(arena, bool, graph->next_id);
  for (size_t i = 0; i < graph->outputs.n; i++) needed[graph->outputs.items[i].node->id] = true;
  mark_inputs(graph->last, needed);
  return needed;
}

bool eval_outputs(EvalRun *run, Tensor *outputs, Arena *arena) {
  const Graph *graph = run->graph;
  const bool *needed = eval_needed(run->scratch, graph);
  for (size_t i = 0; i < graph->outputs.n; i++) run->values[graph->outputs.items[i].node->id].uses++;
  bool ok = compute_nodes(run, needed);
  for (size_t i = 0; ok && i < graph->outputs.n; i++) {
    outputs[i] = copy_of(arena, &run->values[graph->outputs.items[i].node->id].tensor);
  }
  free_values(run);
  return ok;
}

Tensor *graph_eval_static(Arena *arena, Diag *diag, const Graph *graph, const Node *node, WeightLookup weights,
                          void *context) {
  CHECK(node_is_static(node), "%%%u depends on inputs", node->id);
  Arena *scratch = arena_create();
  EvalRun *run = eval_run_new(scratch, diag, graph);
  run->weights = weights;
  run->context = context;
  bool *needed = ARENA_ARRAY(scratch, bool, graph->next_id);
  needed[node->id] = true;
  mark_inputs(node, needed);
  run->values[node->id].uses++;
  Tensor *result = NULL;
  if (compute_nodes(run, needed)) {
    result = ARENA_NEW(arena, Tensor);
    *result = copy_of(arena, &run->values[node->id].tensor);
  }
  free_values(run);
  arena_destroy(scratch);
  return result;
}

// ---- ids ----

/* The input that these ids are, behind views that keep all of its elements; NULL if they are computed. A slice ends the
 * walk: ids that it leaves out may be anything. */
static const Node *input_behind(const Node *ids) {
  while (ids->op == OP_RESHAPE || ids->op == OP_PERMUTE) ids = ids->inputs.items[0];
  return ids->op == OP_INPUT ? ids : NULL;
}

/* What the elements of an input must lie in, and the end of the message. */
typedef struct Range {
  int64_t least, end;
  const char *why;
} Range;

/* Reports the first element that is outside, with its coordinates. */
static bool check_values(const EvalRun *run, const Node *input, const Tensor *given, Range range, int64_t first) {
  Grid grid = grid_of(given->rank, given->dims);
  for (int64_t i = 0; i < grid.points; i++, grid_next(&grid)) {
    int32_t value = ((const int32_t *)given->data)[i];
    if (value >= range.least && value < range.end) continue;
    StrBuf place = strbuf_new(run->scratch);
    for (uint32_t j = 0; j < grid.rank; j++) {
      strbuf_printf(&place, "%s%lld", j ? "," : "[", (long long)(grid.index[j] + (j ? 0 : first)));
    }
    if (grid.rank) strbuf_add_char(&place, ']');
    diag_error(run->diag, input->origin.span, DIAG_INPUT_VALUE, "input \"%s\"%s = %d, legal range is [%lld, %lld)%s%s",
               input->attr.name, place.text, value, (long long)range.least, (long long)range.end,
               range.why && *range.why ? ": " : "", range.why ? range.why : "");
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
    if (run->graph->inputs.items[i] == input)
      return check_values(run, input, run->inputs[i], (Range){0, rows, NULL}, first);
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

/* An input that is not needed has its range all the same. */
static bool check_ranges(const EvalRun *run, int64_t first) {
  for (size_t i = 0; i < run->graph->inputs.n; i++) {
    const Node *input = run->graph->inputs.items[i];
    const Range range = {input->attr.least, (int64_t)input->attr.most + 1, input->attr.range_text};
    if (range.why && !check_values(run, input, run->inputs[i], range, first)) return false;
  }
  return true;
}

bool eval_check_ids(const EvalRun *run, const bool *needed, int64_t first) {
  if (!check_ranges(run, first)) return false;
  for (const Node *node = run->graph->first; node; node = node->next) {
    if (!needed[node->id]) continue;
    if (node->op == OP_GATHER && !check_use(run, node->inputs.items[0], node->inputs.items[1], first)) return false;
    if (!check_expr(run, node, first)) return false;
  }
  return true;
}
