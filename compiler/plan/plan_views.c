/* In: nodes whose values lie somewhere. Out: each of them as a buffer, an offset and strides: views that need no step,
 * copies where strides cannot express one; checks of ids. Refuses nothing: what is used before it was planned is a
 * fault of ours. */
#include <string.h>

#include "base/check.h"
#include "plan/cost.h"
#include "plan/nest_step.h"

// ---- views ----

static uint32_t input_number(const Planner *p, const Node *node) {
  for (size_t i = 0; i < p->inputs.n; i++)
    if (p->inputs.items[i] == node) return (uint32_t)i;
  UNREACHABLE("an input that the program does not have");
}

static View source_view(Planner *p, const Node *node, uint8_t space, uint32_t index) {
  View view = view_rows(&p->math, node->dtype, node->rank, (const Size *const *)node->dims, NULL, NULL);
  view.space = space;
  view.index = index;
  return view;
}

/* Row-major memory without gaps, so that any reshape of it is a view. */
static View contiguous_copy(Planner *p, const View *from, const char *operation) {
  const Size *elements;
  View copy = view_rows(&p->math, from->dtype, from->rank, (const Size *const *)from->dims, NULL, &elements);
  copy.index = plan_buffer(p, from->dtype, elements);
  plan_copy(p, from, &copy, operation);
  return copy;
}

/* Whether another reshape of the same value, for which a copy was made, can be seen in this shape too. */
static bool copied_before(Planner *p, const Node *node, View *view) {
  const Node *from = node->inputs.items[0];
  for (size_t i = 0; i < from->users.n; i++) {
    const Node *user = from->users.items[i];
    const Value *value = &p->values[user->id];
    if (user->op != OP_RESHAPE || !value->has_view || value->is_prepare != p->values[node->id].is_prepare) continue;
    if (view_reshape(&p->math, &value->view, node->rank, (const Size *const *)node->dims, view)) return true;
  }
  return false;
}

/* A reshape that strides cannot express needs a copy. The copy is made as if the reshape were planned now: under its
 * name, and prepared if it is, because a run-time step must not own what a prepared one reads. */
static View reshaped(Planner *p, const Node *node) {
  View from = plan_view(p, node->inputs.items[0]), view;
  if (view_reshape(&p->math, &from, node->rank, (const Size *const *)node->dims, &view)) return view;
  if (copied_before(p, node, &view)) return view;
  const Node *outer = p->node;
  bool outer_prepare = p->prepare;
  p->node = node;
  p->prepare = p->values[node->id].is_prepare;
  View copy = contiguous_copy(p, &from, "reshape");
  p->node = outer;
  p->prepare = outer_prepare;
  if (!view_reshape(&p->math, &copy, node->rank, (const Size *const *)node->dims, &view)) {
    /* Only a check at run time says that the sizes are equal. The copy is row-major without gaps, so the elements
     * lie in
     * the order of the new shape all the same. */
    view = source_view(p, node, copy.space, copy.index);
  }
  return view;
}

/* An input as it is given: other forms than f32 are for who packs or looks up. */
static View given_view(Planner *p, const Node *node) {
  View view = source_view(p, node, TFM_SPACE_INPUT, input_number(p, node));
  view.form = (uint8_t)node_form(node);
  return view;
}

/* All others read a copy in f32. */
static View plan_input(Planner *p, const Node *node) {
  const View view = given_view(p, node);
  if (view.form == TFM_FORM_F32) return view;
  const Node *user = p->node;
  p->node = node;
  const View wide = contiguous_copy(p, &view, "widen");
  p->node = user;
  return wide;
}

View plan_view(Planner *p, const Node *node) {
  Value *value = &p->values[node->id];
  if (value->has_view) return value->view;
  View view;
  if (value->is_static) {
    view = source_view(p, node, TFM_SPACE_WEIGHT, plan_weight(p, node, WEIGHT_PLAIN, 0, TFM_FORM_F32));
  } else {
    switch (node->op) {
      case OP_INPUT: view = plan_input(p, node); break;
      case OP_RESHAPE: view = reshaped(p, node); break;
      case OP_PERMUTE: view = plan_view(p, node->inputs.items[0]), view = view_permute(&view, node->attr.axes); break;
      case OP_SLICE:
        view = plan_view(p, node->inputs.items[0]);
        view = view_slice(&p->math, &view, (const Size *const *)node->attr.starts, (const Size *const *)node->dims);
        break;
      default: UNREACHABLE("a %s is used before it was planned", op_table[node->op].name);
    }
  }
  plan_set_view(p, node, &view);
  return view;
}

