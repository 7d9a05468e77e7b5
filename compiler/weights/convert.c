/* In: bytes of a file. Out: elements in memory. Elements are read with memcpy, because a file may hold them at any
 * address. See convert.h. */
#include "weights/convert.h"

#include <string.h>

#include "base/check.h"
#include "tfm/abi/half.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "weight files are little-endian, and so must the host be");

// ---- types ----

const char *const file_dtype_names[N_FILE_DTYPES] = {
#define FILE_DTYPE(Enum, name, elements, bytes, gguf) [FILE_##Enum] = name,
#include "weights/file_dtype.def"
};

const FileBlock file_blocks[N_FILE_DTYPES] = {
#define FILE_DTYPE(Enum, name, elements, bytes, gguf) [FILE_##Enum] = {elements, bytes, gguf},
#include "weights/file_dtype.def"
};

/* A type that is not in the table may still stand in a file; it is an error only once such a tensor is asked for. */
FileDType file_dtype_find(const char *name) {
  for (int i = 0; i < FILE_Q4_0; i++)
    if (strcmp(name, file_dtype_names[i]) == 0) return (FileDType)i;
  return FILE_UNKNOWN;
}

FileDType file_dtype_of_gguf(uint32_t number) {
  for (int i = 0; i < N_FILE_DTYPES; i++)
    if (file_blocks[i].gguf >= 0 && (uint32_t)file_blocks[i].gguf == number) return (FileDType)i;
  return FILE_UNKNOWN;
}

void print_dims(StrBuf *out, const int64_t *dims, uint32_t rank) {
  strbuf_add_char(out, '[');
  for (uint32_t i = 0; i < rank; i++) strbuf_printf(out, "%s%lld", i ? ", " : "", (long long)dims[i]);
  strbuf_add_char(out, ']');
}

// ---- runs of elements ----

bool can_convert(FileDType from, DType to) {
  switch (to) {
    case DTYPE_F32:
      return from == FILE_F32 || from == FILE_F16 || from == FILE_BF16 || from == FILE_F8_E4M3 ||
             convert_has_blocks(from);
    case DTYPE_I32: return from == FILE_I32 || from == FILE_I64;
    case DTYPE_BOOL: return from == FILE_BOOL || from == FILE_U8;
    default: return false;
  }
}

const char *convertible_names(DType to) {
  return to == DTYPE_F32 ? "F32, F16, BF16 or F8_E4M3" : to == DTYPE_I32 ? "I32 or I64" : "BOOL or U8";
}

/* A sign, 4 bits of exponent with the bias 7, 3 of mantissa; no infinity, and the greatest number of each sign is NaN
 * (Micikevicius et al. 2022, FP8 Formats for Deep Learning; the "fn" of PyTorch's float8_e4m3fn). */
static float f8_e4m3_to_f32(unsigned char bits) {
  const uint32_t sign = (uint32_t)(bits & 128) << 24, exponent = bits >> 3 & 15, mantissa = bits & 7;
  if (!exponent) return half_float_of(sign | half_bits_of((float)mantissa * 0x1p-9f));
  if (exponent == 15 && mantissa == 7) return half_float_of(sign | 0x7fc00000u);
  return half_float_of(sign | (exponent + 120) << 23 | mantissa << 20);
}

/* bf16 is the upper half of an f32, so its conversion is a shift. */
static void widen(FileDType from, size_t n, const unsigned char *bytes, float *out) {
  for (size_t i = 0; i < n; i++) {
    uint16_t bits;
    memcpy(&bits, bytes + 2 * i, sizeof bits);
    out[i] = from == FILE_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

static void widen_bytes(FileDType from, size_t n, const unsigned char *bytes, float *out) {
  for (size_t i = 0; i < n; i++) out[i] = from == FILE_I8 ? (float)(int8_t)bytes[i] : f8_e4m3_to_f32(bytes[i]);
}

/* PyTorch writes ids as i64; those of a model fit in 32 bits, and one that does not is reported with its index. */
static size_t narrow(size_t n, const unsigned char *bytes, int32_t *out, int64_t *value) {
  for (size_t i = 0; i < n; i++) {
    memcpy(value, bytes + 8 * i, sizeof *value);
    if (*value < INT32_MIN || *value > INT32_MAX) return i;
    out[i] = (int32_t)*value;
  }
  return n;
}

static size_t copy_bools(size_t n, const unsigned char *bytes, unsigned char *out, int64_t *value) {
  for (size_t i = 0; i < n; i++) {
    *value = bytes[i];
    if (bytes[i] > 1) return i;
    out[i] = bytes[i];
  }
  return n;
}

size_t convert_elements(FileDType from, DType to, size_t n, const unsigned char *bytes, void *out, int64_t *value) {
  CHECK(can_convert(from, to) || (from == FILE_I8 && to == DTYPE_F32), "no conversion from %s", file_dtype_names[from]);
  if (to == DTYPE_BOOL) return copy_bools(n, bytes, out, value);
  if (from == FILE_I64) return narrow(n, bytes, out, value);
  if (convert_has_blocks(from))
    convert_blocks(from, 0, n, bytes, out);
  else if (from == FILE_F16 || from == FILE_BF16)
    widen(from, n, bytes, out);
  else if (from == FILE_I8 || from == FILE_F8_E4M3)
    widen_bytes(from, n, bytes, out);
  else if (n) memcpy(out, bytes, 4 * n);
  return n;
}
