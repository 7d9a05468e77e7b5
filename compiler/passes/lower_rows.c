/* Norms, softmax and reductions that no prologue went into, in the form that plan takes.
 *
 *   %4 = softmax %3, axis=1         %4 = reduce %3, reduction=softmax, axis=1, domain=[...], { $0 }
 *
 * Always legal. What is known before any run stays as it is. */
#include "passes/rows.h"

bool pass_lower_rows(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (is_row_operation(node) && !match_is_static(pass, node)) changed |= row_replace(pass, node, false);
  }
  return changed;
}
