/* In: a strip of x and the panels of a unit. Out: their product for a block of k. See matmul_tiles.h.
 *
 * What lies already as it would be packed stays where it is. While a tile is computed, lines of what comes next are on
 * their way: those that it reads are named to the kernel, those that it writes are asked for here. */
#include "steps/matmul_tiles.h"

#include <string.h>

#include "machine/tuning.h"
#include "steps/panels.h"
#include "steps/partial_sums.h"

static const int64_t *x_strides(const Matmul *m) { return m->x->strides + m->step->rank - 2; } /* row, step */
static const int64_t *y_strides(const Matmul *m) { return m->y->strides + m->step->rank - 2; } /* step, column */

// ---- packing ----

/* Of lines of y, a few are packed for all panels before the next ones: what fetches ahead then has a line to follow,
 * and not a piece in each page. */
static void pack_steps(const MatmulUnit *unit, int64_t k, int64_t end, float *packed) {
  const Matmul *m = unit->m;
  const int64_t size = m->y->bytes, width = m->step->width;
  const int64_t k_stride = y_strides(m)[0] / size, column_stride = y_strides(m)[1] / size;
  const bool is_wide = column_stride == 1 && unit->end_panel - unit->first_panel > 1;
  const int64_t together = is_wide ? LINES_TOGETHER : greatest_of(1, end - k);
  PanelJob job = {.pack = m->pack,
                  .bytes = size,
                  .k_stride = k_stride,
                  .column_stride = column_stride,
                  .columns = matmul_columns(unit),
                  .width = width,
                  .panel_floats = m->packed_k * width};
  for (int64_t line = k; line < end; line += together) {
    job.from = unit->y + (line * k_stride + matmul_column(unit) * column_stride) * size;
    job.k = least_of(together, end - line);
    panels_pack(&job, packed + (line - k) * width);
  }
}

void matmul_pack_panels(const MatmulUnit *unit, int64_t k, int64_t end, float *packed) {
  if (!unit->steps.mask) {
    pack_steps(unit, k, end, packed);
    return;
  }
  int64_t first, n;
  for (int64_t at = k; (n = live_run(&unit->steps, true, at, end, &first)) > 0; at = first + n)
    pack_steps(unit, first, first + n, packed + (first - k) * unit->m->step->width);
}

const float *matmul_panels_at(const MatmulUnit *unit, int64_t k, int64_t block) {
  const Matmul *m = unit->m;
  if (m->y_stays)
    return (const float *)(unit->y + k * y_strides(m)[0] + matmul_column(unit) * (int64_t)sizeof(float));
  if (m->packed_k == m->k) return unit->panels + k * m->step->width;
  matmul_pack_panels(unit, k, k + block, unit->panels);
  return unit->panels;
}

