/* In: ATTENTION, and the ATTENTION_WEIGHTS that reads it. Out: an attention step over tensors or over caches, with
 * hints about the keys that its mask leaves out. Refused: heads whose size is not known when the model is compiled,
 * because it is a constant of the tiles; scores that depend on too many tensors. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "plan/caches.h"
#include "plan/cost.h"
#include "plan/plan_live.h"
#include "plan/products.h"

// ---- the tensors of the step ----

enum { MOST_VALUE_VECTORS = 8 }; /* of a row of values that one tile takes */

typedef struct Attention {
  const Node *node;
  const Node *weights; /* ATTENTION_WEIGHTS; NULL: the probabilities are not asked for */
  View q, k, v, c, weights_view;
  View mask;       /* of live queries, over [..., t, 1] */
  bool has_mask;
  int64_t h, e;
  uint32_t value_width; /* of the tiles of p v */
  bool v_packed;
  bool has_caches; /* k and v count columns of caches */
  float factor;    /* of scores in whole numbers; 0: none */
  uint32_t k_cache, v_cache;
  int64_t v_row; /* floats of a row of values in v_cache */
} Attention;

enum { OTHER_Q, OTHER_K, OTHER_V, OTHER_C, OTHER_WEIGHTS, OTHER_MASK };

static const Node *live_weights(Planner *p, const Node *node) {
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (user->op == OP_ATTENTION_WEIGHTS && p->values[user->id].is_live) return user;
  }
  return NULL;
}

/* Lays the result out as [first axis, t, other axes, e], so that merging the heads, which every model does next, is a
 * view and not a copy. */
static View result_layout(Planner *p, const Node *node, const Size **elements) {
  uint32_t rank = node->rank, t = rank - 2;
  if (rank < 4) {
    View rows = layout_default(p, DTYPE_F32, rank, (const Size *const *)node->dims);
    *elements = NULL;
    return rows;
  }
  const Size *dims[3] = {node->dims[0], node->dims[t], p->math.one};
  dims[2] = math_mul(&p->math, math_product(&p->math, t - 1, (const Size *const *)node->dims + 1), node->dims[t + 1]);
  View rows = layout_default(p, DTYPE_F32, 3, dims);
  const Size *row = rows.strides[1];
  if (size_equals(dims[1], 1)) row = dims[2];
  View view = view_rows(&p->math, DTYPE_F32, rank, (const Size *const *)node->dims, NULL, NULL);
  const Size *stride = node->dims[t + 1];
  for (uint32_t i = t; i-- > 1;) {
    view.strides[i] = size_equals(node->dims[i], 1) ? p->math.zero : stride;
    stride = math_mul(&p->math, stride, node->dims[i]);
  }
  view.strides[t] = size_equals(node->dims[t], 1) ? p->math.zero : row;
  const Size *item = math_mul(&p->math, row, node->dims[t]);
  view.strides[0] = size_equals(node->dims[0], 1) ? p->math.zero : item;
  *elements = math_mul(&p->math, item, node->dims[0]);
  return view;
}

const View *attention_layout(Planner *p, const Node *node, View *view, const Size **elements) {
  *view = result_layout(p, node, elements);
  return *elements ? view : NULL;
}

/* Tiles load the columns of values as vectors, so these must be neighbours; the distance of their rows may be
 * anything. */
static View view_of_values(Planner *p, const Node *v, int64_t e) {
  View view = plan_view(p, v);
  return view_has_contiguous_columns(&view) ? view : plan_compact(p, v, false, e);
}

/* Values are read in place if their rows have one static stride and the width of some tile divides e. One tile for all
 * of e, which takes its columns in groups that fit in registers, has no group of few columns, which would wait for its
 * own additions. Otherwise values are packed, and the last width of the table will do, because panels are padded with
 * zeros. */
static void choose_values(Planner *p, Attention *a) {
  const uint32_t *widths = p->target->attention_value_widths, lanes = p->target->vector_floats;
  size_t n = sizeof p->target->attention_value_widths / sizeof *widths;
  a->v_packed = !size_is_const(a->v.strides[a->v.rank - 2], NULL);
  if (a->e % widths[0] != 0 && a->e <= MOST_VALUE_VECTORS * (int64_t)lanes) {
    a->value_width = (uint32_t)((a->e + lanes - 1) / lanes * lanes);
    a->v_packed = a->v_packed || a->e % lanes != 0;
    return;
  }
  for (size_t i = 0; i < n && widths[i]; i++) {
    a->value_width = widths[i];
    if (!a->v_packed && a->e % widths[i] == 0) return;
  }
  a->v_packed = true;
}

