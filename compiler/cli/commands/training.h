/* What `tfmc train` and `tfmc evaluate` share: a trainer from the command line.
 *
 * In: the options. Out: the graphs of the objective and a trainer with its weights. */
#ifndef TFM_CLI_COMMANDS_TRAINING_H
#define TFM_CLI_COMMANDS_TRAINING_H

#include "cli/session.h"
#include "train/data.h"
#include "train/trainer.h"

typedef struct Training {
  Session *session;
  TrainGraphs *graphs;
  Trainer *trainer;
  Graph *graph; /* of the objective: its inputs first */
  uint32_t n_inputs;
  uint64_t model; /* hash of the objective */
} Training;

/* `fills`: with the weights of --weights, or initial values; else they are left for the caller. False after an error;
 * the trainer must be freed all the same. */
bool training_begin(Training *training, Session *session, bool is_training, bool fills);

/* tfmc train --data. */
void train_on_data(Session *session);
/* The batches of --data for `tfmc evaluate`, in the order of the files' lengths. False after an error. */
bool batches_of_data(Training *training, EvalInputs **batches, uint32_t *n);

#endif
