/* Products of two activations: both are packed into scratch, then the same tiles as in a gemm. What lies already as it
 * would be packed stays where it is.
 *
 * A unit is one batch item, a range of row strips and a group of panels. A thread packs the panels of a group once for
 * all its strips, or block of k by block of k if there is but one strip, or if k is long and all results stay near. The
 * blocks of k ascend from 0, whatever the unit, in chains of TFM_CHAIN steps (partial_sums.h).
 *
 * Small and narrow products are direct: their kernel reads both factors where they lie, for many items at a time. */
#include <string.h>

#include "steps/matmul_cut.h"
#include "steps/partial_sums.h"
#include "steps/step_direct.h"

enum {
  LEAST_FETCHING = 64, /* steps of a tile, so that lines of its successor have the time to come */
  LINES_TOGETHER = 16, /* of y */
  CLAIMS = 16          /* of a thread, of many items each */
};


/* The steps [k, end) of panels: [k][width] for each, columns beyond the last zero. Of lines of y, a few are packed for
 * all panels before the next ones: what fetches ahead then has a line to follow, and not a piece in each page. */
static void pack_panels(const Matmul *m, const char *y, int64_t first_panel, int64_t end_panel, int64_t k, int64_t end,
                        float *packed) {
  int rank = m->step->rank;
  int64_t k_stride = m->y->strides[rank - 2] / (int64_t)sizeof(float);
  int64_t column_stride = m->y->strides[rank - 1] / (int64_t)sizeof(float);
  const bool is_wide = column_stride == 1 && end_panel - first_panel > 1;
  const int64_t together = is_wide ? LINES_TOGETHER : greatest_of(1, end - k);
  for (int64_t line = k; line < end; line += together) {
    float *to = packed + (line - k) * m->step->width;
    for (int64_t panel = first_panel; panel < end_panel; panel++, to += m->packed_k * m->step->width) {
      const int64_t column = panel * m->step->width, columns = least_of(m->step->width, m->columns - column);
      m->pack((const float *)y + line * k_stride + column * column_stride, k_stride, column_stride,
              least_of(together, end - line), columns, to);
    }
  }
}

/* The same, of steps that are live. */
static void pack_live_panels(const Matmul *m, const MatmulUnit *unit, int64_t k, int64_t end, float *packed) {
  if (!unit->steps.mask) {
    pack_panels(m, unit->y, unit->first_panel, unit->end_panel, k, end, packed);
    return;
  }
  int64_t first, n;
  for (int64_t at = k; (n = live_run(&unit->steps, true, at, end, &first)) > 0; at = first + n)
    pack_panels(m, unit->y, unit->first_panel, unit->end_panel, first, first + n,
                packed + (first - k) * m->step->width);
}

/* packed[row][k], rows TFM_STRIP_STRIDE floats apart. Rows that lie side by side are read together. */
static void pack_strip(const Matmul *m, const char *x, int64_t rows, int64_t k, float *packed) {
  int64_t row_stride = m->x->strides[m->step->rank - 2], k_stride = m->x->strides[m->step->rank - 1];
  if (row_stride == sizeof(float)) {
    for (int64_t i = 0; i < k; i++)
      for (int64_t row = 0; row < rows; row++)
        memcpy(packed + row * TFM_STRIP_STRIDE + i, x + i * k_stride + row * row_stride, sizeof(float));
    return;
  }
  for (int64_t row = 0; row < rows; row++) {
    const char *source = x + row * row_stride;
    float *target = packed + row * TFM_STRIP_STRIDE;
    if (k_stride == sizeof(float))
      memcpy(target, source, (size_t)k * sizeof(float));
    else
      for (int64_t i = 0; i < k; i++) memcpy(target + i, source + i * k_stride, sizeof(float));
  }
}

// ---- units ----

