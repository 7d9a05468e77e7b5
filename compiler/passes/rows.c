/* In: a norm, a softmax or a reduction. Out: NORM or REDUCE of an expression, which at least is the operand itself. */
#include "passes/rows.h"

#include <string.h>

bool is_row_operation(const Node *node) {
  return op_table[node->op].category == CATEGORY_REDUCE || node->op == OP_SOFTMAX || node->op == OP_LOG_SOFTMAX ||
         node->op == OP_LAYER_NORM || node->op == OP_RMS_NORM;
}

static bool is_norm(const Node *node) { return node->op == OP_LAYER_NORM || node->op == OP_RMS_NORM; }

static void record(Pass *pass, const Node *node, const Expr *expr) {
  StrBuf text = strbuf_new(pass->scratch);
  expr_print(&text, pass->graph->sizes, expr);
  pass_record(pass, "prologue", true, node, "%s of %s", op_table[node->op].name, text.text);
}

static void record_refusal(Pass *pass, const Node *node) {
  const Node *x = node->inputs.items[0];
  if (!op_is_pointwise(x->op) || match_is_static(pass, x)) return;
  pass_record(pass, "prologue", false, node, "what %s is taken of (%s) is used elsewhere too", op_table[node->op].name,
              op_table[x->op].name);
}

static Node *add_fused(Pass *pass, Node *node, Grow *g, Expr *expr) {
  OpKind op = is_norm(node) ? OP_NORM : OP_REDUCE;
  const Node *x = node->inputs.items[0];
  for (size_t i = 1; i < node->inputs.n; i++) vec_push(pass->scratch, &g->inputs, node->inputs.items[i]);
  Node *fused = graph_add(pass->graph, node, op, node->dtype, node->rank, (const Size *const *)node->dims,
                          (uint32_t)g->inputs.n, g->inputs.items, node->origin);
  fused->attr = node->attr;
  fused->attr.reduction = node->op;
  fused->attr.expr = expr;
  if (op == OP_NORM) return fused;
  fused->attr.rank_in = x->rank;
  memcpy(fused->attr.dims_in, x->dims, sizeof x->dims);
  return fused;
}

bool row_replace(Pass *pass, Node *node, bool fuse) {
  Node *x = node->inputs.items[0];
  Grow g = grow_over(pass, x->rank, (const Size *const *)x->dims);
  g.operations = fuse;
  g.gathers = fuse && (is_norm(node) || (uint32_t)node->attr.axis + 1 == x->rank);
  Expr *expr = grow_expr(&g, x, node);
  if (fuse && expr->kind == EXPR_INPUT) {
    record_refusal(pass, node);
    return false;
  }
  Node *fused = add_fused(pass, node, &g, expr);
  if (fuse) record(pass, node, expr);
  match_replace(pass, node, fused);
  return true;
}
