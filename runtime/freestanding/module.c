/* What a module exports beside the functions of a library: memory for the caller's tensors, and the sizes of inputs and
 * results. See module.h. */
#include "context/binding.h"
#include "freestanding/freestanding.h"
#include "freestanding/module.h"

enum { LINE = 64 };

void *tfm_module_allocate(uint64_t bytes) { return bytes > SIZE_MAX ? NULL : aligned_alloc(LINE, (size_t)bytes); }

void tfm_module_release(void *memory) { free(memory); }

const int64_t *tfm_module_dims(const tfm_context *context, int32_t is_output) {
  if (!context) return NULL;
  return is_output ? context->binding.output_dims : context->binding.input_dims;
}
