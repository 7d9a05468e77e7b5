/* In: MATMUL and MATMUL_FUSED nodes, and LINEAR whose weights are not static or narrow. Out: matmul steps. See
 * products.h. */
#include "plan/products.h"

#include "base/check.h"
#include "plan/cost.h"
#include "plan/plan_live.h"

// ---- direct products ----

/* Few columns of y side by side, for which panels would be mostly zeros, if they are neighbours. Lines of y a multiple
 * of 4,096 bytes apart would fall into one set of the cache. Where tiles are needed too, the runtime chooses. */
static bool may_have_columns_direct(Planner *p, const Size *n, const Size *y_k_stride, const Size *y_n_stride) {
  int64_t columns = 0, distance = 0;
  size_is_const(n, &columns);
  size_is_const(y_k_stride, &distance);
  return target_masks(p->target, sizeof(float)) && columns <= (int64_t)p->target->vector_floats &&
         (columns == 1 || size_equals(y_n_stride, 1)) && cost_may_stay(distance, true);
}

/* More columns of y than fit into a vector, of a product of one row: each number of y is used once, so that to pack it
 * would take as long again. */
static bool may_have_lines_direct(Planner *p, const Size *n, const Size *y_n_stride) {
  int64_t columns;
  if (size_is_const(n, &columns) && columns <= (int64_t)p->target->vector_floats) return false;
  return target_masks(p->target, sizeof(float)) && size_equals(y_n_stride, 1);
}

/* Whether rows of a matrix may be the lanes of vectors: contiguous along k, more than a few steps of it, and more than
 * a few of them. */
static bool may_have_rows_direct(const Size *rows, const Size *k, const Size *k_stride) {
  int64_t known;
  if (size_is_const(rows, &known) && known < COST_LEAST_DIRECT_ROWS) return false;
  if (size_is_const(k, &known) && known < COST_LEAST_DIRECT_K) return false;
  return size_equals(k_stride, 1);
}

static bool is_few_columns(const Size *n) {
  int64_t columns;
  return size_is_const(n, &columns) && columns > 0 && columns <= COST_MOST_DIRECT_COLUMNS;
}

/* Sets how the step computes without packing, if it may. The kernel of columns side by side has the rows for which it
 * is made if they are few and static. */
static void choose_direct(Planner *p, const Nest *nest, const View *x, const View *y, tfm_matmul_step *step) {
  const uint32_t last = nest->rank - 1;
  const Size *rows = nest->dims[last - 1], *n = nest->dims[last], *k = x->dims[x->rank - 1];
  const Size *x_k_stride = x->strides[x->rank - 1], *y_k_stride = y->strides[y->rank - 2];
  const Size *y_n_stride = nest->others[1].strides[last];
  KernelSpec spec = {.family = KERNEL_DIRECT, .chain = product_chain(k)};
  int64_t known;
  if (size_equals(rows, 1) && may_have_rows_direct(n, k, y_k_stride)) {
    step->direct = TFM_DIRECT_TURNED;
    spec.width = 1;
    spec.y_is_line = size_equals(x_k_stride, 1);
  } else if (is_few_columns(n) && may_have_rows_direct(rows, k, x_k_stride)) {
    step->direct = TFM_DIRECT_ROWS;
    spec.width = (uint8_t)(size_is_const(n, &known) ? known : 0);
    spec.y_is_line = size_equals(y_k_stride, 1);
  } else if (size_equals(rows, 1) && may_have_lines_direct(p, n, y_n_stride)) {
    step->direct = TFM_DIRECT_LINES;
    spec.rows = 1;
    spec.all_columns = true;
  } else if (may_have_columns_direct(p, n, y_k_stride, y_n_stride)) {
    step->direct = TFM_DIRECT_COLUMNS;
    step->direct_columns = (uint8_t)p->target->vector_floats;
    if (size_is_const(rows, &known) && known > 0 && known <= COST_MOST_DIRECT_ROWS) spec.rows = (uint8_t)known;
  }
  step->direct_kernel = step->direct ? plan_kernel(p, &spec) : TFM_NONE;
}

/* Strips are then only rows whose chains wait for each other. */
static void leave_tiles_out(tfm_matmul_step *step) {
  step->pack = TFM_NONE;
  step->tile_rows = TFM_MAX_TILE_ROWS;
  for (uint32_t rows = 0; rows <= TFM_MAX_TILE_ROWS; rows++) step->tiles[rows] = TFM_NONE;
}

