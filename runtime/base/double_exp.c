/* In: doubles, or floats. Out: exp, log, pow and tanh of doubles, pow of floats. Refuses nothing. See
 * abi/double_functions.h.
 *
 * exp(x) = 2^k exp(r), |r| <= log(2) / 2, by the series of Taylor. log(x) = e log(2) + log(1 + f) with
 * sqrt(1/2) <= 1 + f < sqrt(2): of the series 2 atanh(s), s = f / (2 + f), which is f - f^2 / 2 + ..., these two terms
 * are taken from f itself, which is exact. In both the last sum adds what is small and rounded to what is exact.
 *
 * pow and tanh need more digits than a double has: the first terms of the same series are pairs, and the rest, which
 * is below 2^-18 of the sum, doubles. So the sums are right to some 2^-67, and a power, which multiplies a logarithm's
 * error by up to 745, still has all digits. For floats plain doubles are enough nearly always, and it is seen where
 * they are not. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/double_bits.h"
#include "base/pair.h"
#include "tfm/abi/double_functions.h"

/* log(2) in three parts, the first two of 32 bits: whole numbers below 2^21 times them are exact. */
static const double LOG2_PARTS[] = {0x1.62e42feep-1, 0x1.a39ef356p-33, 0x1.93c7673007e5fp-65};
static const double PER_LOG2 = 0x1.71547652b82fep+0;

/* x 2^k; two factors, because one of them cannot reach the ends of the range. */
static double scaled(double x, int k) { return x * power_of_two(k / 2) * power_of_two(k - k / 2); }

/* x = m 2^*e with sqrt(1/2) <= m < sqrt(2); x is finite and above 0. */
static double mantissa_near_one(double x, int *e) {
  *e = 0;
  if (x < 0x1p-1022) x *= 0x1p54, *e = -54;
  const uint64_t bits = bits_of_double(x);
  *e += (int)(bits >> 52) - 1023;
  const double m = double_of_bits((bits & 0xfffffffffffff) | (uint64_t)1023 << 52);
  if (m < 0x1.6a09e667f3bcdp+0) return m;
  ++*e;
  return m / 2;
}

// ---- in doubles ----

/* 1 / 2!, 1 / 3! ... */
static const double OF_FACTORIALS[] = {1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,        1.0 / 720,
                                       1.0 / 5040,    1.0 / 40320,    1.0 / 362880,    1.0 / 3628800,    1.0 / 39916800,
                                       1.0 / 479001600, 1.0 / 6227020800};

static double sum_of(const double *coefficients, int n, double x) { /* of powers, from the highest down */
  double sum = coefficients[n - 1];
  for (int i = n - 2; i >= 0; i--) sum = coefficients[i] + x * sum;
  return sum;
}

double double_exp(double x) {
  if (isnan(x)) return x;
  if (x > 710) return INFINITY;
  if (x < -746) return 0;
  const int k = (int)(x * PER_LOG2 + (x < 0 ? -0.5 : 0.5));
  const Pair r = pair_of_sum(x - k * LOG2_PARTS[0], -k * LOG2_PARTS[1]); /* the difference is exact */
  const double low = r.low - k * LOG2_PARTS[2];
  const double terms = r.high * r.high * sum_of(OF_FACTORIALS, sizeof OF_FACTORIALS / sizeof(double), r.high);
  const Pair less = pair_of_ordered(r.high, low + terms), sum = pair_of_ordered(1, less.high);
  return scaled(sum.high + (sum.low + less.low), k);
}

/* 2 / 3, 2 / 5 ... */
static const double OF_ODD[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};

double double_log(double x) {
  if (isnan(x) || x == INFINITY) return x;
  if (x == 0) return -INFINITY;
  if (x < 0) return NAN;
  int e;
  const double f = mantissa_near_one(x, &e) - 1, s = f / (2 + f), z = s * s, half = 0.5 * f * f;
  const double rest = z * sum_of(OF_ODD, sizeof OF_ODD / sizeof(double), z);
  return e * LOG2_PARTS[0] - ((half - (s * (half + rest) + e * (LOG2_PARTS[1] + LOG2_PARTS[2]))) - f);
}

// ---- in pairs ----

static const Pair THIRD = {0x1.5555555555555p-2, 0x1.5555555555555p-56};
static const Pair FIFTH = {0x1.999999999999ap-3, -0x1.999999999999ap-57};
static const Pair OF_6 = {0x1.5555555555555p-3, 0x1.5555555555555p-57}; /* 1 / 3! */
static const Pair OF_24 = {0x1.5555555555555p-5, 0x1.5555555555555p-59};
static const Pair OF_120 = {0x1.1111111111111p-7, 0x1.1111111111111p-63};
static const Pair HALF = {0.5, 0}, ONE = {1, 0};

