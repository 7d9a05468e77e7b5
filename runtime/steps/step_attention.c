/* Attention: cuts the step into units, packs keys and values, and leads the strips of queries through the key blocks.
 *
 * A unit is a range of strips of one batch item (a head of a sequence). Strips go through the blocks of TFM_KEY_BLOCK
 * keys in chunks, so that a block is used while it is in the cache. Blocks count from key 0 in every row, and keys that
 * are left out (after the query in causal attention, padding at the end) have weight exactly 0. */
#include "steps/step_attention.h"

#include <math.h>
#include <string.h>

#include "steps/step_attention_grad.h"
#include "steps/partial_sums.h"
#include "steps/attention_int8.h"

/* The functions that take the place of those for f32; NULL: none do. */
static const struct tfm_whole_attention *whole_attention_of(const tfm_context *context,
                                                            const tfm_attention_step *step) {
  return step->form == TFM_FORM_INT8 ? context->program->whole_attention() : NULL;
}

// ---- one strip of queries ----

/* Scores of a block of keys, their softmax, the weighted sums of values, and the division at the end (the online
 * softmax of Milakov and Gimelshein, 2018; FlashAttention, Dao et al., 2022, walks blocks in the same way). Results
 * accumulate in place in c; when the maximum of a row grows, what is there is scaled down. The weights, if they are an
 * output, go the same way: each block's are written as they are and scaled with c.
 *
 * Every TFM_CHAIN keys, counted from key 0, are sums of their own, which are added in a fixed tree (partial_sums.h): of
 * values, in c, and of weights, in scratch->sum. All have the same maximum, so what waits is scaled too. */

static PartialSums sums_of_values(const Attention *attention, const AttentionScratch *scratch,
                                  const AttentionItem *item, int64_t row, int64_t rows, int64_t state) {
  int64_t e = attention->step->e, stride = attention->c->strides[attention->step->rank - 2];
  return (PartialSums){.c = (float *)(item->c + row * stride),
                       .c_stride = stride / (int64_t)sizeof(float),
                       .waiting = scratch->waiting + state * e,
                       .stride = e,
                       .level = CHUNK_ROWS * (e + 1),
                       .rows = rows,
                       .columns = e};
}

/* Behind the values of each level. */
static PartialSums sums_of_weights(const Attention *attention, const AttentionScratch *scratch, int64_t rows,
                                   int64_t state) {
  int64_t e = attention->step->e;
  return (PartialSums){.c = scratch->sum + state,
                       .c_stride = 1,
                       .waiting = scratch->waiting + CHUNK_ROWS * e + state,
                       .stride = 1,
                       .level = CHUNK_ROWS * (e + 1),
                       .rows = rows,
                       .columns = 1};
}

int64_t attention_waiting(const tfm_attention_step *step, int64_t keys) {
  return partial_levels(keys) * CHUNK_ROWS * (step->e + 1);
}

float *attention_place(const Attention *attention, const AttentionScratch *scratch, const AttentionItem *item,
                       int64_t row, int64_t state, int64_t block, int64_t *stride) {
  const PartialSums values = sums_of_values(attention, scratch, item, row, 1, state);
  return partial_place(&values, block / (TFM_CHAIN / TFM_KEY_BLOCK), stride);
}

/* numbers[i * stride] *= factor, for memory of any alignment. */
static void scale_numbers(char *numbers, int64_t stride, int64_t n, float factor) {
  if (factor == 1) return;
  for (int64_t i = 0; i < n; i++) {
    float number;
    memcpy(&number, numbers + i * stride, sizeof number);
    number *= factor;
    memcpy(numbers + i * stride, &number, sizeof number);
  }
}

/* The block's columns of the weights output. Columns of earlier blocks are scaled like c, because they were computed
 * with a smaller maximum. */
