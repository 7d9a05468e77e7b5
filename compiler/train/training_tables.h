/* The tables that tell the runtime's trainer about the graphs of an objective (tfm/abi/train_tables.h).
 *
 * In: the graphs of an objective as it is trained and as it is evaluated, of which one may be missing. Out: a
 * tfm_training in the arena, without programs: what they are depends on who runs them. Refuses nothing itself. */
#ifndef TFM_TRAIN_TRAINING_TABLES_H
#define TFM_TRAIN_TRAINING_TABLES_H

#include "tfm/abi/train_tables.h"
#include "train/graphs.h"

/* Either may be NULL; what both have is taken from `step`. They may be used up afterwards. */
tfm_training *training_make(Arena *arena, const TrainGraphs *step, const TrainGraphs *evaluation);

#endif
