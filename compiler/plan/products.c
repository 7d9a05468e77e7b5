/* In: LINEAR nodes with static weights. Out: gemm steps; tiles and epilogues for other products too. See products.h. */
#include "plan/products.h"

#include "base/check.h"
#include "plan/cost.h"
#include "plan/plan_live.h"

// ---- kernels and epilogues, for attention too ----

static KernelSpec tile_of(const TileKind *kind, uint32_t rows) {
  return (KernelSpec){.family = KERNEL_TILE,
                      .rows = (uint8_t)rows,
                      .width = rows <= kind->whole_panel_rows ? (uint8_t)kind->b_stride : kind->shape.width,
                      .a_stride = kind->a_stride,
                      .b_stride = kind->b_stride,
                      .a_step = kind->a_step,
                      .chain = kind->chain,
                      .goes_on = kind->goes_on,
                      .b_form = kind->b_form,
                      .b_is_page = kind->b_is_page,
                      .b_is_signed = kind->b_is_signed,
                      .has_whole_panel = rows <= kind->whole_panel_rows,
                      .in_pairs = kind->in_pairs,
                      .k = kind->k,
                      .factor = kind->factor,
                      .is_matrix = kind->least_matrix_rows && rows >= kind->least_matrix_rows,
                      .exact_zero = kind->exact_zero};
}

void contract_tiles(Planner *p, const TileKind *kind, uint32_t tiles[TFM_MAX_TILE_ROWS + 1]) {
  CHECK(kind->shape.rows <= TFM_MAX_TILE_ROWS, "a tile of too many rows");
  tiles[0] = kind->whole_panel_rows;
  for (uint32_t rows = 1; rows <= TFM_MAX_TILE_ROWS; rows++) {
    tiles[rows] = TFM_NONE;
    if (rows < kind->least_rows || rows > kind->shape.rows) continue;
    const KernelSpec spec = tile_of(kind, rows);
    tiles[rows] = plan_kernel(p, &spec);
    if (!kind->never_cut) p->plan->kernels.items[tiles[rows]].may_be_cut = true;
  }
}

/* Memory gives more where one row reads it in two places. Forms that are made into numbers need registers beside the
 * sums. Of one row the distance of rows means nothing. */
static uint32_t two_panels_tile(Planner *p, const TileKind *kind, int64_t n) {
  const bool fits = kind->b_form == TFM_FORM_F32 || kind->b_stride <= 48;
  if (!fits || kind->whole_panel_rows == 0 || n < 2 * kind->b_stride) return TFM_NONE;
  KernelSpec spec = tile_of(kind, 1);
  spec.width = (uint8_t)(2 * kind->b_stride);
  spec.a_stride = 0;
  return plan_kernel(p, &spec);
}

/* Only which of the two strides is 1 decides what code packs a panel; the distances themselves are arguments. */
uint32_t contract_pack(Planner *p, uint32_t width, tfm_form form, const Size *k_stride, const Size *column_stride) {
  KernelSpec spec = {.family = KERNEL_PACK, .width = (uint8_t)width, .b_form = (uint8_t)form,
                     .pack_transposes = size_equals(k_stride, 1) && !size_equals(column_stride, 1)};
  return plan_kernel(p, &spec);
}

bool contract_is_softmax(const Node *x) {
  x = node_behind_views(x);
  return x->op == OP_SOFTMAX || x->op == OP_ATTENTION_WEIGHTS ||
         (x->op == OP_REDUCE && x->attr.reduction == OP_SOFTMAX);
}

/* The tile computes f32 into the memory of the result, and the expression then runs on it in place, with ACC as
 * operand 0. So the expression must give f32, and one operand is taken by the result. */
