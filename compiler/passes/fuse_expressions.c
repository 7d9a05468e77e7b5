/* Pointwise work as expressions: epilogues of products, prologues of norms and reductions, and groups of what is
 * left.
 *
 * In: a graph of single operations. Out: fused nodes, each with an expression that grow.h grew. The two passes that
 * lower do the same without taking anything in, so that at -O0 too plan finds only fused nodes.
 *
 * Fusing keeps the bits: in an expression every operation is rounded as if it were a node of its own, and none is
 * reordered, so an element is the same number whether it went through memory or not. */
#include <string.h>

#include "graph/attributes.h"
#include "passes/grow.h"

// ---- fuse-epilogues ----

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

/* More pointwise nodes behind one product than an expression can hold (GROW_MAX_OPERATIONS) need not be tried. */
enum { MAX_REACHED = 64 };

typedef VEC(Node *) Reached;

static bool is_reached(const Reached *reached, const Node *node) {
  for (size_t i = 0; i < reached->n; i++)
    if (reached->items[i] == node) return true;
  return false;
}

/* A node of another shape broadcasts the product to more elements; computing that in the epilogue would repeat work. */
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

/* In descending order in the list: what is computed last is tried first, because it takes the most in. */
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

/* A use outside of the expression would need the bare product in memory, which the fused node no longer writes. */
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
  attributes_take_forms(&fused->attr, &product->attr);
  StrBuf text = strbuf_new(pass->scratch);
  expr_print(&text, pass->graph->sizes, expr);
  pass_record(pass, FUSION_EPILOGUE, true, fused, "%s", text.text);
  return fused;
}

/* Tries to end the epilogue at `last`. */
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

/* Says why pointwise work stays behind a product; only for the first user, which is enough for the report. */
static void record_blocked_epilogue(Pass *pass, const Node *product) {
  for (size_t i = 0; i < product->users.n; i++) {
    const Node *user = product->users.items[i];
    if (!op_is_pointwise(user->op) || match_is_static(pass, user)) continue;
    const char *reason = node_same_shape(user, product) ? "its result, or a step on the way, is used elsewhere too"
                                                        : "what follows is computed over a larger shape";
    pass_record(pass, FUSION_EPILOGUE, false, product, "%s (%s)", reason, op_table[user->op].name);
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

/* Of two products that are added the first in this order takes the other in. In the backward half it is the last one: a
 * weight that is used several times gets a sum of products, and what the earlier ones are made of, such as all that a
 * tower has in memory, must not wait until the last is there. */
bool pass_fuse_epilogues(Pass *pass) {
  VEC(Node *) products = {0};
  for (Node *node = pass->graph->first; node; node = node->next) {
    bool product = (node->op == OP_LINEAR && !node->attr.expr) || node->op == OP_MATMUL;
    if (product && !match_is_static(pass, node)) vec_push(pass->scratch, &products, node);
  }
  bool changed = false;
  const uint32_t end = match_end_of_forward(pass->graph);
  size_t n_forward = 0;
  while (n_forward < products.n && (!end || products.items[n_forward]->id <= end)) n_forward++;
  for (size_t i = 0; i < n_forward; i++) changed |= fuse(pass, products.items[i]);
  for (size_t i = products.n; i > n_forward; i--) changed |= fuse(pass, products.items[i - 1]);
  for (size_t i = 0; i < products.n; i++)
    if (!products.items[i]->deleted) record_blocked_epilogue(pass, products.items[i]);
  return changed;
}

// ---- norms, softmaxes and reductions: NORM or REDUCE of an expression, which at least is the operand itself ----

static bool is_row_operation(const Node *node) {
  return op_table[node->op].category == CATEGORY_REDUCE || node->op == OP_SOFTMAX || node->op == OP_LOG_SOFTMAX ||
         node->op == OP_LAYER_NORM || node->op == OP_RMS_NORM;
}

static bool is_norm(const Node *node) { return node->op == OP_LAYER_NORM || node->op == OP_RMS_NORM; }

static void record_prologue(Pass *pass, const Node *node, const Expr *expr) {
  StrBuf text = strbuf_new(pass->scratch);
  expr_print(&text, pass->graph->sizes, expr);
  pass_record(pass, FUSION_PROLOGUE, true, node, "%s of %s", op_table[node->op].name, text.text);
}

static void record_shared_operand(Pass *pass, const Node *node) {
  const Node *x = node->inputs.items[0];
  if (!op_is_pointwise(x->op) || match_is_static(pass, x)) return;
  pass_record(pass, FUSION_PROLOGUE, false, node, "what %s is taken of (%s) is used elsewhere too",
              op_table[node->op].name, op_table[x->op].name);
}

/* NORM or REDUCE with the attributes of the operation; weights and bias of a norm follow the operands of the
 * expression. */
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

/* A cheap operation of one whole tensor and one number for each row, as x - mean(x): to repeat it costs no more reading
 * than its result would, and that need not be written. Its users must be such that take it in too. */
static bool is_repeated(const Grow *g, const Node *node) {
  if (!op_is_cheap(node->op) || graph_is_output(g->pass->graph, node)) return false;
  uint32_t whole = 0;
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *x = node->inputs.items[i];
    if (match_fills(x, g->rank, g->dims)) whole++;
    else if (x->rank && !dim_is_one(dim_from_end(x, 0))) return false;
  }
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    bool takes_it = is_row_operation(user) || (op_is_pointwise(user->op) && match_fills(user, g->rank, g->dims));
    if (!takes_it || match_is_static(g->pass, user)) return false;
  }
  return whole == 1;
}

