/* FNV-1a in 64 bits, for names and damaged files: not for adversaries. A step is a bijection of hash and of word.
 *
 * In: a hash so far, FNV_BEGIN at first, and the next byte or word. Out: the hash with it. Refuses nothing. */
#ifndef TFM_BASE_FNV_H
#define TFM_BASE_FNV_H

#include <stdint.h>

#define FNV_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t fnv_add(uint64_t hash, uint64_t word) { return (hash ^ word) * UINT64_C(0x100000001b3); }

#endif
