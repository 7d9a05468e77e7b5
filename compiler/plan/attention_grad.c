/* In: ATTENTION_GRAD, and the ATTENTION_GRAD_K and ATTENTION_GRAD_V that read it; ATTENTION_KEPT. Out: one step that
 * writes what queries, keys and values get, or the result of an attention with dropout. Its expressions share the loops
 * over [..., t, s] and their operands, so that one list of operands serves all row kernels. Refused: heads whose size
 * is not known; expressions with too many tensors.
 *
 * All products are tiles of attention's kinds: scores and g vT read q and g in place, as attention reads q; the other
 * three read strips of the scores' shape, two of them transposed, which costs a tile nothing. */
#include <string.h>

#include "base/check.h"
#include "plan/cost.h"
#include "plan/plan_live.h"
#include "plan/products.h"

typedef struct Grad {
  const Node *node;
  View q, k, v, g, c, dk, dv, mask;
  int64_t h, e;
  bool has_mask; /* of queries */
  bool is_forward; /* there is no g, dk and dv: q, k and v stand for them until the step is made */
} Grad;

enum { OTHER_Q, OTHER_K, OTHER_V, OTHER_G, OTHER_C, OTHER_DK, OTHER_DV, OTHER_MASK };

// ---- tensors ----

/* Where a part of the result lies: in memory of its own if nobody reads it. */
static View part_view(Planner *p, const Grad *a, OpKind op, const View *like, int64_t columns) {
  const Size *elements;
  View layout;
  for (size_t i = 0; i < a->node->users.n; i++) {
    const Node *user = a->node->users.items[i];
    if (user->op != op || !p->values[user->id].is_live) continue;
    const View *wanted = attention_layout(p, user, &layout, &elements);
    return layout_result(p, user, layout_has_columns, wanted, elements);
  }
  const Size *dims[MAX_RANK];
  const uint32_t rank = a->node->rank;
  for (uint32_t i = 0; i + 2 < rank; i++) dims[i] = a->node->dims[i];
  dims[rank - 2] = like->dims[rank - 2];
  dims[rank - 1] = math_const(&p->math, columns);
  return layout_new(p, DTYPE_F32, rank, dims);
}

/* Rows of q, g and what q gets over [..., t, s]. */
static View queries_of(Planner *p, const View *view) { return view_drop(&p->math, view, view->rank - 1); }

/* Rows of keys and values: their position axis is the axis s. */
static View keys_of(Planner *p, const View *view) {
  View keys = *view;
  keys.dims[view->rank - 1] = view->dims[view->rank - 2];
  keys.strides[view->rank - 1] = view->strides[view->rank - 2];
  return view_drop(&p->math, &keys, view->rank - 2);
}

static bool init_nest(Planner *p, const Grad *a, Nest *nest) {
  const uint32_t rank = a->node->rank;
  const Size *dims[MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) dims[i] = a->node->dims[i];
  dims[rank - 1] = a->k.dims[rank - 2];
  Body body = body_new(a->node, rank, dims, a->node->attr.expr);
  body_split_gathers(p, &body);
  if (!body_split(p, &body, TFM_MAX_OPERANDS - 1 - TFM_GRAD_OPERANDS)) {
    plan_limit(p, "the gradient of this attention depends on too many tensors");
    return false;
  }
  const View strip = {.dtype = DTYPE_F32,
                      .rank = 2,
                      .dims = {dims[rank - 2], dims[rank - 1]},
                      .offset = p->math.zero,
                      .strides = {math_const(&p->math, TFM_STRIP_STRIDE), p->math.one}};
  nest_init(p, nest, &body, &strip);
  const View others[NEST_MAX_OTHERS] = {queries_of(p, &a->q), keys_of(p, &a->k),    keys_of(p, &a->v),
                                        queries_of(p, &a->g), queries_of(p, &a->c), keys_of(p, &a->dk),
                                        keys_of(p, &a->dv),   a->mask};
  for (uint32_t i = 0; i < (uint32_t)OTHER_MASK + a->has_mask; i++) nest_add_other(p, nest, &others[i]);
  nest_simplify(p, nest, 2, 2);
  return true;
}

