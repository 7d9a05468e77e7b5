/* In: TAKE, SCATTER, CUMSUM, TOPK, PLACES, BEFORE, POWER, EVERY, reductions of i32, products with a triangle of ones,
 * look-ups in packed tables; LINEAR_ATTENTION and its gradient. Out: along steps, which the runtime computes line by
 * line; of EVERY a view with longer strides; state steps. Ids that could lie outside of the axis are checked before
 * an element is read or written by them. Refused: nothing. */
#include <string.h>

#include "base/check.h"
#include "plan/cost.h"
#include "plan/cost_layout.h"
#include "plan/planner.h"

// ---- along an axis, line by line ----

/* The view's stride along an axis of the result, 0 where it broadcasts. */
static const Size *stride_at(Planner *p, const View *view, uint32_t rank, uint32_t axis) {
  uint32_t missing = rank - view->rank;
  if (axis < missing || size_equals(view->dims[axis - missing], 1)) return p->math.zero;
  return view->strides[axis - missing];
}

/* The axis `last` becomes the last one. */
static uint32_t axis_at(uint32_t rank, uint32_t last, uint32_t i) {
  return i + 1 == rank ? last : i < last ? i : i + 1;
}

static tfm_operand operand_along(Planner *p, const View *view, uint32_t rank, uint32_t axis) {
  tfm_operand operand = plan_operand(p, view);
  for (uint32_t i = 0; i < rank; i++)
    operand.strides[i] = plan_size(p, stride_at(p, view, rank, axis_at(rank, axis, i)));
  return operand;
}

/* The operands of a step, and how many elements of x lie along the axis. */
typedef struct Along {
  const View *x, *y, *c;
  const Size *n;
} Along;

/* c is over `rank` axes of `dims`; x and y broadcast to them but along `axis`, where x has n elements. */
static void add_step(Planner *p, tfm_along what, uint32_t axis, Along of) {
  const View *x = of.x, *c = of.c;
  const uint32_t rank = c->rank;
  tfm_along_step step = {.what = (uint8_t)what,
                         .rank = (uint8_t)(rank ? rank : 1),
                         .x = operand_along(p, x, rank, axis),
                         .y = operand_along(p, of.y, rank, axis),
                         .c = operand_along(p, c, rank, axis),
                         .n = plan_size(p, of.n)};
  step.dims[0] = plan_size(p, p->math.one);
  for (uint32_t i = 0; i < rank; i++) step.dims[i] = plan_size(p, c->dims[axis_at(rank, axis, i)]);
  const Size *lines = math_product(&p->math, rank, c->dims);
  if (what == TFM_ALONG_SCATTER) lines = math_add(&p->math, lines, math_product(&p->math, x->rank, x->dims));
  bool reads_more = what == TFM_ALONG_TOPK || (what >= TFM_ALONG_SUM && what <= TFM_ALONG_MIN);
  tfm_size work = cost_along(p, what, reads_more ? math_mul(&p->math, lines, of.n) : lines);
  vec_push(p->arena, &p->alongs, step);
  plan_step(p, TFM_STEP_ALONG, p->alongs.n - 1, work, "along");
}

void plan_along(Planner *p, const Node *node) {
  static const uint8_t kinds[N_OPS] = {
      [OP_CUMSUM] = TFM_ALONG_CUMSUM, [OP_TOPK] = TFM_ALONG_TOPK,     [OP_TAKE] = TFM_ALONG_TAKE,
      [OP_POWER] = TFM_ALONG_POWER,   [OP_PLACES] = TFM_ALONG_PLACES, [OP_BEFORE] = TFM_ALONG_BEFORE};
  bool is_power = node->op == OP_POWER;
  uint32_t axis = is_power ? (node->rank ? node->rank - 1u : 0) : (uint32_t)node->attr.axis;
  const Node *inputs[2] = {node->inputs.items[0], node->inputs.items[node->inputs.n - 1]};
  if (node->op == OP_TAKE && plan_needs_check(node)) plan_check_ids(p, node, inputs[1], inputs[0]->dims[axis]);
  View c = layout_result(p, node, layout_has_columns, NULL, NULL);
  View x = plan_view(p, inputs[0]), y = plan_view(p, inputs[1]);
  const Size *n = is_power ? p->math.one : inputs[0]->dims[axis];
  add_step(p, (tfm_along)kinds[node->op], axis, (Along){&x, &y, &c, n});
}