static void store_weights(const Attention *attention, const AttentionItem *item, const float *strip,
                          const float *scale, int64_t row, int64_t rows, int64_t first_key, int64_t n) {
  const int64_t *strides = attention->weights->strides + attention->step->rank - 2;
  for (int64_t i = 0; i < rows; i++) {
    char *target = item->weights + (row + i) * strides[0];
    scale_numbers(target, strides[1], first_key, scale[i]);
    const float *source = strip + i * TFM_STRIP_STRIDE;
    if (strides[1] == sizeof(float)) {
      memcpy(target + first_key * strides[1], source, (size_t)n * sizeof(float));
      continue;
    }
    for (int64_t key = 0; key < n; key++) memcpy(target + (first_key + key) * strides[1], source + key, sizeof(float));
  }
}

/* c[rows] *= factor[rows]. */
static void scale_rows(const Walker *walker, const Attention *attention, float *c, int64_t stride, int64_t rows,
                       float *factor) {
  const int64_t row_bytes = stride * (int64_t)sizeof(float);
  tfm_row_args args;
  memset(args.coordinates, 0, sizeof args.coordinates);
  args.rows = rows;
  args.columns = attention->step->e;
  args.faults = (int32_t *)&walker->context->run.faults;
  args.operands[0] = args.operands[1] = (tfm_row_operand){(char *)c, row_bytes, sizeof(float)};
  args.operands[2] = (tfm_row_operand){(char *)factor, sizeof(float), 0};
  KERNEL_OF(tfm_row_kernel, walker->context, attention->step->scale_rows)(&args);
}

/* The sums of weights of the block's chain are scaled by the softmax kernel. */
static void scale_sums(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                       const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t first_key) {
  float *scale = scratch->scale + state;
  int64_t stride, before = partial_blocks(first_key / TFM_CHAIN);
  const PartialSums weights = sums_of_weights(attention, scratch, rows, state);
  for (int64_t block = 0; block < before; block++) {
    float *sum = partial_block(&weights, block, &stride);
    for (int64_t i = 0; i < rows; i++) sum[i] *= scale[i];
  }
  if (!attention->c_wanted) return;
  const PartialSums values = sums_of_values(attention, scratch, item, row, rows, state);
  if (first_key % TFM_CHAIN) before++; /* the chain's own, which is there */
  for (int64_t block = 0; block < before; block++) {
    float *c = partial_block(&values, block, &stride);
    scale_rows(walker, attention, c, stride, rows, scale);
  }
}

/* Usual once the maximum has been seen: then scaling would change nothing. */
static bool all_one(const float *factor, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!(factor[i] == 1)) return false;
  return true;
}

/* c += strip * v. A value that is infinite or NaN needs the exact tiles, in which a weight of 0 contributes 0: in the
 * others 0 * inf would be NaN for keys that are masked. */
static void add_block(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                      const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t block, int64_t n,
                      int64_t slot) {
  const tfm_attention_step *step = attention->step;
  int64_t c_stride, v_stride = attention->v->strides[step->rank - 2];
  tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, walker->context,
                                     scratch->finite[slot] ? step->pv_tiles[rows] : step->pv_exact_tiles[rows]);
  const float *in_place = (const float *)(item->v + block * TFM_KEY_BLOCK * v_stride);
  const float *packed = scratch->values + slot * attention->value_slot_floats;
  float *c = attention_place(attention, scratch, item, row, state, block, &c_stride);
  for (int64_t column = 0; column < step->e; column += step->pv_width) {
    const float *v = step->v_packed ? packed + column * TFM_KEY_BLOCK : in_place + column;
    kernel(scratch->strip, v, c + column, c_stride, n, !attention_begins(block),
           least_of(step->pv_width, step->e - column), v, 0);
  }
}

static int64_t are_finite(const Walker *walker, const Attention *a, const float *values, int64_t stride, int64_t n) {
  return KERNEL_OF(tfm_finite_kernel, walker->context, a->step->finite)(values, stride / (int64_t)sizeof(float), n,
                                                                          a->step->e);
}

