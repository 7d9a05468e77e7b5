/* Proves what a value is at positions that must not be seen.
 *
 * In: a value with two axes of the length, k (keys) and q (queries). Out: what it is wherever k's coordinate is greater
 * than q's: one number, or a linear form of the two coordinates; else nothing is known, and the caller refuses.
 *
 * This is an abstract interpretation with three kinds of facts (LaterKind). A causal mask is true there, and so is any
 * mask that has it in an `or`; a selection by such a mask is its fill. Nothing is assumed of scores, weights and inputs
 * but that they are finite: then -inf stays -inf when they are added to it, and 0 stays 0 when they are multiplied by
 * it. A model whose scores overflow is outside of that assumption.
 *
 * Every rule may answer "unknown", and must wherever it is not certain: an unknown refuses the incremental form, which
 * costs speed, while a wrong fact would cost correctness. */
#include <math.h>
#include <stdlib.h>

#include "incremental/cut.h"

typedef enum LaterKind { LATER_UNKNOWN, LATER_NUMBER, LATER_LINEAR } LaterKind;

/* What is known of a value wherever k > q. */
typedef struct Later {
  LaterKind kind;
  double number;     /* truths are 0 and 1 */
  int64_t k, q, one; /* k * coordinate + q * coordinate + one */
} Later;

typedef struct Places { /* the axes of a node that are k and q; -1: it has no such axis */
  int32_t k, q;
} Places;

/* Factors and addends are bounded so that i32 and f32 hold every value of a linear form exactly, for lengths of up to a
 * million: an inexact form could compare equal where the exact one does not. The depth bounds the C stack. */
enum { MAX_DEPTH = 200, MAX_FACTOR = 8, MAX_ADDEND = 1 << 20 };

static const Later unknown = {.kind = LATER_UNKNOWN};

/* NaN equals nothing, so it is never a fact. */
static Later number_of(double number) {
  return isnan(number) ? unknown : (Later){.kind = LATER_NUMBER, .number = number};
}

/* The number as the model's own type holds it: a sum that is 0 in double need not be 0 in f32, and an i32 wraps. */
static Later held(DType dtype, double number) {
  if (dtype == DTYPE_F32) return number_of((double)(float)number);
  return number >= INT32_MIN && number <= INT32_MAX ? number_of(number) : unknown;
}

static Later linear(int64_t k, int64_t q, int64_t one) {
  if (llabs(k) > MAX_FACTOR || llabs(q) > MAX_FACTOR || llabs(one) > MAX_ADDEND) return unknown;
  return (Later){.kind = LATER_LINEAR, .k = k, .q = q, .one = one};
}

static bool is_number(Later x, double number) { return x.kind == LATER_NUMBER && x.number == number; }

static Later look(Cut *cut, const Node *node, Places at, unsigned depth);

/* The question about a node, asked of its operand along the operand's own axes. An operand without one of the axes is
 * the same for all coordinates there; `of_source` answers for those. */
static Later look_at_operand(Cut *cut, const Node *node, size_t i, Places at, unsigned depth) {
  const Places own = {at.k < 0 ? -1 : operand_axis(cut, node, i, (uint32_t)at.k),
                      at.q < 0 ? -1 : operand_axis(cut, node, i, (uint32_t)at.q)};
  return look(cut, node->inputs.items[i], own, depth - 1);
}

// ---- sources: where facts begin ----

static Later of_source(const Node *node, Places at) {
  const double value = node->dtype == DTYPE_F32 ? node->attr.number : (double)node->attr.integer;
  if (node->op == OP_FULL) return held(node->dtype, value);
  if (node->op == OP_POSITIONS && (at.k == 0 || at.q == 0)) return linear(at.k == 0, at.q == 0, 0);
  if (node->op == OP_CAUSAL_MASK && at.k == 1 && at.q == 0) return number_of(1);
  if (node->op == OP_CAUSAL_MASK && at.k == 0 && at.q == 1) return number_of(0);
  return unknown;
}

// ---- arithmetic ----

/* A whole number is a linear form too: the constant one. */
static bool as_linear(Later x, Later *out) {
  *out = x;
  if (x.kind == LATER_NUMBER && x.number == floor(x.number) && fabs(x.number) <= MAX_ADDEND)
    *out = linear(0, 0, (int64_t)x.number);
  return out->kind == LATER_LINEAR;
}

