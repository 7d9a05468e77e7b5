/* Making a context and ending it. The context and its arrays are one block; the workspace is another. */
#include <stdio.h>
#include <string.h>

#include "allocate.h"
#include "context.h"
#include "layout.h"
#include "model.h"
#include "options.h"
#include "steps.h"

static uint32_t deepest_check(const tfm_program *program) {
  uint32_t deepest = 0;
  for (uint32_t i = 0; i < program->n_checks; i++)
    if (program->checks[i].n_conditions > deepest) deepest = program->checks[i].n_conditions;
  return deepest;
}

/* Places the context's arrays behind it; returns the size of the block, or -1. */
static int64_t place_arrays(tfm_context *context, char *block) {
  const tfm_program *program = context->program;
  const int64_t steps = program->n_steps, values = (int64_t)program->n_inputs + program->n_outputs;
  Layout layout = {.block = block};
  layout_take(&layout, 1, sizeof *context);
#define ARRAY(field, count) (context->field = layout_take(&layout, (count), sizeof *context->field))
  ARRAY(claims.slots, context->threads);
  ARRAY(input_dims, (int64_t)program->n_inputs * TFM_MAX_RANK);
  ARRAY(output_dims, (int64_t)program->n_outputs * TFM_MAX_RANK);
  ARRAY(symbols, program->n_symbols);
  ARRAY(asked, program->n_symbols);
  ARRAY(symbol_inputs, program->n_symbols);
  ARRAY(given, values);
  ARRAY(values, program->n_polynomials);
  ARRAY(value_symbols, program->n_polynomials);
  ARRAY(values_f32, program->n_polynomials);
  ARRAY(values_i32, program->n_polynomials);
  ARRAY(condition_stack, (int64_t)deepest_check(program) + 1);
  ARRAY(buffer_bytes, program->n_buffers);
  ARRAY(buffer_offsets, program->n_buffers);
  ARRAY(buffer_taken, program->n_buffers);
  ARRAY(buffer_order, program->n_buffers);
  ARRAY(operands, program->n_operands);
  ARRAY(step_operands, steps);
  ARRAY(operand_symbols, program->n_operands);
  ARRAY(step_symbols, steps);
  ARRAY(steps, steps);
  ARRAY(callers, values);
#undef ARRAY
  return layout.bytes;
}

tfm_context *context_new(const tfm_program *program, const tfm_allocator *allocator, int32_t threads) {
  tfm_context shape = {.program = program, .allocator = *allocator, .threads = threads};
  int64_t bytes = place_arrays(&shape, NULL);
  if (bytes < 0) return NULL;
  shape.bytes = (size_t)bytes;
  char *block = allocate(allocator, shape.bytes, ALIGNMENT);
  if (!block) return NULL;
  memset(block, 0, shape.bytes);
  place_arrays(&shape, block);
  tfm_context *context = (tfm_context *)block;
  *context = shape;
  context->values_stale = true;
  context->operands_stale = ALL_SYMBOLS;
  sizes_find_symbols(context);
  resolve_prepare(context);
  return context;
}

static tfm_status check_arguments(const tfm_program *program, const void *weights, tfm_error *error) {
  if (!program) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the program is a null pointer");
  if (program->version != TFM_PROGRAM_VERSION)
    return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "the program has version %u, this runtime needs %d",
                    program->version, TFM_PROGRAM_VERSION);
  if (!weights && program->weights_bytes)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the weights are a null pointer");
  if ((uintptr_t)weights % ALIGNMENT)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the weights are not aligned to 64 bytes");
  return TFM_OK;
}

static void log_threads(const tfm_context *context, const Options *options) {
  char message[200];
  if (!options->log) return;
  snprintf(message, sizeof message, "%s for %s: %d of %d threads%s", context->program->name, context->program->isa,
           context->threads, options->threads, context->owns_pool ? "" : " of a shared pool");
  options->log(options->log_user, message);
}

/* The pool may have fewer threads than asked for; the context then has claims for more, which are left alone. */
static tfm_context *context_with_pool(const tfm_program *program, const void *weights, const Options *options) {
  tfm_context *context = context_new(program, &options->allocator, options->threads);
  if (!context) return NULL;
  context->weights = weights;
  context->owns_pool = !options->pool;
  context->pool = options->pool ? options->pool : pool_create(options->threads, options->spin_ns, &options->allocator);
  if (context->pool) {
    context->threads = pool_threads(context->pool);
    return context;
  }
  tfm_context_destroy(context);
  return NULL;
}

tfm_status tfm_context_create(const tfm_program *program, const void *weights, const tfm_context_options *given,
                              tfm_context **context, tfm_error *error) {
  Options options;
  if (!context) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "there is no place for the context");
  *context = NULL;
  tfm_status status = check_arguments(program, weights, error);
  if (!status) status = options_read(given, &options, error);
  if (status) return status;
  *context = context_with_pool(program, weights, &options);
  if (!*context) return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "no memory for a context");
  log_threads(*context, &options);
  return tfm_succeed(error);
}

void tfm_context_destroy(tfm_context *context) {
  if (!context) return;
  if (context->end_decoding) context->end_decoding(context); /* it uses the pool */
  if (context->owns_pool) pool_destroy(context->pool);
  memory_release(context);
  const tfm_allocator allocator = context->allocator;
  tfm_model *model = context->model;
  release(&allocator, context, context->bytes);
  if (model) model_release(model);
}
