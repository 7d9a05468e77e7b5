/* Runs: what threads do with a bound context. See walk.c. */
#ifndef TFM_RUNTIME_WALK_H
#define TFM_RUNTIME_WALK_H

#include "context/context.h"

/* Executes the steps of a bound context whose `callers` are set, and those of its lockstep runs. A call from
 * outside may consist of many runs, and one cancellation ends all of them: each entry point calls run_forget_cancelled
 * once, before its first run, and run_steps leaves the flag alone. */
static inline void run_forget_cancelled(tfm_context *context) {
  atomic_store_explicit(&context->run.cancelled, false, memory_order_relaxed);
}
tfm_status run_steps(tfm_context *context, tfm_error *error);

#endif