// ---- rows that are added ----

/* The sums are where the result is, if nothing else reads them (plan_values.c): then nothing is copied. */
void plan_scatter(Planner *p, const Node *node) {
  const Node *rows = node->inputs.items[0];
  plan_check_ids(p, node, plan_scattered_ids(node), node->dims[0]);
  View x = plan_view(p, rows), y = plan_view(p, node->inputs.items[1]);
  if (!view_has_contiguous_columns(&x)) {
    View copy = layout_new(p, DTYPE_F32, 2, (const Size *const *)rows->dims);
    plan_copy(p, &x, &copy, "copy");
    x = copy;
  }
  View c = layout_result(p, node, layout_has_columns, NULL, NULL);
  if (node->inputs.n > 2) {
    View sums = plan_view(p, node->inputs.items[2]);
    if (!view_equal(&sums, &c)) plan_copy(p, &sums, &c, "copy");
  }
  y.dims[y.rank] = p->math.one;
  y.strides[y.rank++] = p->math.zero;
  add_step(p, TFM_ALONG_SCATTER, 0, (Along){&x, &y, &c, x.dims[0]});
  if (node->inputs.n > 2) return;
  p->alongs.items[p->alongs.n - 1].accumulate = plan_is_gradient(p, &c) ? TFM_ACCUMULATE_GOES_ON : TFM_ACCUMULATE_ANEW;
}

// ---- rows of packed tables ----

/* The product that has the table's panels too: an output layer that is tied. */
static const Node *tied_product(const Node *table) {
  for (size_t i = 0; i < table->users.n; i++) {
    const Node *user = table->users.items[i];
    if (user->op == OP_LINEAR && user->inputs.items[1] == table) return user;
  }
  return NULL;
}

static bool has_scales(const Node *table) {
  return table->op == OP_ROUND_TO && tfm_form_has_scales(table->attr.form);
}

bool plan_is_packed(const Planner *p, const Node *table) {
  if (!p->values[table->id].is_static || table->rank != 2) return false;
  if (has_scales(table)) return true;
  const Node *product = tied_product(table);
  return product && node_form(table) == TFM_FORM_BF16 && plan_form(product) == TFM_FORM_BF16;
}

/* Panels are those of a product with the same weight, so that they are in memory once. Else each row is one. */
View plan_look_up(Planner *p, const Node *table, const View *ids) {
  const Node *weight = has_scales(table) ? table->inputs.items[0] : table;
  const Node *product = tied_product(weight);
  int64_t n, k;
  CHECK(size_is_const(weight->dims[0], &n) && size_is_const(weight->dims[1], &k), "a table of no static shape");
  const tfm_form form = has_scales(table) ? tfm_form_of_row(table->attr.form, k) : TFM_FORM_BF16;
  const uint32_t panel = product ? target_panel_width(n) : 1;
  View x = {.space = TFM_SPACE_WEIGHT, .offset = p->math.zero}, y = *ids;
  x.index = plan_weight(p, weight, WEIGHT_PANELS, panel, form);
  y.dims[y.rank] = p->math.one;
  y.strides[y.rank++] = p->math.zero;
  const Size *dims[MAX_RANK];
  memcpy(dims, y.dims, y.rank * sizeof *dims);
  dims[y.rank - 1] = weight->dims[1];
  View rows = layout_new(p, DTYPE_F32, y.rank, dims);
  add_step(p, TFM_ALONG_LOOK_UP, y.rank - 1, (Along){&x, &y, &rows, weight->dims[1]});
  tfm_along_step *step = &p->alongs.items[p->alongs.n - 1];
  step->form = (uint8_t)form;
  step->panel = (uint8_t)panel;
  return rows;
}

// ---- products with a triangle, reductions of i32, longer strides ----

