/* The tables that tell the runtime's trainer about the graphs of an objective (tfm/train.h).
 *
 * In: the graphs of an objective as it is trained and as it is evaluated, of which one may be missing. Out: a
 * tfm_training in the arena, without programs: what they are depends on who runs them; for a library, plans of the
 * graphs and their constants too. Refuses nothing itself. */
#ifndef TFM_TRAIN_TRAINING_H
#define TFM_TRAIN_TRAINING_H

#include "compile/compile.h"
#include "tfm/train.h"
#include "train/graphs.h"

/* Either may be NULL; what both have is taken from `step`. They may be used up afterwards. */
tfm_training *training_make(Arena *arena, const TrainGraphs *step, const TrainGraphs *evaluation);

// ---- for libraries ----

typedef struct TrainingModel {
  tfm_training *table;
  Graph *graphs[N_TRAINING_PLANS]; /* after the passes; NULL: nothing is divided by */
} TrainingModel;

/* The graphs become the model's. False after an error. */
bool training_model_make(const CompileRequest *request, TrainGraphs *step, TrainGraphs *evaluation,
                         TrainingModel *model);
/* Plans for the target of the request, to plans->training. */
bool training_model_plan(const CompileRequest *request, const TrainingModel *model, LibraryPlans *plans);
/* The packed constants of these plans, in the arena; NULL where there are none. */
bool training_model_pack(const CompileRequest *request, const LibraryPlans *plans, const void **weights);

/* How a library that trains makes the packed weights of its model, without a compiler: which numbers of which
 * parameters go where (tfm_packing); constants of the text as bytes; graphs for the few weights that the model computes
 * of others. Where weights are kept in fewer bits, the table says that they cannot be made. `plans` are those of any
 * instruction set, since all have one layout. Adds to the model. False after an error. */
bool training_model_packing(const CompileRequest *request, const LibraryPlans *plans, TrainingModel *model);

#endif
