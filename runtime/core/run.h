/* Executes the steps of a bound context, and of those beside it, whose `callers` are set. Who is called from outside first
 * forgets what was cancelled before; a call may consist of many runs. */
#ifndef TFM_RUNTIME_RUN_H
#define TFM_RUNTIME_RUN_H

#include "context.h"

static inline void run_forget_cancelled(tfm_context *context) {
  atomic_store_explicit(&context->cancelled, false, memory_order_relaxed);
}
tfm_status run_steps(tfm_context *context, tfm_error *error);

#endif
