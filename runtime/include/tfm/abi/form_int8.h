/* INT8: whole numbers q from -127 to 127, times a scale for each column, which is a row of a weight that was rotated.
 * Numbers are stored as q + 128, without a sign, as the instructions take one of two factors; what a row of the other
 * factor begins with takes the 128 off again (tfm/abi/kernels.h). Four steps of k of a column lie together, as many as
 * such an instruction adds up.
 *
 *   panel of 2 columns      k 0 .. 3   q00 q01 q02 q03 | q10 q11 q12 q13       a byte each: q[column][k] + 128
 *                           k 4 .. 7   q04 q05 q06 q07 | q14 q15 q16 q17
 *                           ...                                               128 behind the last k
 *                           scales     s0              | s1                    f32
 *
 * In: a panel, a column of it, its scale. Out: the row, still rotated. Refuses nothing. */
#ifndef TFM_FORM_INT8_H
#define TFM_FORM_INT8_H

#include <stdint.h>
#include <string.h>

/* Where number k of a column stands in a panel, in bytes. */
static inline int64_t tfm_int8_at(int64_t width, int64_t lane, int64_t k) { return (k / 4 * width + lane) * 4 + k % 4; }

/* Taking 128 off in f32 is as exact as what remains. Four numbers at a time are vectors of the compiler. */
static inline void tfm_int8_unpack(const char *panel, int64_t width, int64_t lane, int64_t k, float scale, float *row) {
  typedef uint8_t Bytes __attribute__((vector_size(4)));
  typedef float Floats __attribute__((vector_size(16)));
  int64_t i = 0;
  for (const char *four = panel + lane * 4; i + 4 <= k; i += 4, four += width * 4) {
    Bytes bytes;
    memcpy(&bytes, four, sizeof bytes);
    const Floats numbers = (__builtin_convertvector(bytes, Floats) - 128.0f) * scale;
    memcpy(row + i, &numbers, sizeof numbers);
  }
  for (; i < k; i++) row[i] = (float)((int)(uint8_t)panel[tfm_int8_at(width, lane, i)] - 128) * scale;
}

#endif
