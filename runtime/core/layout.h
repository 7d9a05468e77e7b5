/* Several arrays in one block. The same code lays them out twice: first without a block, to learn its size, then in it.
 *
 * In: how many elements of what size, none of them negative. Refused: blocks that are too large for an address. */
#ifndef TFM_RUNTIME_LAYOUT_H
#define TFM_RUNTIME_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

/* A product of sizes that are not negative; false if it is too large. */
static inline bool size_product(int64_t *result, int64_t a, int64_t b) {
  return !__builtin_mul_overflow(a, b, result) && *result < INT64_MAX / 64;
}

typedef struct Layout { /* zeroes: only the size is wanted */
  char *block;
  int64_t bytes; /* taken so far; -1: too many */
} Layout;

/* The next n * size bytes, aligned as the block is; NULL while only the size is wanted. */
void *layout_take(Layout *layout, int64_t n, int64_t size);

#endif
