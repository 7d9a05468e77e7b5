/* Attention: cuts the step into units, packs keys and values, and leads the strips of queries through the key blocks.
 * The loops are drawn in attention_strip.h, which this shares with attention over caches. In: queries, keys and values
 * in memory, operands of the score expression. Out: results, weights where they are wanted. Refuses nothing.
 *
 * A unit is a range of strips of one batch item (a head of a sequence). Strips go through the blocks of TFM_KEY_BLOCK
 * keys in chunks, so that a block is used while it is in the cache. Blocks count from key 0 in every row, and keys that
 * are left out (after the query in causal attention, padding at the end) have weight exactly 0. */
#include "steps/step_attention.h"

#include <string.h>

#include "machine/tuning.h"
#include "steps/panels.h"

static int64_t row_stride(const Attention *a, const Operand *operand) { return operand->strides[a->step->rank - 2]; }

// ---- scores ----

/* Keys are the lanes of vectors, so the chains are those of a tile. */
static void score_in_place(const AttentionStrip *s, const KeyBlock *keys) {
  const Attention *a = s->attention;
  const int64_t stride = row_stride(a, a->k), q_stride = row_stride(a, a->q);
  const tfm_direct_args args = {.x = s->item->k + keys->first * stride,
                                .y = s->item->q + s->row * q_stride,
                                .c = (char *)s->scratch->strip,
                                .items = s->rows,
                                .rows = keys->n,
                                .columns = 1,
                                .k = a->step->h,
                                .x_row = stride,
                                .x_step = sizeof(float),
                                .y_item = q_stride,
                                .y_step = sizeof(float),
                                .c_item = TFM_STRIP_STRIDE * (int64_t)sizeof(float),
                                .c_row = sizeof(float)};
  KERNEL_OF(tfm_direct_kernel, s->walker->context, a->step->keys_in_place)(&args);
}

static void score_packed(const AttentionStrip *s, const KeyBlock *keys) {
  const tfm_attention_step *step = s->attention->step;
  const float *q = (const float *)(s->item->q + s->row * row_stride(s->attention, s->attention->q));
  const float *packed = s->scratch->keys + keys->slot * s->attention->key_slot_floats;
  const tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, s->walker->context, step->qk_tiles[s->rows]);
  for (int64_t column = 0; column < keys->n; column += step->qk_width)
    kernel(q, packed + column * step->h, s->scratch->strip + column, TFM_STRIP_STRIDE, step->h, 0,
           least_of(step->qk_width, keys->n - column), packed + column * step->h, 0);
}

// ---- sums of values ----

static const float *values_at(const Attention *a, const AttentionItem *item, int64_t first_key) {
  return (const float *)(item->v + first_key * row_stride(a, a->v));
}

/* c += strip * v. A value that is infinite or NaN needs the exact tiles, in which a weight of 0 contributes 0: in the
 * others 0 * inf would be NaN for keys that are masked. */
static void add_block(const AttentionStrip *s, const KeyBlock *keys) {
  const tfm_attention_step *step = s->attention->step;
  const uint32_t *tiles = s->scratch->finite[keys->slot] ? step->pv_tiles : step->pv_exact_tiles;
  const tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, s->walker->context, tiles[s->rows]);
  const float *in_place = values_at(s->attention, s->item, keys->first);
  const float *packed = s->scratch->values + keys->slot * s->attention->value_slot_floats;
  int64_t c_stride;
  float *c = attention_place(s, keys->number, &c_stride);
  for (int64_t column = 0; column < step->e; column += step->pv_width) {
    const float *v = step->v_packed ? packed + column * TFM_KEY_BLOCK : in_place + column;
    kernel(s->scratch->strip, v, c + column, c_stride, keys->n, !attention_begins(keys->number),
           least_of(step->pv_width, step->e - column), v, 0);
  }
}

