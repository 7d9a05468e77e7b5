/* What a training run is asked for. course.h says what is done with it. */
#ifndef TFM_TRAIN_COURSE_REQUEST_H
#define TFM_TRAIN_COURSE_REQUEST_H

#include "train/divisors.h"
#include "train/order.h"
#include "train/engine_trainer.h"

typedef struct CourseRequest {
  Arena *arena;
  Diag *diag;
  Trainer *trainer;
  const TrainGraphs *graphs;
  const DataSet *data;
  Divisors *divisors; /* of the data */
  Trainer *judge;     /* of the same objective without dropout, for `valid`; NULL: nothing is validated */
  const TrainGraphs *judge_graphs;
  const DataSet *valid;
  OrderRequest order;
  PartRequest parts;
  int64_t steps, epochs;                      /* when the run ends; 0: not by these */
  int64_t valid_every, save_every, log_every; /* in steps; 0: with each epoch */
  int64_t keep;                               /* checkpoints; 0: all */
  int64_t patience;                           /* validations without a better loss that end the run; 0: none do */
  const char *base; /* of adapters: the folder of the weights that the run began with; NULL: there is none */
  const char *folder;
  const char *valid_command; /* run after each validation; NULL: none */
  const char *best; /* the name of the result by which validations are judged, or "score", perhaps with - before it;
                       NULL: the least loss is the best, and patience follows the score where there is one */
  bool resumes, is_quiet;
  bool skips_empty; /* batches in which no label counts are left out, else they are an error */
  bool resets_optimizer, resets_schedule, resets_data; /* what a run that is resumed begins anew */
  uint64_t model;                                      /* hash of what is trained */
} CourseRequest;

#endif
