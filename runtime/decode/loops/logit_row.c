/* In: logits of one row. Out: what a search or a choice asks of them. See logit_row.h.
 *
 * Vectors are those of the language of gcc and clang, not of a machine: compilers do not find the loop over exp by
 * themselves. Four vectors of four numbers are the 16 lanes, so the order of every sum is fixed by this file and not
 * by the width of a register. */
#include "decode/loops/logit_row.h"

#include <math.h>
#include <string.h>

#include "machine/machine.h"

enum { WIDTH = 4, LANES = 16 };
typedef Floats4 Floats;
typedef int32_t Ints __attribute__((vector_size(WIDTH * sizeof(int32_t))));
typedef double Doubles __attribute__((vector_size(WIDTH * sizeof(double))));

static inline Floats load(const float *from) {
  Floats x;
  memcpy(&x, from, sizeof x);
  return x;
}

// ---- the largest ----

/* All bits set where x is below +inf; a comparison with NaN is false. */
static inline Ints is_number(Floats x) { return x < (Floats){INFINITY, INFINITY, INFINITY, INFINITY}; }

/* The largest of n logits, n a multiple of 16. `fine` is cleared in the lanes that met NaN or +inf. */
static inline float max_of_lanes(const float *logits, int64_t n, Ints *fine) {
  const Floats none = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  Floats a = none, b = none, c = none, d = none;
  Ints all = *fine;
  for (int64_t i = 0; i < n; i += LANES) {
    Floats w = load(logits + i), x = load(logits + i + 4), y = load(logits + i + 8), z = load(logits + i + 12);
    all &= is_number(w) & is_number(x) & is_number(y) & is_number(z);
    a = larger_floats(w, a), b = larger_floats(x, b), c = larger_floats(y, c), d = larger_floats(z, d);
  }
  *fine = all;
  a = larger_floats(larger_floats(a, b), larger_floats(c, d));
  float most = a[0];
  for (int i = 1; i < WIDTH; i++) most = a[i] > most ? a[i] : most;
  return most;
}

/* The logits behind the last whole group of lanes, one by one. */
static float max_of_rest(const float *logits, int64_t n, float most, bool *fine) {
  for (int64_t i = 0; i < n; i++) {
    *fine &= logits[i] < INFINITY;
    most = logits[i] > most ? logits[i] : most;
  }
  return most;
}

/* NaN never becomes a bound by itself (`larger` drops it), which is why `fine` is carried beside it. */
bool row_scan(const float *logits, int64_t n, float *bounds) {
  const int64_t whole = n / ROW_BLOCK * ROW_BLOCK;
  Ints fine = {-1, -1, -1, -1};
  for (int64_t i = 0; i < whole; i += ROW_BLOCK) *bounds++ = max_of_lanes(logits + i, ROW_BLOCK, &fine);
  bool is_fine = fine[0] && fine[1] && fine[2] && fine[3];
  if (whole < n) *bounds = max_of_rest(logits + whole, n - whole, -INFINITY, &is_fine);
  return is_fine;
}

bool row_peak(const float *logits, int64_t n, float *most) {
  const int64_t whole = n / LANES * LANES;
  Ints fine = {-1, -1, -1, -1};
  *most = max_of_lanes(logits, whole, &fine);
  bool is_fine = fine[0] && fine[1] && fine[2] && fine[3];
  *most = max_of_rest(logits + whole, n - whole, *most, &is_fine);
  return is_fine;
}

float row_max(const float *logits, int64_t n) {
  float most;
  row_peak(logits, n, &most);
  return most;
}

int64_t row_find(const float *logits, int64_t first, int64_t n, float least) {
  const Floats bound = {least, least, least, least};
  for (; first + LANES <= n; first += LANES) {
    const float *at = logits + first;
    const Ints some =
        (load(at) >= bound) | (load(at + 4) >= bound) | (load(at + 8) >= bound) | (load(at + 12) >= bound);
    if (some[0] | some[1] | some[2] | some[3]) break;
  }
  while (first < n && !(logits[first] >= least)) first++;
  return first;
}

// ---- exponentials ----

/* exp for x <= 0: x = k ln 2 + r with |r| <= ln 2 / 2, the Taylor series of e^r to the 7th power, times 2^k. Adding
 * and subtracting 1.5 * 2^23 rounds to the nearest integer; ln 2 is taken away in two parts (Cody and Waite, 1980), so
 * that r keeps its bits. The error is about one unit in the last place. What is below -85 is computed as -85 and
 * masked out: 2^k would become subnormal soon after. */
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

/* The rest of fewer than WIDTH logits goes through one vector that is filled up with -inf, whose exp is 0. */
double row_exp(const float *logits, int64_t n, float most, float *weights) {
  Doubles sum = {0};
  Floats x;
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) {
    memcpy(&x, logits + i, sizeof x);
    x = exp_of(x - most);
    memcpy(weights + i, &x, sizeof x);
    sum += __builtin_convertvector(x, Doubles);
  }
  x = (Floats){-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  for (int64_t k = i; k < n; k++) x[k - i] = logits[k];
  x = exp_of(x - most);
  for (int64_t k = i; k < n; k++) weights[k] = x[k - i];
  sum += __builtin_convertvector(x, Doubles);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Up to 32 numbers of a lane are summed in f32, then lanes and blocks in f64: that bounds the error of a sum over a
 * whole vocabulary to that of 32 additions. */
double row_exp_sum(const float *logits, int64_t n, float most) {
  enum { BLOCK = 512 };
  double total = 0;
  const int64_t whole = n / LANES * LANES;
  for (int64_t block = 0; block < whole; block += BLOCK) {
    const int64_t end = block + BLOCK < whole ? block + BLOCK : whole;
    Floats a = {0}, b = {0}, c = {0}, d = {0};
    for (int64_t i = block; i < end; i += LANES) {
      a += exp_of(load(logits + i) - most);
      b += exp_of(load(logits + i + 4) - most);
      c += exp_of(load(logits + i + 8) - most);
      d += exp_of(load(logits + i + 12) - most);
    }
    const Doubles sum = __builtin_convertvector((a + b) + (c + d), Doubles);
    total += (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  float weights[LANES];
  return total + row_exp(logits + whole, n - whole, most, weights);
}
