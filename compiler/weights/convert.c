/* In: bytes of a file. Out: elements in memory. Elements are read with memcpy, because a file may hold them at any
 * address. See convert.h. */
#include "weights/convert.h"

#include <string.h>

#include "base/check.h"
#include "base/half.h"

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

// ---- blocks of GGUF ----

/* The layouts are those of ggml (src/ggml-common.h: block_q4_0, block_q8_0, block_q4_K, block_q6_K), the values those
 * of its dequantize_row functions (src/ggml-quants.c). In f32 all is exact but the last operation of Q4_K and of Q6_K,
 * so that another order, or multiply-adds, would give the same bits. */
enum { MOST_BLOCK = 256 };

typedef void BlockValues(const unsigned char *block, float *out);

static float half_at(const unsigned char *bytes) {
  uint16_t bits;
  memcpy(&bits, bytes, sizeof bits);
  return f16_to_f32(bits);
}

/* f16 d; 32 numbers of 8 bits. */
static void values_q8_0(const unsigned char *block, float *out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)block[2 + i];
}

/* f16 d; 16 bytes, the low halves for the first 16 numbers, the high ones for the others. */
static void values_q4_0(const unsigned char *block, float *out) {
  const float d = half_at(block);
  for (int i = 0; i < 16; i++) {
    out[i] = d * (float)((block[2 + i] & 15) - 8);
    out[i + 16] = d * (float)((block[2 + i] >> 4) - 8);
  }
}

/* 12 bytes hold 6 bits for the scale and 6 for the minimum of each of 8 groups: those of the first four in the low bits
 * of bytes 0 to 7, those of the last four in bytes 8 to 11, with their upper two bits on top of bytes 0 to 7. */
static void scale_q4_k(const unsigned char *packed, int group, int *scale, int *minimum) {
  if (group < 4) {
    *scale = packed[group] & 63;
    *minimum = packed[group + 4] & 63;
  } else {
    *scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
    *minimum = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
  }
}

/* f16 d, f16 of the minima; 12 bytes of scales; 128 bytes: of each 32, the low halves are a group and the high ones the
 * next. */
static void values_q4_k(const unsigned char *block, float *out) {
  const float d = half_at(block), of_minima = half_at(block + 2);
  for (int group = 0; group < 8; group++) {
    int scale, minimum;
    scale_q4_k(block + 4, group, &scale, &minimum);
    const float step = d * (float)scale, least = of_minima * (float)minimum;
    const unsigned char *q = block + 16 + group / 2 * 32;
    for (int i = 0; i < 32; i++) out[32 * group + i] = step * (float)(group % 2 ? q[i] >> 4 : q[i] & 15) - least;
  }
}

/* 128 bytes of low halves, 64 of upper two bits, 16 scales of 8 bits, f16 d. Each half of the block is four runs of 32
 * numbers: run r has its low bits in the lower (r < 2) or upper halves of bytes 32 (r % 2) on, and its upper bits at
 * 2 r. */
static void values_q6_k(const unsigned char *block, float *out) {
  const float d = half_at(block + 208);
  for (int i = 0; i < 256; i++) {
    const int half = i / 128, run = i / 32 % 4, at = i % 32;
    const int low = block[64 * half + run % 2 * 32 + at] >> (run < 2 ? 0 : 4) & 15;
    const int high = block[128 + 32 * half + at] >> 2 * run & 3;
    out[i] = d * (float)(int8_t)block[192 + i / 16] * (float)((low | high << 4) - 32);
  }
}

static BlockValues *const block_values[N_FILE_DTYPES] = {
    [FILE_Q8_0] = values_q8_0, [FILE_Q4_0] = values_q4_0, [FILE_Q4_K] = values_q4_k, [FILE_Q6_K] = values_q6_k};

void convert_blocks(FileDType from, size_t skip, size_t n, const unsigned char *bytes, float *out) {
  float values[MOST_BLOCK];
  const size_t elements = (size_t)file_blocks[from].elements;
  while (n) {
    const size_t taken = n < elements - skip ? n : elements - skip;
    block_values[from](bytes, values);
    memcpy(out, values + skip, taken * sizeof *out);
    bytes += file_blocks[from].bytes;
    out += taken;
    n -= taken;
    skip = 0;
  }
}

// ---- runs of elements ----

bool convert_has_blocks(FileDType from) { return block_values[from] != NULL; }

bool can_convert(FileDType from, DType to) {
  switch (to) {
    case DTYPE_F32:
      return from == FILE_F32 || from == FILE_F16 || from == FILE_BF16 || from == FILE_F8_E4M3 ||
             (from < N_FILE_DTYPES && block_values[from]);
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
  if (block_values[from])
    convert_blocks(from, 0, n, bytes, out);
  else if (from == FILE_F16 || from == FILE_BF16)
    widen(from, n, bytes, out);
  else if (from == FILE_I8 || from == FILE_F8_E4M3)
    widen_bytes(from, n, bytes, out);
  else if (n) memcpy(out, bytes, 4 * n);
  return n;
}
