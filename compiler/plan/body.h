/* Body: what a step computes for each element of its result, before the loops over it are chosen.
 *
 * In: an expression of a node (graph/expr.h), which names its operands by the number of the node's input. Out: a nest
 * whose expression names operands of a row kernel instead. An expression with more operands than a kernel takes is
 * split: its largest parts are computed by row steps of their own, into buffers that the rest then reads. Every buffer
 * belongs to the plan. Refused (false): an expression that has no part small enough; the caller reports it. Private to
 * plan/. */
#ifndef TFM_PLAN_BODY_H
#define TFM_PLAN_BODY_H

#include "plan/nest_step.h"

typedef struct Body {
  const Node *node; /* whose inputs the expression names */
  uint32_t rank;
  const Size *dims[MAX_RANK];
  const Expr *expr;
  VEC(View) parts; /* numbered behind the node's inputs: subexpressions that earlier steps compute */
  const View *acc; /* where ACC was written; NULL: ACC is operand 0, read before it is overwritten */
} Body;

Body body_new(const Node *node, uint32_t rank, const Size *const *dims, const Expr *expr);
/* A nest over the body's axes: operand 0 is the result, the operands of the expression follow. `result` is broadcast
 * like an operand: its axes of 1 get stride 0. Calls plan_view, which may add steps that copy an operand. */
void nest_init(Planner *p, Nest *nest, const Body *body, const View *result);

/* Returns how many operands the expression needs, the result not counted. */
uint32_t body_operands(const Body *body);
/* Adds steps that compute subexpressions without ACC, until `limit` operands suffice; false if that is impossible. */
bool body_split(Planner *p, Body *body, uint32_t limit);
/* Adds a step for every gather. Callers that change the columns of the nest need this, because a gather reads whole
 * rows of its table. */
void body_split_gathers(Planner *p, Body *body);
bool expr_has_kind(Planner *p, const Expr *expr, ExprKind kind);
/* Returns how many of the last axes must stay as they are: a gather needs its columns, unless they are one. Then rows
 * become columns, with an id for each. */
uint32_t body_fixed_axes(Planner *p, const Body *body);

/* plan_rows.c: adds the steps that compute the body into the result of `node`: the whole of a pointwise node, or what
 * follows a product that could not compute it in place. */
void plan_body(Planner *p, const Node *node, Body *body);

#endif
