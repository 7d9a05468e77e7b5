/* From the first node to the last: where each may differ from 0. See zero_rows.h. */
#include "passes/zero_rows.h"

#include <math.h>
#include <string.h>

#include "graph/infer.h"
#include "passes/narrow_rows.h"

enum { MOST = ROWS_MOST_TERMS };

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

// ---- expressions ----

typedef struct Apart { /* where a value may differ from 0, from -inf */
  RowSet nonzero, finite;
} Apart;

static const Apart anything = {{.all = true}, {.all = true}};

static Apart of_constant(const Expr *expr) {
  Apart of = anything;
  if (expr->dtype == DTYPE_F32 && expr->number == 0) of.nonzero = ROWS_NONE;
  if (expr->dtype == DTYPE_F32 && expr->number == -INFINITY) of.finite = ROWS_NONE;
  return of;
}

static Apart of_operand(const ZeroRows *z, const Node *node, const NodeType *domain, const Expr *expr) {
  const Node *operand = input(node, expr->input);
  if (expr->dtype != DTYPE_F32) return anything;
  int32_t axes[MAX_RANK];
  rows_widened_axes(operand, domain->rank, axes);
  return (Apart){rows_map(MOST, &z->nonzero[operand->id], axes), rows_map(MOST, &z->finite[operand->id], axes)};
}

/* Rows are not told apart along the columns, nor, of scores, queries along the keys. */
static RowSet of_selection(const Node *node, const NodeType *domain, const Expr *where, const RowSet *x,
                           const RowSet *y, uint32_t apart) {
  const RowSet yes = rows_of_condition(MOST, node, domain, where->args[0], true, apart);
  const RowSet no = rows_of_condition(MOST, node, domain, where->args[0], false, apart);
  const RowSet a = rows_both(MOST, x, &yes), b = rows_both(MOST, y, &no);
  return rows_union(MOST, &a, &b);
}

static bool is_number(const Expr *expr) { return expr->kind == EXPR_CONST && isfinite(expr->number); }

/* Of an operation whose arguments may differ from 0 in the sets `x` and `y`. */
static RowSet nonzero_of(const ZeroRows *z, const Node *node, const Expr *expr, const RowSet *x, const RowSet *y) {
  const bool absorbs = z->is_cotangent[node->id];
  switch (expr->op) {
    case OP_NEG: case OP_ABS: case OP_RELU: case OP_TANH: case OP_ERF: case OP_SIN: case OP_SQRT: return *x;
    case OP_ADD: case OP_SUB: case OP_MAXIMUM: case OP_MINIMUM: return rows_union(MOST, x, y);
    case OP_MUL:
      if (absorbs) return rows_both(MOST, x, y);
      return is_number(expr->args[1]) ? *x : is_number(expr->args[0]) ? *y : ROWS_ALL;
    case OP_DIV: return absorbs || (is_number(expr->args[1]) && expr->args[1]->number != 0) ? *x : ROWS_ALL;
    default: return ROWS_ALL;
  }
}

static Apart of_operation(const ZeroRows *z, const Node *node, const NodeType *domain, const Expr *expr,
                          const Apart *const *args) {
  Apart of = anything;
  if (expr->op == OP_WHERE) {
    of.nonzero = of_selection(node, domain, expr, &args[1]->nonzero, &args[2]->nonzero, rows_columns(domain));
    if (domain->rank >= 2)
      of.finite = of_selection(node, domain, expr, &args[1]->finite, &args[2]->finite, domain->rank - 2);
  } else if (expr->op == OP_TO_F32 && expr->args[0]->dtype == DTYPE_BOOL) {
    of.nonzero = rows_of_condition(MOST, node, domain, expr->args[0], true, rows_columns(domain));
  } else if (expr->dtype == DTYPE_F32) {
    of.nonzero = nonzero_of(z, node, expr, &args[0]->nonzero, &args[expr->n_args > 1]->nonzero);
  }
  return of;
}

static Apart of_expr(const ZeroRows *z, const Node *node, const NodeType *domain, const Expr *root, const RowSet *acc) {
  const ExprList list = expr_list(z->pass->scratch, root);
  Apart *all = ARENA_ARRAY(z->pass->scratch, Apart, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    const Expr *expr = list.items[i];
    const Apart *args[3] = {&anything, &anything, &anything};
    for (uint32_t j = 0; j < expr->n_args; j++) args[j] = &all[list.args[j][i]];
    switch (expr->kind) {
      case EXPR_CONST: all[i] = of_constant(expr); break;
      case EXPR_INPUT: all[i] = of_operand(z, node, domain, expr); break;
      case EXPR_ACC: all[i] = (Apart){*acc, ROWS_ALL}; break;
      case EXPR_OP: all[i] = of_operation(z, node, domain, expr, args); break;
      default: all[i] = anything; break;
    }
  }
  return all[list.n - 1];
}