/* Strides over the batch axes, then over t or s (`axis` of the nest). */
static tfm_operand row_operand(Planner *p, const Nest *nest, const View *view, uint32_t other, uint32_t axis) {
  tfm_operand operand = plan_operand(p, view);
  for (uint32_t i = 0; i + 2 < nest->rank; i++) operand.strides[i] = plan_size(p, nest->others[other].strides[i]);
  operand.strides[nest->rank - 2] = plan_size(p, nest->others[other].strides[axis]);
  return operand;
}

// ---- kernels ----

/* The widest tile that divides the columns, or the last of the table: panels are padded with zeros. */
static uint8_t choose_width(const Planner *p, int64_t columns) {
  const uint32_t *widths = p->target->attention_value_widths;
  uint32_t width = widths[0];
  for (size_t i = 0; i < sizeof p->target->attention_value_widths / sizeof *widths && widths[i]; i++) {
    width = widths[i];
    if (columns % width == 0) break;
  }
  return (uint8_t)width;
}

/* Of the tiles for few keys, whose panels would be zeros for the most part; 0 x 0: those of many are no wider. */
static TileShape narrow_shape(const Planner *p) {
  enum { ROWS = 8 };
  _Static_assert((int)ROWS + (int)TFM_NARROW_TILES <= (int)TFM_MAX_TILE_ROWS, "room for narrow tiles");
  CHECK(p->target->attention_keys.rows <= TFM_NARROW_TILES, "tiles of scores with many rows");
  const uint32_t width = p->target->attention_value_widths[1];
  return width && width < p->target->attention_keys.width ? (TileShape){ROWS, (uint8_t)width} : (TileShape){0, 0};
}

static int64_t row_stride(const View *view) {
  int64_t floats = 0;
  CHECK(size_is_const(view->strides[view->rank - 2], &floats), "rows of no static distance");
  return floats;
}

static void choose_narrow_tiles(Planner *p, const TileKind *qk, const TileKind *gv, tfm_attention_grad_step *step) {
  const TileShape shape = narrow_shape(p);
  step->narrow_rows = shape.rows;
  step->narrow_width = shape.width;
  step->pack_narrow = TFM_NONE;
  TileKind kinds[] = {*qk, *gv};
  uint32_t *const tiles[] = {step->qk_tiles, step->gv_tiles};
  if (!shape.width) return;
  for (uint32_t i = 0; i < 2; i++) {
    uint32_t narrow[TFM_MAX_TILE_ROWS + 1];
    kinds[i].shape = shape;
    kinds[i].b_stride = shape.width;
    contract_tiles(p, &kinds[i], narrow);
    memcpy(tiles[i] + TFM_NARROW_TILES + 1, narrow + 1, shape.rows * sizeof *narrow);
  }
  step->pack_narrow = contract_pack(p, shape.width, TFM_FORM_F32, p->math.one, math_const(&p->math, TFM_STRIP_STRIDE));
}

static void choose_tiles(Planner *p, const Grad *a, tfm_attention_grad_step *step) {
  const TileShape keys = p->target->attention_keys, h = {keys.rows, step->h_width}, e = {keys.rows, step->e_width};
  const TileShape given = step->is_forward ? e : h;
  const TileKind qk = {.shape = keys, .a_stride = row_stride(&a->q), .b_stride = keys.width};
  const TileKind gv = {.shape = keys, .a_stride = row_stride(&a->g), .b_stride = keys.width};
  const TileKind of_q = {.shape = given, .a_stride = TFM_STRIP_STRIDE, .b_stride = given.width};
  const TileKind of_k = {.shape = h, .a_stride = 1, .a_step = TFM_STRIP_STRIDE, .b_stride = h.width};
  const TileKind of_v = {.shape = e, .a_stride = 1, .a_step = TFM_STRIP_STRIDE, .b_stride = e.width};
  contract_tiles(p, &qk, step->qk_tiles);
  contract_tiles(p, &gv, step->gv_tiles);
  choose_narrow_tiles(p, &qk, &gv, step);
  contract_tiles(p, &of_q, step->q_tiles);
  contract_tiles(p, &of_k, step->k_tiles);
  contract_tiles(p, &of_v, step->v_tiles);
  const Size *far = math_const(&p->math, TFM_STRIP_STRIDE);
  step->pack_columns = contract_pack(p, keys.width, TFM_FORM_F32, p->math.one, far);
  step->pack_h = contract_pack(p, h.width, TFM_FORM_F32, far, p->math.one);
  step->pack_e = contract_pack(p, e.width, TFM_FORM_F32, far, p->math.one);
}

