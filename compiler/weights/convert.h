/* Convert: elements as they stand in a file to elements as they stand in memory.
 *
 * In: little-endian bytes of a file type, at any address. Out: f32, i32 or bool. f16 and bf16 are widened, which loses
 * nothing, and keep their NaN payloads; F8_E4M3 is widened too, and blocks of GGUF give the values that their format
 * defines. Refuses an i64 that does not fit in 32 bits and a bool that is neither 0 nor 1: both would silently become
 * another value. F64 is not converted, because rounding would be. */
#ifndef TFM_WEIGHTS_CONVERT_H
#define TFM_WEIGHTS_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "graph/expr.h"

typedef enum FileDType {
#define FILE_DTYPE(Enum, name, elements, bytes, gguf) FILE_##Enum,
#include "weights/file_dtype.def"
  N_FILE_DTYPES,
  FILE_UNKNOWN = N_FILE_DTYPES /* a name that is not in the table */
} FileDType;

extern const char *const file_dtype_names[N_FILE_DTYPES];
/* Numbers of GGUF are kept by blocks, those of other types by one. */
typedef struct FileBlock {
  int16_t elements, bytes, gguf; /* gguf: the type's number there; -1: GGUF does not have it */
} FileBlock;

extern const FileBlock file_blocks[N_FILE_DTYPES];

FileDType file_dtype_find(const char *name); /* as safetensors calls it */
FileDType file_dtype_of_gguf(uint32_t number);
bool can_convert(FileDType from, DType to);
bool convert_has_blocks(FileDType from);
/* n elements from number `skip` of the first block on, of a type that has blocks. */
void convert_blocks(FileDType from, size_t skip, size_t n, const unsigned char *bytes, float *out);
/* The types that convert to `to`, for messages: "F32, F16, BF16 or F8_E4M3". */
const char *convertible_names(DType to);
/* Converts n elements, of which the first begins a block; can_convert must have said yes, or `from` be I8 and `to` f32:
 * a number that only a scale makes a weight. Returns n, or the index of the first that does not fit; *value is then its
 * value. `out` must have room for n elements of `to`. */
size_t convert_elements(FileDType from, DType to, size_t n, const unsigned char *bytes, void *out, int64_t *value);

/* A shape, for messages: "[2, 3]". */
void print_dims(StrBuf *out, const int64_t *dims, uint32_t rank);

#endif
