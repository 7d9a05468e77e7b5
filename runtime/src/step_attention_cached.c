/* Attention whose keys and values are in pages of caches: the same numbers as step_attention.c gives for the same rows.
 *
 * A unit is a range of strips of one group: the batch items of a row that read the same columns of the cache. Its strips
 * go through the blocks of TFM_KEY_BLOCK keys together, so that several heads of queries read a head of keys while it is
 * near. Within a block the pages are walked one by one: a score is one chain over a head's columns, and the sum of values
 * goes on from page to page through memory, which is the chain that one product over the whole block would be. */
#include <math.h>

#include "attention.h"
#include "cache_pages.h"

enum { UNITS_PER_THREAD = 4, BLOCK_PAGES = TFM_KEY_BLOCK / TFM_CACHE_PAGE };

typedef struct Cached {
  Attention a;
  const tfm_cache *keys, *values;
  int64_t items_per_row, group; /* items of a group */
  int64_t strips;               /* of a group */
} Cached;

/* Items that stand side by side and read the same keys and values: the last batch axes along which both stand still. */
static int64_t group_of(const tfm_context *context, const tfm_attention_step *step) {
  int64_t group = 1;
  for (int axis = step->rank - 3; axis >= 1; axis--) {
    int64_t dim = value_of(context, step->dims[axis]);
    bool still = value_of(context, step->k.strides[axis]) == 0 && value_of(context, step->v.strides[axis]) == 0;
    if (dim != 1 && !still) break;
    group *= dim;
  }
  return group;
}

static Cached cached_of(const tfm_context *context, const tfm_step *step, int32_t threads) {
  Cached c = {.a = attention_describe(context, step)};
  const tfm_attention_step *info = c.a.step;
  c.keys = &context->program->caches[info->k_cache];
  c.values = &context->program->caches[info->v_cache];
  if (c.a.items <= 0 || c.a.queries <= 0) return c;
  c.items_per_row = c.a.items / value_of(context, info->dims[0]);
  c.group = group_of(context, info);
  c.strips = c.group * c.a.strips;
  int64_t groups = c.a.items / c.group, wanted = UNITS_PER_THREAD * (int64_t)threads;
  if (groups < wanted && threads > 1) c.a.parts = greatest_of(1, least_of(ceil_div(wanted, groups), c.strips));
  return c;
}

/* --- Scratch ------------------------------------------------------------------------------------------------------- */

enum { STRIP_FLOATS = TFM_MAX_TILE_ROWS * TFM_STRIP_STRIDE };

int64_t attention_cached_scratch_bytes(void) {
  return (STRIP_FLOATS + 3 * CHUNK_ROWS) * (int64_t)sizeof(float);
}

static AttentionScratch scratch_at(char *base) {
  float *strip = (float *)base, *maximum = strip + STRIP_FLOATS;
  return (AttentionScratch){
      .strip = strip, .maximum = maximum, .sum = maximum + CHUNK_ROWS, .scale = maximum + 2 * CHUNK_ROWS};
}

/* --- Items --------------------------------------------------------------------------------------------------------- */

typedef struct Pages { /* what a group reads */
  float *const *keys, *const *values; /* pages of the row */
  int64_t key_offset, value_offset;   /* floats from the beginning of a page to the head's columns */
  int64_t value_page_floats;
} Pages;

/* Columns of the cache from its first to the item's first. */
static int64_t column_of(const tfm_context *context, const tfm_attention_step *step, const tfm_operand *operand,
                         int64_t item) {
  int64_t column = value_of(context, operand->offset);
  for (int axis = step->rank - 3; axis >= 1; axis--) {
    int64_t dim = value_of(context, step->dims[axis]);
    column += item % dim * value_of(context, operand->strides[axis]);
    item /= dim;
  }
  return column;
}

static float *const *pages_of(const tfm_context *context, const tfm_cache *cache, int64_t row) {
  return cache->of_source ? context->caches->source[row] : context->caches->own[row];
}

static Pages enter_group(const tfm_context *context, const Cached *c, int64_t group) {
  int64_t item = group * c->group, row = item / c->items_per_row;
  const tfm_program *program = context->program;
  return (Pages){
      .keys = pages_of(context, c->keys, row),
      .values = pages_of(context, c->values, row),
      .key_offset = c->keys->offset + column_of(context, c->a.step, &c->a.step->k, item) * TFM_CACHE_PAGE,
      .value_offset = c->values->offset + column_of(context, c->a.step, &c->a.step->v, item),
      .value_page_floats = c->values->of_source ? program->source_page_floats : program->own_page_floats};
}

static AttentionItem enter_item(const tfm_context *context, const Attention *a, int64_t number) {
  return (AttentionItem){.number = number,
                         .limit = attention_last_key(context, a, number),
                         .q = attention_address(context, a, a->q, number),
                         .c = attention_address(context, a, a->c, number),
                         .weights = a->weights ? attention_address(context, a, a->weights, number) : NULL};
}

/* --- Strips -------------------------------------------------------------------------------------------------------- */

typedef struct Strip {
  AttentionItem item;
  int64_t row, rows, state; /* queries; state: the first row in the arrays of the chunk */
  int64_t seen;             /* keys that its last row may see */
} Strip;

/* How many lines of the next page a tile fetches per 4 steps of k, so that a head's keys arrive one page ahead. */
enum { KEY_LINES_AHEAD = 4 };

