/* Attention in whole numbers of 8 bits: what differs from attention_strip.h, which leads the strips of queries through
 * blocks of keys here too.
 *
 * In: rows of queries, keys and values, f32. Each is rounded by itself, so its numbers depend neither on the batch nor
 * on what else is asked for. A block of keys becomes panels of bytes, 128 too large, with a scale for each key; a block
 * of values becomes panels of signed bytes. Scores are f32 again when the tile is done, and go through the score
 * expression and the softmax as ever. Then the weights of a block, times the scales of their values, are rounded
 * together, and what they give is added to what the row has. Out: the results. Refused: nothing; what is not finite
 * makes scales NaN, and a weight of 0 leaves no trace of its value. */
#include "steps/attention_int8.h"

#include "steps/step_attention.h"

#include <string.h>

enum {
  FOUR = 4,          /* numbers that tiles take together */
  ROWS_TOGETHER = 16 /* of keys or values: what one call of a kernel rounds, a multiple of four */
};

static int64_t fours(int64_t n) { return ceil_div(n, FOUR); }

/* Floats of a panel of keys: bytes of four columns of the head together, then the scales. */
static int64_t key_panel_floats(const tfm_attention_step *step) { return step->qk_width * (fours(step->h) + 1); }

static int64_t value_panel_floats(const tfm_attention_step *step) { return step->pv_width * fours(TFM_KEY_BLOCK); }

// ---- scratch ----

Int8Scratch int8_scratch(const tfm_attention_step *step) {
  const int64_t columns = greatest_of(step->h, step->e);
  Int8Scratch s = {.q_floats = tfm_whole_row_floats(step->a_bytes, step->h),
                    .weights_floats = tfm_whole_row_floats(step->a_bytes, TFM_KEY_BLOCK),
                    .row_floats = tfm_whole_row_floats(1, columns)};
  s.weights = s.q + TFM_MAX_TILE_ROWS * s.q_floats;
  s.row = s.weights + TFM_MAX_TILE_ROWS * s.weights_floats;
  s.work = s.row + ROWS_TOGETHER * s.row_floats;
  s.floats = s.work + round_up(columns, ALIGNMENT / (int64_t)sizeof(float));
  return s;
}

/* Slots of keys and values, and what a thread needs beside them. */
static int64_t size_slots(Attention *a) {
  const tfm_attention_step *step = a->step;
  const int64_t keys = least_of(a->keys, TFM_KEY_BLOCK), line = ALIGNMENT / (int64_t)sizeof(float);
  a->key_slot_floats = round_up(ceil_div(keys, step->qk_width) * key_panel_floats(step), line);
  a->value_slot_floats = TFM_KEY_BLOCK + ceil_div(step->e, step->pv_width) * value_panel_floats(step);
  return int8_scratch(step).floats;
}

// ---- a block of keys and values ----

/* The numbers of a row of bytes; its scale stands behind them. */
static const char *numbers_of(const float *row) { return (const char *)(row + TFM_ROW_HEAD); }

static float scale_of(const float *row, int64_t columns) { return row[TFM_ROW_HEAD + fours(columns)]; }

typedef uint32_t Words4 __attribute__((vector_size(16)));
typedef uint8_t Bytes8 __attribute__((vector_size(8)));
typedef uint8_t Bytes16 __attribute__((vector_size(16)));
typedef uint16_t Pairs8 __attribute__((vector_size(16)));

static void put_words(float *at, Words4 words) { memcpy(at, &words, sizeof words); }

/* Four numbers of a key lie together, and beside them those of the next key: 4 x 4 of them change places at a time.
 * Returns how many fours of numbers it has done. */
static int64_t turn_keys(const char *const *rows, int64_t n, int64_t width, float *column) {
  int64_t i = 0;
  for (; i + FOUR <= n; i += FOUR, column += FOUR * width) {
    Words4 r[FOUR];
    for (int k = 0; k < FOUR; k++) {
      memcpy(&r[k], rows[k] + i * FOUR, sizeof r[k]);
      r[k] ^= 0x80808080u; /* + 128 */
    }
    const Words4 a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const Words4 c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const Words4 b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const Words4 d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    put_words(column, __builtin_shufflevector(a, b, 0, 1, 4, 5));
    put_words(column + width, __builtin_shufflevector(a, b, 2, 3, 6, 7));
    put_words(column + 2 * width, __builtin_shufflevector(c, d, 0, 1, 4, 5));
    put_words(column + 3 * width, __builtin_shufflevector(c, d, 2, 3, 6, 7));
  }
  return i;
}

/* Keys that do not exist are columns that are dropped. */
void int8_put_keys(const char *const *rows, int64_t n, int64_t width, float *column) {
  for (int64_t i = turn_keys(rows, n, width, column); i < n; i++)
    for (int k = 0; k < FOUR; k++) {
      uint32_t numbers;
      memcpy(&numbers, rows[k] + i * FOUR, sizeof numbers);
      numbers ^= 0x80808080u;
      memcpy(column + i * width + k, &numbers, sizeof numbers);
    }
}