static int64_t are_finite(const Walker *walker, const Attention *a, const float *values, int64_t stride, int64_t n) {
  return KERNEL_OF(tfm_finite_kernel, walker->context, a->step->finite)(values, stride / (int64_t)sizeof(float), n,
                                                                          a->step->e);
}

/* The values of one query are read once: where one of them is infinite or NaN, so is a result, and only then they are
 * looked at. c as it was lies behind the strip's only row. */
static void add_of_one_query(const AttentionStrip *s, const KeyBlock *keys) {
  const Attention *a = s->attention;
  float *before = s->scratch->strip + TFM_STRIP_STRIDE;
  int64_t stride;
  float *c = attention_place(s, keys->number, &stride);
  memcpy(before, c, (size_t)a->step->e * sizeof *c);
  add_block(s, keys);
  if (are_finite(s->walker, a, c, 0, 1)) return;
  const bool finite = are_finite(s->walker, a, values_at(a, s->item, keys->first), row_stride(a, a->v), keys->n);
  s->scratch->finite[keys->slot] = finite;
  if (finite) return;
  memcpy(c, before, (size_t)a->step->e * sizeof *c);
  add_block(s, keys);
}

// ---- sizes ----

/* What is done once a step is marked cold: small rather than fast, because every library has it. */

/* Whether reading an item's keys where they lie, once for each query, is less work than packing them and computing
 * whole panels of scores. Measured for heads of 64: up to four panels of scores it was, for eight it was not, and
 * packing into panels as narrow as a vector was never more work. */
static bool has_few_scores(const Attention *attention) {
  const tfm_attention_step *step = attention->step;
  const int64_t most = FEW_SCORE_PANELS * step->qk_width;
  if (step->keys_in_place == TFM_NONE || step->qk_width <= TFM_NARROW_PANEL) return false;
  return attention->queries <= most && attention->keys <= most &&
         attention->queries * round_up(attention->keys, TFM_NARROW_PANEL) <= most;
}

/* How many packed blocks a thread holds: one where each is used once, else all of an item, so that no block is packed
 * twice. */
__attribute__((cold)) static void choose_slots(Attention *attention) {
  const tfm_attention_step *step = attention->step;
  int64_t key_panels = ceil_div(TFM_KEY_BLOCK, step->qk_width);
  if (attention->keys < TFM_KEY_BLOCK) key_panels = ceil_div(attention->keys, step->qk_width);
  int64_t line = ALIGNMENT / (int64_t)sizeof(float);
  attention->key_slot_floats = round_up(key_panels * step->qk_width * step->h, line);
  if (step->v_packed)
    attention->value_slot_floats = round_up(ceil_div(step->e, step->pv_width) * step->pv_width * TFM_KEY_BLOCK, line);
  if (attention->int8) attention->form_floats = attention->int8->size_slots(attention);
  /* A block is used once if no other chunk of queries and no other head needs it. */
  bool keys_are_shared = step->rank > 2 && attention->k->strides[step->rank - 3] == 0;
  bool once = attention->strips <= CHUNK_STRIPS && !keys_are_shared;
  attention->slots = once ? least_of(1, attention->key_blocks) : attention->key_blocks;
  attention->one_query = once && attention->queries == 1 && step->keys_in_place != TFM_NONE;
  attention->keys_in_place = attention->one_query || has_few_scores(attention);
}

/* In whole numbers tiles are done so soon that what is done once for a strip would take as long: two tiles make one. */
static int64_t strip_rows_of(const tfm_attention_step *step) {
  const bool twice = step->form == TFM_FORM_INT8 && step->k_cache == TFM_NONE;
  return twice && 2 * step->tile_rows <= TFM_MAX_TILE_ROWS ? 2 * step->tile_rows : step->tile_rows;
}