static bool needs_tiles(const tfm_matmul_step *step, const Size *n) {
  if (step->direct == TFM_DIRECT_ONE_ROW) return false;
  return !step->direct || (step->direct == TFM_DIRECT_COLUMNS && !size_is_const(n, NULL));
}

// ---- matmul ----

/* The tile for y's columns: as for weights if their number is static, or the narrowest that holds them all; else as
 * for keys, whose number is not known either. */
static TileShape product_tile(Planner *p, const Size *n) {
  int64_t columns;
  if (!size_is_const(n, &columns)) return p->target->attention_keys;
  TileShape tile = target_gemm_tile(p->target, columns);
  const uint32_t *widths = p->target->attention_value_widths;
  for (size_t i = 0; i < sizeof p->target->attention_value_widths / sizeof *widths && widths[i]; i++)
    if (widths[i] >= columns && widths[i] < tile.width)
      tile = (TileShape){p->target->gemm_tiles[0].rows, (uint8_t)widths[i]};
  return tile;
}

/* The rows of x can stay where they are if they have a static distance that is good for the cache. */
static bool rows_may_stay(const View *x, const Size *row_stride, int64_t *floats) {
  return size_equals(x->strides[x->rank - 1], 1) && size_is_const(row_stride, floats) && *floats > 0 &&
         cost_may_stay(*floats, x->space == TFM_SPACE_INPUT);
}

// ---- packed products ----

/* Neither do the rows of a transposed x need a copy: each line of it has one step of k of several rows. */
static bool columns_may_stay(const View *x, const Size *row_stride, int64_t *floats) {
  return size_equals(row_stride, 1) && size_is_const(x->strides[x->rank - 1], floats) && *floats > 1 &&
         cost_may_stay(*floats, x->space == TFM_SPACE_INPUT);
}

/* Beside such an x, y is used where it lies too, if it is a few whole panels: it is read often enough to be near. */
static bool panels_may_stay(const TileKind *kind, const View *y, const Size *n, const Size *n_stride,
                            int64_t *floats) {
  int64_t columns;
  return kind->a_step && size_is_const(n, &columns) && columns % kind->shape.width == 0 &&
         columns <= COST_MOST_PANELS_IN_PLACE * (int64_t)kind->shape.width && size_equals(n_stride, 1) &&
         size_is_const(y->strides[y->rank - 2], floats) && *floats > 0 &&
         cost_may_stay(*floats, y->space == TFM_SPACE_INPUT);
}

/* Rows whose number is known are cut into strips that differ by one row at most (step_matmul.c), so two heights do. */
static void limit_rows(TileKind *kind, const Size *rows) {
  int64_t n, height = kind->shape.rows;
  if (!size_is_const(rows, &n) || n < 1) return;
  const int64_t strips = (n + height - 1) / height;
  kind->shape.rows = (uint8_t)((n + strips - 1) / strips);
  kind->least_rows = (uint8_t)(n / strips);
}

// ---- the step ----

typedef struct Product { /* c = x y; the nest over c has the rows of x and the columns of y as its others 0 and 1 */
  const Nest *nest;
  const View *x, *y, *c;
  bool exact_zero;        /* x is the result of a softmax */
  bool in_order;          /* a gradient: its chains count the steps of k that are not zero */
  bool x_stays, y_stays;  /* where they lie, as tiles read them */
} Product;

/* The sizes of a product: m rows, n columns. */
static const Size *rows_in(const Product *m) { return m->nest->dims[m->nest->rank - 2]; }
static const Size *columns_in(const Product *m) { return m->nest->dims[m->nest->rank - 1]; }
static const Size *steps_in(const Product *m) { return m->x->dims[m->x->rank - 1]; }
/* From step to step of k, and from column to column, of y. */
static const Size *y_k_stride(const Product *m) { return m->y->strides[m->y->rank - 2]; }
static const Size *y_n_stride(const Product *m) { return m->nest->others[1].strides[m->nest->rank - 1]; }

/* Panels of y are packed into scratch memory of each thread, and strips of x are copied to rows of TFM_STRIP_STRIDE
 * floats unless these may stay, so the strides of the tiles are constants whatever the strides of the factors are. */
