/* One row: gradients of one row (one_row.c), and where sums are that go on in the next run.
 *
 * In: a product, cut. Out: the thread's part of its results. Refuses nothing. */
#ifndef TFM_RUNTIME_ONE_ROW_H
#define TFM_RUNTIME_ONE_ROW_H

#include "steps/matmul_cut.h"

/* All of a product TFM_DIRECT_ONE_ROW that is the thread's. */
void gradient_of_one_row(const Walker *walker, const Matmul *m);
/* Where c, a place in an output, has its rest (RunState.rests); NULL: the run is the only one. */
float *gradient_rest(const tfm_context *context, const tfm_operand *operand, const float *c);

#endif
