/* In: LINEAR, MATMUL, MATMUL_FUSED. Out: gemm steps (static weights, packed into panels) and matmul steps. */
#include "base/check.h"
#include "base/checked_size.h"
#include "plan/contract.h"
#include "plan/needed.h"

// ---- gemm ----

/* The distance of rows of `a`: any will do if there is one row; then one that other layers use too. */
static int64_t row_stride(Planner *p, const View *a, const Size **rows, int64_t k) {
  const Size *stride;
  int64_t floats = 0;
  CHECK(view_collapse(&p->math, a, rows, &stride) && size_is_const(stride, &floats), "rows without a static stride");
  return size_equals(*rows, 1) ? k + 16 : floats;
}

/* a * b, or a number that is large enough to stand for it: estimates need no more. */
static int64_t roughly(int64_t a, int64_t b) {
  int64_t product;
  return checked_mul(a, b, &product) && product < INT64_MAX / 64 ? product : INT64_MAX / 64;
}

/* Arithmetic at 100 operations a nanosecond, weights at 10 bytes, the epilogue at 8 bytes or operations. */
static tfm_size gemm_work(Planner *p, const Nest *nest, const Size *rows, int64_t n, int64_t k) {
  const Size *per_row = math_const(&p->math, 2 * roughly(n, k) + 12 * roughly(n, nest_cost(nest)));
  const Size *work = math_add(&p->math, math_mul(&p->math, rows, per_row), math_const(&p->math, 40 * roughly(n, k)));
  return plan_scaled(p, work, 1, 100);
}

static void add_gemm(Planner *p, const Nest *nest, const View *a, const View *c, uint32_t weight, uint32_t panel,
                     int64_t n, int64_t k) {
  const Size *rows, *c_rows, *c_stride;
  TileShape shape = target_panel_tile(p->target, panel);
  TileKind kind = {.shape = shape, .a_stride = row_stride(p, a, &rows, k), .b_stride = panel};
  CHECK(view_collapse(&p->math, c, &c_rows, &c_stride), "a gemm whose rows are not one axis");
  tfm_gemm_step step = {.tile_rows = shape.rows, .width = shape.width, .panel = (uint8_t)panel,
                        .rank = (uint8_t)nest->rank, .n_operands = (uint8_t)nest->n_operands, .weight = weight, .rows = plan_size(p, rows),
                        .k = k, .n = n, .a = plan_operand(p, a), .c = plan_operand(p, c), .needed = needed_rows(p, p->node)};
  step.a.strides[0] = plan_size(p, math_const(&p->math, kind.a_stride));
  step.c.strides[0] = plan_size(p, c_stride);
  contract_tiles(p, &kind, step.tiles);
  step.epilogue = contract_kernel(p, nest);
  step.first_operand = nest_operands(p, nest);
  nest_dims(p, nest, step.dims);
  vec_push(p->arena, &p->gemms, step);
  plan_step(p, TFM_STEP_GEMM, p->gemms.n - 1, gemm_work(p, nest, rows, n, k), "linear");
}

static void plan_product(Planner *p, const Node *node, const Node *x_node, View y);

void plan_linear(Planner *p, const Node *node) {
  const Node *x = node->inputs.items[0], *w = node->inputs.items[1];
  if (!p->values[w->id].is_static) {
    View y = plan_view(p, w);
    plan_product(p, node, x, view_permute(&y, (const uint8_t[]){1, 0}));
    return;
  }
  int64_t n, k;
  CHECK(size_is_const(w->dims[0], &n) && size_is_const(w->dims[1], &k), "static weights of no static shape");
  uint32_t panel = target_panel_width(n);
  View a = plan_compact(p, x, true);
  Epilogue epilogue = contract_begin(p, node, layout_has_rows);
  Nest nest;
  nest_init(p, &nest, &epilogue.body, &epilogue.c);
  nest_simplify(p, &nest, 1, 1);
  uint32_t weight = plan_weight(p, w, WEIGHT_PANELS, panel);
  add_gemm(p, &nest, &a, &epilogue.c, weight, panel, n, k);
  contract_finish(p, node, &epilogue);
}

