/* Order: which items make which batch.
 *
 * In: items and how long they are, a seed, an epoch. Out: all items once, in batches. The items are shuffled and cut
 * into pools; within a pool those of like length come together, so that little is padded; the batches of a pool are
 * shuffled again. Nothing has a state: an epoch's order is a function of the seed, the epoch and the lengths, so that a
 * run can go on from any batch. docs/training.md has the law. */
#ifndef TFM_TRAIN_ORDER_H
#define TFM_TRAIN_ORDER_H

#include "base/strbuf.h"
#include "train/data.h"
#include "train/engine_trainer.h"

typedef struct OrderRequest {
  int64_t batch_tokens, batch_items; /* one of them is 0 */
  int64_t pool;                      /* how many batches are sorted together */
  uint64_t seed;
  bool is_given; /* the items stay in their order, whatever the seed */
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
  bool (*fits)(const void *context, const int64_t *items, int64_t n); /* whether they may be one part; NULL: they may */
  const void *fits_context;
  int64_t shards; /* a batch is cut into so many shares of neighbours, each into as many parts; 0: 1 */
} PartRequest;

/* The parts of a batch. False: it has fewer items than there are shards. */
bool order_cut(Arena *arena, const DataSet *data, const Order *order, const Batch *batch, const PartRequest *request,
               Order *parts);

// ---- room: how much of a batch is computed at a time ----

/* A run within the bytes of --memory. Refused: a bound that the weights, gradients and moments, a single item, or a
 * batch of the validation exceed; the message says what is needed. If nobody asked for the bound, it goes to `note`,
 * and nothing is bounded. What the interpreter takes is not known, so with it nothing is bounded either. */
typedef struct RoomRequest {
  Diag *diag;
  const Trainer *trainer, *judge; /* judge NULL: nothing is validated */
  const DataSet *data, *valid;
  const OrderRequest *order;
  int64_t bytes;
  StrBuf *note; /* NULL: the bound was asked for */
} RoomRequest;

typedef struct Room {
  RoomRequest request;
  int64_t left; /* for a part */
} Room;

/* Whether all is within the bound however a batch may be cut: of the longest items, as many as a batch has. It costs
 * little, while a room measures each part. */
bool room_is_ample(const RoomRequest *request);
/* False after an error, or after a note. */
bool room_make(const RoomRequest *request, Room *room);
/* Whether these n items may be one part. */
bool room_has(const Room *room, const int64_t *items, int64_t n);

#endif