/* The values of one query are read once: where one of them is infinite or NaN, so is a result, and only then they are
 * looked at. c as it was lies behind the strip's only row. */
static void add_values(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                       const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t block, int64_t n,
                       int64_t slot) {
  const tfm_attention_step *step = attention->step;
  float *before = scratch->strip + TFM_STRIP_STRIDE;
  int64_t stride, v_stride = attention->v->strides[step->rank - 2];
  float *c = attention_place(attention, scratch, item, row, state, block, &stride);
  if (attention->one_query) memcpy(before, c, (size_t)step->e * sizeof *c);
  add_block(walker, attention, scratch, item, row, rows, state, block, n, slot);
  if (!attention->one_query || are_finite(walker, attention, c, 0, 1)) return;
  const float *values = (const float *)(item->v + block * TFM_KEY_BLOCK * v_stride);
  scratch->finite[slot] = are_finite(walker, attention, values, v_stride, n);
  if (scratch->finite[slot]) return;
  memcpy(c, before, (size_t)step->e * sizeof *c);
  add_block(walker, attention, scratch, item, row, rows, state, block, n, slot);
}

bool attention_soften(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                      const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t first_key,
                      int64_t n) {
  float *scale = scratch->scale + state;
  int64_t ignored;
  const PartialSums weights = sums_of_weights(attention, scratch, rows, state);
  float *sum = partial_place(&weights, first_key / TFM_CHAIN, &ignored);
  if (first_key % TFM_CHAIN == 0) memset(sum, 0, (size_t)rows * sizeof *sum);
  KERNEL_OF(tfm_softmax_kernel, walker->context, attention->step->softmax)
  (scratch->strip, rows, n, scratch->maximum + state, sum, scale);
  if (attention->weights) store_weights(attention, item, scratch->strip, scale, row, rows, first_key, n);
  if (first_key > 0 && !all_one(scale, rows)) scale_sums(walker, attention, scratch, item, row, rows, state, first_key);
  return attention->c_wanted;
}

void attention_end_block(const Attention *attention, const AttentionScratch *scratch, const AttentionItem *item,
                         int64_t row, int64_t rows, int64_t state, int64_t block, int64_t seen) {
  int64_t chains = partial_chains(seen);
  if (chains == 1 || (!attention_begins(block + 1) && (block + 1) * TFM_KEY_BLOCK < seen)) return;
  const PartialSums weights = sums_of_weights(attention, scratch, rows, state);
  partial_add(&weights, block / (TFM_CHAIN / TFM_KEY_BLOCK), chains);
  if (!attention->c_wanted) return;
  const PartialSums values = sums_of_values(attention, scratch, item, row, rows, state);
  partial_add(&values, block / (TFM_CHAIN / TFM_KEY_BLOCK), chains);
}

/* Keys are the lanes of vectors, so the chains are those of a tile. */
static void score_in_place(const Walker *walker, const Attention *a, const AttentionItem *item, int64_t row,
                           int64_t rows, int64_t first, int64_t n, float *strip) {
  const tfm_attention_step *step = a->step;
  const int64_t stride = a->k->strides[step->rank - 2], q_stride = a->q->strides[step->rank - 2];
  const tfm_direct_args args = {.x = item->k + first * stride,
                                .y = item->q + row * q_stride,
                                .c = (char *)strip,
                                .items = rows,
                                .rows = n,
                                .columns = 1,
                                .k = step->h,
                                .x_row = stride,
                                .x_step = sizeof(float),
                                .y_item = q_stride,
                                .y_step = sizeof(float),
                                .c_item = TFM_STRIP_STRIDE * (int64_t)sizeof(float),
                                .c_row = sizeof(float)};
  KERNEL_OF(tfm_direct_kernel, walker->context, step->keys_in_place)(&args);
}