/* 6! / 6!, 6! / 7! ... 6! / 18! */
static const double REST_OF_EXP[] = {1,          1.0 / 7,         1.0 / 56,         1.0 / 504,        1.0 / 5040,
                                     1.0 / 55440, 1.0 / 665280,   1.0 / 8648640,    1.0 / 121080960,  1.0 / 1816214400,
                                     1.0 / 29059430400};
static const double REST_OF_LOG[] = {1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17,
                                     1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25, 1.0 / 27, 1.0 / 29};

/* exp(x) = result 2^*k, for |x| below 1,000. */
static Pair exp_pair(Pair x, int *k) {
  *k = (int)(x.high * PER_LOG2 + (x.high < 0 ? -0.5 : 0.5));
  Pair r = pair_of_sum(x.high, -*k * LOG2_PARTS[0]);
  r = pair_add(r, (Pair){-*k * LOG2_PARTS[1], x.low});
  r = pair_add(r, (Pair){-*k * LOG2_PARTS[2], 0});
  double rest = 0;
  for (int n = sizeof REST_OF_EXP / sizeof(double); n-- > 0;) rest = REST_OF_EXP[n] + rest * r.high;
  Pair sum = pair_add(OF_120, pair_of_product(r.high, rest / 720));
  sum = pair_add(OF_24, pair_multiply(r, sum));
  sum = pair_add(OF_6, pair_multiply(r, sum));
  sum = pair_add(HALF, pair_multiply(r, sum));
  sum = pair_add(ONE, pair_multiply(r, sum));
  return pair_add(ONE, pair_multiply(r, sum));
}

static double exp_of_pair(Pair x) {
  if (x.high > 710) return INFINITY;
  if (x.high < -746) return 0;
  int k;
  const Pair result = exp_pair(x, &k);
  return scaled(result.high, k);
}

/* x is finite and above 0. */
static Pair log_pair(double x) {
  int e;
  const double m = mantissa_near_one(x, &e);
  const Pair s = pair_divide((Pair){m - 1, 0}, pair_of_sum(m, 1)), z = pair_multiply(s, s);
  double rest = 0;
  for (int n = sizeof REST_OF_LOG / sizeof(double); n-- > 0;) rest = REST_OF_LOG[n] + rest * z.high;
  Pair sum = pair_add(FIFTH, pair_of_product(z.high, rest));
  sum = pair_add(THIRD, pair_multiply(z, sum));
  sum = pair_add(ONE, pair_multiply(z, sum));
  sum = pair_multiply((Pair){2 * s.high, 2 * s.low}, sum);
  const Pair whole = pair_of_sum(e * LOG2_PARTS[0], e * LOG2_PARTS[1]);
  return pair_add(pair_add(whole, (Pair){e * LOG2_PARTS[2], 0}), sum);
}

static bool is_whole_double(double y) { return !(fabs(y) < 0x1p53) || (double)(int64_t)y == y; }
static bool is_odd(double y) { return fabs(y) < 0x1p53 && is_whole_double(y) && ((int64_t)y & 1); }

double double_pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (isnan(x) || isnan(y)) return x + y;
  const bool is_far = isinf(y) || fabs(y) > 0x1p64; /* the result is 0, 1 or infinite */
  if (fabs(x) == 1 && is_far) return 1;
  if (x < 0 && !isinf(x) && !is_whole_double(y)) return NAN;
  const double sign = signbit(x) && is_odd(y) ? -1 : 1;
  if (x == 0 || isinf(x) || is_far) return sign * ((fabs(x) > 1) == (y > 0) ? INFINITY : 0);
  return sign * exp_of_pair(pair_multiply(log_pair(fabs(x)), (Pair){y, 0}));
}

/* log and exp in doubles are right to 2 ulp, so below 2^-45 of the power where that is a float. */
float float_pow(float x, float y) {
  const double power = x > 0 ? (double)y * double_log(x) : 200;
  if (power > -87 && power < 88) {
    const double value = double_exp(power);
    const float least = (float)(value * (1 - 0x1p-44)), most = (float)(value * (1 + 0x1p-44));
    if (least == most) return least;
  }
  return (float)double_pow(x, y);
}

/* (E - 1) / (E + 1) with E = exp(2 |x|); near 0, where E - 1 would lose digits, the first terms of its series. */
double double_tanh(double x) {
  const double size = fabs(x);
  if (isnan(x) || size < 0x1p-27) return x;
  if (size < 0x1p-13) return x - x * (x * x) * (1.0 / 3 - x * x * (2.0 / 15));
  if (size > 20) return x < 0 ? -1 : 1;
  int k;
  Pair e = exp_pair((Pair){2 * size, 0}, &k);
  e = (Pair){scaled(e.high, k), scaled(e.low, k)};
  const Pair result = pair_divide(pair_add(e, (Pair){-1, 0}), pair_add(e, ONE));
  return x < 0 ? -result.high : result.high;
}
