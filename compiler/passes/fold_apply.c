/* In: a factor whose weight agrees. Out: the weight (and bias) scaled in a static subgraph, the factor gone. */
#include "passes/fold_weights.h"

/* Rows [from, to) times the factor; the scaled tensor stands right behind the old one, before all of its users. */
static Node *scaled_rows(Pass *pass, Node *tensor, const FoldCandidate *c) {
  Builder b = pass_builder(pass, tensor->next, tensor);
  int64_t rows;
  size_is_const(tensor->dims[0], &rows);
  int64_t from = c->to < 0 ? 0 : c->from, to = c->to < 0 ? rows : c->to;
  Node *part = match_slice(&b, tensor, 0, from, to - from);
  Node *product = build_binary(&b, OP_MUL, part, build_scalar(&b, DTYPE_F32, c->factor, 0));
  Node *parts[3];
  uint32_t n = 0;
  if (from > 0) parts[n++] = match_slice(&b, tensor, 0, 0, from);
  parts[n++] = product;
  if (to < rows) parts[n++] = match_slice(&b, tensor, 0, to, rows - to);
  return n == 1 ? product : build_concat(&b, n, parts, 0);
}

static Node *folded(Folding *f, Node *tensor, const FoldCandidate *c) {
  for (size_t i = 0; i < f->folded.n; i++) {
    const FoldedTensor *known = &f->folded.items[i];
    if (known->tensor == tensor && known->from == c->from && known->to == c->to && known->factor == c->factor)
      return known->folded;
  }
  FoldedTensor result = {tensor, c->from, c->to, c->factor, scaled_rows(f->pass, tensor, c)};
  vec_push(f->pass->scratch, &f->folded, result);
  return result.folded;
}

/* acc * factor -> acc */
static Expr *without_factor(Pass *pass, const Expr *expr) {
  Arena *arena = pass->graph->arena;
  ExprList list = expr_list(pass->scratch, expr);
  Expr **copies = ARENA_ARRAY(pass->scratch, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    const Expr *old = list.items[i];
    bool product = old->n_args && old->args[0]->kind == EXPR_ACC;
    copies[i] = product ? expr_acc(arena) : arena_copy(arena, old, sizeof *old);
    for (uint32_t j = 0; j < copies[i]->n_args; j++) copies[i]->args[j] = copies[list.args[j][i]];
  }
  return copies[list.n - 1];
}

void fold_apply(Folding *f, const FoldCandidate *c) {
  Pass *pass = f->pass;
  uint32_t weight = c->linear->op == OP_GATHER ? 0 : 1;
  graph_set_input(c->linear, weight, folded(f, c->linear->inputs.items[weight], c));
  if (c->add) graph_set_input(c->add, c->bias_input, folded(f, c->add->inputs.items[c->bias_input], c));
  pass_record(pass, "weight-fold", true, c->scaled, "the factor %g is in the weight of %s", c->factor,
              op_table[c->linear->op].name);
  if (c->scaled->op == OP_ATTENTION) {
    Expr *expr = without_factor(pass, c->scaled->attr.expr);
    c->scaled->attr.expr = expr->kind == EXPR_ACC ? NULL : expr;
    return;
  }
  match_replace(pass, c->scaled, c->scaled->inputs.items[0]);
}
