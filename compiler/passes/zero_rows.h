/* ZeroRows: which rows of values are exactly zero in a graph with gradients.
 *
 * In: a fused graph whose cotangents depend on inputs "train.seed.*". Out: for each node where it may differ from 0,
 * and the steps of a product's sums that add anything. Private to live_rows.c, which says what becomes of it. Legal:
 *   1. a selection is 0 where it selects a 0, a softmax where its score is -inf, a concat where it has zeros;
 *   2. in what depends on a cotangent, 0 times anything is 0, and so is a sum, a row, a product of zeros: what gets
 *      nothing gives nothing, also to numbers that are infinite;
 *   3. forwards 0 times anything is 0 only for the weights of attention (docs/decisions/0002-bits.md) and numbers known
 *      now.
 * Anything else may differ from 0 everywhere. */
#ifndef TFM_PASSES_ZERO_ROWS_H
#define TFM_PASSES_ZERO_ROWS_H

#include "passes/pass.h"
#include "passes/row_sets.h"

typedef struct ZeroRows {
  Pass *pass;
  RowSet *nonzero, *finite; /* by id: where the value may differ from 0, from -inf */
  bool *is_cotangent;       /* by id */
} ZeroRows;

ZeroRows zero_rows_find(Pass *pass);

/* Whether the gradient of attention is 0 where its products are: nothing else is added to what scores get. */
bool zero_only_products(const ZeroRows *z, const Node *attention_grad, Expr *const *terms);

/* Steps of k of a product that may add something, over its leading axes and then those that k is made of: factors are
 * followed behind views to the values whose rows they are. */
typedef struct ProductSteps {
  RowSet rows;
  uint32_t rank, n_lead;
  const Size *dims[MAX_RANK];
  const Node *roots[2];
  int32_t axes[2][MAX_RANK]; /* of the roots; -1: none */
} ProductSteps;

/* False: all steps count, as far as is known. */
bool zero_steps(const ZeroRows *z, const Node *product, ProductSteps *steps);

#endif