static bool is_index(const Expr *expr, uint32_t axis) { return expr->kind == EXPR_INDEX && expr->axis == axis; }

/* a op b, or b op a with the comparison turned round. */
static bool compares(const Expr *expr, OpKind op, OpKind turned, uint32_t a, uint32_t b) {
  if (expr->kind != EXPR_OP || (expr->op != op && expr->op != turned)) return false;
  bool is_turned = expr->op == turned;
  return is_index(expr->args[is_turned], a) && is_index(expr->args[!is_turned], b);
}

/* 1 where the column is not beyond the row, else 0. */
static bool is_triangle(const Expr *expr) {
  if (expr->kind != EXPR_OP || expr->op != OP_TO_F32) return false;
  expr = expr->args[0];
  if (compares(expr, OP_LE, OP_GE, 0, 1)) return true;
  return expr->kind == EXPR_OP && expr->op == OP_NOT && compares(expr->args[0], OP_GT, OP_LT, 0, 1);
}

bool plan_is_triangle(const Planner *p, const Node *node) {
  if (node->op != OP_MATMUL || node->attr.rows_mask) return false;
  const Node *mask = node->inputs.items[0], *x = node->inputs.items[1];
  return mask->op == OP_POINTWISE && !mask->inputs.n && mask->rank == 2 && mask->dims[0] == mask->dims[1] &&
         !p->values[mask->id].is_static && x->rank >= 2 && x->rank == node->rank && is_triangle(mask->attr.expr);
}

void plan_triangle(Planner *p, const Node *node) {
  View c = layout_result(p, node, layout_has_columns, NULL, NULL), x = plan_view(p, node->inputs.items[1]);
  uint32_t axis = node->rank - 2u;
  add_step(p, TFM_ALONG_TRIANGLE, axis, (Along){&x, &x, &c, node->dims[axis]});
}

void plan_integer_reduce(Planner *p, OpKind reduction, uint32_t axis, const View *x, const View *result) {
  tfm_along what = reduction == OP_SUM ? TFM_ALONG_SUM : reduction == OP_MAX ? TFM_ALONG_MAX : TFM_ALONG_MIN;
  add_step(p, what, axis, (Along){x, x, result, x->dims[axis]});
}

/* Nothing is computed: whoever reads the result reads through longer strides. */
void plan_every(Planner *p, const Node *node) {
  View view = plan_view(p, node->inputs.items[0]);
  uint32_t axis = (uint32_t)node->attr.axis;
  view.dims[axis] = node->dims[axis];
  view.strides[axis] = math_mul(&p->math, view.strides[axis], node->attr.size);
  plan_set_view(p, node, &view);
}

// ---- linear attention ----

static bool has_one_column(const Node *x) { return size_equals(x->dims[x->rank - 1], 1); }

/* Columns that are read side by side: copied if they lie apart. */
static View with_columns(Planner *p, const Node *node) {
  View view = plan_view(p, node);
  if (view_has_contiguous_columns(&view)) return view;
  View copy = layout_new(p, DTYPE_F32, node->rank, (const Size *const *)node->dims);
  plan_copy(p, &view, &copy, "copy");
  return copy;
}

static tfm_operand state_operand(Planner *p, const View *view, uint32_t rank) {
  tfm_operand operand = plan_operand(p, view);
  for (uint32_t i = 0; i < rank; i++) operand.strides[i] = plan_size(p, stride_at(p, view, rank, i));
  return operand;
}

/* Where the state behind the last step is written; false: nobody reads it. */
static bool last_state(Planner *p, const Node *node, View *view) {
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (user->op != OP_LINEAR_ATTENTION_STATE || !p->values[user->id].is_live) continue;
    *view = p->values[user->id].has_view ? p->values[user->id].view
                                         : layout_result(p, user, layout_has_columns, NULL, NULL);
    return true;
  }
  return false;
}

static int64_t rows_of_state(const Size *size) {
  int64_t n;
  CHECK(size_is_const(size, &n), "a state of no static size");
  return n;
}