/* The rows of a strip for a block of k. */
static const float *strip_at(const Matmul *m, const MatmulUnit *unit, int64_t row, int64_t rows, int64_t k,
                             int64_t block) {
  const char *x = unit->x + row * m->x->strides[m->step->rank - 2] + k * m->x->strides[m->step->rank - 1];
  if (m->step->x_stays) return (const float *)x;
  pack_strip(m, x, rows, block, unit->strip);
  return unit->strip;
}

/* The first panel of the group from step k on; the next ones follow packed_k steps apart. */
static const float *panels_at(const Matmul *m, const MatmulUnit *unit, int64_t k, int64_t block) {
  if (m->y_stays) {
    const int64_t column = unit->first_panel * m->step->width * (int64_t)sizeof(float);
    return (const float *)(unit->y + k * m->y->strides[m->step->rank - 2] + column);
  }
  if (m->packed_k == m->k) return unit->panels + k * m->step->width;
  pack_live_panels(m, unit, k, k + block, unit->panels);
  return unit->panels;
}

/* The share of the next item, of y and then of x, that the strip at `row` brings nearer. */
static Fetch share_of_next(const Matmul *m, const MatmulUnit *unit, int64_t row) {
  if (m->k < 4) return (Fetch){0};
  const int64_t of_y = m->k * m->step->width * (int64_t)sizeof(float);
  const int64_t all = of_y + m->rows * m->k * (int64_t)sizeof(float), begin = all * row / m->rows;
  const int64_t lines = ceil_div(all, ALIGNMENT * m->strips * (m->k / 4));
  return (Fetch){begin < of_y ? unit->next_y + begin : unit->next_x + begin - of_y,
                 least_of(lines, TFM_PREFETCH_LINES)};
}

static int64_t fetched_bytes(int64_t lines, int64_t block) { return lines * (block / 4) * ALIGNMENT; }

/* What the strip at `row` brings nearer of the next one, from step k on: the rows of x that will be packed then, if
 * they lie one behind the other. */
static Fetch share_of_strip(const Matmul *m, const MatmulUnit *unit, int64_t row, int64_t rows, int64_t k) {
  const int64_t *strides = m->x->strides + m->step->rank - 2;
  const int64_t line = m->k * (int64_t)sizeof(float), next = row + rows;
  if (m->k < 4 || strides[0] < line || strides[0] > line + line / 8 || strides[1] != sizeof(float)) return (Fetch){0};
  const int64_t panels = unit->end_panel - unit->first_panel, blocks = ceil_div(m->k, TFM_KEY_BLOCK);
  const int64_t all = least_of(rows, m->rows - next) * strides[0];
  const int64_t lines = least_of(ceil_div(all, fetched_bytes(panels * blocks, TFM_KEY_BLOCK)), TFM_PREFETCH_LINES);
  const int64_t begin = fetched_bytes(lines * panels, TFM_KEY_BLOCK) * (k / TFM_KEY_BLOCK);
  if (begin >= all) return (Fetch){0};
  return (Fetch){unit->x + next * strides[0] + begin, lines};
}

/* Brings lines [k, end) of the rows behind the strip nearer, where x is read in place and its rows are neighbours: each
 * step of k is then a line in a page of its own, which no prefetcher foresees. */
static void fetch_lines(const Matmul *m, const float *strip, int64_t rows, int64_t k, int64_t end) {
  const int64_t line = m->x->strides[m->step->rank - 1];
  const char *next = (const char *)(strip + rows);
  for (int64_t i = k; i < end; i++) __builtin_prefetch(next + i * line, 0, 2);
}

typedef struct NextTile { /* where it writes; no rows: it is another thread's */
  const float *c;
  int64_t rows, columns;
} NextTile;

/* The tile after `panel` of the strip at `row`, whose first row of results is c. Its lines are mostly in no cache, and
 * have the time of a tile to come. Beyond the last strip of the unit another thread may write. */
