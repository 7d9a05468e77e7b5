/* Gradients along rows: what a norm, or log_softmax, gives back to the tensor that it was taken of.
 *
 *   %1 = mean %x;  %2 = sub %x, %1                        centred; of rms_norm, %x itself
 *   %3 = rsqrt (add (mean (mul %2, %2)), eps);  %4 = mul %2, %3
 *   %5 = mul %g, %w;  %6 = mul %g, %4                     %6: each row's share of what w gets
 *   %7 = mul %3, (sub (sub %5, (mul %4, (mean (mul %5, %4)))), (mean %5))
 *
 * becomes %7 = row_grad %g, %x, %w, reduction=layer_norm and %6 = row_grad_w %7; and
 *
 *   %3 = sub %g, (mul (exp %y), (sum %g))
 *
 * becomes %3 = row_grad %g, %y, reduction=log_softmax. Pointwise work that makes %g alone goes into the expression: of
 * cross_entropy all of it, the labels' ones and what smoothing and ignored labels make of them, so that nothing of the
 * logits' shape is written but the result.
 *
 * Legal:
 *   1. means and sums are those of the formula, along the last axis, of tensors that have one more at least;
 *   2. of a norm, nobody else uses the normalized rows: they need them in memory.
 * The meaning stays; of the sums, those of a row alone are in the order of a norm's. What rows give w is summed down
 * the rows by whoever did so before.
 * Pays: some four passes over memory instead of eighteen, of log_softmax two instead of five. */
#include "passes/grow.h"
#include "passes/match.h"

typedef struct RowGrad {
  OpKind reduction;
  Node *root; /* what x gets */
  Node *g, *x, *w;
  Node *second; /* what each row gives w; NULL: w gets nothing */
  double eps;
} RowGrad;

static Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

/* The factor beside `known` of a product; NULL: there is none. */
static Node *other_factor(const Node *mul, const Node *known) {
  if (mul->op != OP_MUL) return NULL;
  if (input(mul, 0) == known) return input(mul, 1);
  return input(mul, 1) == known ? input(mul, 0) : NULL;
}

static bool is_along_rows(const Node *node, OpKind op) {
  return node->op == op && node->attr.keepdim && (uint32_t)node->attr.axis + 1 == node->rank;
}

static bool is_mean_of_product(const Node *node, const Node *a, const Node *b) {
  return is_along_rows(node, OP_MEAN) && other_factor(input(node, 0), a) == b;
}

// ---- norms ----

/* 1 / sqrt(mean of c^2 + eps): takes c. */
static bool is_factor(const Node *r, Node **c, double *eps) {
  if (r->op != OP_RSQRT || input(r, 0)->op != OP_ADD || !match_number(input(input(r, 0), 1), eps)) return false;
  const Node *mean = input(input(r, 0), 0);
  if (!is_along_rows(mean, OP_MEAN) || input(mean, 0)->op != OP_MUL) return false;
  *c = input(input(mean, 0), 0);
  return input(input(mean, 0), 1) == *c;
}

/* h mean(q h), where h = c r: takes h. */
static bool is_projection(const Node *mul, const Node *q, const Node *c, const Node *r, Node **h) {
  if (mul->op != OP_MUL) return false;
  for (size_t i = 0; i < 2; i++) {
    Node *normal = input(mul, i);
    if (other_factor(normal, r) != c || !is_mean_of_product(input(mul, 1 - i), q, normal)) continue;
    *h = normal;
    return true;
  }
  return false;
}

/* q - h mean(q h), for a layer norm less mean q. */
static bool is_rest(const Node *rest, const Node *c, const Node *r, RowGrad *m, Node **q, Node **h) {
  if (rest->op != OP_SUB) return false;
  m->reduction = is_along_rows(input(rest, 1), OP_MEAN) ? OP_LAYER_NORM : OP_RMS_NORM;
  const Node *first = m->reduction == OP_LAYER_NORM ? input(rest, 0) : rest;
  if (first->op != OP_SUB || !is_projection(input(first, 1), input(first, 0), c, r, h)) return false;
  *q = input(first, 0);
  return m->reduction == OP_RMS_NORM || input(input(rest, 1), 0) == *q;
}

/* The operand of the norm. A layer norm's is behind the difference from its mean. */
static bool find_operand(RowGrad *m, Node *c) {
  m->x = c;
  if (m->reduction == OP_RMS_NORM) return true;
  if (c->op != OP_SUB || !is_along_rows(input(c, 1), OP_MEAN) || input(input(c, 1), 0) != input(c, 0)) return false;
  m->x = input(c, 0);
  return true;
}

/* q = g w, if one factor is a row and the other as large as x; else g is q. */
static void find_weight(RowGrad *m, Node *q) {
  m->g = q;
  for (size_t i = 0; i < 2 && q->op == OP_MUL && !m->w; i++) {
    Node *w = input(q, i), *g = input(q, 1 - i);
    if (w->rank != 1 || w->dims[0] != dim_from_end(m->x, 0) || !node_same_shape(g, m->x)) continue;
    m->w = w;
    m->g = g;
  }
}

