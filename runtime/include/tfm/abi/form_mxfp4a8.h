/* MXFP4A8: the numbers of MXFP4 (form_mxfp4.h), for products whose rows have 8 bits. They lie in a panel as those of
 * INT4 do (form_int4.h), so that a mask, or a shift and a mask, leaves four of them in the bytes of a word: what tiles
 * look up.
 *
 *   a block of a panel      powers     s0 s1 s2 s3       | next column     0 where there is no group
 *                           k 0 .. 7   f4 f0 | f5 f1 | f6 f2 | f7 f3 | next column     4 bytes, upper half first
 *                           k 8 .. 15  ...
 *                           ...        to k 127, or the last
 *
 * A row of x is rounded in groups of 32: a is the greatest magnitude of one. If any of its numbers is not finite its
 * scale is NaN; if a < 2^-100 its whole numbers and its scale are 0; else q[i] is the whole number nearest to x[i]
 * (127 / a), of two the even one, and the scale a / 254. Of each group, in order, the exact sum of q times twice the
 * numbers of 4 bits, as f32, times the scale, is multiplied by the power and added to the result, from 0 on: operations
 * of IEEE 754 on f32, the last one an FMA. Multiplying by a power of two is exact, so where there is no FMA the bits
 * are the same, unless they are of numbers below 2^-125.
 *
 * In: a panel, a column of it. Out: the row. Refuses nothing: k is a multiple of 32. */
#ifndef TFM_FORM_MXFP4A8_H
#define TFM_FORM_MXFP4A8_H

#include "tfm/abi/form_int4.h"
#include "tfm/abi/form_mxfp4.h"

enum {
  TFM_MXFP4A8_TOP = 254 /* a scale times this is the greatest magnitude of a group of x: 127, and half of it */
};

static inline void tfm_mxfp4a8_unpack(const char *panel, int64_t width, int64_t lane, int64_t k, float *row) {
  for (int64_t i = 0; i < k; i++) {
    const char *block = panel + tfm_int4_block(width, lane, i);
    const int pair = (uint8_t)block[tfm_int4_in_block(width, i)], power = (uint8_t)block[i / TFM_GROUP % TFM_GROUPS];
    row[i] = ldexpf(tfm_mxfp4_number((i % 8 < 4 ? pair : pair >> 4) & 15), power - TFM_MXFP4_BIAS);
  }
}

#endif
