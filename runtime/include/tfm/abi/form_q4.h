/* Q4G32, Q4G64, Q4G128, and the same with A8: numbers q of 4 bits, which stand for whole numbers d = q - z, times a
 * scale s for each group of 32, 64 or 128 of them, rounded. That is what AWQ, GPTQ and packed 4 bits of
 * compressed-tensors are, and Q4_0 of GGUF. A group has a word of 32 bits in a line before its numbers; of 8 steps of k
 * the first four are lower halves of bytes, the others upper ones, as in INT4.
 *
 *   a group of a panel      word       s, r, 16 - z          | next column     4 bytes
 *                           k 0 .. 7   q4 q0 | q5 q1 | q6 q2 | q7 q3 | next column     4 bytes, upper half first
 *                           k 8 .. 15  ...
 *                           ...        to k 31, 63 or 127
 *
 *   bits of a word   31 .. 13   s >= 0, the upper bits of an f32: its mantissa has 11 bits
 *                    9 .. 5     r, by which numbers are rounded: 13 leaves the 11 bits of f16, 16 the 8 of bf16, 2 all
 *                    4 .. 0     16 - z, from 0 to 17
 *
 * d times s has at most 16 bits, so it is exact in f32; adding 1.5 2^r times its power of two and taking that away
 * again rounds it to 24 - r bits, of two equally near numbers to the even one. Where s is too small for a normal f16,
 * or bf16, d times s has no more bits than the type has there, so the result is that of the type too.
 *
 * A product in Q4 is one of f32 with these numbers: the bits are those that they give in an f32 weight. A product in
 * Q4..A8 is that of MXFP4A8 (form_mxfp4a8.h) with d in place of twice the numbers and 2 s in place of the power; d
 * times s is not rounded by itself, and what it gives is multiplied and added, without an FMA.
 *
 * In: a panel, a column of it. Out: the row. Refuses nothing: k is a multiple of the group. */
#ifndef TFM_FORM_Q4_H
#define TFM_FORM_Q4_H

#include <string.h>

#include "tfm/abi/kernels.h"

enum {
  TFM_Q4_ZERO = 16, /* less z is in a word */
  TFM_Q4_ZEROS = 31,
  TFM_Q4_SHIFT = 5, /* from bit 0 to r */
  TFM_Q4_F16 = 13,
  TFM_Q4_BF16 = 16,
  TFM_Q4_EXACT = 2
};
#define TFM_Q4_SCALE 0xffffe000u
#define TFM_Q4_EXPONENT 0x7f800000u /* of an f32 */
#define TFM_Q4_HALF 0x00400000u     /* its mantissa of 1.5 */

static inline float tfm_q4_of_bits(uint32_t bits) {
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

static inline float tfm_q4_rounded(float number, unsigned r) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  const float large = tfm_q4_of_bits((bits & TFM_Q4_EXPONENT) + (r << 23) + TFM_Q4_HALF), sum = number + large;
  return sum - large;
}

static inline float tfm_q4_number(uint32_t word, int q) {
  const int d = q + (int)(word & TFM_Q4_ZEROS) - TFM_Q4_ZERO;
  return tfm_q4_rounded((float)d * tfm_q4_of_bits(word & TFM_Q4_SCALE), word >> TFM_Q4_SHIFT & 31);
}

/* Where the word of the group that step k is in stands, for a column. */
static inline int64_t tfm_q4_block(unsigned form, int64_t width, int64_t lane, int64_t k) {
  return width * tfm_form_bytes(form, k - k % tfm_form_row_of(form)->group) + lane * 4;
}

/* From there, where the byte of a step of the group stands; its upper half is that of the step four further. */
static inline int64_t tfm_q4_in_block(int64_t width, int64_t step) { return (1 + step / 8) * 4 * width + step % 4; }

static inline void tfm_q4_unpack(unsigned form, const char *panel, int64_t width, int64_t lane, int64_t k, float *row) {
  for (int64_t i = 0; i < k; i++) {
    const char *block = panel + tfm_q4_block(form, width, lane, i);
    const int pair = (uint8_t)block[tfm_q4_in_block(width, i % tfm_form_row_of(form)->group)];
    uint32_t word;
    memcpy(&word, block, sizeof word);
    row[i] = tfm_q4_number(word, (i % 8 < 4 ? pair : pair >> 4) & 15);
  }
}

#endif
