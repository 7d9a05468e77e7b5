/* In: an operation and the rows of its result that are needed. Out: the rows of its operands that are. One table, by
 * operation; what has no row there needs its operands everywhere. */
#include <math.h>

#include "passes/narrow_rows.h"
#include "passes/needed_rows.h"

typedef void FlowRule(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands);

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

/* The axes of the result as axes of an operand with as many, but for those from `end` on. */
static void same_axes(uint32_t end, int32_t *axes) {
  for (uint32_t i = 0; i < MAX_RANK; i++) axes[i] = i < end ? (int32_t)i : -1;
}

// ---- rows ----

static void flow_pointwise(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  NodeType domain = type_of(node);
  RowNeed acc = {0};
  need_of_expr(pass, node, &domain, need, operands, &acc);
}

static void flow_norm(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  RowNeed root = need_map(need, axes);
  flow_pointwise(pass, node, &root, operands);
  for (uint32_t i = 1; i <= (uint32_t)node->attr.has_weight + node->attr.has_bias; i++)
    operands[node->inputs.n - i] = NEEDED_EVERYWHERE;
}

/* The axes of the result as those of the domain; the axis that is reduced has no rows of its own. */
static void flow_reduce(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  NodeType domain;
  infer_domain(pass->graph->sizes, node, &domain);
  uint32_t reduced = (uint32_t)node->attr.axis;
  bool gone = node->rank < domain.rank;
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++)
    axes[i] = gone ? (int32_t)(i + (i >= reduced)) : i == reduced ? -1 : (int32_t)i;
  RowNeed root = need_map(need, axes), acc = {0};
  need_of_expr(pass, node, &domain, &root, operands, &acc);
}

// ---- products ----

/* What is needed of the product itself. */
static RowNeed need_of_acc(Pass *pass, const Node *node, const NodeType *domain, const RowNeed *root,
                           RowNeed *operands) {
  if (!node->attr.expr) return *root;
  RowNeed acc = {0};
  need_of_expr(pass, node, domain, root, operands, &acc);
  return acc;
}

static void flow_linear(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  NodeType domain = type_of(node);
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  RowNeed acc = need_of_acc(pass, node, &domain, need, operands), x = need_map(&acc, axes);
  operands[0] = need_join(&operands[0], &x);
  operands[1] = NEEDED_EVERYWHERE;
}

static void flow_matmul(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  NodeType domain = type_of(node);
  RowNeed acc = need_of_acc(pass, node, &domain, need, operands);
  int32_t x_axes[MAX_RANK], y_axes[MAX_RANK];
  need_aligned_axes(input(node, 0), node->rank, x_axes);
  need_aligned_axes(input(node, 1), node->rank, y_axes);
  x_axes[node->rank - 1] = y_axes[node->rank - 2] = -1;
  RowNeed x = need_map(&acc, x_axes), y = need_map(&acc, y_axes);
  operands[0] = need_join(&operands[0], &x);
  operands[1] = need_join(&operands[1], &y);
}

// ---- attention ----

static bool is_minus_infinity(const Expr *expr) {
  return expr->kind == EXPR_CONST && expr->dtype == DTYPE_F32 && expr->number == -INFINITY;
}

/* The keys that some query may see, over the scores: a score of -inf is a weight of exactly 0, in a row of nothing else
 * too, and a weight of 0 takes nothing from the value. */
static RowNeed seen_keys(const Node *node, const NodeType *scores) {
  RowNeed seen = NEEDED_EVERYWHERE;
  const Expr *expr = node->attr.expr;
  while (expr && expr->kind == EXPR_OP && expr->op == OP_WHERE) {
    bool masked = is_minus_infinity(expr->args[1]);
    if (!masked && !is_minus_infinity(expr->args[2])) break;
    RowNeed need = need_of_condition(node, scores, expr->args[0], !masked, scores->rank - 2);
    seen = need_both(&seen, &need);
    expr = expr->args[masked ? 2 : 1];
  }
  return seen;
}

static RowNeed need_of_keys(const Node *operand, const RowNeed *seen, uint32_t rank) {
  int32_t axes[MAX_RANK];
  need_aligned_axes(operand, rank, axes);
  axes[rank - 2] = -1;
  axes[rank - 1] = (int32_t)operand->rank - 2;
  return need_map(seen, axes);
}

static void flow_attention(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  NodeType scores;
  infer_domain(pass->graph->sizes, node, &scores);
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  RowNeed root = need_map(need, axes), acc = need_of_acc(pass, node, &scores, &root, operands);
  need_aligned_axes(input(node, 0), node->rank, axes);
  axes[node->rank - 1] = -1;
  RowNeed q = need_map(&acc, axes), seen = seen_keys(node, &scores);
  operands[0] = need_join(&operands[0], &q);
  for (uint32_t i = 1; i <= 2; i++) {
    RowNeed keys = need_of_keys(input(node, i), &seen, scores.rank);
    operands[i] = need_join(&operands[i], &keys);
  }
}

// ---- views ----

static void flow_slice(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  (void)pass;
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) {
    bool cut = node->dims[i] != input(node, 0)->dims[i] || !size_equals(node->attr.starts[i], 0);
    axes[i] = cut ? -1 : (int32_t)i;
  }
  operands[0] = need_map(need, axes);
}

/* The same axes as for narrow-rows: permute, reshape, concat. */
static void flow_axes(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  int32_t *made_of = ARENA_ARRAY(pass->scratch, int32_t, node->inputs.n);
  for (size_t i = 0; i < node->inputs.n; i++) {
    int32_t axes[MAX_RANK];
    for (uint32_t axis = 0; axis < node->rank; axis++)
      axes[axis] = need_has_axis(need, axis) && narrow_axes(pass->graph->sizes, node, axis, made_of) ? made_of[i] : -1;
    RowNeed mapped = need_map(need, axes);
    operands[i] = need_join(&operands[i], &mapped);
  }
}

// ---- all operations ----

static FlowRule *const rules[N_OPS] = {
    [OP_POINTWISE] = flow_pointwise, [OP_NORM] = flow_norm,     [OP_REDUCE] = flow_reduce,
    [OP_LINEAR] = flow_linear,       [OP_MATMUL] = flow_matmul, [OP_MATMUL_FUSED] = flow_matmul,
    [OP_ATTENTION] = flow_attention, [OP_SLICE] = flow_slice,   [OP_PERMUTE] = flow_axes,
    [OP_RESHAPE] = flow_axes,        [OP_CONCAT] = flow_axes,
};

void need_of_operands(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  for (size_t i = 0; i < node->inputs.n; i++) operands[i] = (RowNeed){0};
  bool apart = rules[node->op] && !expr_can_fail(pass->scratch, node->attr.expr);
  if (apart && need->kind != NEED_NOTHING) rules[node->op](pass, node, need, operands);
  for (size_t i = 0; i < node->inputs.n && !apart; i++) operands[i] = NEEDED_EVERYWHERE;
}
