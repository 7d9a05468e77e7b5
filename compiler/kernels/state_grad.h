/* What the two kernels of the gradient of linear attention share (STATE_KEPT, STATE_GRAD): their arguments, a
 * tfm_state_grad_args, blocks of columns, lines of scratch with a number for each column, sums along rows.
 *
 * In: an emitter, a spec. Out: code in the function that grad_kernel begins. Refuses nothing. */
#ifndef TFM_KERNELS_STATE_GRAD_H
#define TFM_KERNELS_STATE_GRAD_H

#include <stddef.h>

#include "kernels/emit.h"
#include "kernels/reducer.h"

enum { STATE_ROWS_TOGETHER = LANES }; /* rows whose sums go through their trees together */

typedef struct GradKernel {
  Emitter *e;
  const KernelSpec *spec;
  unsigned vectors; /* of a block */
  LLVMValueRef args, n, row, blocks;
  LLVMValueRef state; /* STATE_GRAD: [n] rows of `row` bytes: what the state gets */
  LLVMValueRef sums;  /* vectors that wait for their trees */
  LLVMValueRef taken, gets; /* STATE_GRAD: lines: what v gets, what is written gets */
} GradKernel;

#define GRAD_ARG(kernel, member, type) \
  emit_load((kernel)->e, (kernel)->e->type, emit_offset((kernel)->e, (kernel)->args, \
            emit_i64((kernel)->e, (int64_t)offsetof(tfm_state_grad_args, member))), 8)
#define GRAD_STEP(kernel, member, t) \
  emit_offset((kernel)->e, GRAD_ARG(kernel, member, pointer), \
              emit_mul((kernel)->e, GRAD_ARG(kernel, member##_step, i64), t))

typedef struct ColumnBlock { /* where it begins, in bytes, and which of its columns there are */
  LLVMValueRef at, masks[TFM_STATE_COLUMNS / LANES];
} ColumnBlock;

/* Begins the function of a kernel. */
GradKernel grad_kernel(Emitter *e, const KernelSpec *spec, KernelFamily family, const char *name);
LLVMValueRef grad_block_bytes(GradKernel *s);
ColumnBlock grad_block(GradKernel *s, LLVMValueRef number);
/* `at` in bytes, that of vector i of a block, and a vector of a line or of rows of a state. */
LLVMValueRef grad_vector_at(GradKernel *s, LLVMValueRef at, unsigned i);
LLVMValueRef grad_vector(GradKernel *s, LLVMValueRef base, LLVMValueRef at);
void grad_store_vector(GradKernel *s, LLVMValueRef base, LLVMValueRef at, LLVMValueRef x);
/* A block of the caller's columns, 0 where there are none; beta of step t for them; a block of a line. */
Lanes grad_columns(GradKernel *s, LLVMValueRef base, const ColumnBlock *block);
Lanes grad_beta(GradKernel *s, LLVMValueRef t, const ColumnBlock *block);
Lanes grad_line(GradKernel *s, LLVMValueRef line, const ColumnBlock *block);
void grad_store_line(GradKernel *s, LLVMValueRef line, Lanes x, const ColumnBlock *block);
/* The number of row i, and the factor that row i takes, in every lane. */
LLVMValueRef grad_number(GradKernel *s, LLVMValueRef base, LLVMValueRef i);
LLVMValueRef grad_decay(GradKernel *s, LLVMValueRef decay, LLVMValueRef i);
/* The trees of STATE_ROWS_TOGETHER vectors of lanes at `sums`, in their order; and numbers of the `n` rows from row i
 * on, of which there are as many but at the end. */
LLVMValueRef grad_trees(GradKernel *s, LLVMValueRef sums);
void grad_store_numbers(GradKernel *s, LLVMValueRef base, LLVMValueRef i, LLVMValueRef n, LLVMValueRef numbers);
/* Fetches the lines of so many numbers. */
void grad_fetch(GradKernel *s, LLVMValueRef base, LLVMValueRef numbers);

#endif
