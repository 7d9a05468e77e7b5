/* Which axis of an operand an axis of a result is made of.
 *
 * In: an operation, one of its operands and an axis of the result. Out: the axis of the operand whose elements make
 * the elements there one by one, or none. There is one table, by operation; an operation without a row in it (a
 * source, or anything that was fused) has no operand axes that can be followed. "None" is always a safe answer: the
 * operand then counts as used whole, which costs a cache or a refusal but never a wrong number.
 *
 * The second part uses the table to turn a model that gives the logits of the last position alone into one that gives
 * those of every position, so that a step can slice off as many as its caller wants. Widening stops at what is carried
 * from position to position: a model that gives it one row means one row. */
#include <stdarg.h>
#include <string.h>

#include "incremental/cut.h"

/* The first reason is the one that a user should read: whatever is found later follows from an analysis that has
 * already failed. */
bool cut_refuse(Cut *cut, const Node *node, const char *format, ...) {
  va_list args;
  if (cut->reason) return false;
  va_start(args, format);
  cut->reason = arena_vprintf(cut->arena, format, args);
  va_end(args);
  cut->origin = node->origin;
  return false;
}

uint8_t length_axes(const Cut *cut, const Node *node) {
  uint8_t axes = 0;
  for (uint32_t i = 0; i < node->rank; i++)
    if (is_length(cut, node->dims[i]) || is_merged(cut, node->dims[i])) axes |= (uint8_t)(1u << i);
  return axes;
}

typedef int32_t AxisRule(const Cut *cut, const Node *node, size_t operand, uint32_t axis);

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

/* Aligned at the last axis of `rank`. */
static int32_t aligned(const Node *x, uint32_t rank, uint32_t axis) {
  int32_t own = (int32_t)(axis + x->rank) - (int32_t)rank;
  return own < 0 || dim_is_one(x->dims[own]) ? -1 : own;
}

static int32_t axis_of_pointwise(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  return aligned(input(node, operand), node->rank, axis);
}

/* Only the first operand has rows; weight and bias belong to the last axis, which the norm uses whole. */
static int32_t axis_of_norm(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  return operand == 0 && axis + 1u < node->rank ? (int32_t)axis : -1;
}

/* Rows come from x; a column of the result is a row of the weight, which is stored as [n, k]. */
static int32_t axis_of_linear(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  bool is_column = axis + 1u == node->rank;
  if (operand == 0) return is_column ? -1 : (int32_t)axis;
  return operand == 1 && is_column ? 0 : -1;
}

/* The last two axes are rows of x and columns of y; those before them broadcast. The axis that is summed over belongs
 * to no axis of the result. */
static int32_t axis_of_matmul(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  const Node *x = input(node, operand);
  uint32_t from_end = node->rank - axis; /* 1: columns, 2: rows */
  if (from_end > 2) return aligned(x, node->rank, axis);
  return (from_end == 2) == (operand == 0) ? (int32_t)(x->rank - from_end) : -1;
}

static int32_t axis_of_softmax(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut, (void)operand;
  return axis == (uint32_t)node->attr.axis ? -1 : (int32_t)axis;
}

/* Without keepdim the axes behind the reduced one move up by one. */
static int32_t axis_of_reduction(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  uint32_t reduced = (uint32_t)node->attr.axis;
  bool is_gone = node->rank < input(node, operand)->rank;
  if (!is_gone && axis == reduced) return -1;
  return (int32_t)(is_gone && axis >= reduced ? axis + 1 : axis);
}

static int32_t axis_of_concat(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut, (void)operand;
  return axis == (uint32_t)node->attr.axis ? -1 : (int32_t)axis;
}

static int32_t axis_of_permute(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut, (void)operand;
  return node->attr.axes[axis];
}

/* An axis that is cut is another axis: its coordinates are shifted, or some of them are missing. */
static int32_t axis_of_slice(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  return input(node, operand)->dims[axis] == node->dims[axis] ? (int32_t)axis : -1;
}

const Size *elements_before(SizeTable *sizes, const Node *node, uint32_t axis) {
  return sizes_product(sizes, axis, node->dims);
}

/* The elements before an axis, those of the batch in it too if it is merged. */
static const Size *batches_before(const Cut *cut, const Node *node, uint32_t axis) {
  const Size *before = elements_before(cut->graph->sizes, node, axis);
  bool is_both = before && is_merged(cut, node->dims[axis]);
  return is_both ? size_mul(cut->graph->sizes, before, cut->tokens->dims[0]) : before;
}

/* In row-major order an axis survives a reshape if it has the same size and as many elements stand before it; then its
 * stride is the same too. The axis of the length may come out of the merged one, or go into it: there the batch is part
 * of the axis, so batches_before counts it among the elements before. */
