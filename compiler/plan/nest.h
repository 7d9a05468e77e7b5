/* Nest: the loops of a row kernel, before they become a step: axes, operands with a stride per axis, an expression.
 *
 * In: views that broadcast to the axes. Out: as few axes as possible, with the coordinates in the expression
 * renumbered; the kernel spec, the operands and the row step. Operands of a product of matrices walk the same axes but
 * are not the row kernel's: they are kept as `others`. Refuses nothing; callers keep to TFM_MAX_OPERANDS. Private to
 * plan/. */
#ifndef TFM_PLAN_NEST_H
#define TFM_PLAN_NEST_H

#include "plan/planner.h"

enum { NEST_MAX_OTHERS = 6 };

typedef struct NestOperand {
  uint8_t space; /* tfm_space */
  DType dtype;
  uint32_t index;
  const Size *size;              /* TFM_SPACE_SIZE */
  const Size *offset;
  const Size *strides[MAX_RANK]; /* over the axes of the nest */
  uint32_t ids;                  /* a table: the operand with its row numbers; else 0 */
  const Size *table_stride;      /* a table: between its rows */
} NestOperand;

typedef struct Nest {
  uint32_t rank;
  const Size *dims[MAX_RANK];
  uint32_t n_operands, n_others;
  NestOperand operands[TFM_MAX_OPERANDS]; /* [0] the result */
  NestOperand others[NEST_MAX_OTHERS];
  Expr *expr;                             /* over the operands */
  const Node *rows_of;                    /* only the rows that are needed of this node are computed; NULL: all */
} Nest;

/* What an expression of a node is computed over. */
typedef struct Body {
  const Node *node; /* whose inputs the expression names */
  uint32_t rank;
  const Size *dims[MAX_RANK];
  const Expr *expr;
  VEC(View) parts; /* inputs after those of the node: subexpressions computed before */
  const View *acc; /* where ACC was written; NULL: operand 0, before it is overwritten */
} Body;

Body body_new(const Node *node, uint32_t rank, const Size *const *dims, const Expr *expr);
/* How many operands the expression needs. */
uint32_t body_operands(const Body *body);
/* Computes subexpressions without ACC into buffers until `limit` operands suffice; false if that is impossible. */
bool body_split(Planner *p, Body *body, uint32_t limit);
/* Computes every gather into a buffer. */
void body_split_gathers(Planner *p, Body *body);
bool expr_has_kind(Planner *p, const Expr *expr, ExprKind kind);

/* A nest over the body's axes with the result as operand 0 and the operands of the expression after it. `result` is
 * broadcast like an operand (its axes of 1 get stride 0). */
void nest_init(Planner *p, Nest *nest, const Body *body, const View *result);
uint32_t nest_add(Planner *p, Nest *nest, const View *view);       /* number of the operand, new or equal */
void nest_add_other(Planner *p, Nest *nest, const View *view);
/* Drops axes of 1 and merges neighbours, but not the last `kept` axes, which are never dropped, and the last `apart`,
 * into which nothing is merged. At least two axes remain or are made. */
void nest_simplify(Planner *p, Nest *nest, uint32_t kept, uint32_t apart);
/* Puts an axis of 1 in front. */
void nest_add_axis(Planner *p, Nest *nest);
/* The axis becomes the place'th from the last (1: the last). */
void nest_move_axis(Planner *p, Nest *nest, uint32_t axis, uint32_t place);
/* The spec of the row kernel; the reduction is the caller's to set. */
KernelSpec nest_spec(const Nest *nest);
/* Operands of the step that is about to be added; the number of the first. */
uint32_t nest_operands(Planner *p, const Nest *nest);
tfm_operand nest_operand(Planner *p, const Nest *nest, const NestOperand *operand);
void nest_dims(Planner *p, const Nest *nest, tfm_size *dims);
/* The steps that compute the body of a pointwise node into its result. */
void plan_body(Planner *p, const Node *node, Body *body);
void plan_row_step(Planner *p, Nest *nest, const KernelSpec *spec, const char *operation);

// ---- live rows: steps that compute only the rows of their result that something reads (attr.rows_mask) ----

/* For the step that is about to be added, which walks all rows of the node in order: a number in p->live, from 1 on.
 * 0 if there is no mask, or none whose bytes lie side by side. */
uint32_t live_rows(Planner *p, const Node *node);
/* The mask over [..., t, 1] of an attention that skips queries; false if it computes all of them. */
bool live_queries(Planner *p, const Node *attention, View *mask);
/* The same for a step whose mask is this operand, with its strides. */
uint32_t live_by_operand(Planner *p, const Node *node, const tfm_operand *mask);

#endif
