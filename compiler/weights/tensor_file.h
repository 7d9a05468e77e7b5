/* TensorFile: a file of tensors by name, of either kind that can hold weights: safetensors.h, gguf.h.
 *
 * In: a file that was opened, whose index is checked: every tensor lies within the data and has the bytes that its
 * shape and type take. Out: tensors as f32, i32 or bool, read and converted on demand into memory of the caller. */
#ifndef TFM_WEIGHTS_TENSOR_FILE_H
#define TFM_WEIGHTS_TENSOR_FILE_H

#include "base/map.h"
#include "graph/eval.h"
#include "weights/convert.h"
#include "weights/files.h"

typedef struct FileTensor {
  const char *name;
  const char *dtype_name; /* as it stands in the file */
  FileDType dtype;
  uint32_t rank;
  const int64_t *dims;
  int64_t elements;
  int64_t begin, end;    /* bytes of the data, counted from the first after the header */
  int64_t turned_heads;  /* not 0: the rows of each of so many heads stand in pairs, (0, n/2), (1, n/2 + 1) ... */
  int64_t header_offset; /* where its name stands in the header */
} FileTensor;

typedef struct FileMetadata {
  const char *key, *value;
} FileMetadata;

typedef struct TensorFile {
  InFile file;
  bool is_gguf;
  int64_t data_begin, data_size;
  VEC(FileTensor *) tensors; /* in the order of the header */
  VEC(FileMetadata) metadata;
  VEC(const char *) lists; /* keys of GGUF that have an array, or a long text: their values are left out */
  Map by_name;
} TensorFile;

/* For readers of headers: checks that tensors do not overlap, and that less than `alignment` bytes lie before each that
 * belong to none. False after an error, of `code`. */
bool tensor_file_check_tiling(Arena *arena, Diag *diag, const TensorFile *file, DiagCode code, int64_t alignment);
void tensor_file_close(TensorFile *file); /* NULL is ignored */
const FileTensor *tensor_file_find(const TensorFile *file, const char *name);
/* The value of a key of the metadata, as text; NULL: there is none. */
const char *tensor_file_metadata(const TensorFile *file, const char *key);

/* Reads a tensor as f32, i32 or bool into `out`, which has room for all of its elements. can_convert must
 * have said yes. False after an error: a value does not fit, or the file cannot be read. */
bool tensor_file_read(const TensorFile *file, Diag *diag, const FileTensor *tensor, DType dtype, void *out);
typedef struct FileTensorPart { /* elements [first, first + n), which must lie within the tensor */
  const FileTensor *tensor;
  int64_t first, n;
} FileTensorPart;

/* The same for a part; `out` has room for n. */
bool tensor_file_read_part(const TensorFile *file, Diag *diag, FileTensorPart part, DType dtype, void *out);

typedef struct SpecialCounts {
  int64_t nan, infinite, subnormal;
} SpecialCounts;

/* Counts the elements of a tensor of F32, F16 or BF16 that are special. False after an error. */
bool tensor_file_count(const TensorFile *file, Diag *diag, const FileTensor *tensor, SpecialCounts *counts);

#endif