static int32_t axis_of_reshape(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  const Node *x = input(node, operand);
  const Size *dim = node->dims[axis], *before = batches_before(cut, node, axis);
  bool has_role = is_length(cut, dim) || is_merged(cut, dim);
  for (uint32_t i = 0; i < x->rank && before; i++) {
    bool fits = x->dims[i] == dim || (has_role && (is_length(cut, x->dims[i]) || is_merged(cut, x->dims[i])));
    if (fits && batches_before(cut, x, i) == before) return (int32_t)i;
  }
  return -1;
}

/* The result is [axes of the ids, axes of the table but its rows]. */
static int32_t axis_of_gather(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  uint32_t n = input(node, 1)->rank;
  if (operand == 1) return axis < n ? (int32_t)axis : -1;
  return axis < n ? -1 : (int32_t)(axis - n + 1);
}

/* The axes that the table of angles adds stand behind those of the positions. */
static int32_t axis_of_sinusoid(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  return axis < input(node, operand)->rank ? (int32_t)axis : -1;
}

/* Pairs of the last axis are rotated together; the positions are aligned with the axes before it. */
static int32_t axis_of_rotary(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  if (axis + 1u == node->rank) return -1;
  return operand == 0 ? (int32_t)axis : aligned(input(node, operand), node->rank - 1u, axis);
}

/* What is computed along one axis keeps the others apart. */
static int32_t axis_of_along(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  bool is_own = (int32_t)axis == node->attr.axis || dim_is_one(input(node, operand)->dims[axis]);
  return is_own ? -1 : (int32_t)axis;
}

/* Leading axes of all operands, columns of those that have them; the axis of steps is carried. */
static int32_t axis_of_recurrence(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  const size_t beta = 3u + node->attr.has_decay, initial = beta + node->attr.has_beta;
  const bool has_columns = operand == 2 || operand == initial || (operand == beta && node->attr.has_beta);
  if (axis + 2u == node->rank || (axis + 1u == node->rank && !has_columns)) return -1;
  return aligned(input(node, operand), node->rank, axis);
}

static AxisRule *const rules[N_OPS] = {
    [OP_LINEAR] = axis_of_linear,     [OP_LAYER_NORM] = axis_of_norm,  [OP_RMS_NORM] = axis_of_norm,
    [OP_SINUSOID] = axis_of_sinusoid, [OP_MATMUL] = axis_of_matmul,    [OP_SOFTMAX] = axis_of_softmax,
    [OP_LOG_SOFTMAX] = axis_of_softmax, [OP_SUM] = axis_of_reduction,  [OP_MEAN] = axis_of_reduction,
    [OP_MAX] = axis_of_reduction,     [OP_MIN] = axis_of_reduction,    [OP_ARGMAX] = axis_of_reduction,
    [OP_CONCAT] = axis_of_concat,     [OP_PERMUTE] = axis_of_permute,  [OP_RESHAPE] = axis_of_reshape,
    [OP_ROTARY] = axis_of_rotary,     [OP_SLICE] = axis_of_slice,      [OP_GATHER] = axis_of_gather,
    [OP_ROTARY_TABLE] = axis_of_sinusoid, [OP_TAKE] = axis_of_along,   [OP_EVERY] = axis_of_along,
    [OP_CUMSUM] = axis_of_along,      [OP_TOPK] = axis_of_along,       [OP_POWER] = axis_of_pointwise,
    [OP_SHIFT] = axis_of_along,       [OP_LINEAR_ATTENTION] = axis_of_recurrence,
};

int32_t operand_axis(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  if (op_is_pointwise(node->op)) return axis_of_pointwise(cut, node, operand, axis);
  return rules[node->op] ? rules[node->op](cut, node, operand, axis) : -1;
}

int32_t carried_axis(const Cut *cut, const Node *node) {
  int32_t axis = -1;
  if (node->op == OP_SHIFT || node->op == OP_CUMSUM) axis = node->attr.axis;
  if (node->op == OP_LINEAR_ATTENTION) axis = (int32_t)node->rank - 2;
  return axis >= 0 && is_length(cut, node->dims[axis]) ? axis : -1;
}

int32_t step_axis(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  if ((int32_t)axis != carried_axis(cut, node)) return operand_axis(cut, node, operand, axis);
  return aligned(input(node, operand), node->rank, axis);
}

/* Starts from all axes of the length and drops those that a result axis follows for new positions alone. So an axis
 * that the operation contracts stays in the set, whatever is wanted of the result. */
uint8_t operand_whole(const Cut *cut, const Node *node, size_t operand, uint8_t whole) {
  uint8_t needed = length_axes(cut, input(node, operand));
  for (uint32_t axis = 0; axis < node->rank && needed; axis++) {
    int32_t own = step_axis(cut, node, operand, axis);
    if (own >= 0 && !(whole & 1u << axis)) needed &= (uint8_t)~(1u << own);
  }
  return needed;
}

// ---- models that take the last position ----

