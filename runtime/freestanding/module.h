/* The functions of a WebAssembly module that a library for other machines has no need of: who calls it from outside has
 * no memory in it. They stand in compiler/aot/module_functions.def. */
#ifndef TFM_FREESTANDING_MODULE_H
#define TFM_FREESTANDING_MODULE_H

#include <stdint.h>

#include "tfm/types.h"

/* Bytes at a multiple of 64, to be released by the caller; NULL: there are none. */
void *tfm_module_allocate(uint64_t bytes);
void tfm_module_release(void *memory); /* NULL, and what was not allocated, is ignored */
/* The dims of all inputs, or of all outputs, for the sizes that the context was bound to last, TFM_MAX_RANK numbers
 * each; NULL: no context. They lie there until the next call. */
const int64_t *tfm_module_dims(const tfm_context *context, int32_t is_output);

#endif
