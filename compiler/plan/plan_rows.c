/* In: POINTWISE, REDUCE, NORM, CONCAT, SINUSOID, ROTARY_TABLE, and the outputs of the graph. Out: row steps, append
 * steps, table steps; reductions of i32 go to plan_along.c. Ids that could lie outside of a table are checked before a
 * row is read by them. Expressions with more operands than a kernel takes are split first (body.h). Refused: nothing;
 * fusion has kept to expressions that can be split, and nest_add_operand checks that it has. */
#include <string.h>

#include "base/check.h"
#include "plan/body.h"
#include "plan/caches.h"
#include "plan/cost.h"
#include "plan/plan_live.h"

// ---- pointwise ----

static const Size *const *dims_of(const Node *node) { return (const Size *const *)node->dims; }

/* A mask of rows says which rows of the result are computed, so the rows must stay the node's own: nothing is merged
 * into the columns. */
void plan_body(Planner *p, const Node *node, Body *body) {
  body_split(p, body, TFM_MAX_OPERANDS - 1);
  View result = layout_result(p, node, layout_has_columns, NULL, NULL);
  Nest nest;
  nest_init(p, &nest, body, &result);
  bool has_mask = (node->op == OP_POINTWISE || node->op == OP_MATMUL_FUSED) && node_rows_mask(node);
  uint32_t fixed = has_mask ? 1 : body_fixed_axes(p, body);
  nest_simplify(p, &nest, fixed, fixed);
  if (has_mask) nest.live = live_rows(p, node);
  KernelSpec spec = nest_pointwise(p, &nest);
  plan_row_step(p, &nest, &spec, "pointwise");
}

void plan_pointwise(Planner *p, const Node *node) {
  Body body = body_new(node, node->rank, dims_of(node), node->attr.expr);
  plan_check_gathers(p, node);
  plan_body(p, node, &body);
}

// ---- reductions ----

static bool writes_rows(OpKind reduction) { return reduction == OP_SOFTMAX || reduction == OP_LOG_SOFTMAX; }

/* Views the result with an axis of 1 where the reduced one was, so that it has the axes of the domain. */
static View over_domain(Planner *p, const Node *node, const View *result) {
  View view = *result;
  if (writes_rows(node->attr.reduction) || node->attr.keepdim) return view;
  uint32_t axis = (uint32_t)node->attr.axis;
  for (uint32_t i = view.rank; i > axis; i--) {
    view.dims[i] = view.dims[i - 1];
    view.strides[i] = view.strides[i - 1];
  }
  view.dims[axis] = p->math.one;
  view.strides[axis] = p->math.zero;
  view.rank++;
  return view;
}

/* A gather reads whole rows of its table, so its columns must be the columns of the nest. If another axis is reduced,
 * the gather is computed before. */
static void free_columns(Planner *p, Body *body, uint32_t axis) {
  if (axis + 1 != body->rank) body_split_gathers(p, body);
}

/* How many operands have neighbours of memory along the axis. The result counts if it is read again. */
static uint32_t contiguous_along(const Nest *nest, uint32_t axis, bool writes_rows) {
  uint32_t n = 0;
  for (uint32_t i = !writes_rows; i < nest->n_operands; i++) n += size_equals(nest->operands[i].strides[axis], 1);
  return n;
}

/* The axis that vectors go along: the last one that has elements to go along, unless more operands are contiguous
 * along another. A gather needs the last one. */
static uint32_t column_axis(Planner *p, const Nest *nest, uint32_t reduced, bool writes_rows) {
  uint32_t best = nest->rank - 1;
  while (best > reduced && size_equals(nest->dims[best], 1)) best--;
  if (expr_has_kind(p, nest->expr, EXPR_GATHER)) return best;
  for (uint32_t i = nest->rank; i-- > 0;) {
    bool is_better = contiguous_along(nest, i, writes_rows) > contiguous_along(nest, best, writes_rows);
    if (is_better && !size_equals(nest->dims[i], 1)) best = i;
  }
  return best;
}

/* Makes the reduced axis the columns if vectors go along it, else the rows: columns are then reduced side by side, in
 * the same order of additions as a row would be (kernels/reducer.h). Returns `reduce`. */
static uint8_t arrange(Planner *p, Nest *nest, uint32_t axis, bool writes_rows, bool has_mask) {
  uint32_t columns = has_mask ? axis : column_axis(p, nest, axis, writes_rows);
  nest_move_axis(p, nest, columns, 1);
  if (columns == axis) {
    nest_simplify(p, nest, 1, 1);
    return 1;
  }
  nest_move_axis(p, nest, columns < axis ? axis - 1 : axis, 2);
  nest_simplify(p, nest, 2, 2);
  return 2;
}

