/* tfm/abi/train_graphs.h: the graphs that a trainer runs, and what they take; results that mix the items of a batch.
 * C99. */
#ifndef TFM_TRAIN_GRAPH_TABLES_H
#define TFM_TRAIN_GRAPH_TABLES_H

#include "tfm/abi/packed_program.h"

// ---- graphs ----

/* CUT: a value that all parts of a step gave together; COTANGENT: what the mixture gives a part for it. */
typedef enum tfm_train_source {
  TFM_FROM_BATCH,
  TFM_FROM_DROPOUT,
  TFM_FROM_SEED,
  TFM_FROM_PARAMETER,
  TFM_FROM_CUT,
  TFM_FROM_COTANGENT
} tfm_train_source;

typedef struct tfm_train_input {
  uint32_t source, number; /* of the objective's inputs, dropouts, parts of the loss, parameters, values of the cut */
} tfm_train_input;

typedef struct tfm_train_graph {
  const tfm_train_input *inputs;
  /* One per instruction set, as of the library, which is the last of its tables; NULL: the engine knows the graph. */
  const tfm_packed_tables *programs;
  const void *weights;          /* packed: constants of the text */
  uint32_t n_inputs, n_outputs; /* n_outputs 0: there is no graph */
  uint32_t draws;               /* it reads masks of dropout; else their content does not matter */
} tfm_train_graph;

// ---- results that mix items ----

/* Of batches in several parts: parts give the values of the cut, which are joined along an axis
 * or added up; the mixture reads them and gives results and cotangents; then parts go back from those. */
typedef struct tfm_train_cut {
  uint32_t axis;      /* of the items; TFM_NONE: values are added up */
  uint32_t cotangent; /* output of the mixture; TFM_NONE: nothing flows back */
} tfm_train_cut;

typedef struct tfm_train_mixture {
  const tfm_train_cut *cuts;
  const uint32_t *gradients, *back_gradients; /* by parameter: output of the mixture, of `back`; TFM_NONE: none */
  tfm_train_graph vectors; /* outputs: the values of the cut */
  tfm_train_graph whole;   /* results, cotangents, gradients; inputs are no batch's */
  tfm_train_graph back;    /* the values of the cut once more, gradients */
  uint64_t sizes; /* a bit for each run-time size that all parts must have in common */
  uint32_t n_cuts; /* 0: there is no mixture */
} tfm_train_mixture;

/* What computes them (runtime/train/joined.c). Nothing else of the runtime refers to it, so only libraries with results
 * that mix items have it. A function that gives a table, since code that is loaded into memory knows no other data. */
typedef const struct Mixer *tfm_mixer_of(void);
const struct Mixer *tfm_mixer_of_items(void);

// ---- what else only some libraries have ----

struct OptimizerJob;
struct Chunk;
struct tfm_objective;
struct tfm_trainer;

/* What an optimizer does to a piece of the weights (runtime/train/vectors/optimizers.c). */
typedef void tfm_optimizer_work(const struct OptimizerJob *job, const struct Chunk *chunk);
tfm_optimizer_work tfm_optimize_sgd, tfm_optimize_adam;

/* Moves the running mean of the weights: called before each update and after it (the same file). */
typedef void tfm_weight_average(struct tfm_trainer *trainer, int is_before);
tfm_weight_average tfm_average_weights;

/* Computes the steps of an objective's formulas over sums, or, with slopes, what the loss changes with each of them,
 * from the last one to the first (runtime/train/formula_steps.c). */
typedef void tfm_formula_walk(struct tfm_trainer *trainer, const struct tfm_objective *objective, double *slopes);
tfm_formula_walk tfm_walk_formulas;

#endif
