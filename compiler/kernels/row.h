/* Row: the frame of every row kernel: operands, rows, walks along the columns of a row.
 *
 * In: a spec of the family ROW. Out, inside the function that is being emitted: the values of its expression at the
 * lanes that a walk has come to, and stores of results. A walk takes 16 columns at a time, several vectors of them
 * where that hides latency, and the last ones under a mask. Lanes that are not in use hold arbitrary numbers: they
 * must neither be stored, nor reduced, nor raise a fault. What a kernel does with the values is in row_ops.c. Refuses
 * nothing. */
#ifndef TFM_KERNELS_ROW_H
#define TFM_KERNELS_ROW_H

#include "codegen/emitter.h"
#include "kernels/emit_expr.h"
#include "kernels/kernel_tuning.h"
#include "plan/kernel_spec.h"

typedef struct RowKernel {
  Emitter *e;
  const KernelSpec *spec;
  ExprProgram program;
  LLVMValueRef args, rows, columns;
  LLVMValueRef first; /* column of a walk; the last one is before `columns` */
  bool has_chains;    /* lines may be several chains, for which the code that is emitted is prepared */
  LLVMValueRef fault; /* stack: bits of tfm_fault */
  LLVMValueRef stage; /* stack: 16 elements of an operand that is not a vector in memory; NULL: none so far */
  /* The row that the builder stands in */
  LLVMValueRef row;
  LLVMValueRef pointers[TFM_MAX_OPERANDS]; /* its first element */
  LLVMValueRef strides[TFM_MAX_OPERANDS];  /* between columns, in bytes */
  LLVMValueRef squares[TFM_MAX_OPERANDS];  /* of transposed operands: stack, LANES x LANES elements; else NULL */
  LLVMValueRef square_row;                 /* the row's number in the squares */
  /* The vectors: 16 columns each from `column` on */
  LLVMValueRef column;
  LLVMValueRef count; /* columns in use of the only vector, i64; NULL: all */
  LLVMValueRef mask;  /* the same as <16 x i1>, NULL: all */
} RowKernel;

/* Begins the function; row_kernel_end returns from it. */
RowKernel row_kernel_begin(Emitter *e, const KernelSpec *spec, const char *name);
void row_kernel_end(RowKernel *k);

/* Moves to a row: addresses, and what is the same in all its columns. */
void row_begin(RowKernel *k, LLVMValueRef row);
/* The expression at the vectors of the walk. */
Lanes row_values(RowKernel *k);
/* Operand `i` at the vectors of the walk. */
Lanes row_load(RowKernel *k, uint32_t i);
void row_store(RowKernel *k, Lanes values);             /* operand 0 */
void row_store_second(RowKernel *k, Lanes values);      /* the operand that the spec names so */
void row_store_scalar(RowKernel *k, LLVMValueRef value); /* operand 0, first column of the row */

/* What is done in each turn of a walk. `state` is carried from turn to turn: the body reads it and writes the new
 * values there. */
typedef struct RowWalk {
  void (*body)(RowKernel *k, void *context, LLVMValueRef *state);
  void *context;
  unsigned n_state;
  LLVMValueRef *state;
} RowWalk;

/* Calls the body for all columns of the row, with k->column, count, mask and e->n_vectors (up to `unroll`) set. */
void row_walk(RowKernel *k, unsigned unroll, RowWalk walk);
/* The same one vector at a time, the last one whole: for a body that knows only memory with room for it. */
void row_walk_beyond(RowKernel *k, RowWalk walk);
/* Whether operands are read in squares, and a walk over all rows and columns of the block that does so; `body` as in a
 * walk along one row. */
bool row_has_squares(const RowKernel *k);
void row_squares(RowKernel *k, void (*body)(RowKernel *k, void *context, LLVMValueRef *state));
/* How many vectors at once suit the expression. */
unsigned row_unroll(const RowKernel *k);

#endif