static bool has_some_columns(Planner *p, const View *view) {
  bool found = false;
  for (uint32_t i = 0; i < view->rank; i++) found |= view->strides[i] == p->math.one;
  return found;
}

/* A result that is read again should lie as the operands do: whoever permuted these may undo that behind it. */
static View layout_reduced(Planner *p, const Node *node, const Body *body) {
  LayoutTest test = layout_has_columns;
  if (writes_rows(node->attr.reduction)) {
    const View nowhere = {.offset = p->math.zero};
    Nest nest;
    nest_init(p, &nest, body, &nowhere);
    if (column_axis(p, &nest, (uint32_t)node->attr.axis, false) != (uint32_t)node->attr.axis) test = has_some_columns;
  }
  return layout_result(p, node, test, NULL, NULL);
}

/* What an i32 reduction is taken of: the node's only operand as it is, or the values of the expression. */
static View integers_of(Planner *p, Body *body) {
  const Size *const *dims = (const Size *const *)body->dims;
  if (body->expr->kind == EXPR_INPUT) {
    View view = plan_view(p, body->node->inputs.items[body->expr->input]);
    bool is_whole = view.rank == body->rank;
    for (uint32_t i = 0; i < view.rank && is_whole; i++) is_whole = view.dims[i] == dims[i];
    if (is_whole) return view;
  }
  body_split(p, body, TFM_MAX_OPERANDS - 1);
  View result = layout_new(p, DTYPE_I32, body->rank, dims);
  Nest nest;
  nest_init(p, &nest, body, &result);
  uint32_t fixed = body_fixed_axes(p, body);
  nest_simplify(p, &nest, fixed, fixed);
  KernelSpec spec = nest_pointwise(p, &nest);
  plan_row_step(p, &nest, &spec, "pointwise");
  return result;
}

/* Whether nothing reads the value, through views too, after `node` does: then the result may lie in its place. */
static bool dies_in(const Planner *p, const Node *value, const Node *node) {
  for (size_t i = 0; i < p->outputs.n; i++)
    if (p->outputs.items[i].node == value) return false;
  for (size_t i = 0; i < value->users.n; i++) {
    const Node *user = value->users.items[i];
    if (user == node || !p->values[user->id].is_live) continue;
    const bool is_read_later = op_table[user->op].category == CATEGORY_VIEW ? !dies_in(p, user, node)
                                                                            : user->id > node->id;
    if (is_read_later) return false;
  }
  return true;
}

static bool has_gradients(const Planner *p) {
  for (size_t i = 0; i < p->outputs.n; i++)
    if (p->outputs.items[i].role.kind == ROLE_GRADIENT) return true;
  return false;
}

bool plan_drops_small(const Planner *p) { return p->graph->is_of_step || has_gradients(p); }

/* Of a step of training, logits are the largest values by far: their log_softmax takes the place of what a product has
 * made for it alone. */
static void lay_over_logits(Planner *p, const Node *node) {
  const Expr *expr = node->attr.expr;
  if (node->attr.reduction != OP_LOG_SOFTMAX || expr->kind != EXPR_INPUT || !has_gradients(p)) return;
  const Node *x = node->inputs.items[expr->input];
  const View view = plan_view(p, x);
  const bool is_free = op_table[x->op].category == CATEGORY_CONTRACT && view.space == TFM_SPACE_BUFFER &&
                       !p->values[node->id].has_view && view_has_contiguous_columns(&view) && !p->prepare &&
                       !p->values[x->id].is_prepare && (uint32_t)node->attr.axis + 1 == node->rank &&
                       node_same_shape(x, node) && dies_in(p, x, node);
  if (is_free) plan_set_view(p, node, &view);
}