/* Values in whole numbers are always packed; the width is as above, or that of a tile of their own. */
static void choose_whole_values(Planner *p, Attention *a) {
  choose_values(p, a);
  a->v_packed = true;
  if (p->target->word_tile.rows) a->value_width = p->target->word_tile.width;
}

/* Values in pages are never packed. A tile that is wider than what is left of e reads on into the next row or the line
 * behind the page (caches.c), but does not store what it reads. */
static void choose_cached_values(Planner *p, Attention *a) {
  const uint32_t *widths = p->target->attention_value_widths;
  size_t n = sizeof p->target->attention_value_widths / sizeof *widths;
  for (size_t i = 0; i < n && widths[i]; i++) {
    a->value_width = widths[i];
    if (a->e % widths[i] == 0) return;
  }
}

static View rows_of(Planner *p, const View *view) { return view_drop(&p->math, view, view->rank - 1); }
/* Views keys or values over [..., t, s]: their position axis is the axis s. */
static View keys_of(Planner *p, const View *view) {
  View keys = rows_of(p, view);
  uint32_t rank = view->rank;
  keys.dims[rank - 1] = view->dims[rank - 2];
  keys.strides[rank - 1] = view->strides[rank - 2];
  return view_drop(&p->math, &keys, rank - 2);
}

/* Scores in whole numbers are multiplied by a constant factor while the tile has them in registers: the same product,
 * but no pass over the strip; often nothing else is left of the expression, or a mask that hides only padding. */
static bool is_product_of_acc(const Expr *expr) {
  return expr->kind == EXPR_OP && expr->op == OP_MUL && expr->dtype == DTYPE_F32 &&
         ((expr->args[0]->kind == EXPR_ACC && expr->args[1]->kind == EXPR_CONST) ||
          (expr->args[1]->kind == EXPR_ACC && expr->args[0]->kind == EXPR_CONST));
}

static float factor_of(const Expr *product) {
  return (float)product->args[product->args[0]->kind == EXPR_ACC]->number;
}

/* The factor by which every use of acc is multiplied; 0: there is none. */
static float common_factor(const ExprList *list) {
  float factor = 0;
  for (uint32_t i = 0; i < list->n; i++) {
    const Expr *expr = list->items[i];
    bool uses = false;
    for (uint32_t j = 0; j < expr->n_args; j++) uses = uses || expr->args[j]->kind == EXPR_ACC;
    if (!uses) continue;
    if (!is_product_of_acc(expr) || (factor != 0 && factor_of(expr) != factor)) return 0;
    factor = factor_of(expr);
    if (!isfinite(factor) || factor == 0) return 0;
  }
  return factor;
}

/* `expr` with acc in place of its products with the factor. */
static const Expr *take_factor(Planner *p, const Expr *expr, float *factor) {
  const ExprList list = expr_list(p->arena, expr);
  if ((*factor = common_factor(&list)) == 0) return expr;
  Expr **copies = ARENA_ARRAY(p->arena, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    copies[i] = is_product_of_acc(list.items[i]) ? expr_acc(p->arena) : ARENA_ARRAY(p->arena, Expr, 1);
    if (is_product_of_acc(list.items[i])) continue;
    *copies[i] = *list.items[i];
    for (uint32_t j = 0; j < copies[i]->n_args; j++) copies[i]->args[j] = copies[list.args[j][i]];
  }
  return copies[list.n - 1];
}

/* Builds the loops over [..., t, s]. Operand 0 is the strip of scores, a few rows in L1, so the batch axes may merge
 * whatever the layout of the scores would be. */
static bool init_nest(Planner *p, Attention *a, Nest *nest) {
  uint32_t rank = a->node->rank;
  const Size *dims[MAX_RANK];
  memcpy(dims, a->node->dims, rank * sizeof *dims);
  dims[rank - 1] = a->k.dims[a->k.rank - 2];
  const Expr *expr = a->node->attr.expr ? a->node->attr.expr : expr_acc(p->arena);
  if (a->node->attr.form != TFM_FORM_F32) expr = take_factor(p, expr, &a->factor);
  Body body = body_new(a->node, rank, dims, expr);
  body_split_gathers(p, &body);
  if (!body_split(p, &body, TFM_MAX_OPERANDS - 1)) {
    plan_limit(p, "the scores of this attention depend on too many tensors");
    return false;
  }
  View strip = {.dtype = DTYPE_F32, .rank = 2, .dims = {dims[rank - 2], dims[rank - 1]}, .offset = p->math.zero,
                .strides = {math_const(&p->math, TFM_STRIP_STRIDE), p->math.one}};
  View none = {.dtype = DTYPE_F32, .offset = p->math.zero};
  nest_init(p, nest, &body, &strip);
  View others[NEST_MAX_OTHERS] = {rows_of(p, &a->q), keys_of(p, &a->k), keys_of(p, &a->v), rows_of(p, &a->c),
                                  a->weights ? a->weights_view : none, a->has_mask ? a->mask : none};
  for (uint32_t i = 0; i < NEST_MAX_OTHERS; i++) nest_add_other(p, nest, &others[i]);
  nest_simplify(p, nest, 2, 2);
  return true;
}

