/* In: a block of queries. Out: what it gives and gets. See attention_grad_strip.h. */
#include "steps/attention_grad_strip.h"

#include <math.h>
#include <string.h>

void fetch_some(RowsAhead *ahead) {
  for (int64_t i = 0; i < ahead->few && ahead->list < ahead->n; i++) {
    const FetchList *list = &ahead->lists[ahead->list];
    const char *row = list->rows + ahead->row * list->stride;
    for (int64_t byte = 0; byte < list->bytes; byte += ALIGNMENT) __builtin_prefetch(row + byte, 0, 2);
    if (++ahead->row < list->n) continue;
    ahead->row = 0;
    ahead->list++;
  }
}

// ---- products of a block ----

void grad_multiply_columns(const GradBlock *block, const GradRows *rows, const GradScores *product) {
  const GradJob *job = block->job;
  const Grad *a = job->grad;
  const int64_t width = a->key_width, tile_rows = a->score_rows;
  for (int64_t key = 0; key < block->seen; key += width) {
    const float *panel = product->packed + key * rows->columns;
    float *to = product->strips + key / TFM_KEY_BLOCK * a->strip_floats + key % TFM_KEY_BLOCK;
    for (int64_t at = 0; at < rows->n; at += tile_rows) {
      const uint32_t tile = product->tiles[least_of(tile_rows, rows->n - at)];
      KERNEL_OF(tfm_tile_kernel, job->walker->context, tile)
      ((const float *)(rows->from + at * rows->stride), panel, to + at * TFM_STRIP_STRIDE, TFM_STRIP_STRIDE,
       rows->columns, 0, least_of(width, block->seen - key), panel, 0);
      fetch_some(&job->scratch->ahead);
    }
  }
}

void grad_give_keys(const GradBlock *block, const GradGiven *given) {
  const GradJob *job = block->job;
  const Grad *a = job->grad;
  const int64_t stride = given->stride / (int64_t)sizeof(float), begun = job->item->begun, seen = block->seen;
  for (int64_t key = 0, n; key < seen; key += n) {
    const int64_t within = key % TFM_KEY_BLOCK;
    n = least_of(least_of(a->step->tile_rows, (key < begun ? begun : seen) - key), TFM_KEY_BLOCK - within);
    const tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, job->walker->context, given->tiles[n]);
    const float *strip = given->strips + key / TFM_KEY_BLOCK * a->strip_floats + within;
    float *c = (float *)(given->to + key * given->stride);
    for (int64_t column = 0; column < given->columns; column += given->width) {
      const float *panel = given->packed + column * block->n;
      kernel(strip, panel, c + column, stride, block->n, key < begun, least_of(given->width, given->columns - column),
             (const char *)(column + given->width < given->columns ? c + column + given->width : c + n * stride), 0);
    }
    fetch_some(&job->scratch->ahead);
  }
}

// ---- strips ----

static float *strip_at(const GradStrip *s, float *strips, int64_t block) {
  return strips + block * s->job->grad->strip_floats + s->at * TFM_STRIP_STRIDE;
}

static int64_t keys_of_block(int64_t seen, int64_t block) {
  return least_of(TFM_KEY_BLOCK, seen - block * TFM_KEY_BLOCK);
}

/* The strip's rows of results, and a block of keys. */
static Region region_of(const GradStrip *s, int64_t block) {
  return (Region){s->job->item->number * s->job->grad->queries + s->row, s->rows, block * TFM_KEY_BLOCK,
                  keys_of_block(s->seen, block)};
}

/* n columns of the strip's rows, in place, each times a number of its row. Mostly all are 1: then nothing changes. */
static void scale_strip(const GradStrip *s, float *strip, int64_t n, float *factor) {
  bool all_one = true;
  for (int64_t i = 0; i < s->rows; i++) all_one &= factor[i] == 1;
  if (all_one) return;
  const tfm_row_operand rows = {(char *)strip, TFM_STRIP_STRIDE * (int64_t)sizeof(float), sizeof(float)};
  const tfm_context *context = s->job->walker->context;
  tfm_row_args args;
  memset(args.coordinates, 0, sizeof args.coordinates);
  args.rows = s->rows;
  args.columns = n;
  args.faults = s->job->walker->faults;
  args.operands[0] = args.operands[1] = rows;
  args.operands[2] = (tfm_row_operand){(char *)factor, sizeof(float), 0};
  KERNEL_OF(tfm_row_kernel, context, s->job->grad->step->scale_rows)(&args);
}

// ---- terms ----

/* Has the operand, whose distances are there (set_terms), begin where element (row, key) of the item, counted as the
 * operands of masks are, lies in the stretch. */
static void place_operand(const GradStrip *s, Operand *operand, const Stretch *of, int64_t block) {
  const int64_t before = s->row * of->row_bytes + block * TFM_KEY_BLOCK * of->key_bytes;
  operand->address = (uintptr_t)of->numbers - (uintptr_t)before;
}

/* One of the kernels over p, x and the numbers of their rows, on a block of keys of the strip. */
static void run_term(const GradStrip *s, const Epilogue *term, int64_t block, const Stretch *result) {
  GradScratch *scratch = s->job->scratch;
  const Stretch from[TFM_GRAD_OPERANDS] = {[TFM_GRAD_P] = whole_rows(strip_at(s, scratch->p, block)),
                                           [TFM_GRAD_X] = whole_rows(strip_at(s, scratch->back, block)),
                                           [TFM_GRAD_SCALE] = one_a_row(scratch->scale),
                                           [TFM_GRAD_SUM] = one_a_row(scratch->products)};
  Operand *own = scratch->operands + s->job->grad->step->n_operands;
  for (int i = 0; i < TFM_GRAD_OPERANDS; i++) place_operand(s, &own[i], &from[i], block);
  const Region at = region_of(s, block);
  epilogue_run(s->job->walker, term, (char *)result->numbers, result->row_bytes, &at);
}

