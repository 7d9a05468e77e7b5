/* What each operation gives its inputs: one function for each, and the table of them. See differentiate.h.
 *
 * In: a forward node y = op(x, ...) and its cotangent g, of the shape of y. Out: nodes at the end of the graph, given
 * to the inputs. Operations that fusion makes have no rule, because the backward half is made before it. */
#include <math.h>
#include <string.h>

#include "passes/differentiate.h"
#include "passes/differentiate_formulas.h"
#include "passes/match.h"

static const double PI = 3.14159265358979323846;

// ---- one operand, element by element ----

static void rule_neg(Backward *d, Node *y, Node *g) { backward_give(d, y->inputs.items[0], unary(d, OP_NEG, g)); }

static void rule_exp(Backward *d, Node *y, Node *g) { backward_give(d, y->inputs.items[0], mul(d, g, y)); }

static void rule_log(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  backward_give(d, x, binary(d, OP_DIV, g, x));
}

/* Where nothing flows back, nothing goes on: the norm of a row of zeros, which something greater replaces, would give
 * 0 / 0. */
static void rule_sqrt(Backward *d, Node *y, Node *g) {
  Node *slope = binary(d, OP_DIV, scale(d, g, 0.5), y);
  backward_give(d, y->inputs.items[0], where(d, below_zero(d, OP_EQ, g), number(d, 0), slope));
}

static void rule_rsqrt(Backward *d, Node *y, Node *g) {
  backward_give(d, y->inputs.items[0], mul(d, scale(d, g, -0.5), mul(d, mul(d, y, y), y)));
}

/* 0 at 0; a NaN stays. */
static void rule_abs(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  Node *other = where(d, below_zero(d, OP_LT, x), unary(d, OP_NEG, g), mul(d, g, x));
  backward_give(d, x, where(d, below_zero(d, OP_GT, x), g, other));
}

static void rule_sin(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  backward_give(d, x, mul(d, g, unary(d, OP_COS, x)));
}

static void rule_cos(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  backward_give(d, x, unary(d, OP_NEG, mul(d, g, unary(d, OP_SIN, x))));
}

static void rule_tanh(Backward *d, Node *y, Node *g) {
  backward_give(d, y->inputs.items[0], mul(d, g, sub(d, number(d, 1), mul(d, y, y))));
}

static void rule_sigmoid(Backward *d, Node *y, Node *g) {
  backward_give(d, y->inputs.items[0], mul(d, g, mul(d, y, sub(d, number(d, 1), y))));
}

static void rule_erf(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  Node *bell = unary(d, OP_EXP, unary(d, OP_NEG, mul(d, x, x)));
  backward_give(d, x, mul(d, scale(d, g, 2 / sqrt(PI)), bell));
}

/* The node of the forward half that alone uses this one; NULL if there are more. */
static Node *only_forward_user(const Backward *d, const Node *x) {
  Node *only = NULL;
  for (size_t i = 0; i < x->users.n; i++) {
    if (x->users.items[i]->id >= d->n_forward) continue;
    if (only) return NULL;
    only = x->users.items[i];
  }
  return only;
}

/* What dropout leaves of y, if nothing else uses y: where an element is kept it has the sign of y, and elsewhere
 * nothing flows back. Then y need not be in memory, and the product that it comes from ends with the dropout. */
static Node *left_by_dropout(const Backward *d, Node *y) {
  Node *more = only_forward_user(d, y), *left = more ? only_forward_user(d, more) : NULL;
  double factor, zero;
  if (!left || more->op != OP_MUL || left->op != OP_WHERE || left->inputs.items[1] != more) return y;
  if (!match_number(more->inputs.items[more->inputs.items[0] == y], &factor)) return y;
  if (!(factor >= 1) || !isfinite(factor) || !node_same_shape(left, y)) return y;
  return match_number(left->inputs.items[2], &zero) && zero == 0 ? left : y;
}

static void rule_relu(Backward *d, Node *y, Node *g) {
  Node *sign = left_by_dropout(d, y);
  backward_give(d, y->inputs.items[0], where(d, below_zero(d, OP_LE, sign), number(d, 0), g));
}