static NextTile tile_after(const Matmul *m, const MatmulUnit *unit, int64_t row, int64_t rows, int64_t panel,
                           const float *c, int64_t c_stride) {
  const int64_t width = m->step->width, left = unit->end_row - row - rows;
  if (panel + 1 < unit->end_panel - unit->first_panel)
    return (NextTile){c + (panel + 1) * width, rows,
                      least_of(width, m->columns - (unit->first_panel + panel + 1) * width)};
  if (left <= 0) return (NextTile){.c = c};
  return (NextTile){c + rows * c_stride, least_of(rows, left), least_of(width, m->columns - unit->first_panel * width)};
}

/* A strip, for a block of k, against all panels of the group. If it is the last block, the epilogue follows in the rows
 * from `row` of the item on: what that reads comes from far away, and has the time of a tile for it. */
static void run_tiles(const Strip *s, int64_t accumulate, bool is_last) {
  const Matmul *m = s->m;
  const MatmulUnit *unit = s->unit;
  const tfm_matmul_step *step = m->step;
  tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, s->walker->context, step->tiles[s->rows]);
  const int64_t panels_of_unit = unit->end_panel - unit->first_panel, block = s->block;
  const char *fetch = s->fetch.from;
  for (int64_t panel = 0; panel < panels_of_unit; panel++) {
    const float *packed = s->y + panel * (m->y_stays ? 1 : m->packed_k) * step->width;
    int64_t column = (unit->first_panel + panel) * step->width, columns = least_of(step->width, m->columns - column);
    if (m->is_sideways)
      fetch_lines(m, s->x, s->rows, block * panel / panels_of_unit, block * (panel + 1) / panels_of_unit);
    if (is_last) epilogue_fetch(s->walker, &m->epilogue, unit->item * m->rows + s->row, s->rows, column, columns);
    const NextTile next = tile_after(m, unit, s->row, s->rows, panel, s->c, s->c_stride);
    if (!m->is_sideways && block >= LEAST_FETCHING)
      fetch_rows_for_writing(next.c, s->c_stride, next.rows, next.columns);
    kernel(s->x, packed, s->c + panel * step->width, s->c_stride, block, accumulate, columns,
           m->is_sideways ? (const char *)next.c : fetch, s->fetch.lines); /* sideways, the tile itself asks for it */
    if (s->fetch.lines) fetch += fetched_bytes(s->fetch.lines, block);
  }
}

void matmul_some_tiles(const Strip *strip, int64_t first, int64_t n, int64_t accumulate, float *c, int64_t c_stride) {
  const int64_t panels = strip->unit->end_panel - strip->unit->first_panel;
  Strip some = *strip;
  some.x += (first - strip->k) * strip->x_step;
  some.y += (first - strip->k) * strip->y_step;
  some.k = first;
  some.block = n;
  some.c = c;
  some.c_stride = c_stride;
  if (strip->unit->steps.mask) some.fetch = (Fetch){0};
  else some.fetch.from += panels * fetched_bytes(some.fetch.lines, first - strip->k);
  run_tiles(&some, accumulate, false);
}

int64_t matmul_live_steps(const MatmulUnit *unit, int64_t at, int64_t end, int64_t *first) {
  *first = at;
  return unit->steps.mask ? live_run(&unit->steps, true, at, end, first) : end - at;
}

/* The results of a chain, beside those of c, become those of c, or are added to them. */
static void add_chain(const Strip *s, bool adds) {
  const PartialSums sums = {.c = s->c, .c_stride = s->c_stride, .waiting = s->chain, .stride = s->chain_stride,
                            .rows = s->rows, .columns = matmul_columns(s->m, s->unit)};
  partial_take(&sums, 1, adds);
}

/* The live steps of the block, chain by chain, each added to c. One without any live step is 0. */
static void run_live_chains(const Strip *s, bool adds) {
  int64_t begin = s->k;
  do { /* once if there are no steps at all: zeroes */
    const int64_t end = least_of(s->k + s->block, begin + TFM_SHORT_CHAIN);
    int64_t first, n, goes_on = 0;
    for (int64_t at = begin; (n = matmul_live_steps(s->unit, at, end, &first)) > 0; at = first + n, goes_on = 1)
      matmul_some_tiles(s, first, n, goes_on, s->chain, s->chain_stride);
    if (!goes_on && !adds) matmul_some_tiles(s, s->k, 0, 0, s->chain, s->chain_stride);
    if (goes_on || !adds) add_chain(s, adds);
    adds = true;
    begin = end;
  } while (begin < s->k + s->block);
}

