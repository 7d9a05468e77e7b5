/* In: a node, and the rows of its result that something reads. Out: the rows of its operands that it then reads, by one
 * rule for each operation. See live_rows.c for what is legal. An operation without a rule reads its operands
 * everywhere, which is always safe. */
#include "passes/live_row_rules.h"

#include "graph/infer.h"
#include "passes/narrow_rows.h"
#include "passes/zero_rows.h"

// ---- expressions ----

bool live_rows_can_fail(Arena *scratch, const Expr *expr) {
  if (!expr) return false;
  ExprList list = expr_list(scratch, expr);
  for (uint32_t i = 0; i < list.n; i++)
    if (expr_is_division(list.items[i]))
      return true;
  return false;
}

/* Where `a and b` is read to the end: a only where b may be true, or b where a may be. Never both, for then neither
 * would be known. */
static RowSet need_of_conjunct(const LiveRows *r, const Node *node, const NodeType *domain, const Expr *expr,
                               uint32_t arg, const RowSet *need) {
  RowSet second = rows_of_condition(r->most, node, domain, expr->args[1], true, rows_columns(domain));
  if (rows_are_some(&second)) return arg == 0 ? rows_both(r->most, need, &second) : *need;
  RowSet first = rows_of_condition(r->most, node, domain, expr->args[0], true, rows_columns(domain));
  return arg == 1 ? rows_both(r->most, need, &first) : *need;
}

/* The need of argument number `arg` of an operation whose result has this need. */
static RowSet need_of_argument(const LiveRows *r, const Node *node, const NodeType *domain, const Expr *expr,
                               uint32_t arg, const RowSet *need) {
  if (expr->op == OP_AND && r->trains) return need_of_conjunct(r, node, domain, expr, arg, need);
  if (expr->op != OP_WHERE || arg == 0) return *need;
  uint32_t apart = domain->rank - 1;
  if (r->trains) apart = node->op == OP_MATMUL_FUSED ? MAX_RANK : rows_columns(domain); /* its columns may be keys */
  RowSet selected = rows_of_condition(r->most, node, domain, expr->args[0], arg == 1, apart);
  return rows_both(r->most, need, &selected);
}

static void join_operand(const LiveRows *r, const Node *node, const NodeType *domain, uint32_t input,
                         const RowSet *need, RowSet *operands) {
  int32_t axes[MAX_RANK];
  rows_aligned_axes(node->inputs.items[input], domain->rank, axes);
  RowSet mapped = rows_map(r->most, need, axes);
  operands[input] = rows_union(r->most, &operands[input], &mapped);
}

/* From the need of an expression's result to those of its operands and of acc. Gathered tables and ids are read whole:
 * which rows of a table are read depends on values. */
static void need_of_expr(LiveRows *r, const Node *node, const NodeType *domain, const RowSet *root,
                         RowSet *operands, RowSet *acc) {
  ExprList list = expr_list(r->pass->scratch, node->attr.expr);
  RowSet *needs = ARENA_ARRAY(r->pass->scratch, RowSet, list.n);
  needs[list.n - 1] = *root;
  for (uint32_t i = list.n; i-- > 0;) { /* users stand behind what they use */
    const Expr *expr = list.items[i];
    for (uint32_t j = 0; j < expr->n_args; j++) {
      RowSet need = need_of_argument(r, node, domain, expr, j, &needs[i]);
      RowSet *of = &needs[list.args[j][i]];
      *of = rows_union(r->most, of, &need);
    }
    if (expr->kind == EXPR_ACC) *acc = rows_union(r->most, acc, &needs[i]);
    if (expr->kind == EXPR_INPUT) join_operand(r, node, domain, expr->input, &needs[i], operands);
    if (expr->kind == EXPR_GATHER) operands[expr->input] = operands[expr->ids] = ROWS_ALL;
  }
}

// ---- operations: from the rows of a result to those of the operands ----

/* There is one table, by operation; an operation without a row there reads its operands everywhere. */

typedef void FlowRule(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands);

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

/* The axes of the result as axes of an operand with as many, but for those from `end` on. */
static void same_axes(uint32_t end, int32_t *axes) {
  for (uint32_t i = 0; i < MAX_RANK; i++) axes[i] = i < end ? (int32_t)i : -1;
}

// ---- rows ----

static void flow_pointwise(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  NodeType domain = type_of(node);
  RowSet acc = {0};
  need_of_expr(r, node, &domain, need, operands, &acc);
}

/* A norm mixes the columns of a row, never rows. */
static void flow_norm(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  RowSet root = rows_map(r->most, need, axes);
  flow_pointwise(r, node, &root, operands);
  for (uint32_t i = 1; i <= (uint32_t)node->attr.has_weight + node->attr.has_bias; i++)
    operands[node->inputs.n - i] = ROWS_ALL;
}

