/* Allocations counted, and one of them refused: for tests that every failure of malloc is survived.
 *
 * The program must be linked with --wrap for malloc, calloc and aligned_alloc. The header defines the wrappers, so
 * exactly one file of a program may include it. Counting is atomic because threads of the runtime allocate too. */
#ifndef TFM_TESTS_COUNTED_ALLOCATIONS_H
#define TFM_TESTS_COUNTED_ALLOCATIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static atomic_long n_allocations, failing = -1; /* the allocation with this number fails */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static inline bool allocation_fails(void) { return atomic_fetch_add(&n_allocations, 1) == atomic_load(&failing); }

void *__wrap_malloc(size_t size) { return allocation_fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return allocation_fails() ? NULL : __real_calloc(n, size); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
  return allocation_fails() ? NULL : __real_aligned_alloc(alignment, size);
}

#endif
