/* Eval: the reference interpreter of graphs, slow plain C, the oracle of every numeric test and of `tfmc verify`.
 *
 * It shares no code with the kernels, so that a mistake in one shows as a difference: each operation is computed as its
 * definition says, in double, and rounded to f32 at the end. With ragged sizes each item is computed alone, and the
 * results are put together with zeros between them. */
#ifndef TFM_GRAPH_EVAL_H
#define TFM_GRAPH_EVAL_H

#include "graph/eval_call.h"

/* Computes all outputs into arena memory, in the order of graph->outputs. Checks inputs (names, types, shapes, sizes
 * that differ, ids) and the graph's checks with the messages of the golden cases. False after an error. */
bool graph_eval(Arena *arena, Diag *diag, const EvalCall *call, Tensor *outputs);
/* Whether the tensor given as "time.lengths" has one length for each of `items` items; the values are not looked at.
 * `batch`: the name of the size that counts the items. */
bool eval_check_lengths(Arena *arena, Diag *diag, const char *name, const char *batch, int64_t items,
                        const Tensor *given);
/* The value of one static node (node_is_static): constants and weights only. NULL after an error. */
Tensor *graph_eval_static(Arena *arena, Diag *diag, const Graph *graph, const Node *node, WeightLookup weights,
                          void *context);

#endif