/* Strides over the batch axes, then over t (q, c) or s (k, v). */
static tfm_operand row_operand(Planner *p, const Nest *nest, const View *view, uint32_t other, uint32_t axis) {
  tfm_operand operand = plan_operand(p, view);
  const NestOperand *walked = &nest->others[other];
  for (uint32_t i = 0; i + 2 < nest->rank; i++) operand.strides[i] = plan_size(p, walked->strides[i]);
  operand.strides[nest->rank - 2] = plan_size(p, walked->strides[axis]);
  return operand;
}

static int64_t static_stride(const Size *stride) {
  int64_t floats = 0;
  CHECK(size_is_const(stride, &floats), "a stride that should be static");
  return floats;
}

// ---- kernels ----

/* A page of keys is a panel that tiles read as it lies, so with caches the width of the tile is that of a page, or, of
 * words, a divisor. */
static TileShape key_tile(const Planner *p, const Attention *a) {
  if (a->node->attr.form != TFM_FORM_F32 && p->target->word_tile.rows) return p->target->word_tile;
  TileShape tile = p->target->attention_keys;
  if (a->has_caches) tile.width = TFM_CACHE_PAGE;
  return tile;
}

/* Whether the softmax multiplies weights by the scales of their values. With weights as an output it leaves these as
 * they are, and the scales of values in caches lie in their pages. */
static bool step_is_weighed(const tfm_attention_step *step) {
  return step->form == TFM_FORM_INT8 && !step->has_weights && step->k_cache == TFM_NONE;
}

/* What works on rows of scores and results. scale_rows multiplies what a row has accumulated when its maximum rises. */
static void choose_row_kernels(Planner *p, const Nest *nest, tfm_attention_step *step) {
  const bool is_whole = step->form == TFM_FORM_INT8;
  step->score = contract_kernel(p, nest);
  step->softmax = plan_kernel(p, &(KernelSpec){.family = KERNEL_SOFTMAX, .is_weighed = step_is_weighed(step),
                                                .drops_small = plan_drops_small(p)});
  step->finite = is_whole ? TFM_NONE : plan_kernel(p, &(KernelSpec){.family = KERNEL_FINITE});
  KernelSpec scale = {
      .family = KERNEL_ROW,
      .reduction = OP_POINTWISE,
      .n_operands = 3,
      .operands = {{DTYPE_F32, COLUMN_CONTIGUOUS, 0, 0},
                   {DTYPE_F32, COLUMN_CONTIGUOUS, 0, 0},
                   {DTYPE_F32, COLUMN_BROADCAST, 0, 0}}};
  scale.expr = expr_op(p->arena, OP_MUL, DTYPE_F32, expr_input(p->arena, DTYPE_F32, 1),
                       expr_input(p->arena, DTYPE_F32, 2), NULL);
  step->scale_rows = plan_kernel(p, &scale);
}

