/* In: an operation and an axis of its result. Out: the axes of its operands. One table, by operation; what has no row
 * there keeps all its rows (sources, gathers and integer divisions, whose faults must stay, and what is fused). */
#include "passes/narrow_rows.h"

typedef bool AxesRule(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes);

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

/* The axis of an operand that is aligned with the result at the last axis; -1: it broadcasts there. */
static int32_t aligned(const Node *x, uint32_t rank, uint32_t axis) {
  int32_t own = (int32_t)(axis + x->rank) - (int32_t)rank;
  return own < 0 || dim_is_one(x->dims[own]) ? -1 : own;
}

static bool axes_of_pointwise(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  for (size_t i = 0; i < node->inputs.n; i++) axes[i] = aligned(input(node, i), node->rank, axis);
  return axis + 1u < node->rank;
}

/* Only the first operand has rows; the others are weights. */
static bool axes_of_rows(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  for (size_t i = 0; i < node->inputs.n; i++) axes[i] = i == 0 ? (int32_t)axis : -1;
  return axis + 1u < node->rank && !node->attr.expr;
}

static bool axes_of_matmul(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  axes[0] = aligned(input(node, 0), node->rank, axis);
  axes[1] = axis + 2u < node->rank ? aligned(input(node, 1), node->rank, axis) : -1;
  return axis + 1u < node->rank;
}

static bool axes_of_softmax(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  axes[0] = (int32_t)axis;
  return axis + 1u < node->rank && axis != (uint32_t)node->attr.axis;
}

static bool axes_of_reduction(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  uint32_t reduced = (uint32_t)node->attr.axis;
  bool gone = node->rank < input(node, 0)->rank;
  axes[0] = (int32_t)(gone && axis >= reduced ? axis + 1 : axis);
  return axes[0] + 1 < input(node, 0)->rank && (gone || axis != reduced);
}

static bool axes_of_concat(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  for (size_t i = 0; i < node->inputs.n; i++) axes[i] = (int32_t)axis;
  return axis + 1u < node->rank && axis != (uint32_t)node->attr.axis;
}

static bool axes_of_permute(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  axes[0] = node->attr.axes[axis];
  return true;
}

/* The elements before an axis; NULL: too large a polynomial. */
static const Size *elements_before(SizeTable *sizes, const Node *node, uint32_t axis) {
  const Size *product = size_const(sizes, 1);
  for (uint32_t i = 0; i < axis && product; i++) product = size_mul(sizes, product, node->dims[i]);
  return product;
}

/* The axis stays an axis: the same size, behind as many elements. */
static bool axes_of_reshape(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  const Node *x = input(node, 0);
  const Size *before = elements_before(sizes, node, axis);
  for (uint32_t i = 0; i + 1u < x->rank && before && axis + 1u < node->rank; i++) {
    if (x->dims[i] != node->dims[axis] || elements_before(sizes, x, i) != before) continue;
    axes[0] = (int32_t)i;
    return true;
  }
  return false;
}

static bool axes_of_rotary(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  axes[0] = (int32_t)axis;
  axes[1] = axis + 1u < node->rank ? aligned(input(node, 1), node->rank - 1u, axis) : -1;
  return axis + 1u < node->rank;
}

static AxesRule *const rules[N_OPS] = {
    [OP_LINEAR] = axes_of_rows,      [OP_LAYER_NORM] = axes_of_rows, [OP_RMS_NORM] = axes_of_rows,
    [OP_SINUSOID] = axes_of_rows,    [OP_MATMUL] = axes_of_matmul,   [OP_SOFTMAX] = axes_of_softmax,
    [OP_LOG_SOFTMAX] = axes_of_softmax, [OP_SUM] = axes_of_reduction, [OP_MEAN] = axes_of_reduction,
    [OP_MAX] = axes_of_reduction,    [OP_MIN] = axes_of_reduction,   [OP_ARGMAX] = axes_of_reduction,
    [OP_CONCAT] = axes_of_concat,    [OP_PERMUTE] = axes_of_permute, [OP_RESHAPE] = axes_of_reshape,
    [OP_ROTARY] = axes_of_rotary,
};

bool narrow_axes(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  if (node->op == OP_FLOORDIV || node->op == OP_FLOORMOD) return false;
  if (op_is_pointwise(node->op)) return axes_of_pointwise(sizes, node, axis, axes);
  return rules[node->op] && rules[node->op](sizes, node, axis, axes);
}
