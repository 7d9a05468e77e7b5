/* Trainer: the runtime's trainer (tfm/abi/train_tables.h) on the engines of this compiler.
 *
 * In: the graphs of an objective, an engine to run them, batches of inputs by name. Out: the results of the objective,
 * gradients, and weights that have been trained. The batches of a step count as one. Errors of the runtime become
 * messages; after a failed step the weights are as before. */
#ifndef TFM_TRAIN_TRAINER_H
#define TFM_TRAIN_TRAINER_H

#include "engines/engine.h"
#include "tfm/abi/trainer_weights.h"
#include "train/graphs.h"

typedef struct Trainer Trainer;

typedef struct TrainerOptions {
  const EngineKind *kind;
  const EngineSettings *settings; /* must outlive the trainer */
  uint64_t seed;
  int32_t shards; /* chains of sums that a step is cut into; 0: 1 */
} TrainerOptions;

typedef struct StepResult {
  double *results; /* of the objective, in the order of graphs->results; the caller's */
  double norm, rate;
} StepResult;

/* NULL after an error. The graphs become the engines'. */
Trainer *trainer_new(const TrainerOptions *options, TrainGraphs *graphs);
void trainer_free(Trainer *trainer); /* NULL is ignored */

/* The trainer of the runtime that it is, for what needs no graphs: weights, states, checkpoints. */
tfm_trainer *trainer_made(const Trainer *trainer);
/* Sets a parameter to numbers, which are rounded to what it is kept in. */
void trainer_set(Trainer *trainer, uint32_t parameter, const float *numbers);
/* As the last step computed it, before clipping; only of trained parameters. */
const float *trainer_gradient(Trainer *trainer, uint32_t parameter);
/* The initial value of a parameter; an error, which names it, if it has none. */
bool trainer_draw(Trainer *trainer, uint32_t parameter);
/* Steps that are done, for a trainer that goes on, and when the optimizer and the schedule began. */
void trainer_set_steps(Trainer *trainer, int64_t steps, const tfm_trainer_origin *origin);
/* Bytes of what a trainer keeps, and of the run of a part whose run-time sizes are these, by symbol; -1: one is out of
 * range. With the interpreter parts count nothing. */
int64_t trainer_state_bytes(const Trainer *trainer);
int64_t trainer_part_bytes(const Trainer *trainer, const int64_t *sizes);
/* Bytes of what mixes the items of a whole batch with these sizes, whose parts are run one by one; 0: nothing does. */
int64_t trainer_whole_bytes(const Trainer *trainer, const int64_t *sizes);
/* A bit for each run-time size that all parts of a step need alike, because their items are mixed. */
uint64_t trainer_common_sizes(const Trainer *trainer);
/* Whether the model has adapters that peft has names for; those files in `folder` (tfm_trainer_save_adapter). */
bool trainer_has_adapter(const Trainer *trainer);
bool trainer_save_adapter(Trainer *trainer, const char *folder, const char *base);
/* Why peft has no names for adapters that the model has; NULL: it has, or there are none. */
const char *trainer_no_adapter(const Trainer *trainer);
/* Writes the state of a run that begins with these weights; the file is replaced whole or not at all. */
bool trainer_write_start(Trainer *trainer, const char *path);

/* The graph of the divisors and sums of the loss, as it was before an engine took it; NULL: there is none. */
const Graph *trainer_counts(const Trainer *trainer);
/* Whether a step, or an evaluation, may have n batches; else an error that says why not. */
bool trainer_may_cut(const Trainer *trainer, uint32_t n, bool is_step);
/* The results over n batches; the weights stay. */
bool trainer_evaluate(Trainer *trainer, const EvalInputs *batches, uint32_t n, double *results);
/* A step over n batches, in epoch `epoch` (from 0). */
bool trainer_step(Trainer *trainer, const EvalInputs *batches, uint32_t n, int64_t epoch, StepResult *result);

#endif
