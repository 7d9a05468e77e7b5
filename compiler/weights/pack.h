/* Pack: executes the weight recipes of a plan into one block of memory.
 *
 * In: a plan and a way to get weights by name. Out: program.weights_bytes bytes at `packed`, which the caller owns,
 * aligns to 64 and zeroes: the padding of panels is not written. A recipe is a weight-only subgraph. Nearly all are
 * slices, concatenations, transpositions and scalings of weights; those are read as rows of weights that exist already,
 * a block at a time, and copied straight into their panels, so packing needs no memory beside its result but that of
 * a block. What cannot be read so is computed by the reference interpreter from whole weights, and then copied. Refuses
 * nothing of its own; errors are those of the weights. */
#ifndef TFM_WEIGHTS_PACK_H
#define TFM_WEIGHTS_PACK_H

#include "graph/eval.h"
#include "plan/plan.h"

// ---- recipes as rows ----

enum { RECIPE_MAX_FACTORS = 4 };

/* Element [i][j] is number first + i row_stride + j column_stride of the weight, or of `data`. */
typedef struct RecipePiece {
  int64_t rows;
  const char *weight; /* its name; NULL: `data` is there */
  const float *data;
  int64_t first, row_stride, column_stride;
  tfm_form rounding; /* BF16 or F16: elements are rounded before anything else; F32: they are not */
  uint32_t n_factors;
  float factors[RECIPE_MAX_FACTORS]; /* in the order of multiplication; each product is rounded */
} RecipePiece;

typedef struct RecipeRows { /* all axes but the last are rows; rank 0 and 1: one column per row */
  int64_t rows, columns;
  VEC(RecipePiece) pieces;
} RecipeRows;

/* True: `rows` has the value of the subgraph, which is made of f32 WEIGHT, rounding of one, SLICE, CONCAT of rows,
 * PERMUTE of a matrix, FULL and products with a number. False: it is made of something else. */
bool recipe_rows(Arena *arena, const Node *node, RecipeRows *rows);

// ---- packing ----

/* Where weights come from. */
typedef struct WeightReader {
  WeightLookup whole; /* NULL: nowhere */
  /* Elements [first, first + n) of a weight. False after reporting an error. NULL: they are taken from the whole. */
  bool (*part)(void *context, const char *name, int64_t first, int64_t n, float *to);
  void (*release)(void *context); /* called when no tensor that `whole` gave is in use any more; may be NULL */
  void *context;
} WeightReader;

/* Leaves out what another plan packs to the same offset (plan/plan_memory.h). False after an error. */
bool pack_weights(Diag *diag, const Plan *plan, const WeightReader *weights, char *packed);

#endif
