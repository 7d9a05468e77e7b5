/* Inputs that are left out: a model may give an input a default, one value that each element has then.
 *
 * In: the values of a call, of which such an input has no data. Out: its address in the workspace, filled with the
 * default, so that all behind this file sees an input like any other, and a run without it has the bits of a run that
 * is given it. Nothing is refused here: shapes are those that the sizes say. */
#include <string.h>

#include "context/binding.h"

static bool value_has_elements(const tfm_value *value) {
  for (int32_t i = 0; i < value->rank; i++)
    if (value->dims[i] == 0) return false;
  return true;
}

bool input_is_left_out(const tfm_program *program, uint32_t input, const tfm_value *values) {
  const tfm_value *value = &values[input];
  return program->inputs[input].has_default && !value->data && (!value->dims || value_has_elements(value));
}

static int64_t default_bytes(const tfm_context *context, uint32_t input) {
  const tfm_tensor_info *info = &context->program->inputs[input];
  int64_t bytes = dtype_size(info->dtype);
  for (uint32_t axis = 0; axis < info->rank; axis++) bytes *= value_of(context, info->dims[axis]);
  return round_up(bytes, ALIGNMENT);
}

/* Each has room, given or not: which of them a caller leaves out may change from run to run, the workspace should not.
 * The bytes of one input were counted without overflow when its dims were set. */
int64_t inputs_default_bytes(const tfm_context *context) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < context->program->n_inputs; i++)
    if (context->program->inputs[i].has_default && __builtin_add_overflow(bytes, default_bytes(context, i), &bytes))
      return -1;
  return bytes;
}

/* Up to the end of the room, which is a multiple of ALIGNMENT. */
static void fill(char *place, int64_t bytes, uint8_t dtype, uint32_t bits) {
  if (dtype == TFM_BOOL) {
    memset(place, (int)(bits & 1), (size_t)bytes);
    return;
  }
  for (int64_t i = 0; i < bytes; i += (int64_t)sizeof bits) memcpy(place + i, &bits, sizeof bits);
}

void inputs_place_defaults(tfm_context *context) {
  const tfm_program *program = context->program;
  const Memory *memory = &context->memory;
  char *place = memory->workspace + memory->buffers_bytes + memory->scratch_bytes * context->threads;
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    if (!program->inputs[i].has_default) continue;
    const int64_t bytes = default_bytes(context, i);
    if (!context->run.callers[i]) {
      fill(place, bytes, program->inputs[i].dtype, program->inputs[i].fill);
      context->run.callers[i] = place;
    }
    place += bytes;
  }
}
