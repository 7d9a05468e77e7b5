/* ItemCut: where the graph of an objective is cut, so that results which mix items can be computed of parts of a batch.
 *
 * In: results, and the kind of each value (item_kinds.h). Out: the values that what mixes items reads: such of one item
 * each, which parts give one behind the other, and sums over items. Below them everything is computed part by part;
 * what stands above, the mixture, is computed once, of the whole batch. Refused: results that read an input without
 * items, which each part may have another of, or an input with several axes of items. */
#ifndef TFM_TRAIN_ITEM_CUT_H
#define TFM_TRAIN_ITEM_CUT_H

#include "elaborate/objective.h"
#include "train/item_kinds.h"

typedef struct CutValue {
  Node *node;          /* of the objective's graph */
  Node *of;            /* the value that the mixture reads; it is `node` but for averages */
  int32_t axis;        /* of the items; -1: the values of parts are added up */
  const Size *average; /* `of` is an average, `node` the sum over these places; NULL: it is none */
  bool has_gradient;   /* a trained weight reaches it in a differentiable way */
} CutValue;

typedef struct ItemCut {
  VEC(CutValue) values;
  const Node *where; /* what refuses a cut; NULL: there is one */
} ItemCut;

typedef struct CutRequest {
  ItemKinds *kinds;
  const Objective *objective;
  const Map *stopped; /* nodes (by their pointers) through which nothing flows back */
} CutRequest;

/* The cut below these results; sums may be added to the graph. False: there is none. */
bool item_cut_find(const CutRequest *request, const GraphOutput *results, size_t n, ItemCut *cut);
/* The size that the value is, as f32; NULL: it is something else. Averages have theirs among the values. */
const Size *item_cut_counts(const CutValue *value);
/* Which run-time sizes a graph depends on, but for that of the items: a bit for each. */
uint64_t graph_sizes(const Graph *graph, int32_t batch);

#endif
