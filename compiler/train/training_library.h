/* What a library that trains holds besides its tables: the plans of its graphs, their constants, and how it packs.
 *
 * In: the graphs of an objective, the model. Out: plans for each instruction set. Refuses nothing itself. */
#ifndef TFM_TRAIN_TRAINING_LIBRARY_H
#define TFM_TRAIN_TRAINING_LIBRARY_H

#include "aot/header.h"
#include "compile/library_model.h"
#include "tfm/abi/train_tables.h"
#include "train/graphs.h"

typedef struct TrainingModel {
  tfm_training *table;
  Graph *graphs[N_TRAINING_PLANS]; /* after the passes; NULL: nothing is divided by */
} TrainingModel;

/* The graphs become the model's. False after an error. */
bool training_model_make(const CompileRequest *request, TrainGraphs *step, TrainGraphs *evaluation,
                         TrainingModel *model);
typedef struct PlansOfSets { /* instruction sets, and a place for the plans of each */
  const TargetInfo *const *sets;
  LibraryPlans *plans;
  uint32_t n;
} PlansOfSets;

/* Plans of a library for each instruction set: those of the model and, if table is not NULL, of its training; then how
 * training packs, and its constants, to `parts`, which is zeroes at first. False after an error. */
bool training_plans(const CompileRequest *request, const LibraryModel *model, TrainingModel *training, PlansOfSets made,
                    TrainingParts *parts);

#endif
