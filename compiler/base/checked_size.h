/* Arithmetic on sizes that says when it overflows: each returns false then, and the result is not set. */
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

#endif
