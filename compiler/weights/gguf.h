/* GGUF: the weight files of ggml and llama.cpp, versions 2 and 3 in little endian (docs/gguf.md of ggml).
 *
 *   "GGUF" | version, number of tensors, number of keys | the keys with values of 13 types | of each tensor: name,
 * dims, type, offset | padding | the data, in which every tensor begins at a multiple of general.alignment (32)
 *
 * In: a path. Out: an index of the tensors, which lives in the arena; tensor_file.h reads them. The dims of a tensor
 * are those of PyTorch: the file has them from the fastest to the slowest, they are turned round. The file is not
 * trusted: every length is compared with what is left of it before anything is allocated, tensors must lie within the
 * data, must not overlap, and follow each other with no more than padding between them. Behind the last one anything
 * may stand, as llama.cpp reads such files too. Refuses names and keys that stand twice, that are not UTF-8, have
 * control characters or more than 4,096 bytes, more than 1,000,000 tensors or keys, more than 8 axes, arrays nested
 * deeper than 8, rows that are no whole blocks, and one part of a model that was split. An element type that this
 * program cannot use is an error only once such a tensor is asked for. Every fault gives one message with the file, the
 * byte and the tensor or key. */
#ifndef TFM_WEIGHTS_GGUF_H
#define TFM_WEIGHTS_GGUF_H

#include "weights/tensor_file.h"

/* Whether the file begins like one. False if it cannot be read, without a message. */
bool is_gguf(const char *path);
/* NULL after an error; otherwise the caller must close it. Metadata are the keys with one value; those with an array,
 * and texts of more than 4,096 bytes, are left out. */
TensorFile *gguf_open(Arena *arena, Diag *diag, const char *path);

#endif
