/* In: SINUSOID, ROTARY_TABLE. Out: table steps. */
#include "base/check.h"
#include "plan/planner.h"

/* Cosines, then sines, in one row. */
static bool has_pairs(Planner *p, const View *view) {
  (void)p;
  uint32_t last = view->rank - 1;
  return view_has_contiguous_columns(view) && view->strides[last - 1] == view->dims[last];
}

void plan_table(Planner *p, const Node *node) {
  bool rotary = node->op == OP_ROTARY_TABLE;
  const Size *elements;
  View rows = view_rows(&p->math, DTYPE_F32, node->rank, (const Size *const *)node->dims, NULL, &elements);
  View c = place_result(p, node, rotary ? has_pairs : layout_has_columns, rotary ? &rows : NULL, elements);
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
  plan_step(p, TFM_STEP_TABLE, p->tables.n - 1, plan_scaled(p, count, 20, 1), op_table[node->op].name);
}
