/* Executes the steps of a bound context, and of those beside it. Their `callers` must be set.
 *
 * A call from outside may consist of many runs, and all of them can be cancelled together. So each entry point calls
 * run_forget_cancelled once, before its first run, and run_steps leaves the flag alone. */
#ifndef TFM_RUNTIME_RUN_H
#define TFM_RUNTIME_RUN_H

#include "context.h"

static inline void run_forget_cancelled(tfm_context *context) {
  atomic_store_explicit(&context->run.cancelled, false, memory_order_relaxed);
}
tfm_status run_steps(tfm_context *context, tfm_error *error);

#endif
