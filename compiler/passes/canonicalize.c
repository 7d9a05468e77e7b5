/* Canonicalize: the same values, written the way the later passes look for them.
 *
 *   %3 = div %2, 8.0              %3 = mul %2, 0.125
 *   %4 = permute (permute x)      %4 = x
 *   %5 = matmul %x, weight        %5 = linear %x, permute(weight)
 *
 * Legal:
 *   1. what is left out changes no element (x + 0 and x * 1 of x's own shape; identical views). The sign
 *      of a zero is not kept: x + 0 would turn -0 into 0;
 *   2. x / c becomes x * (1/c) only if 1/c is a normal number, and exact or x made of a product of matrices: the
 *      results differ by one rounding, which must not move what was exact (positions) across a threshold;
 *   3. factors are multiplied in double under the same condition, and only if neither they nor their product is
 *      extreme, so that no product overflows or loses bits that the two did not lose;
 *   4. no rule removes a product with 0, which may be NaN.
 * Where a rule changes a rounding, it does so at compile time, so the bits still do not depend on threads, batch or
 * sizes.
 * Pays: attention, masks and siblings have one form to be found in. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "passes/match.h"

/* Each rule looks at one node and gives a simpler node of the same shape and type that computes the same, or NULL. */
typedef Node *Rule(Pass *pass, Builder *b, Node *node);

// ---- rules of arithmetic: neutral elements, signs, constant factors, conditions ----

/* A number that is finite in f32, not 0, not subnormal, and far from overflow: the product of two of them is normal. */
static bool is_moderate(double number) { return fabs(number) >= 0x1p-60 && fabs(number) <= 0x1p60; }

static bool is_power_of_two(double number) {
  int exponent;
  return fabs(frexp(number, &exponent)) == 0.5;
}

/* Whether a value is (made of) a product of matrices, which is rounded anyway. What is exact, such as positions, must
 * stay so: one rounding more may change what is truncated or compared later. */
static bool is_rounded(const Node *node, unsigned depth) {
  if (depth == 0) return false;
  if (op_table[node->op].category == CATEGORY_CONTRACT || node->op == OP_SOFTMAX) return true;
  if (op_table[node->op].category != CATEGORY_VIEW && !op_is_pointwise(node->op)) return false;
  for (size_t i = 0; i < node->inputs.n; i++)
    if (is_rounded(node->inputs.items[i], depth - 1)) return true;
  return false;
}

/* The depth bounds the work; beyond it the answer is no, which only leaves a division where it is. */
static bool may_round_again(const Node *node) {
  enum { MAX_DEPTH = 8 };
  return is_rounded(node, MAX_DEPTH);
}

static Node *left(const Node *node) { return node->inputs.items[0]; }
static Node *right(const Node *node) { return node->inputs.items[1]; }

/* `x` if it has the node's shape; else x is broadcast to it by the other operand, and cannot stand for the node. */
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

/* One number everywhere, known now. */
static bool is_known(const Node *node) {
  double number;
  int64_t integer;
  return match_number(node, &number) || match_integer(node, &integer);
}

/* Constants stand right of sums and products. */
static Node *constant_to_the_right(Builder *b, const Node *node) {
  return is_known(left(node)) && !is_known(right(node)) ? build_binary(b, node->op, right(node), left(node)) : NULL;
}

/* x + 0 = x; x + -y = x - y, which rounds the same. */
static Node *rule_add(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  if (is_number(right(node), 0)) return same_shape_or_null(left(node), node);
  if (right(node)->op == OP_NEG) return build_binary(b, OP_SUB, left(node), left(right(node)));
  if (left(node)->op == OP_NEG) return build_binary(b, OP_SUB, right(node), left(left(node)));
  return constant_to_the_right(b, node);
}

static Node *rule_sub(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  if (is_number(right(node), 0)) return same_shape_or_null(left(node), node);
  if (right(node)->op == OP_NEG) return build_binary(b, OP_ADD, left(node), left(right(node)));
  return NULL;
}

/* where(c, 2, s) * 3 = where(c, 6, s * 3): the factor comes nearer to what is scaled. A fill of -inf stays -inf because
 * the factor is positive. */
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

/* The product with a known factor: signs and neighbouring factors become part of it. */
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

static Node *rule_mul(Pass *pass, Builder *b, Node *node) {
  double factor;
  if (is_number(right(node), 1)) return same_shape_or_null(left(node), node);
  if (node->dtype != DTYPE_F32 || !match_number(right(node), &factor)) return constant_to_the_right(b, node);
  if (factor == -1 && node_same_shape(left(node), node)) return build_unary(b, OP_NEG, left(node));
  return multiply_factor(pass, b, node, factor);
}

static Node *rule_div(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  double divisor;
  if (!match_number(right(node), &divisor) || !is_moderate(divisor)) return NULL;
  if (!is_power_of_two(divisor) && !may_round_again(left(node))) return NULL;
  return build_binary(b, OP_MUL, left(node), constant(b, right(node), 1 / divisor));
}