__attribute__((cold)) Attention attention_describe(const tfm_context *context, const tfm_step *step) {
  const tfm_attention_step *info = &context->program->attentions[step->index];
  const struct attention_operands *operands = &operands_of(context, step)->attention;
  Attention a = {.step = info,
                 .q = &operands->q,
                 .k = &operands->k,
                 .v = &operands->v,
                 .c = &operands->c,
                 .batch = items_of(context, info->dims, info->rank - 2),
                 .queries = value_of(context, info->dims[info->rank - 2]),
                 .keys = value_of(context, info->dims[info->rank - 1]),
                 .causal_offset = value_of(context, info->causal_offset),
                 .padding = info->padding ? &context->run.operands[info->first_operand + info->padding] : NULL,
                 .mask = info->live ? &operands->mask : NULL};
  a.items = items_count(&a.batch);
  a.key_blocks = ceil_div(a.keys, TFM_KEY_BLOCK);
  a.strip_rows = strip_rows_of(info);
  a.strips = ceil_div(a.queries, a.strip_rows);
  a.cuts = 1;
  a.score = epilogue_of(context, info->score, info->rank, info->n_operands, info->first_operand, info->dims);
  return a;
}

void attention_choose_outputs(const tfm_context *context, const tfm_step *step, Attention *a) {
  a->c_wanted = !operand_unwanted(context, a->c);
  const Operand *weights = &operands_of(context, step)->attention.weights;
  if (a->step->has_weights && !operand_unwanted(context, weights)) a->weights = weights;
}

static Attention attention_of(const tfm_context *context, const tfm_step *step, const Int8Attention *int8,
                              int32_t threads) {
  Attention a = attention_describe(context, step);
  a.int8 = int8;
  const int64_t units = ATTENTION_UNITS_PER_THREAD * (int64_t)threads;
  if (a.items > 0 && a.items < units)
    a.cuts = greatest_of(1, least_of(ceil_div(units, a.items), a.strips / CHUNK_STRIPS));
  choose_slots(&a);
  return a;
}

/* Bounds the product first: sizes that would overflow are refused before the layout is computed. */
int64_t attention_bytes(const tfm_context *context, const tfm_step *step, const Int8Attention *int8) {
  const tfm_attention_step *info = &context->program->attentions[step->index];
  int64_t keys = value_of(context, info->dims[info->rank - 1]), product;
  if (keys < 0 || __builtin_mul_overflow(keys, 64 * (info->h + info->e + TFM_KEY_BLOCK), &product)) return -1;
  Attention a = attention_of(context, step, int8, 1);
  /* Strides of the operands are not yet resolved here: keys may be shared by heads. */
  a.slots = a.key_blocks;
  AttentionScratch scratch;
  return attention_scratch(&a, NULL, &scratch);
}

// ---- items ----

static int64_t last_key(const Attention *a, const char *padding) {
  if (!a->padding) return a->keys;
  return last_live_key(padding, a->padding->strides[a->step->rank - 1], a->keys, a->step->padding_true);
}

int64_t attention_last_key(const tfm_context *context, const Attention *a, int64_t item) {
  return last_key(a, a->padding ? items_address(context, &a->batch, a->padding, item) : NULL);
}

/* Whether the scores of all keys before `limit` are used as they are. */
static bool has_plain_scores(const Attention *a, const char *padding, int64_t limit) {
  if (!a->step->padding_only) return a->step->score == TFM_NONE;
  return limit <= 0 || live_all(padding, a->padding->strides[a->step->rank - 1], limit, !a->step->padding_true);
}

