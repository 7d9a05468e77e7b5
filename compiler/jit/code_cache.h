/* Cache: objects with generated code, stored in a folder from one run of the compiler to the next
 * (docs/decisions/0008-code-cache.md).
 *
 * In: kernels that share an object (kernel_objects.c). Out: the object that was made for the same ones before, in the
 * caller's arena. An entry is one file, named by a hash of all that decides its bytes: the compiler and its version,
 * LLVM's, the target, every kernel's name and specification. It ends with its length and a hash, which are checked
 * before use; a damaged entry counts as absent and is replaced. Files appear whole or not at all, so any number of
 * processes may share a folder. Refused: folders and files of other users, or that others may write to, because their
 * contents would be run. Nothing here is ever an error of the user's: without a cache, code is generated anew. */
#ifndef TFM_JIT_CODE_CACHE_H
#define TFM_JIT_CODE_CACHE_H

#include "plan/plan.h"

enum { CACHE_MOST_BYTES = 256 << 20 }; /* of all entries; beyond it, those that were not used for longest go */

typedef struct CodeCache {
  const char *folder;
  uint64_t most_bytes;
} CodeCache;

typedef struct CacheKey {
  unsigned char bytes[16];
} CacheKey;

/* Returns TFM_CACHE_DIR, else tfmc in XDG_CACHE_HOME, else .cache/tfmc in HOME. NULL: none of them is set, or an empty
 * TFM_CACHE_DIR switches caching off. */
const char *cache_default_folder(Arena *arena);
/* Makes the folder, and the one above it, if they are missing. Returns NULL if it may not be used, or if `folder` is
 * NULL. */
const CodeCache *cache_open(Arena *arena, const char *folder, uint64_t most_bytes);

/* The user's, in the default folder; NULL as above. */
const CodeCache *cache_of_user(Arena *arena);

/* Equal exactly for plans whose kernels are the same code under the same names, as far as 128 bits can tell. */
CacheKey cache_key(const Plan *plan);
/* Returns the bytes of the object, in the arena, or NULL. Marks the entry as used. */
const char *cache_read(Arena *arena, const CodeCache *cache, const CacheKey *key, size_t *size);
/* Stores the object if that is possible. */
void cache_write(const CodeCache *cache, const CacheKey *key, const char *object, size_t size);
/* If the entries take more than most_bytes, removes those that were not used for the longest time. It looks at all of
 * them, so it is called once after all that a program stored. */
void cache_limit(const CodeCache *cache);

#endif
