/* The gradient of attention: what a product of queries and keys, its softmax and the product with values give back.
 *
 *   %1 = matmul %g, %vt                         %p: attention_weights, or softmax of what is made of q kT
 *   %2 = sum (mul %1, %p), axis=3, keepdim
 *   %3 = mul %p, (sub %1, %2)
 *   %4 = where %mask, 0, (mul %3, 0.125)
 *   dq = matmul %4, %k;  dk = matmul %4T, %q;  dv = matmul %pT, %g
 *
 * becomes
 *
 *   dq = attention_grad %q, %k, %v, %g, %mask, ...;  dk = attention_grad_k dq;  dv = attention_grad_v dq
 *
 * Dropout between %p and the values stands at %1 too, and at %pT.
 *
 * Legal:
 *   1. p is a softmax over the keys, of an expression of one product q kT, and the four products around it have the
 *      factors that they must have: the same q, k and g, seen through permutations;
 *   2. between p and the values stands at most what stands between g vT and the softmax's rule, the same expression;
 *   3. what q kT gets goes to the products for q and k alone: whoever else wants it needs it in memory;
 *   4. the widths of queries, keys and values are known.
 *
 * The meaning stays, with sums in the order of keys for q and of queries for k and v. Probabilities are computed again,
 * with the bits that the fused attention gives them, as are decisions which depend on positions.
 * Pays: no value of the size of the scores is kept from the forward half, or written at all.
 *
 * The forward half of attention with dropout, which fuse-attention leaves, becomes one operation too, if its
 * probabilities have no other use by then:
 *
 *   %1 = where %keep, (mul %p, 1.25), 0
 *   y = matmul %1, %v                           y = attention_kept %q, %k, %v, %keep, ...
 *
 * Legal: what is kept of 0 is 0, so that keys which are masked may be skipped; the scores have no other use. In steps
 * of training alone: in a run a factor on probabilities is somebody's own, and stays the operation that it is. */
#include <math.h>
#include <string.h>

#include "passes/grow.h"
#include "passes/match.h"

// ---- permutations ----

/* A value as a permutation of the axes of another; two nodes with the same permutation of one value are equal. */
typedef struct Seen {
  const Node *of;
  uint8_t axes[MAX_RANK];
} Seen;

static Seen seen_as(const Node *node, bool swapped) {
  Seen seen = {.of = node};
  for (uint32_t i = 0; i < node->rank; i++) seen.axes[i] = (uint8_t)i;
  if (swapped)
    seen.axes[node->rank - 1] = (uint8_t)(node->rank - 2), seen.axes[node->rank - 2] = (uint8_t)(node->rank - 1);
  for (; seen.of->op == OP_PERMUTE; seen.of = seen.of->inputs.items[0])
    for (uint32_t i = 0; i < node->rank; i++) seen.axes[i] = seen.of->attr.axes[seen.axes[i]];
  return seen;
}

/* Whether x is y, or y with its last two axes swapped. */
static bool is_same(const Node *x, const Node *y, bool swapped) {
  if (x->rank != y->rank || x->rank < 2) return false;
  const Seen a = seen_as(x, false), b = seen_as(y, swapped);
  return a.of == b.of && memcmp(a.axes, b.axes, x->rank) == 0;
}

// ---- the pattern ----

typedef struct Gradient {
  Node *p, *mul; /* the probabilities; p (x - sum of x p) */
  Node *x;       /* what the softmax's rule gets */
  Node *gv;      /* g vT */
  Node *back;    /* what q kT gets */
  Node *q, *k, *g;
  Node *dq, *dk, *dv;        /* products */
  bool dk_turned, dv_turned; /* they give the transposed */
  uint32_t n_fixed;          /* operands of the new node before those of its expression */
  Expr *terms[ATTENTION_TERMS];
  VEC(Node *) inputs;
} Gradient;

static bool refuse(Pass *pass, const Node *node, const char *reason) {
  pass_record(pass, FUSION_ATTENTION_GRAD, false, node, "%s", reason);
  return false;
}

static bool is_probabilities(const Node *node) {
  if (node->op == OP_ATTENTION_WEIGHTS) return true;
  return node->op == OP_SOFTMAX && (uint32_t)node->attr.axis + 1 == node->rank;
}

