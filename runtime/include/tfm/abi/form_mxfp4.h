/* MXFP4 (OCP Microscaling Formats 1.0): numbers of 4 bits, a sign, two bits of exponent and one of mantissa (E2M1: 0,
 * 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, -0 too), times a power of two for each group of 32 of them, which is a
 * byte (E8M0: 2^(byte - 127)). Four groups, a block, have their powers in one line, a byte of a lane each; eight steps
 * of k of a column are a word, the first in its lowest bits.
 *
 *   a block of a panel      powers     s0 s1 s2 s3       | next column     0 where there is no group
 *                           k 0 .. 7   f1 f0 | f3 f2 | f5 f4 | f7 f6 | next column     4 bytes, upper half first
 *                           k 8 .. 15  ...
 *                           ...        to k 127, or the last
 *
 * A product in it is one of f32. Of TFM_MXFP4_CHAIN steps of k, x times the numbers of 4 bits are a chain of FMAs from
 * 0; its sum, times the power, is added by an FMA to the chain of TFM_SHORT_CHAIN steps (tfm/abi/kernels.h).
 *
 * In: a panel, a column of it. Out: the row. Refuses nothing: k is a multiple of 32. */
#ifndef TFM_FORM_MXFP4_H
#define TFM_FORM_MXFP4_H

#include <math.h>

#include "tfm/abi/kernels.h"

enum {
  TFM_MXFP4_CHAIN = 16, /* steps of k, whole words of a group: a part of the definition of the bits */
  TFM_MXFP4_BIAS = 127 /* of a power */
};

/* Where the powers of the block that step k is in stand, for a column. */
static inline int64_t tfm_mxfp4_block(int64_t width, int64_t lane, int64_t k) {
  return width * tfm_form_bytes(TFM_FORM_MXFP4, k - k % (TFM_GROUP * TFM_GROUPS)) + lane * 4;
}

/* From there, where the byte of step k stands, whose lower half is that of an even step. */
static inline int64_t tfm_mxfp4_in_block(int64_t width, int64_t k) {
  const int64_t word = k % (TFM_GROUP * TFM_GROUPS) / 8;
  return (1 + word) * 4 * width + k % 8 / 2;
}

static inline float tfm_mxfp4_number(int code) {
  static const float of_code[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return code & 8 ? -of_code[code & 7] : of_code[code & 7];
}

static inline void tfm_mxfp4_unpack(const char *panel, int64_t width, int64_t lane, int64_t k, float *row) {
  for (int64_t i = 0; i < k; i++) {
    const char *block = panel + tfm_mxfp4_block(width, lane, i);
    const int pair = (uint8_t)block[tfm_mxfp4_in_block(width, i)], power = (uint8_t)block[i / TFM_GROUP % TFM_GROUPS];
    row[i] = ldexpf(tfm_mxfp4_number(i % 2 ? pair >> 4 : pair & 15), power - TFM_MXFP4_BIAS);
  }
}

#endif
