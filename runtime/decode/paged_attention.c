/* Attention that reads its keys and values in the pages of caches. It gives the same numbers as step_attention.c for
 * the same rows.
 *
 * Rows of a step that have one new position each go together, as the rows of a tile: where their pages are the same
 * (beams that read one source, or share what they wrote) a page is read once for all of them. Otherwise the rows of a
 * tile are positions of one row. The heads of queries that read one head of keys are done side by side too, while it
 * is near.
 *
 * Within a block of TFM_KEY_BLOCK keys the pages are walked one by one: a score is one chain over a head's columns,
 * and the sum of values goes on from page to page through memory: the chain that one product over the whole block
 * would be. */
#include <math.h>
#include <string.h>

#include "decode/cache_pages.h"
#include "decode/lockstep.h"
#include "steps/epilogue.h"
#include "steps/step_attention.h"

enum {
  UNITS_PER_THREAD = 4,
  BLOCK_PAGES = TFM_KEY_BLOCK / TFM_CACHE_PAGE,
  PAGES_AHEAD = 2,     /* one is multiplied in less time than memory takes to answer */
  KEY_LINES_AHEAD = 4, /* lines of such a page that a tile fetches per 4 steps of k: all of a head's keys */
  LINE_FLOATS = ALIGNMENT / sizeof(float)
};

typedef struct Cached {
  Attention a;
  const WholePages *whole; /* NULL: caches are f32 */
  const tfm_cache *keys, *values;
  int64_t value_floats;  /* of a page of values */
  int64_t rows, per_row; /* rows of the step; items of one */
  int64_t gang, gangs;   /* rows of the step that go together; how often */
  int64_t group, strips; /* items that read the same columns; strips of a group */
} Cached;

/* Neighbouring items that read the same keys and values: the last batch axes along which the strides of both are 0. */
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

/* Rows can be the rows of one tile if the step from row to row is the step from query to query, which the tile
 * knows. */
static bool rows_can_gang(const Attention *a) {
  int axis = a->step->rank - 2;
  return a->queries == 1 && !a->weights && a->q->strides[0] == a->q->strides[axis] &&
         a->c->strides[0] == a->c->strides[axis];
}

/* Sizes of the step and how it is cut: rows into gangs, heads into groups that read the same columns, and both into
 * parts only where there are too few units for the threads. Gangs shrink before that. */
static Cached cached_of(const tfm_context *context, const tfm_step *step, int32_t threads) {
  Cached c = {.a = attention_describe(context, step)};
  const tfm_attention_step *info = c.a.step;
  if (c.a.items <= 0 || c.a.queries <= 0) return c;
  attention_choose_outputs(context, step, &c.a);
  const tfm_program *program = context->program;
  c.whole = whole_pages_of(context, info->form);
  c.keys = &program->caches[info->k_cache];
  c.values = &program->caches[info->v_cache];
  c.value_floats = c.values->of_encoder ? program->encoder_page_floats : program->own_page_floats;
  c.rows = value_of(context, info->dims[0]);
  c.per_row = c.a.items / c.rows;
  c.group = group_of(context, info);
  c.strips = c.group * c.a.strips;
  int64_t groups = c.per_row / c.group, wanted = threads > 1 ? UNITS_PER_THREAD * (int64_t)threads : 1;
  c.gang = rows_can_gang(&c.a) ? least_of(c.rows, info->tile_rows) : 1;
  while (c.gang > 1 && ceil_div(c.rows, c.gang) * groups < wanted) c.gang--;
  c.gangs = ceil_div(c.rows, c.gang);
  int64_t units = c.gangs * groups;
  if (units < wanted) c.a.parts = greatest_of(1, least_of(ceil_div(wanted, units), c.strips));
  return c;
}

// ---- scratch ----

enum { STRIP_FLOATS = TFM_MAX_TILE_ROWS * TFM_STRIP_STRIDE };

