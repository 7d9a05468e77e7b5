/* Attention that reads its keys and values in the pages of caches: cache_pages.h draws pages, the RunPart (Paged.run)
 * has the lists of each row. It gives the same numbers as step_attention.c for the same rows, and shares its loops
 * (attention_strip.h): here are the two products of a strip with a block of keys, for pages of f32 and of 8 bits, and
 * how rows are cut. In: queries in memory, pages. Out: results. Refuses nothing.
 *
 * The loops, from outside to inside; in brackets the function that has each:
 *
 *   units           a gang of rows x heads that read one head of keys x strips   threads claim them [attention]
 *     rows akin     those of the gang that share their first page                  [run_paged_unit]
 *       chunks      CHUNK_STRIPS strips; the state of their rows is in scratch     [run_paged_chunk]
 *         blocks    TFM_KEY_BLOCK keys
 *           strips  a tile's rows: a position of each row akin, or positions of one row   [attention_block]
 *             score pages, and in one the rows that read the same page: a tile     [score_pages]
 *             finish masks, biases, factors; keys that nobody sees are not read    [attention_finish_scores]
 *             softmax                                                              [attention_soften]
 *             add   f32: pages, rows that read the same one, columns: a tile       [add_pages]
 *                   8 bits: rows that read the same pages, columns, pages          [add_int8_pages]
 *
 * Rows of a step that have one new position each are a gang: where their pages are the same (beams that read one
 * source, or share what they wrote) a page is read once for all of them. The heads of queries that read one head of
 * keys are done side by side too, while it is near. Where units are few, threads share the strips of a head, never its
 * keys.
 *
 * A score is one chain over a head's columns, and the sum of values goes on from page to page through memory: the chain
 * that one product over the whole block would be. */
#include <string.h>

#include "decode/cache_pages.h"
#include "machine/tuning.h"
#include "steps/attention_int8.h"
#include "steps/run_call.h"
#include "steps/step_attention.h"

enum {
  BLOCK_PAGES = TFM_KEY_BLOCK / TFM_CACHE_PAGE,
  LINE_FLOATS = ALIGNMENT / sizeof(float)
};

typedef struct PageKind { /* what caches of another form than f32 do themselves */
  int64_t (*scratch_floats)(const tfm_attention_step *step);
  BlockWork *score, *add; /* scores of a block of keys; c = or += weights * values */
} PageKind;

typedef struct Paged { /* a step, and how it is cut */
  Attention a;
  const PageKind *kind;  /* NULL: caches are f32 */
  const RunPart *run;    /* has the pages */
  const tfm_cache *keys, *values;
  int64_t value_floats;  /* of a page of values */
  int64_t rows, per_row; /* rows of the step; items of one */
  int64_t gang, gangs;   /* rows of the step that go together; how often */
  int64_t group, strips; /* items (heads of a row) that read the same columns; strips of a group */
} Paged;

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
static Paged paged_of(const Walker *walker, const tfm_step *step, const PageKind *kind) {
  const tfm_context *context = walker->context;
  const int32_t threads = walker->threads;
  Paged paged = {.a = attention_describe(context, step)};
  const tfm_attention_step *info = paged.a.step;
  if (paged.a.items <= 0 || paged.a.queries <= 0) return paged;
  attention_choose_outputs(context, step, &paged.a);
  const tfm_program *program = context->program;
  paged.kind = kind;
  paged.run = walker->part;
  if (kind) paged.a.form_floats = kind->scratch_floats(info);
  paged.keys = &program->caches[info->k_cache];
  paged.values = &program->caches[info->v_cache];
  paged.value_floats = paged.values->of_encoder ? program->encoder_page_floats : program->own_page_floats;
  paged.rows = value_of(context, info->dims[0]);
  paged.per_row = paged.a.items / paged.rows;
  paged.group = group_of(context, info);
  paged.strips = paged.group * paged.a.strips;
  int64_t groups = paged.per_row / paged.group, wanted = threads > 1 ? PAGED_UNITS_PER_THREAD * (int64_t)threads : 1;
  paged.gang = rows_can_gang(&paged.a) ? least_of(paged.rows, info->tile_rows) : 1;
  while (paged.gang > 1 && ceil_div(paged.rows, paged.gang) * groups < wanted) paged.gang--;
  paged.gangs = ceil_div(paged.rows, paged.gang);
  int64_t units = paged.gangs * groups;
  if (units < wanted) paged.a.cuts = greatest_of(1, least_of(ceil_div(wanted, units), paged.strips));
  return paged;
}

