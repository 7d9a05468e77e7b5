/* In: the expression of the scores of an attention. Out: hints about the keys that its mask leaves out. Refuses
 * nothing: what is not understood is no hint. */
#include "plan/products.h"

#include <math.h>
#include <string.h>

/* Hints let the runtime skip blocks of keys that are masked. Skipping is exact, since a weight of 0 contributes 0; so a
 * hint may leave keys out that are masked but never one that is not. Hints are read from the outermost chain of
 * where(condition, -inf, rest), because there a true condition makes the score -inf whatever else is computed, for
 * every value of the operands. The condition is taken apart at `or`, and at `and` where false means masked: in both
 * cases one side alone suffices. */

static bool is_minus_infinity(const Expr *expr) {
  return expr->kind == EXPR_CONST && expr->dtype == DTYPE_F32 && expr->number == -INFINITY;
}

/* An index expression as keys * key + queries * query + rest. */
typedef struct Linear {
  int keys, queries;
  const Size *rest; /* NULL: it has no such form */
} Linear;

/* Reads an index expression as a linear one. The depth is bounded because the expression may be a graph with shared
 * parts, which a walk without a bound would visit exponentially often; real masks have two or three levels. */
static Linear linear_of(Planner *p, const Nest *nest, const Expr *expr, unsigned depth) {
  enum { MAX_DEPTH = 8 };
  Linear none = {0};
  if (expr->dtype != DTYPE_I32 || depth > MAX_DEPTH) return none;
  if (expr->kind == EXPR_INDEX && expr->axis < 2) return (Linear){expr->axis == 0, expr->axis == 1, p->math.zero};
  if (expr->kind == EXPR_CONST) return (Linear){0, 0, math_const(&p->math, expr->integer)};
  if (expr->kind == EXPR_INPUT && nest->operands[expr->input].space == TFM_SPACE_SIZE)
    return (Linear){0, 0, nest->operands[expr->input].size};
  if (expr->kind != EXPR_OP || (expr->op != OP_ADD && expr->op != OP_SUB)) return none;
  Linear x = linear_of(p, nest, expr->args[0], depth + 1), y = linear_of(p, nest, expr->args[1], depth + 1);
  if (!x.rest || !y.rest) return none;
  if (expr->op == OP_ADD)
    return (Linear){x.keys + y.keys, x.queries + y.queries, size_add(p->math.table, x.rest, y.rest)};
  return (Linear){x.keys - y.keys, x.queries - y.queries, size_sub(p->math.table, x.rest, y.rest)};
}

/* If `expr` has the value `masked` for every key after query + offset, returns that offset, or one more where the mask
 * also covers the key at the offset itself; that only means that one key less is skipped. NULL if it has no such
 * form. */
static const Size *covers_the_future(Planner *p, const Nest *nest, const Expr *expr, bool masked) {
  if (expr->n_args != 2) return NULL;
  Linear x = linear_of(p, nest, expr->args[0], 0), y = linear_of(p, nest, expr->args[1], 0);
  if (!x.rest || !y.rest) return NULL;
  OpKind op = expr->op;
  bool is_above = op == OP_GT || op == OP_GE, is_below = op == OP_LT || op == OP_LE;
  int keys = x.keys - y.keys, queries = x.queries - y.queries;
  if (keys * queries != -1) return NULL;
  bool key_first = keys == 1;
  if (masked ? !(key_first ? is_above : is_below) : !(key_first ? is_below : is_above)) return NULL;
  return key_first ? size_sub(p->math.table, y.rest, x.rest) : size_sub(p->math.table, x.rest, y.rest);
}

/* A bool operand that is the same for all queries, so that the runtime can look at it once per batch item. */
static bool is_padding(const Nest *nest, const Expr *expr) {
  return expr->kind == EXPR_INPUT && expr->dtype == DTYPE_BOOL &&
         size_equals(nest->operands[expr->input].strides[nest->rank - 2], 0);
}

/* Notes what the condition says about keys that are masked where `expr` equals `masked`. The first hint of each kind
 * wins; any one of them is sound alone. */
static void read_condition(Planner *p, const Nest *nest, const Expr *expr, bool masked, MaskHints *hints) {
  const Size *offset;
  if (expr->kind == EXPR_OP && expr->op == OP_NOT) {
    read_condition(p, nest, expr->args[0], !masked, hints);
  } else if (expr->kind == EXPR_OP && expr->op == (masked ? OP_OR : OP_AND)) {
    read_condition(p, nest, expr->args[0], masked, hints);
    read_condition(p, nest, expr->args[1], masked, hints);
  } else if (!hints->causal && expr->kind == EXPR_OP && (offset = covers_the_future(p, nest, expr, masked))) {
    hints->causal = true;
    hints->causal_offset = offset;
  } else if (!hints->padding && is_padding(nest, expr)) {
    hints->padding = (uint8_t)expr->input;
    hints->padding_true = masked;
  }
}

/* Whether `expr` is a bool operand, negated any number of times. */
static bool is_bool_operand(const Expr *expr) {
  while (expr->kind == EXPR_OP && expr->op == OP_NOT) expr = expr->args[0];
  return expr->kind == EXPR_INPUT;
}

/* Walks the chain of where. The nest has the axes [..., t, s]. */
MaskHints attention_mask_hints(Planner *p, const Nest *nest) {
  MaskHints hints = {0};
  const Expr *expr = nest->expr;
  while (expr->kind == EXPR_OP && expr->op == OP_WHERE) {
    bool masked = is_minus_infinity(expr->args[1]);
    if (!masked && !is_minus_infinity(expr->args[2])) break;
    read_condition(p, nest, expr->args[0], masked, &hints);
    const Expr *condition = expr->args[0];
    expr = masked ? expr->args[2] : expr->args[1];
    hints.padding_only = hints.padding && expr->kind == EXPR_ACC && nest->n_operands == 2 && is_bool_operand(condition);
  }
  return hints;
}
