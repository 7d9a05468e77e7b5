/* Blocks of GGUF. In: bytes of whole blocks. Out: their numbers, as f32. See convert.h.
 *
 * The layouts are those of ggml (src/ggml-common.h: block_q4_0 and its neighbours), the values those of its
 * dequantize_row functions (src/ggml-quants.c). In f32 all is exact but the last operation of a block with minima and
 * that of Q6_K, so that another order, or multiply-adds, would give the same bits. */
#include <string.h>

#include "tfm/abi/half.h"
#include "weights/convert.h"

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

/* The number of 5 bits at place i of 32: the lower four as in Q4_0, the fifth is bit i of `high`. */
static int q5_at(const unsigned char *low, const unsigned char *high, int i) {
  const int four = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
  return four | (high[i / 8] >> i % 8 & 1) << 4;
}

/* f16 d; 4 bytes of fifth bits; 16 bytes. */
static void values_q5_0(const unsigned char *block, float *out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; i++) out[i] = d * (float)(q5_at(block + 6, block + 2, i) - 16);
}

/* f16 d, f16 of the least number; 4 bytes of fifth bits; 16 bytes. */
static void values_q5_1(const unsigned char *block, float *out) {
  const float d = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < 32; i++) out[i] = d * (float)q5_at(block + 8, block + 4, i) + least;
}

/* f16 d, f16 of the least number; 16 bytes. */
static void values_q4_1(const unsigned char *block, float *out) {
  const float d = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < 32; i++) out[i] = d * (float)(i < 16 ? block[4 + i] & 15 : block[i - 12] >> 4) + least;
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

/* f16 d, f16 of the minima; 12 bytes of scales; in Q5_K 32 bytes of fifth bits: bit g of byte i is that of number i of
 * group g; 128 bytes: of each 32, the low halves are a group and the high ones the next. */
static void values_q45_k(const unsigned char *block, const unsigned char *high, const unsigned char *halves,
                         float *out) {
  const float d = half_at(block), of_minima = half_at(block + 2);
  for (int group = 0; group < 8; group++) {
    int scale, minimum;
    scale_q4_k(block + 4, group, &scale, &minimum);
    const float step = d * (float)scale, least = of_minima * (float)minimum;
    const unsigned char *q = halves + group / 2 * 32;
    for (int i = 0; i < 32; i++) {
      const int low = group % 2 ? q[i] >> 4 : q[i] & 15, fifth = high ? high[i] >> group & 1 : 0;
      out[32 * group + i] = step * (float)(low | fifth << 4) - least;
    }
  }
}

static void values_q4_k(const unsigned char *block, float *out) { values_q45_k(block, NULL, block + 16, out); }

static void values_q5_k(const unsigned char *block, float *out) { values_q45_k(block, block + 16, block + 48, out); }

/* The two bits of number i: of each half of a block, run r of 32 numbers is at bits 2 r of 32 bytes. */
static int two_bits(const unsigned char *bytes, int i) { return bytes[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3; }

/* 16 bytes, of each 16 numbers 4 bits of a scale and 4 of a minimum; 64 bytes; f16 d, f16 of the minima. */
static void values_q2_k(const unsigned char *block, float *out) {
  const float d = half_at(block + 80), of_minima = half_at(block + 82);
  for (int i = 0; i < 256; i++) {
    const int packed = block[i / 16];
    out[i] = d * (float)(packed & 15) * (float)two_bits(block + 16, i) - of_minima * (float)(packed >> 4);
  }
}

/* 32 bytes of third bits, bit r of byte i for number i of run r; 64 bytes of two bits; 12 bytes of 16 scales of 6 bits:
 * the lower four in the halves of bytes 0 to 7, the upper two in bytes 8 to 11, at 2 (s / 4) of byte s % 4; f16 d. */
static void values_q3_k(const unsigned char *block, float *out) {
  const float d = half_at(block + 108);
  const unsigned char *scales = block + 96;
  for (int i = 0; i < 256; i++) {
    const int s = i / 16, low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
    const int scale = (low | (scales[8 + s % 4] >> 2 * (s / 4) & 3) << 4) - 32;
    const int q = two_bits(block + 32, i) - (block[i % 32] >> i / 32 & 1 ? 0 : 4);
    out[i] = d * (float)scale * (float)q;
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
    [FILE_Q8_0] = values_q8_0, [FILE_Q4_0] = values_q4_0, [FILE_Q4_1] = values_q4_1, [FILE_Q5_0] = values_q5_0,
    [FILE_Q5_1] = values_q5_1, [FILE_Q2_K] = values_q2_k, [FILE_Q3_K] = values_q3_k, [FILE_Q4_K] = values_q4_k,
    [FILE_Q5_K] = values_q5_k, [FILE_Q6_K] = values_q6_k};

bool convert_has_blocks(FileDType from) { return from < N_FILE_DTYPES && block_values[from] != NULL; }

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
