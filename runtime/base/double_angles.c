/* In: a double. Out: its sine or cosine. Refuses nothing. See abi/double_functions.h.
 *
 * The angle is taken modulo pi / 2 exactly, by whole numbers: of the digits of 2 / pi those are multiplied that decide
 * the quarter and the place in it (M. Payne, R. Hanek, Radian reduction for trigonometric functions, 1983). Smaller
 * angles are by pi / 2 in four parts. Then series of Taylor, whose last sum adds what is small and rounded to what is
 * exact. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/double_bits.h"
#include "base/pair.h"
#include "tfm/abi/double_functions.h"

static const Pair QUARTER = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54}; /* pi / 2 */
static const double PER_QUARTER = 0x1.45f306dc9c883p-1;
/* pi / 2 in four parts, the first three of 33 bits: whole numbers below 2^20 times them are exact. */
static const double QUARTER_PARTS[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2ep-69, 0x1.b839a252049c1p-104};

enum { N_TERMS = 8 };
/* -1 / 3!, 1 / 5! ... and 1 / 4!, -1 / 6! ... */
static const double OF_SINE[N_TERMS] = {-1.0 / 6,        1.0 / 120,        -1.0 / 5040,         1.0 / 362880,
                                        -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
static const double OF_COSINE[N_TERMS] = {1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
                                          1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000,
                                          -1.0 / 6402373705728000};

enum { WORDS = 8 }; /* of 32 bits, in a window of 2 / pi */

/* 64 zeros and then the digits of 2 / pi behind the point, enough for the greatest double. */
static const uint32_t TWO_PER_PI[] = {
    0x00000000, 0x00000000, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab,
    0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b,
    0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea,
    0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20, 0x9af4361d};

/* An angle: quarter * pi / 2 + rest, |rest| <= pi / 4. */
typedef struct Turn {
  unsigned quarter;
  Pair rest;
} Turn;

/* product = (mantissa * digits of 2 / pi from bit `first` on) modulo 2^256; the lowest word comes first. */
static void multiply_window(uint32_t product[WORDS], uint64_t mantissa, unsigned first) {
  const uint32_t *from = TWO_PER_PI + first / 32;
  const unsigned shift = first % 32;
  const uint32_t low = (uint32_t)mantissa, high = (uint32_t)(mantissa >> 32);
  uint64_t carry_low = 0, carry_high = 0;
  uint32_t before = 0; /* the word of the window below this one */
  for (unsigned i = 0; i < WORDS; i++) {
    const uint32_t *word = from + WORDS - 1 - i;
    const uint32_t window = shift ? word[0] << shift | word[1] >> (32 - shift) : word[0];
    carry_low += (uint64_t)window * low;
    carry_high += (uint64_t)before * high;
    const uint64_t sum = (carry_low & 0xffffffff) + (carry_high & 0xffffffff);
    product[i] = (uint32_t)sum;
    carry_low >>= 32;
    carry_high = (carry_high >> 32) + (sum >> 32);
    before = window;
  }
}

static void negate(uint32_t number[WORDS]) {
  uint64_t carry = 1;
  for (unsigned i = 0; i < WORDS; i++) {
    carry += (uint32_t)~number[i];
    number[i] = (uint32_t)carry;
    carry >>= 32;
  }
}

/* number 2^-254 for a number below 2^254: its highest words, of which at least 96 bits count. */
static Pair fraction_of(const uint32_t number[WORDS]) {
  int top = WORDS - 1;
  while (top > 3 && !number[top]) top--;
  Pair sum = {0, 0};
  for (int i = top; i > top - 4; i--) sum = pair_add(sum, (Pair){(double)number[i] * power_of_two(32 * i - 254), 0});
  return sum;
}

/* For x up to 2^20 quarters. The rest is right to 2^-130. */
static Turn turn_of_small(double x) {
  const int quarters = (int)(x * PER_QUARTER + 0.5);
  Pair rest = pair_of_sum(x - quarters * QUARTER_PARTS[0], -quarters * QUARTER_PARTS[1]); /* the difference is exact */
  rest = pair_add(rest, (Pair){-quarters * QUARTER_PARTS[2], -quarters * QUARTER_PARTS[3]});
  return (Turn){(unsigned)quarters & 3, rest};
}

/* x is finite and at least 0. */
static Turn turn_of(double x) {
  if (x < 0x1.921fb54442d18p-1) return (Turn){0, {x, 0}};
  if (x < 0x1p20) return turn_of_small(x);
  const uint64_t bits = bits_of_double(x);
  const int exponent = (int)(bits >> 52) - 1023 - 52; /* of the last bit of the mantissa; at least -53 */
  const uint64_t mantissa = (bits & 0xfffffffffffff) | (uint64_t)1 << 52;
  uint32_t product[WORDS];
  /* Digits of 2 / pi above this one give whole turns. The product is the angle in quarters, times 2^254. */
  multiply_window(product, mantissa, (unsigned)(exponent - 2 + 64));
  unsigned quarter = product[WORDS - 1] >> 30;
  const bool is_beyond = product[WORDS - 1] >> 29 & 1; /* of the middle of the quarter: counted back from the next */
  if (is_beyond) negate(product), quarter++;
  product[WORDS - 1] &= 0x3fffffff;
  const Pair rest = pair_multiply(fraction_of(product), QUARTER);
  return (Turn){quarter & 3, is_beyond ? pair_negated(rest) : rest};
}

/* r (1 - z / 3! + z^2 / 5! ...), where the terms behind the first are rounded to doubles. */
static double sine_of(Pair r) {
  const double z = r.high * r.high;
  double sum = OF_SINE[N_TERMS - 1];
  for (int i = N_TERMS - 2; i >= 0; i--) sum = OF_SINE[i] + z * sum;
  return r.high + (r.low + r.high * (z * sum));
}

/* 1 - z / 2! + z^2 / 4! ...: what 1 - z / 2 loses is added with the terms behind it. */
static double cosine_of(Pair r) {
  const double z = r.high * r.high, half = 0.5 * z, first = 1 - half;
  double sum = OF_COSINE[N_TERMS - 1];
  for (int i = N_TERMS - 2; i >= 0; i--) sum = OF_COSINE[i] + z * sum;
  return first + (((1 - first) - half) + (z * z * sum - r.high * r.low));
}

/* The sine of an angle `more` quarters further. */
static double sine_from(double x, unsigned more) {
  const Turn turn = turn_of(x);
  const unsigned quarter = (turn.quarter + more) & 3;
  const double result = quarter & 1 ? cosine_of(turn.rest) : sine_of(turn.rest);
  return quarter & 2 ? -result : result;
}

double double_sin(double x) {
  if (!isfinite(x)) return NAN;
  return signbit(x) ? -sine_from(-x, 0) : sine_from(x, 0);
}

double double_cos(double x) { return isfinite(x) ? sine_from(fabs(x), 1) : NAN; }
