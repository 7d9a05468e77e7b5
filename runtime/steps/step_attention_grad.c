/* The gradient of attention: what queries, keys and values get, without any matrix of the scores' shape in memory; and
 * attention with dropout, which is the first part of it, so that both find the same probabilities. In the compiler,
 * passes/fuse_attention_grad.c finds the operation and plan/attention_grad.c makes the step. In: q, k, v, and g, what
 * the result gets. Out: c, what q gets, dk and dv; of the first part c, its result. Refuses nothing.
 *
 * A unit is one batch item (a head of a sequence); units divide results, never sums. Keys and values are packed once,
 * as columns and as rows. Then blocks of queries pass: their probabilities are computed again as attention computes
 * them, in blocks of TFM_KEY_BLOCK keys counted from key 0, with the maximum of the whole row in the end, and kept as
 * strips; beside them what they get. Sums along the keys are one of f32 for each block, and these are added in double.
 * Results for a query are one chain over the keys, those for a key one chain over the queries that goes on in memory
 * from block to block. So how queries are cut into blocks changes nothing.
 *
 * Keys after the last query of a block in causal attention have probability 0 and are left out of all of its sums.
 *
 * The loops, from outside to inside:
 *
 *   items            heads of sequences                  units, which threads share; keys and values are packed
 *     blocks         GRADIENT_STRIPS tiles of queries    their strips: scratch, the second-level cache
 *       products     scores = q kT; what p gets = g vT   grad_multiply_columns: panels, within them tiles
 *       strips       rows whose scores stay near         attention_grad_strip: probabilities, and what queries get
 *       products     what values get; what keys get      grad_give_keys: tiles of keys, within them panels
 *
 * The three inner ones are in attention_grad_strip.c; what is here, once an item or a block, is small rather than fast
 * (CMakeLists.txt). */
#include <string.h>

#include "base/allocate.h"
#include "machine/tuning.h"
#include "steps/attention_grad_strip.h"
#include "steps/panels.h"

// ---- sizes ----

static Grad grad_of(const tfm_context *context, const tfm_step *step) {
  const tfm_attention_grad_step *info = &context->program->attention_grads[step->index];
  Grad a = {.step = info,
            .operands = &operands_of(context, step)->attention_grad,
            .batch = items_of(context, info->dims, info->rank - 2),
            .queries = value_of(context, info->dims[info->rank - 2]),
            .keys = value_of(context, info->dims[info->rank - 1]),
            .causal_offset = value_of(context, info->causal_offset)};
  a.items = items_count(&a.batch);
  a.key_blocks = ceil_div(a.keys, TFM_KEY_BLOCK);
  a.block_rows = least_of(GRADIENT_STRIPS * info->tile_rows, greatest_of(1, a.queries));
  a.strip_floats = a.block_rows * TFM_STRIP_STRIDE;
  const bool few = info->narrow_width && a.keys <= info->narrow_width;
  a.key_width = few ? info->narrow_width : info->key_width;
  a.score_rows = few ? info->narrow_rows : info->tile_rows;
  a.qk_tiles = info->qk_tiles + (few ? TFM_NARROW_TILES : 0);
  a.gv_tiles = info->gv_tiles + (few ? TFM_NARROW_TILES : 0);
  a.pack_columns = few ? info->pack_narrow : info->pack_columns;
  a.columns = info->is_forward ? info->e : info->h;
  a.width = info->is_forward ? info->e_width : info->h_width;
  a.score = epilogue_of(context, info->score, info->rank, info->n_operands, info->first_operand, info->dims);
  return a;
}

static int64_t panels_floats(int64_t columns, int64_t width, int64_t k) { return round_up(columns, width) * k; }

/* The parts of a thread's scratch, one behind the other from `base`; returns their bytes. */
static int64_t lay_out_scratch(const Grad *a, char *base, GradScratch *scratch) {
  const tfm_attention_grad_step *step = a->step;
  const int64_t strips = a->key_blocks * a->strip_floats, rows = a->block_rows, size = sizeof(float);
  const int64_t back = step->is_forward ? 0 : 1; /* what goes back is not there in the first part */
  const int64_t key_width = step->is_forward ? step->e_width : step->h_width;
  const int64_t key_columns = step->is_forward ? step->e : step->h;
  Layout layout = {.block = base};
  scratch->key_columns = layout_take(&layout, panels_floats(a->keys, a->key_width, step->h), size);
  scratch->value_columns = layout_take(&layout, back * panels_floats(a->keys, a->key_width, step->e), size);
  scratch->key_rows = layout_take(&layout, panels_floats(key_columns, key_width, a->keys), size);
  scratch->query_rows = layout_take(&layout, back * panels_floats(step->h, step->h_width, rows), size);
  scratch->g_rows = layout_take(&layout, back * panels_floats(step->e, step->e_width, rows), size);
  scratch->p = layout_take(&layout, strips, size);
  scratch->kept = step->kept == TFM_NONE || !back ? scratch->p : layout_take(&layout, strips, size);
  scratch->back = layout_take(&layout, back * strips, size);
  scratch->maximum = layout_take(&layout, rows, size);
  scratch->sum = layout_take(&layout, rows, size);
  scratch->scale = layout_take(&layout, rows, size);
  scratch->products = layout_take(&layout, 2 * rows, size);
  scratch->totals = layout_take(&layout, rows, (int64_t)sizeof *scratch->totals);
  return layout.bytes;
}

