/* exp and log of doubles. See abi/double_functions.h; pow and tanh, which need more digits, are in double_pow.c.
 *
 * exp(x) = 2^k exp(r), |r| <= log(2) / 2, by the series of Taylor. log(x) = e log(2) + log(1 + f) with
 * sqrt(1/2) <= 1 + f < sqrt(2): of the series 2 atanh(s), s = f / (2 + f), which is f - f^2 / 2 + ..., these two terms
 * are taken from f itself, which is exact. In both the last sum adds what is small and rounded to what is exact. */
#include <math.h>
#include <stdint.h>

#include "base/log_parts.h"
#include "tfm/abi/double_functions.h"

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
