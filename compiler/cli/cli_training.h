/* Training: a trainer from the command line.
 *
 * In: a model with a train block, --weights, --new, --set, --seed. Out: the graphs of its objective, and a trainer
 * whose weights are those of the file or initial values. Refused: weights that the file lacks or that do not fit,
 * weights without an initial value, a --new that names nothing. */
#ifndef TFM_CLI_TRAINING_H
#define TFM_CLI_TRAINING_H

#include "cli/cli_model.h"
#include "train/engine_trainer.h"
#include "train/training_library.h"

typedef struct Training {
  Session *session;
  TrainGraphs *graphs;
  Trainer *trainer;
  Graph *graph; /* of the objective: its inputs first */
  uint32_t n_inputs;
  const struct Adapters *begun; /* the model's, if they have initial values, though other weights are of a file */
} Training;

typedef struct TrainingWish {
  bool is_training;  /* else the objective is only evaluated */
  bool fills;        /* with the weights of --weights, or initial values; else they are left for the caller */
  bool only_weights; /* no step is taken, so nothing is compiled */
  bool resumes;      /* a checkpoint follows: only the base of adapters is filled in, or what --weights names */
} TrainingWish;

/* False after an error; the trainer must be freed all the same. The weights are opened before the graphs are made,
 * while the objective's has WEIGHT nodes. */
bool training_begin(Training *t, Session *session, const TrainingWish *wish);

/* A byte for each parameter: 1 where it has its initial value, although others are of a file. NULL: there is none. */
const uint8_t *training_drawn(const Training *t);

/* The graphs of a library that trains. False after an error. */
bool training_of_library(Session *session, TrainingModel *model);

#endif