// ---- operations ----

/* The set over the axes of a result of which axis i is axis i of the value, but for `dropped`. */
static RowSet without_axis(const RowSet *set, uint32_t rank, uint32_t dropped, bool gone) {
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) axes[i] = i == dropped ? -1 : (int32_t)(i - (gone && i > dropped));
  return rows_map(MOST, set, axes);
}

/* Of x y: rows of x that are all zero, columns of y that are. */
static RowSet of_product(const ZeroRows *z, const Node *node) {
  if (!z->is_cotangent[node->id]) return ROWS_ALL;
  const Node *x = input(node, 0), *y = input(node, 1);
  int32_t axes[MAX_RANK];
  rows_widened_axes(x, node->rank, axes);
  axes[x->rank - 1] = -1;
  const RowSet rows = rows_map(MOST, &z->nonzero[x->id], axes);
  if (node->op == OP_LINEAR) return rows;
  rows_widened_axes(y, node->rank, axes);
  axes[y->rank - 2] = -1;
  const RowSet columns = rows_map(MOST, &z->nonzero[y->id], axes);
  return rows_both(MOST, &rows, &columns);
}

static Apart of_contraction(const ZeroRows *z, const Node *node) {
  const NodeType domain = type_of(node);
  const RowSet acc = of_product(z, node);
  return node->attr.expr ? of_expr(z, node, &domain, node->attr.expr, &acc) : (Apart){acc, ROWS_ALL};
}

/* A row of nothing but -inf gives zeros in softmax. */
static RowSet of_reduction(const ZeroRows *z, const Node *node) {
  NodeType domain;
  infer_domain(z->pass->graph->sizes, node, &domain);
  const uint32_t axis = (uint32_t)node->attr.axis;
  const Apart of = of_expr(z, node, &domain, node->attr.expr, &(RowSet){.all = true});
  if (node->attr.reduction == OP_SOFTMAX && axis + 1 == domain.rank) return of.finite;
  if (node->attr.reduction != OP_SUM && node->attr.reduction != OP_MEAN) return ROWS_ALL;
  return without_axis(&of.nonzero, domain.rank, axis, node->rank < domain.rank);
}

static RowSet of_row_grad(const ZeroRows *z, const Node *node) {
  const NodeType domain = type_of(node);
  const Apart of = of_expr(z, node, &domain, node->attr.expr, &(RowSet){.all = true});
  return without_axis(&of.nonzero, node->rank, node->rank - 1u, false);
}

// ---- attention ----

bool zero_only_products(const ZeroRows *z, const Node *node, Expr *const *terms) {
  NodeType scores;
  infer_domain(z->pass->graph->sizes, node, &scores);
  const RowSet none = ROWS_NONE;
  const Apart keep = of_expr(z, node, &scores, terms[ATTENTION_KEEP], &none);
  const Apart back = of_expr(z, node, &scores, terms[ATTENTION_BACK], &none);
  return rows_are_none(&keep.nonzero) && rows_are_none(&back.nonzero);
}

/* Queries give and get nothing if they get nothing; keys, if no query sees them. */
static RowSet of_attention_grad(const ZeroRows *z, const Node *grad, const Node *part) {
  Expr *terms[ATTENTION_TERMS];
  if (!expr_attention_terms(grad->attr.expr, ATTENTION_TERMS, terms)) return ROWS_ALL;
  if (!zero_only_products(z, grad, terms)) return ROWS_ALL;
  if (part == grad) {
    int32_t axes[MAX_RANK];
    const Node *g = input(grad, 3);
    rows_widened_axes(g, grad->rank, axes);
    axes[g->rank - 1] = -1;
    return rows_map(MOST, &z->nonzero[g->id], axes);
  }
  NodeType scores;
  infer_domain(z->pass->graph->sizes, grad, &scores);
  const RowSet seen = rows_of_seen_keys(MOST, grad, &scores, terms[ATTENTION_SCORE]);
  int32_t axes[MAX_RANK];
  rows_aligned_axes(part, scores.rank, axes);
  axes[scores.rank - 2] = -1;
  axes[scores.rank - 1] = (int32_t)part->rank - 2;
  return rows_map(MOST, &seen, axes);
}