/* Sums, differences, and products with a constant form stay linear. */
static Later linear_result(OpKind op, Later x, Later y) {
  Later a, b;
  if (!as_linear(x, &a) || !as_linear(y, &b)) return unknown;
  if (op == OP_ADD) return linear(a.k + b.k, a.q + b.q, a.one + b.one);
  if (op == OP_SUB) return linear(a.k - b.k, a.q - b.q, a.one - b.one);
  if (op != OP_MUL) return unknown;
  if (!a.k && !a.q) return linear(a.one * b.k, a.one * b.q, a.one * b.one);
  return !b.k && !b.q ? linear(b.one * a.k, b.one * a.q, b.one * a.one) : unknown;
}

/* The sign of a linear form wherever k > q >= 0. With d = k - q >= 1 the form is x.k * d + (x.k + x.q) * q + x.one. If
 * both factors are at least 0, its least value is that at d = 1, q = 0, which is x.k + x.one; if both are at most 0,
 * that is its greatest value. Forms whose factors differ in sign are not decided. */
static bool at_least_one(Later x) { return x.k >= 0 && x.k + x.q >= 0 && x.k + x.one >= 1; }
static bool at_most_zero(Later x) { return x.k <= 0 && x.k + x.q <= 0 && x.k + x.one <= 0; }

/* 1 or 0 if x > y is decided for all k > q. */
static Later greater(Later x, Later y) {
  Later difference = linear_result(OP_SUB, x, y);
  if (difference.kind == LATER_LINEAR && at_least_one(difference)) return number_of(1);
  return difference.kind == LATER_LINEAR && at_most_zero(difference) ? number_of(0) : unknown;
}

static Later opposite(Later x) { return x.kind == LATER_NUMBER ? number_of(x.number == 0) : unknown; }

/* Equality is only ever refuted: two forms that agree everywhere are not worth a rule. */
static Later equal(Later x, Later y) {
  return is_number(greater(x, y), 1) || is_number(greater(y, x), 1) ? number_of(0) : unknown;
}

static Later compared(OpKind op, Later x, Later y) {
  switch (op) {
    case OP_EQ: return equal(x, y);
    case OP_NE: return opposite(equal(x, y));
    case OP_GT: return greater(x, y);
    case OP_LT: return greater(y, x);
    case OP_LE: return opposite(greater(x, y));
    case OP_GE: return opposite(greater(y, x));
    default: return unknown;
  }
}

/* Both operands are known numbers of the type. */
static Later arithmetic(OpKind op, DType dtype, double x, double y) {
  switch (op) {
    case OP_ADD: return held(dtype, x + y);
    case OP_SUB: return held(dtype, x - y);
    case OP_MUL: return held(dtype, x * y);
    case OP_DIV: return held(dtype, x / y);
    case OP_MAXIMUM: return number_of(x > y ? x : y);
    case OP_MINIMUM: return number_of(x < y ? x : y);
    case OP_EQ: return number_of(x == y);
    case OP_NE: return number_of(x != y);
    case OP_LT: return number_of(x < y);
    case OP_GT: return number_of(x > y);
    case OP_LE: return number_of(x <= y);
    case OP_GE: return number_of(x >= y);
    case OP_AND: return number_of(x != 0 && y != 0);
    case OP_OR: return number_of(x != 0 || y != 0);
    default: return unknown;
  }
}

/* Cases in which one operand decides, whatever finite number the other is. 0 / y is 0 for every finite y but 0, and
 * -inf minus a finite number is -inf; -inf times a number is left out, since the sign and a 0 matter. */
static Later absorbed(OpKind op, Later x, Later y) {
  if (op == OP_OR && (is_number(x, 1) || is_number(y, 1))) return number_of(1);
  if (op == OP_AND && (is_number(x, 0) || is_number(y, 0))) return number_of(0);
  if (op == OP_MUL && (is_number(x, 0) || is_number(y, 0))) return number_of(0);
  if (op == OP_DIV && is_number(x, 0)) return number_of(0);
  if ((op == OP_ADD || op == OP_SUB) && is_number(x, -INFINITY)) return x;
  if (op == OP_ADD && is_number(y, -INFINITY)) return y;
  if (op == OP_MINIMUM && (is_number(x, -INFINITY) || is_number(y, -INFINITY))) return number_of(-INFINITY);
  return unknown;
}

