/* Memory of a context: from the caller's functions, or from the C library. */
#ifndef TFM_RUNTIME_ALLOCATE_H
#define TFM_RUNTIME_ALLOCATE_H

#include <stdbool.h>
#include <stdint.h>

#include "tfm/tfm.h"

/* NULL if there is none. `alignment`: a power of two, at least that of a pointer. The bytes are not cleared. */
void *allocate(const tfm_allocator *allocator, size_t bytes, size_t alignment);
/* Room that may be large. If it is, it is aligned to huge pages and the system is asked for them. *bytes is updated to
 * what the caller must pass to `release`. */
void *allocate_large(const tfm_allocator *allocator, int64_t *bytes);
/* Room of which perhaps only a part will ever be used. Unless the caller brings an allocator, it is address space that
 * takes no memory before it is touched. The caller must end it with release_room. */
void *allocate_room(const tfm_allocator *allocator, int64_t *bytes);
void release_room(const tfm_allocator *allocator, void *memory, int64_t bytes); /* NULL is ignored */
void release(const tfm_allocator *allocator, void *memory, size_t bytes); /* NULL is ignored */

// ---- several arrays in one block ----

/* The same code lays the arrays out twice: first without a block, to learn its size, then in it. */

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