/* packed[row][k], rows TFM_STRIP_STRIDE floats apart. Rows that lie side by side are read together. */
static void pack_strip(const Matmul *m, const char *x, int64_t rows, int64_t k, float *packed) {
  const int64_t row_stride = x_strides(m)[0], k_stride = x_strides(m)[1];
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

void matmul_place_strip(MatmulJob *job, int64_t k, int64_t block) {
  const Matmul *m = job->unit->m;
  const char *x = job->unit->x + job->row * x_strides(m)[0] + k * x_strides(m)[1];
  job->k = k;
  job->block = block;
  job->x = m->step->x_stays ? (const float *)x : job->unit->strip;
  if (!m->step->x_stays) pack_strip(m, x, job->rows, block, job->unit->strip);
}

MatmulJob matmul_job(const MatmulUnit *unit) {
  const Matmul *m = unit->m;
  const int64_t size = (int64_t)sizeof(float);
  return (MatmulJob){.unit = unit,
                     .x_step = m->step->x_stays ? x_strides(m)[1] / size : 1,
                     .y_step = m->y_stays ? y_strides(m)[0] / size : m->step->width,
                     .chain = unit->chain,
                     .chain_stride = m->panels_per_group * m->step->width};
}

// ---- fetching ahead ----

static int64_t fetched_bytes(int64_t lines, int64_t block) { return lines * (block / 4) * ALIGNMENT; }

/* The share of the next item, of y and then of x, that the strip at `row` brings nearer. */
static Fetch share_of_next(const MatmulUnit *unit, int64_t row) {
  const Matmul *m = unit->m;
  if (m->k < 4) return (Fetch){0};
  const int64_t of_y = m->k * m->step->width * (int64_t)sizeof(float);
  const int64_t all = of_y + m->rows * m->k * (int64_t)sizeof(float), begin = all * row / m->rows;
  const int64_t lines = ceil_div(all, ALIGNMENT * m->strips * (m->k / 4));
  return (Fetch){begin < of_y ? unit->next_y + begin : unit->next_x + begin - of_y,
                 least_of(lines, TFM_PREFETCH_LINES)};
}

/* What the strip brings nearer of the next one: the rows of x that will be packed then, if they lie one behind the
 * other. */
static Fetch share_of_strip(const MatmulJob *job) {
  const MatmulUnit *unit = job->unit;
  const Matmul *m = unit->m;
  const int64_t *strides = x_strides(m);
  const int64_t line = m->k * (int64_t)sizeof(float), next = job->row + job->rows;
  if (m->k < 4 || strides[0] < line || strides[0] > line + line / 8 || strides[1] != sizeof(float)) return (Fetch){0};
  const int64_t panels = unit->end_panel - unit->first_panel, blocks = ceil_div(m->k, TFM_KEY_BLOCK);
  const int64_t all = least_of(job->rows, m->rows - next) * strides[0];
  const int64_t lines = least_of(ceil_div(all, fetched_bytes(panels * blocks, TFM_KEY_BLOCK)), TFM_PREFETCH_LINES);
  const int64_t begin = fetched_bytes(lines * panels, TFM_KEY_BLOCK) * (job->k / TFM_KEY_BLOCK);
  if (begin >= all) return (Fetch){0};
  return (Fetch){unit->x + next * strides[0] + begin, lines};
}

Fetch matmul_fetch_strip(const MatmulJob *job) {
  return job->unit->next_x ? share_of_next(job->unit, job->row) : share_of_strip(job);
}

/* Of y, which is packed first, then of x. Only lines that lie one behind the other. */
Fetch matmul_fetch_block(const MatmulJob *job, int64_t call, int64_t calls) {
  const Matmul *m = job->unit->m;
  const int64_t y_line = y_strides(m)[0], x_line = x_strides(m)[1], k = job->k + job->block;
  const int64_t steps = least_of(m->k_block, m->k - k), size = (int64_t)sizeof(float);
  if (!m->step->x_stays || y_line != m->columns * size || x_line != m->rows * size || steps < 4) return (Fetch){0};
  const int64_t of_y = y_line * steps, all = of_y + x_line * steps;
  const int64_t lines = least_of(ceil_div(all, fetched_bytes(calls, m->k_block)), TFM_PREFETCH_LINES);
  const int64_t begin = fetched_bytes(lines, m->k_block) * call;
  if (begin >= all) return (Fetch){0};
  return (Fetch){begin < of_y ? job->unit->y + k * y_line + begin : job->unit->x + k * x_line + begin - of_y, lines};
}

/* Brings lines [k, end) of the rows behind the strip nearer, where x is read in place and its rows are neighbours: each
 * step of k is then a line in a page of its own, which no prefetcher foresees. */
static void fetch_lines(const MatmulJob *job, int64_t k, int64_t end) {
  const int64_t line = x_strides(job->unit->m)[1];
  const char *next = (const char *)(job->x + job->rows);
  for (int64_t i = k; i < end; i++) __builtin_prefetch(next + i * line, 0, 2);
}

typedef struct NextTile { /* where it writes; no rows: it is another thread's */
  const float *c;
  int64_t rows, columns;
} NextTile;

/* The tile after `panel` of the strip. Its lines are mostly in no cache, and have the time of a tile to come. Beyond
 * the last strip of the unit another thread may write. */
static inline NextTile tile_after(const MatmulJob *job, int64_t panel) {
  const MatmulUnit *unit = job->unit;
  const Matmul *m = unit->m;
  const int64_t width = m->step->width, left = unit->end_row - job->row - job->rows;
  if (panel + 1 < unit->end_panel - unit->first_panel)
    return (NextTile){job->c + (panel + 1) * width, job->rows,
                      least_of(width, m->columns - (unit->first_panel + panel + 1) * width)};
  if (left <= 0) return (NextTile){.c = job->c};
  return (NextTile){job->c + job->rows * job->c_stride, least_of(job->rows, left),
                    least_of(width, m->columns - matmul_column(unit))};
}

// ---- tiles ----

/* All panels of the group. If the job is the last of its strip, the epilogue follows in these rows of the item: what
 * that reads comes from far away, and has the time of a tile for it. */
static void run_all_tiles(const MatmulJob *job) {
  const MatmulUnit *unit = job->unit;
  const Matmul *m = unit->m;
  const tfm_matmul_step *step = m->step;
  const tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, unit->walker->context, step->tiles[job->rows]);
  const int64_t panels = unit->end_panel - unit->first_panel, block = job->block;
  const int64_t panel_floats = (m->y_stays ? 1 : m->packed_k) * step->width;
  const char *fetch = job->fetch.from;
  for (int64_t panel = 0; panel < panels; panel++) {
    const int64_t column = (unit->first_panel + panel) * step->width;
    const int64_t columns = least_of(step->width, m->columns - column);
    if (m->is_sideways) fetch_lines(job, block * panel / panels, block * (panel + 1) / panels);
    const Region at = {unit->item * m->rows + job->row, job->rows, column, columns};
    if (job->is_last) epilogue_fetch(unit->walker, &m->epilogue, &at);
    const NextTile next = tile_after(job, panel);
    if (!m->is_sideways && block >= LEAST_FETCHING)
      fetch_rows_for_writing(next.c, job->c_stride, next.rows, next.columns);
    kernel(job->x, job->y + panel * panel_floats, job->c + panel * step->width, job->c_stride, block, job->accumulate,
           columns, m->is_sideways ? (const char *)next.c : fetch, /* sideways, the tile itself asks for it */
           job->fetch.lines);
    if (job->fetch.lines) fetch += fetched_bytes(job->fetch.lines, block);
  }
}

