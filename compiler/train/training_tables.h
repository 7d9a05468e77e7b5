/* The tables that tell the runtime's trainer about the graphs of an objective (tfm/abi/train_tables.h).
 *
 * In: the graphs of an objective as it is trained and as it is evaluated, of which one may be missing. Out: a
 * tfm_training in the arena, without programs: what they are depends on who runs them; for a library, plans of the
 * graphs and their constants too. Refuses nothing itself. */
#ifndef TFM_TRAIN_TRAINING_H
#define TFM_TRAIN_TRAINING_H

#include "aot/header.h"
#include "compile/library_model.h"
#include "tfm/abi/train_tables.h"
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
/* Plans of a library for each instruction set, in the order given: those of the model and, if table is not NULL, of its
 * training; then how training packs, and its constants, to `parts`, which is zeroes at first. False after an error. */
bool training_plans(const CompileRequest *request, const LibraryModel *model, TrainingModel *training,
                    const TargetInfo *const *sets, uint32_t n_sets, LibraryPlans *plans, TrainingParts *parts);

#endif