static void score_pages(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Pages *pages,
                        const Strip *strip, int64_t block, int64_t n) {
  const tfm_attention_step *step = c->a.step;
  tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, walker->context, step->qk_tiles[strip->rows]);
  const float *q = (const float *)(strip->item.q + strip->row * c->a.q->strides[step->rank - 2]);
  float *const *page = pages->keys + block * BLOCK_PAGES;
  for (int64_t key = 0; key < n; key += TFM_CACHE_PAGE, page++) {
    const float *next = (key + TFM_CACHE_PAGE < n ? page[1] : page[0]) + pages->key_offset;
    kernel(q, *page + pages->key_offset, scratch->strip + key, TFM_STRIP_STRIDE, step->h, 0,
           least_of(TFM_CACHE_PAGE, n - key), next, KEY_LINES_AHEAD);
  }
}

static void add_pages(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Pages *pages,
                      const Strip *strip, int64_t block, int64_t n) {
  const tfm_attention_step *step = c->a.step;
  tfm_tile_kernel finite = KERNEL_OF(tfm_tile_kernel, walker->context, step->pv_tiles[strip->rows]);
  tfm_tile_kernel exact = KERNEL_OF(tfm_tile_kernel, walker->context, step->pv_exact_tiles[strip->rows]);
  int64_t c_stride = c->a.c->strides[step->rank - 2];
  float *result = (float *)(strip->item.c + strip->row * c_stride);
  float *const *page = pages->values + block * BLOCK_PAGES;
  for (int64_t key = 0; key < n; key += TFM_CACHE_PAGE, page++) {
    PageTail *tail = page_tail(*page, pages->value_page_floats);
    bool infinite = atomic_load_explicit(&tail->has_infinite, memory_order_relaxed);
    tfm_tile_kernel kernel = infinite ? exact : finite;
    for (int64_t column = 0; column < step->e; column += step->pv_width) {
      const float *v = *page + pages->value_offset + column;
      kernel(scratch->strip + key, v, result + column, c_stride / (int64_t)sizeof(float),
             least_of(TFM_CACHE_PAGE, n - key), block > 0 || key > 0, least_of(step->pv_width, step->e - column), v, 0);
    }
  }
}

static void run_block(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Pages *pages,
                      const Strip *strip, int64_t block) {
  int64_t first_key = block * TFM_KEY_BLOCK, n = least_of(TFM_KEY_BLOCK, strip->seen - first_key);
  if (n <= 0) return;
  score_pages(walker, c, scratch, pages, strip, block, n);
  if (attention_weigh(walker, &c->a, scratch, &strip->item, strip->row, strip->rows, strip->state, first_key, n))
    add_pages(walker, c, scratch, pages, strip, block, n);
}

/* --- Units --------------------------------------------------------------------------------------------------------- */

/* The strips [first, first + n) of a group, n <= CHUNK_STRIPS. */
static void run_chunk(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Pages *pages,
                      int64_t group, int64_t first, int64_t n) {
  Strip strips[CHUNK_STRIPS];
  int64_t states = 0, seen = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t item = group * c->group + (first + i) / c->a.strips, strip = (first + i) % c->a.strips;
    bool same = i > 0 && strips[i - 1].item.number == item;
    strips[i].item = same ? strips[i - 1].item : enter_item(walker->context, &c->a, item);
    strips[i].row = strip_row(&c->a, strip);
    strips[i].rows = strip_row(&c->a, strip + 1) - strips[i].row;
    strips[i].state = states;
    states += strips[i].rows;
    strips[i].seen = keys_seen(&c->a, &strips[i].item, strips[i].row + strips[i].rows - 1);
    seen = greatest_of(seen, strips[i].seen);
  }
  for (int64_t i = 0; i < states; i++) {
    scratch->maximum[i] = -INFINITY;
    scratch->sum[i] = 0;
  }
  for (int64_t block = 0; block * TFM_KEY_BLOCK < seen; block++)
    for (int64_t i = 0; i < n; i++) run_block(walker, c, scratch, pages, &strips[i], block);
  for (int64_t i = 0; i < n; i++)
    attention_finish(walker, &c->a, scratch, &strips[i].item, strips[i].row, strips[i].rows, strips[i].state);
}

void step_attention_cached(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  Cached c = cached_of(context, step, walker->threads);
  if (c.a.items <= 0 || c.a.queries <= 0) return;
  attention_choose_outputs(context, step, &c.a);
  AttentionScratch scratch = scratch_at(walker->scratch);
  int64_t units = c.a.items / c.group * c.a.parts, lump = share_coarsen(units), ignored, number;
  Claimer claimer = walker_claimer(walker, 1, ceil_div(units, lump));
  while (share_claim(&claimer, &ignored, &number)) {
    for (int64_t unit = number * lump; unit < least_of(units, (number + 1) * lump); unit++) {
      int64_t group = unit / c.a.parts, part = unit % c.a.parts;
      int64_t first = c.strips * part / c.a.parts, end = c.strips * (part + 1) / c.a.parts;
      Pages pages = enter_group(context, &c, group);
      for (; first < end; first += CHUNK_STRIPS)
        run_chunk(walker, &c, &scratch, &pages, group, first, least_of(end - first, CHUNK_STRIPS));
    }
  }
}
