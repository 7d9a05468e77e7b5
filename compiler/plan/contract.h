/* Contract: what steps with products of matrices have in common. Private to plan/. */
#ifndef TFM_PLAN_CONTRACT_H
#define TFM_PLAN_CONTRACT_H

#include "plan/nest.h"

typedef struct TileKind {
  TileShape shape;
  int64_t a_stride, b_stride;
  bool b_is_page, exact_zero;
} TileKind;

/* Kernels for 1 ... shape.rows rows; the others TFM_NONE. */
void contract_tiles(Planner *p, const TileKind *kind, uint32_t tiles[TFM_MAX_TILE_ROWS + 1]);
/* The kernel that packs panels from a matrix with these strides. */
uint32_t contract_pack(Planner *p, uint32_t width, const Size *k_stride, const Size *column_stride);
/* Whether x is the result of a softmax, through views. */
bool contract_is_softmax(const Node *x);

/* A product's result and the expression after it. If the expression cannot run in place (its result is no f32, it has
 * too many operands), the product goes to memory of its own and `contract_finish` adds a step for the expression. */
typedef struct Epilogue {
  Body body;  /* what is computed with the product */
  Body after; /* not in place: what is computed from `c` */
  View c;
  bool in_place;
} Epilogue;

Epilogue contract_begin(Planner *p, const Node *node, LayoutTest test);
/* The row kernel of an epilogue in place; TFM_NONE if there is nothing to compute. */
uint32_t contract_kernel(Planner *p, const Nest *nest);
void contract_finish(Planner *p, const Node *node, Epilogue *epilogue);

#endif