static TileKind choose_strides(Planner *p, Product *m) {
  const Size *x_row_stride = m->nest->others[0].strides[m->nest->rank - 2];
  TileKind kind = {.shape = product_tile(p, columns_in(m)), .a_stride = TFM_STRIP_STRIDE, .exact_zero = m->exact_zero};
  kind.b_stride = kind.shape.width;
  if (!node_rows_mask(p->node)) limit_rows(&kind, rows_in(m)); /* runs of rows may have any length */
  int64_t floats = 0;
  m->x_stays = rows_may_stay(m->x, x_row_stride, &floats);
  if (m->x_stays) {
    kind.a_stride = floats;
  } else if (columns_may_stay(m->x, x_row_stride, &floats)) {
    m->x_stays = true;
    kind.a_stride = 1;
    kind.a_step = floats;
  }
  m->y_stays = m->y->form == TFM_FORM_F32 && panels_may_stay(&kind, m->y, columns_in(m), y_n_stride(m), &floats);
  if (m->y_stays) kind.b_stride = floats;
  kind.never_cut = m->y_stays && m->in_order;
  return kind;
}

static tfm_matmul_step new_step(Planner *p, const Product *m, const TileKind *kind) {
  const Nest *nest = m->nest;
  const uint32_t last = nest->rank - 1;
  tfm_matmul_step step = {.tile_rows = kind->shape.rows,
                          .width = kind->shape.width,
                          .rank = (uint8_t)nest->rank,
                          .n_operands = (uint8_t)nest->n_operands,
                          .x_stays = m->x_stays,
                          .y_stays = m->y_stays,
                          .k = plan_size(p, steps_in(m)),
                          .x = plan_operand(p, m->x),
                          .y = plan_operand(p, m->y),
                          .c = plan_operand(p, m->c)};
  for (uint32_t i = 0; i < last; i++) {
    step.x.strides[i] = plan_size(p, nest->others[0].strides[i]);
    step.y.strides[i] = plan_size(p, i + 1 == last ? y_k_stride(m) : nest->others[1].strides[i]);
  }
  for (uint32_t i = 0; i <= last; i++) step.c.strides[i] = plan_size(p, nest->operands[0].strides[i]);
  step.c.strides[last] = plan_size(p, p->math.one);
  step.x.strides[last] = plan_size(p, m->x->strides[m->x->rank - 1]);
  step.y.strides[last] = plan_size(p, y_n_stride(m));
  return step;
}

/* Which terms count, and the chains that they are added in. */
static void choose_sums(Planner *p, const Product *m, TileKind *kind, tfm_matmul_step *step) {
  step->in_order = m->in_order ? TFM_ORDER_ONE_RUN : TFM_ORDER_NONE;
  if (p->node->attr.rows_are_steps) step->live = live_steps(p, p->node, &step->live_steps);
  else step->live = live_rows(p, p->node);
  kind->chain = m->in_order ? TFM_COUNTED_CHAIN : step->live_steps ? 0 : product_chain(steps_in(m));
  kind->goes_on = m->in_order;
  step->adds_chains = step->live_steps && !m->in_order; /* a chain may begin at a step that is left out */
}

static void choose_kernels(Planner *p, const Product *m, const TileKind *kind, tfm_matmul_step *step) {
  const Size *n = columns_in(m);
  const bool is_row = size_equals(n, 1) || size_equals(y_n_stride(m), 1);
  step->direct_kernel = TFM_NONE;
  const bool is_f32 = m->y->form == TFM_FORM_F32; /* other numbers become f32 when they are packed */
  if (m->in_order && size_equals(rows_in(m), 1) && is_row)
    step->direct = TFM_DIRECT_ONE_ROW;
  else if (is_f32 && !m->exact_zero && !m->in_order && !step->live) choose_direct(p, m->nest, m->x, m->y, step);
  if (needs_tiles(step, n)) {
    step->pack = m->y_stays ? TFM_NONE
                            : contract_pack(p, kind->shape.width, (tfm_form)m->y->form, y_k_stride(m), y_n_stride(m));
    contract_tiles(p, kind, step->tiles);
  } else {
    leave_tiles_out(step);
  }
  step->epilogue = contract_kernel(p, m->nest);
}

static void add_matmul(Planner *p, Product *m) {
  const bool has_rows = node_rows_mask(p->node) && !p->node->attr.rows_are_steps;
  m->in_order = m->nest->expr->kind == EXPR_ACC && plan_is_gradient(p, m->c) && !has_rows;
  TileKind kind = choose_strides(p, m);
  tfm_matmul_step step = new_step(p, m, &kind);
  choose_sums(p, m, &kind, &step);
  choose_kernels(p, m, &kind, &step);
  step.first_operand = nest_operands(p, m->nest);
  nest_dims(p, m->nest, step.dims);
  vec_push(p->arena, &p->matmuls, step);
  plan_step(p, TFM_STEP_MATMUL, p->matmuls.n - 1, cost_matmul(p, m->nest, steps_in(m)), "matmul");
}

