/* Attention: a product of queries and keys, any pointwise work on the scores, softmax, the product with values.
 *
 *   %4 = matmul %q, %kt                          k: permute %kt, the view that keys had before
 *   %5 = mul %4, 0.125
 *   %6 = where %mask, -inf, %5            %9 = attention %q, %k, %v, %mask, { where($3, -inf, mul(acc, 0.125)) }
 *   %7 = softmax %6, axis=3
 *   %8 = matmul %7, %v
 *
 * Legal:
 *   1. softmax runs over the keys, the last axis;
 *   2. the scores and what is made of them have no other use than other attentions, which compute them again; the
 *      probabilities may have: they become attention_weights;
 *   3. every operand of the scores broadcasts to their shape, and the scores are no larger than the product;
 *   4. the values do not depend on the probabilities;
 *   5. the widths of queries, keys and values are known, because kernels are compiled for them.
 * A factor on the whole of q or k, behind views, is taken to the scores.
 *
 * The meaning stays: ATTENTION is defined as softmax(expr(q kT)) v with the rules of the three operations, exact zeros
 * included. The bits are its own: the softmax is computed in blocks of keys counted from key 0, so they do not depend
 * on threads, batch or which queries are asked for (docs/decisions/0002-bits.md).
 * Pays: the scores are never written to memory, keys that are masked are skipped. */
#include <string.h>

#include "graph/attributes.h"
#include "passes/attention_refusals.h"
#include "passes/grow.h"
#include "passes/match.h"

// ---- views between the parts ----

/* In [b, h, t, s] the axes before the last two may be regrouped as [b*h, t, s] between the parts of an attention. The
 * product moves to the other side of such a reshape, and so does what is made of the scores between the two: legal,
 * because each matrix of the result depends on the matrices at the same place of the operands alone. An operand whose
 * axes before the last two are all 1 broadcasts on either side; one that broadcasts along some of them is refused: its
 * axes cannot be regrouped. */

/* Whether a reshape leaves the last two axes alone. */
static bool regroups(const Node *reshape) {
  const Node *x = reshape->inputs.items[0];
  return x->rank >= 2 && reshape->rank >= 2 && dim_from_end(x, 0) == dim_from_end(reshape, 0) &&
         dim_from_end(x, 1) == dim_from_end(reshape, 1);
}

/* The axes before the last two are exactly those of `like`. */
static bool has_lead_of(const Node *x, const Node *like) {
  return x->rank == like->rank && !memcmp(x->dims, like->dims, (like->rank - 2u) * sizeof *x->dims);
}

static bool swaps_last_two(const Node *node) {
  if (node->op != OP_PERMUTE || node->attr.axes[node->rank - 1] + 2 != node->rank) return false;
  for (uint32_t i = 0; i + 2u < node->rank; i++)
    if (node->attr.axes[i] != i) return false;
  return true;
}

/* x with the axes of `like` before its last two. Keys stay transposed last, so that attention finds them as they
 * are. */
static Node *with_lead_of(Builder *b, Node *x, const Node *like) {
  if (swaps_last_two(x)) return match_swap_last_two(b, with_lead_of(b, x->inputs.items[0], like));
  const Size *dims[MAX_RANK];
  memcpy(dims, like->dims, sizeof dims);
  dims[like->rank - 1] = dim_from_end(x, 0);
  dims[like->rank - 2] = dim_from_end(x, 1);
  return match_reshape(b, x, like->rank, dims);
}

/* No axis before the last two tells elements apart. */
static bool is_one_matrix(const Node *x) {
  for (uint32_t i = 0; i + 2u < x->rank; i++)
    if (!dim_is_one(x->dims[i])) return false;
  return true;
}

/* What is only repeated along axes before the last two (x * 1, ids + 0 of a larger shape), before it is. */
static Node *before_repetition(Node *x) {
  double number;
  int64_t integer;
  const bool repeats = (x->op == OP_MUL && match_number(x->inputs.items[1], &number) && number == 1) ||
                       (x->op == OP_ADD && match_integer(x->inputs.items[1], &integer) && integer == 0);
  Node *inner = repeats ? x->inputs.items[0] : x;
  const bool same_matrix = inner->rank == x->rank && x->rank >= 2 && dim_from_end(inner, 0) == dim_from_end(x, 0) &&
                           dim_from_end(inner, 1) == dim_from_end(x, 1);
  return same_matrix ? inner : x;
}

typedef struct Regroup {
  Pass *pass;
  Builder b;
  const Node *from, *to; /* whose axes before the last two x has, and is to have */
} Regroup;

