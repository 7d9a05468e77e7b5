/* Prologues: pointwise work that feeds a norm, a softmax or a reduction, done while its rows are read.
 *
 *   %3 = add %1, %2
 *   %4 = layer_norm %3, %w, %b      %4 = norm %1, %2, %w, %b, reduction=layer_norm, { add($0, $1) }
 *
 * Legal:
 *   1. nobody else uses what is taken in;
 *   2. gathered rows (embeddings) only where whole rows are reduced.
 * A residual sum that is used again is made by the product before it (fuse-epilogues); the norm then has $0 alone.
 * Pays: one pass over memory less, and no buffer between. */
#include "passes/rows.h"

bool pass_fuse_prologues(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (is_row_operation(node) && !match_is_static(pass, node)) changed |= row_replace(pass, node, true);
  }
  return changed;
}
