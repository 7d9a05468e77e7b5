/* Norms and reductions in the form that plan takes: NORM and REDUCE with an expression. */
#ifndef TFM_PASSES_ROWS_H
#define TFM_PASSES_ROWS_H

#include "passes/grow.h"

/* Whether the node is a norm, a softmax or a reduction of the language. */
bool is_row_operation(const Node *node);
/* Replaces it. `fuse`: its operand is taken in where that is possible; false then if nothing was, and nothing is
 * changed. */
bool row_replace(Pass *pass, Node *node, bool fuse);

#endif