/* The operands of these broadcast by themselves: a repetition may be left out. */
static bool repeats_operands(const Node *node) { return node->op == OP_MATMUL || node->op == OP_TAKE; }

/* Whether each matrix of the node's result depends on the matrices at the same place of its operands alone. */
static bool may_regroup_operands(const Regroup *r, const Node *node) {
  const bool takes = node->op == OP_TAKE && (uint32_t)node->attr.axis + 2 >= node->rank;
  if (!op_is_pointwise(node->op) && !takes && node->op != OP_MATMUL) return false;
  bool tells_apart = false;
  for (size_t i = 0; i < node->inputs.n; i++) {
    Node *x = node->inputs.items[i];
    if (has_lead_of(x, r->from)) tells_apart = true;
    else if (!is_one_matrix(x)) return false;
  }
  return tells_apart && (!takes || has_lead_of(node->inputs.items[0], r->from));
}

static Node *regrouped(Regroup *r, Node *x, const Node *user);

static Node *regrouped_operand(Regroup *r, Node *x, const Node *node) {
  const Node *like = r->to;
  if (repeats_operands(node)) x = before_repetition(x);
  if (has_lead_of(x, r->from)) {
    x = regrouped(r, x, node);
    return repeats_operands(node) ? before_repetition(x) : x;
  }
  if (x->rank <= 2 && !repeats_operands(node)) return x; /* it broadcasts to any rank */
  const Size *dims[MAX_RANK];
  for (uint32_t i = 0; i < like->rank; i++) {
    const uint32_t last = like->rank - 1u - i;
    dims[i] = last < 2 ? dim_from_end(x, last) : size_const(r->b.graph->sizes, 1);
  }
  return match_reshape(&r->b, x, like->rank, dims);
}

/* x, which has the axes of r->from before its last two, with those of r->to. What something else needs too is not
 * computed again. */
static Node *regrouped(Regroup *r, Node *x, const Node *user) {
  if (swaps_last_two(x)) {
    Node *inner = regrouped(r, x->inputs.items[0], x);
    return match_swap_last_two(&r->b, repeats_operands(user) ? before_repetition(inner) : inner);
  }
  if (match_only_user(r->pass, x) != user || !may_regroup_operands(r, x)) return with_lead_of(&r->b, x, r->to);
  Node **operands = ARENA_ARRAY(r->pass->scratch, Node *, x->inputs.n);
  for (size_t i = 0; i < x->inputs.n; i++) operands[i] = regrouped_operand(r, x->inputs.items[i], x);
  const Size *dims[MAX_RANK];
  memcpy(dims, r->to->dims, sizeof dims);
  dims[r->to->rank - 1] = dim_from_end(x, 0);
  dims[r->to->rank - 2] = dim_from_end(x, 1);
  Node *by = graph_add(r->b.graph, r->b.before, x->op, x->dtype, r->to->rank, dims, (uint32_t)x->inputs.n, operands,
                       x->origin);
  by->attr = x->attr;
  by->attr.axis = x->attr.axis + (int32_t)r->to->rank - (int32_t)x->rank;
  return by;
}

/* Whether a node that one other uses is a product, or pointwise work on one, perhaps regrouped. */
static bool leads_to_product(const Pass *pass, const Node *node, const Node *user, unsigned depth) {
  if (!depth || match_only_user(pass, node) != user) return false;
  if (node->op == OP_MATMUL) return true;
  const bool is_passed = op_is_pointwise(node->op) || (node->op == OP_RESHAPE && regroups(node));
  bool leads = false;
  for (size_t i = 0; is_passed && i < node->inputs.n && !leads; i++)
    leads = leads_to_product(pass, node->inputs.items[i], node, depth - 1);
  return leads;
}

static bool regroups_scores(const Pass *pass, const Node *node) {
  enum { MAX_DEPTH = 8 };
  return node->op == OP_RESHAPE && regroups(node) && leads_to_product(pass, node->inputs.items[0], node, MAX_DEPTH);
}

/* reshape(f(q kT)) -> f((reshape q)(reshape k)T); the node itself if that is not legal. */
static Node *attention_sink_reshape(Pass *pass, Node *reshape) {
  if (!regroups_scores(pass, reshape)) return reshape;
  Node *scores = reshape->inputs.items[0];
  Regroup r = {pass, pass_builder(pass, reshape, scores), scores, reshape};
  if (!may_regroup_operands(&r, scores)) return reshape;
  Node *by = regrouped(&r, scores, reshape);
  match_replace(pass, reshape, by);
  return by;
}