// ---- scratch ----

/* Keys and values are read in their pages, so only one strip and its state are needed, and what waits. */
static int64_t scratch_bytes(const tfm_context *context, const tfm_step *step, const PageKind *kind) {
  const tfm_attention_step *info = &context->program->attentions[step->index];
  const Attention a = {.step = info,
                       .keys = value_of(context, info->dims[info->rank - 1]),
                       .form_floats = kind ? kind->scratch_floats(info) : 0};
  AttentionScratch scratch;
  return attention_scratch(&a, NULL, &scratch);
}

// ---- pages ----

typedef struct Pages { /* what a group of the rows of a gang reads */
  const Paged *of;
  float *const *keys[TFM_MAX_TILE_ROWS], *const *values[TFM_MAX_TILE_ROWS]; /* of each row of the gang */
  int64_t lists;                    /* rows of the gang */
  int64_t first_item;               /* of the group, in the first row */
  int64_t key_offset, value_offset; /* floats from the beginning of a page to the head's columns */
} Pages;

/* Columns of the cache from its first to the item's first. Rows of the step, the first axis, have their own lists. */
static int64_t column_of(const tfm_context *context, const Attention *a, const tfm_operand *operand, int64_t item) {
  int64_t at[TFM_MAX_RANK], column = value_of(context, operand->offset);
  items_coordinates(&a->batch, item, at);
  for (int axis = 1; axis < a->batch.axes; axis++) column += at[axis] * value_of(context, operand->strides[axis]);
  return column;
}

/* The list of pages of a row of the step: its own, or that of its source. */
static float *const *pages_of(const RunPart *part, const tfm_cache *cache, int64_t row) {
  return cache->of_encoder ? part->source[row] : part->own[row];
}

/* The lists of rows [row, row + rows) of the step, and where the columns of the group's head begin in a page. */
static Pages find_pages(const tfm_context *context, const Paged *paged, int64_t row, int64_t rows, int64_t item) {
  const tfm_attention_step *step = paged->a.step;
  Pages pages;
  pages.of = paged;
  pages.lists = rows;
  pages.first_item = item;
  for (int64_t i = 0; i < rows; i++) {
    pages.keys[i] = pages_of(paged->run, paged->keys, row + i);
    pages.values[i] = pages_of(paged->run, paged->values, row + i);
  }
  pages.key_offset = page_place(paged->keys, column_of(context, &paged->a, &step->k, item));
  pages.value_offset = page_place(paged->values, column_of(context, &paged->a, &step->v, item));
  return pages;
}

/* How many rows of a strip, from `row` on, read the same page. */
static inline int64_t rows_of_page(float *const *const *lists, int64_t n_lists, int64_t row, int64_t rows,
                                   int64_t page) {
  if (n_lists == 1) return rows - row;
  int64_t end = row + 1;
  while (end < rows && lists[end][page] == lists[row][page]) end++;
  return end - row;
}

/* The pages of a row of the strip. */
static float *const *list_of(float *const *const *lists, const Pages *pages, int64_t row) {
  return lists[pages->lists == 1 ? 0 : row];
}

typedef struct PageRows { /* of a block of keys: those in one page, of rows of a strip that read it */
  int64_t key, n, page, row, rows; /* key: within the block; page: in the lists */
} PageRows;

