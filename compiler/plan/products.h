/* Products: steps that multiply matrices, and what attention shares with them.
 *
 * In: LINEAR, MATMUL, MATMUL_FUSED. Out: gemm steps, whose right factor is a static weight packed into panels, before
 * them, for forms of whole numbers, a quantize step that rounds their rows; and matmul steps, whose factors are both
 * activations, packed at run time unless they lie so. An expression behind the product runs on the tile while it is in
 * L1; if it cannot, because its result is no f32 or it has too many operands, it becomes a step of its own. Refuses
 * nothing. Private to plan/. */
#ifndef TFM_PLAN_PRODUCTS_H
#define TFM_PLAN_PRODUCTS_H

#include "plan/body.h"

typedef struct TileKind {
  TileShape shape;
  int64_t a_stride, b_stride, a_step; /* a_step 0: the numbers of a row of a are neighbours */
  int64_t k;      /* numbers of a row, for tiles of INT8 in pairs; else 0 */
  uint8_t b_form; /* tfm_form */
  uint16_t chain; /* as in KernelSpec */
  bool goes_on;   /* the same */
  bool b_is_page, exact_zero, b_is_signed, in_pairs;
  bool never_cut; /* this product calls them for all their columns */
  float factor; /* as in KernelSpec */
  uint8_t least_rows;        /* of the heights that are needed, up to shape.rows; 0: all are */
  uint8_t whole_panel_rows;  /* tiles of up to so many rows take all columns of a panel */
  uint8_t least_matrix_rows; /* tiles of so many rows and more take what the target has for matrices; 0: none do */
} TileKind;

/* Sets tiles[r] to the kernel for r rows, for least_rows to shape.rows; TFM_NONE for the rest; tiles[0] is
 * whole_panel_rows. Every number of rows has a kernel of its own, because the rows of a tile are
 * registers and cannot be counted at run time. */
void contract_tiles(Planner *p, const TileKind *kind, uint32_t tiles[TFM_MAX_TILE_ROWS + 1]);
/* Returns the kernel that packs panels of f32 from a matrix with these strides, whose numbers are in the form. */
uint32_t contract_pack(Planner *p, uint32_t width, tfm_form form, const Size *k_stride, const Size *column_stride);
/* Whether x is the result of a softmax, seen through views. A weight of exactly 0 must then contribute 0 whatever the
 * other factor holds, NaN included (docs/decisions/0002-bits.md), so the product takes exact tiles. */
bool contract_is_softmax(const Node *x);

/* A product's result and the expression behind it. If the expression cannot run in place, the product goes to memory
 * of its own, and contract_finish adds a step for the expression. */
typedef struct Epilogue {
  Body body;  /* what is computed with the product */
  Body after; /* not in place: what is computed from `c` */
  View c;
  bool in_place;
} Epilogue;

/* Begins a product: the caller adds its step between this call and contract_finish. `test` says which layouts of the
 * result the step can write. */
Epilogue contract_begin(Planner *p, const Node *node, LayoutTest test);
/* Returns the row kernel of an epilogue in place; TFM_NONE if there is nothing to compute. */
uint32_t contract_kernel(Planner *p, const Nest *nest);
void contract_finish(Planner *p, const Node *node, Epilogue *epilogue);

/* Returns the distance of the rows of `a`, which is a constant of the tiles. With a single row any distance will do;
 * then it is the one that other layers of the same width have, so that they share their tiles. */
int64_t product_row_stride(Planner *p, const View *a, const Size **rows, int64_t k, bool has_whole_rows);
/* The steps of a chain of a product's sums. With no more than these a single chain needs no code for others. */
uint16_t product_chain(const Size *k);
/* A LINEAR whose weights are static: x wT with packed weights. */
void plan_gemm(Planner *p, const Node *node);

// ---- attention.c, for its gradient ----

/* What the expression of scores over [..., t, s] says about keys that are masked, whatever else it computes. */
typedef struct MaskHints {
  bool causal;        /* every key after the query's row + causal_offset is -inf */
  const Size *causal_offset;
  uint8_t padding;    /* a bool operand without a stride along t; 0: none */
  bool padding_true;  /* keys are -inf where it is true, else where it is false */
  bool padding_only;  /* the scores of other keys stay as they are */
} MaskHints;
MaskHints attention_mask_hints(Planner *p, const Nest *nest);
/* The layout that a result of an attention has; NULL: the default. */
const View *attention_layout(Planner *p, const Node *node, View *view, const Size **elements);

#endif