static void score(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                  const AttentionItem *item, int64_t row, int64_t rows, int64_t n, const float *keys) {
  const tfm_attention_step *step = attention->step;
  const float *q = (const float *)(item->q + row * attention->q->strides[step->rank - 2]);
  tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, walker->context, step->qk_tiles[rows]);
  for (int64_t column = 0; column < n; column += step->qk_width)
    kernel(q, keys + column * step->h, scratch->strip + column, TFM_STRIP_STRIDE, step->h, 0,
           least_of(step->qk_width, n - column), keys + column * step->h, 0);
}

void attention_block(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                     const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t block, int64_t slot) {
  const tfm_attention_step *step = attention->step;
  int64_t first_key = block * TFM_KEY_BLOCK;
  int64_t seen = keys_seen(attention, item, row + rows - 1), n = least_of(TFM_KEY_BLOCK, seen - first_key);
  if (n <= 0) return;
  const struct tfm_whole_attention *whole = whole_attention_of(walker->context, step);
  const float *keys = scratch->keys + slot * attention->key_slot_floats;
  if (attention->keys_in_place) score_in_place(walker, attention, item, row, rows, first_key, n, scratch->strip);
  else
    (whole ? whole->score : score)(walker, attention, scratch, item, row, rows, n, keys);
  if (!item->is_plain)
    epilogue_run(walker, &attention->score, (char *)scratch->strip, TFM_STRIP_STRIDE * (int64_t)sizeof(float),
                 &(Region){item->number * attention->queries + row, rows, first_key, n});
  if (attention_soften(walker, attention, scratch, item, row, rows, state, first_key, n))
    (whole ? whole->add_values : add_values)(walker, attention, scratch, item, row, rows, state, block, n, slot);
  attention_end_block(attention, scratch, item, row, rows, state, block, seen);
}

/* Divides the columns that were seen, and clears the others. */
static void finish_weights(const Attention *attention, const AttentionItem *item, const float *factor, int64_t row,
                           int64_t rows, int64_t seen) {
  const int64_t *strides = attention->weights->strides + attention->step->rank - 2;
  const float zero = 0;
  for (int64_t i = 0; i < rows; i++) {
    char *target = item->weights + (row + i) * strides[0];
    scale_numbers(target, strides[1], seen, factor[i]);
    for (int64_t key = seen; key < attention->keys; key++) memcpy(target + key * strides[1], &zero, sizeof zero);
  }
}

/* A row whose keys are all masked has the sum 0; its result is 0, not NaN. */
void attention_finish(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                      const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t seen) {
  const tfm_attention_step *step = attention->step;
  float *factor = scratch->scale + state;
  for (int64_t i = 0; i < rows; i++) factor[i] = scratch->sum[state + i] == 0 ? 0 : 1 / scratch->sum[state + i];
  if (attention->weights) finish_weights(attention, item, factor, row, rows, seen);
  if (!attention->c_wanted) return;
  int64_t stride = attention->c->strides[step->rank - 2];
  if (seen > 0) {
    scale_rows(walker, attention, (float *)(item->c + row * stride), stride / (int64_t)sizeof(float), rows, factor);
    return;
  }
  for (int64_t i = 0; i < rows; i++) memset(item->c + (row + i) * stride, 0, (size_t)step->e * sizeof(float));
}

enum { FEW_PANELS = 4 };       /* of has_few_scores */
enum { SHORT_SCORES = 1024 };  /* of an item in int8: it takes a microsecond or two, so claiming it costs too much */
enum { UNITS_PER_THREAD = 8 }; /* causal parts differ in work: small units even it out */

// ---- sizes ----

/* What is done once a step is marked cold: small rather than fast, because every library has it. */

/* Whether reading an item's keys where they lie, once for each query, is less work than packing them and computing
 * whole panels of scores. Measured for heads of 64: up to four panels of scores it was, for eight it was not, and
 * packing into panels as narrow as a vector was never more work. */
