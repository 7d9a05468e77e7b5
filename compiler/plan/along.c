/* In: TAKE, CUMSUM, TOPK, POWER, EVERY, and reductions of i32. Out: along steps, which the runtime computes line by
 * line; of EVERY only a view with longer strides. Refused: nothing. Ids that could lie outside of the axis are checked
 * before an element is read by them. */
#include "plan/cost.h"

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

/* c is over `rank` axes of `dims`; x and y broadcast to them but along `axis`, where x has n elements. */
static void add_step(Planner *p, tfm_along what, uint32_t axis, const View *x, const View *y, const View *c,
                     const Size *n) {
  uint32_t rank = c->rank;
  tfm_along_step step = {.what = (uint8_t)what,
                         .rank = (uint8_t)(rank ? rank : 1),
                         .x = operand_along(p, x, rank, axis),
                         .y = operand_along(p, y, rank, axis),
                         .c = operand_along(p, c, rank, axis),
                         .n = plan_size(p, n)};
  step.dims[0] = plan_size(p, p->math.one);
  for (uint32_t i = 0; i < rank; i++) step.dims[i] = plan_size(p, c->dims[axis_at(rank, axis, i)]);
  const Size *lines = math_product(&p->math, rank, c->dims);
  bool reads_more = what == TFM_ALONG_TOPK || what >= TFM_ALONG_SUM;
  tfm_size work = cost_along(p, what, reads_more ? math_mul(&p->math, lines, n) : lines);
  vec_push(p->arena, &p->alongs, step);
  plan_step(p, TFM_STEP_ALONG, p->alongs.n - 1, work, "along");
}

void plan_along(Planner *p, const Node *node) {
  static const uint8_t kinds[N_OPS] = {[OP_CUMSUM] = TFM_ALONG_CUMSUM, [OP_TOPK] = TFM_ALONG_TOPK,
                                       [OP_TAKE] = TFM_ALONG_TAKE,     [OP_POWER] = TFM_ALONG_POWER};
  bool is_power = node->op == OP_POWER;
  uint32_t axis = is_power ? (node->rank ? node->rank - 1u : 0) : (uint32_t)node->attr.axis;
  const Node *inputs[2] = {node->inputs.items[0], node->inputs.items[node->inputs.n - 1]};
  if (node->op == OP_TAKE && plan_needs_check(node)) plan_check_ids(p, node, inputs[1], inputs[0]->dims[axis]);
  View c = layout_result(p, node, layout_has_columns, NULL, NULL);
  View x = plan_view(p, inputs[0]), y = plan_view(p, inputs[1]);
  const Size *n = is_power ? p->math.one : inputs[0]->dims[axis];
  add_step(p, (tfm_along)kinds[node->op], axis, &x, &y, &c, n);
}

void plan_integer_reduce(Planner *p, OpKind reduction, uint32_t axis, const View *x, const View *result) {
  tfm_along what = reduction == OP_SUM ? TFM_ALONG_SUM : reduction == OP_MAX ? TFM_ALONG_MAX : TFM_ALONG_MIN;
  add_step(p, what, axis, x, x, result, x->dims[axis]);
}

/* Nothing is computed: whoever reads the result reads through longer strides. */
void plan_every(Planner *p, const Node *node) {
  View view = plan_view(p, node->inputs.items[0]);
  uint32_t axis = (uint32_t)node->attr.axis;
  view.dims[axis] = node->dims[axis];
  view.strides[axis] = math_mul(&p->math, view.strides[axis], node->attr.size);
  plan_set_view(p, node, &view);
}
