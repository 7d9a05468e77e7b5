/* Nest: the loops of a row kernel before they become a step: axes, operands with one stride per axis, an expression.
 *
 * In: views that broadcast to the axes. Out: as few axes as possible, with the coordinates in the expression
 * renumbered; the kernel spec, the operands and the row step. The operands of a product of matrices walk the same axes
 * but do not belong to the row kernel: they are `others`, which simplifying keeps in step with the rest. Refuses
 * nothing: callers stay within TFM_MAX_OPERANDS (body.h splits what has more). A nest lives on the caller's stack; its
 * sizes and expressions belong to the planner's arena. Private to plan/. */
#ifndef TFM_PLAN_NEST_H
#define TFM_PLAN_NEST_H

#include "plan/planner.h"

enum { NEST_MAX_OTHERS = 8 }; /* the gradient of attention has the most: q, k, v, g, what three of them get, a mask */

typedef struct NestOperand {
  uint8_t space; /* tfm_space */
  DType dtype;
  uint8_t form; /* as in tfm_operand */
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
  uint32_t live;                          /* as in tfm_row_step: which rows are computed; 0: all */
} Nest;

/* A nest over these axes whose only operand is the result. The caller adds operands and then sets `expr`. */
void nest_begin(Planner *p, Nest *nest, uint32_t rank, const Size *const *dims, const View *result);
/* The view as an operand: aligned at the last axis, with stride 0 along the axes that it is broadcast over. */
NestOperand nest_operand_of(Planner *p, const Nest *nest, const View *view);
/* Both return the number of the operand: a new one, or that of an equal operand which the nest already has. */
uint32_t nest_add_operand(Nest *nest, const NestOperand *operand);
uint32_t nest_add(Planner *p, Nest *nest, const View *view);
void nest_add_other(Planner *p, Nest *nest, const View *view);

/* Drops axes of 1 and merges neighbours. The last `fixed` axes are never dropped, and nothing is merged into the last
 * `apart`. At least two axes remain, because a row kernel always has rows and columns. */
void nest_simplify(Planner *p, Nest *nest, uint32_t fixed, uint32_t apart);
/* Puts an axis of 1 in front. */
void nest_add_axis(Planner *p, Nest *nest);
/* Moves the axis so that it is number `from_last` from the end (1: the last). */
void nest_move_axis(Planner *p, Nest *nest, uint32_t axis, uint32_t from_last);

#endif
