/* Weights in the caller's memory as a safetensors file for the compiler. */
#ifndef TFM_API_TENSORS_H
#define TFM_API_TENSORS_H

#include "tfm/compile.h"

/* Appends them to a nameless file. Refuses names and types that are NULL or unknown, negative sizes, sizes over all
 * memory. What the model needs of them is checked by the compiler. */
tfm_status tensors_write(int file, const tfm_tensor *tensors, size_t n, tfm_error *error);

#endif
