/* Partial sums: how a product adds up more than TFM_CHAIN steps of k.
 *
 * A chain of FMAs loses a bit for every four times that it gets longer, and more where all terms have one sign. So k is
 * cut into chains of TFM_CHAIN steps, counted from k = 0, each of which starts from 0, and their results are added in
 * pairs, pairs of pairs and so on: the tree depends on k alone, and zeros at the end of k change nothing. A k of one
 * chain needs none of this.
 *
 * What waits is a binary counter: after chain number i there is a block for each bit of i + 1 that is set, the sum of
 * as many chains as the bit says. The block in c is the one of most chains, and the last waiting one of fewest.
 *
 * In: a block of results for each chain in turn, where partial_place says. Out: their sum, in c. Refuses nothing. */
#ifndef TFM_RUNTIME_PARTIAL_SUMS_H
#define TFM_RUNTIME_PARTIAL_SUMS_H

#include "tfm/program.h"

typedef struct PartialSums {
  float *c;                 /* the result; of the first chain, and what it is part of, until then */
  int64_t c_stride;         /* floats between rows */
  float *waiting;           /* scratch for partial_levels(k) blocks: sums that wait for those of later chains */
  int64_t stride, level;    /* floats between rows there, and between blocks */
  int64_t rows, columns;
} PartialSums;

/* How many chains k is cut into; at least 1. */
static inline int64_t partial_chains(int64_t k) { return k <= TFM_CHAIN ? 1 : (k - 1) / TFM_CHAIN + 1; }

/* How many blocks wait at a time, at most: the bits of the last chain's number; 0 for a single chain. */
static inline int64_t partial_levels(int64_t k) {
  int64_t levels = 0;
  for (int64_t last = partial_chains(k) - 1; last > 0; last >>= 1) levels++;
  return levels;
}

/* How many blocks there are when a chain begins: its own comes after them. */
static inline int64_t partial_blocks_before(int64_t chain) {
  int64_t blocks = 0;
  for (; chain; chain &= chain - 1) blocks++;
  return blocks;
}

static inline float *partial_block(const PartialSums *sums, int64_t block, int64_t *stride) {
  *stride = block ? sums->stride : sums->c_stride;
  return block ? sums->waiting + (block - 1) * sums->level : sums->c;
}

/* Where the results of a chain belong, and the distance of their rows. */
static inline float *partial_place(const PartialSums *sums, int64_t chain, int64_t *stride) {
  return partial_block(sums, partial_blocks_before(chain), stride);
}

/* The block before += this one. */
static inline void partial_add_block(const PartialSums *sums, int64_t block) {
  int64_t to_stride, from_stride;
  float *to = partial_block(sums, block - 1, &to_stride);
  const float *from = partial_block(sums, block, &from_stride);
  for (int64_t i = 0; i < sums->rows; i++, to += to_stride, from += from_stride)
    for (int64_t j = 0; j < sums->columns; j++) to[j] += from[j];
}

/* Adds to the results of a chain, which are there, what they are to be added to; after the last one c is the sum.
 * Blocks of equally many chains become one, as bits are carried. After the last chain all that are left are
 * added, those of fewest chains first, just as if chains of zeros followed. */
static inline void partial_add(const PartialSums *sums, int64_t chain, int64_t chains) {
  int64_t block = partial_blocks_before(chain);
  for (int64_t carry = chain; carry & 1; carry >>= 1) partial_add_block(sums, block--);
  if (chain + 1 < chains) return;
  while (block > 0) partial_add_block(sums, block--);
}

#endif