/* Bounds the product first: sizes that would overflow are refused before the layout is computed. */
int64_t attention_grad_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  const tfm_attention_grad_step *info = &context->program->attention_grads[step->index];
  const int64_t keys = value_of(context, info->dims[info->rank - 1]);
  const int64_t per_key = 64 * (info->h + info->e + 64) + 64 * GRADIENT_STRIPS * TFM_MAX_TILE_ROWS;
  int64_t product;
  if (keys < 0 || __builtin_mul_overflow(keys, per_key, &product)) return -1;
  GradScratch scratch;
  const Grad a = grad_of(context, step);
  return lay_out_scratch(&a, NULL, &scratch);
}

// ---- items ----

/* Rows of keys as columns of panels. */
static void pack_columns(const GradJob *job, const char *rows, const Operand *operand, int64_t columns, float *packed) {
  const Grad *a = job->grad;
  const PanelJob panels = {.pack = KERNEL_OF(tfm_pack_kernel, job->walker->context, a->pack_columns),
                           .from = rows,
                           .bytes = sizeof(float),
                           .k_stride = 1,
                           .column_stride = grad_floats(a, operand),
                           .k = columns,
                           .columns = job->item->limit,
                           .width = a->key_width,
                           .panel_floats = a->key_width * columns};
  panels_pack(&panels, packed);
}

/* Rows as rows of panels. */
static void pack_rows(const GradJob *job, uint32_t kernel, const GradRows *rows, int64_t width, float *packed) {
  const PanelJob panels = {.pack = KERNEL_OF(tfm_pack_kernel, job->walker->context, kernel),
                           .from = rows->from,
                           .bytes = sizeof(float),
                           .k_stride = rows->stride / (int64_t)sizeof(float),
                           .column_stride = 1,
                           .k = rows->n,
                           .columns = rows->columns,
                           .width = width,
                           .panel_floats = width * rows->n};
  panels_pack(&panels, packed);
}

static void clear_rows(char *rows, int64_t stride, int64_t n, int64_t columns) {
  for (int64_t i = 0; i < n; i++) memset(rows + i * stride, 0, (size_t)columns * sizeof(float));
}

static int64_t last_key_of(const tfm_context *context, const Grad *a, int64_t item) {
  if (!a->step->padding) return a->keys;
  const Operand *operand = &context->run.operands[a->step->first_operand + a->step->padding];
  return last_live_key(items_address(context, &a->batch, operand, item), operand->strides[a->step->rank - 1], a->keys,
                       a->step->padding_true);
}

static LiveRows live_queries_of(const tfm_context *context, const Grad *a, int64_t item) {
  const Operand *mask = &a->operands->mask;
  if (!a->step->live) return (LiveRows){0};
  return live_rows_at(context, a->step->live, items_address(context, &a->batch, mask, item), grad_stride(a, mask));
}

/* Where an item lies; what of it is live is found when its turn comes. */
static void place_item(const tfm_context *context, const Grad *a, int64_t number, GradItem *item) {
  const struct attention_grad_operands *of = a->operands;
  int64_t at[TFM_MAX_RANK];
  items_coordinates(&a->batch, number, at);
  item->number = number;
#define PLACE(member) \
  item->member = element_address(context, &of->member, items_distance(&a->batch, of->member.strides, at));
  PLACE(q)
  PLACE(k)
  PLACE(v)
  PLACE(g)
  PLACE(c)
  PLACE(dk)
  PLACE(dv)
#undef PLACE
}

