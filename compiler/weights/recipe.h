/* Recipe: the value of a static subgraph as rows of tensors that exist already, without computing it.
 *
 * In: a subgraph of f32 WEIGHT, SLICE, CONCAT of rows, PERMUTE of a matrix, FULL and products with a number. Out: pieces of
 * consecutive rows, each with strides and the factors that its elements are multiplied by. Refuses everything else:
 * the reference interpreter computes that. */
#ifndef TFM_WEIGHTS_RECIPE_H
#define TFM_WEIGHTS_RECIPE_H

#include "graph/eval.h"

enum { RECIPE_MAX_FACTORS = 4 };

typedef struct RecipePiece {
  int64_t rows;
  const float *data; /* element [0][0] */
  int64_t row_stride, column_stride;
  uint32_t n_factors;
  float factors[RECIPE_MAX_FACTORS]; /* in the order of multiplication; each product is rounded */
} RecipePiece;

typedef struct RecipeRows { /* all axes but the last are rows; rank 0 and 1: one column per row */
  int64_t rows, columns;
  VEC(RecipePiece) pieces;
} RecipeRows;

typedef enum RecipeResult { RECIPE_ROWS, RECIPE_REFUSED, RECIPE_FAILED } RecipeResult;

/* FAILED: `weights` reported an error. */
RecipeResult recipe_rows(Arena *arena, const Node *node, WeightLookup weights, void *context, RecipeRows *rows);

#endif