/* Rows of q, keys, values and weights become whole numbers in scratch memory, so all distances are constants. */
static void choose_whole_kernels(Planner *p, const Attention *a, const Nest *nest, tfm_attention_step *step) {
  TileShape keys = key_tile(p, a), values = {keys.rows, (uint8_t)a->value_width};
  TileKind qk = {.shape = keys, .b_stride = a->has_caches ? TFM_CACHE_PAGE : keys.width, .b_form = TFM_FORM_INT8},
           pv = qk;
  step->form = TFM_FORM_INT8;
  step->a_bytes = p->target->dot_bytes ? 1 : 2;
  qk.a_stride = tfm_whole_row_floats(step->a_bytes, a->h);
  qk.factor = a->factor;
  pv.shape = values;
  pv.a_stride = tfm_whole_row_floats(step->a_bytes, TFM_KEY_BLOCK);
  pv.b_stride = a->has_caches ? tfm_value_columns(a->e) : a->value_width;
  pv.b_is_signed = true;
  contract_tiles(p, &qk, step->qk_tiles);
  contract_tiles(p, &pv, step->pv_tiles);
  for (uint32_t i = 0; i <= TFM_MAX_TILE_ROWS; i++) step->pv_exact_tiles[i] = TFM_NONE;
  step->pack_keys = step->pack_values = step->keys_in_place = TFM_NONE;
  step->whole_q = plan_kernel(p, &(KernelSpec){.family = KERNEL_QUANTIZE, .k = a->h});
  step->whole_k = plan_kernel(p, &(KernelSpec){.family = KERNEL_QUANTIZE, .k = a->h, .as_bytes = true});
  step->whole_v = plan_kernel(p, &(KernelSpec){.family = KERNEL_QUANTIZE, .k = a->e, .as_bytes = true});
  step->weigh = plan_kernel(p, &(KernelSpec){.family = KERNEL_WEIGH, .is_weighed = step_is_weighed(step)});
  choose_row_kernels(p, nest, step);
}

/* Whether runs may have so few scores that keys are not worth packing: a single query with many keys, or few of both.
 * Where queries and keys have the same number, packing a short text costs too little for a kernel more. */
static bool may_have_few_scores(const Attention *a, const Nest *nest) {
  const Size *queries = nest->dims[nest->rank - 2], *keys = nest->dims[nest->rank - 1];
  int64_t known;
  return !a->has_caches && queries != keys && (!size_is_const(queries, &known) || known <= TFM_NARROW_PANEL) &&
         !a->v_packed && a->e <= TFM_STRIP_STRIDE && a->h >= COST_LEAST_DIRECT_K &&
         size_equals(a->k.strides[a->k.rank - 1], 1);
}

/* Two sets of p v tiles: plain ones for values that are all finite, which the FINITE kernel finds out, and exact ones,
 * which look at every probability. */
static void choose_kernels(Planner *p, const Attention *a, const Nest *nest, tfm_attention_step *step) {
  TileShape keys = key_tile(p, a);
  TileShape values = {keys.rows, (uint8_t)a->value_width};
  const View *k = &a->k, *v = &a->v;
  TileKind qk = {.shape = keys, .a_stride = static_stride(a->q.strides[a->q.rank - 2]), .b_stride = keys.width};
  TileKind pv = {.shape = values, .a_stride = TFM_STRIP_STRIDE, .b_stride = a->value_width};
  pv.b_is_page = a->has_caches;
  if (a->has_caches) pv.b_stride = a->v_row;
  else if (!a->v_packed) pv.b_stride = static_stride(v->strides[v->rank - 2]);
  contract_tiles(p, &qk, step->qk_tiles);
  contract_tiles(p, &pv, step->pv_tiles);
  pv.exact_zero = true;
  contract_tiles(p, &pv, step->pv_exact_tiles);
  step->pack_keys = step->pack_values = step->keys_in_place = TFM_NONE;
  if (may_have_few_scores(a, nest))
    step->keys_in_place = plan_kernel(p, &(KernelSpec){.family = KERNEL_DIRECT, .width = 1, .y_is_line = true});
  if (!a->has_caches)
    step->pack_keys = contract_pack(p, keys.width, TFM_FORM_F32, k->strides[k->rank - 1], k->strides[k->rank - 2]);
  if (a->v_packed)
    step->pack_values =
        contract_pack(p, a->value_width, TFM_FORM_F32, v->strides[v->rank - 2], v->strides[v->rank - 1]);
  step->whole_q = step->whole_k = step->whole_v = step->weigh = TFM_NONE;
  choose_row_kernels(p, nest, step);
}

static void fill_operands(Planner *p, const Attention *a, const Nest *nest, tfm_attention_step *step) {
  uint32_t t = nest->rank - 2, s = nest->rank - 1;
  step->q = row_operand(p, nest, &a->q, OTHER_Q, t);
  step->k = row_operand(p, nest, &a->k, OTHER_K, s);
  step->k.strides[s] = plan_size(p, a->k.strides[a->k.rank - 1]);
  step->v = row_operand(p, nest, &a->v, OTHER_V, s);
  step->c = row_operand(p, nest, &a->c, OTHER_C, t);
  if (a->weights) {
    step->weights = row_operand(p, nest, &a->weights_view, OTHER_WEIGHTS, t);
    step->weights.strides[s] = plan_size(p, nest->others[OTHER_WEIGHTS].strides[s]);
  }
  if (a->has_mask) {
    tfm_operand mask = row_operand(p, nest, &a->mask, OTHER_MASK, t);
    step->live = live_by_operand(p, a->node, &mask);
  }
  step->first_operand = (uint32_t)p->operands.n;
  /* Operand 0 is the strip, which belongs to the runtime; an operand that is never read stands for it here. */
  vec_push(p->arena, &p->operands, (tfm_operand){.space = TFM_SPACE_SIZE});
  for (uint32_t i = 1; i < nest->n_operands; i++)
    vec_push(p->arena, &p->operands, nest_operand(p, nest, &nest->operands[i]));
}

