/* FNV-1a in its 64-bit form, for names, tables and damaged files: not for adversaries. What is hashed in pieces gives
 * the hash of the whole. */
#ifndef TFM_BASE_HASH_H
#define TFM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
  return hash;
}

#endif
