/* Costs of lines, as a code lens says them. Plans are made in folders behind this one, so whoever starts the server
 * gives it the function that knows them. */
#ifndef TFM_LSP_LINE_COST_H
#define TFM_LSP_LINE_COST_H

#include "graph/graph.h"

typedef struct LineCost {
  uint32_t line; /* from 1 */
  const char *text;
} LineCost;

typedef struct LineCosts {
  VEC(LineCost) items; /* in the order of the lines */
} LineCosts;

/* Adds what the lines of `source` cost in the model of `graph`, which stays as it is; nothing if it cannot be planned.
 * Texts live in the arena. */
typedef void CostLines(Arena *arena, const Graph *graph, Source *source, LineCosts *costs);

#endif