/* The live steps of the block. */
static void run_live_tiles(const Strip *s, int64_t accumulate) {
  const Matmul *m = s->m;
  if (m->step->adds_chains) run_live_chains(s, accumulate != 0);
  else if (m->step->in_order) s->walker->context->program->gradient_sums()->add(s);
  else run_tiles(s, accumulate, s->k + s->block == m->k);
}

typedef struct StripCursor {
  int64_t tile, row; /* the next strip; if only some rows are live, the next row */
} StripCursor;

static StripCursor strips_from(const Matmul *m, int64_t tile) {
  return (StripCursor){tile, m->rows * tile / m->strips};
}

/* The rows of the next strip before strip `end`, from *row on; 0: there is none. They are cut from live rows. */
static int64_t next_strip(const Matmul *m, const MatmulUnit *unit, int64_t end, StripCursor *cursor, int64_t *row) {
  const int64_t end_row = m->rows * end / m->strips;
  if (unit->rows.mask) {
    const int64_t rows = least_of(m->step->tile_rows, live_run(&unit->rows, true, cursor->row, end_row, row));
    cursor->row = *row + rows;
    return rows;
  }
  if (cursor->tile == end) return 0;
  *row = m->rows * cursor->tile / m->strips;
  return m->rows * ++cursor->tile / m->strips - *row;
}

static Strip strip_of(const Walker *walker, const Matmul *m, const MatmulUnit *unit, int64_t row, int64_t rows) {
  const int64_t size = (int64_t)sizeof(float), rank = m->step->rank;
  return (Strip){.walker = walker,
                 .m = m,
                 .unit = unit,
                 .x_step = m->step->x_stays ? m->x->strides[rank - 1] / size : 1,
                 .y_step = m->y_stays ? m->y->strides[rank - 2] / size : m->step->width,
                 .row = row,
                 .rows = rows,
                 .chain = unit->chain,
                 .chain_stride = m->panels_per_group * m->step->width};
}

/* The factors of steps [k, k + block). */
static void place_block(Strip *strip, int64_t k, int64_t block) {
  strip->k = k;
  strip->block = block;
  strip->x = strip_at(strip->m, strip->unit, strip->row, strip->rows, k, block);
  strip->y = panels_at(strip->m, strip->unit, k, block);
}

/* The length of the block of k at k. Those of gradients end with a chain, if one ends in them. */
static int64_t block_at(const Matmul *m, int64_t k, int64_t end) {
  const int64_t block = least_of(m->k_block, end - k);
  for (int64_t i = m->counted.n - 1; i >= 0 && m->counted.items[i].end > k; i--)
    if (m->counted.items[i].end <= k + block) return m->counted.items[i].end - k;
  return block;
}

/* All panels of the group for each block of k of a chain, so that the packed strip is used while it is near; a chain
 * goes on from block to block in c. */
static void run_chain(const Walker *walker, const Matmul *m, const MatmulUnit *unit, int64_t row, int64_t rows,
                      int64_t chain, float *c, int64_t c_stride) {
  const tfm_matmul_step *step = m->step;
  if (m->is_direct) {
    const int64_t column = unit->first_panel * step->width;
    const DirectWork work = {.x = unit->x + row * m->x->strides[step->rank - 2],
                             .y = unit->y + column * m->y->strides[step->rank - 1],
                             .c = (char *)c,
                             .c_row = c_stride * (int64_t)sizeof(float),
                             .items = 1,
                             .rows = rows,
                             .columns = least_of(m->columns, unit->end_panel * step->width) - column,
                             .first_k = chain * m->chain,
                             .end_k = least_of(m->k, (chain + 1) * m->chain)};
    direct_run(walker, m, &work);
    return;
  }
  int64_t first = chain * m->chain, end = least_of(m->k, first + m->chain), k = first;
  Strip strip = strip_of(walker, m, unit, row, rows);
  strip.c = c;
  strip.c_stride = c_stride;
  do { /* once if there are no steps at all: zeroes */
    place_block(&strip, k, block_at(m, k, end));
    strip.fetch = unit->next_x ? share_of_next(m, unit, row) : share_of_strip(m, unit, row, rows, k);
    run_live_tiles(&strip, k > first);
    k += strip.block;
  } while (k < end);
}