/* False: it is no input in a form of 16 bits, or strides cannot express what was done to it. */
static bool view_as_given(Planner *p, const Node *node, View *view) {
  if (node->op == OP_INPUT) {
    *view = given_view(p, node);
    return view->form != TFM_FORM_F32;
  }
  const bool is_moved = node->op == OP_PERMUTE || node->op == OP_SLICE || node->op == OP_RESHAPE;
  if (!is_moved || !view_as_given(p, node->inputs.items[0], view)) return false;
  const Size *const *dims = (const Size *const *)node->dims;
  if (node->op == OP_PERMUTE) *view = view_permute(view, node->attr.axes);
  if (node->op == OP_SLICE) *view = view_slice(&p->math, view, (const Size *const *)node->attr.starts, dims);
  return node->op != OP_RESHAPE || view_reshape(&p->math, view, node->rank, dims, view);
}

View plan_packed_factor(Planner *p, const Node *node) {
  View view;
  return view_as_given(p, node, &view) ? view : plan_view(p, node);
}

View plan_gathered(Planner *p, const Node *node) {
  View given;
  if (node->op == OP_INPUT && view_as_given(p, node, &given)) return given;
  const tfm_form form = p->values[node->id].is_static ? node_form(node) : TFM_FORM_F32;
  if (form == TFM_FORM_F32) return plan_view(p, node);
  View view = source_view(p, node, TFM_SPACE_WEIGHT, plan_weight(p, node, WEIGHT_PLAIN, 0, form));
  view.form = (uint8_t)form;
  return view;
}

// ---- copies ----

/* Copies are row steps whose expression is their one operand. The nest is built here and not from a Body, so that this
 * file does not depend on body.c, which asks it for views. */
void plan_copy(Planner *p, const View *from, const View *to, const char *operation) {
  Nest nest;
  nest_begin(p, &nest, to->rank, (const Size *const *)to->dims, to);
  nest.expr = expr_input(p->arena, from->dtype, nest_add(p, &nest, from));
  nest_simplify(p, &nest, 0, 0);
  KernelSpec spec = nest_pointwise(p, &nest);
  plan_row_step(p, &nest, &spec, operation);
}

/* Tiles have the stride of their rows as a constant, so it must be static; cost.c says when it is bad for the L1
 * cache. */
static bool is_good_stride(const View *view, const Size *stride) {
  int64_t floats;
  return size_is_const(stride, &floats) && cost_may_stay(floats, view->space == TFM_SPACE_INPUT);
}

static bool is_compact(Planner *p, const View *view, bool all_rows) {
  const Size *rows, *stride;
  if (!view_has_contiguous_columns(view)) return false;
  if (!all_rows) return is_good_stride(view, view->strides[view->rank - 2]);
  return view_collapse(&p->math, view, &rows, &stride) && is_good_stride(view, stride);
}

/* The copy belongs to the value and not to the user that first needed it: later users find it. Where the columns of
 * the value are a run-time size, a check of the run has found them to be those that the user needs. */
View plan_compact(Planner *p, const Node *node, bool all_rows, int64_t columns) {
  View view = plan_view(p, node);
  Value *value = &p->values[node->id];
  if (is_compact(p, &view, all_rows)) return view;
  if (!value->has_compact) {
    const Node *user = p->node;
    p->node = node; /* other users will find the copy */
    const Size *dims[MAX_RANK];
    memcpy(dims, node->dims, node->rank * sizeof *dims);
    dims[node->rank - 1] = math_const(&p->math, columns);
    value->compact = layout_new(p, node->dtype, node->rank, dims);
    plan_copy(p, &view, &value->compact, "copy");
    p->node = user;
    value->has_compact = true;
  }
  return value->compact;
}

// ---- ids ----

/* Returns the input whose elements are exactly those of `node`, in some order, or NULL if it is computed or only a
 * part. */
static const Node *whole_input(const Node *node) {
  while (node->op == OP_RESHAPE || node->op == OP_PERMUTE) node = node->inputs.items[0];
  return node->op == OP_INPUT ? node : NULL;
}

/* Ids that are an input of the program are checked by the runtime before a run begins. Computed ids need a step that
 * checks them before a gather reads memory by them. Each input is checked once for each table size. */
