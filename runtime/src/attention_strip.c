/* A strip of queries: scores of a block of keys, their softmax, the weighted sums of values, and the division at the end.
 *
 * Results accumulate in place in c; when the maximum of a row grows, what is there is scaled down. The weights, if they
 * are an output, go the same way: each block's are written as they are and scaled with c. */
#include <string.h>

#include "attention.h"

/* numbers[i * stride] *= factor, for memory of any alignment. */
static inline void scale_numbers(char *numbers, int64_t stride, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i++) {
    float number;
    memcpy(&number, numbers + i * stride, sizeof number);
    number *= factor;
    memcpy(numbers + i * stride, &number, sizeof number);
  }
}

static void scale_weights(char *row, int64_t stride, int64_t n, float factor) {
  if (factor == 1) return;
  if (stride == sizeof(float))
    scale_numbers(row, sizeof(float), n, factor);
  else
    scale_numbers(row, stride, n, factor);
}

static void store_weights(const Attention *attention, const AttentionItem *item, const float *strip,
                          const float *scale, int64_t row, int64_t rows, int64_t first_key, int64_t n) {
  const int64_t *strides = attention->weights->strides + attention->step->rank - 2;
  for (int64_t i = 0; i < rows; i++) {
    char *target = item->weights + (row + i) * strides[0];
    scale_weights(target, strides[1], first_key, scale[i]);
    const float *source = strip + i * TFM_STRIP_STRIDE;
    if (strides[1] == sizeof(float)) {
      memcpy(target + first_key * strides[1], source, (size_t)n * sizeof(float));
      continue;
    }
    for (int64_t key = 0; key < n; key++) memcpy(target + (first_key + key) * strides[1], source + key, sizeof(float));
  }
}

/* c[rows] *= factor[rows]. */
static void scale_rows(const Walker *walker, const Attention *attention, const AttentionItem *item, int64_t row,
                       int64_t rows, float *factor) {
  int64_t stride = attention->c->strides[attention->step->rank - 2];
  char *c = item->c + row * stride;
  tfm_row_args args;
  memset(args.coordinates, 0, sizeof args.coordinates);
  args.rows = rows;
  args.columns = attention->step->e;
  args.faults = (int32_t *)&walker->context->faults;
  args.operands[0] = args.operands[1] = (tfm_row_operand){c, stride, sizeof(float)};
  args.operands[2] = (tfm_row_operand){(char *)factor, sizeof(float), 0};
  KERNEL_OF(tfm_row_kernel, walker->context, attention->step->scale_rows)(&args);
}

static bool all_one(const float *factor, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!(factor[i] == 1)) return false;
  return true;
}

static void add_values(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                       const AttentionItem *item, int64_t row, int64_t rows, int64_t block, int64_t n, int64_t slot) {
  const tfm_attention_step *step = attention->step;
  int64_t c_stride = attention->c->strides[step->rank - 2], v_stride = attention->v->strides[step->rank - 2];
  tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, walker->context,
                                     scratch->finite[slot] ? step->pv_tiles[rows] : step->pv_exact_tiles[rows]);
  const float *in_place = (const float *)(item->v + block * TFM_KEY_BLOCK * v_stride);
  const float *packed = scratch->values + slot * attention->value_slot_floats;
  float *c = (float *)(item->c + row * c_stride);
  for (int64_t column = 0; column < step->e; column += step->pv_width) {
    const float *v = step->v_packed ? packed + column * TFM_KEY_BLOCK : in_place + column;
    kernel(scratch->strip, v, c + column, c_stride / (int64_t)sizeof(float), n, block > 0,
           least_of(step->pv_width, step->e - column), v, 0);
  }
}

bool attention_soften(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                      const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t first_key, int64_t n) {
  float *scale = scratch->scale + state;
  KERNEL_OF(tfm_softmax_kernel, walker->context, attention->step->softmax)
  (scratch->strip, rows, n, scratch->maximum + state, scratch->sum + state, scale);
  if (attention->weights) store_weights(attention, item, scratch->strip, scale, row, rows, first_key, n);
  if (!attention->c_wanted) return false;
  if (first_key > 0 && !all_one(scale, rows)) scale_rows(walker, attention, item, row, rows, scale);
  return true;
}

void attention_block(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                     const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t block, int64_t slot) {
  const tfm_attention_step *step = attention->step;
  int64_t first_key = block * TFM_KEY_BLOCK;
  int64_t n = least_of(TFM_KEY_BLOCK, keys_seen(attention, item, row + rows - 1) - first_key);
  if (n <= 0) return;
  const float *q = (const float *)(item->q + row * attention->q->strides[step->rank - 2]);
  const float *keys = scratch->keys + slot * attention->key_slot_floats;
  tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, walker->context, step->qk_tiles[rows]);
  for (int64_t column = 0; column < n; column += step->qk_width)
    kernel(q, keys + column * step->h, scratch->strip + column, TFM_STRIP_STRIDE, step->h, 0,
           least_of(step->qk_width, n - column), keys + column * step->h, 0);
  if (!item->is_plain)
    epilogue_run(walker, &attention->score, (char *)scratch->strip, TFM_STRIP_STRIDE * (int64_t)sizeof(float),
                 item->number * attention->queries + row, rows, first_key, n);
  if (!attention_soften(walker, attention, scratch, item, row, rows, state, first_key, n)) return;
  add_values(walker, attention, scratch, item, row, rows, block, n, slot);
}

static void finish_weights(const Attention *attention, const AttentionItem *item, const float *factor, int64_t row,
                           int64_t rows, int64_t seen) {
  const int64_t *strides = attention->weights->strides + attention->step->rank - 2;
  const float zero = 0;
  for (int64_t i = 0; i < rows; i++) {
    char *target = item->weights + (row + i) * strides[0];
    scale_weights(target, strides[1], seen, factor[i]);
    for (int64_t key = seen; key < attention->keys; key++) memcpy(target + key * strides[1], &zero, sizeof zero);
  }
}

void attention_finish(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                      const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t seen) {
  const tfm_attention_step *step = attention->step;
  float *factor = scratch->scale + state;
  for (int64_t i = 0; i < rows; i++) factor[i] = scratch->sum[state + i] == 0 ? 0 : 1 / scratch->sum[state + i];
  if (attention->weights) finish_weights(attention, item, factor, row, rows, seen);
  if (!attention->c_wanted) return;
  if (seen > 0) {
    scale_rows(walker, attention, item, row, rows, factor);
    return;
  }
  int64_t stride = attention->c->strides[step->rank - 2];
  for (int64_t i = 0; i < rows; i++) memset(item->c + (row + i) * stride, 0, (size_t)step->e * sizeof(float));
}
