/* Epilogues: pointwise work on a product, done where the product is made.
 *
 *   %3 = linear %x, %w
 *   %4 = add %3, %b              %6 = linear %x, %w, %b, %r, { add(gelu(add(acc, $2)), $3) }
 *   %5 = gelu %4
 *   %6 = add %5, %r
 *
 * Legal:
 *   1. all uses of the product, and of everything between it and the result, lie inside the expression;
 *   2. the result has the product's shape (operands broadcast) and is f32;
 *   3. operands stand before the result, where the fused operation is put; so none depends on it.
 * Pays: bias, activation, gate and residual cost no pass over memory. */
#include "passes/grow.h"

enum { MAX_REACHED = 64 };

typedef VEC(Node *) Reached;

static bool is_reached(const Reached *reached, const Node *node) {
  for (size_t i = 0; i < reached->n; i++)
    if (reached->items[i] == node) return true;
  return false;
}

static bool could_follow(const Node *user, const Node *product) {
  return op_is_pointwise(user->op) && node_same_shape(user, product);
}

/* Whether the uses of `node` could all lie inside an expression. */
static bool may_be_inside(const Pass *pass, const Node *node, const Node *product) {
  if (graph_is_output(pass->graph, node)) return false;
  for (size_t i = 0; i < node->users.n; i++)
    if (!could_follow(node->users.items[i], product)) return false;
  return true;
}

/* In descending order of place in the list: what is computed last is tried first. */
static void insert_reached(Pass *pass, Reached *reached, Node *node) {
  vec_push(pass->scratch, reached, node);
  for (size_t i = reached->n - 1; i > 0 && reached->items[i - 1]->id < node->id; i--) {
    reached->items[i] = reached->items[i - 1];
    reached->items[i - 1] = node;
  }
}

/* All pointwise nodes that the product reaches through nodes that may be inside. */
static void reach(Pass *pass, Node *product, Reached *reached) {
  VEC(Node *) pending = {0};
  vec_push(pass->scratch, &pending, product);
  for (size_t i = 0; i < pending.n && reached->n < MAX_REACHED; i++) {
    Node *node = pending.items[i];
    if (!may_be_inside(pass, node, product)) continue;
    for (size_t j = 0; j < node->users.n; j++) {
      Node *user = node->users.items[j];
      if (is_reached(reached, user)) continue;
      insert_reached(pass, reached, user);
      vec_push(pass->scratch, &pending, user);
    }
  }
}

static bool holds_all_uses(const Grow *g, const Node *node) {
  for (size_t i = 0; i < node->users.n; i++)
    if (!grow_has(g, node->users.items[i])) return false;
  return true;
}

static Node *make_fused(Pass *pass, Node *product, Node *last, const Grow *g, Expr *expr) {
  OpKind op = product->op == OP_LINEAR ? OP_LINEAR : OP_MATMUL_FUSED;
  Node *fused = graph_add(pass->graph, last, op, DTYPE_F32, product->rank, (const Size *const *)product->dims,
                          (uint32_t)g->inputs.n, g->inputs.items, product->origin);
  fused->attr.expr = expr;
  StrBuf text = strbuf_new(pass->scratch);
  expr_print(&text, pass->graph->sizes, expr);
  pass_record(pass, "epilogue", true, fused, "%s", text.text);
  return fused;
}

static bool fuse_up_to(Pass *pass, Node *product, Node *last) {
  if (last->dtype != DTYPE_F32) return false;
  Grow g = grow_over(pass, product->rank, (const Size *const *)product->dims);
  g.acc = product;
  for (unsigned i = 0; i < 2; i++) vec_push(pass->scratch, &g.inputs, product->inputs.items[i]);
  Expr *expr = grow_expr(&g, last, NULL);
  if (!holds_all_uses(&g, product)) return false;
  match_replace(pass, last, make_fused(pass, product, last, &g, expr));
  return true;
}

static void record_refusal(Pass *pass, const Node *product) {
  for (size_t i = 0; i < product->users.n; i++) {
    const Node *user = product->users.items[i];
    if (!op_is_pointwise(user->op) || match_is_static(pass, user)) continue;
    const char *reason = node_same_shape(user, product) ? "its result, or a step on the way, is used elsewhere too"
                                                        : "what follows is computed over a larger shape";
    pass_record(pass, "epilogue", false, product, "%s (%s)", reason, op_table[user->op].name);
    return;
  }
}

static bool fuse(Pass *pass, Node *product) {
  Reached reached = {0};
  reach(pass, product, &reached);
  for (size_t i = 0; i < reached.n; i++)
    if (fuse_up_to(pass, product, reached.items[i])) return true;
  return false;
}

bool pass_fuse_epilogues(Pass *pass) {
  VEC(Node *) products = {0};
  for (Node *node = pass->graph->first; node; node = node->next) {
    bool product = (node->op == OP_LINEAR && !node->attr.expr) || node->op == OP_MATMUL;
    if (product && !match_is_static(pass, node)) vec_push(pass->scratch, &products, node);
  }
  bool changed = false;
  for (size_t i = 0; i < products.n; i++) changed |= fuse(pass, products.items[i]);
  for (size_t i = 0; i < products.n; i++)
    if (!products.items[i]->deleted) record_refusal(pass, products.items[i]);
  return changed;
}
