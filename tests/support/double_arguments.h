/* Arguments for functions of doubles: where each is used, where its cases meet, and any double. The same on every machine:
 * compile with -ffp-contract=off. */
#ifndef TFM_TEST_DOUBLE_ARGUMENTS_H
#define TFM_TEST_DOUBLE_ARGUMENTS_H

#include <math.h>
#include <stdint.h>

#include "../../runtime/base/double_bits.h"

static uint64_t state; /* not 0 */

static inline uint64_t next(void) { /* xorshift64 */
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static inline double between(double least, double most) {
  return least + (most - least) * ((double)(next() >> 11) * 0x1p-53);
}

static inline double any(void) { return double_of_bits(next()); }
static inline double above_0(void) { return fabs(any()); }
static inline double near_0(void) { return between(-1, 1) * double_of_bits((uint64_t)(1023 - next() % 60) << 52); }
static inline double near_1(void) { return 1 + near_0() / 16; }
static inline double of_exp(void) { return between(-750, 750); }
static inline double of_a_turn(void) { return between(-10, 10); }
static inline double of_positions(void) { return between(-0x1p22, 0x1p22); }
static inline double near_quarters(void) { return (double)(int64_t)between(0, 1e9) * 0x1.921fb54442d18p+0; }
static inline double of_tanh(void) { return between(-21, 21); }

/* A base and an exponent of powers: of any size, near 1, and usual ones, in turn. */
static inline void of_pow(uint64_t i, double *x, double *y) {
  const int kind = (int)(i % 3);
  *x = kind == 0 ? above_0() : kind == 1 ? near_1() : between(0, 100);
  *y = kind == 0 ? between(-4, 4) : kind == 1 ? between(-1e6, 1e6) : between(-150, 150);
}

static inline void of_float_pow(uint64_t i, float *x, float *y) {
  *x = (float)fabs(i % 2 ? between(0, 50) : near_1());
  *y = (float)between(-60, 60);
}

static uint64_t hash; /* FNV-1a over the bits of results; all NaN are one */

static inline void begin_hash(void) { hash = UINT64_C(14695981039346656037); }

static inline void count(double x) {
  const uint64_t bits = isnan(x) ? UINT64_C(0x7ff8000000000000) : bits_of_double(x);
  for (int i = 0; i < 64; i += 8) hash = (hash ^ (bits >> i & 0xff)) * UINT64_C(1099511628211);
}

#endif
