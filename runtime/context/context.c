/* The life of a context: its options, making it, binding it to sizes, running it, cancelling a run, ending it.
 *
 * In: a program with its packed weights; a tfm_context_options of any version, and the environment where it leaves
 * something open. Out: a context. Refused: another version of programs, weights that are missing or not aligned, a
 * struct of options that ends before its first members, half an allocator. What the environment says is ignored unless
 * it is a number in its range. The context and its arrays are one block of memory; the workspace is another. */
#include "context/context.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "context/binding.h"
#include "context/step_operands.h"
#include "pool/pool.h"

// ---- options ----

enum {
  LEAST_SIZE = offsetof(tfm_context_options, threads) + sizeof(int32_t),
  FIRST_SIZE = offsetof(tfm_context_options, log_user) + sizeof(void *) /* of the first version */
};

/* TFM_E_USAGE with this message. */
/* Members beyond the caller's struct_size are zero, which is the default of each. Bytes beyond the struct that this
 * runtime knows are not read: a newer caller may pass a longer one. */
tfm_status options_read(const tfm_context_options *given, Options *options, tfm_error *error) {
  tfm_context_options known = {0};
  if (given) {
    size_t size = given->struct_size ? given->struct_size : FIRST_SIZE;
    if (size < LEAST_SIZE) return tfm_refuse_call(error, "struct_size of the options is too small");
    memcpy(&known, given, size < sizeof known ? size : sizeof known);
  }
  if (!known.allocator.allocate != !known.allocator.release)
    return tfm_refuse_call(error, "an allocator needs both functions");
  *options = (Options){.pool = known.pool, .spin_ns = pool_spin_ns(known.spin_us), .allocator = known.allocator,
                       .log = known.log, .log_user = known.log_user};
  options->threads = known.pool ? pool_threads(known.pool) : pool_threads_wanted(known.threads);
  return TFM_OK;
}

// ---- making and ending a context ----

/* The most values that the evaluation of a check can have on its stack: every condition pushes at most one. */
static uint32_t deepest_check(const tfm_program *program) {
  uint32_t deepest = 0;
  for (uint32_t i = 0; i < program->n_checks; i++)
    if (program->checks[i].n_conditions > deepest) deepest = program->checks[i].n_conditions;
  return deepest;
}

/* Places the context's arrays behind it and returns the size of the block; -1: it is too large to count. */
static int64_t place_arrays(tfm_context *context, char *block) {
  const tfm_program *program = context->program;
  const int64_t steps = program->n_steps, values = (int64_t)program->n_inputs + program->n_outputs;
  Layout layout = {.block = block};
  layout_take(&layout, 1, sizeof *context);
#define ARRAY(field, count) (context->field = layout_take(&layout, (count), sizeof *context->field))
  ARRAY(run.claims.slots, context->threads);
  ARRAY(binding.input_dims, (int64_t)program->n_inputs * TFM_MAX_RANK);
  ARRAY(binding.output_dims, (int64_t)program->n_outputs * TFM_MAX_RANK);
  ARRAY(binding.symbols, program->n_symbols);
  ARRAY(asked, program->n_symbols);
  ARRAY(binding.symbol_inputs, program->n_symbols);
  ARRAY(given, values);
  ARRAY(binding.values, program->n_polynomials);
  ARRAY(binding.value_symbols, program->n_polynomials);
  ARRAY(binding.values_f32, program->n_polynomials);
  ARRAY(binding.values_i32, program->n_polynomials);
  ARRAY(binding.condition_stack, (int64_t)deepest_check(program) + 1);
  ARRAY(memory.buffer_bytes, program->n_buffers);
  ARRAY(memory.buffer_offsets, program->n_buffers);
  ARRAY(memory.buffer_taken, program->n_buffers);
  ARRAY(memory.buffer_order, program->n_buffers);
  ARRAY(memory.lives, program->n_buffers);
  ARRAY(run.operands, program->n_operands);
  ARRAY(run.step_operands, steps);
  ARRAY(run.operand_symbols, program->n_operands);
  ARRAY(run.step_symbols, steps);
  ARRAY(run.steps, steps);
  ARRAY(run.callers, values);
#undef ARRAY
  return layout.bytes;
}

/* The arrays are laid out twice, first to learn the size of the block. The context is filled as `shape` and then
 * copied to the beginning of the block, where its own address is part of the layout. */
tfm_context *context_new(const tfm_program *program, const tfm_allocator *allocator, int32_t threads) {
  tfm_context shape = {.program = program, .allocator = *allocator, .threads = threads};
  int64_t bytes = place_arrays(&shape, NULL);
  char *block = bytes < 0 ? NULL : allocate(allocator, (uint64_t)bytes, ALIGNMENT);
  if (!block) return NULL;
  shape.bytes = (size_t)bytes;
  memset(block, 0, shape.bytes);
  place_arrays(&shape, block);
  tfm_context *context = (tfm_context *)block;
  *context = shape;
  context->stop = &context->own_stop;
  context->binding.values_stale = true;
  context->run.operands_stale = ALL_SYMBOLS;
  sizes_find_symbols(context);
  resolve_prepare(context);
  return context;
}

/* A program is trusted once its version fits: it comes from this compiler or from a library that was opened. */
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

/* The pool may have fewer threads than the context asked for; the claims of those that are missing stay unused. NULL:
 * no memory, or no pool. */
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
  context_end(context);
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