/* Where chains of the panels of a unit are added up, in `rows` rows from c on. */
static PartialSums sums_at(const Matmul *m, const MatmulUnit *unit, char *c, int64_t rows) {
  const int64_t width = m->step->width;
  return (PartialSums){.c = (float *)c,
                       .c_stride = m->c->strides[m->step->rank - 2] / (int64_t)sizeof(float),
                       .waiting = unit->waiting,
                       .stride = m->panels_per_group * width,
                       .level = matmul_waiting_floats(m),
                       .rows = rows,
                       .columns = matmul_columns(m, unit)};
}

static void run_strip(const Walker *walker, const Matmul *m, const MatmulUnit *unit, int64_t row, int64_t rows) {
  const tfm_matmul_step *step = m->step;
  int64_t c_stride = m->c->strides[step->rank - 2], chains = m->chain < m->k ? partial_chains(m->k) : 1;
  const int64_t column = unit->first_panel * step->width;
  char *c = unit->c + row * c_stride + column * (int64_t)sizeof(float);
  const PartialSums sums = sums_at(m, unit, c, rows);
  for (int64_t chain = 0; chain < chains; chain++) {
    int64_t stride;
    float *place = partial_place(&sums, chain, &stride);
    run_chain(walker, m, unit, row, rows, chain, place, stride);
    partial_add(&sums, chain, chains);
  }
  epilogue_run(walker, &m->epilogue, c, c_stride, unit->item * m->rows + row, rows, column, sums.columns);
}

/* What one of `calls` tiles brings nearer of the block of k after the next `k` steps: of y, which is packed first, then
 * of x. Only lines that lie one behind the other. */
static Fetch share_of_block(const Matmul *m, const MatmulUnit *unit, int64_t k, int64_t call, int64_t calls) {
  const int64_t y_line = m->y->strides[m->step->rank - 2], x_line = m->x->strides[m->step->rank - 1];
  const int64_t steps = least_of(m->k_block, m->k - k), size = (int64_t)sizeof(float);
  if (!m->step->x_stays || y_line != m->columns * size || x_line != m->rows * size || steps < 4) return (Fetch){0};
  const int64_t of_y = y_line * steps, all = of_y + x_line * steps;
  const int64_t lines = least_of(ceil_div(all, fetched_bytes(calls, m->k_block)), TFM_PREFETCH_LINES);
  const int64_t begin = fetched_bytes(lines, m->k_block) * call;
  if (begin >= all) return (Fetch){0};
  return (Fetch){begin < of_y ? unit->y + k * y_line + begin : unit->x + k * x_line + begin - of_y, lines};
}

/* A block of k of a chain, all strips [first, end), whose results begin at c. If it is the last one of the only chain,
 * each strip's epilogue follows at once. */