/* Of x s(c x), s the sigmoid: s (1 + c x (1 - s)). */
static Node *gated_slope(Backward *d, Node *x, double c) {
  Node *cx = scale(d, x, c), *s = unary(d, OP_SIGMOID, cx);
  return mul(d, s, plus(d, mul(d, cx, sub(d, number(d, 1), s)), 1));
}

static void rule_silu(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  backward_give(d, x, mul(d, g, gated_slope(d, x, 1)));
}

static void rule_quick_gelu(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  backward_give(d, x, mul(d, g, gated_slope(d, x, 1.702)));
}

static void rule_gelu(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  Node *share = scale(d, plus(d, unary(d, OP_ERF, scale(d, x, sqrt(0.5))), 1), 0.5);
  Node *bell = unary(d, OP_EXP, scale(d, mul(d, x, x), -0.5));
  backward_give(d, x, mul(d, g, add(d, share, scale(d, mul(d, x, bell), 1 / sqrt(2 * PI)))));
}

static void rule_gelu_tanh(Backward *d, Node *y, Node *g) {
  const double c = sqrt(2 / PI), cube = 0.044715;
  Node *x = y->inputs.items[0], *xx = mul(d, x, x);
  Node *t = unary(d, OP_TANH, scale(d, mul(d, x, plus(d, scale(d, xx, cube), 1)), c));
  Node *inner = scale(d, plus(d, scale(d, xx, 3 * cube), 1), c);
  Node *slope = mul(d, mul(d, scale(d, x, 0.5), sub(d, number(d, 1), mul(d, t, t))), inner);
  backward_give(d, x, mul(d, g, add(d, scale(d, plus(d, t, 1), 0.5), slope)));
}

static void rule_to_f32(Backward *d, Node *y, Node *g) { backward_give(d, y->inputs.items[0], g); }

// ---- several operands ----

static void rule_add(Backward *d, Node *y, Node *g) {
  backward_give(d, y->inputs.items[0], g);
  backward_give(d, y->inputs.items[1], g);
}

static void rule_sub(Backward *d, Node *y, Node *g) {
  backward_give(d, y->inputs.items[0], g);
  if (d->active[y->inputs.items[1]->id]) backward_give(d, y->inputs.items[1], unary(d, OP_NEG, g));
}

static void rule_mul(Backward *d, Node *y, Node *g) {
  Node *a = y->inputs.items[0], *b = y->inputs.items[1];
  if (d->active[a->id]) backward_give(d, a, mul(d, g, b));
  if (d->active[b->id]) backward_give(d, b, mul(d, g, a));
}

static void rule_div(Backward *d, Node *y, Node *g) {
  Node *a = y->inputs.items[0], *b = y->inputs.items[1];
  Node *quotient = binary(d, OP_DIV, g, b);
  backward_give(d, a, quotient);
  if (d->active[b->id]) backward_give(d, b, unary(d, OP_NEG, mul(d, quotient, y)));
}

/* Equal operands share. */
static void rule_extreme(Backward *d, Node *y, Node *g) {
  const OpKind loses = y->op == OP_MAXIMUM ? OP_LT : OP_GT;
  for (uint32_t i = 0; i < 2; i++) {
    Node *a = y->inputs.items[i], *b = y->inputs.items[1 - i];
    if (!d->active[a->id]) continue;
    Node *kept = where(d, binary(d, OP_EQ, a, b), scale(d, g, 0.5), g);
    backward_give(d, a, where(d, binary(d, loses, a, b), number(d, 0), kept));
  }
}

static void rule_where(Backward *d, Node *y, Node *g) {
  Node *c = y->inputs.items[0], *a = y->inputs.items[1], *b = y->inputs.items[2];
  if (d->active[a->id]) backward_give(d, a, where(d, c, g, number(d, 0)));
  if (d->active[b->id]) backward_give(d, b, where(d, c, number(d, 0), g));
}