/* Views y [..., k, n] over the axes of the result, which do not include k. A result of rank 1 has no rows. */
static View columns_of(Planner *p, const View *y, uint32_t rank) {
  View columns = view_drop(&p->math, y, y->rank - 2);
  if (rank >= 2) return columns;
  columns.rank = 1;
  columns.dims[0] = columns.dims[1];
  columns.strides[0] = columns.strides[1];
  return columns;
}

/* One column whose numbers are neighbours is a row: y's column times the transposed x, whose packing transposes squares
 * and whose tiles have columns enough. Each number is the same chain. */
static bool is_one_row(const Nest *nest, bool exact_zero) {
  uint32_t last = nest->rank - 1;
  return !exact_zero && size_equals(nest->dims[last], 1) && !size_equals(nest->dims[last - 1], 1) &&
         size_equals(nest->operands[0].strides[last - 1], 1);
}

static View last_axes_swapped(const View *view) {
  uint8_t axes[MAX_RANK];
  for (uint32_t i = 0; i < view->rank; i++) axes[i] = (uint8_t)i;
  axes[view->rank - 2] = (uint8_t)(view->rank - 1);
  axes[view->rank - 1] = (uint8_t)(view->rank - 2);
  return view_permute(view, axes);
}

static void turn_round(Planner *p, Nest *nest, View *x, View *y) {
  nest_move_axis(p, nest, nest->rank - 2, 1);
  NestOperand rows = nest->others[0];
  nest->others[0] = nest->others[1];
  nest->others[1] = rows;
  View left = last_axes_swapped(y);
  *y = last_axes_swapped(x);
  *x = left;
}

static void plan_product(Planner *p, const Node *node, const Node *x_node, View y) {
  View x = plan_view(p, x_node);
  bool exact_zero = contract_is_softmax(x_node);
  Epilogue epilogue = contract_begin(p, node, layout_has_columns);
  Nest nest;
  nest_init(p, &nest, &epilogue.body, &epilogue.c);
  View x_rows = view_drop(&p->math, &x, x.rank - 1), y_columns = columns_of(p, &y, node->rank);
  nest_add_other(p, &nest, &x_rows);
  nest_add_other(p, &nest, &y_columns);
  nest_simplify(p, &nest, 2, live_has_steps_of_items(node) ? 2 : 1);
  const bool may_turn = x.rank >= 2 && y.rank >= 2 && !node->attr.rows_mask && y.form == TFM_FORM_F32;
  if (may_turn && is_one_row(&nest, exact_zero)) turn_round(p, &nest, &x, &y);
  add_matmul(p, &(Product){.nest = &nest, .x = &x, .y = &y, .c = &epilogue.c, .exact_zero = exact_zero});
  contract_finish(p, node, &epilogue);
}

void plan_matmul(Planner *p, const Node *node) {
  if (node->attr.form != TFM_FORM_F32)
    plan_limit(p, "attention in 8 bits is computed as one operation, by the pass fuse-attention");
  if (plan_is_triangle(p, node)) plan_triangle(p, node);
  else plan_product(p, node, node->inputs.items[0], plan_packed_factor(p, node->inputs.items[1]));
}

// ---- linear ----

/* Whether static weights are a product like any other: those of few columns, of which a panel would be mostly zeros.
 * A single column always is. */
static bool is_narrow_linear(const Node *node, const View *x) {
  const Node *w = node->inputs.items[1];
  if (x->rank < 2 || node->attr.rows_mask || node->attr.form != TFM_FORM_F32) return false;
  if (!is_few_columns(w->dims[0])) return false;
  return size_equals(w->dims[0], 1) ||
         may_have_rows_direct(x->dims[x->rank - 2], x->dims[x->rank - 1], x->strides[x->rank - 1]);
}

/* Weights that are not static (a projection by another activation) are a product like any other. Static ones are packed
 * into panels. */
void plan_linear(Planner *p, const Node *node) {
  const Node *x = node->inputs.items[0], *w = node->inputs.items[1];
  const View x_view = plan_view(p, x);
  if (!p->values[w->id].is_static || is_narrow_linear(node, &x_view)) {
    View y = plan_packed_factor(p, w);
    plan_product(p, node, x, view_permute(&y, (const uint8_t[]){1, 0}));
    return;
  }
  plan_gemm(p, node);
}
