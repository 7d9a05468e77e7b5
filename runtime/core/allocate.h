/* Memory of a context: from the caller's functions, or from the C library. */
#ifndef TFM_RUNTIME_ALLOCATE_H
#define TFM_RUNTIME_ALLOCATE_H

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

#endif