/* x to the e: g e x^(e-1), and 0 where e is 0; for e: g y log x, and 0 where x is 0 and e >= 0. */
static void rule_power(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0], *e = y->inputs.items[1];
  double exponent;
  Node *slope = mul(d, g, mul(d, e, binary(d, OP_POWER, x, plus(d, e, -1))));
  if (!match_number(e, &exponent) || exponent == 0) slope = where(d, below_zero(d, OP_EQ, e), number(d, 0), slope);
  if (d->active[x->id]) backward_give(d, x, slope);
  if (!d->active[e->id]) return;
  Node *is_flat = binary(d, OP_AND, below_zero(d, OP_EQ, x), below_zero(d, OP_GE, e));
  backward_give(d, e, where(d, is_flat, number(d, 0), mul(d, g, mul(d, y, unary(d, OP_LOG, x)))));
}

// ---- views and places ----

/* Zeros of the shape of g, but `n` along the axis. */
static Node *zeros(Backward *d, const Node *g, uint32_t axis, const Size *n) {
  const Size *dims[MAX_RANK];
  memcpy(dims, g->dims, sizeof dims);
  dims[axis] = n;
  return build_full(&d->builder, 0, g->rank, dims);
}

/* Puts g where what x has got so far, parts along the axis, has nothing but zeros: the parts of a packed projection
 * become one concat. NULL if it does not fit. */
static Node *filled_in(Backward *d, const Node *x, uint32_t axis, int64_t before, Node *g) {
  const Node *sum = d->cotangents[x->id];
  int64_t at = 0, dim, width;
  uint32_t n = 0;
  if (!sum || sum->op != OP_CONCAT || (uint32_t)sum->attr.axis != axis) return NULL;
  if (!size_is_const(g->dims[axis], &width)) return NULL;
  SizeTable *sizes = d->builder.graph->sizes;
  Node **parts = ARENA_ARRAY(d->builder.graph->arena, Node *, sum->inputs.n + 2);
  bool is_in = false;
  for (size_t i = 0; i < sum->inputs.n; i++, at += dim) {
    Node *part = sum->inputs.items[i];
    if (!size_is_const(part->dims[axis], &dim)) return NULL;
    if (part->op != OP_FULL || part->attr.number != 0 || before < at || before + width > at + dim) {
      parts[n++] = part;
      continue;
    }
    if (before > at) parts[n++] = zeros(d, g, axis, size_const(sizes, before - at));
    parts[n++] = g;
    if (before + width < at + dim) parts[n++] = zeros(d, g, axis, size_const(sizes, at + dim - before - width));
    is_in = true;
  }
  return is_in ? build_concat(&d->builder, n, parts, (int32_t)axis) : NULL;
}

static void rule_slice(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0], *filled = NULL;
  int64_t start;
  for (uint32_t i = 0, n = 0; i < x->rank && d->active[x->id]; i++) {
    if (x->dims[i] == y->dims[i]) continue;
    filled = ++n == 1 && size_is_const(y->attr.starts[i], &start) ? filled_in(d, x, i, start, g) : NULL;
  }
  if (filled) {
    d->cotangents[x->id] = filled;
    return;
  }
  SizeTable *sizes = d->builder.graph->sizes;
  for (uint32_t i = 0; i < x->rank; i++) {
    const Size *before = y->attr.starts[i], *end = size_add(sizes, before, y->dims[i]);
    const Size *after = end ? size_sub(sizes, x->dims[i], end) : NULL;
    Node *parts[3];
    uint32_t n = 0;
    if (!after) {
      refuse_size(d, y);
      return;
    }
    if (!size_equals(before, 0)) parts[n++] = zeros(d, g, i, before);
    parts[n++] = g;
    if (!size_equals(after, 0)) parts[n++] = zeros(d, g, i, after);
    if (n > 1) g = build_concat(&d->builder, n, parts, (int32_t)i);
  }
  backward_give(d, x, g);
}

static void rule_reshape(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  backward_give(d, x, like(d, g, x));
}

static void rule_permute(Backward *d, Node *y, Node *g) {
  uint8_t axes[MAX_RANK];
  for (uint8_t i = 0; i < y->rank; i++) axes[y->attr.axes[i]] = i;
  backward_give(d, y->inputs.items[0], build_permute(&d->builder, g, axes));
}

