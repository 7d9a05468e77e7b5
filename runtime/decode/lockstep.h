/* Lockstep runs: runs of one program with different sizes that are executed together, step by step, with one barrier
 * after each step.
 *
 * The first context of such a call is an ordinary one that has kept room for large runs. The others have their own
 * sizes but share its weights, threads and memory: each of their buffers lies behind that of the run before, in the
 * room that the first context's plan has for it. The rows of a product with packed weights therefore mostly follow one
 * another from run to run. Such a product is computed once for all runs, and its weights are read once. No number
 * depends on what else is executed. */
#ifndef TFM_RUNTIME_LOCKSTEP_H
#define TFM_RUNTIME_LOCKSTEP_H

#include "decode/staging.h"
#include "steps/walker.h"

/* A context for lockstep runs with `first`. It must be destroyed before `first` is. NULL: no memory. */
tfm_context *lockstep_create(const tfm_context *first);
void lockstep_destroy(tfm_context *context);

/* Of a first context, which is bound: no others share its memory. They are then bound one by one. */
void lockstep_none(tfm_context *first);
/* Binds a context to these sizes, for a run beside `first` and those that were bound since lockstep_none. *fits is
 * false if there is no room for it. In that case, and after an error, the room is as it was. */
tfm_status lockstep_bind(tfm_context *first, tfm_context *context, const int64_t *symbols, bool *fits,
                         tfm_error *error);

/* The core calls these by way of a call's LockstepFunctions. The first decides, for a call whose steps are chosen,
 * which steps all threads share, and returns how many threads there should be. */
int32_t lockstep_share_steps(const RunCall *call);
/* Whether a gemm step of all parts is one product, whose rows are those of one part after the other. */
bool lockstep_is_one_product(const RunCall *call, const tfm_step *step);
/* The epilogue of a tile of such a product: each part's rows have operands of their own. */
void lockstep_finish_tile(const Walker *walker, const tfm_gemm_step *step, char *tile, int64_t tile_stride,
                          const Region *at);
extern const LockstepFunctions lockstep_functions;

// ---- the runs of a decoder ----

/* Makes the contexts of as many lockstep runs as this batch can have. */
tfm_status lockstep_reserve(tfm_decoder *decoder, tfm_error *error);
/* Executes runs whose rows, members and tokens follow one another, as many in lockstep as there is room for. The pages
 * are ready. Rows change only in their pages from `past` on and in next_flat, so that a failure leaves them as they
 * were. */
tfm_status decoder_run(tfm_decoder *decoder, const DecoderRun *runs, int64_t n, tfm_error *error);

#endif
