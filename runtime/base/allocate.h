/* Memory of contexts and decoders: from the caller's tfm_allocator, or from the C library and mmap. The owner of a
 * block releases with the same allocator and the same number of bytes; nothing here keeps a list. In: bytes. Out: a
 * block; NULL where there is no memory. Nothing else is refused. */
#ifndef TFM_RUNTIME_ALLOCATE_H
#define TFM_RUNTIME_ALLOCATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/numbers.h"
#include "tfm/tfm.h"

/* Memory that the caller must end with `release`; NULL: there is none. `alignment` is a power of two, at least that of
 * a pointer. The bytes are not cleared. */
void *allocate(const tfm_allocator *allocator, uint64_t bytes, size_t alignment);
/* Memory that may be large. Large blocks are aligned to huge pages, and the system is asked for them, because a
 * workspace of many megabytes otherwise misses in the TLB. *bytes is raised to what the caller must pass to
 * `release`. */
void *allocate_large(const tfm_allocator *allocator, int64_t *bytes);
/* Memory of which perhaps only a part will ever be used (caches of rows at their longest). Unless the caller brings an
 * allocator, it is address space that takes no memory before it is touched. The caller must end it with
 * release_room. */
void *allocate_room(const tfm_allocator *allocator, int64_t *bytes);
void release_room(const tfm_allocator *allocator, void *memory, int64_t bytes); /* NULL is ignored */
void release(const tfm_allocator *allocator, void *memory, size_t bytes); /* NULL is ignored */

/* n items of zeroes, to be ended with free(); NULL: there is no memory, or there are more than can be addressed. */
static inline void *zeroed_items(int64_t n, size_t size) {
  return (uint64_t)n > SIZE_MAX / size ? NULL : calloc((size_t)n, size);
}

// ---- several arrays in one block ----

/* The same code lays the arrays out twice: first without a block, to learn its size, then in it. */

/* *result = a * b for sizes that are not negative. False: the product is too large. The limit leaves room to round up
 * and to count in bytes without overflow. */
static inline bool size_product(int64_t *result, int64_t a, int64_t b) {
  return !__builtin_mul_overflow(a, b, result) && *result < INT64_MAX / 64;
}

typedef struct Layout {
  char *block;   /* NULL: only the size is wanted */
  int64_t bytes; /* taken so far; -1: too many, and stays so */
} Layout;

/* The next n * size bytes, at a multiple of ALIGNMENT from the beginning of the block; NULL while only the size is
 * wanted. */
void *layout_take(Layout *layout, int64_t n, int64_t size);

#endif
