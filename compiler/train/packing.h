/* How a library that trains makes the packed weights of its model, without a compiler.
 *
 * In: the plans of the model. Out: tables of which numbers of which parameters go where in the block of packed
 * weights (tfm_packing); constants of the text as bytes; graphs for the few weights that the model computes of others,
 * such as a norm of a weight. Refuses nothing: where weights are kept in fewer bits, the table says that they cannot be
 * made. */
#ifndef TFM_TRAIN_PACKING_H
#define TFM_TRAIN_PACKING_H

#include "train/training.h"

/* For any instruction set, since all have one layout: adds the table and the graphs to the model. False after an
 * error. */
bool training_model_packing(const CompileRequest *request, const LibraryPlans *plans, TrainingModel *model);

#endif
