/* Random numbers of training: functions of a seed and of a place, without a state.
 *
 * In: a seed, what the numbers are for, where. Out: initial values of weights and masks of dropout. The same numbers on
 * every machine, whatever the order in which they are asked for; docs/training.md has the formulas. */
#ifndef TFM_TRAIN_RANDOM_H
#define TFM_TRAIN_RANDOM_H

#include "elaborate/objective.h"
#include "graph/eval.h"
#include "train/graphs.h"

/* Philox4x32-10 (Salmon et al. 2011). */
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]);

/* The first values of a weight. */
void draw_initial(const Parameter *parameter, const Initial *initial, uint64_t seed, float *values);

typedef struct MaskPlace { /* which elements of which step a mask is for */
  uint64_t seed;
  uint32_t step; /* from 1 */
  int64_t first_item;
} MaskPlace;

/* The mask of a dropout, whose tensor has its dims: true where the element is kept. `batch`: the symbol that counts
 * items, -1: none; `symbols`: the values of the run-time sizes. */
void draw_mask(const DropoutMask *dropout, SizeTable *sizes, int32_t batch, const int64_t *symbols,
               const MaskPlace *place, Tensor *mask);

#endif