/* sum (a b) along the last axis. */
static bool is_sum_of_product(const Node *sum, const Node *a, const Node *b) {
  if (sum->op != OP_SUM || !sum->attr.keepdim || (uint32_t)sum->attr.axis + 1 != sum->rank) return false;
  const Node *product = sum->inputs.items[0];
  if (product->op != OP_MUL) return false;
  Node *const *in = product->inputs.items;
  return (in[0] == a && in[1] == b) || (in[0] == b && in[1] == a);
}

/* p (x - sum of x p): a softmax's rule. */
static bool find_rule(Node *mul, Gradient *m) {
  if (mul->op != OP_MUL || mul->rank < 3) return false;
  for (uint32_t i = 0; i < 2; i++) {
    Node *p = mul->inputs.items[i], *sub = mul->inputs.items[1 - i];
    if (!is_probabilities(p) || sub->op != OP_SUB || !node_same_shape(p, mul)) continue;
    if (!is_sum_of_product(sub->inputs.items[1], sub->inputs.items[0], p)) continue;
    *m = (Gradient){.p = p, .mul = mul, .x = sub->inputs.items[0]};
    return true;
  }
  return false;
}

/* The product that a value of the scores' shape is made of, through pointwise work; NULL: there is none. */
static Node *find_product(Pass *pass, Node *root) {
  VEC(Node *) pending = {0};
  vec_push(pass->scratch, &pending, root);
  for (size_t i = 0; i < pending.n && pending.n <= GROW_MAX_OPERATIONS * 3; i++) {
    Node *node = pending.items[i];
    if (!match_fills_node(node, root)) continue;
    if (node->op == OP_MATMUL) return node;
    if (!op_is_pointwise(node->op)) continue;
    for (size_t j = 0; j < node->inputs.n; j++) vec_push(pass->scratch, &pending, node->inputs.items[j]);
  }
  return NULL;
}

// ---- expressions ----

/* The number of an operand of the new node. */
static uint32_t add_input(Pass *pass, Gradient *m, Node *node) {
  for (size_t i = m->n_fixed; i < m->inputs.n; i++)
    if (m->inputs.items[i] == node) return (uint32_t)i;
  vec_push(pass->scratch, &m->inputs, node);
  return (uint32_t)m->inputs.n - 1;
}

/* An expression over inputs [n_fixed, n) of another node. */
static Expr *take_over(Pass *pass, Gradient *m, const Expr *expr, Node *const *inputs, size_t n, size_t n_fixed) {
  uint32_t *numbers = ARENA_ARRAY(pass->scratch, uint32_t, n);
  for (size_t i = n_fixed; i < n; i++) numbers[i] = add_input(pass, m, inputs[i]);
  return expr_rename(pass->graph->arena, expr, numbers, NULL);
}

/* What is made of acc until `root`; NULL: something in between is no part of the expression. */
static Expr *grow_term(Pass *pass, Gradient *m, Node *root, const Node *acc, const Node *user) {
  if (root == acc) return expr_acc(pass->graph->arena);
  Grow g = grow_over(pass, m->mul->rank, (const Size *const *)m->mul->dims);
  g.acc = acc;
  g.recompute = true;
  Expr *expr = grow_expr(&g, root, user);
  return expr_uses_acc(expr) ? take_over(pass, m, expr, g.inputs.items, g.inputs.n, 0) : NULL;
}

/* q, k and the expression of the scores. */
static bool take_scores(Pass *pass, Gradient *m) {
  if (m->p->op == OP_ATTENTION_WEIGHTS) {
    const Node *attention = m->p->inputs.items[0];
    const Expr *expr = attention->attr.expr ? attention->attr.expr : expr_acc(pass->graph->arena);
    if (attention->attr.form != TFM_FORM_F32) return refuse(pass, m->mul, "the attention is computed in 8 bits");
    m->q = attention->inputs.items[0];
    m->k = attention->inputs.items[1];
    m->terms[ATTENTION_SCORE] = take_over(pass, m, expr, attention->inputs.items, attention->inputs.n, 3);
    return true;
  }
  Node *root = m->p->inputs.items[0], *product = find_product(pass, root);
  if (!product) return refuse(pass, m->mul, "the scores are no product of queries and keys of their shape");
  m->terms[ATTENTION_SCORE] = grow_term(pass, m, root, product, m->p);
  if (!m->terms[ATTENTION_SCORE])
    return refuse(pass, m->mul, "what lies between the scores and softmax is used elsewhere, or too large");
  Builder b = pass_builder(pass, m->mul, product);
  m->q = product->inputs.items[0];
  m->k = match_swap_last_two(&b, product->inputs.items[1]);
  return true;
}