static bool has_few_scores(const Attention *attention) {
  const tfm_attention_step *step = attention->step;
  const int64_t most = FEW_PANELS * step->qk_width;
  if (step->keys_in_place == TFM_NONE || step->qk_width <= TFM_NARROW_PANEL) return false;
  return attention->queries <= most && attention->keys <= most &&
         attention->queries * round_up(attention->keys, TFM_NARROW_PANEL) <= most;
}

/* How many packed blocks a thread holds: one where each is used once, else all of an item, so that no block is packed
 * twice. */
__attribute__((cold)) static void choose_slots(const tfm_context *context, Attention *attention) {
  const tfm_attention_step *step = attention->step;
  const struct tfm_whole_attention *whole = whole_attention_of(context, step);
  int64_t key_panels = ceil_div(TFM_KEY_BLOCK, step->qk_width);
  if (attention->keys < TFM_KEY_BLOCK) key_panels = ceil_div(attention->keys, step->qk_width);
  int64_t line = ALIGNMENT / (int64_t)sizeof(float);
  attention->key_slot_floats = round_up(key_panels * step->qk_width * step->h, line);
  if (step->v_packed)
    attention->value_slot_floats = round_up(ceil_div(step->e, step->pv_width) * step->pv_width * TFM_KEY_BLOCK, line);
  if (whole) attention->whole_floats = whole->size_slots(attention);
  /* A block is used once if no other chunk of queries and no other head needs it. */
  bool keys_are_shared = step->rank > 2 && attention->k->strides[step->rank - 3] == 0;
  bool once = attention->strips <= CHUNK_STRIPS && !keys_are_shared;
  attention->slots = once ? least_of(1, attention->key_blocks) : attention->key_blocks;
  attention->one_query = once && attention->queries == 1 && step->keys_in_place != TFM_NONE;
  attention->keys_in_place = attention->one_query || has_few_scores(attention);
}

__attribute__((cold)) Attention attention_describe(const tfm_context *context, const tfm_step *step) {
  const tfm_attention_step *info = &context->program->attentions[step->index];
  const struct attention_operands *operands = &operands_of(context, step)->attention;
  Attention a = {.step = info,
                 .q = &operands->q,
                 .k = &operands->k,
                 .v = &operands->v,
                 .c = &operands->c,
                 .items = 1,
                 .queries = value_of(context, info->dims[info->rank - 2]),
                 .keys = value_of(context, info->dims[info->rank - 1]),
                 .causal_offset = value_of(context, info->causal_offset),
                 .padding = info->padding ? &context->run.operands[info->first_operand + info->padding] : NULL,
                 .mask = info->live ? &operands->mask : NULL};
  for (int axis = 0; axis < info->rank - 2; axis++) a.items *= value_of(context, info->dims[axis]);
  a.key_blocks = ceil_div(a.keys, TFM_KEY_BLOCK);
  a.strip_rows = whole_strip_rows(info);
  a.strips = ceil_div(a.queries, a.strip_rows);
  a.parts = 1;
  a.score = epilogue_of(context, info->score, info->rank, info->n_operands, info->first_operand, info->dims);
  return a;
}

void attention_choose_outputs(const tfm_context *context, const tfm_step *step, Attention *a) {
  a->c_wanted = !operand_unwanted(context, a->c);
  const Operand *weights = &operands_of(context, step)->attention.weights;
  if (a->step->has_weights && !operand_unwanted(context, weights)) a->weights = weights;
}

static Attention attention_of(const tfm_context *context, const tfm_step *step, int32_t threads) {
  Attention a = attention_describe(context, step);
  if (a.items > 0 && a.items < UNITS_PER_THREAD * (int64_t)threads)
    a.parts = greatest_of(1, least_of(ceil_div(UNITS_PER_THREAD * (int64_t)threads, a.items), a.strips / CHUNK_STRIPS));
  choose_slots(context, &a);
  return a;
}

