/* How rules of differentiation write formulas: short names for the nodes that they make most, and the rules along an
 * axis, which differentiate_axes.c has and the table of differentiate_rules.c takes.
 *
 * In: forward nodes and cotangents. Out: nodes at the end of the graph. Refusals name the forward node's place. */
#ifndef TFM_PASSES_DIFFERENTIATE_FORMULAS_H
#define TFM_PASSES_DIFFERENTIATE_FORMULAS_H

#include "passes/differentiate.h"

static inline Node *number(Backward *d, double x) { return build_scalar(&d->builder, DTYPE_F32, x, 0); }
static inline Node *whole(Backward *d, int64_t x) { return build_scalar(&d->builder, DTYPE_I32, 0, x); }
static inline Node *unary(Backward *d, OpKind op, Node *x) { return build_unary(&d->builder, op, x); }
static inline Node *binary(Backward *d, OpKind op, Node *x, Node *y) { return build_binary(&d->builder, op, x, y); }
static inline Node *add(Backward *d, Node *x, Node *y) { return binary(d, OP_ADD, x, y); }
static inline Node *sub(Backward *d, Node *x, Node *y) { return binary(d, OP_SUB, x, y); }
static inline Node *mul(Backward *d, Node *x, Node *y) { return binary(d, OP_MUL, x, y); }
static inline Node *scale(Backward *d, Node *x, double by) { return mul(d, x, number(d, by)); }
static inline Node *plus(Backward *d, Node *x, double more) { return add(d, x, number(d, more)); }
static inline Node *where(Backward *d, Node *c, Node *x, Node *y) { return build_where(&d->builder, c, x, y); }
static inline Node *below_zero(Backward *d, OpKind op, Node *x) { return binary(d, op, x, number(d, 0)); }

static inline Node *reduce(Backward *d, OpKind op, Node *x, int32_t axis) {
  return build_reduce(&d->builder, op, x, axis, true);
}

static inline Node *reshape(Backward *d, Node *x, uint32_t rank, const Size *const *dims) {
  return build_reshape(&d->builder, x, rank, dims);
}

static inline Node *like(Backward *d, Node *x, const Node *shape) {
  return reshape(d, x, shape->rank, (const Size *const *)shape->dims);
}

/* x repeated to the shape of `shape`, which it broadcasts to. */
static inline Node *expand(Backward *d, Node *x, const Node *shape) {
  return mul(d, x, build_full(&d->builder, 1, shape->rank, (const Size *const *)shape->dims));
}

/* [1, ..., n, ..., 1]: 0, 1, 2, ... along one of `rank` axes. */
static inline Node *positions_along(Backward *d, const Size *n, uint32_t rank, uint32_t axis) {
  const Size *dims[MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) dims[i] = i == axis ? n : size_const(d->builder.graph->sizes, 1);
  return reshape(d, build_positions(&d->builder, n), rank, dims);
}

static inline Node *turned(Backward *d, Node *x) { return build_transpose(&d->builder, x, x->rank - 2u, x->rank - 1u); }

/* The reduced axis of y, or of g, as an axis of 1 again. */
static inline Node *with_axis(Backward *d, Node *y, const Node *x, int32_t axis) {
  const Size *dims[MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++)
    dims[i] = i == (uint32_t)axis ? size_const(d->builder.graph->sizes, 1) : x->dims[i];
  return reshape(d, y, x->rank, dims);
}

static inline void refuse(Backward *d, const Node *node, const char *why) {
  diag_error(d->diag, origin_place(&node->origin), DIAG_KIND, "%s cannot be differentiated here: %s",
             op_table[node->op].name, why);
}

static inline void refuse_size(Backward *d, const Node *node) { refuse(d, node, "a size is too large to be computed"); }

// ---- differentiate_axes.c ----

void rule_sum(Backward *d, Node *y, Node *g);
void rule_mean(Backward *d, Node *y, Node *g);
void rule_greatest(Backward *d, Node *y, Node *g);
void rule_softmax(Backward *d, Node *y, Node *g);
void rule_log_softmax(Backward *d, Node *y, Node *g);
void rule_norm(Backward *d, Node *y, Node *g);
void rule_cumsum(Backward *d, Node *y, Node *g);
void rule_shift(Backward *d, Node *y, Node *g);
void rule_linear_attention(Backward *d, Node *y, Node *g);

#endif
