/* The functions behind <model>_forward, <model>_reserve and the like. The args struct of a call is read by its layout.
 *
 * In: a context of a library, and the args of a call. Out: the outputs in the caller's memory. Refused: args that are
 * missing or too short, sizes that are negative or too large, an input without memory, an output with too little room,
 * an output that overlaps an input or another output, a context that another thread is using. */
#include <string.h>

#include "context/binding.h"
#include "library/exports.h"
#include "library/open.h"
#include "walk/walk.h"

// ---- the args struct ----

/* Args are read with memcpy at offsets: the struct is the caller's type, which the runtime does not know. */
static const char *member(const void *args, uint32_t offset) { return (const char *)args + offset; }

static int64_t number_at(const void *args, uint32_t offset) {
  int64_t value;
  memcpy(&value, member(args, offset), sizeof value);
  return value;
}

void *library_pointer(const void *args, uint32_t offset) {
  void *value;
  memcpy(&value, member(args, offset), sizeof value);
  return value;
}

/* A longer struct than the library's is fine, and 0 stands for the library's own size. */
static tfm_status check_args(const tfm_library *library, const void *args, tfm_error *error) {
  size_t size;
  if (!args) return tfm_refuse_call(error, "args is a null pointer");
  memcpy(&size, args, sizeof size);
  if (size && size < library->args.struct_size) return tfm_refuse_call(error, "struct_size of args is too small");
  return TFM_OK;
}

static void read_args_sizes(const tfm_library *library, const void *args, uint32_t n, int64_t *sizes) {
  for (uint32_t i = 0; i < n; i++) sizes[i] = number_at(args, library->args.symbols[i]);
}

tfm_status library_read_sizes(tfm_context *context, const void *args, tfm_error *error) {
  tfm_status status = check_args(handle_of(context)->table, args, error);
  if (!status) read_args_sizes(handle_of(context)->table, args, context->program->n_symbols, context->asked);
  return status;
}

/* Reads the sizes of args and binds the context to them. */
static tfm_status bind_args(tfm_context *context, const void *args, tfm_error *error) {
  tfm_status status = library_read_sizes(context, args, error);
  return status ? status : context_bind_symbols(context, context->asked, error);
}

// ---- memory of the caller ----

static int64_t elements_of(const tfm_value *value) {
  int64_t n = 1;
  for (int32_t axis = 0; axis < value->rank; axis++) n *= value->dims[axis];
  return n;
}

static tfm_value value_at(const tfm_tensor_info *info, const int64_t *dims, void *data) {
  return (tfm_value){.data = data, .dtype = info->dtype, .rank = info->rank, .dims = dims};
}

tfm_status library_read_inputs(tfm_context *context, const void *args, uint32_t optional, tfm_error *error) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    tfm_value *value = &context->given[i];
    *value = value_at(&program->inputs[i], context->binding.input_dims + (size_t)i * TFM_MAX_RANK,
                      library_pointer(args, handle_of(context)->table->args.inputs[i]));
    if (!value->data && elements_of(value) && i != optional && !program->inputs[i].has_default)
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_OTHER, NULL, "input \"%s\" is a null pointer",
                      program->inputs[i].name);
  }
  return TFM_OK;
}

/* Dims come from the bound sizes; the caller only vouches for the room, or gives its capacity. */
static tfm_status read_outputs(tfm_context *context, const void *args, tfm_error *error) {
  const tfm_program *program = context->program;
  const tfm_args_layout *layout = &handle_of(context)->table->args;
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    tfm_value *value = &context->given[program->n_inputs + i];
    *value = value_at(&program->outputs[i], context->binding.output_dims + (size_t)i * TFM_MAX_RANK,
                      library_pointer(args, layout->outputs[i]));
    int64_t capacity = number_at(args, layout->capacities[i]), needed = elements_of(value);
    if (value->data && capacity && capacity < needed) /* 0: the caller vouches for the room */
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL,
                      "output \"%s\" has room for %lld elements, needs %lld: %s", program->outputs[i].name,
                      (long long)capacity, (long long)needed, program->outputs[i].shape);
  }
  return TFM_OK;
}