// ---- probabilities ----

/* The kernel takes so many rows as a tile may have at most. The sums of blocks are added in double. */
static void soften(const GradStrip *s, float *p, int64_t n) {
  const GradScratch *scratch = s->job->scratch;
  const tfm_softmax_kernel softmax =
      KERNEL_OF(tfm_softmax_kernel, s->job->walker->context, s->job->grad->step->softmax);
  memset(scratch->sum, 0, (size_t)s->rows * sizeof *scratch->sum);
  for (int64_t at = 0; at < s->rows; at += TFM_MAX_TILE_ROWS)
    softmax(p + at * TFM_STRIP_STRIDE, least_of(TFM_MAX_TILE_ROWS, s->rows - at), n, scratch->maximum + at,
            scratch->sum + at, scratch->scale + at);
  for (int64_t i = 0; i < s->rows; i++)
    scratch->totals[i] = scratch->totals[i] * (double)scratch->scale[i] + (double)scratch->sum[i];
}

/* Scores become probabilities: what attention has after its last block, divided by the sum, if nothing is taken; else
 * the kernels divide, since all of them read more than this. A row whose keys are all masked has the sum 0, and
 * probabilities 0. */
static void find_probabilities(const GradStrip *s) {
  const Grad *a = s->job->grad;
  const GradScratch *scratch = s->job->scratch;
  for (int64_t i = 0; i < s->rows; i++) {
    scratch->maximum[i] = -INFINITY;
    scratch->totals[i] = 0;
  }
  const int64_t blocks = ceil_div(s->seen, TFM_KEY_BLOCK);
  for (int64_t block = 0; block < blocks; block++) {
    float *p = strip_at(s, scratch->p, block);
    const Region at = region_of(s, block);
    epilogue_run(s->job->walker, &a->score, (char *)p, TFM_STRIP_STRIDE * (int64_t)sizeof(float), &at);
    soften(s, p, at.columns);
    for (int64_t before = 0; before < block; before++)
      scale_strip(s, strip_at(s, scratch->p, before), TFM_KEY_BLOCK, scratch->scale);
  }
  for (int64_t i = 0; i < s->rows; i++) {
    const float sum = (float)scratch->totals[i];
    scratch->scale[i] = sum == 0 ? 0 : 1 / sum;
  }
  for (int64_t block = 0; block < blocks && a->step->kept == TFM_NONE; block++)
    scale_strip(s, strip_at(s, scratch->p, block), keys_of_block(s->seen, block), scratch->scale);
}

/* What is kept of p; in `products` the sums of p times what p gets. */
static void find_gradient(const GradStrip *s) {
  GradScratch *scratch = s->job->scratch;
  float *block_sums = scratch->products + s->job->grad->block_rows;
  const Stretch sums = one_a_row(block_sums);
  memset(scratch->totals, 0, (size_t)s->rows * sizeof *scratch->totals);
  for (int64_t block = 0; block * TFM_KEY_BLOCK < s->seen; block++) {
    const Stretch kept = whole_rows(strip_at(s, scratch->kept, block));
    run_term(s, &scratch->keep, block, &kept);
    run_term(s, &scratch->sum_products, block, &sums);
    for (int64_t i = 0; i < s->rows; i++) scratch->totals[i] += (double)block_sums[i];
  }
  for (int64_t i = 0; i < s->rows; i++) scratch->products[i] = (float)scratch->totals[i];
}

// ---- what queries get ----

/* c (+)= strips of a block of keys times packed rows, tile by tile. */
static void multiply_keys(const GradStrip *s, float *strips, int64_t block) {
  const Grad *a = s->job->grad;
  GradScratch *scratch = s->job->scratch;
  const GradItem *item = s->job->item;
  const int64_t stride = grad_floats(a, &a->operands->c), width = a->width;
  for (int64_t at = 0, rows; at < s->rows; at += rows) {
    rows = least_of(a->step->tile_rows, s->rows - at);
    const tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, s->job->walker->context, a->step->q_tiles[rows]);
    const float *of = strip_at(s, strips, block) + at * TFM_STRIP_STRIDE;
    float *c = (float *)item->c + (s->row + at) * stride;
    for (int64_t column = 0; column < a->columns; column += width) {
      const float *panel = scratch->key_rows + column * item->limit + block * TFM_KEY_BLOCK * width;
      kernel(of, panel, c + column, stride, keys_of_block(s->seen, block), block > 0,
             least_of(width, a->columns - column), panel, 0);
    }
    fetch_some(&scratch->ahead);
  }
}

/* A term in place on strips, and from them c: a chain over the keys. The strips are what is kept of p, or what q kT
 * gets. */
static void give_queries(const GradStrip *s, const Epilogue *term, float *strips) {
  for (int64_t block = 0; block * TFM_KEY_BLOCK < s->seen; block++) {
    const Stretch in_place = whole_rows(strip_at(s, strips, block));
    run_term(s, term, block, &in_place);
    multiply_keys(s, strips, block);
  }
}

void attention_grad_strip(const GradStrip *s) {
  GradScratch *scratch = s->job->scratch;
  find_probabilities(s);
  if (s->job->grad->step->is_forward) {
    give_queries(s, &scratch->keep, scratch->p);
    return;
  }
  find_gradient(s);
  give_queries(s, &scratch->through, scratch->back);
}
