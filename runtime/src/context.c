/* The public functions: making, binding and running a context. */
#include "context.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "steps.h"

enum { DEFAULT_SPIN_US = 50, MOST_SPIN_US = 10 * 1000 * 1000 };

/* --- Creation ------------------------------------------------------------------------------------------------------ */

/* A number from the environment in [least, most], else `otherwise`. */
static int64_t number_from_environment(const char *name, int64_t least, int64_t most, int64_t otherwise) {
  const char *text = getenv(name);
  if (!text || !*text) return otherwise;
  char *end;
  long long value = strtoll(text, &end, 10);
  return *end || value < least || value > most ? otherwise : value;
}

/* Whether the caller's struct has the member; struct_size 0 means that it is the first version's. */
#define OPTION_IS_GIVEN(options, member)                                                        \
  ((options) && ((options)->struct_size ? (options)->struct_size : FIRST_OPTIONS_SIZE) >=       \
                    offsetof(tfm_context_options, member) + sizeof(options)->member)
enum { FIRST_OPTIONS_SIZE = offsetof(tfm_context_options, threads) + sizeof(int32_t) };

static int64_t spin_ns(const tfm_context_options *options) {
  int32_t spin_us = OPTION_IS_GIVEN(options, spin_us) ? options->spin_us : 0;
  if (spin_us < 0) return 0;
  if (spin_us > 0) return spin_us * INT64_C(1000);
  return number_from_environment("TFM_SPIN_US", 0, MOST_SPIN_US, DEFAULT_SPIN_US) * 1000;
}

static int32_t thread_count(const tfm_context_options *options) {
  int32_t threads = options ? options->threads : 0;
  if (threads <= 0) threads = (int32_t)number_from_environment("TFM_NUM_THREADS", 1, POOL_MAX_THREADS, 0);
  return threads > 0 ? threads : cpus_available();
}

/* Zeroed arrays of the context; false if one is missing. Every array has at least one element. */
static bool allocate_arrays(tfm_context *context) {
  const tfm_program *program = context->program;
#define ARRAY(field, count) (context->field = calloc((size_t)(count) + 1, sizeof *context->field))
  return ARRAY(input_dims, program->n_inputs * TFM_MAX_RANK) && ARRAY(output_dims, program->n_outputs * TFM_MAX_RANK) &&
         ARRAY(symbols, program->n_symbols) && ARRAY(symbol_inputs, program->n_symbols) &&
         ARRAY(values, program->n_polynomials) && ARRAY(values_f32, program->n_polynomials) &&
         ARRAY(values_i32, program->n_polynomials) && ARRAY(buffer_bytes, program->n_buffers) &&
         ARRAY(buffer_offsets, program->n_buffers) && ARRAY(buffer_order, program->n_buffers) &&
         ARRAY(operands, program->n_operands) && ARRAY(step_operands, program->n_steps * STEP_OPERANDS) &&
         ARRAY(steps, program->n_steps) && ARRAY(callers, program->n_inputs + program->n_outputs);
#undef ARRAY
}

static bool allocate_condition_stack(tfm_context *context) {
  uint32_t deepest = 0;
  for (uint32_t i = 0; i < context->program->n_checks; i++)
    if (context->program->checks[i].n_conditions > deepest) deepest = context->program->checks[i].n_conditions;
  context->condition_stack = calloc(deepest + 1, sizeof *context->condition_stack);
  return context->condition_stack;
}

static bool allocate_threads(tfm_context *context, const tfm_context_options *options) {
  context->pool = pool_create(thread_count(options), spin_ns(options));
  if (!context->pool) return false;
  size_t bytes = sizeof(ClaimSlot) * (size_t)pool_threads(context->pool);
  context->claims.slots = aligned_alloc(ALIGNMENT, bytes);
  if (!context->claims.slots) return false;
  memset(context->claims.slots, 0, bytes);
  return true;
}

static tfm_status check_arguments(const tfm_program *program, const void *weights, const tfm_context_options *options,
                                  tfm_error *error) {
  if (!program) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the program is a null pointer");
  if (program->version != TFM_PROGRAM_VERSION)
    return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "the program has version %u, this runtime needs %d",
                    program->version, TFM_PROGRAM_VERSION);
  if (options && !OPTION_IS_GIVEN(options, threads))
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "struct_size of the options is too small");
  if (!weights && program->weights_bytes)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the weights are a null pointer");
  if ((uintptr_t)weights % ALIGNMENT)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the weights are not aligned to 64 bytes");
  return TFM_OK;
}

tfm_status tfm_context_create(const tfm_program *program, const void *weights, const tfm_context_options *options,
                              tfm_context **context, tfm_error *error) {
  if (!context) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "there is no place for the context");
  *context = NULL;
  tfm_status status = check_arguments(program, weights, options, error);
  if (status) return status;
  tfm_context *made = calloc(1, sizeof *made);
  if (made) {
    made->program = program;
    made->weights = weights;
    if (allocate_arrays(made) && allocate_condition_stack(made) && allocate_threads(made, options)) {
      *context = made;
      return tfm_succeed(error);
    }
  }
  tfm_context_destroy(made);
  return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "no memory for a context");
}

void tfm_context_destroy(tfm_context *context) {
  if (!context) return;
  pool_destroy(context->pool);
  memory_release(context);
  void *const arrays[] = {context->claims.slots,  context->input_dims,    context->output_dims,    context->symbols,
                          context->symbol_inputs, context->values,        context->values_f32,     context->values_i32,
                          context->buffer_bytes,  context->buffer_order,  context->buffer_offsets, context->operands,
                          context->step_operands, context->steps,         context->callers,        context->condition_stack};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
  free(context);
}

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

static int64_t scratch_needed(const tfm_context *context) {
  int64_t most = 0;
  for (uint32_t i = 0; i < context->program->n_steps; i++) {
    const tfm_step *step = &context->program->steps[i];
    int64_t bytes = step->kind == TFM_STEP_MATMUL      ? matmul_scratch_bytes(context, step)
                    : step->kind == TFM_STEP_ATTENTION ? attention_scratch_bytes(context, step)
                    : step->kind == TFM_STEP_TABLE     ? table_scratch_bytes(context, step)
                                                       : 0;
    if (bytes < 0) return -1; /* too large to count */
    most = greatest_of(most, bytes);
  }
  return most;
}

static tfm_status bind_sizes(tfm_context *context, const tfm_value *inputs, tfm_error *error) {
  tfm_status status = inputs_bind_symbols(context, inputs, error);
  if (status) return status;
  if (!sizes_evaluate(context))
    return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "the sizes of this run are too large");
  if ((status = inputs_check_dims(context, error))) return status;
  if ((status = checks_hold(context, error))) return status;
  if ((status = set_output_dims(context, error))) return status;
  if ((status = memory_plan(context, scratch_needed(context), error))) return status;
  resolve_operands(context);
  resolve_threads(context);
  return TFM_OK;
}

tfm_status tfm_context_bind(tfm_context *context, const tfm_value *inputs, tfm_error *error) {
  if (!context) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the context is a null pointer");
  tfm_status status = inputs_read(context, inputs, error);
  if (status) return status;
  if (!context->bound || !inputs_same_as_bound(context, inputs)) {
    context->bound = false;
    context->prepared = false;
    if ((status = bind_sizes(context, inputs, error))) return status;
    context->bound = true;
  }
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

int32_t tfm_context_threads(const tfm_context *context) { return context ? pool_threads(context->pool) : 0; }

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
  return run_steps(context, error);
}
