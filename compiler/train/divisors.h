/* Divisors: whether items have anything that the loss can be divided by, such as a label that counts.
 *
 * In: the graphs of an objective, the graph of its divisors and sums as it was before an engine took it, and data. Out:
 * of any items, whether a step of them has no value because a divisor is 0. Divisors that depend on weights are not
 * known before the step; a formula that avoids the division (`where`, `maximum`) is followed. An item is looked at when
 * it is asked for, once; where items are mixed they are looked at together. */
#ifndef TFM_TRAIN_DIVISORS_H
#define TFM_TRAIN_DIVISORS_H

#include "train/data.h"
#include "train/graphs.h"

typedef struct Divisors Divisors;

/* NULL: the data decide no divisor of the loss, so that every batch has a value. In `arena`. */
Divisors *divisors_new(Arena *arena, const TrainGraphs *graphs, const Graph *counts, const DataSet *data);
/* False after an error. */
bool divisors_lack(Divisors *divisors, const int64_t *items, int64_t n, bool *lacks);
/* Whether any item has nothing by itself, so that a batch might have nothing. False after an error. */
bool divisors_may_lack(Divisors *divisors, bool *may);

#endif