void plan_check_ids(Planner *p, const Node *user, const Node *ids, const Size *limit) {
  const Node *input = whole_input(ids);
  struct { const Node *node; const Size *limit; } key = {input ? input : ids, limit};
  if (map_find(&p->id_checks, &key, sizeof key)) return;
  map_put_n(&p->id_checks, &key, sizeof key, NULL);
  const char *place = plan_place(p, user);
  if (input) {
    const tfm_id_limit rule = {.input = input_number(p, input), .limit = plan_size(p, limit), .place = place};
    vec_push(p->arena, &p->id_limits, rule);
    return;
  }
  View view = plan_view(p, ids);
  tfm_ids_step step = {.rank = (uint8_t)view.rank, .ids = plan_operand(p, &view), .limit = plan_size(p, limit),
                       .place = place};
  for (uint32_t i = 0; i < view.rank; i++) {
    step.dims[i] = plan_size(p, view.dims[i]);
    step.ids.strides[i] = plan_size(p, view.strides[i]);
  }
  vec_push(p->arena, &p->ids, step);
  const Size *elements = math_product(&p->math, view.rank, view.dims);
  plan_step(p, TFM_STEP_CHECK_IDS, p->ids.n - 1, cost_ids(p, elements), "check_ids");
}

/* Indices of elements of an axis are within it, and within any axis of the same size; so are numbers of elements that
 * stand before one. */
static bool is_within(const Node *ids, const Size *limit) {
  const Node *made = node_behind_views(ids);
  bool are_indices = made->op == OP_TOPK || made->op == OP_PLACES || made->op == OP_BEFORE;
  return are_indices && made->inputs.items[0]->dims[made->attr.axis] == limit;
}

bool plan_needs_check(const Node *take) {
  return !is_within(take->inputs.items[1], take->inputs.items[0]->dims[take->attr.axis]);
}

/* The table and the ids of a gather. */
static bool gather_needs_check(const Node *node, const Expr *gather) {
  return !is_within(node->inputs.items[gather->ids], node->inputs.items[gather->input]->dims[0]);
}

void plan_check_gathers(Planner *p, const Node *node) {
  if (!node->attr.expr) return;
  ExprList list = expr_list(p->arena, node->attr.expr);
  for (uint32_t i = 0; i < list.n; i++) {
    const Expr *expr = list.items[i];
    if (expr->kind != EXPR_GATHER || !gather_needs_check(node, expr)) continue;
    plan_check_ids(p, node, node->inputs.items[expr->ids], node->inputs.items[expr->input]->dims[0]);
  }
}

/* Whether a gather from a table of as many rows reads by these ids too, so that they are checked for it. */
static bool are_read_by(Planner *p, const Node *ids, const Size *limit) {
  for (size_t i = 0; i < ids->users.n; i++) {
    const Node *user = ids->users.items[i];
    if (!user->attr.expr || !p->values[user->id].is_live) continue;
    const ExprList list = expr_list(p->arena, user->attr.expr);
    for (uint32_t k = 0; k < list.n; k++) {
      const Expr *expr = list.items[k];
      if (expr->kind != EXPR_GATHER || user->inputs.items[expr->ids] != ids) continue;
      if (user->inputs.items[expr->input]->dims[0] == limit) return true;
    }
  }
  return false;
}

const Node *plan_scattered_ids(const Node *scatter) {
  const Node *ids = scatter->inputs.items[1];
  while (ids->op == OP_RESHAPE) ids = ids->inputs.items[0];
  return ids;
}

/* Faults are an id out of range, found by a step, and an integer division by zero. */
bool plan_can_fail(Planner *p, const Node *node) {
  if (node->op == OP_TAKE) return plan_needs_check(node) && !whole_input(node->inputs.items[1]);
  if (node->op == OP_SCATTER) {
    const Node *ids = plan_scattered_ids(node);
    return !whole_input(ids) && !are_read_by(p, ids, node->dims[0]);
  }
  if (!node->attr.expr) return false;
  ExprList list = expr_list(p->arena, node->attr.expr);
  for (uint32_t i = 0; i < list.n; i++) {
    const Expr *expr = list.items[i];
    bool is_checked = expr->kind == EXPR_GATHER && gather_needs_check(node, expr);
    if (is_checked && !whole_input(node->inputs.items[expr->ids])) return true;
    if (expr_is_division(expr)) return true;
  }
  return false;
}
