/* In: the expression of an attention's scores. Out: hints that hold for every value of its operands.
 *
 * Only the outermost chain of where(condition, -inf, rest) is looked at: there a true condition makes the score -inf
 * whatever else is computed. The condition is taken apart at `or` (and at `and` where false means masked). */
#include <math.h>

#include "plan/mask.h"

static bool is_minus_infinity(const Expr *expr) {
  return expr->kind == EXPR_CONST && expr->dtype == DTYPE_F32 && expr->number == -INFINITY;
}

static bool is_index(const Expr *expr, uint32_t axis) { return expr->kind == EXPR_INDEX && expr->axis == axis; }

/* Whether `expr` is (masked true) or is not (masked false) true for every key after the query. */
static bool covers_the_future(const Expr *expr, bool masked) {
  if (expr->n_args != 2) return false;
  OpKind op = expr->op;
  bool key_first = is_index(expr->args[0], 0) && is_index(expr->args[1], 1);
  bool query_first = is_index(expr->args[0], 1) && is_index(expr->args[1], 0);
  if (masked) return (key_first && (op == OP_GT || op == OP_GE)) || (query_first && (op == OP_LT || op == OP_LE));
  return (key_first && (op == OP_LE || op == OP_LT)) || (query_first && (op == OP_GE || op == OP_GT));
}

/* A bool operand that is the same for all queries. */
static bool is_padding(const Nest *nest, const Expr *expr) {
  return expr->kind == EXPR_INPUT && expr->dtype == DTYPE_BOOL &&
         size_equals(nest->operands[expr->input].strides[nest->rank - 2], 0);
}

/* Keys are masked where `expr` equals `masked`. */
static void read_condition(const Nest *nest, const Expr *expr, bool masked, MaskHints *hints) {
  if (expr->kind == EXPR_OP && expr->op == OP_NOT) {
    read_condition(nest, expr->args[0], !masked, hints);
  } else if (expr->kind == EXPR_OP && expr->op == (masked ? OP_OR : OP_AND)) {
    read_condition(nest, expr->args[0], masked, hints);
    read_condition(nest, expr->args[1], masked, hints);
  } else if (expr->kind == EXPR_OP && covers_the_future(expr, masked)) {
    hints->causal = true;
  } else if (!hints->padding && is_padding(nest, expr)) {
    hints->padding = (uint8_t)expr->input;
    hints->padding_true = masked;
  }
}

MaskHints mask_hints(const Nest *nest) {
  MaskHints hints = {0};
  const Expr *expr = nest->expr;
  while (expr->kind == EXPR_OP && expr->op == OP_WHERE) {
    bool masked = is_minus_infinity(expr->args[1]);
    if (!masked && !is_minus_infinity(expr->args[2])) break;
    read_condition(nest, expr->args[0], masked, &hints);
    expr = masked ? expr->args[2] : expr->args[1];
  }
  return hints;
}