// ---- the products around it ----

/* Whether a user of p belongs to the softmax's rule. */
static bool is_of_rule(const Gradient *m, const Node *user) {
  if (user == m->mul) return true;
  return user->op == OP_MUL && (user->inputs.items[0] == m->x || user->inputs.items[1] == m->x);
}

/* A user of `node` that is xT y, where x is the node and y is `factor`, or yT x, the same transposed. */
static Node *find_turned(const Node *node, const Node *factor, bool *turned) {
  for (size_t i = 0; i < node->users.n; i++) {
    Node *user = node->users.items[i];
    if (user->op == OP_MATMUL && user->inputs.items[1] == node && is_same(user->inputs.items[0], factor, true)) {
      *turned = true;
      return user;
    }
    if (user->op != OP_PERMUTE || !is_same(user, node, true)) continue;
    for (size_t j = 0; j < user->users.n; j++) {
      Node *product = user->users.items[j];
      *turned = false;
      if (product->op == OP_MATMUL && product->inputs.items[0] == user &&
          is_same(product->inputs.items[1], factor, false))
        return product;
    }
  }
  return NULL;
}

/* dv, of p or of what is made of p by the same expression as x is of g vT. */
static bool find_values(Pass *pass, Gradient *m) {
  m->gv = find_product(pass, m->x);
  if (!m->gv) return refuse(pass, m->mul, "what the probabilities get is no product with the values");
  m->g = m->gv->inputs.items[0];
  m->terms[ATTENTION_KEEP] = grow_term(pass, m, m->x, m->gv, NULL);
  if (!m->terms[ATTENTION_KEEP]) return refuse(pass, m->mul, "something else needs the gradient of the probabilities");
  if (m->terms[ATTENTION_KEEP]->kind == EXPR_ACC) {
    m->dv = find_turned(m->p, m->g, &m->dv_turned);
  } else {
    for (size_t i = 0; i < m->p->users.n && !m->dv; i++) {
      Node *kept = m->p->users.items[i];
      if (!op_is_pointwise(kept->op) || is_of_rule(m, kept)) continue;
      while (match_only_user(pass, kept) && op_is_pointwise(match_only_user(pass, kept)->op))
        kept = match_only_user(pass, kept);
      const Expr *same = node_same_shape(kept, m->p) ? grow_term(pass, m, kept, m->p, NULL) : NULL;
      if (same && expr_equal(same, m->terms[ATTENTION_KEEP])) m->dv = find_turned(kept, m->g, &m->dv_turned);
    }
  }
  return m->dv ||
         refuse(pass, m->mul, "the gradient of the values is no product of the probabilities that it should be");
}

/* What q kT gets: the end of the pointwise work on it that nobody else reads. */
static bool find_back(Pass *pass, Gradient *m) {
  m->back = m->mul;
  for (Node *user;
       (user = match_only_user(pass, m->back)) && op_is_pointwise(user->op) && node_same_shape(user, m->mul);)
    m->back = user;
  m->dk = find_turned(m->back, m->q, &m->dk_turned);
  for (size_t i = 0; i < m->back->users.n; i++) {
    Node *user = m->back->users.items[i];
    if (user->op == OP_MATMUL && user->inputs.items[0] == m->back && is_same(user->inputs.items[1], m->k, false))
      m->dq = user;
  }
  if (!m->dq || !m->dk)
    return refuse(pass, m->mul, "the scores' gradient does not go to the queries and keys as they are");
  if (graph_is_output(pass->graph, m->back) || m->back->users.n != 2)
    return refuse(pass, m->mul, "the scores' gradient is used elsewhere too, so it must be written out");
  m->terms[ATTENTION_BACK] = grow_term(pass, m, m->back, m->mul, NULL);
  return m->terms[ATTENTION_BACK] || refuse(pass, m->mul, "what follows softmax's gradient is too large");
}