void int8_interleave(const char *const *rows, int64_t columns, char *to) {
  for (int64_t i = 0; i < columns; i += 8, to += 8 * FOUR) {
    Bytes8 r[FOUR];
    for (int k = 0; k < FOUR; k++) memcpy(&r[k], rows[k] + i, sizeof r[k]);
    const Bytes16 ab = __builtin_shufflevector(r[0], r[1], 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const Bytes16 cd = __builtin_shufflevector(r[2], r[3], 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const Pairs8 x = (Pairs8)ab, y = (Pairs8)cd;
    const Pairs8 first = __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11);
    const Pairs8 second = __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15);
    memcpy(to, &first, sizeof first);
    memcpy(to + sizeof first, &second, sizeof second);
  }
}

/* Columns that do not exist are computed too, and dropped. What stands in place of their scales must be no subnormal
 * number: CPUs take a hundred times as long for such. */
static void clear_scales(float *scales, int64_t first, int64_t end) {
  for (int64_t i = first; i < end; i++) scales[i] = 0;
}

typedef struct Block { /* of n keys of an item */
  const char *k, *v;
  int64_t k_stride, v_stride; /* bytes between keys */
  int64_t n;
} Block;

/* Up to ROWS_TOGETHER rows, as bytes, in scratch. */
static void round_rows(tfm_quantize_kernel whole, const char *x, int64_t stride, int64_t rows, const Int8Scratch *s,
                       float *base) {
  whole((const float *)(const void *)x, stride, rows, base + s->work, base + s->row + TFM_ROW_HEAD,
        s->row_floats * (int64_t)sizeof(float));
}

static void load_keys(const AttentionStrip *strip, const Block *block, const Int8Scratch *s, float *panels) {
  const tfm_attention_step *step = strip->attention->step;
  const tfm_quantize_kernel whole = KERNEL_OF(tfm_quantize_kernel, strip->walker->context, step->whole_k);
  float *base = strip->scratch->form;
  const float *row = base + s->row;
  const int64_t last = block->n % step->qk_width;
  float *cut = panels + block->n / step->qk_width * key_panel_floats(step);
  if (last) clear_scales(cut + fours(step->h) * step->qk_width, last, step->qk_width);
  for (int64_t key = 0, rows; key < block->n; key += rows) {
    const int64_t in_panel = key % step->qk_width;
    float *column = panels + key / step->qk_width * key_panel_floats(step) + in_panel;
    rows = least_of(least_of(ROWS_TOGETHER, step->qk_width - in_panel), block->n - key);
    round_rows(whole, block->k + key * block->k_stride, block->k_stride, rows, s, base);
    for (int64_t i = 0; i < rows; i += FOUR) {
      const char *numbers[FOUR];
      for (int64_t k = 0; k < FOUR; k++) numbers[k] = numbers_of(row + (i + k) * s->row_floats);
      int8_put_keys(numbers, fours(step->h), step->qk_width, column + i);
    }
    float *scales = column + fours(step->h) * step->qk_width;
    for (int64_t i = 0; i < rows; i++) scales[i] = scale_of(row + i * s->row_floats, step->h);
  }
}

/* The scales stand before the panels. Rows that fill up the last four count with a weight of 0. */
static void load_values(const AttentionStrip *strip, const Block *block, const Int8Scratch *s, float *values) {
  const tfm_attention_step *step = strip->attention->step;
  const tfm_quantize_kernel whole = KERNEL_OF(tfm_quantize_kernel, strip->walker->context, step->whole_v);
  float *base = strip->scratch->form;
  float *panels = values + TFM_KEY_BLOCK;
  clear_scales(values, block->n, round_up(block->n, ALIGNMENT / (int64_t)sizeof(float)));
  for (int64_t first = 0; first < block->n; first += FOUR) {
    const char *numbers[FOUR];
    const int64_t at = first % ROWS_TOGETHER, rows = least_of(ROWS_TOGETHER, block->n - first);
    if (at == 0) round_rows(whole, block->v + first * block->v_stride, block->v_stride, rows, s, base);
    for (int64_t i = 0; i < FOUR; i++) {
      const float *row = base + s->row + (at + i) * s->row_floats;
      if (first + i < block->n) values[first + i] = scale_of(row, step->e);
      numbers[i] = numbers_of(row);
    }
    for (int64_t column = 0; column < step->e; column += step->pv_width) {
      int8_interleave(numbers, step->pv_width, (char *)(panels + first / FOUR * step->pv_width));
      for (int i = 0; i < FOUR; i++) numbers[i] += step->pv_width;
      panels += value_panel_floats(step);
    }
    panels = values + TFM_KEY_BLOCK;
  }
}

