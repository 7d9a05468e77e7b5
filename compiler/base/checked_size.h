/* Arithmetic on 64-bit sizes that cannot overflow silently.
 *
 * Each function returns false if the exact result does not fit; the wrapped one that is stored then must not be used.
 * Sizes come from files, so every product of them goes through here. */
#ifndef TFM_BASE_CHECKED_SIZE_H
#define TFM_BASE_CHECKED_SIZE_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_add(int64_t a, int64_t b, int64_t *sum) { return !__builtin_add_overflow(a, b, sum); }
static inline bool checked_sub(int64_t a, int64_t b, int64_t *difference) {
  return !__builtin_sub_overflow(a, b, difference);
}
static inline bool checked_mul(int64_t a, int64_t b, int64_t *product) {
  return !__builtin_mul_overflow(a, b, product);
}

/* The quotient by a positive number, rounded down; C truncates towards zero. */
static inline int64_t floor_divided(int64_t a, int64_t divisor) { return a / divisor - (a % divisor < 0); }

#endif
