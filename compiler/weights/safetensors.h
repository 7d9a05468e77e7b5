/* SafeTensors: weight files and files of inputs and outputs.
 *
 *   8 bytes: n, little-endian | n bytes of JSON: {"name": {"dtype", "shape", "data_offsets"}, ...} | the data
 *
 * In: a path. Out: an index of the tensors, which lives in the arena, and single tensors, read and converted on demand
 * into memory of the caller. The file is not trusted: the header is checked completely before anything is allocated
 * whose size it states. The tensors must cover the data without a hole, an overlap or a rest, so that no byte of a
 * file can be hidden or read as two tensors. Refuses headers over 100,000,000 bytes, more than 1,000,000 tensors,
 * names over 4,096 bytes or with control characters, and duplicate keys, which readers would resolve differently. An
 * element type that this program cannot use is an error only once such a tensor is asked for. Every fault gives one
 * message with the file, the byte in the header and the tensor. */
#ifndef TFM_WEIGHTS_SAFETENSORS_H
#define TFM_WEIGHTS_SAFETENSORS_H

#include "base/map.h"
#include "graph/eval.h"
#include "weights/convert.h"
#include "weights/files.h"

enum {
  SAFETENSORS_MAX_HEADER = 100000000, /* the limit of the safetensors library itself */
  SAFETENSORS_MAX_TENSORS = 1000000,  /* bounds the memory of the index; large models have some ten thousands */
  SAFETENSORS_MAX_NAME = 4096,        /* bytes; names are printed in messages */
  SAFETENSORS_MAX_METADATA = 4096     /* bytes of a value; a longer one is cut */
};

typedef struct StTensor {
  const char *name;
  const char *dtype_name; /* as it stands in the file */
  FileDType dtype;
  uint32_t rank;
  const int64_t *dims;
  int64_t elements;
  int64_t begin, end;    /* bytes of the data, counted from the first after the header */
  int64_t header_offset; /* where its name stands in the header */
} StTensor;

typedef struct StMetadata {
  const char *key, *value;
} StMetadata;

typedef struct SafeTensors {
  InFile file;
  int64_t data_begin, data_size;
  VEC(StTensor *) tensors; /* in the order of the header */
  VEC(StMetadata) metadata;
  Map by_name;
} SafeTensors;

/* NULL after an error; otherwise the caller must close it. The index lives in the arena. */
SafeTensors *safetensors_open(Arena *arena, Diag *diag, const char *path);
void safetensors_close(SafeTensors *file); /* NULL is ignored */
const StTensor *safetensors_find(const SafeTensors *file, const char *name);

/* Reads a tensor as f32, i32 or bool into `out`, which has room for all of its elements. can_convert must
 * have said yes. False after an error: a value does not fit, or the file cannot be read. */
bool safetensors_read(const SafeTensors *file, Diag *diag, const StTensor *tensor, DType dtype, void *out);
/* The same for its elements [first, first + n), which must lie within it; `out` has room for n. */
bool safetensors_read_part(const SafeTensors *file, Diag *diag, const StTensor *tensor, int64_t first, int64_t n,
                           DType dtype, void *out);

typedef struct StCounts {
  int64_t nan, infinite, subnormal;
} StCounts;

/* Counts the elements of a tensor of F32, F16 or BF16 that are special. False after an error. */
bool safetensors_count(const SafeTensors *file, Diag *diag, const StTensor *tensor, StCounts *counts);

/* Writes tensors; the same tensors give the same bytes. The data begin at a multiple of 8, every f32 and i32 tensor at
 * a multiple of 4. False after an error; then there is no file. */
bool safetensors_write(Diag *diag, const char *path, const char *const *names, const Tensor *tensors, uint32_t n);

#endif