static inline PageRows before_pages(const AttentionStrip *s) {
  return (PageRows){.key = -TFM_CACHE_PAGE, .row = s->rows};
}

/* Moves on: to the next rows of the page, those that read the same one together, then to the next page. `lists` is of
 * keys or of values. False: there is none. */
static inline bool next_page(const AttentionStrip *s, const KeyBlock *keys, float *const *const *lists, PageRows *at) {
  at->row += at->rows;
  if (at->row >= s->rows) {
    at->row = 0;
    at->key += TFM_CACHE_PAGE;
  }
  if (at->key >= keys->n) return false;
  at->page = keys->number * BLOCK_PAGES + at->key / TFM_CACHE_PAGE;
  at->n = least_of(TFM_CACHE_PAGE, keys->n - at->key);
  at->rows = rows_of_page(lists, s->pages->lists, at->row, s->rows, at->page);
  return true;
}

/* The keys of the page after the next one, which the tile fetches; of the last pages of a block, those of the next
 * head, which are `floats` behind. */
static inline const float *keys_ahead(const AttentionStrip *s, const KeyBlock *keys, const PageRows *at,
                                      int64_t floats) {
  float *const *list = list_of(s->pages->keys, s->pages, at->row);
  const bool is_near_end = at->key + PAGES_AHEAD * TFM_CACHE_PAGE >= keys->n;
  return list[at->page + (is_near_end ? 0 : PAGES_AHEAD)] + s->pages->key_offset + (is_near_end ? floats : 0);
}

// ---- f32 ----

/* The values of a head in one page are many short rows, which no hardware fetches ahead: they are fetched while the
 * scores are computed. */
static void fetch_values(const Paged *paged, const float *values, int64_t n) {
  for (int64_t position = 0; position < n; position++, values += paged->values->columns)
    for (int64_t column = 0; column < paged->a.step->e; column += LINE_FLOATS) __builtin_prefetch(values + column);
}

/* Scores of a block of keys, page by page. Rows that read the same page are one tile. */
static void score_pages(const AttentionStrip *s, const KeyBlock *keys) {
  const Attention *a = s->attention;
  const Pages *pages = s->pages;
  const tfm_attention_step *step = a->step;
  const int64_t q_stride = a->q->strides[step->rank - 2];
  for (PageRows at = before_pages(s); next_page(s, keys, pages->keys, &at);) {
    const float *of_page = list_of(pages->keys, pages, at.row)[at.page] + pages->key_offset;
    const float *next = keys_ahead(s, keys, &at, step->h * TFM_CACHE_PAGE);
    const float *values = list_of(pages->values, pages, at.row)[at.page] + pages->value_offset;
    if (a->c_wanted) fetch_values(pages->of, values, at.n);
    KERNEL_OF(tfm_tile_kernel, s->walker->context, step->qk_tiles[at.rows])
    ((const float *)(s->item->q + (s->row + at.row) * q_stride), of_page,
     s->scratch->strip + at.row * TFM_STRIP_STRIDE + at.key, TFM_STRIP_STRIDE, step->h, 0, at.n, next,
     KEY_LINES_AHEAD);
  }
}

/* c += weights * values, page by page, as one chain. A page that ever held an infinite value takes the exact tiles. */
static void add_pages(const AttentionStrip *s, const KeyBlock *keys) {
  const Pages *pages = s->pages;
  const tfm_attention_step *step = s->attention->step;
  int64_t c_stride;
  float *results = attention_place(s, keys->number, &c_stride);
  for (PageRows at = before_pages(s); next_page(s, keys, pages->values, &at);) {
    float *values = list_of(pages->values, pages, at.row)[at.page];
    const PageTail *tail = page_tail(values, pages->of->value_floats);
    const bool infinite = atomic_load_explicit(&tail->has_infinite, memory_order_relaxed);
    const uint32_t *tiles = infinite ? step->pv_exact_tiles : step->pv_tiles;
    const tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, s->walker->context, tiles[at.rows]);
    values += pages->value_offset;
    for (int64_t column = 0; column < step->e; column += step->pv_width)
      kernel(s->scratch->strip + at.row * TFM_STRIP_STRIDE + at.key, values + column,
             results + at.row * c_stride + column, c_stride, at.n,
             at.key > 0 || !attention_begins(keys->number), least_of(step->pv_width, step->e - column), values, 0);
  }
}

