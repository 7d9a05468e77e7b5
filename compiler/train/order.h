/* Order: which items make which batch.
 *
 * In: items and how long they are, a seed, an epoch. Out: all items once, in batches. The items are shuffled and cut
 * into pools; within a pool those of like length come together, so that little is padded; the batches of a pool are
 * shuffled again. Nothing has a state: an epoch's order is a function of the seed, the epoch and the lengths, so that a
 * run can go on from any batch. docs/training.md has the law. */
#ifndef TFM_TRAIN_ORDER_H
#define TFM_TRAIN_ORDER_H

#include "train/data.h"

typedef struct OrderRequest {
  int64_t batch_tokens, batch_items; /* one of them is 0 */
  int64_t pool;                      /* how many batches are sorted together */
  uint64_t seed;
} OrderRequest;

typedef struct Batch { /* items [first, first + n) of the order */
  int64_t first, n;
} Batch;

typedef struct Order {
  int64_t *items;
  VEC(Batch) batches;
} Order;

/* In `arena`. */
Order *order_of_epoch(Arena *arena, const DataSet *data, const OrderRequest *request, int64_t epoch);
/* Items by length, then as the files have them: for data that are measured, not learned. */
Order *order_of_file(Arena *arena, const DataSet *data, const OrderRequest *request);
typedef struct PartRequest {
  int64_t tokens; /* of a part at most, but for one of a single item; 0: any number */
  int64_t shards; /* a batch is cut into so many shares of neighbours, each into as many parts; 0: 1 */
} PartRequest;

/* The parts of a batch. False: it has fewer items than there are shards. */
bool order_cut(Arena *arena, const DataSet *data, const Order *order, const Batch *batch, const PartRequest *request,
               Order *parts);

#endif
