/* TensorFile: weight files and files of inputs and outputs.
 *
 *   8 bytes: n, little-endian | n bytes of JSON: {"name": {"dtype", "shape", "data_offsets"}, ...} | the data
 *
 * In: a path. Out: an index of the tensors, which lives in the arena; tensor_file.h reads them. The file is not
 * trusted: the header is checked completely before anything is allocated whose size it states. The tensors must cover
 * the data without a hole, an overlap or a rest, so that no byte of a file can be hidden or read as two tensors.
 * Refuses headers over 100,000,000 bytes, more than 1,000,000 tensors, names over 4,096 bytes or with control
 * characters, and duplicate keys, which readers would resolve differently. An element type that this program cannot use
 * is an error only once such a tensor is asked for. Every fault gives one message with the file, the byte in the header
 * and the tensor. */
#ifndef TFM_WEIGHTS_SAFETENSORS_H
#define TFM_WEIGHTS_SAFETENSORS_H

#include "weights/tensor_file.h"

enum {
  SAFETENSORS_MAX_HEADER = 100000000, /* the limit of the safetensors library itself */
  SAFETENSORS_MAX_TENSORS = 1000000,  /* bounds the memory of the index; large models have some ten thousands */
  SAFETENSORS_MAX_NAME = 4096,        /* bytes; names are printed in messages */
  SAFETENSORS_MAX_METADATA = 4096     /* bytes of a value; a longer one is cut */
};

/* NULL after an error; otherwise the caller must close it. The index lives in the arena. */
TensorFile *safetensors_open(Arena *arena, Diag *diag, const char *path);
/* Writes tensors; the same tensors give the same bytes. The data begin at a multiple of 8, every f32 and i32 tensor at
 * a multiple of 4. False after an error; then there is no file. */
bool safetensors_write(Diag *diag, const char *path, const char *const *names, const Tensor *tensors, uint32_t n);

#endif
