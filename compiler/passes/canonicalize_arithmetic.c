/* Rules of arithmetic: neutral elements, signs, constant factors, conditions. */
#include <math.h>

#include "passes/canonicalize.h"

/* A number that is finite in f32, not 0, not subnormal, and far from overflow. */
static bool is_moderate(double number) { return fabs(number) >= 0x1p-60 && fabs(number) <= 0x1p60; }

static bool is_power_of_two(double number) {
  int exponent;
  return fabs(frexp(number, &exponent)) == 0.5;
}

/* Whether a number is (made of) a product of matrices, which is rounded anyway. What is exact, such as positions, must
 * stay so: one rounding more may change what is truncated or compared later. */
static bool is_rounded(const Node *node, unsigned depth) {
  if (depth == 0) return false;
  if (op_table[node->op].category == CATEGORY_CONTRACT || node->op == OP_SOFTMAX) return true;
  if (op_table[node->op].category != CATEGORY_VIEW && !op_is_pointwise(node->op)) return false;
  for (size_t i = 0; i < node->inputs.n; i++)
    if (is_rounded(node->inputs.items[i], depth - 1)) return true;
  return false;
}

static bool may_round_again(const Node *node) {
  enum { MAX_DEPTH = 8 };
  return is_rounded(node, MAX_DEPTH);
}

static Node *left(const Node *node) { return node->inputs.items[0]; }
static Node *right(const Node *node) { return node->inputs.items[1]; }

/* `x` if it has the node's shape: then the other operand broadcast to x. */
static Node *same_shape_or_null(Node *x, const Node *node) { return node_same_shape(x, node) ? x : NULL; }

static Node *constant(Builder *b, const Node *like, double number) {
  return build_full(b, number, like->rank, like->dims);
}

static bool is_number(const Node *node, double value) {
  double number;
  int64_t integer;
  if (match_number(node, &number)) return number == value;
  return match_integer(node, &integer) && (double)integer == value;
}

static bool is_known(const Node *node) {
  double number;
  int64_t integer;
  return match_number(node, &number) || match_integer(node, &integer);
}

/* Constants stand right of sums and products. */
static Node *constant_to_the_right(Builder *b, const Node *node) {
  return is_known(left(node)) && !is_known(right(node)) ? build_binary(b, node->op, right(node), left(node)) : NULL;
}

Node *rule_add(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  if (is_number(right(node), 0)) return same_shape_or_null(left(node), node);
  if (right(node)->op == OP_NEG) return build_binary(b, OP_SUB, left(node), left(right(node)));
  if (left(node)->op == OP_NEG) return build_binary(b, OP_SUB, right(node), left(left(node)));
  return constant_to_the_right(b, node);
}

Node *rule_sub(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  if (is_number(right(node), 0)) return same_shape_or_null(left(node), node);
  if (right(node)->op == OP_NEG) return build_binary(b, OP_ADD, left(node), left(right(node)));
  return NULL;
}

/* where(c, 2, s) * 3 = where(c, 6, s * 3): the factor comes nearer to what is scaled. */
static Node *scale_inside_where(Pass *pass, Builder *b, Node *node, double factor) {
  Node *where = left(node), *condition, *x, *y;
  if (where->op != OP_WHERE || match_only_user(pass, where) != node || !node_same_shape(where, node)) return NULL;
  condition = where->inputs.items[0], x = where->inputs.items[1], y = where->inputs.items[2];
  double number;
  if (!match_number(x, &number) == !match_number(y, &number) || factor <= 0) return NULL;
  bool x_known = match_number(x, &number);
  if (!x_known) match_number(y, &number);
  Node *product = build_binary(b, OP_MUL, x_known ? y : x, build_scalar(b, DTYPE_F32, factor, 0));
  Node *known = constant(b, x_known ? x : y, number * factor);
  return build_where(b, condition, x_known ? known : product, x_known ? product : known);
}

static Node *multiply_factor(Pass *pass, Builder *b, Node *node, double factor) {
  Node *x = left(node);
  double inner;
  if (x->op == OP_NEG) return build_binary(b, OP_MUL, left(x), constant(b, right(node), -factor));
  if (!is_moderate(factor)) return NULL;
  if (x->op == OP_MUL && match_number(right(x), &inner) && is_moderate(inner) && is_moderate(inner * factor) &&
      match_only_user(pass, x) == node && node_same_shape(left(x), node) &&
      (is_power_of_two(inner) || is_power_of_two(factor) || may_round_again(left(x))))
    return build_binary(b, OP_MUL, left(x), build_scalar(b, DTYPE_F32, inner * factor, 0));
  return scale_inside_where(pass, b, node, factor);
}

Node *rule_mul(Pass *pass, Builder *b, Node *node) {
  double factor;
  if (is_number(right(node), 1)) return same_shape_or_null(left(node), node);
  if (node->dtype != DTYPE_F32 || !match_number(right(node), &factor)) return constant_to_the_right(b, node);
  if (factor == -1 && node_same_shape(left(node), node)) return build_unary(b, OP_NEG, left(node));
  return multiply_factor(pass, b, node, factor);
}

Node *rule_div(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  double divisor;
  if (!match_number(right(node), &divisor) || !is_moderate(divisor)) return NULL;
  if (!is_power_of_two(divisor) && !may_round_again(left(node))) return NULL;
  return build_binary(b, OP_MUL, left(node), constant(b, right(node), 1 / divisor));
}

Node *rule_neg(Pass *pass, Builder *b, Node *node) {
  Node *x = left(node);
  double factor;
  if (x->op == OP_NEG) return left(x);
  if (x->op == OP_MUL && match_number(right(x), &factor) && match_only_user(pass, x) == node)
    return build_binary(b, OP_MUL, left(x), constant(b, right(x), -factor));
  return NULL;
}

Node *rule_convert(Pass *pass, Builder *b, Node *node) {
  (void)pass, (void)b;
  return left(node)->dtype == node->dtype ? left(node) : NULL;
}

// ---- conditions ----

/* Only == and != have an opposite that holds for NaN too. */
Node *rule_not(Pass *pass, Builder *b, Node *node) {
  Node *x = left(node);
  if (x->op == OP_NOT) return left(x);
  bool comparison = op_opposite(x->op) != N_OPS;
  bool exact = comparison && (left(x)->dtype != DTYPE_F32 || x->op == OP_EQ || x->op == OP_NE);
  if (!exact || match_only_user(pass, x) != node) return NULL;
  return build_binary(b, op_opposite(x->op), left(x), right(x));
}

/* x and true, x or false: x. x and false, x or true: known. */
Node *rule_logic(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  int64_t known;
  if (left(node) == right(node)) return left(node);
  if (!match_integer(right(node), &known)) return constant_to_the_right(b, node);
  bool decides = (known != 0) == (node->op == OP_OR);
  return same_shape_or_null(decides ? right(node) : left(node), node);
}

Node *rule_where(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  Node *condition = left(node), *x = right(node), *y = node->inputs.items[2];
  int64_t known;
  if (match_integer(condition, &known)) return same_shape_or_null(known ? x : y, node);
  if (x == y) return same_shape_or_null(x, node);
  if (condition->op == OP_NOT) return build_where(b, left(condition), y, x);
  return NULL;
}
