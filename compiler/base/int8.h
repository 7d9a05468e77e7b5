/* Int8: rows of f32 as whole numbers from -127 to 127 and a scale.
 *
 * In: a row. Out: the row rotated, which spreads what lies far out over its neighbours; or whole numbers and the scale
 * by which they are multiplied. Every operation is one of IEEE 754 on f32, rounded by itself, in the order written,
 * so that all instruction sets give the same bits (docs/weights.md). Refuses nothing: a row that is not finite gets the
 * scale NaN. */
#ifndef TFM_BASE_INT8_H
#define TFM_BASE_INT8_H

#include <math.h>
#include <stdint.h>

enum { INT8_MOST = 127, INT8_STAGES = 4, INT8_MAX_COLUMNS = 65536 /* their sum of products fits 32 bits */ };

/* The largest power of two that divides k. */
static inline int64_t int8_period(int64_t k) { return k & -k; }

/* What rotating twice multiplies a row by. */
static inline float int8_gain(int64_t k) {
  const int64_t period = int8_period(k), most = (int64_t)1 << INT8_STAGES;
  return (float)(period < most ? period : most);
}

/* Sums and differences of numbers that are 1/16, 1/8, 1/4 and 1/2 of a period apart, as far as there are such. */
static inline void int8_rotate(float *x, int64_t k) {
  const int64_t period = int8_period(k);
  for (int stage = INT8_STAGES; stage >= 1; stage--) {
    const int64_t distance = period >> stage;
    for (int64_t i = 0; distance && i < k; i++) {
      if (i / distance % 2) continue;
      const float a = x[i], b = x[i + distance];
      x[i] = a + b;
      x[i + distance] = a - b;
    }
  }
}

/* Rows whose numbers are all below this count as zeros: the quotient must not overflow. */
#define INT8_LEAST 0x1p-100f

/* q[i] is the whole number nearest to x[i] 127 / (greatest magnitude), of two equally near ones the even one. Returns
 * the scale. */
static inline float int8_round(const float *x, int64_t k, int8_t *q) {
  float greatest = 0, finite = 0;
  for (int64_t i = 0; i < k; i++) {
    finite += x[i] * 0;
    if (fabsf(x[i]) > greatest) greatest = fabsf(x[i]);
  }
  const int is_empty = isnan(finite) || greatest < INT8_LEAST;
  const float factor = is_empty ? 0 : INT8_MOST / greatest;
  for (int64_t i = 0; i < k; i++) q[i] = is_empty ? 0 : (int8_t)rintf(x[i] * factor);
  return isnan(finite) ? NAN : is_empty ? 0 : greatest / INT8_MOST;
}

/* The row of a weight, in place. */
static inline float int8_round_weight(float *row, int64_t k, int8_t *q) {
  const float factor = 1 / int8_gain(k);
  int8_rotate(row, k);
  for (int64_t i = 0; i < k; i++) row[i] *= factor;
  return int8_round(row, k, q);
}

#endif
