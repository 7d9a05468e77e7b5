/* The caller's functions of memory, or those of the C library. */
#include "allocate.h"

#include <stdlib.h>

void *allocate(const tfm_allocator *allocator, size_t bytes, size_t alignment) {
  if (bytes > SIZE_MAX - alignment) return NULL;
  if (!allocator->allocate) return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  void *memory = allocator->allocate(allocator->user, bytes, alignment);
  if (!memory || (uintptr_t)memory % alignment == 0) return memory;
  allocator->release(allocator->user, memory, bytes);
  return NULL;
}

void release(const tfm_allocator *allocator, void *memory, size_t bytes) {
  if (!memory) return;
  if (allocator->allocate) allocator->release(allocator->user, memory, bytes);
  else free(memory);
}
