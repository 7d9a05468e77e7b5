/* Partial sums: how a product adds up more than TFM_CHAIN steps of k, and attention more than TFM_CHAIN keys.
 *
 * In: a block of results for each chain of TFM_CHAIN steps in turn, where partial_place says. Out: their sum, in c. It
 * is that of a fixed tree, which depends on k alone; a k of one chain needs none of this. Refuses nothing. */
#ifndef TFM_RUNTIME_PARTIAL_SUMS_H
#define TFM_RUNTIME_PARTIAL_SUMS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct PartialSums {
  float *c;              /* the result; of the first chain, and what it is part of, until then */
  int64_t c_stride;      /* floats between rows */
  float *waiting;        /* scratch for partial_levels(k) blocks: sums that wait for those of later chains */
  int64_t stride, level; /* floats between rows there, and between blocks */
  int64_t rows, columns;
} PartialSums;

/* How many chains k is cut into; at least 1. */
int64_t partial_chains(int64_t k);
/* How many blocks wait at a time, at most; 0 for a single chain. */
int64_t partial_levels(int64_t k);
/* How many blocks there are when a chain begins: its own comes after them. */
int64_t partial_blocks(int64_t chain);
/* A block, and the distance of its rows; block 0 is c. */
float *partial_block(const PartialSums *sums, int64_t block, int64_t *stride);
/* Where the results of a chain belong: its own block. */
float *partial_place(const PartialSums *sums, int64_t chain, int64_t *stride);
/* A block is added to the one before it, or, if not `adds`, becomes that. */
void partial_take(const PartialSums *sums, int64_t block, bool adds);
/* Adds to the results of a chain, which are there, what they are to be added to; after the last one c is the sum. */
void partial_add(const PartialSums *sums, int64_t chain, int64_t chains);

#endif
