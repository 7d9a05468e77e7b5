/* LossParts: a result of an objective as what parts of a batch can compute one by one.
 *
 * In: a result, f32 of rank 0. Out: quotients of sums over items, numerators and divisors apart; terms of weights
 * alone, which count once; and formulas over such sums, as of exp(mean). All of them are added up over the parts of a
 * batch before anything is divided or a formula is computed, so a result does not depend on how its items are cut. A
 * result that is none of this says where it mixes items: it needs the whole batch at once. */
#ifndef TFM_TRAIN_LOSS_PARTS_H
#define TFM_TRAIN_LOSS_PARTS_H

#include "graph/build.h"
#include "train/item_kinds.h"
#include "tfm/abi/train_formula.h"

typedef struct FormulaStep {
  uint32_t op;                             /* tfm_formula_op; of TFM_FORMULA_LEAF the value is that of `leaf` */
  uint32_t operands[TFM_FORMULA_OPERANDS]; /* steps before this one */
  double number;
  Node *leaf;
  bool is_once; /* the leaf is the same in every part */
} FormulaStep;

typedef struct LossPart { /* factor * top / bottom; or factor * top / step; or, without a top, factor * step */
  double factor;
  Node *top, *bottom; /* rank 0; bottom NULL: 1 */
  bool is_once;       /* the top is of weights alone */
  int32_t formula;    /* a step; with a top no weight reaches it. -1: none */
} LossPart;

typedef struct LossParts {
  VEC(LossPart) parts;
  VEC(FormulaStep) steps;
  bool is_whole;     /* it needs all items at once: the only part is the result itself */
  bool divides;      /* because a divisor depends on weights; else items are mixed */
  const Node *where; /* there; NULL: nothing counts items */
} LossParts;

typedef struct LossRequest {
  ItemKinds *kinds;
  const Map *stopped;     /* nodes (by their pointers) through which nothing flows back: formulas stop there too */
  bool is_differentiated; /* then what items and weights make together may not be divided by */
} LossRequest;

/* The parts of `result`; nodes may be added to the graph. */
void loss_parts(const LossRequest *request, Node *result, LossParts *parts);
/* How many operands a step has; the operation it is one of. Only of operations: not of numbers and leaves, which have
 * no operands. */
uint32_t formula_operands(uint32_t op);
OpKind formula_op_kind(uint32_t op);
/* Whether a gradient may flow from the value to a weight. */
bool reaches_weight(Arena *scratch, const Map *stopped, const Node *of);

#endif