/* Strips and panels are laid out for widths that are known, and items walk the batch axes of all operands together. */
static bool shapes_fit(Pass *pass, const Gradient *m) {
  const Node *v = m->gv->inputs.items[1];
  const Node *all[] = {m->q, m->k, m->g};
  bool known = size_is_const(dim_from_end(v, 1), NULL);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    known &= size_is_const(dim_from_end(all[i], 0), NULL);
    if (all[i]->rank != m->mul->rank) return refuse(pass, m->mul, "queries and keys have fewer axes than the scores");
  }
  if (v->rank != m->mul->rank) return refuse(pass, m->mul, "values have fewer axes than the scores");
  return known || refuse(pass, m->mul, "the width of queries, keys or values is only known at the run");
}

// ---- the node ----

static void replace_product(Pass *pass, Node *product, Node *by, bool turned) {
  Builder b = pass_builder(pass, product, product);
  match_replace(pass, product, turned ? match_swap_last_two(&b, by) : by);
}

static Node *add_part(Pass *pass, Node *grad, OpKind op, Node *product, bool turned) {
  const Size *dims[MAX_RANK];
  memcpy(dims, product->dims, sizeof dims);
  dims[grad->rank - 1] = product->dims[grad->rank - (turned ? 2 : 1)];
  dims[grad->rank - 2] = product->dims[grad->rank - (turned ? 1 : 2)];
  return graph_add(pass->graph, product, op, DTYPE_F32, grad->rank, dims, 1, &grad, product->origin);
}

static void replace_by_gradient(Pass *pass, Gradient *m) {
  Builder b = pass_builder(pass, m->dq, m->dq);
  for (size_t i = 0; i < m->p->users.n; i++) /* fuse-attention took these for attentions that it must leave */
    if (is_of_rule(m, m->p->users.items[i])) pass_overrule(pass, FUSION_ATTENTION, m->p->users.items[i]);
  m->inputs.items[0] = m->q;
  m->inputs.items[1] = m->k;
  m->inputs.items[2] = match_swap_last_two(&b, m->gv->inputs.items[1]);
  m->inputs.items[3] = m->g;
  Node *grad = graph_add(pass->graph, m->dq, OP_ATTENTION_GRAD, DTYPE_F32, m->dq->rank,
                         (const Size *const *)m->dq->dims, (uint32_t)m->inputs.n, m->inputs.items, m->dq->origin);
  grad->attr.expr = expr_of_attention_terms(pass->graph->arena, ATTENTION_TERMS, m->terms);
  Node *k = add_part(pass, grad, OP_ATTENTION_GRAD_K, m->dk, m->dk_turned);
  Node *v = add_part(pass, grad, OP_ATTENTION_GRAD_V, m->dv, m->dv_turned);
  replace_product(pass, m->dv, v, m->dv_turned);
  replace_product(pass, m->dk, k, m->dk_turned);
  match_replace(pass, m->dq, grad);
  pass_record(pass, FUSION_ATTENTION_GRAD, true, grad, "the probabilities are computed again%s",
              m->terms[ATTENTION_KEEP]->kind == EXPR_ACC ? "" : ", less what dropout takes");
}

static bool fuse(Pass *pass, Node *mul) {
  Gradient m;
  if (!find_rule(mul, &m)) return false;
  m.n_fixed = 4;
  for (uint32_t i = 0; i < m.n_fixed; i++) vec_push(pass->scratch, &m.inputs, NULL);
  if (!take_scores(pass, &m) || !find_values(pass, &m) || !find_back(pass, &m) || !shapes_fit(pass, &m)) return false;
  replace_by_gradient(pass, &m);
  return true;
}

// ---- the forward half ----

/* The softmax over the last axis that pointwise work makes `root` of; NULL: something else reads what lies between. */
static Node *find_softmax(const Pass *pass, Node *root, const Node *user) {
  while (match_only_user(pass, root) == user) {
    if (root->op == OP_SOFTMAX) return is_probabilities(root) ? root : NULL;
    if (!op_is_pointwise(root->op)) return NULL;
    Node *of = NULL;
    for (size_t i = 0; i < root->inputs.n; i++) {
      Node *x = root->inputs.items[i];
      if (node_same_shape(x, root) && x->op != OP_INPUT) of = x;
    }
    user = root;
    if (!(root = of)) return NULL;
  }
  return NULL;
}

static bool is_zero(const Expr *expr) { return expr->kind == EXPR_CONST && expr->number == 0; }