static void run_block(const Walker *walker, const Matmul *m, const MatmulUnit *unit, int64_t first, int64_t end,
                      int64_t k, int64_t block, int64_t accumulate, float *c, int64_t c_stride) {
  const int64_t first_row = m->rows * first / m->strips, n = unit->end_panel - unit->first_panel;
  const bool is_whole = !unit->rows.mask && !unit->steps.mask;
  Strip strip = strip_of(walker, m, unit, first_row, 0);
  const float *panels = panels_at(m, unit, k, block);
  StripCursor cursor = strips_from(m, first);
  for (int64_t i = 0; (strip.rows = next_strip(m, unit, end, &cursor, &strip.row)) > 0; i++) {
    strip.k = k;
    strip.block = block;
    strip.x = strip_at(m, unit, strip.row, strip.rows, k, block);
    strip.y = panels;
    strip.fetch = is_whole ? share_of_block(m, unit, k + block, i * n, (end - first) * n) : (Fetch){0};
    strip.c = c + (strip.row - first_row) * c_stride;
    strip.c_stride = c_stride;
    if (m->step->in_order) strip.chain = unit->chain + (strip.row - first_row) * strip.chain_stride;
    run_live_tiles(&strip, accumulate);
    if (k + block < m->k || m->chain < m->k) continue;
    epilogue_run(walker, &m->epilogue, (char *)strip.c, c_stride * (int64_t)sizeof(float),
                 unit->item * m->rows + strip.row, strip.rows, unit->first_panel * m->step->width,
                 matmul_columns(m, unit));
  }
}

/* What follows the product in rows [row, end), whose results begin at c, if they are live. */
static void finish_rows(const Walker *walker, const Matmul *m, const MatmulUnit *unit, int64_t row, int64_t end,
                        char *c, int64_t column, int64_t columns) {
  const int64_t c_stride = m->c->strides[m->step->rank - 2];
  int64_t first = row, rows = end - row;
  for (int64_t at = row; at < end; at = first + rows) {
    if (unit->rows.mask && (rows = live_run(&unit->rows, true, at, end, &first)) == 0) return;
    epilogue_run(walker, &m->epilogue, c + (first - row) * c_stride, c_stride, unit->item * m->rows + first, rows,
                 column, columns);
  }
}

/* Rows of strips [tile, end) that are not live become 0 where somebody reads them: after the sums of chains, which are
 * added up in all rows. */
static void clear_other_rows(const Matmul *m, const MatmulUnit *unit, int64_t tile, int64_t end) {
  const int64_t width = m->step->width, column = unit->first_panel * width, end_row = m->rows * end / m->strips;
  const int64_t columns = least_of(m->columns, unit->end_panel * width) - column;
  int64_t first, rows, row = m->rows * tile / m->strips;
  for (; (rows = live_run(&unit->rows, false, row, end_row, &first)) > 0; row = first + rows)
    for (int64_t i = first; i < first + rows; i++)
      memset(unit->c + i * m->c->strides[m->step->rank - 2] + column * (int64_t)sizeof(float), 0,
             (size_t)columns * sizeof(float));
}

/* The masks of the unit's item. */
static void find_live(const Matmul *m, MatmulUnit *unit) {
  if (!m->live.mask) return;
  LiveRows *live = m->step->live_steps ? &unit->steps : &unit->rows;
  *live = m->live;
  if (m->step->live_steps != TFM_STEPS_SHARED) live->mask += unit->item * (m->step->live_steps ? m->k : m->rows);
}

/* Block of k by block of k, all strips [first, end) for each: their chains go on where the results are. */
static void run_blocks(const Walker *walker, const Matmul *m, const MatmulUnit *unit, int64_t first, int64_t end) {
  const tfm_matmul_step *step = m->step;
  const int64_t c_stride = m->c->strides[step->rank - 2], column = unit->first_panel * step->width;
  const int64_t row = m->rows * first / m->strips, rows = m->rows * end / m->strips - row;
  char *c = unit->c + row * c_stride + column * (int64_t)sizeof(float);
  const PartialSums sums = sums_at(m, unit, c, rows);
  const int64_t chains = ceil_div(m->k, m->chain);
  for (int64_t chain = 0; chain < chains; chain++) {
    int64_t stride;
    float *place = partial_place(&sums, chain, &stride);
    const int64_t begin = chain * m->chain, end_k = least_of(m->k, begin + m->chain);
    for (int64_t k = begin, block; k < end_k; k += block) {
      block = block_at(m, k, end_k);
      run_block(walker, m, unit, first, end, k, block, k > begin, place, stride);
    }
    partial_add(&sums, chain, chains);
  }
  if (m->chain < m->k) finish_rows(walker, m, unit, row, row + rows, c, column, sums.columns);
}