static Later of_binary(const Node *node, Later x, Later y) {
  const OpKind op = node->op;
  if (x.kind == LATER_NUMBER && y.kind == LATER_NUMBER) return arithmetic(op, node->dtype, x.number, y.number);
  Later result = absorbed(op, x, y);
  if (result.kind == LATER_UNKNOWN) result = compared(op, x, y);
  return result.kind == LATER_UNKNOWN ? linear_result(op, x, y) : result;
}

/* Only values at which the function is exact: its limit at -inf, and what it gives for 0 and 1. */
static Later of_unary(OpKind op, Later x) {
  bool is_zero = is_number(x, 0), is_lowest = is_number(x, -INFINITY);
  switch (op) {
    case OP_NEG: return x.kind == LATER_LINEAR ? linear(-x.k, -x.q, -x.one) : x.kind ? number_of(-x.number) : unknown;
    case OP_TO_F32: return x;
    case OP_TO_I32: return x.kind == LATER_LINEAR || is_zero || is_number(x, 1) ? x : unknown;
    case OP_NOT: return opposite(x);
    case OP_EXP: return is_lowest ? number_of(0) : is_zero ? number_of(1) : unknown;
    case OP_LOG: return is_zero ? number_of(-INFINITY) : is_number(x, 1) ? number_of(0) : unknown;
    case OP_RELU: return is_lowest || is_zero ? number_of(0) : unknown;
    case OP_SIGMOID: return is_lowest ? number_of(0) : unknown;
    default: return unknown;
  }
}

// ---- operations ----

/* A known condition selects one branch. An unknown one still gives a fact if both branches are the same number, as in
 * where(padding, -inf, where(causal, -inf, s)). */
static Later of_where(Cut *cut, const Node *node, Places at, unsigned depth) {
  Later condition = look_at_operand(cut, node, 0, at, depth);
  if (condition.kind == LATER_NUMBER) return look_at_operand(cut, node, condition.number != 0 ? 1 : 2, at, depth);
  Later x = look_at_operand(cut, node, 1, at, depth);
  Later y = x.kind == LATER_NUMBER ? look_at_operand(cut, node, 2, at, depth) : unknown;
  return is_number(y, x.number) ? x : unknown;
}

static Later of_pointwise(Cut *cut, const Node *node, Places at, unsigned depth) {
  if (node->op == OP_WHERE) return of_where(cut, node, at, depth);
  Later x = look_at_operand(cut, node, 0, at, depth);
  if (node->inputs.n == 1) return of_unary(node->op, x);
  return of_binary(node, x, look_at_operand(cut, node, 1, at, depth));
}

/* A slice that starts at 0 keeps the coordinates of its operand; any other shifts them. */
static Later of_slice(Cut *cut, const Node *node, Places at, unsigned depth) {
  Places own = at;
  if (at.k >= 0 && !size_equals(node->attr.starts[at.k], 0)) return unknown;
  if (at.q >= 0 && !size_equals(node->attr.starts[at.q], 0)) return unknown;
  return look(cut, node->inputs.items[0], own, depth - 1);
}

/* Nothing is known along an axis that merges or splits batch and length: its coordinates are not positions. */
static Later of_reshape(Cut *cut, const Node *node, Places at, unsigned depth) {
  const int32_t axes[] = {at.k, at.q};
  for (int i = 0; i < 2; i++) {
    int32_t own = axes[i] < 0 ? -1 : operand_axis(cut, node, 0, (uint32_t)axes[i]);
    if (own >= 0 && node->dims[axes[i]] != node->inputs.items[0]->dims[own]) return unknown;
  }
  return look_at_operand(cut, node, 0, at, depth);
}

/* A score of -inf has a weight of exactly 0, in a row of nothing else too: softmax of such a row is defined as
 * zeros. */
static Later of_softmax(Cut *cut, const Node *node, Places at, unsigned depth) {
  if (node->attr.axis != at.k) return unknown;
  Later x = look(cut, node->inputs.items[0], at, depth - 1); /* its axes are the operand's */
  return is_number(x, -INFINITY) ? number_of(node->op == OP_SOFTMAX ? 0 : -INFINITY) : unknown;
}

/* Along a third axis: the maximum or minimum of equal numbers is that number, the sum or mean of zeros is 0. */
static Later of_reduction(Cut *cut, const Node *node, Places at, unsigned depth) {
  Later x = look_at_operand(cut, node, 0, at, depth);
  bool keeps = node->op == OP_MAX || node->op == OP_MIN;
  bool is_zero = (node->op == OP_SUM || node->op == OP_MEAN) && is_number(x, 0);
  return (keeps && x.kind == LATER_NUMBER) || is_zero ? x : unknown;
}

