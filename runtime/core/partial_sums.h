/* Partial sums: how a product adds up more than TFM_CHAIN steps of k.
 *
 * In: a block of results for each chain of TFM_CHAIN steps in turn, where partial_place says. Out: their sum, in c. It
 * is that of a fixed tree, which depends on k alone; a k of one chain needs none of this. Refuses nothing. */
#ifndef TFM_RUNTIME_PARTIAL_SUMS_H
#define TFM_RUNTIME_PARTIAL_SUMS_H

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
/* Where the results of a chain belong, and the distance of their rows. */
float *partial_place(const PartialSums *sums, int64_t chain, int64_t *stride);
/* Adds to the results of a chain, which are there, what they are to be added to; after the last one c is the sum. */
void partial_add(const PartialSums *sums, int64_t chain, int64_t chains);

#endif