/* Compares distances instead of ends, which could overflow. */
static bool overlap(const tfm_value *a, const tfm_value *b) {
  uintptr_t first = (uintptr_t)a->data, second = (uintptr_t)b->data;
  uintptr_t first_bytes = (uintptr_t)elements_of(a) * dtype_size((uint8_t)a->dtype);
  uintptr_t second_bytes = (uintptr_t)elements_of(b) * dtype_size((uint8_t)b->dtype);
  if (!first || !second || !first_bytes || !second_bytes) return false;
  return first < second ? second - first < first_bytes : first - second < second_bytes;
}

/* Outputs are written while inputs are still read: what they share would be garbage. */
static tfm_status check_overlap(const tfm_context *context, tfm_error *error) {
  const tfm_program *program = context->program;
  uint32_t n_inputs = program->n_inputs, n = n_inputs + program->n_outputs;
  for (uint32_t output = n_inputs; output < n; output++) {
    for (uint32_t other = 0; other < output; other++) {
      if (!overlap(&context->given[output], &context->given[other])) continue;
      bool input = other < n_inputs;
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_OTHER, NULL, "output \"%s\" overlaps %s \"%s\"",
                      program->outputs[output - n_inputs].name, input ? "input" : "output",
                      input ? program->inputs[other].name : program->outputs[other - n_inputs].name);
    }
  }
  return TFM_OK;
}

// ---- calls ----

/* All items of one forward run have the sizes of the inputs; lengths that say otherwise would be ignored silently. */
static tfm_status check_args_lengths(const tfm_context *context, const void *args, tfm_error *error) {
  const tfm_generation *generation = handle_of(context)->table->generation;
  if (!generation || !handle_of(context)->table->args.lengths) return TFM_OK;
  for (uint32_t symbol = 0; symbol < context->program->n_symbols; symbol++) {
    const int64_t *lengths = library_lengths(handle_of(context)->table, args, symbol), whole = context->asked[symbol];
    for (int64_t i = 0; lengths && i < context->asked[generation->batch]; i++)
      if (lengths[i] != whole)
        return tfm_fail(error, TFM_E_INPUT, TFM_REASON_VALUE, NULL, "forward takes items whose %s is %lld, not %lld",
                        context->program->symbols[symbol], (long long)whole, (long long)lengths[i]);
  }
  return TFM_OK;
}

/* Checks in the order of their cost, and all of them before anything is computed. */
static tfm_status forward(tfm_context *context, const void *args, tfm_error *error) {
  tfm_status status = library_read_sizes(context, args, error);
  if (!status) status = check_args_lengths(context, args, error);
  if (!status) status = bind_args(context, args, error);
  if (!status) status = library_read_inputs(context, args, TFM_NONE, error);
  if (!status) status = read_outputs(context, args, error);
  if (!status) status = check_overlap(context, error);
  if (!status) status = ids_check_inputs(context, context->given, error);
  if (status) return status;
  uint32_t n = context->program->n_inputs + context->program->n_outputs;
  for (uint32_t i = 0; i < n; i++) context->run.callers[i] = context->given[i].data;
  run_forget_cancelled(context);
  return run_steps(context, error);
}

static tfm_status reserve_args(tfm_context *context, const void *args, tfm_error *error) {
  tfm_status status = bind_args(context, args, error);
  return status ? status : tfm_succeed(error);
}

/* Makes a call while no other one is working with the context. */
static tfm_status alone(tfm_context *context, const void *args, tfm_error *error,
                        tfm_status (*call)(tfm_context *, const void *, tfm_error *)) {
  tfm_status status = library_enter(context, error);
  if (status) return status;
  status = call(context, args, error);
  library_leave(context);
  return status;
}

tfm_status tfm_library_forward(tfm_context *context, const void *args, tfm_error *error) {
  return alone(context, args, error, forward);
}

tfm_status tfm_library_reserve(tfm_context *context, const void *args, tfm_error *error) {
  return alone(context, args, error, reserve_args);
}

/* A context without a pool is enough to measure. */
int64_t tfm_library_workspace_bytes(const tfm_model *model, const void *args) {
  if (!model || check_args(model->library, args, NULL)) return -1;
  tfm_context *context = context_new(model->program, &(tfm_allocator){0}, pool_threads_wanted(0));
  if (!context) return -1;
  read_args_sizes(model->library, args, model->program->n_symbols, context->asked);
  int64_t bytes = context_measure(context, context->asked);
  context_end(context);
  return bytes;
}
