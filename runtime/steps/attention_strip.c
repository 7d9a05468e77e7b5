/* In: a strip of queries and its scores of a block of keys. Out: their weights, and sums that are scaled as these need.
 * See attention_strip.h.
 *
 * This is the online softmax of Milakov and Gimelshein, 2018; FlashAttention, Dao et al., 2022, walks blocks in the
 * same way. Results accumulate in place in c; when the maximum of a row grows, what is there is scaled down. The
 * weights, if they are an output, go the same way: each block's are written as they are and scaled with c.
 *
 * Every TFM_CHAIN keys, counted from key 0, are sums of their own, which are added in a fixed tree (partial_sums.h): of
 * values, in c, and of weights, in scratch->sum. All have the same maximum, so what waits is scaled too. */
#include "steps/attention_strip.h"

#include <math.h>
#include <string.h>

#include "base/allocate.h"
#include "steps/partial_sums.h"

// ---- scratch ----

/* Floats of what waits of a level: values, and behind them a sum of weights for each row. */
static int64_t level_floats(const tfm_attention_step *step) { return CHUNK_ROWS * (step->e + 1); }

__attribute__((cold)) int64_t attention_scratch(const Attention *a, char *base, AttentionScratch *scratch) {
  const int64_t size = sizeof(float);
  Layout layout = {.block = base};
  scratch->keys = layout_take(&layout, a->slots * a->key_slot_floats, size);
  scratch->values = layout_take(&layout, a->slots * a->value_slot_floats, size);
  scratch->strip = layout_take(&layout, (int64_t)TFM_MAX_TILE_ROWS * TFM_STRIP_STRIDE, size);
  scratch->maximum = layout_take(&layout, CHUNK_ROWS, size);
  scratch->sum = layout_take(&layout, CHUNK_ROWS, size);
  scratch->scale = layout_take(&layout, CHUNK_ROWS, size);
  scratch->waiting = layout_take(&layout, partial_levels(a->keys) * level_floats(a->step), size);
  scratch->form = layout_take(&layout, a->form_floats, size);
  scratch->loaded = layout_take(&layout, a->slots, (int64_t)sizeof *scratch->loaded);
  scratch->finite = layout_take(&layout, a->slots, (int64_t)sizeof *scratch->finite);
  return layout.bytes;
}

void attention_begin(const AttentionScratch *scratch, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    scratch->maximum[i] = -INFINITY;
    scratch->sum[i] = 0;
  }
}

static int64_t c_stride(const AttentionStrip *s) { return s->attention->c->strides[s->attention->step->rank - 2]; }
static char *c_row(const AttentionStrip *s, int64_t row) { return s->item->c + row * c_stride(s); }

static PartialSums sums_of_values(const AttentionStrip *s) {
  const int64_t e = s->attention->step->e;
  return (PartialSums){.c = (float *)c_row(s, s->row),
                       .c_stride = c_stride(s) / (int64_t)sizeof(float),
                       .waiting = s->scratch->waiting + s->state * e,
                       .stride = e,
                       .level = level_floats(s->attention->step),
                       .rows = s->rows,
                       .columns = e};
}

/* Behind the values of each level. */
static PartialSums sums_of_weights(const AttentionStrip *s) {
  return (PartialSums){.c = s->scratch->sum + s->state,
                       .c_stride = 1,
                       .waiting = s->scratch->waiting + CHUNK_ROWS * s->attention->step->e + s->state,
                       .stride = 1,
                       .level = level_floats(s->attention->step),
                       .rows = s->rows,
                       .columns = 1};
}

float *attention_place(const AttentionStrip *s, int64_t block, int64_t *stride) {
  const PartialSums values = sums_of_values(s);
  return partial_place(&values, block / (TFM_CHAIN / TFM_KEY_BLOCK), stride);
}

// ---- weights as an output ----

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

static const int64_t *weight_strides(const AttentionStrip *s) {
  return s->attention->weights->strides + s->attention->step->rank - 2;
}

/* The block's columns. Columns of earlier blocks are scaled like c, because they were computed with a smaller
 * maximum. */
static void store_weights(const AttentionStrip *s, const KeyBlock *keys, const float *scale) {
  const int64_t *strides = weight_strides(s);
  for (int64_t i = 0; i < s->rows; i++) {
    char *target = s->item->weights + (s->row + i) * strides[0];
    scale_numbers(target, strides[1], keys->first, scale[i]);
    target += keys->first * strides[1];
    const float *source = s->scratch->strip + i * TFM_STRIP_STRIDE;
    if (strides[1] == sizeof(float)) {
      memcpy(target, source, (size_t)keys->n * sizeof(float));
      continue;
    }
    for (int64_t key = 0; key < keys->n; key++) memcpy(target + key * strides[1], source + key, sizeof(float));
  }
}

/* Divides the columns that were seen, and clears the others. */
static void finish_weights(const AttentionStrip *s, const float *factor) {
  const int64_t *strides = weight_strides(s);
  const float zero = 0;
  for (int64_t i = 0; i < s->rows; i++) {
    char *target = s->item->weights + (s->row + i) * strides[0];
    scale_numbers(target, strides[1], s->seen, factor[i]);
    for (int64_t key = s->seen; key < s->attention->keys; key++) memcpy(target + key * strides[1], &zero, sizeof zero);
  }
}

