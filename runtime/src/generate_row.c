#include "generate_row.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

bool row_is_number(const float *scores, int64_t n) {
  int32_t bad[LANES] = {0}, any = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int lane = 0; lane < LANES; lane++) bad[lane] |= !(scores[i + lane] < INFINITY);
  for (; i < n; i++) any |= !(scores[i] < INFINITY);
  for (int lane = 0; lane < LANES; lane++) any |= bad[lane];
  return !any;
}

float row_max(const float *scores, int64_t n) {
  float most[LANES], best = -INFINITY;
  int64_t i = 0;
  for (int lane = 0; lane < LANES; lane++) most[lane] = -INFINITY;
  for (; i + LANES <= n; i += LANES)
    for (int lane = 0; lane < LANES; lane++)
      most[lane] = scores[i + lane] > most[lane] ? scores[i + lane] : most[lane];
  for (; i < n; i++) best = scores[i] > best ? scores[i] : best;
  for (int lane = 0; lane < LANES; lane++) best = most[lane] > best ? most[lane] : best;
  return best;
}

/* Vectors of the language of gcc and clang, not of a machine: the loop over exp is none that they find by themselves. */
enum { WIDTH = 4 };
typedef float Floats __attribute__((vector_size(WIDTH * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(WIDTH * sizeof(int32_t))));
typedef double Doubles __attribute__((vector_size(WIDTH * sizeof(double))));

/* exp for x <= 0: x = k ln 2 + r with |r| <= ln 2 / 2, the series of e^r to the 7th power, times 2^k. The error is about
 * one unit in the last place. What is below -85 is computed as -85 and masked out. */
static inline Floats exp_of(Floats x) {
  const float round = 0x1.8p23f;
  const Floats least = {-85, -85, -85, -85};
  const Ints is_small = x < least;
  const Floats clamped = (Floats)(((Ints)x & ~is_small) | ((Ints)least & is_small));
  const Floats k = (clamped * 0x1.715476p0f + round) - round;
  const Floats r = (clamped - k * 0x1.62ep-1f) - k * 0x1.0bfbe8p-15f;
  Floats series = r * (1.0f / 5040) + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const Ints power = (__builtin_convertvector(k, Ints) + 127) << 23;
  return (Floats)((Ints)(series * (Floats)power) & ~is_small);
}

double row_exp(const float *scores, int64_t n, float most, float *weights) {
  Doubles sum = {0};
  Floats x;
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) {
    memcpy(&x, scores + i, sizeof x);
    x = exp_of(x - most);
    memcpy(weights + i, &x, sizeof x);
    sum += __builtin_convertvector(x, Doubles);
  }
  x = (Floats){-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  for (int64_t k = i; k < n; k++) x[k - i] = scores[k];
  x = exp_of(x - most);
  for (int64_t k = i; k < n; k++) weights[k] = x[k - i];
  sum += __builtin_convertvector(x, Doubles);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

double row_exp_sum(const float *scores, int64_t n, float most) {
  enum { BLOCK = 512 }; /* stays in the first cache */
  float weights[BLOCK];
  double total = 0;
  for (int64_t i = 0; i < n; i += BLOCK) total += row_exp(scores + i, n - i < BLOCK ? n - i : BLOCK, most, weights);
  return total;
}