void context_end(tfm_context *context) {
  if (!context) return;
  if (context->owns_pool) pool_destroy(context->pool);
  memory_release(context);
  const tfm_allocator allocator = context->allocator;
  release(&allocator, context, context->bytes);
}

// ---- binding ----

/* A dimension of an output may be negative where the model subtracts sizes; the size that causes it is an input's. */
static tfm_status set_output_dims(tfm_context *context, tfm_error *error) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    for (uint32_t axis = 0; axis < program->outputs[i].rank; axis++) {
      int64_t dim = value_of(context, program->outputs[i].dims[axis]);
      context->binding.output_dims[i * TFM_MAX_RANK + axis] = dim;
      if (dim < 0)
        return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "output \"%s\": axis %u would be %lld",
                        program->outputs[i].name, axis, (long long)dim);
    }
  }
  return TFM_OK;
}

/* Threads reuse their scratch from step to step, so the most of any step is enough. */
int64_t context_scratch_bytes(const tfm_context *context) {
  int64_t most = 0;
  for (uint32_t i = 0; i < context->program->n_steps; i++) {
    const tfm_driver *driver = context->run.steps[i].driver;
    const int64_t bytes = driver->scratch ? driver->scratch(context, &context->program->steps[i]) : 0;
    if (bytes < 0) return -1;
    most = greatest_of(most, bytes);
  }
  return most;
}

/* What depends on sizes alone, once their values are known. Checks come first, so that an illegal size never reaches
 * the planner. */
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

/* Binding the same shapes again is the usual case of a server, so it is recognised before anything is evaluated. */
tfm_status context_set_inputs(tfm_context *context, const tfm_value *inputs, tfm_error *error) {
  tfm_status status = inputs_read(context, inputs, error);
  if (status || (context->binding.bound && inputs_same_as_bound(context, inputs))) return status;
  context->binding.bound = context->binding.prepared = false;
  context->binding.values_stale = true;
  if ((status = inputs_bind_symbols(context, inputs, error))) return status;
  if (!sizes_evaluate(context, ALL_SYMBOLS)) return too_large(error);
  return inputs_check_dims(context, inputs, error);
}

/* The dims of all inputs from the sizes; only polynomials of sizes that changed are evaluated. A negative size leaves
 * some symbols unset, so all values are marked as stale then. */
static tfm_status set_sizes(tfm_context *context, const int64_t *symbols, tfm_error *error) {
  const tfm_program *program = context->program;
  uint64_t changed = sizes_changed(context, symbols);
  for (uint32_t i = 0; i < program->n_symbols; i++) {
    if (symbols[i] < 0) {
      context->binding.values_stale = true;
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "%s is negative (%lld)", program->symbols[i],
                      (long long)symbols[i]);
    }
    context->binding.symbols[i] = symbols[i];
  }
  if (!sizes_evaluate(context, changed)) return too_large(error);
  return inputs_set_dims(context, error);
}

tfm_status context_bind_symbols(tfm_context *context, const int64_t *symbols, tfm_error *error) {
  size_t bytes = sizeof *symbols * context->program->n_symbols;
  if (context->binding.bound && (!bytes || memcmp(symbols, context->binding.symbols, bytes) == 0)) return TFM_OK;
  context->binding.bound = context->binding.prepared = false;
  tfm_status status = set_sizes(context, symbols, error);
  if (!status) status = plan_for_sizes(context, error);
  context->binding.bound = !status;
  return status;
}

tfm_status context_set_symbols(tfm_context *context, const int64_t *symbols, tfm_error *error) {
  context->binding.bound = context->binding.prepared = false;
  return set_sizes(context, symbols, error);
}

tfm_status context_set_shapes(tfm_context *context, const int64_t *symbols, tfm_error *error) {
  tfm_status status = context_set_symbols(context, symbols, error);
  if (!status) status = checks_hold(context, error);
  return status ? status : set_output_dims(context, error);
}

tfm_status context_reserve_symbols(tfm_context *context, const int64_t *symbols, int64_t runs, tfm_error *error) {
  context->memory.keeps_room = true;
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
  if (!status && !context->binding.bound) status = plan_for_sizes(context, error);
  if (status) return status;
  context->binding.bound = true;
  if ((status = ids_check_inputs(context, inputs, error))) return status;
  return tfm_succeed(error);
}

const int64_t *tfm_context_output_dims(const tfm_context *context, uint32_t output, int32_t *rank) {
  if (!context || !context->binding.bound || output >= context->program->n_outputs) return NULL;
  if (rank) *rank = context->program->outputs[output].rank;
  return context->binding.output_dims + output * TFM_MAX_RANK;
}

uint64_t tfm_context_workspace_bytes(const tfm_context *context) {
  return context && context->binding.bound ? (uint64_t)context->memory.used_bytes : 0;
}

int32_t tfm_context_threads(const tfm_context *context) { return context ? context->threads : 0; }

void tfm_context_profile(tfm_context *context, uint64_t *nanoseconds) {
  if (context) context->run.profile = nanoseconds;
}

// ---- cancelling ----

/* May be called in a signal handler: only atomics are used. */
void tfm_context_cancel(tfm_context *context) {
  if (!context) return;
  atomic_store(&context->stop->call, true);
  atomic_store(&context->stop->run, true);
}
