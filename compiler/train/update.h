/* Update: what a step does to the weights once their gradients are known.
 *
 * In: settings, gradients, the number of the step. Out: weights and moments, changed in place. Every operation is
 * rounded alone, in f32; rates and corrections are computed in double. */
#ifndef TFM_TRAIN_UPDATE_H
#define TFM_TRAIN_UPDATE_H

#include "elaborate/objective.h"

/* The rate of step t (from 1), in epoch `epoch` (from 0). */
double update_rate(const TrainSettings *settings, int64_t t, int64_t epoch);
/* The sum of the squares, of chunks of 4,096 numbers in 16 lanes, which are added in double. */
double update_squares(const float *values, int64_t n);

typedef struct Update {           /* one weight */
  float *weight, *first, *second; /* moments: momentum and m; v. Not needed: NULL */
  const float *gradient;
  int64_t n;
  double clip; /* what gradients are multiplied by */
  double rate, decay;
  int64_t t;
} Update;

void update_weight(const TrainSettings *settings, const Update *update);

#endif
