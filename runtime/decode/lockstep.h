/* Runs of one program with different sizes, executed together: step by step, with one barrier after each.
 *
 * The first context of such a list is an ordinary one that has kept room for large runs. The others have sizes of their
 * own, but its weights, threads and memory: each buffer of theirs lies behind that of the run before, in the room that the
 * first one's plan has for it. So the rows of a product with packed weights mostly follow one another from run to run;
 * then it is done once for all of them, and weights are read once. No number depends on what else is executed. */
#ifndef TFM_RUNTIME_BESIDE_H
#define TFM_RUNTIME_BESIDE_H

#include "steps.h"

/* A context that can be bound beside `first` and dies before it; NULL: no memory. */
tfm_context *beside_create(const tfm_context *first);
void beside_destroy(tfm_context *context);

/* Ends the list of `first`, which is bound: then others may be added to it, one by one. */
void beside_none(tfm_context *first);
/* Binds a context to these sizes and adds it behind `last`, the end of the list. *fits: false if there is no room for it;
 * then, and if it fails, the list is as it was. */
tfm_status beside_bind(tfm_context *first, tfm_context *last, tfm_context *context, const int64_t *symbols, bool *fits,
                       tfm_error *error);

/* The rest is called by way of the context's CachedSteps. What run_steps works out for a list of several whose steps are
 * chosen: which of them all threads share, and, as the result, how many threads there should be. */
int32_t beside_share_steps(tfm_context *first);
/* Whether a gemm step of all runs of the list is one product, whose rows are those of one run after the other. */
bool beside_is_one_product(const tfm_context *first, const tfm_step *step);
/* The epilogue of a tile of such a product: each run's rows have operands of their own. */
void beside_finish_tile(const Walker *walker, const tfm_gemm_step *step, char *tile, int64_t tile_stride, int64_t row,
                        int64_t rows, int64_t column, int64_t columns);

#endif