/* The axes of the result as those of the domain; the axis that is reduced has no rows of its own. */
static void flow_reduce(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  NodeType domain;
  infer_domain(r->pass->graph->sizes, node, &domain);
  uint32_t reduced = (uint32_t)node->attr.axis;
  bool gone = node->rank < domain.rank;
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++)
    axes[i] = gone ? (int32_t)(i + (i >= reduced)) : i == reduced ? -1 : (int32_t)i;
  RowSet root = rows_map(r->most, need, axes), acc = {0};
  need_of_expr(r, node, &domain, &root, operands, &acc);
}

// ---- products ----

/* The need of the product itself, acc: all that the result needs if there is no epilogue. */
static RowSet need_of_acc(LiveRows *r, const Node *node, const NodeType *domain, const RowSet *root,
                           RowSet *operands) {
  if (!node->attr.expr) return *root;
  RowSet acc = {0};
  need_of_expr(r, node, domain, root, operands, &acc);
  return acc;
}

static void flow_linear(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  NodeType domain = type_of(node);
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  RowSet acc = need_of_acc(r, node, &domain, need, operands), x = rows_map(r->most, &acc, axes);
  operands[0] = rows_union(r->most, &operands[0], &x);
  operands[1] = ROWS_ALL;
}

/* A factor of which some steps of k are left out is needed in the others only. Behind views the value itself is told,
 * which stands further up; nobody reads the views then. */
static void need_of_steps(LiveRows *r, const Node *node, uint32_t number, RowSet *need) {
  const Choice *choice = &r->choices[node->id];
  const Node *root = choice->steps.roots[number];
  const RowSet steps = rows_map(r->most, &choice->rows, choice->steps.axes[number]);
  if (root == input(node, number)) {
    *need = rows_both(r->most, need, &steps);
    return;
  }
  r->needs[root->id] = rows_union(r->most, &r->needs[root->id], &steps);
  *need = ROWS_NONE;
}

/* A row of the result is made of the row of x and all of y; a column of the column of y and all of x. */
static void flow_matmul(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  NodeType domain = type_of(node);
  RowSet acc = need_of_acc(r, node, &domain, need, operands);
  int32_t x_axes[MAX_RANK], y_axes[MAX_RANK];
  rows_aligned_axes(input(node, 0), node->rank, x_axes);
  rows_aligned_axes(input(node, 1), node->rank, y_axes);
  x_axes[node->rank - 1] = y_axes[node->rank - 2] = -1;
  RowSet x = rows_map(r->most, &acc, x_axes), y = rows_map(r->most, &acc, y_axes);
  if (!rows_are_none(&acc) && r->trains && r->choices[node->id].are_steps) {
    need_of_steps(r, node, 0, &x);
    need_of_steps(r, node, 1, &y);
  }
  operands[0] = rows_union(r->most, &operands[0], &x);
  operands[1] = rows_union(r->most, &operands[1], &y);
}

// ---- attention ----

static RowSet need_of_keys(const LiveRows *r, const Node *operand, const RowSet *seen, uint32_t rank) {
  int32_t axes[MAX_RANK];
  rows_aligned_axes(operand, rank, axes);
  axes[rank - 2] = -1;
  axes[rank - 1] = (int32_t)operand->rank - 2;
  return rows_map(r->most, seen, axes);
}

static void flow_attention(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  NodeType scores;
  Expr *terms[ATTENTION_TERMS] = {node->attr.expr};
  if (node->op == OP_ATTENTION_KEPT) expr_attention_terms(node->attr.expr, ATTENTION_BACK, terms);
  infer_domain(r->pass->graph->sizes, node, &scores);
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  RowSet root = rows_map(r->most, need, axes), acc = need_of_acc(r, node, &scores, &root, operands);
  rows_aligned_axes(input(node, 0), node->rank, axes);
  axes[node->rank - 1] = -1;
  RowSet q = rows_map(r->most, &acc, axes), seen = rows_of_seen_keys(r->most, node, &scores, terms[ATTENTION_SCORE]);
  operands[0] = rows_union(r->most, &operands[0], &q);
  for (uint32_t i = 1; i <= 2; i++) {
    RowSet keys = need_of_keys(r, input(node, i), &seen, scores.rank);
    operands[i] = rows_union(r->most, &operands[i], &keys);
  }
}

