/* Pack: executes the weight recipes of a plan into one block of memory.
 *
 * In: a plan and a way to get weights by name. Out: program.weights_bytes bytes at `packed`, which the caller owns,
 * aligns to 64 and zeroes: the padding of panels is not written. A recipe is a weight-only subgraph. Nearly all are
 * slices, concatenations, transpositions and scalings of weights; those are read as rows of tensors that exist already
 * and copied once, straight into their panels, so packing needs no memory beside its result. What cannot be read so is
 * computed by the reference interpreter and then copied. Refuses nothing of its own; errors are those of the
 * weights. */
#ifndef TFM_WEIGHTS_PACK_H
#define TFM_WEIGHTS_PACK_H

#include "graph/eval.h"
#include "plan/plan.h"

// ---- recipes as rows ----

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

/* What reading a recipe as rows came to. */
typedef enum RecipeResult { RECIPE_ROWS, RECIPE_REFUSED, RECIPE_FAILED } RecipeResult;

/* ROWS: `rows` has the value of the subgraph. It must be made of f32 WEIGHT, SLICE, CONCAT of rows, PERMUTE of a
 * matrix, FULL and products with a number. REFUSED: it is made of something else. FAILED: `weights`
 * reported an error. */
RecipeResult recipe_rows(Arena *arena, const Node *node, WeightLookup weights, void *context, RecipeRows *rows);

// ---- packing ----

/* Leaves out what another plan packs to the same offset (plan/memory.h). False after an error. */
bool pack_weights(Diag *diag, const Plan *plan, WeightLookup weights, void *context, char *packed);

#endif
