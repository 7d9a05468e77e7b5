/* BF16: the upper halves of f32, two steps of k of a column in 32 bits, so that one instruction widens each: the even
 * step stands in the upper half, where a mask leaves its f32, the odd one in the lower half, which is shifted up.
 *
 *   panel of 3 columns      k 0, 1   w01 w00 | w11 w10 | w21 w20       2 bytes each, the lower half first: w[column][k]
 *                           k 2, 3   w03 w02 | w13 w12 | w23 w22
 *                           ...                                        behind an odd k a lower half is 0
 *
 * In: a panel, a column of it. Out: its numbers. Refuses nothing. */
#ifndef TFM_FORM_BF16_H
#define TFM_FORM_BF16_H

#include <stdint.h>
#include <string.h>

/* Where number k of a column stands in a panel, in bytes. */
static inline int64_t tfm_bf16_at(int64_t width, int64_t lane, int64_t k) {
  return ((k / 2 * width + lane) * 2 + (k % 2 == 0)) * 2;
}

static inline void tfm_bf16_unpack(const char *panel, int64_t width, int64_t lane, int64_t k, float *row) {
  for (int64_t i = 0; i < k; i++) {
    uint16_t half;
    memcpy(&half, panel + tfm_bf16_at(width, lane, i), sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(row + i, &bits, sizeof bits);
  }
}

#endif