/* where(keep, p * factor, 0), either way round. Times infinity 0 would not stay 0. */
static bool keeps_zero(const Expr *expr) {
  if (expr->kind != EXPR_OP || expr->op != OP_WHERE || expr_uses_acc(expr->args[0])) return false;
  const bool is_first = is_zero(expr->args[2]);
  const Expr *kept = expr->args[is_first ? 1 : 2];
  if (!is_first && !is_zero(expr->args[1])) return false;
  return kept->kind == EXPR_ACC || (kept->kind == EXPR_OP && kept->op == OP_MUL && kept->args[0]->kind == EXPR_ACC &&
                                    kept->args[1]->kind == EXPR_CONST && isfinite(kept->args[1]->number));
}

/* The scores go into the softmax alone. */
static bool scores_are_its_own(const Pass *pass, const Node *product, const Node *softmax) {
  const Node *node = product;
  while (node != softmax) {
    const Node *user = match_only_user(pass, node);
    if (!user || (user != softmax && !op_is_pointwise(user->op))) return false;
    node = user;
  }
  return true;
}

static bool fits_kept(const Gradient *m, const Node *matmul) {
  const Node *const all[] = {m->q, m->k, matmul->inputs.items[1]};
  bool fits = true;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    fits &= all[i]->rank == matmul->rank && size_is_const(dim_from_end(all[i], 0), NULL);
  return fits && matmul->rank >= 3 && matmul->attr.form == TFM_FORM_F32;
}

/* fuse-attention said of the softmax, or of what follows it, why it left them. */
static void overrule_refusals(Pass *pass, const Node *kept, const Node *softmax) {
  pass_overrule(pass, FUSION_ATTENTION, softmax);
  for (const Node *user = match_only_user(pass, softmax); user; user = match_only_user(pass, user)) {
    pass_overrule(pass, FUSION_ATTENTION, user);
    if (user == kept) return;
  }
}

static bool fuse_kept(Pass *pass, Node *matmul) {
  Node *kept = matmul->inputs.items[0], *p = find_softmax(pass, kept, matmul);
  if (!p || p == kept) return false;
  Node *product = find_product(pass, p->inputs.items[0]);
  if (!product || product->attr.form != TFM_FORM_F32 || !scores_are_its_own(pass, product, p)) return false;
  Gradient m = {.p = p, .mul = p, .n_fixed = 3};
  for (uint32_t i = 0; i < m.n_fixed; i++) vec_push(pass->scratch, &m.inputs, NULL);
  if (!take_scores(pass, &m) || !fits_kept(&m, matmul)) return false;
  m.terms[ATTENTION_KEEP] = grow_term(pass, &m, kept, p, matmul);
  if (!m.terms[ATTENTION_KEEP] || !keeps_zero(m.terms[ATTENTION_KEEP])) return false;
  m.inputs.items[0] = m.q;
  m.inputs.items[1] = m.k;
  m.inputs.items[2] = matmul->inputs.items[1];
  Node *attention = graph_add(pass->graph, matmul, OP_ATTENTION_KEPT, DTYPE_F32, matmul->rank,
                              (const Size *const *)matmul->dims, (uint32_t)m.inputs.n, m.inputs.items, matmul->origin);
  attention->attr.expr = expr_of_attention_terms(pass->graph->arena, ATTENTION_BACK, m.terms);
  overrule_refusals(pass, kept, p);
  match_replace(pass, matmul, attention);
  pass_record(pass, FUSION_ATTENTION_GRAD, true, attention, "softmax, less what dropout takes, times values");
  return true;
}

static bool fuse_all_kept(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op == OP_MATMUL) changed |= fuse_kept(pass, node);
  }
  return changed;
}

bool pass_fuse_attention_grad(Pass *pass) {
  VEC(Node *) candidates = {0};
  for (Node *node = pass->graph->first; node; node = node->next)
    if (node->op == OP_MUL) vec_push(pass->scratch, &candidates, node);
  bool changed = false;
  for (size_t i = candidates.n; i-- > 0;)
    if (!candidates.items[i]->deleted) changed |= fuse(pass, candidates.items[i]);
  if (match_has_gradients(pass->graph)) changed |= fuse_all_kept(pass);
  if (changed) match_sort(pass);
  return changed;
}
