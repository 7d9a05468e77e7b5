/* In: an expression of a fused node and the rows of it that are needed. Out: the rows of its operands that are.
 *
 * where(condition, x, y) looks at x only where the condition is true: there and nowhere else x is needed, if the
 * condition is a mask, its negation, or holds only where a mask does (`and`; `or` for y). */
#include <string.h>

#include "passes/match.h"
#include "passes/needed_rows.h"

// ---- needs ----

static bool has_mask(const RowNeed *need, const RowMask *mask) {
  for (uint32_t i = 0; i < need->n_masks; i++) {
    const RowMask *own = &need->masks[i];
    if (own->node == mask->node && own->where == mask->where && own->n_axes == mask->n_axes &&
        !memcmp(own->axes, mask->axes, mask->n_axes))
      return true;
  }
  return false;
}

/* A mask too many is left out: then more is computed. */
static void add_mask(RowNeed *need, const RowMask *mask) {
  if (need->n_masks == NEED_MOST_MASKS || has_mask(need, mask)) return;
  need->kind = NEED_SOME;
  need->masks[need->n_masks++] = *mask;
}

RowNeed need_join(const RowNeed *a, const RowNeed *b) {
  if (a->kind == NEED_NOTHING) return *b;
  if (b->kind == NEED_NOTHING) return *a;
  RowNeed joined = NEEDED_EVERYWHERE;
  for (uint32_t i = 0; i < a->n_masks; i++)
    if (has_mask(b, &a->masks[i])) add_mask(&joined, &a->masks[i]);
  return joined;
}

RowNeed need_both(const RowNeed *a, const RowNeed *b) {
  if (a->kind == NEED_NOTHING || b->kind == NEED_NOTHING) return (RowNeed){0};
  RowNeed both = *a;
  for (uint32_t i = 0; i < b->n_masks; i++) add_mask(&both, &b->masks[i]);
  return both;
}

/* False: the operand has no such axis, or is needed along all of it. */
static bool map_mask(RowMask *mask, const int32_t *axes) {
  for (uint32_t i = 0; i < mask->n_axes && i < MAX_RANK; i++) {
    int32_t axis = axes[mask->axes[i]];
    if (axis < 0) return false;
    mask->axes[i] = (uint8_t)axis;
  }
  return true;
}

RowNeed need_map(const RowNeed *need, const int32_t *axes) {
  if (need->kind != NEED_SOME) return *need;
  RowNeed mapped = NEEDED_EVERYWHERE;
  for (uint32_t i = 0; i < need->n_masks; i++) {
    RowMask mask = need->masks[i];
    if (map_mask(&mask, axes)) add_mask(&mapped, &mask);
  }
  return mapped;
}

bool need_has_axis(const RowNeed *need, uint32_t axis) {
  for (uint32_t i = 0; i < need->n_masks; i++)
    if (memchr(need->masks[i].axes, (int)axis, need->masks[i].n_axes)) return true;
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

/* The masks that a mask is true only together with, over its own axes, as those of the value. */
static RowNeed need_of_parts(const RowMask *mask, bool holds) {
  const Node *node = mask->node;
  if (node->op != OP_POINTWISE) return NEEDED_EVERYWHERE;
  NodeType domain = type_of(node);
  RowNeed parts = need_of_condition(node, &domain, node->attr.expr, holds, MAX_RANK);
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0, k = 0; i < node->rank; i++) axes[i] = dim_is_one(node->dims[i]) ? -1 : mask->axes[k++];
  return need_map(&parts, axes);
}

/* The need of who looks only where `operand` is `holds`: behind axes of 1 and negations, so that equal masks are one. */
static RowNeed need_of_mask(const Node *operand, const NodeType *domain, bool holds, uint32_t apart) {
  RowMask mask = {.node = operand, .where = holds};
  for (uint32_t i = 0; i < operand->rank; i++) {
    if (dim_is_one(operand->dims[i])) continue;
    mask.axes[mask.n_axes++] = (uint8_t)(domain->rank - operand->rank + i);
  }
  while ((mask.node->op == OP_RESHAPE || is_negation(mask.node)) &&
         same_long_axes(mask.node, mask.node->inputs.items[0])) {
    if (mask.node->op != OP_RESHAPE) mask.where = !mask.where;
    mask.node = mask.node->inputs.items[0];
  }
  RowNeed need = NEEDED_EVERYWHERE;
  if (mask.n_axes == 0 || memchr(mask.axes, (int)apart, mask.n_axes)) return need;
  add_mask(&need, &mask);
  RowNeed parts = need_of_parts(&mask, mask.where);
  return need_both(&need, &parts);
}

RowNeed need_of_condition(const Node *node, const NodeType *domain, const Expr *condition, bool holds, uint32_t apart) {
  if (condition->kind == EXPR_INPUT && condition->dtype == DTYPE_BOOL)
    return need_of_mask(node->inputs.items[condition->input], domain, holds, apart);
  if (condition->kind != EXPR_OP) return NEEDED_EVERYWHERE;
  if (condition->op == OP_NOT) return need_of_condition(node, domain, condition->args[0], !holds, apart);
  if (condition->op != (holds ? OP_AND : OP_OR)) return NEEDED_EVERYWHERE;
  RowNeed a = need_of_condition(node, domain, condition->args[0], holds, apart);
  RowNeed b = need_of_condition(node, domain, condition->args[1], holds, apart);
  return need_both(&a, &b);
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
  if (expr->op != OP_WHERE || arg == 0) return *need;
  RowNeed selected = need_of_condition(node, domain, expr->args[0], arg == 1, domain->rank - 1);
  return need_both(need, &selected);
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
