/* Emit expr: the one place where expressions (graph/expr.h) become vector code.
 *
 * In: an expression and a function that loads its leaves. Out: its value for the lanes of e->n_vectors vectors. Shared
 * subtrees are computed once, and what is the same for a whole row can be computed before the columns are walked. An
 * ExprProgram lives in the given arena. Refuses nothing: every pointwise operation of ops.def has an emitter. */
#ifndef TFM_KERNELS_EMIT_EXPR_H
#define TFM_KERNELS_EMIT_EXPR_H

#include "base/arena.h"
#include "codegen/vector.h"
#include "graph/expr.h"

typedef struct ExprProgram { /* the operations of an expression, arguments before their users; the root is the last */
  uint32_t n;
  const Expr **nodes;
  uint32_t (*args)[3]; /* numbers of the arguments */
  bool *per_row;       /* the same in all columns of a row */
  Lanes *values;
} ExprProgram;

/* `varies(context, leaf)`: whether an INPUT, ACC, INDEX or GATHER differs from column to column. */
ExprProgram expr_program(Arena *arena, const Expr *expr, bool (*varies)(const void *context, const Expr *leaf),
                         const void *context);

typedef struct ExprEmitter {
  Emitter *e;
  ExprProgram *program;
  Lanes (*leaf)(void *context, const Expr *leaf); /* bool leaves as i1 */
  void *context;
  LLVMValueRef fault;      /* stack memory, i32: a division by zero in a lane in use sets TFM_FAULT_DIVISION */
  const LLVMValueRef *use; /* masks of lanes in use, one per vector; NULL: all */
} ExprEmitter;

void emit_expr_per_row(ExprEmitter *emitter); /* what is the same in all columns; before emit_expr */
Lanes emit_expr(ExprEmitter *emitter);        /* the rest; the value of the root */
bool expr_divides(const ExprProgram *program); /* whether there is a division that can fail */
bool expr_is_long(const ExprProgram *program); /* whether it takes many registers: functions by polynomials */

#endif