Epilogue contract_begin(Planner *p, const Node *node, LayoutTest test) {
  const Size *const *dims = (const Size *const *)node->dims;
  const Expr *expr = node->attr.expr ? node->attr.expr : expr_acc(p->arena);
  plan_check_gathers(p, node);
  Epilogue epilogue = {.body = body_new(node, node->rank, dims, expr)};
  epilogue.in_place = expr->dtype == DTYPE_F32 && body_split(p, &epilogue.body, TFM_MAX_OPERANDS - 1);
  if (epilogue.in_place) {
    epilogue.c = layout_result(p, node, test, NULL, NULL);
  } else {
    epilogue.after = epilogue.body;
    epilogue.body = body_new(node, node->rank, dims, expr_acc(p->arena));
    epilogue.c = layout_new(p, DTYPE_F32, node->rank, dims);
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

uint16_t product_chain(const Size *k) {
  int64_t known;
  return size_is_const(k, &known) && known <= TFM_SHORT_CHAIN ? 0 : TFM_SHORT_CHAIN;
}

// ---- gemm ----

/* Whether all users of x are products of whole numbers that leave the same rows out as `user` does. */
static bool leave_same_rows(const Node *x, const Node *user) {
  const Node *mask = node_rows_mask(user);
  for (size_t i = 0; i < x->users.n; i++) {
    const Node *other = x->users.items[i];
    if (other->op != OP_LINEAR || !tfm_form_has_whole_rows(other->attr.form)) continue;
    if (node_rows_mask(other) != mask || other->attr.rows_where != user->attr.rows_where) return false;
  }
  return mask != NULL;
}

/* Bytes of a number in rows that products with weights take. */
static uint8_t number_bytes(const Planner *p) { return p->target->dot_bytes || p->target->dot_pairs ? 1 : 2; }

static int64_t whole_row_floats(const Planner *p, tfm_form form, int64_t k) {
  if (form == TFM_FORM_INT8 && p->target->dot_pairs) return tfm_split_row_floats(k);
  return tfm_row_floats((uint8_t)form, number_bytes(p), k);
}

/* Whether the last step is the row step that makes the rows which this one reads, each of them whole. */
static bool follows_its_rows(const Planner *p, const tfm_quantize_step *step) {
  const tfm_step *last = p->steps.n ? &p->steps.items[p->steps.n - 1] : NULL;
  if (!last || last->kind != TFM_STEP_ROW || last->prepare != p->prepare) return false;
  const tfm_row_step *row = &p->rows.items[last->index];
  const tfm_operand *made = &p->operands.items[row->first_operand], *x = &step->x;
  return row->rank == 2 && row->reduce == 1 && row->dims[0] == step->dims[0] &&
         live_are_same(p, row->live, step->live) && made->space == x->space && made->index == x->index &&
         made->offset == x->offset && made->strides[0] == x->strides[0];
}

/* A thread begins a joined step while another may still do the one before it: what that one reads must not lie where
 * this one writes. */
static void keep_what_is_read(Planner *p) {
  const uint32_t before = (uint32_t)p->steps.n - 2;
  for (size_t i = 0; i < p->buffers.n; i++)
    if (p->buffers.items[i].last_step == before) p->buffers.items[i].last_step++;
}

/* The view of x with rows that are one axis and columns that are neighbours, or a copy that has them. */
static View view_of_rows(Planner *p, const Node *x, int64_t k, const Size **rows, const Size **stride) {
  View from = plan_view(p, x);
  if (view_has_contiguous_columns(&from) && view_collapse(&p->math, &from, rows, stride)) return from;
  from = plan_compact(p, x, true, k);
  CHECK(view_collapse(&p->math, &from, rows, stride), "a copy whose rows have no stride");
  return from;
}

/* Memory for as many rows of whole numbers; sets their distance in floats. */
static View room_for_whole_rows(Planner *p, const Size *rows, int64_t k, tfm_form form, const Size **stride) {
  const Size *dims[] = {rows, math_const(&p->math, whole_row_floats(p, form, k))};
  View to = view_rows(&p->math, DTYPE_F32, 2, dims, NULL, NULL);
  to.index = plan_buffer(p, DTYPE_F32, math_product(&p->math, 2, dims));
  to.offset = math_const(&p->math, TFM_ROW_HEAD);
  *stride = dims[1];
  return to;
}

/* The rows that weights of this form are multiplied by. */
static RowsOfWhole rows_for(tfm_form form) {
  return tfm_form_is_mixed(form) ? ROWS_MIXED : form == TFM_FORM_INT4 ? ROWS_GROUPED : ROWS_WHOLE;
}

/* The rows of an operand, rotated and rounded once for all products of this form that read it. The step belongs to the
 * operand, as a copy would. */
static View whole_rows(Planner *p, const Node *x, int64_t k, tfm_form form) {
  Value *value = &p->values[x->id];
  const Size *rows, *x_stride, *c_stride;
  const RowsOfWhole kind = rows_for(form);
  if (value->has_whole_rows[kind]) return value->whole_rows[kind];
  const Node *user = p->node;
  const bool prepare = p->prepare;
  const View from = view_of_rows(p, x, k, &rows, &x_stride);
  p->node = x;
  p->prepare = value->is_prepare;
  const View to = room_for_whole_rows(p, rows, k, form, &c_stride);
  KernelSpec spec = {.family = KERNEL_QUANTIZE, .k = k, .is_rotated = kind != ROWS_MIXED,
                     .is_grouped = kind == ROWS_GROUPED, .is_mixed = kind == ROWS_MIXED,
                     .in_pairs = p->target->dot_pairs != NULL};
  tfm_quantize_step step = {.kernel = plan_kernel(p, &spec),
                            .rank = 1,
                            .k = k,
                            .x = plan_operand(p, &from),
                            .c = plan_operand(p, &to),
                            .dims = {plan_size(p, rows)}};
  step.x.strides[0] = plan_size(p, x_stride);
  step.c.strides[0] = plan_size(p, c_stride);
  if (!p->prepare && leave_same_rows(x, user)) step.live = live_rows(p, user);
  const bool joined = follows_its_rows(p, &step);
  vec_push(p->arena, &p->quantizes, step);
  plan_step(p, TFM_STEP_QUANTIZE, p->quantizes.n - 1, cost_quantize(p, rows, k), "quantize");
  p->steps.items[p->steps.n - 1].joined = joined;
  if (joined) keep_what_is_read(p);
  p->node = user;
  p->prepare = prepare;
  value->has_whole_rows[kind] = true;
  return value->whole_rows[kind] = to;
}

int64_t product_row_stride(Planner *p, const View *a, const Size **rows, int64_t k, bool has_whole_rows) {
  const Size *stride;
  int64_t floats = 0;
  CHECK(view_collapse(&p->math, a, rows, &stride) && size_is_const(stride, &floats), "rows without a static stride");
  return size_equals(*rows, 1) && !has_whole_rows ? k + COST_LINE : floats;
}

/* Lines of a band are some of a panel's, which a CPU does not foresee as it does all of them (bench/notes.md). Two rows
 * of f32 have their sums in registers, beside an element of each and a vector of the panel: AVX2 has 16. */
static uint8_t whole_panel_rows(const Planner *p, uint8_t form, uint32_t panel) {
  const uint32_t vectors = panel / p->target->vector_floats;
  if (form == TFM_FORM_F32) return 2 * (vectors + 1) + 1 <= 16 ? 2 : 1;
  return form == TFM_FORM_INT8 || form == TFM_FORM_BF16 ? 1 : 0;
}

/* The tiles over panels of `panel` columns in this form, for rows that are not known yet. */
static TileKind gemm_tiles(const Planner *p, uint8_t form, uint32_t panel, int64_t k) {
  const bool has_whole_rows = tfm_form_has_whole_rows(form);
  const bool is_made = tfm_form_has_words(form) && !has_whole_rows;
  TileShape shape = (tfm_form_is_mixed(form) ? target_mixed_tile
                     : has_whole_rows        ? target_whole_tile
                     : is_made               ? target_tall_tile
                                             : target_panel_tile)(p->target, panel);
  if (tfm_form_has_groups(form) && !is_made) shape.rows /= 2; /* the sums of a group take registers too */
  /* pairs take registers for a product and a factor, and AVX2 has 16: the sums of six rows would not stay in them */
  if (form == TFM_FORM_INT8 && p->target->dot_pairs && p->target->vector_floats < TFM_NARROW_PANEL) shape.rows--;
  TileKind kind = {.shape = shape, .b_stride = panel, .b_form = form,
                   .in_pairs = has_whole_rows && p->target->dot_pairs,
                   .k = form == TFM_FORM_INT8 && p->target->dot_pairs ? k : 0};
  if (form == TFM_FORM_INT8 && p->target->matrix.rows) {
    /* fewer are faster in vectors: those of tile registers take as long as 16 */
    kind.least_matrix_rows = p->target->matrix.least_rows ? p->target->matrix.least_rows : (uint8_t)(shape.rows + 1);
    kind.shape = (TileShape){p->target->matrix.rows, (uint8_t)panel};
  }
  if (p->target->reads_whole_panels && shape.width < panel) kind.whole_panel_rows = whole_panel_rows(p, form, panel);
  return kind;
}

/* `weight`: the recipe of w, in panels. */
static void add_gemm(Planner *p, const Nest *nest, const View *a, const View *c, const Node *w, uint32_t weight) {
  const Size *rows, *c_rows, *c_stride;
  int64_t n, k;
  CHECK(size_is_const(w->dims[0], &n) && size_is_const(w->dims[1], &k), "static weights of no static shape");
  const uint32_t panel = p->plan->recipes.items[weight].width;
  const uint8_t form = p->plan->recipes.items[weight].form;
  const bool has_whole_rows = tfm_form_has_whole_rows(form);
  TileKind kind = gemm_tiles(p, form, panel, k);
  kind.never_cut = n % (kind.whole_panel_rows ? panel : kind.shape.width) == 0;
  kind.a_stride = product_row_stride(p, a, &rows, k, has_whole_rows);
  if (!has_whole_rows) kind.chain = product_chain(math_const(&p->math, k)); /* sums of whole numbers have no order */
  CHECK(view_collapse(&p->math, c, &c_rows, &c_stride), "a gemm whose rows are not one axis");
  tfm_gemm_step step = {.tile_rows = kind.shape.rows,
                        .width = kind.shape.width,
                        .panel = (uint8_t)panel,
                        .form = form,
                        .a_bytes = has_whole_rows ? number_bytes(p) : (uint8_t)sizeof(float),
                        .is_matrix = kind.least_matrix_rows && p->target->matrix.setup,
                        .rank = (uint8_t)nest->rank,
                        .n_operands = (uint8_t)nest->n_operands,
                        .weight = weight,
                        .rows = plan_size(p, rows),
                        .k = k,
                        .n = n,
                        .a = plan_operand(p, a),
                        .c = plan_operand(p, c),
                        .live = live_rows(p, p->node)};
  step.a.strides[0] = plan_size(p, math_const(&p->math, kind.a_stride));
  step.c.strides[0] = plan_size(p, c_stride);
  contract_tiles(p, &kind, step.tiles);
  step.two_panels = two_panels_tile(p, &kind, n);
  step.epilogue = contract_kernel(p, nest);
  step.first_operand = nest_operands(p, nest);
  nest_dims(p, nest, step.dims);
  vec_push(p->arena, &p->gemms, step);
  plan_step(p, TFM_STEP_GEMM, p->gemms.n - 1, cost_gemm(p, nest, rows, n, k), "linear");
}

/* Panels are [n / panel][k][panel], so that a tile walks one from its beginning to its end without a jump. */
void plan_gemm(Planner *p, const Node *node) {
  const Node *x = node->inputs.items[0], *w = node->inputs.items[1];
  int64_t n, k;
  CHECK(size_is_const(w->dims[0], &n) && size_is_const(w->dims[1], &k), "static weights of no static shape");
  const tfm_form form = plan_form(node);
  const uint32_t panel = (tfm_form_is_mixed(form) ? target_mixed_panel_width : target_panel_width)(n);
  View a = tfm_form_has_whole_rows(form) ? whole_rows(p, x, k, form) : plan_compact(p, x, true, k);
  Epilogue epilogue = contract_begin(p, node, layout_has_rows);
  Nest nest;
  nest_init(p, &nest, &epilogue.body, &epilogue.c);
  nest_simplify(p, &nest, 1, 1);
  uint32_t weight = plan_weight(p, w, WEIGHT_PANELS, panel, form);
  add_gemm(p, &nest, &a, &epilogue.c, w, weight);
  contract_finish(p, node, &epilogue);
}
