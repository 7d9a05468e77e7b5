/* Convert: elements as they stand in a file to elements as they stand in memory.
 *
 * In: bytes of a file type, little-endian, at any address. Out: f32, i32 or bool. Exact: f16 and bf16 are widened,
 * NaN payloads kept; an i64 must fit in 32 bits, a bool must be 0 or 1. */
#ifndef TFM_WEIGHTS_CONVERT_H
#define TFM_WEIGHTS_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
/* Whether there is a conversion, and if so what types there are: "F32, F16, BF16". */
bool can_convert(FileDType from, DType to);
const char *convertible_names(DType to);
/* Converts n elements. Returns n, or the index of the first that does not fit, whose value is put in *value. */
size_t convert_elements(FileDType from, DType to, size_t n, const unsigned char *bytes, void *out, int64_t *value);

float f16_to_f32(uint16_t bits);
float bf16_to_f32(uint16_t bits);

#endif