void plan_reduce(Planner *p, const Node *node) {
  OpKind reduction = node->attr.reduction;
  uint32_t axis = (uint32_t)node->attr.axis;
  Body body = body_new(node, node->attr.rank_in, (const Size *const *)node->attr.dims_in, node->attr.expr);
  plan_check_gathers(p, node);
  if (node->attr.expr->dtype == DTYPE_I32) {
    View x = integers_of(p, &body), result = layout_result(p, node, layout_has_columns, NULL, NULL);
    result = over_domain(p, node, &result);
    plan_integer_reduce(p, reduction, axis, &x, &result);
    return;
  }
  free_columns(p, &body, axis);
  body_split(p, &body, TFM_MAX_OPERANDS - 1);
  lay_over_logits(p, node);
  View result = layout_reduced(p, node, &body), over = over_domain(p, node, &result);
  Nest nest;
  nest_init(p, &nest, &body, &over);
  uint8_t reduce = arrange(p, &nest, axis, writes_rows(reduction), node->attr.rows_mask);
  nest.live = live_rows(p, node);
  KernelSpec spec = nest_spec(&nest);
  nest_reduces(&spec, reduction, reduce, node->attr.dims_in[axis]);
  if (reduce == 1 && !writes_rows(reduction)) spec.operands[0].access = COLUMN_BROADCAST;
  spec.drops_small = reduction == OP_SOFTMAX && plan_drops_small(p);
  plan_row_step(p, &nest, &spec, op_table[reduction].name);
}

/* The weight and the bias are the last inputs of the node, behind those of the expression. */
void plan_norm(Planner *p, const Node *node) {
  uint32_t n_weights = (uint32_t)node->attr.has_weight + node->attr.has_bias;
  Node *const *weights = node->inputs.items + node->inputs.n - n_weights;
  Body body = body_new(node, node->rank, dims_of(node), node->attr.expr);
  plan_check_gathers(p, node);
  body_split(p, &body, TFM_MAX_OPERANDS - 1 - n_weights);
  View result = layout_result(p, node, layout_has_columns, NULL, NULL);
  Nest nest;
  nest_init(p, &nest, &body, &result);
  uint32_t numbers[2] = {0};
  for (uint32_t i = 0; i < n_weights; i++) {
    View view = plan_view(p, weights[i]);
    numbers[i] = nest_add(p, &nest, &view);
  }
  nest_simplify(p, &nest, 1, 1);
  nest.live = live_rows(p, node);
  KernelSpec spec = nest_spec(&nest);
  nest_reduces(&spec, node->attr.reduction, 1, node->dims[node->rank - 1]);
  spec.eps = node->attr.eps;
  if (node->attr.has_weight) spec.weight = (uint8_t)numbers[0];
  if (node->attr.has_bias) spec.bias = (uint8_t)numbers[node->attr.has_weight];
  plan_row_step(p, &nest, &spec, op_table[spec.reduction].name);
}

// ---- gradients by rows ----

/* Where what each row gives w lies; false: nobody reads it. */
static bool second_result(Planner *p, const Node *node, View *view) {
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (user->op != OP_ROW_GRAD_W || !p->values[user->id].is_live) continue;
    if (!p->values[user->id].has_view) {
      const View fresh = layout_new(p, DTYPE_F32, user->rank, dims_of(user));
      plan_set_view(p, user, &fresh);
    }
    *view = p->values[user->id].view;
    return true;
  }
  return false;
}

/* Logits are the largest values of a step, and what they get takes the place of their log_softmax. */
static View grad_layout(Planner *p, const Node *node, const Node *x) {
  const View view = plan_view(p, x);
  const bool is_free = node->attr.reduction == OP_LOG_SOFTMAX && view.space == TFM_SPACE_BUFFER &&
                       x->op == OP_REDUCE && !p->values[node->id].has_view && view_has_contiguous_columns(&view) &&
                       !p->prepare && !p->values[x->id].is_prepare && node_same_shape(x, node) && dies_in(p, x, node);
  if (is_free) plan_set_view(p, node, &view);
  return layout_result(p, node, layout_has_columns, NULL, NULL);
}

void plan_row_grad(Planner *p, const Node *node) {
  const uint32_t n_fixed = 1u + node->attr.has_weight;
  Node *const *fixed = node->inputs.items + node->inputs.n - n_fixed;
  Body body = body_new(node, node->rank, dims_of(node), node->attr.expr);
  plan_check_gathers(p, node);
  body_split(p, &body, TFM_MAX_OPERANDS - 2 - n_fixed);
  View result = grad_layout(p, node, fixed[0]), second;
  const bool has_second = second_result(p, node, &second);
  Nest nest;
  nest_init(p, &nest, &body, &result);
  uint32_t numbers[2] = {0}, second_number = 0;
  for (uint32_t i = 0; i < n_fixed; i++) {
    View view = plan_view(p, fixed[i]);
    numbers[i] = nest_add(p, &nest, &view);
  }
  if (has_second) second_number = nest_add(p, &nest, &second);
  nest_simplify(p, &nest, 1, 1);
  nest.live = live_rows(p, node);
  KernelSpec spec = nest_spec(&nest);
  nest_reduces(&spec, node->attr.reduction, 1, node->dims[node->rank - 1]);
  spec.eps = node->attr.eps;
  spec.grad_of = (uint8_t)numbers[0];
  spec.weight = (uint8_t)numbers[1];
  spec.second = (uint8_t)second_number;
  plan_row_step(p, &nest, &spec, op_table[node->op].name);
}

