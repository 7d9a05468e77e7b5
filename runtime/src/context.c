/* Binding a context to sizes, and running it. */
#include "context.h"

#include <string.h>

#include "run.h"
#include "steps.h"

/* --- Binding ------------------------------------------------------------------------------------------------------- */

static tfm_status set_output_dims(tfm_context *context, tfm_error *error) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    for (uint32_t axis = 0; axis < program->outputs[i].rank; axis++) {
      int64_t dim = value_of(context, program->outputs[i].dims[axis]);
      context->output_dims[i * TFM_MAX_RANK + axis] = dim;
      if (dim < 0)
        return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "output \"%s\": axis %u would be %lld",
                        program->outputs[i].name, axis, (long long)dim);
    }
  }
  return TFM_OK;
}

int64_t no_scratch(const tfm_context *context, const tfm_step *step) {
  (void)context;
  (void)step;
  return 0;
}

static int64_t (*const scratch_functions[TFM_STEP_KINDS])(const tfm_context *context, const tfm_step *step) = {
#define STEP(KIND, name, array, scratch, ...) [TFM_STEP_##KIND] = scratch,
#include "tfm/steps.def"
};

int64_t context_scratch_bytes(const tfm_context *context) {
  int64_t most = 0;
  for (uint32_t i = 0; i < context->program->n_steps; i++) {
    const tfm_step *step = &context->program->steps[i];
    int64_t bytes = scratch_functions[step->kind](context, step);
    if (bytes < 0) return -1;
    most = greatest_of(most, bytes);
  }
  return most;
}

/* Everything that depends on sizes alone, once their values are there. */
static tfm_status plan_for_sizes(tfm_context *context, tfm_error *error) {
  tfm_status status = checks_hold(context, error);
  if (status) return status;
  if ((status = set_output_dims(context, error))) return status;
  if ((status = memory_plan(context, context_scratch_bytes(context), 1, error))) return status;
  resolve_operands(context);
  resolve_threads(context);
  return TFM_OK;
}

static tfm_status too_large(tfm_error *error) {
  return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "the sizes of this run are too large");
}

tfm_status context_set_inputs(tfm_context *context, const tfm_value *inputs, tfm_error *error) {
  tfm_status status = inputs_read(context, inputs, error);
  if (status || (context->bound && inputs_same_as_bound(context, inputs))) return status;
  context->bound = context->prepared = false;
  context->values_stale = true;
  if ((status = inputs_bind_symbols(context, inputs, error))) return status;
  if (!sizes_evaluate(context, ALL_SYMBOLS)) return too_large(error);
  return inputs_check_dims(context, error);
}

/* The dims of all inputs from the sizes. */
static tfm_status set_sizes(tfm_context *context, const int64_t *symbols, tfm_error *error) {
  const tfm_program *program = context->program;
  uint64_t changed = sizes_changed(context, symbols);
  for (uint32_t i = 0; i < program->n_symbols; i++) {
    if (symbols[i] < 0) {
      context->values_stale = true;
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "%s is negative (%lld)", program->symbols[i],
                      (long long)symbols[i]);
    }
    context->symbols[i] = symbols[i];
  }
  if (!sizes_evaluate(context, changed)) return too_large(error);
  return inputs_set_dims(context, error);
}

tfm_status context_bind_symbols(tfm_context *context, const int64_t *symbols, tfm_error *error) {
  size_t bytes = sizeof *symbols * context->program->n_symbols;
  if (context->bound && (!bytes || memcmp(symbols, context->symbols, bytes) == 0)) return TFM_OK;
  context->bound = context->prepared = false;
  tfm_status status = set_sizes(context, symbols, error);
  if (!status) status = plan_for_sizes(context, error);
  context->bound = !status;
  return status;
}

tfm_status context_set_symbols(tfm_context *context, const int64_t *symbols, tfm_error *error) {
  context->bound = context->prepared = false;
  return set_sizes(context, symbols, error);
}

tfm_status context_set_shapes(tfm_context *context, const int64_t *symbols, tfm_error *error) {
  tfm_status status = context_set_symbols(context, symbols, error);
  if (!status) status = checks_hold(context, error);
  return status ? status : set_output_dims(context, error);
}

tfm_status context_reserve_symbols(tfm_context *context, const int64_t *symbols, int64_t runs, tfm_error *error) {
  context->keeps_room = true;
  tfm_status status = context_set_shapes(context, symbols, error);
  return status ? status : memory_plan(context, context_scratch_bytes(context), runs, error);
}

int64_t context_measure(tfm_context *context, const int64_t *symbols) {
  if (context_set_shapes(context, symbols, NULL)) return -1;
  return memory_measure(context, context_scratch_bytes(context), 1);
}

tfm_status tfm_context_bind(tfm_context *context, const tfm_value *inputs, tfm_error *error) {
  if (!context) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the context is a null pointer");
  tfm_status status = context_set_inputs(context, inputs, error);
  if (!status && !context->bound) status = plan_for_sizes(context, error);
  if (status) return status;
  context->bound = true;
  if ((status = ids_check_inputs(context, inputs, error))) return status;
  return tfm_succeed(error);
}

const int64_t *tfm_context_output_dims(const tfm_context *context, uint32_t output, int32_t *rank) {
  if (!context || !context->bound || output >= context->program->n_outputs) return NULL;
  if (rank) *rank = context->program->outputs[output].rank;
  return context->output_dims + output * TFM_MAX_RANK;
}

uint64_t tfm_context_workspace_bytes(const tfm_context *context) {
  return context && context->bound ? (uint64_t)context->used_bytes : 0;
}

int32_t tfm_context_threads(const tfm_context *context) { return context ? context->threads : 0; }

void tfm_context_profile(tfm_context *context, uint64_t *nanoseconds) {
  if (context) context->profile = nanoseconds;
}

/* --- Running ------------------------------------------------------------------------------------------------------- */

tfm_status tfm_context_run(tfm_context *context, const tfm_value *inputs, const tfm_value *outputs, tfm_error *error) {
  if (!context) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the context is a null pointer");
  const tfm_program *program = context->program;
  if (!outputs && program->n_outputs)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the outputs are a null pointer");
  tfm_status status = inputs_read(context, inputs, error);
  if (status) return status;
  if (!context->bound || !inputs_same_as_bound(context, inputs))
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the context is not bound to the sizes of these inputs");
  if ((status = ids_check_inputs(context, inputs, error))) return status;
  for (uint32_t i = 0; i < program->n_inputs; i++) context->callers[i] = inputs[i].data;
  for (uint32_t i = 0; i < program->n_outputs; i++) context->callers[program->n_inputs + i] = outputs[i].data;
  run_forget_cancelled(context);
  return run_steps(context, error);
}

void tfm_context_cancel(tfm_context *context) {
  if (!context) return;
  atomic_store(&context->stopped, true);
  atomic_store(&context->cancelled, true);
  atomic_fetch_add(&context->cancelling, 1);
  void (*cancel_decoding)(tfm_context *) = atomic_load(&context->cancel_decoding);
  if (cancel_decoding) cancel_decoding(context);
  atomic_fetch_sub(&context->cancelling, 1);
}