void matmul_some_tiles(const MatmulJob *job, int64_t first, int64_t n, int64_t accumulate, float *c, int64_t c_stride) {
  const int64_t panels = job->unit->end_panel - job->unit->first_panel;
  MatmulJob some = *job;
  some.x += (first - job->k) * job->x_step;
  some.y += (first - job->k) * job->y_step;
  some.k = first;
  some.block = n;
  some.c = c;
  some.c_stride = c_stride;
  some.accumulate = accumulate;
  some.is_last = false;
  if (job->unit->steps.mask) some.fetch = (Fetch){0};
  else if (some.fetch.lines) some.fetch.from += panels * fetched_bytes(some.fetch.lines, first - job->k);
  run_all_tiles(&some);
}

int64_t matmul_live_steps(const MatmulUnit *unit, int64_t at, int64_t end, int64_t *first) {
  *first = at;
  return unit->steps.mask ? live_run(&unit->steps, true, at, end, first) : end - at;
}

/* The results of a chain, beside those of c, become those of c, or are added to them. */
static void add_chain(const MatmulJob *job, bool adds) {
  const PartialSums sums = {.c = job->c,
                            .c_stride = job->c_stride,
                            .waiting = job->chain,
                            .stride = job->chain_stride,
                            .rows = job->rows,
                            .columns = matmul_columns(job->unit)};
  partial_take(&sums, 1, adds);
}

/* The live steps of the block, chain by chain, each added to c. One without any live step is 0. */
static void run_live_chains(const MatmulJob *job, bool adds) {
  int64_t begin = job->k;
  do { /* once if there are no steps at all: zeroes */
    const int64_t end = least_of(job->k + job->block, begin + TFM_SHORT_CHAIN);
    int64_t first, n, goes_on = 0;
    for (int64_t at = begin; (n = matmul_live_steps(job->unit, at, end, &first)) > 0; at = first + n, goes_on = 1)
      matmul_some_tiles(job, first, n, goes_on, job->chain, job->chain_stride);
    if (!goes_on && !adds) matmul_some_tiles(job, job->k, 0, 0, job->chain, job->chain_stride);
    if (goes_on || !adds) add_chain(job, adds);
    adds = true;
    begin = end;
  } while (begin < job->k + job->block);
}

void matmul_run_tiles(const MatmulJob *job) {
  const tfm_matmul_step *step = job->unit->m->step;
  if (step->adds_chains) run_live_chains(job, job->accumulate != 0);
  else if (job->unit->m->sums) job->unit->m->sums->add(job);
  else run_all_tiles(job);
}