/* reshape(softmax) v -> reshape(softmax (reshape v)); the node itself if that is not legal. */
static Node *attention_lift_reshape(Pass *pass, Node *matmul) {
  Node *reshape = matmul->inputs.items[0], *v = matmul->inputs.items[1];
  if (reshape->op != OP_RESHAPE || reshape->inputs.items[0]->op != OP_SOFTMAX || !regroups(reshape)) return matmul;
  Node *softmax = reshape->inputs.items[0];
  if (!has_lead_of(v, reshape) || softmax->rank < 2) return matmul;
  Builder b = pass_builder(pass, matmul, matmul);
  Node *by = build_matmul(&b, softmax, with_lead_of(&b, v, softmax));
  attributes_take_forms(&by->attr, &matmul->attr);
  match_replace(pass, matmul, match_reshape(&b, by, matmul->rank, matmul->dims));
  return by;
}

/* softmax(reshape x) v -> reshape(softmax(x) (reshape v)), where what x is made of broadcasts in a way that keeps the
 * reshape from moving to the operands. The node itself if that is not legal. */
static Node *attention_lift_softmax(Pass *pass, Node *matmul) {
  Node *softmax = matmul->inputs.items[0], *reshape = softmax->inputs.items[0];
  if ((uint32_t)softmax->attr.axis + 1 != softmax->rank || !regroups_scores(pass, reshape)) return matmul;
  Node *scores = reshape->inputs.items[0];
  const Regroup r = {.pass = pass, .from = scores, .to = reshape};
  if (may_regroup_operands(&r, scores) || !has_lead_of(matmul->inputs.items[1], softmax)) return matmul;
  Builder b = pass_builder(pass, softmax, softmax);
  Node *by = build_softmax(&b, OP_SOFTMAX, scores, (int32_t)scores->rank - 1);
  by->attr = softmax->attr;
  by->attr.axis = (int32_t)scores->rank - 1;
  match_replace(pass, softmax, match_reshape(&b, by, softmax->rank, softmax->dims));
  return attention_lift_reshape(pass, matmul);
}

typedef struct Attention {
  Node *matmul, *softmax, *product;
  Node *q, *k, *v;
  bool rewritten; /* views were moved */
} Attention;

static bool refuse(Pass *pass, const Node *node, const char *reason) {
  pass_record(pass, FUSION_ATTENTION, false, node, "%s", reason);
  return false;
}

// ---- the scores ----

/* The first product that has an element for every score, among what the softmax is computed from through pointwise
 * nodes. The limit bounds the walk; no expression holds as many operations. */
static Node *find_product(Pass *pass, Attention *a) {
  VEC(Node *) pending = {0};
  vec_push(pass->scratch, &pending, a->softmax->inputs.items[0]);
  for (size_t i = 0; i < pending.n && pending.n <= GROW_MAX_OPERATIONS * 3; i++) {
    Node *node = pending.items[i];
    if (!match_fills_node(node, a->softmax)) continue;
    if (node->op == OP_RESHAPE) node = attention_sink_reshape(pass, node);
    a->rewritten |= node != pending.items[i];
    if (node->op == OP_MATMUL) return node;
    if (!op_is_pointwise(node->op)) continue;
    for (size_t j = 0; j < node->inputs.n; j++) vec_push(pass->scratch, &pending, node->inputs.items[j]);
  }
  return NULL;
}

static bool feeds_values(const Node *softmax) {
  for (size_t i = 0; i < softmax->users.n; i++)
    if (softmax->users.items[i]->op == OP_MATMUL && softmax->users.items[i]->inputs.items[0] == softmax) return true;
  return false;
}

/* Whether all that is made of a node's scores goes into softmaxes of attentions. Such scores may be computed again by
 * each of them: they are never written out. */
static bool only_attentions_use(const Pass *pass, const Node *node, const Grow *g, unsigned depth) {
  if (depth == 0 || graph_is_output(pass->graph, node)) return false;
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (user->op == OP_SOFTMAX && feeds_values(user)) continue;
    if (!op_is_pointwise(user->op) || !match_fills(user, g->rank, g->dims)) return false;
    if (!only_attentions_use(pass, user, g, depth - 1)) return false;
  }
  return true;
}

static bool is_shared_score(const Grow *g, const Node *node) {
  enum { MAX_DEPTH = 8 };
  return node->op != OP_GATHER && only_attentions_use(g->pass, node, g, MAX_DEPTH);
}