static void rule_concat(Backward *d, Node *y, Node *g) {
  SizeTable *sizes = d->builder.graph->sizes;
  const Size *starts[MAX_RANK];
  for (uint32_t i = 0; i < y->rank; i++) starts[i] = size_const(sizes, 0);
  for (size_t i = 0; i < y->inputs.n; i++) {
    Node *x = y->inputs.items[i];
    if (d->active[x->id]) backward_give(d, x, build_slice(&d->builder, g, starts, (const Size *const *)x->dims));
    starts[y->attr.axis] = size_add(sizes, starts[y->attr.axis], x->dims[y->attr.axis]);
  }
}

/* Rows of a table: what came back is added to the rows that were read, in the order of the reads. What the table has
 * already got is added to first, so that a table that is also an output layer's weight needs no second one. */
static void rule_gather(Backward *d, Node *y, Node *g) {
  Node *table = y->inputs.items[0], *ids = y->inputs.items[1], *before = d->cotangents[table->id];
  SizeTable *sizes = d->builder.graph->sizes;
  const Size *reads = node_elements(sizes, ids), *width = sizes_product(sizes, table->rank - 1u, table->dims + 1);
  if (!d->active[table->id]) return;
  if (!reads || !width) {
    refuse_size(d, y);
    return;
  }
  const Size *n = table->dims[0], *dims[2] = {reads, width};
  Node *line = reshape(d, ids, 1, dims), *rows = reshape(d, g, 2, dims);
  if (before) before = reshape(d, before, 2, (const Size *const[]){n, width});
  d->cotangents[table->id] = like(d, build_scatter(&d->builder, rows, line, before, n), table);
}

/* Elements along an axis: each place of x adds up what was taken from it. With one id for each line there is nothing to
 * add up. */
static void rule_take(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0], *ids = y->inputs.items[1];
  const uint32_t axis = (uint32_t)y->attr.axis;
  const Size *n = x->dims[axis];
  if (size_equals(y->dims[axis], 1)) {
    Node *is_taken = binary(d, OP_EQ, positions_along(d, n, x->rank, axis), ids);
    backward_give(d, x, where(d, is_taken, g, number(d, 0)));
    return;
  }
  if (x->rank == MAX_RANK) {
    refuse(d, y, "it has as many axes as a tensor can have");
    return;
  }
  const Size *dims[2][MAX_RANK];
  Node *taken[2] = {ids, g};
  for (uint32_t k = 0; k < 2; k++) {
    for (uint32_t i = 0; i <= x->rank; i++)
      dims[k][i] = i == axis ? size_const(d->builder.graph->sizes, 1) : taken[k]->dims[i - (i > axis)];
    taken[k] = reshape(d, taken[k], x->rank + 1u, dims[k]);
  }
  Node *is_taken = binary(d, OP_EQ, positions_along(d, n, x->rank + 1u, axis), taken[0]);
  Node *all = where(d, is_taken, taken[1], number(d, 0));
  backward_give(d, x, build_reduce(&d->builder, OP_SUM, all, (int32_t)axis + 1, false));
}

/* Every s-th element: the others get 0. */
static void rule_every(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  const uint32_t axis = (uint32_t)y->attr.axis;
  int64_t step = 1;
  size_is_const(y->attr.size, &step);
  Node *places = positions_along(d, x->dims[axis], x->rank, axis);
  Node *came = build_take(&d->builder, g, binary(d, OP_FLOORDIV, places, whole(d, step)), (int32_t)axis);
  Node *is_one = binary(d, OP_EQ, binary(d, OP_FLOORMOD, places, whole(d, step)), whole(d, 0));
  backward_give(d, x, where(d, is_one, came, number(d, 0)));
}

// ---- products, rotations ----

static bool is_same_rows(const Node *a, const Node *g) {
  bool is_same = a->rank == g->rank;
  for (uint32_t i = 0; is_same && i + 1 < a->rank; i++) is_same = a->dims[i] == g->dims[i];
  return is_same;
}

/* x with all axes but the last as one; NULL (after reporting) if that is too large. */
static Node *as_rows(Backward *d, const Node *y, Node *x) {
  const Size *rows = sizes_product(d->builder.graph->sizes, x->rank - 1u, x->dims);
  if (rows) return x->rank == 2 ? x : reshape(d, x, 2, (const Size *const[]){rows, x->dims[x->rank - 1]});
  refuse_size(d, y);
  return NULL;
}