/* Packs the keys and values of the item. */
static void pack_item(const GradJob *job) {
  const Grad *a = job->grad;
  const GradScratch *scratch = job->scratch;
  const tfm_attention_grad_step *step = a->step;
  const GradRows k = {job->item->k, grad_stride(a, &a->operands->k), job->item->limit, step->h};
  const GradRows v = {job->item->v, grad_stride(a, &a->operands->v), job->item->limit, step->e};
  pack_columns(job, k.from, &a->operands->k, step->h, scratch->key_columns);
  if (step->is_forward) {
    pack_rows(job, step->pack_e, &v, step->e_width, scratch->key_rows);
    return;
  }
  pack_columns(job, v.from, &a->operands->v, step->e, scratch->value_columns);
  pack_rows(job, step->pack_h, &k, step->h_width, scratch->key_rows);
}

// ---- blocks of queries ----

static int64_t keys_seen(const Grad *a, const GradItem *item, int64_t end_row) {
  return a->step->causal ? least_of(item->limit, greatest_of(0, end_row + a->causal_offset)) : item->limit;
}

/* Strips of a block, which are scores yet: of as many rows at a time as stay near. */
static void run_query_strips(const GradBlock *block) {
  const int64_t tile_rows = block->job->grad->step->tile_rows;
  const int64_t rows = tile_rows * greatest_of(1, NEAR_SCORES / (least_of(block->seen, TFM_KEY_BLOCK) * tile_rows));
  for (int64_t at = 0; at < block->n; at += rows) {
    const GradStrip strip = {block->job, block->first + at, least_of(rows, block->n - at), at, block->seen};
    attention_grad_strip(&strip);
  }
}

static void run_query_block(const GradBlock *block) {
  const GradJob *job = block->job;
  const Grad *a = job->grad;
  const GradScratch *scratch = job->scratch;
  GradItem *item = job->item;
  const tfm_attention_grad_step *step = a->step;
  const struct attention_grad_operands *of = a->operands;
  const int64_t first = block->first, n = block->n;
  const GradRows q = {item->q + first * grad_stride(a, &of->q), grad_stride(a, &of->q), n, step->h};
  const GradRows g = {item->g + first * grad_stride(a, &of->g), grad_stride(a, &of->g), n, step->e};
  if (block->seen == 0) {
    clear_rows(item->c + first * grad_stride(a, &of->c), grad_stride(a, &of->c), n, a->columns);
    return;
  }
  if (!step->is_forward) {
    pack_rows(job, step->pack_h, &q, step->h_width, scratch->query_rows);
    pack_rows(job, step->pack_e, &g, step->e_width, scratch->g_rows);
    grad_multiply_columns(block, &g, &(GradScores){a->gv_tiles, scratch->value_columns, scratch->back});
  }
  grad_multiply_columns(block, &q, &(GradScores){a->qk_tiles, scratch->key_columns, scratch->p});
  run_query_strips(block);
  if (step->is_forward) return;
  grad_give_keys(block, &(GradGiven){item->dv, grad_stride(a, &of->dv), step->e, step->e_width, step->v_tiles,
                                     scratch->kept, scratch->g_rows});
  grad_give_keys(block, &(GradGiven){item->dk, grad_stride(a, &of->dk), step->h, step->h_width, step->k_tiles,
                                     scratch->back, scratch->query_rows});
  item->begun = block->seen;
}

/* The queries in [row, end) that are live, block by block. */
static void run_queries(const GradJob *job, int64_t row, int64_t end) {
  for (int64_t n; row < end; row += n) {
    n = least_of(job->grad->block_rows, end - row);
    run_query_block(&(GradBlock){job, row, n, keys_seen(job->grad, job->item, row + n)});
  }
}

static void run_live_queries(const GradJob *job) {
  const Grad *a = job->grad;
  const LiveRows *live = &job->item->live;
  int64_t first, rows;
  if (!live->mask) {
    run_queries(job, 0, a->queries);
    return;
  }
  for (int64_t row = 0; (rows = live_run(live, true, row, a->queries, &first)) > 0; row = first + rows)
    run_queries(job, first, first + rows);
  const int64_t row_bytes = a->columns * (int64_t)sizeof(float);
  const ClearJob clear = {.rows = job->item->c, .stride = grad_stride(a, &a->operands->c), .bytes = row_bytes};
  if (live->zeroed) live_clear(live, 0, a->queries, &clear);
}

/* Keys that no query sees get nothing. */
static void clear_unseen(const Grad *a, const GradItem *item) {
  const int64_t seen = item->begun;
  const int64_t k = grad_stride(a, &a->operands->dk), v = grad_stride(a, &a->operands->dv);
  clear_rows(item->dk + seen * k, k, a->keys - seen, a->step->h);
  clear_rows(item->dv + seen * v, v, a->keys - seen, a->step->e);
}

// ---- the next item ----