static bool used_elsewhere(const Grow *g, const Node *node, const Node *softmax) {
  if (is_shared_score(g, node)) return false;
  if (graph_is_output(g->pass->graph, node)) return true;
  for (size_t i = 0; i < node->users.n; i++)
    if (node->users.items[i] != softmax && !grow_has(g, node->users.items[i])) return true;
  return false;
}

/* Grows the expression of the scores. False, with the reason recorded, if the product or the scores are needed in
 * memory anyway, or if the product is not a part of the expression. */
static bool grow_scores(Grow *g, const Attention *a, Expr **expr) {
  Node *root = a->softmax->inputs.items[0];
  *expr = grow_expr(g, root, a->softmax);
  if (used_elsewhere(g, root, a->softmax) || used_elsewhere(g, a->product, a->softmax))
    return refuse(g->pass, a->softmax, "the scores are used elsewhere too, so they must be written out");
  if (!expr_uses_acc(*expr))
    return refuse(g->pass, a->softmax, "what lies between the scores and softmax is used elsewhere, or too large");
  return true;
}

// ---- factors on q and k ----

static Node *rebuild_view(Builder *b, const Node *view, Node *x) {
  if (view->op == OP_RESHAPE) return match_reshape(b, x, view->rank, view->dims);
  if (view->op == OP_PERMUTE) return match_permute(b, x, view->attr.axes);
  return build_slice(b, x, view->attr.starts, view->dims);
}

/* The node without a constant factor that lies on all of it, behind views nobody else uses; `factor` is multiplied by
 * it. (f q) kT = f (q kT) but for one rounding; the factor is wanted in the expression, where fold-weights finds it. */
static Node *without_factor(Pass *pass, Builder *b, Node *node, const Node *user, double *factor) {
  double number;
  if (match_only_user(pass, node) != user) return node;
  bool scales = (node->op == OP_MUL || node->op == OP_DIV) && node_same_shape(node, node->inputs.items[0]);
  if (scales && match_number(node->inputs.items[1], &number) && number != 0) {
    *factor *= node->op == OP_MUL ? number : 1 / number;
    return without_factor(pass, b, node->inputs.items[0], node, factor);
  }
  if (op_table[node->op].category != CATEGORY_VIEW) return node;
  Node *x = without_factor(pass, b, node->inputs.items[0], node, factor);
  return x == node->inputs.items[0] ? node : rebuild_view(b, node, x);
}

/* The expression with acc multiplied by the factor. */
static Expr *scaled(Pass *pass, Expr *expr, double factor, size_t n_inputs) {
  if (factor == 1) return expr;
  Arena *arena = pass->graph->arena;
  Expr *product = expr_op(arena, OP_MUL, DTYPE_F32, expr_acc(arena), expr_number(arena, factor), NULL);
  uint32_t *same = ARENA_ARRAY(pass->scratch, uint32_t, n_inputs);
  for (uint32_t i = 0; i < n_inputs; i++) same[i] = i;
  return expr_rename(arena, expr, same, product);
}

// ---- the node ----

/* Axes of 1 in front: all three operands of an attention have the rank of the result. */
static Node *with_rank(Builder *b, Node *x, uint32_t rank) {
  const Size *dims[MAX_RANK];
  if (x->rank == rank) return x;
  uint32_t added = rank - x->rank;
  for (uint32_t i = 0; i < rank; i++) dims[i] = i < added ? size_const(b->graph->sizes, 1) : x->dims[i - added];
  return match_reshape(b, x, rank, dims);
}

/* The probabilities of the attention as a value of their own, in the shape that the softmax had. */
static Node *add_weights(Pass *pass, Node *attention, const Attention *a) {
  Builder b = pass_builder(pass, a->matmul, a->softmax);
  const Size *dims[MAX_RANK];
  memcpy(dims, attention->dims, sizeof dims);
  dims[attention->rank - 1] = dim_from_end(a->softmax, 0);
  dims[attention->rank - 2] = dim_from_end(a->softmax, 1);
  Node *weights = graph_add(pass->graph, a->matmul, OP_ATTENTION_WEIGHTS, DTYPE_F32, attention->rank, dims, 1,
                            &attention, a->softmax->origin);
  return match_reshape(&b, weights, a->softmax->rank, a->softmax->dims);
}

