/* Generation: the generate block of a model as its library holds it. */
#ifndef TFM_AOT_GENERATION_H
#define TFM_AOT_GENERATION_H

#include "graph/graph.h"
#include "tfm/library.h"

/* What a model must be for the library to write with it: rows that are a run-time size or one, tokens whose number is
 * known. NULL if it has no generate block or is not so; `defaults` and `bos` are those of the runtime, not the block's. */
tfm_generation *generation_of(Arena *arena, const Graph *graph);

#endif