static void add_rows_ahead(RowsAhead *ahead, const char *rows, int64_t stride, int64_t n, int64_t columns) {
  if (n > 0) ahead->lists[ahead->n++] = (FetchList){rows, stride, columns * (int64_t)sizeof(float), n};
}

/* About how many tiles an item has. */
static int64_t tiles_of_item(const Grad *a) {
  const int64_t rows = a->step->tile_rows, of_queries = ceil_div(a->queries, rows);
  const int64_t of_scores = ceil_div(a->queries, a->score_rows) * ceil_div(a->keys, a->key_width);
  if (a->step->is_forward) return of_scores + of_queries;
  return 2 * of_scores + of_queries + 2 * ceil_div(a->keys, rows);
}

/* What the next item reads, and the lines that it writes, come from far away and have the time of this one for it. */
static void plan_fetch(const Grad *a, const GradItem *next, RowsAhead *ahead) {
  const tfm_attention_grad_step *step = a->step;
  const struct attention_grad_operands *of = a->operands;
  ahead->list = ahead->n = 0;
  ahead->row = 0;
  if (next->number < 0 || (a->keys + a->queries) * (step->h + step->e) > MOST_FETCHED) return;
#define ROWS(member, n, columns) add_rows_ahead(ahead, next->member, grad_stride(a, &of->member), n, columns)
  ROWS(k, a->keys, step->h);
  ROWS(v, a->keys, step->e);
  ROWS(q, a->queries, step->h);
  ROWS(c, a->queries, a->columns);
  if (!step->is_forward) {
    ROWS(g, a->queries, step->e);
    ROWS(dv, a->keys, step->e);
    ROWS(dk, a->keys, step->h);
  }
#undef ROWS
  int64_t rows = 0;
  for (int i = 0; i < ahead->n; i++) rows += ahead->lists[i].n;
  ahead->few = ceil_div(rows, greatest_of(1, tiles_of_item(a)));
}

static Operand stretch_operand(const tfm_attention_grad_step *step, const Stretch *stretch) {
  Operand operand = {.slot = -1, .bytes = sizeof(float)};
  operand.strides[step->rank - 2] = stretch->row_bytes;
  operand.strides[step->rank - 1] = stretch->key_bytes;
  return operand;
}

/* The kernels that read strips beside the step's operands, of which a thread has copies for that. Where in the strips
 * they read is said before each call. */
static void set_terms(const tfm_context *context, const Grad *a, GradScratch *scratch) {
  const tfm_attention_grad_step *step = a->step;
  const uint8_t n = (uint8_t)(step->n_operands + TFM_GRAD_OPERANDS);
  const uint32_t kernels[] = {step->kept, step->sum_products, step->through};
  Epilogue *const terms[] = {&scratch->keep, &scratch->sum_products, &scratch->through};
  const Stretch rows = whole_rows(NULL), numbers = one_a_row(NULL);
  Operand *own = scratch->operands + step->n_operands;
  memcpy(scratch->operands, &context->run.operands[step->first_operand], step->n_operands * sizeof(Operand));
  own[TFM_GRAD_P] = own[TFM_GRAD_X] = stretch_operand(step, &rows);
  own[TFM_GRAD_SCALE] = own[TFM_GRAD_SUM] = stretch_operand(step, &numbers);
  for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
    *terms[i] = epilogue_of(context, kernels[i], step->rank, n, step->first_operand, step->dims);
    terms[i]->operands = scratch->operands;
  }
}

void step_attention_grad(Walker *walker, const tfm_step *step) {
  const Grad a = grad_of(walker->context, step);
  if (a.items <= 0) return;
  GradScratch scratch;
  lay_out_scratch(&a, walker->scratch, &scratch);
  set_terms(walker->context, &a, &scratch);
  Claimer claimer = walker_claimer(walker, 1, a.items);
  int64_t ignored, number;
  GradItem items[2]; /* this one and the next, in turn: mostly a thread's next item is the one behind */
  items[0].number = items[1].number = -1;
  for (int turn = 0; share_claim(&claimer, &ignored, &number); turn = !turn) {
    GradItem *item = &items[turn], *next = &items[!turn];
    if (item->number != number) place_item(walker->context, &a, number, item);
    item->begun = 0;
    item->limit = last_key_of(walker->context, &a, number);
    item->live = live_queries_of(walker->context, &a, number);
    const GradJob job = {.walker = walker, .grad = &a, .scratch = &scratch, .item = item};
    pack_item(&job);
    next->number = -1;
    if (number + 1 < a.items) place_item(walker->context, &a, number + 1, next);
    plan_fetch(&a, next, &scratch.ahead);
    run_live_queries(&job);
    if (!a.step->is_forward) clear_unseen(&a, item);
  }
}