// ---- matmul ----

/* The panel of y's columns: as for weights if their number is static, else as for keys. */
static TileShape product_tile(Planner *p, const Size *n) {
  int64_t columns;
  return size_is_const(n, &columns) ? target_gemm_tile(p->target, columns) : p->target->attention_keys;
}

static void add_matmul(Planner *p, const Nest *nest, const View *x, const View *y, const View *c, bool exact_zero) {
  uint32_t last = nest->rank - 1;
  const Size *k = x->dims[x->rank - 1], *y_k_stride = y->strides[y->rank - 2], *n = nest->dims[last];
  TileKind kind = {.shape = product_tile(p, n), .a_stride = TFM_STRIP_STRIDE, .exact_zero = exact_zero};
  kind.b_stride = kind.shape.width;
  tfm_matmul_step step = {.tile_rows = kind.shape.rows, .width = kind.shape.width, .rank = (uint8_t)nest->rank,
                          .n_operands = (uint8_t)nest->n_operands, .k = plan_size(p, k),
                          .x = plan_operand(p, x), .y = plan_operand(p, y), .c = plan_operand(p, c)};
  for (uint32_t i = 0; i < last; i++) {
    step.x.strides[i] = plan_size(p, nest->others[0].strides[i]);
    step.y.strides[i] = plan_size(p, i + 1 == last ? y_k_stride : nest->others[1].strides[i]);
  }
  for (uint32_t i = 0; i <= last; i++) step.c.strides[i] = plan_size(p, nest->operands[0].strides[i]);
  step.c.strides[last] = plan_size(p, p->math.one);
  step.x.strides[last] = plan_size(p, x->strides[x->rank - 1]);
  step.y.strides[last] = plan_size(p, nest->others[1].strides[last]);
  step.pack = contract_pack(p, kind.shape.width, y_k_stride, nest->others[1].strides[last]);
  contract_tiles(p, &kind, step.tiles);
  step.epilogue = contract_kernel(p, nest);
  step.first_operand = nest_operands(p, nest);
  nest_dims(p, nest, step.dims);
  vec_push(p->arena, &p->matmuls, step);
  const Size *elements = math_product(&p->math, nest->rank, nest->dims);
  plan_step(p, TFM_STEP_MATMUL, p->matmuls.n - 1, plan_scaled(p, math_mul(&p->math, elements, k), 1, 40), "matmul");
}

/* y [..., k, n] over the axes of the result: its k axis is not walked. */
static View columns_of(Planner *p, const View *y, uint32_t rank) {
  View columns = view_drop(&p->math, y, y->rank - 2);
  if (rank >= 2) return columns;
  columns.rank = 1;
  columns.dims[0] = columns.dims[1];
  columns.strides[0] = columns.strides[1];
  return columns;
}

static void plan_product(Planner *p, const Node *node, const Node *x_node, View y) {
  View x = plan_view(p, x_node);
  Epilogue epilogue = contract_begin(p, node, layout_has_columns);
  Nest nest;
  nest_init(p, &nest, &epilogue.body, &epilogue.c);
  View x_rows = view_drop(&p->math, &x, x.rank - 1), y_columns = columns_of(p, &y, node->rank);
  nest_add_other(p, &nest, &x_rows);
  nest_add_other(p, &nest, &y_columns);
  nest_simplify(p, &nest, 2, 1);
  add_matmul(p, &nest, &x, &y, &epilogue.c, contract_is_softmax(x_node));
  contract_finish(p, node, &epilogue);
}

void plan_matmul(Planner *p, const Node *node) {
  plan_product(p, node, node->inputs.items[0], plan_view(p, node->inputs.items[1]));
}
