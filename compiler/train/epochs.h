/* Epochs: the batches of a run, epoch by epoch, without those in which nothing counts.
 *
 * In: data, how they are cut, what the loss is divided by, and what is done with a batch over which that is 0: it is
 * refused before the first step, or left out. Out: the order of an epoch, and how many batches a run has. What is left
 * out is a function of the data and of the order, so that a run can go on from any batch; the other batches stay as
 * they are. */
#ifndef TFM_TRAIN_EPOCHS_H
#define TFM_TRAIN_EPOCHS_H

#include "train/divisors.h"
#include "train/order.h"

typedef struct EpochsRequest {
  Diag *diag;
  const DataSet *data;
  const OrderRequest *order;
  Divisors *divisors; /* NULL: every batch has something that counts */
  const char *loss;   /* its name */
  bool skips;         /* such a batch is left out, else it is an error */
} EpochsRequest;

typedef struct Epoch {
  Order *order;
  int64_t left_out; /* batches */
} Epoch;

/* Of the first `most` batches one that is empty is an error, unless it is left out. False after an error; an epoch
 * without any batch is one, too. */
bool epochs_order(Arena *arena, const EpochsRequest *request, int64_t epoch, int64_t most, Epoch *made);
/* How many of n batches are empty. False after an error. */
bool epochs_count_empty(const EpochsRequest *request, const Order *order, int64_t *n);

typedef struct EpochsRun { /* from where to where a run goes */
  int64_t epoch, batch, step;
  int64_t steps, epochs; /* one of them is 0: the run does not end by it */
} EpochsRun;

/* Looks at all batches of a run; *steps is with which it ends. False after an error. */
bool epochs_check(const EpochsRequest *request, const EpochsRun *run, int64_t *steps);
/* Whether anything counts in data that are taken together, as those of a validation are; else an error. */
bool epochs_check_all(const EpochsRequest *request);

#endif