/* Unit `number` of items x groups x strip units; `packed` is the group whose panels are in scratch. */
static void run_unit(const Walker *walker, const Matmul *m, int64_t number, int64_t *packed) {
  const tfm_context *context = walker->context;
  const int64_t groups = m->groups, part = number % m->strip_units, group = number / m->strip_units;
  float *strip = (float *)(void *)(walker->scratch + matmul_counted_bytes(m));
  float *chain = strip + (int64_t)m->step->tile_rows * TFM_STRIP_STRIDE;
  float *waiting = chain + matmul_chain_floats(m);
  float *panels = waiting + partial_levels(m->k) * matmul_waiting_floats(m);
  MatmulUnit unit = {.item = group / groups, .first_panel = m->panels * (group % groups) / groups, .panels = panels,
                     .strip = strip, .waiting = waiting, .chain = chain};
  unit.end_panel = m->panels * (group % groups + 1) / groups;
  unit.x = matmul_item(context, m->step, m->x, unit.item);
  unit.y = matmul_item(context, m->step, m->y, unit.item);
  unit.c = matmul_item(context, m->step, m->c, unit.item);
  find_live(m, &unit);
  if (m->y_stays && m->step->x_stays && !m->live.mask && unit.item + 1 < m->items) {
    unit.next_x = matmul_item(context, m->step, m->x, unit.item + 1);
    unit.next_y = matmul_item(context, m->step, m->y, unit.item + 1);
  }
  if (*packed != group && !m->y_stays && !m->is_direct && m->packed_k == m->k)
    pack_live_panels(m, &unit, 0, m->k, panels);
  *packed = group;
  int64_t first = m->strips * part / m->strip_units, end = m->strips * (part + 1) / m->strip_units;
  unit.end_row = m->rows * end / m->strips;
  if (m->is_direct && m->k <= TFM_CHAIN) { /* all strips at once */
    int64_t row = m->rows * first / m->strips;
    run_strip(walker, m, &unit, row, m->rows * end / m->strips - row);
    return;
  }
  StripCursor cursor = strips_from(m, first);
  int64_t row, rows;
  if (m->by_blocks) run_blocks(walker, m, &unit, first, end);
  else
    while ((rows = next_strip(m, &unit, end, &cursor, &row)) > 0) run_strip(walker, m, &unit, row, rows);
  if (unit.rows.mask && unit.rows.zeroed) clear_other_rows(m, &unit, first, end);
}

void step_matmul(Walker *walker, const tfm_step *step) {
  Matmul m = matmul_of(walker->context, step, walker->threads);
  if (m.items <= 0 || m.rows <= 0 || m.columns <= 0) return;
  const int64_t items = m.step->live_steps == TFM_STEPS_SHARED ? 1 : m.items;
  live_unless_all(&m.live, items * (m.step->live_steps ? m.k : m.rows));
  if (m.step->direct == TFM_DIRECT_ONE_ROW) {
    walker->context->program->gradient_sums()->one_row(walker, &m);
    return;
  }
  if (m.step->in_order) walker->context->program->gradient_sums()->count(walker, step, &m);
  int64_t units = m.items * m.groups * m.strip_units;
  int64_t lump = share_coarsen(units), packed = -1, ignored, number;
  const bool by_items = m.is_direct && units == m.items && m.k <= TFM_CHAIN;
  if (by_items) lump = greatest_of(lump, ceil_div(units, CLAIMS * (int64_t)walker->threads));
  Claimer claimer = walker_claimer(walker, 1, ceil_div(units, lump));
  while (share_claim(&claimer, &ignored, &number)) {
    int64_t first = number * lump, end = least_of(units, first + lump);
    if (by_items)
      direct_run_items(walker, &m, first, end);
    else
      for (int64_t i = first; i < end; i++) run_unit(walker, &m, i, &packed);
  }
}
