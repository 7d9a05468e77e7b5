/* Int8: rows of f32 as whole numbers from -127 to 127 and a scale; int4: rows of weights in 4 bits.
 *
 * In: a row. Out: the row rotated, which spreads what lies far out over its neighbours; or whole numbers and the scale
 * by which they are multiplied. Every operation is one of IEEE 754 on f32, rounded by itself, in the order written,
 * so that all instruction sets give the same bits (docs/weights.md). Refuses nothing: a row that is not finite gets the
 * scale NaN. */
#ifndef TFM_BASE_INT8_H
#define TFM_BASE_INT8_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { INT8_MOST = 127, INT8_MOST_WEIGHT = 255 /* of a softmax */, INT8_STAGES = 4 };
enum { INT8_MAX_COLUMNS = 65536 /* their sum of products fits 32 bits */ };

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

/* What numbers are multiplied by so that the greatest magnitude becomes `most`, 0 if all become 0; sets the scale, by
 * which they are multiplied afterwards. */
static inline float int8_factor(const float *x, int64_t k, float most, float *scale) {
  float greatest = 0, finite = 0;
  for (int64_t i = 0; i < k; i++) {
    finite += x[i] * 0;
    if (fabsf(x[i]) > greatest) greatest = fabsf(x[i]);
  }
  const int is_empty = isnan(finite) || greatest < INT8_LEAST;
  *scale = isnan(finite) ? NAN : is_empty ? 0 : greatest / most;
  return is_empty ? 0 : most / greatest;
}

/* x times its factor, which is finite unless the factor is 0. */
static inline float int8_nearest(float x, float factor) { return factor == 0 ? 0 : rintf(x * factor); }

/* q[i] is the whole number nearest to x[i] 127 / (greatest magnitude), of two equally near ones the even one. Returns
 * the scale. */
static inline float int8_round(const float *x, int64_t k, int8_t *q) {
  float scale, factor = int8_factor(x, k, INT8_MOST, &scale);
  for (int64_t i = 0; i < k; i++) q[i] = (int8_t)int8_nearest(x[i], factor);
  return scale;
}

/* The row of a weight, in place: turned as rows of x are, and as large as it was. */
static inline void int8_rotate_weight(float *row, int64_t k) {
  const float factor = 1 / int8_gain(k);
  int8_rotate(row, k);
  for (int64_t i = 0; i < k; i++) row[i] *= factor;
}

static inline float int8_round_weight(float *row, int64_t k, int8_t *q) {
  int8_rotate_weight(row, k);
  return int8_round(row, k, q);
}

// ---- 4 bits ----

/* A row of a weight in groups of 32: numbers from -8 to 7, times a whole number of the group from -15 to 15, times the
 * scale of the row. Their product with the first two is a row of whole numbers from -120 to 120 like any other. */
enum { INT4_GROUP = 32, INT4_LEAST_NUMBER = -8, INT4_MOST_NUMBER = 7, INT4_MOST_STEP = 15 };

/* Rows of other lengths have the form of 8 bits. */
static inline int int4_fits(int64_t k) { return k > 0 && k % INT4_GROUP == 0; }

/* The step that gives the number farthest from 0, the first of such, the value -8. */
static inline float int4_greatest_step(const float *group) {
  float greatest = group[0];
  for (int i = 1; i < INT4_GROUP; i++)
    if (fabsf(group[i]) > fabsf(greatest)) greatest = group[i];
  return greatest / INT4_LEAST_NUMBER;
}

/* f[i] is the whole number of -8 to 7 nearest to x[i] / step. Returns the sum of the squares of what is lost. Adding
 * and subtracting 1.5 2^23 rounds to the nearest whole number: quotients are small. */
static inline double int4_round_group(const float *x, float step, float *f) {
  const float whole = 0x1.8p23f;
  double lost = 0;
  for (int i = 0; i < INT4_GROUP; i++) {
    float number = (x[i] / step + whole) - whole;
    number = number < INT4_LEAST_NUMBER ? INT4_LEAST_NUMBER : number;
    f[i] = number > INT4_MOST_NUMBER ? INT4_MOST_NUMBER : number;
  }
  for (int i = 0; i < INT4_GROUP; i++) {
    const double apart = (double)x[i] - (double)f[i] * (double)step;
    lost += apart * apart;
  }
  return lost;
}

/* The number of the group and what is left of x in its steps: of the five nearest, the one that loses least. */
static inline int int4_choose_step(const float *x, float greatest, float scale, float *f) {
  static const int8_t offsets[] = {0, -1, 1, -2, 2};
  const int base = (int)rintf(fabsf(greatest) / scale);
  float tried[INT4_GROUP];
  double least = INFINITY;
  int best = 0;
  for (int i = 0; i < 5; i++) {
    int number = base + offsets[i] < 1 ? 1 : base + offsets[i];
    number = number > INT4_MOST_STEP ? INT4_MOST_STEP : number;
    if (signbit(greatest)) number = -number;
    const double lost = int4_round_group(x, (float)number * scale, tried);
    if (!(lost < least)) continue;
    least = lost;
    best = number;
    for (int j = 0; j < INT4_GROUP; j++) f[j] = tried[j];
  }
  return best;
}

/* A row that is rotated and finite. q: numbers of 4 bits, and `steps` those of the groups; with NULL there their
 * products. Returns the scale. */
static inline float int4_round(const float *x, int64_t k, int8_t *q, int8_t *steps) {
  float greatest = 0, f[INT4_GROUP];
  for (int64_t i = 0; i < k; i += INT4_GROUP) {
    const float step = fabsf(int4_greatest_step(x + i));
    if (step > greatest) greatest = step;
  }
  const float scale = greatest / INT4_MOST_STEP;
  const int is_empty = scale < INT8_LEAST;
  for (int64_t i = 0; i < k; i += INT4_GROUP) {
    const int number = is_empty ? 0 : int4_choose_step(x + i, int4_greatest_step(x + i), scale, f);
    if (steps) steps[i / INT4_GROUP] = (int8_t)number;
    for (int j = 0; j < INT4_GROUP; j++) q[i + j] = (int8_t)(is_empty ? 0 : (int)f[j] * (steps ? 1 : number));
  }
  return is_empty ? 0 : scale;
}

/* The row of a weight, in place, in 4 bits if it can be. */
static inline float int4_round_weight(float *row, int64_t k, int8_t *q) {
  if (!int4_fits(k)) return int8_round_weight(row, k, q);
  int8_rotate_weight(row, k);
  return int4_round(row, k, q, NULL);
}

#endif
