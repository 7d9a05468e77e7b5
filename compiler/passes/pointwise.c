/* In: a graph whose products and reductions have taken what they could. Out: one POINTWISE node for each value that is
 * still needed. From the end of the list: what a node takes in, and views of it, are gone when their turn comes. */
#include "passes/pointwise.h"

static bool needs_replacing(Pass *pass, const Node *node) {
  bool source = node->op == OP_FULL || node->op == OP_SIZE || node->op == OP_POSITIONS || node->op == OP_CAUSAL_MASK;
  if (!source && !op_is_pointwise(node->op) && node->op != OP_GATHER) return false;
  return !match_is_static(pass, node);
}

static bool is_used(const Pass *pass, const Node *node) {
  return node->users.n || graph_is_output(pass->graph, node);
}

static void replace(Pass *pass, Node *node, bool fuse) {
  Grow g = grow_over(pass, node->rank, (const Size *const *)node->dims);
  g.operations = g.gathers = fuse;
  Expr *expr = grow_expr(&g, node, NULL);
  Node *fused = graph_add(pass->graph, node, OP_POINTWISE, node->dtype, node->rank, (const Size *const *)node->dims,
                          (uint32_t)g.inputs.n, g.inputs.items, node->origin);
  fused->attr.expr = expr;
  if (fuse && expr_count(expr) > 1) {
    StrBuf text = strbuf_new(pass->scratch);
    expr_print(&text, pass->graph->sizes, expr);
    pass_record(pass, "pointwise", true, node, "%s", text.text);
  }
  graph_replace_uses(pass->graph, node, fused);
}

bool pointwise_replace_all(Pass *pass, bool fuse) {
  bool changed = false;
  for (Node *node = pass->graph->last, *prev; node; node = prev) {
    prev = node->prev;
    bool used = is_used(pass, node);
    if (node->op == OP_INPUT || (used && !needs_replacing(pass, node))) continue;
    if (used) replace(pass, node, fuse);
    graph_delete(pass->graph, node);
    changed = true;
  }
  return changed;
}
