/* What flows back along axes: cotangents summed over what was broadcast, and what sums, means, extremes, softmax and
 * norms along an axis give their operands. See differentiate.h.
 *
 * Also what running sums, shifts and states that go from step to step give theirs.
 *
 * In: a forward node and its cotangent g. Out: nodes at the end of the graph, given to the inputs. Refuses nothing. */
#include "passes/differentiate_formulas.h"

// ---- giving ----

/* The product of the first n dims; NULL on overflow. */
static const Size *leading_product(SizeTable *sizes, const Node *x, uint32_t n) {
  return sizes_product(sizes, n, x->dims);
}

/* Sums down the first axis, as a product with a row of ones: one chain for each column, from the first item to the
 * last, so that zeros which padding brings change no bits. */
static Node *sum_down(Builder *b, Node *g) {
  SizeTable *sizes = b->graph->sizes;
  const Size *one = size_const(sizes, 1), *width = one;
  for (uint32_t i = 1; i < g->rank && width; i++) width = size_mul(sizes, width, g->dims[i]);
  if (!width) return build_reduce(b, OP_SUM, g, 0, false);
  Node *rows = build_reshape(b, g, 2, (const Size *const[]){g->dims[0], width});
  Node *ones = build_full(b, 1, 2, (const Size *const[]){one, g->dims[0]});
  return build_reshape(b, build_matmul(b, ones, rows), g->rank - 1u, (const Size *const *)g->dims + 1);
}

/* The axes that g has in front of those of x are summed as one, if their number of elements can be said. */
static Node *sum_leading(Builder *b, Node *g, uint32_t n) {
  const Size *dims[MAX_RANK], *rows = leading_product(b->graph->sizes, g, n);
  if (n > 1 && rows) {
    dims[0] = rows;
    for (uint32_t i = n; i < g->rank; i++) dims[i - n + 1] = g->dims[i];
    g = build_reshape(b, g, g->rank - n + 1, dims);
    n = 1;
  }
  for (; n; n--) g = sum_down(b, g);
  return g;
}

/* Sums g over what x was broadcast along; two names of one size are made one. */
static Node *sum_to(Builder *b, Node *g, const Node *x) {
  bool is_same = true;
  if (g->rank > x->rank) g = sum_leading(b, g, g->rank - x->rank);
  for (uint32_t i = 0; i < x->rank; i++) {
    if (size_equals(x->dims[i], 1) && !size_equals(g->dims[i], 1)) g = build_reduce(b, OP_SUM, g, (int32_t)i, true);
    is_same &= g->dims[i] == x->dims[i];
  }
  return is_same ? g : build_reshape(b, g, x->rank, (const Size *const *)x->dims);
}

void backward_give(Backward *d, Node *x, Node *g) {
  if (!d->active[x->id]) return;
  g = sum_to(&d->builder, g, x);
  Node *sum = d->cotangents[x->id];
  d->cotangents[x->id] = sum ? build_binary(&d->builder, OP_ADD, sum, g) : g;
}

// ---- rules ----

void rule_sum(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  backward_give(d, x, expand(d, with_axis(d, g, x, y->attr.axis), x));
}

void rule_mean(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0], *n = build_size(&d->builder, DTYPE_F32, x->dims[y->attr.axis]);
  backward_give(d, x, expand(d, with_axis(d, binary(d, OP_DIV, g, n), x, y->attr.axis), x));
}

/* Of equal ones each has won a part. */
static void rule_shared(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0];
  const int32_t axis = y->attr.axis;
  Node *is_winner = binary(d, OP_EQ, x, with_axis(d, y, x, axis));
  Node *n = reduce(d, OP_SUM, unary(d, OP_TO_F32, is_winner), axis);
  backward_give(d, x, where(d, is_winner, binary(d, OP_DIV, with_axis(d, g, x, axis), n), number(d, 0)));
}

/* Of equal ones the first has won, unless the gradient is shared. */
void rule_greatest(Backward *d, Node *y, Node *g) {
  if (y->attr.shares_gradient) {
    rule_shared(d, y, g);
    return;
  }
  Node *x = y->inputs.items[0];
  const int32_t axis = y->attr.axis;
  Node *of = y->op == OP_MAX ? x : unary(d, OP_NEG, x);
  Node *winner = with_axis(d, build_reduce(&d->builder, OP_ARGMAX, of, axis, false), x, axis);
  Node *is_winner = binary(d, OP_EQ, positions_along(d, x->dims[axis], x->rank, (uint32_t)axis), winner);
  backward_give(d, x, where(d, is_winner, with_axis(d, g, x, axis), number(d, 0)));
}