/* result = operand 1 * operand 2 over strips, with one number a row as operand 2; 0 where that is subnormal. */
static uint32_t scale_kernel(Planner *p) {
  KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = 3};
  for (uint8_t i = 0; i < 3; i++) spec.operands[i] = (RowOperandSpec){.dtype = DTYPE_F32, .access = COLUMN_CONTIGUOUS};
  spec.operands[2].access = COLUMN_BROADCAST;
  Expr *product = expr_op(p->arena, OP_MUL, DTYPE_F32, expr_input(p->arena, DTYPE_F32, 1),
                          expr_input(p->arena, DTYPE_F32, 2), NULL);
  Expr *is_small = expr_op(p->arena, OP_LT, DTYPE_BOOL, product, expr_number(p->arena, 0x1p-126), NULL);
  spec.expr = expr_op(p->arena, OP_WHERE, DTYPE_F32, is_small, expr_number(p->arena, 0), product);
  return plan_kernel(p, &spec);
}

static Expr *own_input(Planner *p, const Nest *nest, uint32_t operand) {
  return expr_input(p->arena, DTYPE_F32, nest->n_operands + operand);
}

/* A term with another value in place of acc. */
static Expr *term_of(Planner *p, const Nest *nest, const Expr *term, Expr *acc) {
  uint32_t same[TFM_MAX_OPERANDS];
  for (uint32_t i = 0; i < nest->n_operands; i++) same[i] = i;
  return expr_rename(p->arena, term, same, acc);
}

/* A row kernel whose operands are those of the nest and then the runtime's own. */
static uint32_t term_kernel(Planner *p, Nest *nest, OpKind reduction, Expr *expr) {
  nest->expr = expr;
  KernelSpec spec = nest_spec(nest);
  spec.reduction = reduction;
  spec.reduce = reduction != OP_POINTWISE;
  for (uint32_t i = 0; i < TFM_GRAD_OPERANDS; i++)
    spec.operands[spec.n_operands++] =
        (RowOperandSpec){.dtype = DTYPE_F32, .access = i < TFM_GRAD_SCALE ? COLUMN_CONTIGUOUS : COLUMN_BROADCAST};
  return plan_kernel(p, &spec);
}

/* Strips pass through as few kernels as possible: each of them reads and writes as many bytes as a tile does. */
static void choose_term_kernels(Planner *p, Nest *nest, Expr *const *terms, tfm_attention_grad_step *step) {
  Expr *const keep = terms[ATTENTION_KEEP];
  const bool takes = keep->kind != EXPR_ACC;
  Expr *probability = own_input(p, nest, TFM_GRAD_P), *x = own_input(p, nest, TFM_GRAD_X);
  if (takes)
    probability = expr_op(p->arena, OP_MUL, DTYPE_F32, probability, own_input(p, nest, TFM_GRAD_SCALE), NULL);
  step->kept = step->sum_products = step->through = TFM_NONE;
  if (takes) step->kept = term_kernel(p, nest, OP_POINTWISE, term_of(p, nest, keep, probability));
  if (step->is_forward) return;
  x = term_of(p, nest, keep, x);
  step->sum_products = term_kernel(p, nest, OP_SUM, expr_op(p->arena, OP_MUL, DTYPE_F32, probability, x, NULL));
  Expr *rest = expr_op(p->arena, OP_SUB, DTYPE_F32, x, own_input(p, nest, TFM_GRAD_SUM), NULL);
  Expr *gets = expr_op(p->arena, OP_MUL, DTYPE_F32, probability, rest, NULL);
  step->through = term_kernel(p, nest, OP_POINTWISE, term_of(p, nest, terms[ATTENTION_BACK], gets));
}

static void choose_row_kernels(Planner *p, Nest *nest, tfm_attention_grad_step *step) {
  Expr *terms[ATTENTION_TERMS];
  CHECK(expr_attention_terms(nest->expr, step->is_forward ? ATTENTION_BACK : ATTENTION_TERMS, terms),
        "an attention_grad without its terms");
  nest->expr = terms[ATTENTION_SCORE];
  step->score = contract_kernel(p, nest);
  const MaskHints hints = attention_mask_hints(p, nest);
  step->causal = hints.causal;
  step->causal_offset = hints.causal ? plan_size(p, hints.causal_offset) : 0;
  step->padding = hints.padding;
  step->padding_true = hints.padding_true;
  step->softmax = plan_kernel(p, &(KernelSpec){.family = KERNEL_SOFTMAX, .drops_small = true});
  step->scale_rows = scale_kernel(p);
  choose_term_kernels(p, nest, terms, step);
}