// ---- concat and outputs ----

/* An input that was written into the concat's memory (plan_values.c) needs no copy. */
void plan_concat(Planner *p, const Node *node) {
  if (caches_has(p, node)) {
    View fresh = plan_view(p, node->inputs.items[1]);
    caches_append(p, node, &fresh);
    return;
  }
  View whole = layout_result(p, node, layout_has_columns, NULL, NULL);
  const Size *starts[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) starts[i] = p->math.zero;
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *input = node->inputs.items[i];
    View part = view_slice(&p->math, &whole, starts, dims_of(input)), view = plan_view(p, input);
    if (!view_equal(&part, &view)) plan_copy(p, &view, &part, "concat");
    starts[node->attr.axis] = math_add(&p->math, starts[node->attr.axis], input->dims[node->attr.axis]);
  }
}

/* A reshape that strides cannot express, and nobody has needed before, is copied to the caller's memory at once. */
static bool copy_reshaped(Planner *p, const Node *node, const View *to) {
  const Value *value = &p->values[node->id];
  if (node->op != OP_RESHAPE || value->has_view || value->is_static || value->is_prepare) return false;
  View from = plan_view(p, node->inputs.items[0]), view;
  if (view_reshape(&p->math, &from, node->rank, dims_of(node), &view)) return false;
  if (!view_reshape(&p->math, to, from.rank, (const Size *const *)from.dims, &view)) return false;
  plan_copy(p, &from, &view, "output");
  return true;
}

/* Copies what was not computed in the caller's memory. These are the last steps, so an error before them leaves the
 * outputs untouched. */
void plan_outputs(Planner *p) {
  p->prepare = false;
  for (size_t i = 0; i < p->outputs.n; i++) {
    const Node *node = p->node = p->outputs.items[i].node;
    View to = view_rows(&p->math, node->dtype, node->rank, dims_of(node), NULL, NULL);
    to.space = TFM_SPACE_OUTPUT;
    to.index = (uint32_t)i;
    if (copy_reshaped(p, node, &to)) continue;
    View from = plan_view(p, node);
    if (!view_equal(&from, &to)) plan_copy(p, &from, &to, "output");
  }
}

// ---- tables of sines and cosines ----

/* Whether cosines and sines lie one behind the other in a row, as the runtime writes a rotary table. */
static bool has_pairs(Planner *p, const View *view) {
  (void)p;
  uint32_t last = view->rank - 1;
  return view_has_contiguous_columns(view) && view->strides[last - 1] == view->dims[last];
}

void plan_table(Planner *p, const Node *node) {
  bool rotary = node->op == OP_ROTARY_TABLE;
  const Size *elements;
  View rows = view_rows(&p->math, DTYPE_F32, node->rank, (const Size *const *)node->dims, NULL, &elements);
  View c = layout_result(p, node, rotary ? has_pairs : layout_has_columns, rotary ? &rows : NULL, elements);
  View positions = plan_view(p, node->inputs.items[0]);
  tfm_table_step step = {.rotary = rotary, .interleaved = node->attr.interleaved, .rank = (uint8_t)positions.rank,
                         .base = node->attr.base, .positions = plan_operand(p, &positions), .c = plan_operand(p, &c)};
  CHECK(size_is_const(node->dims[node->rank - 1], &step.d), "a table of no static width");
  if (rotary) step.d *= 2;
  for (uint32_t i = 0; i < positions.rank; i++) {
    step.dims[i] = plan_size(p, positions.dims[i]);
    step.positions.strides[i] = plan_size(p, positions.strides[i]);
    step.c.strides[i] = plan_size(p, c.strides[i]);
  }
  if (!step.rank) {
    step.rank = 1;
    step.dims[0] = plan_size(p, p->math.one);
  }
  vec_push(p->arena, &p->tables, step);
  const Size *count = math_product(&p->math, node->rank, (const Size *const *)node->dims);
  plan_step(p, TFM_STEP_TABLE, p->tables.n - 1, cost_table(p, count), op_table[node->op].name);
}