static void load_int8(const AttentionStrip *strip, const KeyBlock *keys) {
  const Attention *a = strip->attention;
  const AttentionScratch *scratch = strip->scratch;
  const AttentionItem *item = strip->item;
  const Int8Scratch s = int8_scratch(a->step);
  const int64_t k_stride = a->k->strides[a->step->rank - 2], v_stride = a->v->strides[a->step->rank - 2];
  const Block block = {item->k + keys->first * k_stride, item->v + keys->first * v_stride, k_stride, v_stride, keys->n};
  load_keys(strip, &block, &s, scratch->keys + keys->slot * a->key_slot_floats);
  if (!a->c_wanted) return;
  load_values(strip, &block, &s, scratch->values + keys->slot * a->value_slot_floats);
}

// ---- a strip of queries ----

const float *int8_queries(const AttentionStrip *strip, const Int8Scratch *s) {
  const Attention *a = strip->attention;
  const int64_t stride = a->q->strides[a->step->rank - 2];
  float *whole = strip->scratch->form, *numbers = whole + s->q + TFM_ROW_HEAD;
  KERNEL_OF(tfm_quantize_kernel, strip->walker->context, a->step->whole_q)
  ((const float *)(const void *)(strip->item->q + strip->row * stride), stride, strip->rows, whole + s->work, numbers,
   s->q_floats * (int64_t)sizeof(float));
  return numbers;
}

/* The softmax that follows finds the scales of the block's values behind the strip. */
static void score(const AttentionStrip *strip, const KeyBlock *keys) {
  const Attention *a = strip->attention;
  const AttentionScratch *scratch = strip->scratch;
  const tfm_attention_step *step = a->step;
  const Int8Scratch s = int8_scratch(step);
  const int64_t rows = strip->rows, n = keys->n;
  const float *q = int8_queries(strip, &s), *packed = scratch->keys + keys->slot * a->key_slot_floats;
  const float *scales = scratch->values + keys->slot * a->value_slot_floats;
  memcpy(scratch->strip + TFM_STRIP_SCALES, &scales, sizeof scales);
  const int64_t tiles = ceil_div(rows, step->tile_rows);
  for (int64_t i = 0; i < tiles; i++) {
    const int64_t first = rows * i / tiles, end = rows * (i + 1) / tiles;
    const tfm_tile_kernel tile = KERNEL_OF(tfm_tile_kernel, strip->walker->context, step->qk_tiles[end - first]);
    const float *panel = packed, *of_tile = q + first * s.q_floats;
    float *scores = scratch->strip + first * TFM_STRIP_STRIDE;
    for (int64_t key = 0; key < n; key += step->qk_width, panel += key_panel_floats(step))
      tile(of_tile, panel, scores + key, TFM_STRIP_STRIDE, step->h, 0, least_of(step->qk_width, n - key), panel, 0);
  }
}

void int8_add_rows(float *to, int64_t stride, const float *from, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i++, to += stride, from += TFM_STRIP_STRIDE)
    for (int64_t j = 0; j < columns; j++) to[j] += from[j];
}

/* The strip has done its duty when the weights are rounded, and holds what is added to c. */
static void add_int8(const AttentionStrip *strip, const KeyBlock *keys) {
  const AttentionScratch *scratch = strip->scratch;
  const tfm_context *context = strip->walker->context;
  const tfm_attention_step *step = strip->attention->step;
  const Int8Scratch s = int8_scratch(step);
  const int64_t rows = strip->rows, n = keys->n;
  const float *values = scratch->values + keys->slot * strip->attention->value_slot_floats;
  float *weights = scratch->form + s.weights + TFM_ROW_HEAD;
  KERNEL_OF(tfm_weigh_kernel, context, step->weigh)(scratch->strip, rows, n, values, weights);
  const int64_t tiles = ceil_div(rows, step->tile_rows);
  int64_t c_stride;
  float *c = attention_place(strip, keys->number, &c_stride);
  const bool begins = attention_begins(keys->number);
  values += TFM_KEY_BLOCK;
  for (int64_t column = 0; column < step->e; column += step->pv_width, values += value_panel_floats(step)) {
    const int64_t columns = least_of(step->pv_width, step->e - column);
    float *to = begins ? c + column : scratch->strip;
    const int64_t stride = begins ? c_stride : TFM_STRIP_STRIDE;
    for (int64_t i = 0; i < tiles; i++) {
      const int64_t first = rows * i / tiles, end = rows * (i + 1) / tiles;
      KERNEL_OF(tfm_tile_kernel, context, step->pv_tiles[end - first])
      (weights + first * s.weights_floats, values, to + first * stride, stride, n, 0, columns, values, 0);
    }
    if (!begins) int8_add_rows(c + column, c_stride, scratch->strip, rows, columns);
  }
}

static const Int8Attention functions = {.size_slots = size_slots, .load = load_int8, .score = score, .add = add_int8};

void step_attention_int8(Walker *walker, const tfm_step *step) { attention_run(walker, step, &functions); }

int64_t attention_int8_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  return attention_bytes(context, step, &functions);
}