/* False: the operation stays as it is for lower-rows, since there is nothing to take in. */
static bool row_replace(Pass *pass, Node *node, bool fuse) {
  Node *x = node->inputs.items[0];
  Grow g = grow_over(pass, x->rank, (const Size *const *)x->dims);
  g.operations = fuse;
  g.may_copy = fuse ? is_repeated : NULL;
  g.gathers = fuse && (is_norm(node) || (uint32_t)node->attr.axis + 1 == x->rank);
  Expr *expr = grow_expr(&g, x, node);
  if (fuse && expr->kind == EXPR_INPUT) {
    record_shared_operand(pass, node);
    return false;
  }
  Node *fused = add_fused(pass, node, &g, expr);
  if (fuse) record_prologue(pass, node, expr);
  match_replace(pass, node, fused);
  return true;
}

// ---- fuse-prologues ----

/* Prologues: pointwise work that feeds a norm, a softmax or a reduction, done while its rows are read.
 *
 *   %3 = add %1, %2
 *   %4 = layer_norm %3, %w, %b      %4 = norm %1, %2, %w, %b, reduction=layer_norm, { add($0, $1) }
 *
 * Legal:
 *   1. nobody else uses what is taken in, or it is cheap to repeat and its other users take it in too;
 *   2. gathered rows (embeddings) only where whole rows are reduced.
 * A residual sum that is used again is made by the product before it (fuse-epilogues); the norm then has $0 alone.
 * Pays: one pass over memory less, and no buffer between. */

bool pass_fuse_prologues(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (is_row_operation(node) && !match_is_static(pass, node)) changed |= row_replace(pass, node, true);
  }
  return changed;
}

// ---- lower-rows ----

/* Norms, softmax and reductions that no prologue went into, in the form that plan takes.
 *
 *   %4 = softmax %3, axis=1         %4 = reduce %3, reduction=softmax, axis=1, domain=[...], { $0 }
 *
 * Always legal. What is known before any run stays as it is. */

bool pass_lower_rows(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (is_row_operation(node) && !match_is_static(pass, node)) changed |= row_replace(pass, node, false);
  }
  return changed;
}

// ---- one POINTWISE node for each value that is still needed ----

/* From the end of the list: what a node takes in has no users left when its turn comes, and is deleted. */

/* Sources that a run computes become expressions too: plan knows no node that merely counts positions. */
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
    pass_record(pass, FUSION_POINTWISE, true, node, "%s", text.text);
  }
  graph_replace_uses(pass->graph, node, fused);
}

static bool pointwise_replace_all(Pass *pass, bool fuse) {
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

// ---- fuse-pointwise ----

/* Pointwise groups: trees of pointwise operations that are left become one operation each.
 *
 *   %3 = gather %table, %ids
 *   %4 = mul %3, 22.6               %5 = pointwise %table, %ids, %p, { add(mul(gather($0, $1), 22.6), $2) }
 *   %5 = add %4, %p
 *
 * Legal: a producer is taken in if nobody else uses it and it is computed over the same shape; what is known from the
 * position (a causal mask, a constant) is taken in always. Pays: one pass over memory instead of one per operation. */

bool pass_fuse_pointwise(Pass *pass) { return pointwise_replace_all(pass, true); }

// ---- lower-pointwise ----

/* Pointwise operations and gathers, each as one POINTWISE node.
 *
 * Always legal. Afterwards a graph holds only what plan takes: POINTWISE, REDUCE, NORM, LINEAR, MATMUL, MATMUL_FUSED,
 * ATTENTION, ATTENTION_WEIGHTS, CONCAT, SINUSOID, ROTARY_TABLE, the views SLICE, RESHAPE, PERMUTE, INPUT and WEIGHT;
 * and any operation on weights and constants alone: these are recipes, evaluated before any run. */

bool pass_lower_pointwise(Pass *pass) { return pointwise_replace_all(pass, false); }
