/* ItemKinds: how the values of an objective depend on the items of a batch.
 *
 * In: the graph of an objective as it was elaborated, and the size that counts items. Out: of each value whether it may
 * be computed in parts of a batch, and what has to be done with the parts then: nothing, since it is the same in each;
 * joining; adding up; or whether it needs all items at once. What no rule shows to be one of the former is MIXED.
 * Nothing is refused here. */
#ifndef TFM_TRAIN_ITEM_KINDS_H
#define TFM_TRAIN_ITEM_KINDS_H

#include "graph/infer.h"

typedef enum ItemKindName {
  ITEMS_FREE,    /* of numbers and weights alone: the same in every part */
  ITEMS_SIZED,   /* that, and run-time sizes other than the batch, or inputs without items: a part has its own */
  ITEMS_EACH,    /* along one axis each element is of one item, and made of that item alone */
  ITEMS_TOTAL,   /* a sum over items: the values of parts add up */
  ITEMS_AVERAGE, /* a TOTAL over the number of the items, or of places of all items */
  ITEMS_MIXED    /* anything else */
} ItemKindName;

typedef struct ItemKind {
  ItemKindName name;
  uint32_t axis;     /* EACH */
  const Size *over;  /* AVERAGE */
  const Node *where; /* MIXED: the operation that mixes; NULL: the result does, since nothing counts items */
} ItemKind;

typedef struct ItemKinds {
  Graph *graph;
  int32_t batch;     /* the size that counts items; -1: there is none, and whatever depends on an input is MIXED */
  uint32_t n_inputs; /* of the batch; those behind them are masks of dropout */
  Map kinds;         /* Node * -> ItemKind * */
  const Node *last;  /* of the list that has a kind */
} ItemKinds;

/* Nodes that are appended to the graph later have kinds too. */
ItemKinds item_kinds_new(Graph *graph, int32_t batch, uint32_t n_inputs);
ItemKind item_kind(ItemKinds *kinds, const Node *node);

#endif