/* The parts of a thread's scratch, one behind the other from `base`; returns their bytes. */
__attribute__((cold)) static int64_t lay_out_scratch(const Attention *a, char *base, AttentionScratch *scratch) {
  int64_t floats[] = {a->slots * a->key_slot_floats,
                      a->slots * a->value_slot_floats,
                      (int64_t)TFM_MAX_TILE_ROWS * TFM_STRIP_STRIDE,
                      CHUNK_ROWS,
                      CHUNK_ROWS,
                      CHUNK_ROWS,
                      attention_waiting(a->step, a->keys),
                      a->whole_floats};
  float **places[] = {&scratch->keys, &scratch->values, &scratch->strip,   &scratch->maximum,
                      &scratch->sum,  &scratch->scale,  &scratch->waiting, &scratch->whole};
  int64_t bytes = 0;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    if (base) *places[i] = (float *)(base + bytes);
    bytes += round_up(floats[i] * (int64_t)sizeof(float), ALIGNMENT);
  }
  if (base) {
    scratch->loaded = (int64_t *)(base + bytes);
    scratch->finite = scratch->loaded + a->slots;
  }
  return bytes + 2 * a->slots * (int64_t)sizeof(int64_t);
}

/* Bounds the product first: sizes that would overflow are refused before the layout is computed. */
int64_t attention_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  const tfm_attention_step *info = &context->program->attentions[step->index];
  if (info->k_cache != TFM_NONE) return context->decoding.cached_steps->attention_scratch_bytes(context, info);
  int64_t keys = value_of(context, info->dims[info->rank - 1]), product;
  if (keys < 0 || __builtin_mul_overflow(keys, 64 * (info->h + info->e + TFM_KEY_BLOCK), &product)) return -1;
  Attention a = attention_of(context, step, 1);
  /* Strides of the operands are not yet resolved here: keys may be shared by heads. */
  a.slots = a.key_blocks;
  AttentionScratch scratch;
  return lay_out_scratch(&a, NULL, &scratch);
}

// ---- items ----

/* The coordinates of a batch item along the batch axes. */
static void locate_item(const tfm_context *context, const Attention *a, int64_t item, int64_t *coordinates) {
  for (int axis = a->step->rank - 3; axis >= 0; axis--) {
    int64_t dim = value_of(context, a->step->dims[axis]);
    coordinates[axis] = item % dim;
    item /= dim;
  }
}

static char *address_at(const tfm_context *context, const Attention *a, const Operand *operand,
                        const int64_t *coordinates) {
  int64_t offset = 0;
  for (int axis = 0; axis < a->step->rank - 2; axis++) offset += coordinates[axis] * operand->strides[axis];
  return element_address(context, operand, offset);
}

char *attention_address(const tfm_context *context, const Attention *a, const Operand *operand, int64_t item) {
  int64_t coordinates[TFM_MAX_RANK];
  locate_item(context, a, item, coordinates);
  return address_at(context, a, operand, coordinates);
}

/* One past the last key that the padding hint does not mask. Keys behind it are never read. */
int64_t attention_last_key(const tfm_context *context, const Attention *a, int64_t item) {
  if (!a->padding) return a->keys;
  const char *padding = attention_address(context, a, a->padding, item);
  return last_live_key(padding, a->padding->strides[a->step->rank - 1], a->keys, a->step->padding_true);
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
  locate_item(context, a, number, at);
  AttentionItem item = {.number = number,
                        .limit = attention_last_key(context, a, number),
                        .q = address_at(context, a, a->q, at),
                        .k = address_at(context, a, a->k, at),
                        .v = address_at(context, a, a->v, at),
                        .c = address_at(context, a, a->c, at),
                        .weights = a->weights ? address_at(context, a, a->weights, at) : NULL};
  if (a->mask)
    item.live = live_rows_at(context, a->step->live, address_at(context, a, a->mask, at),
                             a->mask->strides[a->step->rank - 2]);
  live_unless_all(&item.live, a->queries);
  item.is_plain = has_plain_scores(a, a->padding ? address_at(context, a, a->padding, at) : NULL, item.limit);
  bool same = before->k == item.k && before->v == item.v && before->limit == item.limit;
  if (!same)
    for (int64_t i = 0; i < a->slots; i++) scratch->loaded[i] = -1;
  return item;
}

