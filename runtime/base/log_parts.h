/* What exp, log and pow share: log(2) in parts, powers of two, a number as m 2^e. */
#ifndef TFM_RUNTIME_LOG_PARTS_H
#define TFM_RUNTIME_LOG_PARTS_H

#include <stdint.h>

#include "base/pair.h"

/* log(2) in three parts, the first two of 32 bits: whole numbers below 2^21 times them are exact. */
static const double LOG2_PARTS[] = {0x1.62e42feep-1, 0x1.a39ef356p-33, 0x1.93c7673007e5fp-65};
static const double PER_LOG2 = 0x1.71547652b82fep+0;

/* x 2^k; two factors, because one of them cannot reach the ends of the range. */
static inline double scaled(double x, int k) { return x * power_of_two(k / 2) * power_of_two(k - k / 2); }

/* x = m 2^*e with sqrt(1/2) <= m < sqrt(2); x is finite and above 0. */
static inline double mantissa_near_one(double x, int *e) {
  *e = 0;
  if (x < 0x1p-1022) x *= 0x1p54, *e = -54;
  const uint64_t bits = bits_of_double(x);
  *e += (int)(bits >> 52) - 1023;
  const double m = double_of_bits((bits & 0xfffffffffffff) | (uint64_t)1023 << 52);
  if (m < 0x1.6a09e667f3bcdp+0) return m;
  ++*e;
  return m / 2;
}

#endif
