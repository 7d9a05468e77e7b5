/* A constant factor and the projection (or table) that could take it: found by fold_weights.c, done by fold_apply.c. */
#ifndef TFM_PASSES_FOLD_WEIGHTS_H
#define TFM_PASSES_FOLD_WEIGHTS_H

#include "passes/weight_uses.h"

typedef struct FoldCandidate {
  Node *scaled;       /* MUL by the factor, or an ATTENTION whose acc is multiplied by it */
  Node *linear;       /* LINEAR, or GATHER from a table */
  Node *add;          /* the bias: NULL or ADD */
  uint32_t bias_input;
  int64_t from, to;   /* columns of the projection; to = -1: all */
  double factor;
  WeightRegion region;
  bool agreed;
} FoldCandidate;

typedef struct FoldedTensor {
  const Node *tensor;
  int64_t from, to;
  double factor;
  Node *folded;
} FoldedTensor;

typedef struct Folding {
  Pass *pass;
  VEC(FoldCandidate) candidates;
  VEC(FoldedTensor) folded; /* what was scaled already: shared weights are scaled once */
} Folding;

void fold_apply(Folding *folding, const FoldCandidate *candidate);

#endif
