/* Doubles and their bits. */
#ifndef TFM_RUNTIME_DOUBLE_BITS_H
#define TFM_RUNTIME_DOUBLE_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint64_t bits_of_double(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline double double_of_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* 2^k for -1022 <= k <= 1023. */
static inline double power_of_two(int k) { return double_of_bits((uint64_t)(k + 1023) << 52); }

#endif
