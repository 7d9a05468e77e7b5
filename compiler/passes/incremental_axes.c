/* In: an operation, one of its operands and an axis of the result. Out: the axis of the operand. One table, by
 * operation; what has no row there (sources, and what is fused) has no operand axes that can be followed. */
#include "passes/incremental_parts.h"

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

/* Only the first operand has rows; the last axis of a norm is used whole. */
static int32_t axis_of_norm(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  return operand == 0 && axis + 1u < node->rank ? (int32_t)axis : -1;
}

static int32_t axis_of_linear(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  bool is_column = axis + 1u == node->rank;
  if (operand == 0) return is_column ? -1 : (int32_t)axis;
  return operand == 1 && is_column ? 0 : -1;
}

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

/* An axis that is cut is another axis. */
static int32_t axis_of_slice(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  return input(node, operand)->dims[axis] == node->dims[axis] ? (int32_t)axis : -1;
}

const Size *elements_before(SizeTable *sizes, const Node *node, uint32_t axis) {
  const Size *product = size_const(sizes, 1);
  for (uint32_t i = 0; i < axis && product; i++) product = size_mul(sizes, product, node->dims[i]);
  return product;
}

/* The elements before an axis, those of the batch in it too if it is merged. */
static const Size *batches_before(const Cut *cut, const Node *node, uint32_t axis) {
  const Size *before = elements_before(cut->graph->sizes, node, axis);
  bool is_both = before && is_merged(cut, node->dims[axis]);
  return is_both ? size_mul(cut->graph->sizes, before, cut->tokens->dims[0]) : before;
}

/* The axis stays an axis: the same size, behind as many elements. That of the length may come out of a merged one. */
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

/* The table's rows are chosen, its other axes stay. */
static int32_t axis_of_gather(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  uint32_t n = input(node, 1)->rank;
  if (operand == 1) return axis < n ? (int32_t)axis : -1;
  return axis < n ? -1 : (int32_t)(axis - n + 1);
}

static int32_t axis_of_sinusoid(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  return axis < input(node, operand)->rank ? (int32_t)axis : -1;
}

static int32_t axis_of_rotary(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  (void)cut;
  if (axis + 1u == node->rank) return -1;
  return operand == 0 ? (int32_t)axis : aligned(input(node, operand), node->rank - 1u, axis);
}

static AxisRule *const rules[N_OPS] = {
    [OP_LINEAR] = axis_of_linear,     [OP_LAYER_NORM] = axis_of_norm,  [OP_RMS_NORM] = axis_of_norm,
    [OP_SINUSOID] = axis_of_sinusoid, [OP_MATMUL] = axis_of_matmul,    [OP_SOFTMAX] = axis_of_softmax,
    [OP_LOG_SOFTMAX] = axis_of_softmax, [OP_SUM] = axis_of_reduction,  [OP_MEAN] = axis_of_reduction,
    [OP_MAX] = axis_of_reduction,     [OP_MIN] = axis_of_reduction,    [OP_ARGMAX] = axis_of_reduction,
    [OP_CONCAT] = axis_of_concat,     [OP_PERMUTE] = axis_of_permute,  [OP_RESHAPE] = axis_of_reshape,
    [OP_ROTARY] = axis_of_rotary,     [OP_SLICE] = axis_of_slice,      [OP_GATHER] = axis_of_gather,
    [OP_ROTARY_TABLE] = axis_of_sinusoid,
};

int32_t operand_axis(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  if (op_is_pointwise(node->op)) return axis_of_pointwise(cut, node, operand, axis);
  return rules[node->op] ? rules[node->op](cut, node, operand, axis) : -1;
}

uint8_t operand_whole(const Cut *cut, const Node *node, size_t operand, uint8_t whole) {
  uint8_t needed = length_axes(cut, input(node, operand));
  for (uint32_t axis = 0; axis < node->rank && needed; axis++) {
    int32_t own = operand_axis(cut, node, operand, axis);
    if (own >= 0 && !(whole & 1u << axis)) needed &= (uint8_t)~(1u << own);
  }
  return needed;
}