/* Queries that get nothing are left out; what keys and values get is read whole. */
static void flow_attention_grad(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  (void)need;
  Expr *terms[ATTENTION_TERMS];
  NodeType scores;
  int32_t axes[MAX_RANK];
  infer_domain(r->pass->graph->sizes, node, &scores);
  for (size_t i = 0; i < node->inputs.n; i++) operands[i] = ROWS_ALL;
  if (!r->trains || !expr_attention_terms(node->attr.expr, ATTENTION_TERMS, terms)) return;
  if (!zero_only_products(&r->zero, node, terms)) return;
  const RowSet seen = rows_of_seen_keys(r->most, node, &scores, terms[ATTENTION_SCORE]);
  const RowSet queries = r->choices[node->id].is_made ? r->choices[node->id].rows : ROWS_ALL;
  for (uint32_t i = 0; i < 4; i++) {
    rows_aligned_axes(input(node, i), node->rank, axes);
    axes[node->rank - 1] = -1;
    operands[i] = i == 1 || i == 2 ? need_of_keys(r, input(node, i), &seen, scores.rank)
                                   : rows_map(r->most, &queries, axes);
  }
}

// ---- gradients along rows ----

static void flow_row_grad(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  RowSet root = rows_map(r->most, need, axes);
  const size_t x = node->inputs.n - 1u - node->attr.has_weight;
  flow_pointwise(r, node, &root, operands);
  operands[x] = rows_union(r->most, &operands[x], &root);
  if (node->attr.has_weight) operands[x + 1] = ROWS_ALL;
}

static void flow_same_rows(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  operands[0] = rows_map(r->most, need, axes);
}

/* Ids are all looked at. */
static void flow_take(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  int32_t axes[MAX_RANK];
  same_axes(node->rank, axes);
  axes[node->attr.axis] = -1;
  operands[0] = r->trains && node->rank == input(node, 0)->rank ? rows_map(r->most, need, axes) : ROWS_ALL;
  operands[1] = ROWS_ALL;
}

// ---- views ----

static void flow_slice(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  SizeTable *sizes = r->pass->graph->sizes;
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) {
    bool cut = node->dims[i] != input(node, 0)->dims[i] || !size_equals(node->attr.starts[i], 0);
    axes[i] = cut ? -1 : (int32_t)i;
  }
  operands[0] = rows_map(r->most, need, axes);
  for (uint32_t i = 0; i + 1u < node->rank && r->trains; i++) {
    const Size *end = axes[i] < 0 ? size_add(sizes, node->attr.starts[i], node->dims[i]) : NULL;
    if (end) operands[0] = rows_in_range(&operands[0], i, node->attr.starts[i], end);
  }
}

/* Permute, reshape and concat: the axes that narrow-rows knows, and those behind which there are axes of 1 only. */
static bool made_of_axes(const LiveRows *r, const Node *node, uint32_t axis, int32_t *made_of) {
  SizeTable *sizes = r->pass->graph->sizes;
  int32_t axes[MAX_RANK];
  if (narrow_axes(sizes, node, axis, made_of)) return true;
  if (!r->trains || node->op != OP_RESHAPE || rows_merged_axes(sizes, node, axis, axes) != 1) return false;
  made_of[0] = axes[0];
  return true;
}

static void flow_axes(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  int32_t *made_of = ARENA_ARRAY(r->pass->scratch, int32_t, node->inputs.n);
  for (size_t i = 0; i < node->inputs.n; i++) {
    int32_t axes[MAX_RANK];
    for (uint32_t axis = 0; axis < node->rank; axis++) {
      const bool is_kept = rows_have_axis(need, axis) && made_of_axes(r, node, axis, made_of);
      axes[axis] = is_kept ? made_of[i] : -1;
    }
    RowSet mapped = rows_map(r->most, need, axes);
    operands[i] = rows_union(r->most, &operands[i], &mapped);
  }
}

// ---- all operations ----

static FlowRule *const rules[N_OPS] = {
    [OP_POINTWISE] = flow_pointwise, [OP_NORM] = flow_norm,     [OP_REDUCE] = flow_reduce,
    [OP_LINEAR] = flow_linear,       [OP_MATMUL] = flow_matmul, [OP_MATMUL_FUSED] = flow_matmul,
    [OP_ATTENTION] = flow_attention, [OP_SLICE] = flow_slice,   [OP_PERMUTE] = flow_axes,
    [OP_RESHAPE] = flow_axes,        [OP_CONCAT] = flow_axes,   [OP_ROW_GRAD] = flow_row_grad,
    [OP_ROW_GRAD_W] = flow_same_rows, [OP_TAKE] = flow_take,    [OP_ATTENTION_GRAD] = flow_attention_grad,
    [OP_ATTENTION_KEPT] = flow_attention,
};

void live_rows_of_operands(LiveRows *r, const Node *node, const RowSet *need, RowSet *operands) {
  for (size_t i = 0; i < node->inputs.n; i++) operands[i] = (RowSet){0};
  bool apart = rules[node->op] && !live_rows_can_fail(r->pass->scratch, node->attr.expr);
  if (apart && !rows_are_none(need)) rules[node->op](r, node, need, operands);
  for (size_t i = 0; i < node->inputs.n && !apart; i++) operands[i] = ROWS_ALL;
}
