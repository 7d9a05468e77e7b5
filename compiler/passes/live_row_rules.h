/* What the pass of live rows knows: which rows each operation reads (live_row_rules.c). Private to it. */
#ifndef TFM_PASSES_LIVE_ROW_RULES_H
#define TFM_PASSES_LIVE_ROW_RULES_H

#include "passes/zero_rows.h"

/* What becomes of a node: only these rows are computed, or, of a product, only these steps of its sums added. */
typedef struct Choice {
  bool is_made, are_steps;
  bool is_zero; /* the other rows are 0 */
  RowSet rows;
  uint32_t rank; /* of the mask */
  const Size *dims[MAX_RANK];
  ProductSteps steps; /* are_steps */
} Choice;

typedef struct LiveRows {
  Pass *pass;
  uint32_t most;   /* terms of a set */
  bool trains;     /* there are gradients: `zero` and `choices` are known */
  ZeroRows zero;
  RowSet *needs;   /* by id */
  bool *has_input; /* by id: depends on an input of the model */
  Choice *choices; /* by id */
  RowMasks masks;
} LiveRows;

/* Integer division by zero is an error of the run, which skipped rows would hide. */
bool live_rows_can_fail(Arena *scratch, const Expr *expr);
/* From the rows of the result that are read to those of each operand. */
void live_rows_of_operands(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands);

#endif
