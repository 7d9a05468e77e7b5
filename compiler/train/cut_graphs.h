/* CutGraphs: an objective that mixes the items of a batch, as graphs for batches that are computed in parts.
 *
 * In: the graph of an objective and its cut (item_cut.h). Out: what a part gives the mixture; the mixture, whose inputs
 * are what all parts gave, with the results and, if there are gradients, the cotangents of its inputs and gradients of
 * the weights that it reads itself; the backward half of a part, whose seeds are those cotangents. Refused: what
 * cannot be differentiated, with its place. */
#ifndef TFM_TRAIN_CUT_GRAPHS_H
#define TFM_TRAIN_CUT_GRAPHS_H

#include "passes/differentiate.h"
#include "train/item_cut.h"

typedef struct CutGradient { /* output `output` of a graph is the gradient of this weight */
  const char *path;
  uint32_t output;
} CutGradient;

typedef struct CutGraphs {
  ItemCut cut;
  Graph *vectors; /* outputs: the values of the cut */
  Graph *mixture; /* outputs: the results, cotangents of the values with has_gradient, gradients */
  Graph *back;    /* outputs: the values of the cut, gradients; NULL: no gradient flows to a part */
  VEC(CutGradient) of_mixture, of_back;
  uint64_t sizes; /* a bit for each run-time size that all parts must have in common */
} CutGraphs;

typedef struct CutGraphsRequest {
  Arena *arena;
  Diag *diag;
  Graph *graph; /* stays as it is, but for sums that are added */
  const Objective *objective;
  ItemKinds *kinds;
  const Map *stopped;
  const GraphOutput *results;
  size_t n_results;
  bool has_gradients;
} CutGraphsRequest;

/* Weights are inputs of these graphs. *made stays NULL where there is no cut; then *where, of an operation or
 * input, says what refuses it, or is NULL. False after an error. */
bool cut_graphs(const CutGraphsRequest *request, CutGraphs **made, const Node **where);
/* The input of the mixture, and of the backward half, that stands for the value of this number. */
const char *cut_name(Arena *arena, size_t number);

#endif