/* Forgets what is packed if the item has other keys or values than the one before. */
static AttentionItem enter_item(const tfm_context *context, const Attention *a, const AttentionScratch *scratch,
                                const AttentionItem *before, int64_t number) {
  int64_t at[TFM_MAX_RANK];
  items_coordinates(&a->batch, number, at);
#define PLACE(operand) element_address(context, (operand), items_distance(&a->batch, (operand)->strides, at))
  const char *padding = a->padding ? PLACE(a->padding) : NULL;
  AttentionItem item = {.number = number,
                        .limit = last_key(a, padding),
                        .q = PLACE(a->q),
                        .k = PLACE(a->k),
                        .v = PLACE(a->v),
                        .c = PLACE(a->c),
                        .weights = a->weights ? PLACE(a->weights) : NULL};
  if (a->mask) item.live = live_rows_at(context, a->step->live, PLACE(a->mask), row_stride(a, a->mask));
#undef PLACE
  live_unless_all(&item.live, a->queries);
  item.is_plain = has_plain_scores(a, padding, item.limit);
  bool same = before->k == item.k && before->v == item.v && before->limit == item.limit;
  if (!same)
    for (int64_t i = 0; i < a->slots; i++) scratch->loaded[i] = -1;
  return item;
}

static void pack_keys(const AttentionStrip *s, const KeyBlock *keys, float *packed) {
  const Attention *a = s->attention;
  const int64_t *strides = a->k->strides + a->step->rank - 2, size = sizeof(float);
  const PanelJob job = {.pack = KERNEL_OF(tfm_pack_kernel, s->walker->context, a->step->pack_keys),
                        .from = s->item->k + keys->first * strides[0],
                        .bytes = size,
                        .k_stride = strides[1] / size,
                        .column_stride = strides[0] / size,
                        .k = a->step->h,
                        .columns = keys->n,
                        .width = a->step->qk_width,
                        .panel_floats = a->step->qk_width * a->step->h};
  panels_pack(&job, packed);
}

static void pack_values(const AttentionStrip *s, const KeyBlock *keys, float *packed) {
  const Attention *a = s->attention;
  const PanelJob job = {.pack = KERNEL_OF(tfm_pack_kernel, s->walker->context, a->step->pack_values),
                        .from = (const char *)values_at(a, s->item, keys->first),
                        .bytes = sizeof(float),
                        .k_stride = row_stride(a, a->v) / (int64_t)sizeof(float),
                        .column_stride = 1,
                        .k = keys->n,
                        .columns = a->step->e,
                        .width = a->step->pv_width,
                        .panel_floats = (int64_t)a->step->pv_width * TFM_KEY_BLOCK};
  panels_pack(&job, packed);
}

/* Packs a block of keys (and values) unless it is there; returns its slot. Of the strip the item counts. */
static int64_t load_block(const AttentionStrip *s, int64_t number) {
  const Attention *a = s->attention;
  const AttentionScratch *scratch = s->scratch;
  const int64_t slot = a->slots == 1 ? 0 : number, first = number * TFM_KEY_BLOCK;
  if (scratch->loaded[slot] == number) return slot;
  scratch->loaded[slot] = number;
  const KeyBlock keys = {number, first, least_of(TFM_KEY_BLOCK, s->item->limit - first), slot};
  if (a->int8) {
    a->int8->load(s, &keys);
    return slot;
  }
  if (a->one_query) {
    scratch->finite[slot] = true; /* until a result is not */
    return slot;
  }
  if (!a->keys_in_place) pack_keys(s, &keys, scratch->keys + slot * a->key_slot_floats);
  if (!a->c_wanted) return slot;
  scratch->finite[slot] = are_finite(s->walker, a, values_at(a, s->item, first), row_stride(a, a->v), keys.n);
  if (a->step->v_packed) pack_values(s, &keys, scratch->values + slot * a->value_slot_floats);
  return slot;
}

// ---- units ----

/* All strips at once, unless the weights are an output, which need the keys that each strip saw, or some strip saw no
 * key. */
static void finish_chunk(const AttentionStrip *strips, int64_t n) {
  const AttentionStrip *last = &strips[n - 1];
  if (last->attention->weights || keys_seen(last->attention, last->item, strips->row) == 0) {
    for (int64_t i = 0; i < n; i++) attention_finish(&strips[i]);
    return;
  }
  AttentionStrip all = *strips;
  all.rows = last->row + last->rows - all.row;
  all.seen = last->seen;
  attention_finish(&all);
}

