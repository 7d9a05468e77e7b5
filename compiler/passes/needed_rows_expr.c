/* In: an expression of a fused node and the rows of it that are needed. Out: the rows of its operands that are.
 *
 * where(condition, x, y) looks at x only where the condition is true: there and nowhere else x is needed, if the condition
 * is a mask, its negation, or holds only where a mask does (`and`; `or` for y). */
#include <string.h>

#include "passes/match.h"
#include "passes/needed_rows.h"

// ---- needs ----

static bool same_need(const RowNeed *a, const RowNeed *b) {
  return a->mask == b->mask && a->where == b->where && a->n_axes == b->n_axes && !memcmp(a->axes, b->axes, a->n_axes);
}

RowNeed need_join(const RowNeed *a, const RowNeed *b) {
  if (a->kind == NEED_NOTHING) return *b;
  if (b->kind == NEED_NOTHING) return *a;
  if (a->kind == NEED_SOME && b->kind == NEED_SOME && same_need(a, b)) return *a;
  return NEEDED_EVERYWHERE;
}

RowNeed need_map(const RowNeed *need, const int32_t *axes) {
  RowNeed mapped = *need;
  if (need->kind != NEED_SOME) return mapped;
  for (uint32_t i = 0; i < need->n_axes; i++) {
    int32_t axis = axes[need->axes[i]];
    if (axis < 0) return NEEDED_EVERYWHERE;
    mapped.axes[i] = (uint8_t)axis;
  }
  return mapped;
}

bool need_has_axis(const RowNeed *need, uint32_t axis) {
  for (uint32_t i = 0; need->kind == NEED_SOME && i < need->n_axes; i++)
    if (need->axes[i] == axis) return true;
  return false;
}

void need_aligned_axes(const Node *operand, uint32_t rank, int32_t *axes) {
  for (uint32_t i = 0; i < rank; i++) {
    int32_t own = (int32_t)(i + operand->rank) - (int32_t)rank;
    axes[i] = own < 0 || dim_is_one(operand->dims[own]) ? -1 : own;
  }
}

// ---- masks ----

static bool same_long_axes(const Node *a, const Node *b) {
  uint32_t i = 0, j = 0;
  for (;; i++, j++) {
    while (i < a->rank && dim_is_one(a->dims[i])) i++;
    while (j < b->rank && dim_is_one(b->dims[j])) j++;
    if (i == a->rank || j == b->rank) return i == a->rank && j == b->rank;
    if (a->dims[i] != b->dims[j]) return false;
  }
}

static bool is_negation(const Node *node) {
  return node->op == OP_POINTWISE && node->attr.expr->kind == EXPR_OP && node->attr.expr->op == OP_NOT &&
         node->attr.expr->args[0]->kind == EXPR_INPUT && node->inputs.n == 1;
}

/* The need of whoever looks only where `operand` is `holds`: behind axes of 1 and negations, so that equal masks are one. */
static bool need_of_mask(const Node *operand, const NodeType *domain, bool holds, uint32_t apart, RowNeed *need) {
  *need = (RowNeed){.kind = NEED_SOME};
  for (uint32_t i = 0; i < operand->rank; i++) {
    if (dim_is_one(operand->dims[i])) continue;
    need->axes[need->n_axes++] = (uint8_t)(domain->rank - operand->rank + i);
  }
  const Node *mask = operand;
  while ((mask->op == OP_RESHAPE || is_negation(mask)) && same_long_axes(mask, mask->inputs.items[0])) {
    if (mask->op != OP_RESHAPE) holds = !holds;
    mask = mask->inputs.items[0];
  }
  need->mask = mask;
  need->where = holds;
  return need->n_axes > 0 && !need_has_axis(need, apart);
}

bool need_of_condition(const Node *node, const NodeType *domain, const Expr *condition, bool holds, uint32_t apart,
                       RowNeed *need) {
  if (condition->kind == EXPR_INPUT)
    return need_of_mask(node->inputs.items[condition->input], domain, holds, apart, need);
  if (condition->kind != EXPR_OP) return false;
  if (condition->op == OP_NOT) return need_of_condition(node, domain, condition->args[0], !holds, apart, need);
  if (condition->op != (holds ? OP_AND : OP_OR)) return false;
  return need_of_condition(node, domain, condition->args[0], holds, apart, need) ||
         need_of_condition(node, domain, condition->args[1], holds, apart, need);
}

// ---- expressions ----

bool expr_can_fail(Arena *scratch, const Expr *expr) {
  if (!expr) return false;
  ExprList list = expr_list(scratch, expr);
  for (uint32_t i = 0; i < list.n; i++)
    if (list.items[i]->kind == EXPR_OP && (list.items[i]->op == OP_FLOORDIV || list.items[i]->op == OP_FLOORMOD))
      return true;
  return false;
}

/* What argument number `arg` of an operation is needed for, if its result is needed at `need`. */
static RowNeed need_of_argument(const Node *node, const NodeType *domain, const Expr *expr, uint32_t arg,
                                const RowNeed *need) {
  RowNeed selected;
  bool chosen = expr->op == OP_WHERE && arg > 0 && need->kind == NEED_ALL;
  if (chosen && need_of_condition(node, domain, expr->args[0], arg == 1, domain->rank - 1, &selected)) return selected;
  return *need;
}

static void join_operand(const Node *node, const NodeType *domain, uint32_t input, const RowNeed *need,
                         RowNeed *operands) {
  int32_t axes[MAX_RANK];
  need_aligned_axes(node->inputs.items[input], domain->rank, axes);
  RowNeed mapped = need_map(need, axes);
  operands[input] = need_join(&operands[input], &mapped);
}

void need_of_expr(Pass *pass, const Node *node, const NodeType *domain, const RowNeed *root, RowNeed *operands,
                  RowNeed *acc) {
  ExprList list = expr_list(pass->scratch, node->attr.expr);
  RowNeed *needs = ARENA_ARRAY(pass->scratch, RowNeed, list.n);
  needs[list.n - 1] = *root;
  for (uint32_t i = list.n; i-- > 0;) { /* who uses a subexpression stands behind it */
    const Expr *expr = list.items[i];
    for (uint32_t j = 0; j < expr->n_args; j++) {
      RowNeed need = need_of_argument(node, domain, expr, j, &needs[i]);
      RowNeed *of = &needs[list.args[j][i]];
      *of = need_join(of, &need);
    }
    if (expr->kind == EXPR_ACC) *acc = need_join(acc, &needs[i]);
    if (expr->kind == EXPR_INPUT) join_operand(node, domain, expr->input, &needs[i], operands);
    if (expr->kind == EXPR_GATHER) operands[expr->input] = operands[expr->ids] = NEEDED_EVERYWHERE;
  }
}