static Node *rule_neg(Pass *pass, Builder *b, Node *node) {
  Node *x = left(node);
  double factor;
  if (x->op == OP_NEG) return left(x);
  if (x->op == OP_MUL && match_number(right(x), &factor) && match_only_user(pass, x) == node)
    return build_binary(b, OP_MUL, left(x), constant(b, right(x), -factor));
  return NULL;
}

static Node *rule_convert(Pass *pass, Builder *b, Node *node) {
  (void)pass, (void)b;
  return left(node)->dtype == node->dtype ? left(node) : NULL;
}

// ---- conditions ----

/* The opposite of a comparison replaces its negation. Of floats only == and != have one that holds for NaN too: not (x
 * < y) is true for NaN, x >= y is not. */
static Node *rule_not(Pass *pass, Builder *b, Node *node) {
  Node *x = left(node);
  if (x->op == OP_NOT) return left(x);
  bool comparison = op_opposite(x->op) != N_OPS;
  bool exact = comparison && (left(x)->dtype != DTYPE_F32 || x->op == OP_EQ || x->op == OP_NE);
  if (!exact || match_only_user(pass, x) != node) return NULL;
  return build_binary(b, op_opposite(x->op), left(x), right(x));
}

/* x and true, x or false: x. x and false, x or true: known. */
static Node *rule_logic(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  int64_t known;
  if (left(node) == right(node)) return left(node);
  if (!match_integer(right(node), &known)) return constant_to_the_right(b, node);
  bool decides = (known != 0) == (node->op == OP_OR);
  return same_shape_or_null(decides ? right(node) : left(node), node);
}

/* A known condition, equal branches, a negated condition. The branch that is not selected may be dropped, since where
 * selects: nothing of it can be seen. */
static Node *rule_where(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  Node *condition = left(node), *x = right(node), *y = node->inputs.items[2];
  int64_t known;
  if (match_integer(condition, &known)) return same_shape_or_null(known ? x : y, node);
  if (x == y) return same_shape_or_null(x, node);
  if (condition->op == OP_NOT) return build_where(b, left(condition), y, x);
  return NULL;
}

// ---- rules of products: a product with a weight is a linear, so that its weight is packed once ----

/* The left operand of a product whose zeros are exact: what stands right of them must not be looked at, so such a
 * product must stay a matmul; a linear multiplies everything. */
static bool is_softmax(const Node *node) {
  node = node_behind_views(node);
  return node->op == OP_SOFTMAX || node->op == OP_ATTENTION_WEIGHTS;
}

/* x [..., t, k] @ w [k, n] = linear(x, permute(w)): the same sums in the same order of k. */
static Node *rule_matmul(Pass *pass, Builder *b, Node *node) {
  Node *x = node->inputs.items[0], *w = node->inputs.items[1];
  if (node->attr.form != TFM_FORM_F32 || w->rank != 2) return NULL;
  if (!match_is_static(pass, w) || match_is_static(pass, x) || is_softmax(x)) return NULL;
  return build_linear(b, x, match_swap_last_two(b, w));
}

// ---- rules of views ----

/* Views are composed with the view below and left out where they change nothing; a slice of a concatenation gives
 * back the part, and a concatenation of neighbouring slices the whole. */

static Node *rule_reshape(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  Node *x = node->inputs.items[0];
  if (!node_same_shape(x, node) && x->op != OP_RESHAPE) return NULL;
  return match_reshape(b, x, node->rank, node->dims);
}

static bool is_identity(const Node *permute) {
  for (uint32_t i = 0; i < permute->rank; i++)
    if (permute->attr.axes[i] != i) return false;
  return true;
}

static Node *rule_permute(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  Node *x = node->inputs.items[0];
  if (!is_identity(node) && x->op != OP_PERMUTE) return NULL;
  return match_permute(b, x, node->attr.axes);
}

// ---- slices ----

static bool starts_at_zero(const Node *slice) {
  for (uint32_t i = 0; i < slice->rank; i++)
    if (!size_equals(slice->attr.starts[i], 0)) return false;
  return true;
}

/* The starts add up. */
static Node *slice_of_slice(Builder *b, const Node *node, const Node *inner) {
  const Size *starts[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) {
    starts[i] = size_add(b->graph->sizes, node->attr.starts[i], inner->attr.starts[i]);
    if (!starts[i]) return NULL;
  }
  return build_slice(b, inner->inputs.items[0], starts, node->dims);
}

