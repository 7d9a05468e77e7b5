/* In: how many bytes are needed, and the allocator of a context. Out: memory, aligned, or NULL. See allocate.h. */
#include "base/allocate.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { LEAST_ALIGNMENT = 64 };

#ifdef MADV_HUGEPAGE
enum { HUGE_PAGE = 2 << 20 };
static void ask_for_huge_pages(void *memory, int64_t bytes) {
  if (bytes >= HUGE_PAGE) madvise(memory, (size_t)bytes, MADV_HUGEPAGE); /* only faster */
}
#else /* there are none */
enum { HUGE_PAGE = LEAST_ALIGNMENT };
static void ask_for_huge_pages(void *memory, int64_t bytes) { (void)memory, (void)bytes; }
#endif

/* The most bytes of a block that are rounded up and counted without overflow, also where addresses have 32 bits. */
#define MOST_BYTES ((int64_t)(SIZE_MAX < INT64_MAX ? SIZE_MAX : INT64_MAX) - (2 << 20))

/* An allocator of the caller's that returns memory which is not aligned is treated like one that has none. */
void *allocate(const tfm_allocator *allocator, uint64_t wanted, size_t alignment) {
  if (wanted > SIZE_MAX - alignment) return NULL;
  const size_t bytes = (size_t)wanted;
  if (!allocator->allocate) return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  void *memory = allocator->allocate(allocator->user, bytes, alignment);
  if (!memory || (uintptr_t)memory % alignment == 0) return memory;
  allocator->release(allocator->user, memory, bytes);
  return NULL;
}

void *allocate_large(const tfm_allocator *allocator, int64_t *bytes) {
  int64_t alignment = *bytes >= HUGE_PAGE ? HUGE_PAGE : LEAST_ALIGNMENT;
  if (*bytes > MOST_BYTES) return NULL;
  *bytes = (*bytes < alignment ? alignment : *bytes) + alignment - 1;
  *bytes -= *bytes % alignment;
  void *memory = allocate(allocator, (uint64_t)*bytes, (size_t)alignment);
  if (memory && alignment == HUGE_PAGE) ask_for_huge_pages(memory, *bytes);
  return memory;
}

void *allocate_room(const tfm_allocator *allocator, int64_t *bytes) {
  if (allocator->allocate) return allocate_large(allocator, bytes);
  if (*bytes > MOST_BYTES) return NULL;
  if (*bytes < LEAST_ALIGNMENT) *bytes = LEAST_ALIGNMENT;
  void *memory = mmap(NULL, (size_t)*bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  ask_for_huge_pages(memory, *bytes);
  return memory;
}

void release_room(const tfm_allocator *allocator, void *memory, int64_t bytes) {
  if (!memory) return;
  if (allocator->allocate) allocator->release(allocator->user, memory, (size_t)bytes);
  else munmap(memory, (size_t)bytes);
}

void release(const tfm_allocator *allocator, void *memory, size_t bytes) {
  if (!memory) return;
  if (allocator->allocate) allocator->release(allocator->user, memory, bytes);
  else free(memory);
}

// ---- arrays in one block ----

void *layout_take(Layout *layout, int64_t n, int64_t size) {
  char *place = layout->block ? layout->block + layout->bytes : NULL;
  int64_t bytes;
  bool fits = layout->bytes >= 0 && size_product(&bytes, n, size) &&
              !__builtin_add_overflow(layout->bytes, round_up(bytes, ALIGNMENT), &layout->bytes);
  if (!fits) layout->bytes = -1;
  return place;
}