/* A matrix that all items share gets one product over the rows of all items. */
static void rule_matmul(Backward *d, Node *y, Node *g) {
  Node *a = y->inputs.items[0], *b = y->inputs.items[1];
  if (d->active[a->id]) backward_give(d, a, build_matmul(&d->builder, g, turned(d, b)));
  if (!d->active[b->id]) return;
  if (b->rank == 2 && a->rank > 2 && is_same_rows(a, g)) {
    Node *rows = as_rows(d, y, a), *of = rows ? as_rows(d, y, g) : NULL;
    if (of) backward_give(d, b, build_matmul(&d->builder, turned(d, rows), of));
  } else {
    backward_give(d, b, build_matmul(&d->builder, turned(d, a), g));
  }
}

/* What x gets has the axes of x at once: behind a reshape no epilogue would find the product. */
static void rule_linear(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0], *w = y->inputs.items[1];
  Node *rows = as_rows(d, y, x), *of = rows ? as_rows(d, y, g) : NULL;
  if (!of) return;
  if (d->active[x->id]) backward_give(d, x, like(d, build_matmul(&d->builder, x->rank > 1 ? g : of, w), x));
  if (d->active[w->id]) backward_give(d, w, build_matmul(&d->builder, turned(d, of), rows));
}

/* Turned back by the same angles. */
static void rule_rotary(Backward *d, Node *y, Node *g) {
  Node *pos = y->inputs.items[1];
  if (d->active[pos->id]) refuse(d, y, "its positions depend on a trained weight");
  Node *back = unary(d, OP_NEG, pos);
  backward_give(d, y->inputs.items[0], build_rotary(&d->builder, g, back, y->attr.base, y->attr.interleaved));
}

// ---- the table ----

static const BackwardRule rules[N_OPS] = {
    [OP_NEG] = rule_neg,
    [OP_EXP] = rule_exp,
    [OP_LOG] = rule_log,
    [OP_SQRT] = rule_sqrt,
    [OP_RSQRT] = rule_rsqrt,
    [OP_ABS] = rule_abs,
    [OP_SIN] = rule_sin,
    [OP_COS] = rule_cos,
    [OP_TANH] = rule_tanh,
    [OP_SIGMOID] = rule_sigmoid,
    [OP_ERF] = rule_erf,
    [OP_RELU] = rule_relu,
    [OP_SILU] = rule_silu,
    [OP_GELU] = rule_gelu,
    [OP_GELU_TANH] = rule_gelu_tanh,
    [OP_QUICK_GELU] = rule_quick_gelu,
    [OP_TO_F32] = rule_to_f32,
    [OP_ADD] = rule_add,
    [OP_SUB] = rule_sub,
    [OP_MUL] = rule_mul,
    [OP_DIV] = rule_div,
    [OP_MAXIMUM] = rule_extreme,
    [OP_MINIMUM] = rule_extreme,
    [OP_WHERE] = rule_where,
    [OP_POWER] = rule_power,
    [OP_SLICE] = rule_slice,
    [OP_RESHAPE] = rule_reshape,
    [OP_PERMUTE] = rule_permute,
    [OP_CONCAT] = rule_concat,
    [OP_GATHER] = rule_gather,
    [OP_TAKE] = rule_take,
    [OP_EVERY] = rule_every,
    [OP_CUMSUM] = rule_cumsum,
    [OP_SHIFT] = rule_shift,
    [OP_LINEAR_ATTENTION] = rule_linear_attention,
    [OP_SUM] = rule_sum,
    [OP_MEAN] = rule_mean,
    [OP_MAX] = rule_greatest,
    [OP_MIN] = rule_greatest,
    [OP_SOFTMAX] = rule_softmax,
    [OP_LOG_SOFTMAX] = rule_log_softmax,
    [OP_LAYER_NORM] = rule_norm,
    [OP_RMS_NORM] = rule_norm,
    [OP_MATMUL] = rule_matmul,
    [OP_LINEAR] = rule_linear,
    [OP_ROTARY] = rule_rotary,
};

BackwardRule backward_rule(OpKind op) { return rules[op]; }
