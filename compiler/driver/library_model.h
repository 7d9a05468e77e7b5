/* LibraryModel: a model as a library is made from it, or as one that exists was made.
 *
 * In: a graph as the elaborator made it, the options for passes. Out: its forms after the passes, its generate block,
 * plans of them for an instruction set, which share their packed weights. Refuses ragged sizes of models that write nothing:
 * they are sizes of each row and of each item for the functions that write, and of all rows of a run for forward. */
#ifndef TFM_DRIVER_LIBRARY_MODEL_H
#define TFM_DRIVER_LIBRARY_MODEL_H

#include "aot/packed_weights.h"
#include "driver/session.h"
#include "tfm/library.h"

typedef struct LibraryModel {
  Graph *graph;
  Incremental incremental; /* step NULL: none */
  const tfm_generation *generation; /* NULL: the model doesn't write */
  const char *not_incremental;      /* why it is not, if it writes: "... (model.tfm:3:5, layers.0)" */
  const char *ragged;               /* the length of what it writes, if it was ragged; NULL: it was not */
  const bool *ragged_sources;       /* by the sizes of the graph: others that were; NULL: none */
} LibraryModel;

/* The graph becomes the model's. False after an error. */
bool library_model_make(Session *session, Graph *graph, LibraryModel *model);
/* Places in the plans name files from the folder of the model, so that they do not depend on where that lies. False after an
 * error. */
bool library_model_plan(Session *session, const LibraryModel *model, const TargetInfo *target, LibraryPlans *plans);
/* The plans of session->library, made again, with the layout of its weights. False after an error. */
bool plans_of_library(Session *session, Graph *graph, LibraryPlans *plans);

#endif