static void add_step(Planner *p, const Attention *a, const Nest *nest) {
  MaskHints hints = attention_mask_hints(p, nest);
  TileShape keys = key_tile(p, a);
  tfm_attention_step step = {.tile_rows = keys.rows,
                             .qk_width = keys.width,
                             .pv_width = (uint8_t)a->value_width,
                             .v_packed = a->v_packed,
                             .rank = (uint8_t)nest->rank,
                             .n_operands = (uint8_t)nest->n_operands,
                             .has_weights = a->weights != NULL,
                             .causal = hints.causal,
                             .k_cache = a->k_cache,
                             .v_cache = a->v_cache,
                             .causal_offset = hints.causal ? plan_size(p, hints.causal_offset) : 0,
                             .padding = hints.padding,
                             .padding_true = hints.padding_true,
                             .padding_only = hints.padding_only,
                             .h = a->h,
                             .e = a->e};
  (a->node->attr.form != TFM_FORM_F32 ? choose_whole_kernels : choose_kernels)(p, a, nest, &step);
  fill_operands(p, a, nest, &step);
  nest_dims(p, nest, step.dims);
  vec_push(p->arena, &p->attentions, step);
  plan_step(p, TFM_STEP_ATTENTION, p->attentions.n - 1, cost_attention(p, nest, a->h, a->e), "attention");
}

// ---- the step ----

static void find_keys_and_values(Planner *p, Attention *a) {
  a->has_caches = caches_serve(p, a->node);
  a->k_cache = a->v_cache = TFM_NONE;
  if (!a->has_caches) {
    const Node *k = a->node->inputs.items[1];
    const bool is_int8 = a->node->attr.form != TFM_FORM_F32;
    a->k = is_int8 ? view_of_values(p, k, a->h) : plan_view(p, k);
    a->v = view_of_values(p, a->node->inputs.items[2], a->e);
    (is_int8 ? choose_whole_values : choose_values)(p, a);
    return;
  }
  CacheView k = caches_view(p, a->node, 1), v = caches_view(p, a->node, 2);
  a->k = k.view;
  a->v = v.view;
  a->k_cache = k.cache;
  a->v_cache = v.cache;
  a->v_row = v.row_floats;
  choose_cached_values(p, a);
  if (a->node->attr.form != TFM_FORM_F32 && p->target->word_tile.rows) a->value_width = p->target->word_tile.width;
}

/* The runtime finds the pages of a row by the first axis, so that axis must stand for the rows of the step even if
 * there is one. Strides along rows and positions are only marks (caches.c) and become 0. */
static void finish_cached_nest(Planner *p, const Attention *a, Nest *nest) {
  if (size_equals(a->node->dims[0], 1)) nest_add_axis(p, nest);
  for (uint32_t i = OTHER_K; i <= OTHER_V; i++)
    nest->others[i].strides[0] = nest->others[i].strides[nest->rank - 1] = p->math.zero;
}

void plan_attention(Planner *p, const Node *node) {
  Attention a = {.node = node, .weights = live_weights(p, node)};
  const Node *q = node->inputs.items[0], *v = node->inputs.items[2];
  if (!size_is_const(q->dims[q->rank - 1], &a.h) || !size_is_const(v->dims[v->rank - 1], &a.e)) {
    plan_limit(p, "the size of a head must be known when the model is compiled");
    return;
  }
  plan_check_gathers(p, node);
  a.q = plan_compact(p, q, false, a.h);
  find_keys_and_values(p, &a);
  a.has_mask = live_queries(p, node, &a.mask);
  const Size *elements;
  View layout;
  const View *wanted = attention_layout(p, node, &layout, &elements);
  a.c = layout_result(p, node, layout_has_columns, wanted, elements);
  if (a.weights) a.weights_view = layout_result(p, a.weights, layout_has_columns, NULL, NULL);
  Nest nest;
  if (!init_nest(p, &a, &nest)) return;
  if (a.has_caches) finish_cached_nest(p, &a, &nest);
  add_step(p, &a, &nest);
}
