/* Uniform: a model with ragged sizes as one whose items have the same sizes in a run.
 *
 * In: a graph. Out: the same without ragged sizes. A run of it computes what the language says if all items of the
 * batch have the lengths that the sizes are: no operation mixes items, so each is computed as if it were alone. */
#ifndef TFM_GRAPH_UNIFORM_H
#define TFM_GRAPH_UNIFORM_H

#include "graph/graph.h"

/* Changes the graph. Checks go on to speak of one item, whose batch is 1. */
void graph_make_uniform(Graph *graph);

#endif