static int64_t columns_or_0(const Size *columns) {
  int64_t d;
  return size_is_const(columns, &d) ? d : 0;
}

static uint8_t block_of_state(const Planner *p, int64_t n, const Size *columns) {
  return cost_state_columns(p->target->vector_floats, n, columns_or_0(columns));
}

/* Whether the states that the program gives, of a row, lie in memory rather than in a cache. */
static bool states_pass_caches(const Planner *p) {
  int64_t bytes = 0;
  for (size_t i = 0; i < p->outputs.n; i++) {
    const Node *node = p->outputs.items[i].node;
    int64_t of_row = dtype_bytes[node->dtype], n;
    if (!role_is_state(p->outputs.items[i].role)) continue;
    for (uint32_t axis = 0; axis < node->rank; axis++)
      if (size_is_const(node->dims[axis], &n)) of_row *= n;
    bytes += of_row;
  }
  return p->target->family == TFM_FAMILY_X86_64 && p->target->vector_floats > 1 && cost_states_pass_caches(bytes);
}

void plan_linear_attention(Planner *p, const Node *node) {
  Node *const *xs = node->inputs.items;
  const uint32_t rank = node->rank;
  const Node *decay = node->attr.has_decay ? xs[3] : NULL;
  const Node *beta = node->attr.has_beta ? xs[3 + node->attr.has_decay] : NULL;
  View q = with_columns(p, xs[0]), k = with_columns(p, xs[1]), v = with_columns(p, xs[2]);
  View fades = decay ? with_columns(p, decay) : v, writes = beta ? with_columns(p, beta) : v;
  View before = node->attr.has_initial ? with_columns(p, xs[node->inputs.n - 1]) : v, behind = v;
  View c = layout_result(p, node, layout_has_columns, NULL, NULL);
  tfm_state_step step = {.rank = (uint8_t)rank, .has_decay = decay != NULL,
                         .beta = (uint8_t)(!beta ? TFM_BETA_NONE : has_one_column(beta) ? TFM_BETA_ONE : TFM_BETA_EACH),
                         .q = state_operand(p, &q, rank), .k = state_operand(p, &k, rank),
                         .v = state_operand(p, &v, rank),
                         .decay = state_operand(p, &fades, rank), .beta_values = state_operand(p, &writes, rank),
                         .has_initial = node->attr.has_initial, .initial = state_operand(p, &before, rank),
                         .has_last = last_state(p, node, &behind), .c = state_operand(p, &c, rank)};
  if (step.has_last) step.last = state_operand(p, &behind, rank);
  step.n = rows_of_state(xs[1]->dims[xs[1]->rank - 1]);
  step.block = block_of_state(p, step.n, node->dims[rank - 1]);
  KernelSpec spec = {.family = KERNEL_STATE, .width = step.block, .fades = decay != NULL,
                     .fades_by_rows = decay && !has_one_column(decay), .beta = step.beta};
  step.kernel = plan_kernel(p, &spec);
  step.one = TFM_NONE;
  if (step.has_initial) {
    step.one_block = cost_one_step_columns(p->target->vector_floats, columns_or_0(node->dims[rank - 1]));
    spec.part = STATE_GIVES_ONE, spec.width = step.one_block, spec.passes_caches = states_pass_caches(p);
    step.one = plan_kernel(p, &spec);
  }
  for (uint32_t i = 0; i < rank; i++) step.dims[i] = plan_size(p, node->dims[i]);
  vec_push(p->arena, &p->states, step);
  const Size *elements = math_product(&p->math, rank, (const Size *const *)node->dims);
  plan_step(p, TFM_STEP_STATE, p->states.n - 1, cost_state(p, elements, step.n), op_table[node->op].name);
}

// ---- the gradient of linear attention ----

/* Where what an operand gets lies: in memory of its own if nobody reads it. `of` has its columns. */
static View part_view(Planner *p, const Node *grad, OpKind part, const Node *of) {
  const Size *dims[MAX_RANK];
  for (size_t i = 0; i < grad->users.n; i++) {
    const Node *user = grad->users.items[i];
    if (user->op != part || !p->values[user->id].is_live) continue;
    return layout_result(p, user, layout_has_columns, NULL, NULL);
  }
  for (uint32_t i = 0; i < grad->rank; i++) dims[i] = grad->dims[i];
  dims[grad->rank - 1] = of->dims[of->rank - 1];
  return layout_new(p, DTYPE_F32, grad->rank, dims);
}

