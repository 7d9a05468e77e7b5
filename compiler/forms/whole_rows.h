/* Whole rows: rows of f32 as whole numbers from -127 to 127 and the scale that they are multiplied by.
 *
 * In: a row. Out: its numbers, its scale. Every operation is one of IEEE 754 on f32, rounded by itself, in the order
 * written, so that all instruction sets give the same bits (docs/weights.md). Refuses nothing: a row that is not finite
 * gets the scale NaN. */
#ifndef TFM_FORMS_WHOLE_ROWS_H
#define TFM_FORMS_WHOLE_ROWS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { WHOLE_MOST = 127, WHOLE_MOST_WEIGHT = 255 /* of a softmax */ };
enum { WHOLE_MAX_COLUMNS = 65536 /* their sum of products fits 32 bits */ };

/* Rows whose numbers are all below this count as zeros: the quotient must not overflow. */
#define WHOLE_LEAST 0x1p-100f

/* What numbers are multiplied by so that the greatest magnitude becomes `most`, 0 if all become 0; sets the scale, by
 * which they are multiplied afterwards. */
static inline float whole_factor(const float *x, int64_t k, float most, float *scale) {
  float greatest = 0, finite = 0;
  for (int64_t i = 0; i < k; i++) {
    finite += x[i] * 0;
    if (fabsf(x[i]) > greatest) greatest = fabsf(x[i]);
  }
  const int is_empty = isnan(finite) || greatest < WHOLE_LEAST;
  *scale = isnan(finite) ? NAN : is_empty ? 0 : greatest / most;
  return is_empty ? 0 : most / greatest;
}

/* x times its factor, which is finite unless the factor is 0. */
static inline float whole_nearest(float x, float factor) { return factor == 0 ? 0 : rintf(x * factor); }

/* q[i] is the whole number nearest to x[i] 127 / (greatest magnitude), of two equally near ones the even one. Returns
 * the scale. */
static inline float whole_round(const float *x, int64_t k, int8_t *q) {
  float scale, factor = whole_factor(x, k, WHOLE_MOST, &scale);
  for (int64_t i = 0; i < k; i++) q[i] = (int8_t)whole_nearest(x[i], factor);
  return scale;
}

#endif