static void pack_keys(const Walker *walker, const Attention *a, const AttentionItem *item, int64_t first, int64_t n,
                      float *packed) {
  const tfm_attention_step *step = a->step;
  const int64_t *strides = a->k->strides + step->rank - 2;
  const float *keys = (const float *)(item->k + first * strides[0]);
  tfm_pack_kernel pack = KERNEL_OF(tfm_pack_kernel, walker->context, step->pack_keys);
  int64_t key_stride = strides[0] / (int64_t)sizeof(float), h_stride = strides[1] / (int64_t)sizeof(float);
  for (int64_t key = 0; key < n; key += step->qk_width)
    pack(keys + key * key_stride, h_stride, key_stride, step->h, least_of(step->qk_width, n - key),
         packed + key * step->h);
}

static void pack_values(const Walker *walker, const Attention *a, const float *values, int64_t n, float *packed) {
  const tfm_attention_step *step = a->step;
  tfm_pack_kernel pack = KERNEL_OF(tfm_pack_kernel, walker->context, step->pack_values);
  int64_t stride = a->v->strides[step->rank - 2] / (int64_t)sizeof(float);
  for (int64_t column = 0; column < step->e; column += step->pv_width)
    pack(values + column, stride, 1, n, least_of(step->pv_width, step->e - column), packed + column * TFM_KEY_BLOCK);
}

/* Packs a block of keys (and values) unless it is there; returns its slot. */
static int64_t load_block(const Walker *walker, const Attention *a, const AttentionScratch *scratch,
                          const AttentionItem *item, int64_t block) {
  int64_t slot = a->slots == 1 ? 0 : block;
  if (scratch->loaded[slot] == block) return slot;
  scratch->loaded[slot] = block;
  const tfm_attention_step *step = a->step;
  int64_t first = block * TFM_KEY_BLOCK, n = least_of(TFM_KEY_BLOCK, item->limit - first);
  const struct tfm_whole_attention *whole = whole_attention_of(walker->context, step);
  if (whole) {
    whole->load_block(walker, a, scratch, item, first, n, slot);
    return slot;
  }
  if (a->one_query) {
    scratch->finite[slot] = true; /* until a result is not */
    return slot;
  }
  if (!a->keys_in_place) pack_keys(walker, a, item, first, n, scratch->keys + slot * a->key_slot_floats);
  if (!a->c_wanted) return slot;
  int64_t v_stride = a->v->strides[step->rank - 2];
  const float *values = (const float *)(item->v + first * v_stride);
  scratch->finite[slot] = are_finite(walker, a, values, v_stride, n);
  if (step->v_packed) pack_values(walker, a, values, n, scratch->values + slot * a->value_slot_floats);
  return slot;
}

// ---- units ----

/* All strips at once, unless the weights are an output, which need the keys that each strip saw, or some strip saw no
 * key. */
static void finish_chunk(const Walker *walker, const Attention *a, const AttentionScratch *scratch,
                         const AttentionItem *item, const Strips *all, int64_t first, int64_t end) {
  int64_t first_row = strip_row(all, first);
  int64_t strips = a->weights || keys_seen(a, item, first_row) == 0 ? 1 : end - first;
  for (int64_t strip = first; strip < end; strip += strips) {
    int64_t row = strip_row(all, strip), end_row = strip_row(all, strip + strips);
    attention_finish(walker, a, scratch, item, row, end_row - row, row - first_row, keys_seen(a, item, end_row - 1));
  }
}

