/* Batches that a file gives, one after the other. */
#ifndef TFM_CLI_COMMANDS_GIVEN_BATCHES_H
#define TFM_CLI_COMMANDS_GIVEN_BATCHES_H

#include "cli/session.h"
#include "graph/eval.h"

typedef struct Batches {
  VEC(EvalInputs) items;
} Batches;

/* NULL after an error. */
Batches *batches_load(Session *session, const Graph *graph, uint32_t n);

#endif
