/* Memory of a context: from the caller's functions, or from the C library. */
#ifndef TFM_RUNTIME_ALLOCATE_H
#define TFM_RUNTIME_ALLOCATE_H

#include "tfm/tfm.h"

/* NULL if there is none. `alignment`: a power of two, at least that of a pointer. The bytes are not cleared. */
void *allocate(const tfm_allocator *allocator, size_t bytes, size_t alignment);
void release(const tfm_allocator *allocator, void *memory, size_t bytes); /* NULL is ignored */

#endif