/* A model may end in `head(hidden[:, -1:])`. The slice is left out, and from there on the axis of 1 that it made is
 * an axis of the length. Where an operation does not keep the rows of that axis apart, widening stops and the slice
 * stays; then the logits are not those of every position, and the model is refused.
 *
 * Sound: every widened node computes the row at position t from rows at position t of its operands (keeps_rows), so its
 * last row is what the narrow node was. The widened graph only computes more rows, and the step drops them again. */

typedef struct LastRow { /* the wide form of a node: the node is the last row of `all` along the axis */
  Node *all; /* NULL: the node has no wide form */
  uint32_t axis;
} LastRow;

typedef struct Widening {
  Cut *cut;
  LastRow *rows; /* by id */
} Widening;

static const LastRow *row_of(const Widening *w, const Node *node, size_t operand) {
  return &w->rows[node->inputs.items[operand]->id];
}

// ---- the slice ----

/* The axis of which the node takes the last position; its rank if it is no such slice. */
static uint32_t sliced_axis(const Cut *cut, const Node *node) {
  SizeTable *sizes = cut->graph->sizes;
  const Size *last = size_sub(sizes, cut->length, size_const(sizes, 1));
  for (uint32_t axis = 0; axis < node->rank && node->op == OP_SLICE; axis++)
    if (is_length(cut, node->inputs.items[0]->dims[axis]) && dim_is_one(node->dims[axis]) &&
        node->attr.starts[axis] == last)
      return axis;
  return node->rank;
}

/* The same slice with all positions. */
static LastRow unsliced(const Cut *cut, Node *node, uint32_t axis) {
  Builder b = {.graph = cut->graph, .before = node, .origin = node->origin};
  const Size *starts[MAX_RANK], *dims[MAX_RANK];
  memcpy(starts, node->attr.starts, sizeof starts);
  memcpy(dims, node->dims, sizeof dims);
  starts[axis] = size_const(cut->graph->sizes, 0);
  dims[axis] = cut->length;
  Node *x = node->inputs.items[0];
  return (LastRow){memcmp(dims, x->dims, x->rank * sizeof *dims) ? build_slice(&b, x, starts, dims) : x, axis};
}

// ---- what is made of it ----

/* Whether the wide draft of a node takes its rows from the wide operands, each along the axis on which it is wide. A
 * narrow operand must broadcast there: it has no rows of its own to give. */
static bool keeps_rows(const Widening *w, const Node *node, const Node *wide, uint32_t axis) {
  for (size_t i = 0; i < node->inputs.n; i++) {
    const LastRow *row = row_of(w, node, i);
    if (operand_axis(w->cut, wide, i, axis) != (row->all ? (int32_t)row->axis : -1)) return false;
  }
  return true;
}

static bool uses_last_row(const Widening *w, const Node *node) {
  for (size_t i = 0; i < node->inputs.n; i++)
    if (row_of(w, node, i)->all) return true;
  return false;
}

/* Tries each axis of 1 of the node as the one that becomes the length; no wide form if none keeps the rows apart. */
static LastRow widened(const Widening *w, Node *node) {
  Node **operands = ARENA_ARRAY(w->cut->scratch, Node *, node->inputs.n);
  for (size_t i = 0; i < node->inputs.n; i++)
    operands[i] = row_of(w, node, i)->all ? row_of(w, node, i)->all : node->inputs.items[i];
  for (uint32_t axis = 0; axis < node->rank; axis++) {
    if (!dim_is_one(node->dims[axis])) continue;
    Node draft = *node;
    draft.dims[axis] = w->cut->length;
    draft.inputs.items = operands;
    if (!keeps_rows(w, node, &draft, axis)) continue;
    Node *all = graph_add(w->cut->graph, node, node->op, node->dtype, node->rank, (const Size *const *)draft.dims,
                          (uint32_t)node->inputs.n, operands, node->origin);
    all->attr = node->attr;
    return (LastRow){all, axis};
  }
  return (LastRow){0};
}

/* Of the narrow and the wide form of each node, one has no users left. */
static void delete_unused(Graph *graph) {
  for (Node *node = graph->last, *prev; node; node = prev) {
    prev = node->prev;
    if (!node->users.n && node->op != OP_INPUT && !graph_is_output(graph, node)) graph_delete(graph, node);
  }
}

void widen_last_rows(Cut *cut) {
  graph_renumber(cut->graph);
  const Node *logits = cut->graph->outputs.items[0].node;
  Widening w = {cut, ARENA_ARRAY(cut->scratch, LastRow, cut->graph->next_id)};
  for (Node *node = cut->graph->first; node; node = node->next) { /* wide nodes are added before it: none is visited */
    uint32_t axis = sliced_axis(cut, node);
    if (axis < node->rank) w.rows[node->id] = unsliced(cut, node, axis);
    else if (uses_last_row(&w, node)) w.rows[node->id] = widened(&w, node);
  }
  const LastRow *row = &w.rows[logits->id];
  if (row->all && row->axis == 1) cut->graph->outputs.items[0].node = row->all;
  delete_unused(cut->graph);
}