void rule_softmax(Backward *d, Node *y, Node *g) {
  Node *sum = reduce(d, OP_SUM, mul(d, g, y), y->attr.axis);
  backward_give(d, y->inputs.items[0], mul(d, y, sub(d, g, sum)));
}

void rule_log_softmax(Backward *d, Node *y, Node *g) {
  Node *sum = reduce(d, OP_SUM, g, y->attr.axis);
  backward_give(d, y->inputs.items[0], sub(d, g, mul(d, unary(d, OP_EXP, y), sum)));
}

/* h is x centred (layer_norm) and times r; x gets r (q - mean q - h mean(q h)), without `mean q` for rms_norm. */
void rule_norm(Backward *d, Node *y, Node *g) {
  Node *x = y->inputs.items[0], *centred = x;
  const int32_t last = x->rank - 1;
  const bool is_layer_norm = y->op == OP_LAYER_NORM;
  Node *w = y->attr.has_weight ? y->inputs.items[1] : NULL;
  Node *b = y->attr.has_bias ? y->inputs.items[y->inputs.n - 1] : NULL;
  if (is_layer_norm) centred = sub(d, x, reduce(d, OP_MEAN, x, last));
  Node *variance = reduce(d, OP_MEAN, mul(d, centred, centred), last);
  Node *r = unary(d, OP_RSQRT, plus(d, variance, y->attr.eps)), *h = mul(d, centred, r);
  if (w && d->active[w->id]) backward_give(d, w, mul(d, g, h));
  if (b) backward_give(d, b, g);
  if (!d->active[x->id]) return;
  Node *q = w ? mul(d, g, w) : g;
  Node *rest = sub(d, q, mul(d, h, reduce(d, OP_MEAN, mul(d, q, h), last)));
  if (is_layer_norm) rest = sub(d, rest, reduce(d, OP_MEAN, q, last));
  backward_give(d, x, mul(d, r, rest));
}

// ---- step by step ----

/* The running sum from the other end. */
void rule_cumsum(Backward *d, Node *y, Node *g) {
  const uint32_t axis = (uint32_t)y->attr.axis;
  SizeTable *sizes = d->builder.graph->sizes;
  const Size *n = y->dims[axis], *last = size_sub(sizes, n, size_const(sizes, 1));
  if (!last) {
    refuse_size(d, y);
    return;
  }
  Node *ids = sub(d, build_size(&d->builder, DTYPE_I32, last), positions_along(d, n, y->rank, axis));
  Node *sums = build_cumsum(&d->builder, build_take(&d->builder, g, ids, (int32_t)axis), (int32_t)axis);
  backward_give(d, y->inputs.items[0], build_take(&d->builder, sums, ids, (int32_t)axis));
}

/* What moved on is moved back; what fell off the end gets nothing. */
void rule_shift(Backward *d, Node *y, Node *g) {
  int64_t n = 0;
  size_is_const(y->attr.size, &n);
  backward_give(d, y->inputs.items[0], build_shift(&d->builder, g, -n, y->attr.axis));
}

/* All operands get theirs from one node; nothing that is not active is asked for. */
void rule_linear_attention(Backward *d, Node *y, Node *g) {
  static const OpKind parts[] = {OP_LINEAR_ATTENTION_GRAD_DECAY, OP_LINEAR_ATTENTION_GRAD_BETA};
  Node *const *xs = y->inputs.items, *grad = build_linear_attention_grad(&d->builder, y, g);
  const OpKind of[] = {OP_LINEAR_ATTENTION_GRAD_K, OP_LINEAR_ATTENTION_GRAD_V, parts[!y->attr.has_decay], parts[1]};
  backward_give(d, xs[0], grad);
  for (size_t i = 1; i < y->inputs.n; i++)
    if (d->active[xs[i]->id]) backward_give(d, xs[i], build_linear_attention_grad_part(&d->builder, of[i - 1], grad));
}