static void run_chunk(const Walker *walker, const Attention *a, const AttentionScratch *scratch,
                      const AttentionItem *item, const Strips *all, int64_t first, int64_t end) {
  int64_t first_row = strip_row(all, first), rows = strip_row(all, end) - first_row;
  for (int64_t i = 0; i < rows; i++) {
    scratch->maximum[i] = -INFINITY;
    scratch->sum[i] = 0;
  }
  int64_t seen = keys_seen(a, item, first_row + rows - 1);
  for (int64_t block = 0; block * TFM_KEY_BLOCK < seen; block++) {
    int64_t slot = load_block(walker, a, scratch, item, block);
    for (int64_t strip = first; strip < end; strip++) {
      int64_t row = strip_row(all, strip);
      attention_block(walker, a, scratch, item, row, strip_row(all, strip + 1) - row, row - first_row, block, slot);
    }
  }
  finish_chunk(walker, a, scratch, item, all, first, end);
}

static void run_strips(const Walker *walker, const Attention *a, const AttentionScratch *scratch,
                       const AttentionItem *item, const Strips *all, int64_t first, int64_t end) {
  for (int64_t strip = first; strip < end; strip += CHUNK_STRIPS)
    run_chunk(walker, a, scratch, item, all, strip, least_of(end, strip + CHUNK_STRIPS));
}

/* The queries in [row, end) that are not live become 0. */
static void clear_other_queries(const Attention *a, const AttentionItem *item, int64_t row, int64_t end) {
  int64_t stride = a->c->strides[a->step->rank - 2], first, rows;
  for (; (rows = live_run(&item->live, false, row, end, &first)) > 0; row = first + rows)
    for (int64_t i = first; i < first + rows; i++) memset(item->c + i * stride, 0, (size_t)a->step->e * sizeof(float));
}

/* The strips of a part of an item; of its queries only the live ones, run by run. */
static void run_part(const Walker *walker, const Attention *a, const AttentionScratch *scratch,
                     const AttentionItem *item, int64_t part) {
  Strips all = all_strips(a);
  int64_t begin = a->strips * part / a->parts, end = a->strips * (part + 1) / a->parts;
  if (!item->live.mask) {
    run_strips(walker, a, scratch, item, &all, begin, end);
    return;
  }
  int64_t row = strip_row(&all, begin), end_row = strip_row(&all, end), first, rows;
  if (item->live.zeroed) clear_other_queries(a, item, row, end_row);
  for (; (rows = live_run(&item->live, true, row, end_row, &first)) > 0; row = first + rows) {
    Strips run = {first, rows, ceil_div(rows, a->strip_rows)};
    run_strips(walker, a, scratch, item, &run, 0, run.n);
  }
}

void step_attention(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  if (context->program->attentions[step->index].k_cache != TFM_NONE) {
    context->decoding.cached_steps->attention(walker, step);
    return;
  }
  Attention a = attention_of(context, step, walker->threads);
  if (a.items <= 0 || a.queries <= 0) return;
  attention_choose_outputs(context, step, &a);
  AttentionScratch scratch;
  lay_out_scratch(&a, walker->scratch, &scratch);
  AttentionItem item = {.number = -1};
  int64_t units = a.items * a.parts, lump = share_coarsen(units), ignored, number;
  Claimer claimer = walker_claimer(walker, 1, ceil_div(units, lump));
  claimer.keeps = whole_attention_of(context, a.step) && a.queries * a.keys <= SHORT_SCORES;
  while (share_claim(&claimer, &ignored, &number)) {
    for (int64_t unit = number * lump; unit < least_of(units, (number + 1) * lump); unit++) {
      if (unit / a.parts != item.number) item = enter_item(context, &a, &scratch, &item, unit / a.parts);
      run_part(walker, &a, &scratch, &item, unit % a.parts);
    }
  }
}

// ---- the gradient ----

/* What the program points to, so that libraries without gradients do not have it. */
void step_attention_grad(Walker *walker, const tfm_step *step) {
  walker->context->program->attention_grad()->run(walker, step);
}

int64_t attention_grad_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  return context->program->attention_grad()->scratch_bytes(context, step);
}