/* Keys and values are read in their pages, so only one strip and its state are needed, and what waits. */
static int64_t scratch_bytes(const tfm_context *context, const tfm_attention_step *step) {
  const WholePages *whole = whole_pages_of(context, step->form);
  const int64_t waiting = attention_waiting(step, value_of(context, step->dims[step->rank - 1]));
  const int64_t more = whole ? whole->scratch_floats(step) : 0;
  return (STRIP_FLOATS + 3 * CHUNK_ROWS + waiting + more) * (int64_t)sizeof(float);
}

static AttentionScratch scratch_at(const Cached *c, char *base) {
  float *strip = (float *)base, *maximum = strip + STRIP_FLOATS;
  return (AttentionScratch){.strip = strip,
                            .maximum = maximum,
                            .sum = maximum + CHUNK_ROWS,
                            .scale = maximum + 2 * CHUNK_ROWS,
                            .waiting = maximum + 3 * CHUNK_ROWS,
                            .whole = maximum + 3 * CHUNK_ROWS + attention_waiting(c->a.step, c->a.keys)};
}

// ---- pages ----

typedef struct Pages { /* what a group of the rows of a gang reads */
  float *const *keys[TFM_MAX_TILE_ROWS], *const *values[TFM_MAX_TILE_ROWS]; /* of each row of the gang */
  int64_t lists;                    /* rows of the gang */
  int64_t key_offset, value_offset; /* floats from the beginning of a page to the head's columns */
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

/* The list of pages of a row of the step: its own, or that of its source. */
static float *const *pages_of(const tfm_context *context, const tfm_cache *cache, int64_t row) {
  return cache->of_encoder ? context->decoding.caches->source[row] : context->decoding.caches->own[row];
}

/* The lists of rows [row, row + rows) of the step, and where the columns of the group's head begin in a page. */
static void find_pages(const tfm_context *context, const Cached *c, int64_t row, int64_t rows, int64_t item,
                       Pages *pages) {
  pages->lists = rows;
  for (int64_t i = 0; i < rows; i++) {
    pages->keys[i] = pages_of(context, c->keys, row + i);
    pages->values[i] = pages_of(context, c->values, row + i);
  }
  pages->key_offset = page_place(c->keys, column_of(context, c->a.step, &c->a.step->k, item));
  pages->value_offset = page_place(c->values, column_of(context, c->a.step, &c->a.step->v, item));
}

/* How many rows of a strip, from `row` on, read the same page. */
static inline int64_t rows_alike(float *const *const *lists, int64_t n_lists, int64_t row, int64_t rows, int64_t page) {
  if (n_lists == 1) return rows - row;
  int64_t end = row + 1;
  while (end < rows && lists[end][page] == lists[row][page]) end++;
  return end - row;
}

// ---- strips ----

typedef struct Strip {
  AttentionItem item;       /* of its first row */
  int64_t row, rows, state; /* queries, or rows of the step; state: the first in the arrays of the chunk */
  int64_t seen;             /* keys that its last row may see */
} Strip;

/* Addresses and padding of one item; keys and values are in pages. */
static AttentionItem item_at(const tfm_context *context, const Attention *a, int64_t number) {
  return (AttentionItem){.number = number,
                         .limit = attention_last_key(context, a, number),
                         .q = attention_address(context, a, a->q, number),
                         .c = attention_address(context, a, a->c, number),
                         .weights = a->weights ? attention_address(context, a, a->weights, number) : NULL};
}

/* The values of a head in one page are many short rows, which no hardware fetches ahead: they are fetched while the
 * scores are computed. */
static void fetch_values(const Cached *c, const float *values, int64_t n) {
  for (int64_t position = 0; position < n; position++, values += c->values->columns)
    for (int64_t column = 0; column < c->a.step->e; column += LINE_FLOATS) __builtin_prefetch(values + column);
}

/* The pages of a row of the strip. */
static float *const *list_of(float *const *const *lists, const Pages *pages, int64_t row) {
  return lists[pages->lists == 1 ? 0 : row];
}

/* Scores of a block of keys, page by page. Rows that read the same page are one tile. */
static void score_pages(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Pages *pages,
                        const Strip *strip, int64_t block, int64_t n) {
  const tfm_attention_step *step = c->a.step;
  int64_t q_stride = c->a.q->strides[step->rank - 2];
  for (int64_t key = 0; key < n; key += TFM_CACHE_PAGE) {
    int64_t page = block * BLOCK_PAGES + key / TFM_CACHE_PAGE, columns = least_of(TFM_CACHE_PAGE, n - key);
    for (int64_t row = 0, rows; row < strip->rows; row += rows) {
      rows = rows_alike(pages->keys, pages->lists, row, strip->rows, page);
      float *const *list = list_of(pages->keys, pages, row);
      const float *keys = list[page] + pages->key_offset;
      const float *next = keys + step->h * TFM_CACHE_PAGE; /* the next head's */
      if (key + PAGES_AHEAD * TFM_CACHE_PAGE < n) next = list[page + PAGES_AHEAD] + pages->key_offset;
      if (c->a.c_wanted) fetch_values(c, list_of(pages->values, pages, row)[page] + pages->value_offset, columns);
      KERNEL_OF(tfm_tile_kernel, walker->context, step->qk_tiles[rows])
      ((const float *)(strip->item.q + (strip->row + row) * q_stride), keys,
       scratch->strip + row * TFM_STRIP_STRIDE + key, TFM_STRIP_STRIDE, step->h, 0, columns, next, KEY_LINES_AHEAD);
    }
  }
}

/* c += weights * values, page by page, as one chain. A page that ever held an infinite value takes the exact tiles. */
static void add_pages(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Pages *pages,
                      const Strip *strip, int64_t block, int64_t n) {
  const tfm_attention_step *step = c->a.step;
  int64_t c_stride;
  float *results = attention_place(&c->a, scratch, &strip->item, strip->row, strip->state, block, &c_stride);
  for (int64_t key = 0; key < n; key += TFM_CACHE_PAGE) {
    int64_t page = block * BLOCK_PAGES + key / TFM_CACHE_PAGE, k = least_of(TFM_CACHE_PAGE, n - key);
    for (int64_t row = 0, rows; row < strip->rows; row += rows) {
      rows = rows_alike(pages->values, pages->lists, row, strip->rows, page);
      float *values = list_of(pages->values, pages, row)[page];
      bool infinite =
          atomic_load_explicit(&page_tail(values, c->value_floats)->has_infinite, memory_order_relaxed);
      tfm_tile_kernel kernel =
          KERNEL_OF(tfm_tile_kernel, walker->context, infinite ? step->pv_exact_tiles[rows] : step->pv_tiles[rows]);
      values += pages->value_offset;
      for (int64_t column = 0; column < step->e; column += step->pv_width)
        kernel(scratch->strip + row * TFM_STRIP_STRIDE + key, values + column, results + row * c_stride + column,
               c_stride, k, key > 0 || !attention_begins(block), least_of(step->pv_width, step->e - column), values, 0);
    }
  }
}

// ---- 8 bits ----

/* What a thread needs: rows of whole numbers, and the scales of a block of values side by side. */
static int64_t whole_scratch_floats(const tfm_attention_step *step) {
  return whole_scratch(step).floats + TFM_KEY_BLOCK;
}

/* As score_pages. A page of keys is a panel, or several that the tile walks where it is narrower. */
static void score_whole(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Pages *pages,
                        const Strip *strip, int64_t block, int64_t n) {
  const tfm_attention_step *step = c->a.step;
  const WholeScratch s = whole_scratch(step);
  const int64_t q_stride = c->a.q->strides[step->rank - 2], floats = tfm_head_floats(step->form, true, step->h);
  const float *q = whole_queries(walker, &c->a, scratch, &s, strip->item.q + strip->row * q_stride, strip->rows);
  for (int64_t key = 0; key < n; key += TFM_CACHE_PAGE) {
    int64_t page = block * BLOCK_PAGES + key / TFM_CACHE_PAGE, columns = least_of(TFM_CACHE_PAGE, n - key);
    for (int64_t row = 0, rows; row < strip->rows; row += rows) {
      rows = rows_alike(pages->keys, pages->lists, row, strip->rows, page);
      float *const *list = list_of(pages->keys, pages, row);
      const float *keys = list[page] + pages->key_offset, *next = keys + floats; /* the next head's */
      if (key + PAGES_AHEAD * TFM_CACHE_PAGE < n) next = list[page + PAGES_AHEAD] + pages->key_offset;
      __builtin_prefetch(next + floats - TFM_CACHE_PAGE); /* its scales, which the tile does not fetch */
      const tfm_tile_kernel tile = KERNEL_OF(tfm_tile_kernel, walker->context, step->qk_tiles[rows]);
      for (int64_t column = 0; column < columns; column += step->qk_width)
        tile(q + row * s.q_floats, keys + column, scratch->strip + row * TFM_STRIP_STRIDE + key + column,
             TFM_STRIP_STRIDE, step->h, 0, least_of(step->qk_width, columns - column), next, KEY_LINES_AHEAD);
    }
  }
}

/* How many rows of a strip, from `row` on, read the same pages throughout. */
static int64_t rows_alike_in(const Pages *pages, int64_t row, int64_t rows, int64_t first_page, int64_t n_pages) {
  if (pages->lists == 1) return rows - row;
  int64_t end = row + 1;
  float *const *const list = pages->values[row] + first_page;
  while (end < rows && memcmp(pages->values[end] + first_page, list, (size_t)n_pages * sizeof *list) == 0) end++;
  return end - row;
}

/* The sums of some rows that read the same pages, for one tile's width of columns; they are whole until the last page
 * has been added, and so have no order. */
static void add_column(const Walker *walker, const Cached *c, float *const *list, int64_t offset, const float *weights,
                       int64_t rows, int64_t n, float *to, int64_t stride, int64_t columns) {
  const tfm_attention_step *step = c->a.step;
  const tfm_tile_kernel tile = KERNEL_OF(tfm_tile_kernel, walker->context, step->pv_tiles[rows]);
  enum { MORE_FOLLOW = 2 };
  for (int64_t key = 0; key < n; key += TFM_CACHE_PAGE, weights += TFM_CACHE_PAGE * step->a_bytes / 4) {
    const int64_t follow = key + TFM_CACHE_PAGE < n ? MORE_FOLLOW : 0;
    tile(weights, list[key / TFM_CACHE_PAGE] + offset, to, stride, least_of(TFM_CACHE_PAGE, n - key),
         (key > 0) | follow, columns, weights, 0);
  }
}

/* The scales of n keys side by side, so that their weights are rounded together; 0 behind them. */
static void gather_scales(const tfm_attention_step *step, float *const *list, int64_t offset, int64_t n,
                          float *scales) {
  offset += TFM_CACHE_PAGE / 4 * tfm_value_columns(step->e);
  for (int64_t key = 0; key < n; key += TFM_CACHE_PAGE)
    memcpy(scales + key, list[key / TFM_CACHE_PAGE] + offset, TFM_CACHE_PAGE * sizeof *scales);
  for (int64_t key = n; key % TFM_CACHE_PAGE; key++) scales[key] = 0;
}

/* As add_pages. Rows of other pages have other scales. */
static void add_whole(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Pages *pages,
                      const Strip *strip, int64_t block, int64_t n) {
  const tfm_attention_step *step = c->a.step;
  const WholeScratch s = whole_scratch(step);
  const bool begins = attention_begins(block);
  float *scales = scratch->whole + s.floats, *weights = scratch->whole + s.weights + TFM_ROW_HEAD;
  int64_t stride, first_page = block * BLOCK_PAGES;
  float *results = attention_place(&c->a, scratch, &strip->item, strip->row, strip->state, block, &stride);
  for (int64_t row = 0, rows; row < strip->rows; row += rows, results += rows * stride) {
    rows = rows_alike_in(pages, row, strip->rows, first_page, ceil_div(n, TFM_CACHE_PAGE));
    float *const *list = list_of(pages->values, pages, row) + first_page;
    float *of_strip = scratch->strip + row * TFM_STRIP_STRIDE;
    gather_scales(step, list, pages->value_offset, n, scales);
    KERNEL_OF(tfm_weigh_kernel, walker->context, step->weigh)(of_strip, rows, n, scales, weights);
    for (int64_t column = 0; column < step->e; column += step->pv_width) {
      const int64_t columns = least_of(step->pv_width, step->e - column);
      add_column(walker, c, list, pages->value_offset + column, weights, rows, n, begins ? results + column : of_strip,
                 begins ? stride : TFM_STRIP_STRIDE, columns);
      if (!begins) whole_add_rows(results + column, stride, of_strip, rows, columns);
    }
  }
}

const struct tfm_whole_attention *tfm_whole_pages(void) {
  static const WholePages pages = {
      .write = whole_page_write, .scratch_floats = whole_scratch_floats, .score = score_whole, .add = add_whole};
  static const struct tfm_whole_attention functions = {.size_slots = whole_size_slots,
                                                       .load_block = whole_load_block,
                                                       .score = whole_score,
                                                       .add_values = whole_add_values,
                                                       .pages = &pages};
  return &functions;
}

// ---- a strip ----

/* The score expression: rows of a gang are rows of different items, `per_row` apart. */
static void finish_scores(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Strip *strip,
                          int64_t first_key, int64_t n) {
  const int64_t stride = TFM_STRIP_STRIDE * (int64_t)sizeof(float);
  if (c->gang == 1) {
    epilogue_run(walker, &c->a.score, (char *)scratch->strip, stride,
                 &(Region){strip->item.number * c->a.queries + strip->row, strip->rows, first_key, n});
    return;
  }
  for (int64_t i = 0; c->a.score.kernel && i < strip->rows; i++)
    epilogue_run(walker, &c->a.score, (char *)scratch->strip + i * stride, stride,
                 &(Region){strip->item.number + i * c->per_row, 1, first_key, n});
}

/* The chain of a block: scores, score expression, softmax, sums of values. */
static void run_block(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Pages *pages,
                      const Strip *strip, int64_t block) {
  int64_t first_key = block * TFM_KEY_BLOCK, n = least_of(TFM_KEY_BLOCK, strip->seen - first_key);
  if (n <= 0) return;
  if (c->whole)
    c->whole->score(walker, c, scratch, pages, strip, block, n);
  else
    score_pages(walker, c, scratch, pages, strip, block, n);
  finish_scores(walker, c, scratch, strip, first_key, n);
  if (attention_soften(walker, &c->a, scratch, &strip->item, strip->row, strip->rows, strip->state, first_key, n)) {
    if (c->whole)
      c->whole->add(walker, c, scratch, pages, strip, block, n);
    else
      add_pages(walker, c, scratch, pages, strip, block, n);
  }
  attention_end_block(&c->a, scratch, &strip->item, strip->row, strip->rows, strip->state, block, strip->seen);
}

// ---- units ----

/* Strip `number` of the group that begins with the item. A gang is one strip; keys that one of its rows must not see
 * are masked by the score expression, so the most that any of them may see is right for all. */
static void enter_strip(const tfm_context *context, const Cached *c, int64_t first_item, int64_t number, int64_t rows,
                        const Strip *before, Strip *strip) {
  int64_t item = first_item + number / c->a.strips, part = number % c->a.strips;
  strip->item = before && before->item.number == item ? before->item : item_at(context, &c->a, item);
  Strips all = all_strips(&c->a);
  strip->row = strip_row(&all, part);
  strip->rows = c->gang > 1 ? rows : strip_row(&all, part + 1) - strip->row;
  for (int64_t i = 1; c->gang > 1 && c->a.padding && i < rows; i++)
    strip->item.limit = greatest_of(strip->item.limit, attention_last_key(context, &c->a, item + i * c->per_row));
  strip->seen = keys_seen(&c->a, &strip->item, strip->row + (c->gang > 1 ? 1 : strip->rows) - 1);
}

/* The strips [first, first + n) of a group, n <= CHUNK_STRIPS. */
static void run_chunk(const Walker *walker, const Cached *c, const AttentionScratch *scratch, const Pages *pages,
                      int64_t first_item, int64_t first, int64_t n) {
  Strip strips[CHUNK_STRIPS];
  int64_t states = 0, seen = 0;
  for (int64_t i = 0; i < n; i++) {
    enter_strip(walker->context, c, first_item, first + i, pages->lists, i ? &strips[i - 1] : NULL, &strips[i]);
    strips[i].state = states;
    states += strips[i].rows;
    seen = greatest_of(seen, strips[i].seen);
  }
  for (int64_t i = 0; i < states; i++) {
    scratch->maximum[i] = -INFINITY;
    scratch->sum[i] = 0;
  }
  for (int64_t block = 0; block * TFM_KEY_BLOCK < seen; block++)
    for (int64_t i = 0; i < n; i++) run_block(walker, c, scratch, pages, &strips[i], block);
  for (int64_t i = 0; i < n; i++)
    attention_finish(walker, &c->a, scratch, &strips[i].item, strips[i].row, strips[i].rows, strips[i].state,
                     strips[i].seen);
}

/* How many rows of the step, from `row` on, share their first page: rows share their beginning or their source, so
 * rows that do not share the first page share nothing. */
static int64_t rows_akin(const tfm_context *context, const Cached *c, int64_t row, int64_t end) {
  if (c->a.keys <= 0) return end - row;
  float *const *first = pages_of(context, c->keys, row);
  int64_t next = row + 1;
  while (next < end && pages_of(context, c->keys, next)[0] == first[0]) next++;
  return next - row;
}

/* Unit `number` of gangs x groups x parts. Rows of a gang that share no page follow one another: what is fetched ahead
 * for one of them is used before the next one's would displace it. */
static void run_unit(const Walker *walker, const Cached *c, const AttentionScratch *scratch, int64_t number) {
  int64_t part = number % c->a.parts, groups = c->per_row / c->group, group = number / c->a.parts % groups,
          gang = number / c->a.parts / groups;
  int64_t row = c->rows * gang / c->gangs, end_row = c->rows * (gang + 1) / c->gangs;
  int64_t begin = c->strips * part / c->a.parts, end = c->strips * (part + 1) / c->a.parts;
  for (int64_t rows; row < end_row; row += rows) {
    rows = rows_akin(walker->context, c, row, end_row);
    int64_t item = row * c->per_row + group * c->group;
    Pages pages;
    find_pages(walker->context, c, row, rows, item, &pages);
    for (int64_t first = begin; first < end; first += CHUNK_STRIPS)
      run_chunk(walker, c, scratch, &pages, item, first, least_of(end - first, CHUNK_STRIPS));
  }
}

/* Attention over cached keys and values. Units are claimed, because rows differ in what is near. */
static void attention(Walker *walker, const tfm_step *step) {
  Cached c = cached_of(walker->context, step, walker->threads);
  if (c.a.items <= 0 || c.a.queries <= 0) return;
  AttentionScratch scratch = scratch_at(&c, walker->scratch);
  int64_t units = c.gangs * (c.per_row / c.group) * c.a.parts, lump = share_coarsen(units), ignored, number;
  Claimer claimer = walker_claimer(walker, 1, ceil_div(units, lump));
  while (share_claim(&claimer, &ignored, &number))
    for (int64_t unit = number * lump; unit < least_of(units, (number + 1) * lump); unit++)
      run_unit(walker, &c, &scratch, unit);
}

const CachedSteps cached_steps = {.append = cached_append,
                                  .attention = attention,
                                  .attention_scratch_bytes = scratch_bytes,
                                  .share_steps = lockstep_share_steps,
                                  .is_one_product = lockstep_is_one_product,
                                  .finish_tile = lockstep_finish_tile};
