/* Dead code: what no output needs is not computed, and its weights are not asked for.
 *
 * Legal: operations have no effects but their results. Inputs stay, used or not: they are part of the interface. */
#include "passes/match.h"

bool pass_eliminate_dead(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->last, *prev; node; node = prev) {
    prev = node->prev;
    if (node->op == OP_INPUT || node->users.n || graph_is_output(pass->graph, node)) continue;
    graph_delete(pass->graph, node);
    changed = true;
  }
  return changed;
}
