/* INT4: numbers f from -8 to 7, times a whole number g from -15 to 15 for each group of 32 of them, times a scale for
 * each column, which is a row of a weight that was rotated. Four groups, a block, have their numbers g in one line, a
 * byte of a lane each. Of 8 steps of k of a group the first four are lower halves of bytes, the others upper ones, so
 * that a mask, or a shift and a mask, leaves four bytes as INT8 has them, 8 too large.
 *
 *   a block of a panel      groups     g0 g1 g2 g3                | next column     signed bytes; 0 if there is none
 *                           k 0 .. 7   f4 f0 | f5 f1 | f6 f2 | f7 f3 | next column  4 bytes, upper half first; f + 8
 *                           k 8 .. 15  ...
 *                           ...        to k 127, or the last
 *   behind the last block   scales     s0 | s1 | ...                                f32
 *
 * In: a panel, a column of it, its scale. Out: the row, still rotated. Refuses nothing: k is a multiple of 32. */
#ifndef TFM_FORM_INT4_H
#define TFM_FORM_INT4_H

#include "tfm/abi/kernels.h"

/* Where the numbers of the block that step k is in begin, for a column. */
static inline int64_t tfm_int4_block(int64_t width, int64_t lane, int64_t k) {
  return width * tfm_form_bytes(TFM_FORM_INT4, k - k % (TFM_GROUP * TFM_GROUPS)) + lane * 4;
}

/* From there, where the byte of step k stands; its upper half is that of the step four further. */
static inline int64_t tfm_int4_in_block(int64_t width, int64_t k) {
  const int64_t group = k / TFM_GROUP % TFM_GROUPS, at = k % TFM_GROUP;
  return width * TFM_GROUPS + group * width * TFM_GROUP / 2 + at / 8 * 4 * width + at % 4;
}

static inline void tfm_int4_unpack(const char *panel, int64_t width, int64_t lane, int64_t k, float scale, float *row) {
  for (int64_t i = 0; i < k; i++) {
    const char *block = panel + tfm_int4_block(width, lane, i);
    const int pair = (uint8_t)block[tfm_int4_in_block(width, i)], group = (int8_t)block[i / TFM_GROUP % TFM_GROUPS];
    row[i] = (float)(((i % 8 < 4 ? pair : pair >> 4) % 16 - 8) * group) * scale;
  }
}

#endif