static tfm_state_grad_step grad_operands(Planner *p, const Node *node, const Node *decay, const Node *beta) {
  Node *const *xs = node->inputs.items;
  const uint32_t rank = node->rank;
  View q = with_columns(p, xs[0]), k = with_columns(p, xs[1]), v = with_columns(p, xs[2]);
  View g = with_columns(p, xs[node->inputs.n - 1]);
  View fades = decay ? with_columns(p, decay) : v, writes = beta ? with_columns(p, beta) : v;
  View c = layout_result(p, node, layout_has_columns, NULL, NULL);
  View dk = part_view(p, node, OP_LINEAR_ATTENTION_GRAD_K, xs[1]);
  View dv = part_view(p, node, OP_LINEAR_ATTENTION_GRAD_V, xs[2]), ddecay = dv, dbeta = dv;
  if (decay) ddecay = part_view(p, node, OP_LINEAR_ATTENTION_GRAD_DECAY, decay);
  if (beta) dbeta = part_view(p, node, OP_LINEAR_ATTENTION_GRAD_BETA, beta);
  return (tfm_state_grad_step){.q = state_operand(p, &q, rank), .k = state_operand(p, &k, rank),
                               .v = state_operand(p, &v, rank), .decay = state_operand(p, &fades, rank),
                               .beta_values = state_operand(p, &writes, rank), .g = state_operand(p, &g, rank),
                               .c = state_operand(p, &c, rank), .dk = state_operand(p, &dk, rank),
                               .dv = state_operand(p, &dv, rank), .ddecay = state_operand(p, &ddecay, rank),
                               .dbeta = state_operand(p, &dbeta, rank)};
}

void plan_linear_attention_grad(Planner *p, const Node *node) {
  Node *const *xs = node->inputs.items;
  const Node *decay = node->attr.has_decay ? xs[3] : NULL, *g = xs[node->inputs.n - 1];
  const Node *beta = node->attr.has_beta ? xs[3 + node->attr.has_decay] : NULL;
  tfm_state_grad_step step = grad_operands(p, node, decay, beta);
  step.rank = node->rank;
  step.has_decay = decay != NULL;
  step.decay_by_rows = decay && !has_one_column(decay);
  step.beta = (uint8_t)(!beta ? TFM_BETA_NONE : has_one_column(beta) ? TFM_BETA_ONE : TFM_BETA_EACH);
  step.n = rows_of_state(node->dims[node->rank - 1]);
  step.block = block_of_state(p, step.n, g->dims[g->rank - 1]);
  step.wide = cost_kept_columns(p->target->vector_floats, step.n, columns_or_0(g->dims[g->rank - 1]));
  KernelSpec spec = {.family = KERNEL_STATE, .part = STATE_PASSES, .width = step.block, .fades = decay != NULL,
                     .fades_by_rows = step.decay_by_rows, .beta = step.beta};
  step.passes = plan_kernel(p, &spec);
  spec.part = STATE_GIVES, spec.width = step.wide, spec.family = KERNEL_STATE_KEPT;
  step.keeps = plan_kernel(p, &spec);
  spec.family = KERNEL_STATE_GRAD;
  step.through = plan_kernel(p, &spec);
  for (uint32_t i = 0; i < node->rank; i++) step.dims[i] = plan_size(p, g->dims[i]);
  vec_push(p->arena, &p->state_grads, step);
  enum { OF_FORWARD = 5 }; /* times the work of the forward half */
  const Size *elements = math_product(&p->math, node->rank, (const Size *const *)g->dims);
  plan_step(p, TFM_STEP_STATE_GRAD, p->state_grads.n - 1, cost_state(p, elements, OF_FORWARD * step.n),
            op_table[node->op].name);
}