// ---- views ----

static RowSet of_slice(const ZeroRows *z, const Node *node) {
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) {
    const bool cut = node->dims[i] != input(node, 0)->dims[i] || !size_equals(node->attr.starts[i], 0);
    axes[i] = cut ? -1 : (int32_t)i;
  }
  return rows_map(MOST, &z->nonzero[input(node, 0)->id], axes);
}

static RowSet of_moved_axes(const ZeroRows *z, const Node *node, const RowSet *sets) {
  int32_t axes[MAX_RANK], made_of[MAX_RANK];
  for (uint32_t i = 0; i < MAX_RANK; i++) axes[i] = -1;
  for (uint32_t axis = 0; axis < node->rank; axis++) {
    if (node->op == OP_PERMUTE) axes[node->attr.axes[axis]] = (int32_t)axis;
    else if (rows_merged_axes(z->pass->graph->sizes, node, axis, made_of) == 1) axes[made_of[0]] = (int32_t)axis;
  }
  return rows_map(MOST, &sets[input(node, 0)->id], axes);
}

/* Each operand has a range of positions of its own. */
static RowSet of_concat(const ZeroRows *z, const Node *node) {
  SizeTable *sizes = z->pass->graph->sizes;
  const uint32_t axis = (uint32_t)node->attr.axis;
  const Size *start = size_const(sizes, 0);
  RowSet joined = ROWS_NONE;
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *part = input(node, i);
    const Size *end = start ? size_add(sizes, start, part->dims[axis]) : NULL;
    RowSet set = without_axis(&z->nonzero[part->id], node->rank, axis, false);
    if (start && end && axis + 1u < node->rank && !rows_are_none(&set)) set = rows_in_range(&set, axis, start, end);
    joined = rows_union(MOST, &joined, &set);
    start = end;
  }
  return joined;
}

// ---- all operations ----

static Apart of_node(const ZeroRows *z, const Node *node) {
  const NodeType type = type_of(node);
  switch (node->op) {
    case OP_POINTWISE: return of_expr(z, node, &type, node->attr.expr, &(RowSet){.all = true});
    case OP_LINEAR: case OP_MATMUL: case OP_MATMUL_FUSED: return of_contraction(z, node);
    case OP_REDUCE: return (Apart){of_reduction(z, node), ROWS_ALL};
    case OP_ROW_GRAD: return (Apart){of_row_grad(z, node), ROWS_ALL};
    case OP_ROW_GRAD_W: return (Apart){z->nonzero[input(node, 0)->id], ROWS_ALL};
    case OP_ATTENTION_GRAD: return (Apart){of_attention_grad(z, node, node), ROWS_ALL};
    case OP_ATTENTION_GRAD_K: case OP_ATTENTION_GRAD_V:
      return (Apart){of_attention_grad(z, input(node, 0), node), ROWS_ALL};
    case OP_SLICE: return (Apart){of_slice(z, node), ROWS_ALL};
    case OP_PERMUTE: case OP_RESHAPE:
      return (Apart){of_moved_axes(z, node, z->nonzero), of_moved_axes(z, node, z->finite)};
    case OP_CONCAT: return (Apart){of_concat(z, node), ROWS_ALL};
    default: return anything;
  }
}

static bool is_seed(const Node *node) {
  return node->op == OP_INPUT && !strncmp(node->attr.name, "train.seed.", strlen("train.seed."));
}

ZeroRows zero_rows_find(Pass *pass) {
  const uint32_t n = pass->graph->next_id;
  ZeroRows z = {.pass = pass,
                .nonzero = ARENA_ARRAY(pass->scratch, RowSet, n),
                .finite = ARENA_ARRAY(pass->scratch, RowSet, n),
                .is_cotangent = ARENA_ARRAY(pass->scratch, bool, n)};
  for (const Node *node = pass->graph->first; node; node = node->next) {
    z.is_cotangent[node->id] = is_seed(node);
    for (size_t i = 0; i < node->inputs.n; i++) z.is_cotangent[node->id] |= z.is_cotangent[input(node, i)->id];
    const Apart of = node->dtype == DTYPE_F32 ? of_node(&z, node) : anything;
    z.nonzero[node->id] = of.nonzero;
    z.finite[node->id] = of.finite;
  }
  return z;
}

// ---- steps of products ----

/* A factor behind its views: where its leading axes and its k lie in the value that it is a view of. */
typedef struct Factor {
  const Node *root;
  uint32_t n_lead, n_k;
  int32_t lead[MAX_RANK], k[MAX_RANK]; /* axes of the root; lead: -1: none */
} Factor;

