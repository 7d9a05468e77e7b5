/* Inputs: run-time sizes are read from their shapes, and their shapes compared with the program's.
 *
 * In: the tfm_values of a call, or sizes. Out: the sizes, the dims of all inputs. Refused: another type or rank, a
 * negative dimension, a null pointer where there are elements and no default (defaults.c), two inputs that disagree
 * about a size, a dimension that is not what the program says. */
#include "context/binding.h"

#include <string.h>

#include "machine/fp_mode.h"

// ---- inputs ----

static const char *dtype_name(int32_t dtype) {
  static const char *const names[] = {"f32", "i32", "bool"};
  return dtype >= 0 && dtype <= TFM_BOOL ? names[dtype] : "an unknown type";
}

/* A tensor with an axis of 0 has no elements, and then needs no memory. */
static bool has_elements(const tfm_value *value) {
  for (int32_t i = 0; i < value->rank; i++)
    if (value->dims[i] == 0) return false;
  return true;
}

/* Type, rank and dims of one input. Bytes are counted with 4 per element, the largest of the types, so that later
 * products of dims cannot overflow. */
static tfm_status read_one(const tfm_tensor_info *info, const tfm_value *value, tfm_error *error) {
  if (value->dtype != info->dtype)
    return tfm_fail(error, TFM_E_INPUT, TFM_REASON_TYPE, NULL, "input \"%s\" is %s, expected %s", info->name,
                    dtype_name(value->dtype), info->shape);
  if (value->rank != info->rank)
    return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "input \"%s\" has %d %s, expected %d: %s", info->name,
                    value->rank, value->rank == 1 ? "axis" : "axes", info->rank, info->shape);
  if (value->rank && !value->dims)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "input \"%s\" has no dims", info->name);
  int64_t bytes = 4;
  for (int32_t i = 0; i < value->rank; i++) {
    if (value->dims[i] < 0)
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "input \"%s\": axis %d is negative (%lld)",
                      info->name, i, (long long)value->dims[i]);
    if (value->dims[i] && __builtin_mul_overflow(bytes, value->dims[i], &bytes))
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "input \"%s\" is too large", info->name);
  }
  if (!value->data && has_elements(value))
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "input \"%s\" is a null pointer", info->name);
  return TFM_OK;
}

tfm_status inputs_read(const tfm_context *context, const tfm_value *inputs, tfm_error *error) {
  const tfm_program *program = context->program;
  if (!inputs && program->n_inputs)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the inputs are a null pointer");
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    if (input_is_left_out(program, i, inputs)) continue;
    tfm_status status = read_one(&program->inputs[i], &inputs[i], error);
    if (status) return status;
  }
  return TFM_OK;
}

bool inputs_same_as_bound(const tfm_context *context, const tfm_value *inputs) {
  for (uint32_t i = 0; i < context->program->n_inputs; i++) {
    size_t bytes = sizeof(int64_t) * context->program->inputs[i].rank;
    if (input_is_left_out(context->program, i, inputs)) continue; /* whatever the sizes are */
    if (bytes && memcmp(inputs[i].dims, context->binding.input_dims + i * TFM_MAX_RANK, bytes)) return false;
  }
  return true;
}

/* The number of the size that a polynomial consists of; -1: it is another polynomial. Only such axes bind sizes; the
 * others are checked afterwards by inputs_check_dims. */
static int32_t lone_symbol(const tfm_program *program, tfm_size size) {
  const tfm_polynomial *polynomial = &program->polynomials[size];
  if (polynomial->n_terms != 1) return -1;
  const tfm_term *term = &program->terms[polynomial->first_term];
  bool is_symbol = term->coefficient == 1 && term->degree == 1 && term->symbols[0] < TFM_FIRST_FLOOR;
  return is_symbol ? term->symbols[0] : -1;
}

/* The first input that has a size decides its value; any other must agree, and the message names both. */
static tfm_status bind_axis(tfm_context *context, uint32_t input, uint32_t axis, int64_t dim, tfm_error *error) {
  const tfm_program *program = context->program;
  int32_t symbol = lone_symbol(program, program->inputs[input].dims[axis]);
  if (symbol < 0) return TFM_OK;
  int32_t first = context->binding.symbol_inputs[symbol];
  if (first < 0) {
    context->binding.symbol_inputs[symbol] = (int32_t)input;
    context->binding.symbols[symbol] = dim;
  } else if (context->binding.symbols[symbol] != dim) {
    return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "%s is %lld in input \"%s\" but %lld in input \"%s\"",
                    program->symbols[symbol], (long long)context->binding.symbols[symbol], program->inputs[first].name,
                    (long long)dim, program->inputs[input].name);
  }
  return TFM_OK;
}

tfm_status inputs_bind_symbols(tfm_context *context, const tfm_value *inputs, tfm_error *error) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_symbols; i++) {
    context->binding.symbol_inputs[i] = -1;
    context->binding.symbols[i] = 0;
  }
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    if (input_is_left_out(program, i, inputs)) continue; /* one that may be binds no size alone */
    for (uint32_t axis = 0; axis < program->inputs[i].rank; axis++) {
      context->binding.input_dims[i * TFM_MAX_RANK + axis] = inputs[i].dims[axis];
      tfm_status status = bind_axis(context, i, axis, inputs[i].dims[axis], error);
      if (status) return status;
    }
  }
  return TFM_OK;
}

/* The dims of one input as the values of the sizes say. */
static tfm_status set_dims(tfm_context *context, uint32_t input, tfm_error *error) {
  const tfm_tensor_info *info = &context->program->inputs[input];
  int64_t bytes = 4;
  for (uint32_t axis = 0; axis < info->rank; axis++) {
    int64_t dim = context->binding.input_dims[input * TFM_MAX_RANK + axis] = value_of(context, info->dims[axis]);
    if (dim < 0)
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "input \"%s\": axis %u would be %lld: %s",
                      info->name, axis, (long long)dim, info->shape);
    if (dim && __builtin_mul_overflow(bytes, dim, &bytes))
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "input \"%s\" is too large", info->name);
  }
  return TFM_OK;
}

tfm_status inputs_check_dims(tfm_context *context, const tfm_value *inputs, tfm_error *error) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    const tfm_tensor_info *info = &program->inputs[i];
    if (input_is_left_out(program, i, inputs)) {
      tfm_status status = set_dims(context, i, error);
      if (status) return status;
      continue;
    }
    for (uint32_t axis = 0; axis < info->rank; axis++) {
      int64_t dim = context->binding.input_dims[i * TFM_MAX_RANK + axis];
      int64_t expected = value_of(context, info->dims[axis]);
      if (dim != expected)
        return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL,
                        "input \"%s\": axis %u is %lld, expected %lld: %s", info->name, axis, (long long)dim,
                        (long long)expected, info->shape);
    }
  }
  return TFM_OK;
}

tfm_status inputs_set_dims(tfm_context *context, tfm_error *error) {
  tfm_status status = TFM_OK;
  for (uint32_t i = 0; i < context->program->n_inputs && !status; i++) status = set_dims(context, i, error);
  return status;
}