// ---- the step ----

static void add_step(Planner *p, const Grad *a, Nest *nest) {
  const TileShape keys = p->target->attention_keys;
  const uint32_t t = nest->rank - 2, s = nest->rank - 1;
  tfm_attention_grad_step step = {.is_forward = a->is_forward,
                                  .tile_rows = keys.rows,
                                  .key_width = keys.width,
                                  .h_width = choose_width(p, a->h),
                                  .e_width = choose_width(p, a->e),
                                  .rank = (uint8_t)nest->rank,
                                  .n_operands = (uint8_t)nest->n_operands,
                                  .h = a->h,
                                  .e = a->e,
                                  .q = row_operand(p, nest, &a->q, OTHER_Q, t),
                                  .k = row_operand(p, nest, &a->k, OTHER_K, s),
                                  .v = row_operand(p, nest, &a->v, OTHER_V, s),
                                  .g = row_operand(p, nest, &a->g, OTHER_G, t),
                                  .c = row_operand(p, nest, &a->c, OTHER_C, t),
                                  .dk = row_operand(p, nest, &a->dk, OTHER_DK, s),
                                  .dv = row_operand(p, nest, &a->dv, OTHER_DV, s)};
  if (a->is_forward) step.dk = step.dv = step.c;
  choose_tiles(p, a, &step);
  choose_row_kernels(p, nest, &step);
  if (a->has_mask) {
    const tfm_operand mask = row_operand(p, nest, &a->mask, OTHER_MASK, t);
    step.live = live_by_operand(p, a->node, &mask);
  }
  step.first_operand = (uint32_t)p->operands.n;
  /* Operand 0 is the strip, which belongs to the runtime; an operand that is never read stands for it here. */
  vec_push(p->arena, &p->operands, (tfm_operand){.space = TFM_SPACE_SIZE});
  for (uint32_t i = 1; i < nest->n_operands; i++)
    vec_push(p->arena, &p->operands, nest_operand(p, nest, &nest->operands[i]));
  nest_dims(p, nest, step.dims);
  vec_push(p->arena, &p->attention_grads, step);
  const int64_t of_h = a->is_forward ? a->h : 3 * a->h, of_e = a->is_forward ? a->e : 2 * a->e;
  plan_step(p, TFM_STEP_ATTENTION_GRAD, p->attention_grads.n - 1, cost_attention(p, nest, of_h, of_e),
            a->is_forward ? "attention_kept" : "attention_grad");
}

static void plan_grad(Planner *p, const Node *node, bool is_forward) {
  Node *const *in = node->inputs.items;
  Grad a = {.node = node, .is_forward = is_forward};
  if (!size_is_const(in[0]->dims[node->rank - 1], &a.h) || !size_is_const(in[2]->dims[in[2]->rank - 1], &a.e)) {
    plan_limit(p, "the size of a head must be known when the model is compiled");
    return;
  }
  plan_check_gathers(p, node);
  a.q = plan_compact(p, in[0], false, a.h);
  a.k = plan_compact(p, in[1], false, a.h);
  a.v = plan_compact(p, in[2], false, a.e);
  a.g = is_forward ? a.q : plan_compact(p, in[3], false, a.e);
  const Size *elements;
  View layout;
  const View *wanted = attention_layout(p, node, &layout, &elements);
  a.c = layout_result(p, node, layout_has_columns, wanted, elements);
  a.dk = is_forward ? a.k : part_view(p, &a, OP_ATTENTION_GRAD_K, &a.k, a.h);
  a.dv = is_forward ? a.v : part_view(p, &a, OP_ATTENTION_GRAD_V, &a.v, a.e);
  a.has_mask = live_queries(p, node, &a.mask);
  Nest nest;
  if (init_nest(p, &a, &nest)) add_step(p, &a, &nest);
}

void plan_attention_grad(Planner *p, const Node *node) { plan_grad(p, node, false); }

void plan_attention_kept(Planner *p, const Node *node) { plan_grad(p, node, true); }
