/* In: products of matrices with an expression after them. Out: tile kernels, the place of the result, the step of an
 * expression that cannot run in place. */
#include "plan/contract.h"

#include "base/check.h"

void contract_tiles(Planner *p, const TileKind *kind, uint32_t tiles[TFM_MAX_TILE_ROWS + 1]) {
  CHECK(kind->shape.rows <= TFM_MAX_TILE_ROWS, "a tile of too many rows");
  for (uint32_t rows = 0; rows <= TFM_MAX_TILE_ROWS; rows++) {
    tiles[rows] = TFM_NONE;
    if (rows < 1 || rows > kind->shape.rows) continue;
    KernelSpec spec = {.family = KERNEL_TILE, .rows = (uint8_t)rows, .width = kind->shape.width,
                       .a_stride = kind->a_stride, .b_stride = kind->b_stride, .b_is_page = kind->b_is_page,
                       .exact_zero = kind->exact_zero};
    tiles[rows] = plan_kernel(p, &spec);
  }
}

uint32_t contract_pack(Planner *p, uint32_t width, const Size *k_stride, const Size *column_stride) {
  KernelSpec spec = {.family = KERNEL_PACK, .width = (uint8_t)width,
                     .pack_transposes = size_equals(k_stride, 1) && !size_equals(column_stride, 1)};
  return plan_kernel(p, &spec);
}

bool contract_is_softmax(const Node *x) {
  while (op_table[x->op].category == CATEGORY_VIEW) x = x->inputs.items[0];
  return x->op == OP_SOFTMAX || x->op == OP_ATTENTION_WEIGHTS ||
         (x->op == OP_REDUCE && x->attr.reduction == OP_SOFTMAX);
}

Epilogue contract_begin(Planner *p, const Node *node, LayoutTest test) {
  const Size *const *dims = (const Size *const *)node->dims;
  const Expr *expr = node->attr.expr ? node->attr.expr : expr_acc(p->arena);
  plan_check_gathers(p, node);
  Epilogue epilogue = {.body = body_new(node, node->rank, dims, expr)};
  epilogue.in_place = expr->dtype == DTYPE_F32 && body_split(p, &epilogue.body, TFM_MAX_OPERANDS - 1);
  if (epilogue.in_place) {
    epilogue.c = place_result(p, node, test, NULL, NULL);
  } else {
    epilogue.after = epilogue.body;
    epilogue.body = body_new(node, node->rank, dims, expr_acc(p->arena));
    epilogue.c = place_new(p, DTYPE_F32, node->rank, dims);
  }
  return epilogue;
}

uint32_t contract_kernel(Planner *p, const Nest *nest) {
  if (nest->expr->kind == EXPR_ACC) return TFM_NONE;
  KernelSpec spec = nest_spec(nest);
  return plan_kernel(p, &spec);
}

void contract_finish(Planner *p, const Node *node, Epilogue *epilogue) {
  if (epilogue->in_place) return;
  epilogue->after.acc = &epilogue->c;
  plan_body(p, node, &epilogue->after);
}