// ---- a block ----

void attention_finish_scores(const AttentionStrip *s, const KeyBlock *keys) {
  const Attention *a = s->attention;
  const int64_t stride = TFM_STRIP_STRIDE * (int64_t)sizeof(float);
  char *strip = (char *)s->scratch->strip;
  if (s->item->is_plain || !a->score.kernel) return;
  if (!s->item_step) {
    epilogue_run(s->walker, &a->score, strip, stride,
                 &(Region){s->item->number * a->queries + s->row, s->rows, keys->first, keys->n});
    return;
  }
  for (int64_t i = 0; i < s->rows; i++)
    epilogue_run(s->walker, &a->score, strip + i * stride, stride,
                 &(Region){s->item->number + i * s->item_step, 1, keys->first, keys->n});
}

/* c[rows] *= factor[rows]. */
static void scale_rows(const AttentionStrip *s, float *c, int64_t stride, float *factor) {
  const int64_t row_bytes = stride * (int64_t)sizeof(float);
  tfm_row_args args;
  memset(args.coordinates, 0, sizeof args.coordinates);
  args.rows = s->rows;
  args.columns = s->attention->step->e;
  args.faults = s->walker->faults;
  args.operands[0] = args.operands[1] = (tfm_row_operand){(char *)c, row_bytes, sizeof(float)};
  args.operands[2] = (tfm_row_operand){(char *)factor, sizeof(float), 0};
  KERNEL_OF(tfm_row_kernel, s->walker->context, s->attention->step->scale_rows)(&args);
}

/* The sums of weights of the block's chain are scaled by the softmax kernel. */
static void scale_sums(const AttentionStrip *s, int64_t first_key) {
  float *scale = s->scratch->scale + s->state;
  int64_t stride, before = partial_blocks(first_key / TFM_CHAIN);
  const PartialSums weights = sums_of_weights(s);
  for (int64_t block = 0; block < before; block++) {
    float *sum = partial_block(&weights, block, &stride);
    for (int64_t i = 0; i < s->rows; i++) sum[i] *= scale[i];
  }
  if (!s->attention->c_wanted) return;
  const PartialSums values = sums_of_values(s);
  if (first_key % TFM_CHAIN) before++; /* the chain's own, which is there */
  for (int64_t block = 0; block < before; block++) {
    float *c = partial_block(&values, block, &stride);
    scale_rows(s, c, stride, scale);
  }
}

/* Usual once the maximum has been seen: then scaling would change nothing. */
static bool all_one(const float *factor, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!(factor[i] == 1)) return false;
  return true;
}

bool attention_soften(const AttentionStrip *s, const KeyBlock *keys) {
  const Attention *a = s->attention;
  float *scale = s->scratch->scale + s->state;
  int64_t ignored;
  const PartialSums weights = sums_of_weights(s);
  float *sum = partial_place(&weights, keys->first / TFM_CHAIN, &ignored);
  if (keys->first % TFM_CHAIN == 0) memset(sum, 0, (size_t)s->rows * sizeof *sum);
  KERNEL_OF(tfm_softmax_kernel, s->walker->context, a->step->softmax)
  (s->scratch->strip, s->rows, keys->n, s->scratch->maximum + s->state, sum, scale);
  if (a->weights) store_weights(s, keys, scale);
  if (keys->first > 0 && !all_one(scale, s->rows)) scale_sums(s, keys->first);
  return a->c_wanted;
}

void attention_end_block(const AttentionStrip *s, int64_t block) {
  const int64_t chains = partial_chains(s->seen), chain = block / (TFM_CHAIN / TFM_KEY_BLOCK);
  if (chains == 1 || (!attention_begins(block + 1) && (block + 1) * TFM_KEY_BLOCK < s->seen)) return;
  const PartialSums weights = sums_of_weights(s);
  partial_add(&weights, chain, chains);
  if (!s->attention->c_wanted) return;
  const PartialSums values = sums_of_values(s);
  partial_add(&values, chain, chains);
}

// ---- the end ----

/* A row whose keys are all masked has the sum 0; its result is 0, not NaN. */
void attention_finish(const AttentionStrip *s) {
  const float *sum = s->scratch->sum + s->state;
  float *factor = s->scratch->scale + s->state;
  for (int64_t i = 0; i < s->rows; i++) factor[i] = sum[i] == 0 ? 0 : 1 / sum[i];
  if (s->attention->weights) finish_weights(s, factor);
  if (!s->attention->c_wanted) return;
  if (s->seen > 0) {
    scale_rows(s, (float *)c_row(s, s->row), c_stride(s) / (int64_t)sizeof(float), factor);
    return;
  }
  for (int64_t i = 0; i < s->rows; i++)
    memset(c_row(s, s->row + i), 0, (size_t)s->attention->step->e * sizeof(float));
}