static Node *add_attention(Pass *pass, Attention *a, Grow *g, Expr *expr) {
  Builder b = pass_builder(pass, a->matmul, a->matmul);
  uint32_t rank = a->matmul->rank;
  double factor = 1;
  Node *q = without_factor(pass, &b, a->q, a->product, &factor);
  Node *k = without_factor(pass, &b, a->k, a->product, &factor);
  expr = scaled(pass, expr, factor, g->inputs.n);
  g->inputs.items[0] = with_rank(&b, q, rank);
  g->inputs.items[1] = with_rank(&b, match_swap_last_two(&b, k), rank);
  g->inputs.items[2] = with_rank(&b, a->v, rank);
  Node *attention = graph_add(pass->graph, a->matmul, OP_ATTENTION, DTYPE_F32, rank,
                              (const Size *const *)a->matmul->dims, (uint32_t)g->inputs.n, g->inputs.items,
                              a->matmul->origin);
  attention->attr.expr = expr->kind == EXPR_ACC ? NULL : expr;
  attributes_take_forms(&attention->attr, &a->matmul->attr);
  return attention;
}

/* The softmax and the scores go too, unless something else needs the probabilities. */
static void replace_by_attention(Pass *pass, Attention *a, Node *attention) {
  bool wanted = match_only_user(pass, a->softmax) != a->matmul;
  Node *weights = wanted ? add_weights(pass, attention, a) : NULL;
  graph_replace_uses(pass->graph, a->matmul, attention);
  graph_delete(pass->graph, a->matmul);
  if (weights) graph_replace_uses(pass->graph, a->softmax, weights);
  match_delete_unused(pass, a->softmax);
  match_delete_unused(pass, a->v);
  pass_record(pass, FUSION_ATTENTION, true, attention, "softmax of %s, times values",
              attention->attr.expr ? "what is made of the scores" : "the scores");
  pass_record_while(pass, weights, "; the probabilities are written out");
}

// ---- finding it ----

/* Conditions 1, 4 and 5 of the head, and that values add no axes: then a row of scores belongs to a row of the
 * result. */
static bool shapes_fit(Pass *pass, const Attention *a) {
  if ((uint32_t)a->softmax->attr.axis + 1 != a->softmax->rank)
    return refuse(pass, a->softmax, "softmax does not run over the last axis");
  if (!size_is_const(dim_from_end(a->product->inputs.items[0], 0), NULL) || !size_is_const(dim_from_end(a->v, 0), NULL))
    return refuse(pass, a->matmul, "the width of queries, keys or values is only known at the run");
  const Size *lead[MAX_RANK];
  memcpy(lead, a->matmul->dims, sizeof lead);
  lead[a->matmul->rank - 1] = dim_from_end(a->softmax, 0);
  if (!match_fills(a->softmax, a->matmul->rank, lead))
    return refuse(pass, a->matmul, "the values have more axes than the scores");
  if (!match_only_user(pass, a->softmax) && match_depends(pass, a->v, a->softmax))
    return refuse(pass, a->matmul, "the values are computed from the probabilities");
  return true;
}

static bool fuse(Pass *pass, Node *matmul) {
  Attention a = {.matmul = matmul, .softmax = matmul->inputs.items[0], .v = matmul->inputs.items[1]};
  a.product = find_product(pass, &a);
  if (!a.product) return refuse(pass, a.softmax, "the scores are no product of queries and keys of their shape");
  if (!shapes_fit(pass, &a)) return a.rewritten;
  if (a.product->attr.form != matmul->attr.form)
    return refuse(pass, matmul, "one of its products is computed in 8 bits and the other is not");
  a.q = a.product->inputs.items[0];
  a.k = a.product->inputs.items[1];
  Grow g = grow_over(pass, a.softmax->rank, (const Size *const *)a.softmax->dims);
  g.acc = a.product;
  g.recompute = true;
  g.may_copy = is_shared_score;
  for (unsigned i = 0; i < 3; i++) vec_push(pass->scratch, &g.inputs, NULL);
  Expr *expr;
  if (!grow_scores(&g, &a, &expr)) return a.rewritten;
  replace_by_attention(pass, &a, add_attention(pass, &a, &g, expr));
  return true;
}

// ---- the pass ----

bool pass_fuse_attention(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op != OP_MATMUL) continue;
    Node *matmul = attention_lift_reshape(pass, node);
    if (matmul->inputs.items[0]->op == OP_SOFTMAX) matmul = attention_lift_softmax(pass, matmul);
    if (matmul->inputs.items[0]->op == OP_SOFTMAX) changed |= fuse(pass, matmul);
    changed |= matmul != node;
  }
  if (changed) match_sort(pass);
  attention_explain(pass);
  return changed;
}