// ---- 8 bits ----

/* What a thread needs: rows of whole numbers, and the scales of a block of values side by side. */
static int64_t int8_scratch_floats(const tfm_attention_step *step) {
  return int8_scratch(step).floats + TFM_KEY_BLOCK;
}

/* As score_pages. A page of keys is a panel, or several that the tile walks where it is narrower. */
static void score_int8_pages(const AttentionStrip *s, const KeyBlock *keys) {
  const Pages *pages = s->pages;
  const tfm_attention_step *step = s->attention->step;
  const Int8Scratch of = int8_scratch(step);
  const int64_t floats = tfm_head_floats(step->form, true, step->h);
  const float *q = int8_queries(s, &of);
  for (PageRows at = before_pages(s); next_page(s, keys, pages->keys, &at);) {
    const float *of_page = list_of(pages->keys, pages, at.row)[at.page] + pages->key_offset;
    const float *next = keys_ahead(s, keys, &at, floats);
    __builtin_prefetch(next + floats - TFM_CACHE_PAGE); /* its scales, which the tile does not fetch */
    const tfm_tile_kernel tile = KERNEL_OF(tfm_tile_kernel, s->walker->context, step->qk_tiles[at.rows]);
    float *scores = s->scratch->strip + at.row * TFM_STRIP_STRIDE + at.key;
    for (int64_t column = 0; column < at.n; column += step->qk_width)
      tile(q + at.row * of.q_floats, of_page + column, scores + column, TFM_STRIP_STRIDE, step->h, 0,
           least_of(step->qk_width, at.n - column), next, KEY_LINES_AHEAD);
  }
}

/* How many rows of a strip, from `row` on, read the same pages throughout. */
static int64_t rows_of_pages(const Pages *pages, int64_t row, int64_t rows, int64_t first_page, int64_t n_pages) {
  if (pages->lists == 1) return rows - row;
  int64_t end = row + 1;
  float *const *const list = pages->values[row] + first_page;
  while (end < rows && memcmp(pages->values[end] + first_page, list, (size_t)n_pages * sizeof *list) == 0) end++;
  return end - row;
}

typedef struct ColumnJob { /* one tile's width of columns of some rows that read the same pages of a block of n keys */
  float *const *list;
  int64_t offset; /* of the columns in a page */
  const float *weights;
  int64_t rows, n;
  float *to;
  int64_t stride, columns;
} ColumnJob;

