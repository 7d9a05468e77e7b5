/* Convert: elements as they stand in a file to elements as they stand in memory.
 *
 * In: little-endian bytes of a file type, at any address. Out: f32, i32 or bool, exactly: f16 and bf16 are widened,
 * which loses nothing, and keep their NaN payloads. Refuses an i64 that does not fit in 32 bits and a bool that is
 * neither 0 nor 1: both would silently become another value. F64 is not converted, because rounding would be. */
#ifndef TFM_WEIGHTS_CONVERT_H
#define TFM_WEIGHTS_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "graph/expr.h"

typedef enum FileDType {
#define FILE_DTYPE(Enum, name, bits) FILE_##Enum,
#include "weights/file_dtype.def"
  N_FILE_DTYPES,
  FILE_UNKNOWN = N_FILE_DTYPES /* a name that is not in the table */
} FileDType;

extern const char *const file_dtype_names[N_FILE_DTYPES];
extern const uint8_t file_dtype_bits[N_FILE_DTYPES];

FileDType file_dtype_find(const char *name);
bool can_convert(FileDType from, DType to);
/* The types that convert to `to`, for messages: "F32, F16 or BF16". */
const char *convertible_names(DType to);
/* Converts n elements; can_convert must have said yes. Returns n, or the index of the first that does not fit;
 * *value is
 * then its value. `out` must have room for n elements of `to`. */
size_t convert_elements(FileDType from, DType to, size_t n, const unsigned char *bytes, void *out, int64_t *value);

/* A shape, for messages: "[2, 3]". */
void print_dims(StrBuf *out, const int64_t *dims, uint32_t rank);

#endif