/* The part of a concatenation that holds all of the slice. */
static Node *slice_of_concat(Builder *b, const Node *node, const Node *concat) {
  uint32_t axis = (uint32_t)concat->attr.axis;
  int64_t start, length, begin = 0, part;
  if (!size_is_const(node->attr.starts[axis], &start) || !size_is_const(node->dims[axis], &length)) return NULL;
  for (size_t i = 0; i < concat->inputs.n; i++, begin += part) {
    Node *x = concat->inputs.items[i];
    if (!size_is_const(x->dims[axis], &part)) return NULL;
    if (start < begin || start + length > begin + part) continue;
    const Size *starts[MAX_RANK];
    memcpy(starts, node->attr.starts, sizeof starts);
    starts[axis] = size_const(b->graph->sizes, start - begin);
    return build_slice(b, x, starts, node->dims);
  }
  return NULL;
}

static Node *rule_slice(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  Node *x = node->inputs.items[0];
  if (starts_at_zero(node) && node_same_shape(x, node)) return x;
  if (x->op == OP_SLICE) return slice_of_slice(b, node, x);
  if (x->op == OP_CONCAT) return slice_of_concat(b, node, x);
  return NULL;
}

// ---- concatenations ----

/* Whether `next` continues the slice `x` along `axis`, all other axes being the same. */
static bool continues(SizeTable *sizes, const Node *x, const Node *next, uint32_t axis) {
  if (x->op != OP_SLICE || next->op != OP_SLICE || x->inputs.items[0] != next->inputs.items[0]) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    if (i == axis) continue;
    if (x->attr.starts[i] != next->attr.starts[i] || x->dims[i] != next->dims[i]) return false;
  }
  return size_add(sizes, x->attr.starts[axis], x->dims[axis]) == next->attr.starts[axis];
}

/* The slice from the start of `x` to the end of `next`. */
static Node *joined(Builder *b, const Node *x, const Node *next, uint32_t axis) {
  const Size *dims[MAX_RANK];
  memcpy(dims, x->dims, sizeof dims);
  dims[axis] = size_add(b->graph->sizes, x->dims[axis], next->dims[axis]);
  return build_slice(b, x->inputs.items[0], x->attr.starts, dims);
}

/* One pass over the parts: nested concatenations along the same axis are opened, neighbouring slices joined. */
static Node *rule_concat(Pass *pass, Builder *b, Node *node) {
  VEC(Node *) parts = {0};
  uint32_t axis = (uint32_t)node->attr.axis;
  bool changed = node->inputs.n == 1;
  for (size_t i = 0; i < node->inputs.n; i++) {
    Node *x = node->inputs.items[i];
    Node **last = parts.n ? &parts.items[parts.n - 1] : NULL;
    if (last && continues(b->graph->sizes, *last, x, axis)) {
      Node *before = *last;
      *last = joined(b, before, x, axis);
      match_delete_unused(pass, before);
      changed = true;
    } else if (x->op == OP_CONCAT && x->attr.axis == node->attr.axis) {
      for (size_t j = 0; j < x->inputs.n; j++) vec_push(pass->scratch, &parts, x->inputs.items[j]);
      changed = true;
    } else {
      vec_push(pass->scratch, &parts, x);
    }
  }
  if (!changed) return NULL;
  return parts.n == 1 ? parts.items[0] : build_concat(b, (uint32_t)parts.n, parts.items, node->attr.axis);
}

// ---- the pass ----

/* Every rule makes the graph smaller or moves it towards one form, so the rounds end; the limits keep a pair of rules
 * that undo each other from hanging the compiler. */
enum { MAX_ROUNDS = 8, MAX_STEPS_PER_NODE = 64 };

static Rule *const rules[N_OPS] = {
    [OP_ADD] = rule_add,         [OP_SUB] = rule_sub,         [OP_MUL] = rule_mul,       [OP_DIV] = rule_div,
    [OP_NEG] = rule_neg,         [OP_TO_F32] = rule_convert,  [OP_TO_I32] = rule_convert, [OP_NOT] = rule_not,
    [OP_AND] = rule_logic,       [OP_OR] = rule_logic,        [OP_WHERE] = rule_where,   [OP_RESHAPE] = rule_reshape,
    [OP_PERMUTE] = rule_permute, [OP_SLICE] = rule_slice,     [OP_CONCAT] = rule_concat, [OP_MATMUL] = rule_matmul,
};

static bool canonicalize_node(Pass *pass, Node *node) {
  bool changed = false;
  for (unsigned i = 0; i < MAX_STEPS_PER_NODE && rules[node->op]; i++) {
    Builder b = pass_builder(pass, node, node);
    Node *by = rules[node->op](pass, &b, node);
    if (!by) break;
    CHECK(node_same_shape(by, node), "a rule of %s changed the shape", op_table[node->op].name);
    match_replace(pass, node, by);
    changed = true;
    node = by;
  }
  return changed;
}

bool pass_canonicalize(Pass *pass) {
  bool changed = false, again = true;
  for (unsigned round = 0; round < MAX_ROUNDS && again; round++) {
    again = false;
    for (Node *node = pass->graph->first, *next; node; node = next) {
      /* What a rule deletes stands before the node, so `next` stays. */
      next = node->next;
      again |= canonicalize_node(pass, node);
    }
    changed |= again;
  }
  return changed;
}