/* The sums are whole until the last page has been added, and so have no order. */
static void add_column(const AttentionStrip *s, const ColumnJob *job) {
  const tfm_attention_step *step = s->attention->step;
  const tfm_tile_kernel tile = KERNEL_OF(tfm_tile_kernel, s->walker->context, step->pv_tiles[job->rows]);
  const float *weights = job->weights;
  for (int64_t key = 0; key < job->n; key += TFM_CACHE_PAGE, weights += TFM_CACHE_PAGE * step->a_bytes / 4) {
    const int64_t follow = key + TFM_CACHE_PAGE < job->n ? TFM_MORE_FOLLOW : 0;
    tile(weights, job->list[key / TFM_CACHE_PAGE] + job->offset, job->to, job->stride,
         least_of(TFM_CACHE_PAGE, job->n - key), (key > 0 ? TFM_ACCUMULATE : 0) | follow, job->columns, weights, 0);
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
static void add_int8_pages(const AttentionStrip *s, const KeyBlock *keys) {
  const Pages *pages = s->pages;
  const tfm_attention_step *step = s->attention->step;
  const Int8Scratch of = int8_scratch(step);
  const bool begins = attention_begins(keys->number);
  float *scales = s->scratch->form + of.floats, *weights = s->scratch->form + of.weights + TFM_ROW_HEAD;
  int64_t stride, first_page = keys->number * BLOCK_PAGES, n_pages = ceil_div(keys->n, TFM_CACHE_PAGE);
  float *results = attention_place(s, keys->number, &stride);
  for (int64_t row = 0, rows; row < s->rows; row += rows, results += rows * stride) {
    rows = rows_of_pages(pages, row, s->rows, first_page, n_pages);
    float *const *list = list_of(pages->values, pages, row) + first_page;
    float *of_strip = s->scratch->strip + row * TFM_STRIP_STRIDE;
    gather_scales(step, list, pages->value_offset, keys->n, scales);
    KERNEL_OF(tfm_weigh_kernel, s->walker->context, step->weigh)(of_strip, rows, keys->n, scales, weights);
    ColumnJob job = {.list = list, .weights = weights, .rows = rows, .n = keys->n,
                     .stride = begins ? stride : TFM_STRIP_STRIDE};
    for (int64_t column = 0; column < step->e; column += step->pv_width) {
      job.offset = pages->value_offset + column;
      job.to = begins ? results + column : of_strip;
      job.columns = least_of(step->pv_width, step->e - column);
      add_column(s, &job);
      if (!begins) int8_add_rows(results + column, stride, of_strip, rows, job.columns);
    }
  }
}

// ---- units ----

/* Addresses and padding of one item; keys and values are in pages. */
static AttentionItem paged_item_at(const tfm_context *context, const Attention *a, int64_t number) {
  return (AttentionItem){.number = number,
                         .limit = attention_last_key(context, a, number),
                         .q = items_address(context, &a->batch, a->q, number),
                         .c = items_address(context, &a->batch, a->c, number),
                         .weights = a->weights ? items_address(context, &a->batch, a->weights, number) : NULL};
}

/* Strip `number` of the group. It has the item of the strip before it, or one of its own, which goes to `item`. A gang
 * is one strip; keys that one of its rows must not see are masked by the score expression, so the most that any of them
 * may see is right for all. */
static void enter_strip(const tfm_context *context, int64_t number, const AttentionItem *before, AttentionItem *item,
                        AttentionStrip *strip) {
  const Pages *pages = strip->pages;
  const Paged *paged = pages->of;
  const int64_t wanted = pages->first_item + number / paged->a.strips, part = number % paged->a.strips;
  const bool is_gang = paged->gang > 1;
  const Strips all = all_strips(&paged->a);
  strip->item = before && before->number == wanted ? before : item;
  if (strip->item == item) *item = paged_item_at(context, &paged->a, wanted);
  strip->row = strip_row(&all, part);
  strip->rows = is_gang ? pages->lists : strip_row(&all, part + 1) - strip->row;
  for (int64_t i = 1; is_gang && paged->a.padding && i < strip->rows; i++)
    item->limit = greatest_of(item->limit, attention_last_key(context, &paged->a, wanted + i * paged->per_row));
  strip->seen = keys_seen(&paged->a, strip->item, strip->row + (is_gang ? 1 : strip->rows) - 1);
}

/* The strips [first, first + n) of a group, n <= CHUNK_STRIPS. `of` has what they have in common. */
static void run_paged_chunk(const AttentionStrip *of, int64_t first, int64_t n) {
  const PageKind *kind = of->pages->of->kind;
  BlockWork *const score = kind ? kind->score : score_pages, *const add = kind ? kind->add : add_pages;
  AttentionItem items[CHUNK_STRIPS];
  AttentionStrip strips[CHUNK_STRIPS];
  int64_t states = 0, seen = 0;
  for (int64_t i = 0; i < n; i++) {
    strips[i] = *of;
    enter_strip(of->walker->context, first + i, i ? strips[i - 1].item : NULL, &items[i], &strips[i]);
    strips[i].state = states;
    states += strips[i].rows;
    seen = greatest_of(seen, strips[i].seen);
  }
  attention_begin(of->scratch, states);
  for (int64_t block = 0; block * TFM_KEY_BLOCK < seen; block++)
    for (int64_t i = 0; i < n; i++) attention_block(&strips[i], block, 0, score, add);
  for (int64_t i = 0; i < n; i++) attention_finish(&strips[i]);
}

/* How many rows of the step, from `row` on, share their first page: rows share their beginning or their source, so
 * rows that do not share the first page share nothing. */
static int64_t rows_akin(const Paged *paged, int64_t row, int64_t end) {
  if (paged->a.keys <= 0) return end - row;
  float *const *first = pages_of(paged->run, paged->keys, row);
  int64_t next = row + 1;
  while (next < end && pages_of(paged->run, paged->keys, next)[0] == first[0]) next++;
  return next - row;
}

/* Unit `number` of gangs x groups x parts. Rows of a gang that share no page follow one another: what is fetched ahead
 * for one of them is used before the next one's would displace it. */
static void run_paged_unit(const Walker *walker, const Paged *paged, const AttentionScratch *scratch, int64_t number) {
  int64_t part = number % paged->a.cuts, groups = paged->per_row / paged->group;
  int64_t group = number / paged->a.cuts % groups, gang = number / paged->a.cuts / groups;
  int64_t row = paged->rows * gang / paged->gangs, end_row = paged->rows * (gang + 1) / paged->gangs;
  int64_t begin = paged->strips * part / paged->a.cuts, end = paged->strips * (part + 1) / paged->a.cuts;
  for (int64_t rows; row < end_row; row += rows) {
    rows = rows_akin(paged, row, end_row);
    const Pages pages = find_pages(walker->context, paged, row, rows, row * paged->per_row + group * paged->group);
    const AttentionStrip of = {.walker = walker,
                               .attention = &paged->a,
                               .scratch = scratch,
                               .pages = &pages,
                               .item_step = paged->gang > 1 ? paged->per_row : 0};
    for (int64_t first = begin; first < end; first += CHUNK_STRIPS)
      run_paged_chunk(&of, first, least_of(end - first, CHUNK_STRIPS));
  }
}

/* Attention over cached keys and values. Units are claimed, because rows differ in what is near. */
static void attention(Walker *walker, const tfm_step *step, const PageKind *kind) {
  Paged paged = paged_of(walker, step, kind);
  if (paged.a.items <= 0 || paged.a.queries <= 0) return;
  AttentionScratch scratch;
  attention_scratch(&paged.a, walker->scratch, &scratch);
  int64_t units = paged.gangs * (paged.per_row / paged.group) * paged.a.cuts, lump = share_coarsen(units);
  int64_t ignored, number;
  Claimer claimer = walker_claimer(walker, 1, ceil_div(units, lump));
  while (share_claim(&claimer, &ignored, &number))
    for (int64_t unit = number * lump; unit < least_of(units, (number + 1) * lump); unit++)
      run_paged_unit(walker, &paged, &scratch, unit);
}

// ---- drivers ----

void step_attention_paged(Walker *walker, const tfm_step *step) { attention(walker, step, NULL); }

int64_t attention_paged_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  return scratch_bytes(context, step, NULL);
}

static const PageKind int8 = {.scratch_floats = int8_scratch_floats, .score = score_int8_pages, .add = add_int8_pages};

void step_attention_paged_int8(Walker *walker, const tfm_step *step) { attention(walker, step, &int8); }

int64_t attention_paged_int8_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  return scratch_bytes(context, step, &int8);
}