/* The product of two lower triangular matrices is lower triangular: for k > q, every i is greater than q, where x[q, i]
 * is 0, or at most q and so less than k, where y[i, k] is 0. An attention of attention needs this. */
static bool is_triangular(Cut *cut, const Node *node, Places at, unsigned depth) {
  const Node *x = node->inputs.items[0], *y = node->inputs.items[1];
  int32_t row = (int32_t)x->rank - 2, column = (int32_t)y->rank - 1;
  if (node->op != OP_MATMUL || at.q + 2 != node->rank || at.k + 1 != node->rank) return false;
  if (!is_length(cut, x->dims[row + 1]) || y->dims[column - 1] != x->dims[row + 1]) return false;
  return is_number(look(cut, x, (Places){row + 1, row}, depth - 1), 0) &&
         is_number(look(cut, y, (Places){column, column - 1}, depth - 1), 0);
}

/* A sum over a third axis, each of whose products has a factor of 0. */
static Later of_product(Cut *cut, const Node *node, Places at, unsigned depth) {
  for (size_t i = 0; i < 2 && at.k >= 0 && at.q >= 0; i++) {
    bool has_both = operand_axis(cut, node, i, (uint32_t)at.k) >= 0 && operand_axis(cut, node, i, (uint32_t)at.q) >= 0;
    if (has_both && is_number(look_at_operand(cut, node, i, at, depth), 0)) return number_of(0);
  }
  return is_triangular(cut, node, at, depth) ? number_of(0) : unknown;
}

/* Known only if all parts are the same number: which part a coordinate falls into is not looked at. */
static Later of_concat(Cut *cut, const Node *node, Places at, unsigned depth) {
  Later first = look_at_operand(cut, node, 0, at, depth);
  for (size_t i = 1; i < node->inputs.n && first.kind == LATER_NUMBER; i++)
    if (!is_number(look_at_operand(cut, node, i, at, depth), first.number)) return unknown;
  return first.kind == LATER_NUMBER ? first : unknown;
}

/* By operation; everything that is not listed is unknown. */
static Later of_operation(Cut *cut, const Node *node, Places at, unsigned depth) {
  if (op_table[node->op].category == CATEGORY_SOURCE) return of_source(node, at);
  if (op_is_pointwise(node->op)) return of_pointwise(cut, node, at, depth);
  if (op_table[node->op].category == CATEGORY_REDUCE) return of_reduction(cut, node, at, depth);
  switch (node->op) {
    case OP_SLICE: return of_slice(cut, node, at, depth);
    case OP_RESHAPE: return of_reshape(cut, node, at, depth);
    case OP_PERMUTE: return look_at_operand(cut, node, 0, at, depth);
    case OP_LINEAR:
    case OP_MATMUL: return of_product(cut, node, at, depth);
    case OP_SOFTMAX:
    case OP_LOG_SOFTMAX: return of_softmax(cut, node, at, depth);
    case OP_CONCAT: return of_concat(cut, node, at, depth);
    default: return unknown;
  }
}

/* Each question is answered once and remembered, because all layers share their masks: without that the walk is
 * exponential in the depth of a mask that is built up step by step. An answer cut short by the depth is remembered too;
 * it is `unknown`, which is safe. */
static Later look(Cut *cut, const Node *node, Places at, unsigned depth) {
  if (depth == 0) return unknown;
  const int64_t key[] = {node->id, at.k, at.q};
  MapEntry *known = map_find(&cut->later, key, sizeof key);
  if (known) return *(Later *)known->value;
  Later result = of_operation(cut, node, at, depth);
  map_put_n(&cut->later, key, sizeof key, arena_copy(cut->scratch, &result, sizeof result));
  return result;
}

bool later_number(Cut *cut, const Node *x, uint32_t axis, uint32_t other, double *number) {
  Later later = look(cut, x, (Places){(int32_t)axis, (int32_t)other}, MAX_DEPTH);
  *number = later.number;
  return later.kind == LATER_NUMBER;
}

bool later_is(Cut *cut, const Node *x, uint32_t axis, double number) {
  double known;
  for (uint32_t q = 0; q < x->rank; q++)
    if (q != axis && is_length(cut, x->dims[q]) && later_number(cut, x, axis, q, &known) && known == number)
      return true;
  return false;
}
