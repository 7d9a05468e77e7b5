/* Rotation: what lies far out in a row is spread over its neighbours, so that all its numbers can be whole ones times a
 * single scale. Rows of x and of a weight are turned alike, so their product stays what it was, times the gain.
 *
 * In: a row of k numbers. Out: the row, in place. Every operation is one of IEEE 754 on f32, rounded by itself, in the
 * order written, so that all instruction sets give the same bits (docs/weights.md); kernels/quantize_rows.c makes code
 * of it, and runtime/steps/step_lookup.c has it with vectors. Refuses nothing. */
#ifndef TFM_FORMS_ROTATE_H
#define TFM_FORMS_ROTATE_H

#include <stdint.h>

enum { ROTATE_STAGES = 4 };

/* The largest power of two that divides k. */
static inline int64_t rotate_period(int64_t k) { return k & -k; }

/* What rotating twice multiplies a row by. */
static inline float rotate_gain(int64_t k) {
  const int64_t period = rotate_period(k), most = (int64_t)1 << ROTATE_STAGES;
  return (float)(period < most ? period : most);
}

/* Sums and differences of numbers that are 1/16, 1/8, 1/4 and 1/2 of a period apart, as far as there are such. */
static inline void rotate_row(float *x, int64_t k) {
  const int64_t period = rotate_period(k);
  for (int stage = ROTATE_STAGES; stage >= 1; stage--) {
    const int64_t distance = period >> stage;
    for (int64_t i = 0; distance && i < k; i++) {
      if (i / distance % 2) continue;
      const float a = x[i], b = x[i + distance];
      x[i] = a + b;
      x[i + distance] = a - b;
    }
  }
}

/* The row of a weight: turned as rows of x are, and as large as it was. */
static inline void rotate_weight(float *row, int64_t k) {
  const float factor = 1 / rotate_gain(k);
  rotate_row(row, k);
  for (int64_t i = 0; i < k; i++) row[i] *= factor;
}

#endif
