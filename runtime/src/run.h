/* Executes the steps of a bound context, and of those beside it, whose `callers` are set. */
#ifndef TFM_RUNTIME_RUN_H
#define TFM_RUNTIME_RUN_H

#include "context.h"

tfm_status run_steps(tfm_context *context, tfm_error *error);

#endif