static void run_chunk(const AttentionStrip *strips, int64_t n) {
  const AttentionStrip *last = &strips[n - 1];
  const Attention *a = last->attention;
  const Int8Attention *int8 = a->int8;
  BlockWork *const score = a->keys_in_place ? score_in_place : int8 ? int8->score : score_packed;
  BlockWork *const add = int8 ? int8->add : a->one_query ? add_of_one_query : add_block;
  attention_begin(last->scratch, last->state + last->rows);
  for (int64_t block = 0; block * TFM_KEY_BLOCK < last->seen; block++) {
    const int64_t slot = load_block(last, block);
    for (int64_t i = 0; i < n; i++) attention_block(&strips[i], block, slot, score, add);
  }
  finish_chunk(strips, n);
}

/* Strips [first, end) of some queries, chunk by chunk. `of` is a strip of their item. */
static void run_strips(const AttentionStrip *of, const Strips *all, int64_t first, int64_t end) {
  AttentionStrip strips[CHUNK_STRIPS];
  for (int64_t begin = first, n; begin < end; begin += n) {
    n = least_of(CHUNK_STRIPS, end - begin);
    for (int64_t i = 0; i < n; i++) {
      AttentionStrip *strip = &strips[i];
      *strip = *of;
      strip->row = strip_row(all, begin + i);
      strip->rows = strip_row(all, begin + i + 1) - strip->row;
      strip->state = strip->row - strips->row;
      strip->seen = keys_seen(of->attention, of->item, strip->row + strip->rows - 1);
    }
    run_chunk(strips, n);
  }
}

/* The strips of a part of an item; of its queries only the live ones, run by run. */
static void run_part(const AttentionStrip *of, int64_t part) {
  const Attention *a = of->attention;
  const LiveRows *live = &of->item->live;
  const Strips all = all_strips(a);
  const int64_t begin = a->strips * part / a->cuts, end = a->strips * (part + 1) / a->cuts;
  if (!live->mask) {
    run_strips(of, &all, begin, end);
    return;
  }
  const int64_t row_bytes = a->step->e * (int64_t)sizeof(float);
  const ClearJob job = {.rows = of->item->c, .stride = row_stride(a, a->c), .bytes = row_bytes};
  int64_t row = strip_row(&all, begin), end_row = strip_row(&all, end), first, rows;
  if (live->zeroed) live_clear(live, row, end_row, &job);
  for (; (rows = live_run(live, true, row, end_row, &first)) > 0; row = first + rows) {
    const Strips run = {first, rows, ceil_div(rows, a->strip_rows)};
    run_strips(of, &run, 0, run.n);
  }
}

void attention_run(Walker *walker, const tfm_step *step, const Int8Attention *int8) {
  const tfm_context *context = walker->context;
  Attention a = attention_of(context, step, int8, walker->threads);
  if (a.items <= 0 || a.queries <= 0) return;
  attention_choose_outputs(context, step, &a);
  AttentionScratch scratch;
  attention_scratch(&a, walker->scratch, &scratch);
  AttentionItem item = {.number = -1};
  const AttentionStrip of = {.walker = walker, .attention = &a, .scratch = &scratch, .item = &item};
  int64_t units = a.items * a.cuts, lump = share_coarsen(units), ignored, number;
  Claimer claimer = walker_claimer(walker, 1, ceil_div(units, lump));
  claimer.keeps = int8 && a.queries * a.keys <= SHORT_SCORES;
  while (share_claim(&claimer, &ignored, &number)) {
    for (int64_t unit = number * lump; unit < least_of(units, (number + 1) * lump); unit++) {
      if (unit / a.cuts != item.number) item = enter_item(context, &a, &scratch, &item, unit / a.cuts);
      run_part(&of, unit % a.cuts);
    }
  }
}

// ---- f32 ----

void step_attention(Walker *walker, const tfm_step *step) { attention_run(walker, step, NULL); }

int64_t attention_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  return attention_bytes(context, step, NULL);
}