/* One view further back. False: k is no row of axes there. */
static bool follow(SizeTable *sizes, Factor *f) {
  const Node *view = f->root;
  Factor next = {.root = input(view, 0), .n_lead = f->n_lead};
  for (uint32_t i = 0; i < f->n_k; i++) {
    int32_t axes[MAX_RANK] = {view->attr.axes[f->k[i]]};
    const uint32_t n = view->op == OP_PERMUTE ? 1 : rows_merged_axes(sizes, view, (uint32_t)f->k[i], axes);
    if (n == 0 || next.n_k + n > MAX_RANK) return false;
    for (uint32_t j = 0; j < n; j++) next.k[next.n_k++] = axes[j];
  }
  for (uint32_t i = 0; i < f->n_lead; i++) {
    next.lead[i] = -1;
    if (f->lead[i] >= 0 && !narrow_axes(sizes, view, (uint32_t)f->lead[i], &next.lead[i])) next.lead[i] = -1;
  }
  *f = next;
  return true;
}

static Factor factor_of(const ZeroRows *z, const Node *product, uint32_t number) {
  const Node *x = input(product, number);
  Factor f = {.root = x, .n_lead = product->rank - 2u, .n_k = 1, .k = {(int32_t)(x->rank - 1u - number)}};
  int32_t axes[MAX_RANK];
  rows_aligned_axes(x, product->rank, axes);
  memcpy(f.lead, axes, f.n_lead * sizeof *axes);
  while ((f.root->op == OP_PERMUTE || f.root->op == OP_RESHAPE) && follow(z->pass->graph->sizes, &f)) continue;
  return f;
}

/* Attention's weights: a softmax, perhaps with dropout. */
static bool are_weights(const Node *node) {
  for (;;) {
    node = node_behind_views(node);
    if (node->op != OP_POINTWISE) return node->op == OP_REDUCE && node->attr.reduction == OP_SOFTMAX;
    const Node *only = NULL;
    for (size_t i = 0; i < node->inputs.n; i++) {
      if (input(node, i)->dtype == DTYPE_BOOL) continue;
      if (only || input(node, i)->dtype != DTYPE_F32) return false;
      only = input(node, i);
    }
    if (!only) return false;
    node = only;
  }
}

/* Whether a factor's k is made of axes with the sizes that the steps have. */
static bool has_steps(const Factor *f, const ProductSteps *steps) {
  bool same = f->n_k == steps->rank - steps->n_lead;
  for (uint32_t i = 0; same && i < f->n_k; i++) same = f->root->dims[f->k[i]] == steps->dims[steps->n_lead + i];
  return same;
}

/* What a factor says about the steps, and where these lie in its root. */
static RowSet steps_of(const ZeroRows *z, const Factor *f, ProductSteps *steps, uint32_t number) {
  const bool same = has_steps(f, steps);
  int32_t back[MAX_RANK];
  for (uint32_t i = 0; i < MAX_RANK; i++) back[i] = -1;
  steps->roots[number] = f->root;
  for (uint32_t i = 0; i < steps->rank; i++) {
    const int32_t axis = i < steps->n_lead ? f->lead[i] : same ? f->k[i - steps->n_lead] : -1;
    steps->axes[number][i] = axis;
    if (axis >= 0) back[axis] = (int32_t)i;
  }
  return rows_map(MOST, &z->nonzero[f->root->id], back);
}

bool zero_steps(const ZeroRows *z, const Node *product, ProductSteps *steps) {
  const bool is_cotangent = z->is_cotangent[product->id];
  if (!is_cotangent && !are_weights(input(product, 0))) return false;
  const Factor x = factor_of(z, product, 0), y = factor_of(z, product, 1);
  const Factor *most = y.n_k > x.n_k ? &y : &x;
  *steps = (ProductSteps){.rank = x.n_lead + most->n_k, .n_lead = x.n_lead};
  if (steps->rank > MAX_RANK) return false;
  for (uint32_t i = 0; i < steps->rank; i++)
    steps->dims[i] = i < x.n_lead ? product->dims[i] : most->root->dims[most->k[i - x.n_lead]];
  const RowSet of_x = steps_of(z, &x, steps, 0), of_y = steps_of(z, &y, steps, 1);
  steps->rows = is_cotangent ? rows_both(MOST, &of_x, &of_y) : of_x;
  return rows_are_some(&steps->rows);
}