/* Whether h is used by the rule alone: in the projection, and, times g, for w. */
static bool find_second(const Pass *pass, RowGrad *m, const Node *h, const Node *q) {
  if (graph_is_output(pass->graph, h)) return false;
  uint32_t n_of_rule = 0;
  for (size_t i = 0; i < h->users.n; i++) {
    Node *user = h->users.items[i];
    const Node *factor = other_factor(user, h);
    if (m->w && factor == m->g && (!m->second || m->second == user)) m->second = user;
    else if (factor && (factor == q || is_mean_of_product(factor, q, h))) n_of_rule++;
    else return false;
  }
  return n_of_rule == 2;
}

static bool find_norm(Pass *pass, Node *mul, RowGrad *m) {
  Node *c, *q, *h;
  for (size_t i = 0; i < 2 && mul->op == OP_MUL; i++) {
    Node *r = input(mul, i), *rest = input(mul, 1 - i);
    *m = (RowGrad){.root = mul};
    if (!is_factor(r, &c, &m->eps) || !is_rest(rest, c, r, m, &q, &h) || !find_operand(m, c)) continue;
    if (!node_same_shape(m->x, mul) || !node_same_shape(q, mul)) continue;
    find_weight(m, q);
    if (find_second(pass, m, h, q)) return true;
    pass_record(pass, FUSION_ROW_GRAD, false, mul, "the normalized rows are used elsewhere too");
    return false;
  }
  return false;
}

// ---- log_softmax ----

static bool find_log_softmax(Pass *pass, Node *sub, RowGrad *m) {
  if (sub->op != OP_SUB || input(sub, 1)->op != OP_MUL) return false;
  Node *g = input(sub, 0), *product = input(sub, 1);
  for (size_t i = 0; i < 2; i++) {
    const Node *power = input(product, i), *sum = input(product, 1 - i);
    if (power->op != OP_EXP || sum->op != OP_SUM || !sum->attr.keepdim || input(sum, 0) != g) continue;
    *m = (RowGrad){.reduction = OP_LOG_SOFTMAX, .root = sub, .g = g, .x = input(power, 0)};
    if (!node_same_shape(g, sub) || !node_same_shape(m->x, sub)) continue;
    if (is_along_rows(sum, OP_SUM)) return true;
    pass_record(pass, FUSION_ROW_GRAD, false, sub, "the softmax is not along the last axis");
  }
  return false;
}

// ---- the node ----

/* The pointwise work before the node becomes its expression, now that nothing else of the rule uses it. */
static void take_in(Pass *pass, Node *grad, const RowGrad *m) {
  Grow g = grow_over(pass, grad->rank, (const Size *const *)grad->dims);
  grad->attr.expr = grow_expr(&g, m->g, grad);
  vec_push(pass->scratch, &g.inputs, m->x);
  if (m->w) vec_push(pass->scratch, &g.inputs, m->w);
  graph_set_inputs(pass->graph, grad, (uint32_t)g.inputs.n, g.inputs.items);
  if (grad->attr.expr->kind != EXPR_INPUT && !m->g->users.n) match_delete_unused(pass, m->g);
}

static void replace_by_gradient(Pass *pass, const RowGrad *m) {
  Node *const inputs[] = {m->g, m->x, m->w};
  const Node *root = m->root;
  Node *grad = graph_add(pass->graph, m->root, OP_ROW_GRAD, DTYPE_F32, root->rank, (const Size *const *)root->dims,
                         m->w ? 3 : 2, inputs, root->origin);
  grad->attr.reduction = m->reduction;
  grad->attr.has_weight = m->w != NULL;
  grad->attr.eps = m->eps;
  grad->attr.expr = expr_input(pass->graph->arena, DTYPE_F32, 0);
  if (m->second)
    match_replace(pass, m->second, graph_add(pass->graph, m->root, OP_ROW_GRAD_W, DTYPE_F32, grad->rank,
                                             (const Size *const *)grad->dims, 1, &grad, m->second->origin));
  match_replace(pass, m->root, grad);
  take_in(pass, grad, m);
  StrBuf text = strbuf_new(pass->scratch);
  expr_print(&text, pass->graph->sizes, grad->attr.expr);
  pass_record(pass, FUSION_ROW_GRAD, true, grad, "%s gets %s", op_table[m->reduction].name, text.text);
}

bool pass_fuse_row_grad(Pass *pass) {
  VEC(Node *) candidates = {0};
  for (Node *node = pass->graph->first; node; node = node->next)
    if ((node->op == OP_MUL || node->op == OP_SUB) && node->rank > 1) vec_push(pass->scratch, &candidates, node);
  bool changed = false;
  for (size_t i = candidates.n; i-- > 0;) {
    RowGrad m;
    Node *node = candidates.items[i];
    if (node->deleted || (!find_norm(pass, node, &m) && !find_log_softmax(pass, node, &m))) continue;
    replace_by_gradient(pass, &m);
    changed = true;
  }
  if (changed) match_sort(pass);
  return changed;
}
