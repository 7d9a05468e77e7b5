/* Products of two activations: both are packed into scratch, then the same tiles as in a gemm. What lies already as it
 * would be packed stays where it is. In: x and y, of any strides; operands of the epilogue. Out: c. Refuses nothing.
 *
 * The loops, from outside to inside; beside them what they are cut by, and where it stays; in brackets the function
 * that has each:
 *
 *   units             an item x a group of panels x some strips   threads share them              [matmul_run]
 *     strips          tile_rows rows of x                         the first-level cache           [run_all_strips]
 *       chains        TFM_CHAIN steps of k                        results wait in scratch         [run_chains_of_strip]
 *         blocks      TFM_KEY_BLOCK steps of k                    a strip of x is packed for one  [run_k_chain]
 *           panels    width columns of y                          half of the second-level cache  [matmul_run_tiles]
 *             tile    tile_rows x width results                   registers: a generated kernel
 *               chains, turns                                     in the kernel, as in a gemm
 *
 * A panel is as wide as a tile here. A thread packs those of a group when it takes its first unit of it
 * (run_matmul_unit); where one strip is all or k is long, those of a block when it comes to that (matmul_panels_at).
 *
 * Where k is long (Matmul.by_blocks), strips are the loop within blocks, so that panels of a block alone need be near:
 * units, chains, blocks, strips, panels, tile (run_blocks, run_k_block). The chain of a result is the same in both: the
 * blocks of k ascend from 0, whatever the unit.
 *
 * The epilogue of a strip, over all columns of the group, follows its last block of k, or, of several chains, the last
 * sum (finish_rows; finish_live_rows).
 *
 * Small and narrow products are direct: their kernel reads both factors where they lie, for many items at a time
 * (step_direct.c). Gradients add up their chains by steps that are not zero (gradient_sums.c). */
#include <string.h>

#include "machine/tuning.h"
#include "steps/matmul_tiles.h"
#include "steps/partial_sums.h"
#include "steps/step_direct.h"

// ---- strips ----

typedef struct StripRange { /* strips [first, end) of an item */
  int64_t first, end, row, end_row;
} StripRange;

typedef struct StripCursor {
  int64_t tile, row; /* the next strip, and where it begins; if only some rows are live, the next row */
} StripCursor;

/* The rows of the next strip of the range, from *row on; 0: there is none. They are cut from live rows. */
static int64_t next_strip(const MatmulUnit *unit, const StripRange *strips, StripCursor *cursor, int64_t *row) {
  const Matmul *m = unit->m;
  *row = cursor->row;
  if (unit->rows.mask) {
    const int64_t live = live_run(&unit->rows, true, cursor->row, strips->end_row, row);
    const int64_t rows = least_of(m->step->tile_rows, live);
    cursor->row = *row + rows;
    return rows;
  }
  if (cursor->tile == strips->end) return 0;
  cursor->row = m->rows * ++cursor->tile / m->strips;
  return cursor->row - *row;
}

/* Bytes between rows of the results; those of the unit in a row. */
static int64_t c_row_bytes(const Matmul *m) { return m->c->strides[m->step->rank - 2]; }
static char *unit_results(const MatmulUnit *unit, int64_t row) {
  return unit->c + row * c_row_bytes(unit->m) + matmul_column(unit) * (int64_t)sizeof(float);
}

/* Where the chains of some rows of a unit are added up. */
static PartialSums sums_at(const MatmulUnit *unit, int64_t row, int64_t rows) {
  const Matmul *m = unit->m;
  return (PartialSums){.c = (float *)unit_results(unit, row),
                       .c_stride = c_row_bytes(m) / (int64_t)sizeof(float),
                       .waiting = unit->waiting,
                       .stride = m->panels_per_group * m->step->width,
                       .level = matmul_waiting_floats(m),
                       .rows = rows,
                       .columns = matmul_columns(unit)};
}

/* What follows the product in some rows of the unit. */
static void finish_rows(const MatmulUnit *unit, int64_t row, int64_t rows) {
  const Matmul *m = unit->m;
  if (!m->epilogue.kernel) return;
  const Region at = {unit->item * m->rows + row, rows, matmul_column(unit), matmul_columns(unit)};
  epilogue_run(unit->walker, &m->epilogue, unit_results(unit, row), c_row_bytes(m), &at);
}

/* The length of the block of k at k. Those of gradients end with a chain, if one ends in them. */
static int64_t block_at(const Matmul *m, int64_t k, int64_t end) {
  const int64_t block = least_of(m->k_block, end - k);
  for (int64_t i = m->counted.n - 1; i >= 0 && m->counted.items[i].end > k; i--)
    if (m->counted.items[i].end <= k + block) return m->counted.items[i].end - k;
  return block;
}

// ---- strip by strip ----

static void run_direct(const MatmulJob *job, int64_t first_k, int64_t end_k) {
  const MatmulUnit *unit = job->unit;
  const Matmul *m = unit->m;
  const DirectWork work = {.x = unit->x + job->row * m->x->strides[m->step->rank - 2],
                           .y = unit->y + matmul_column(unit) * m->y->strides[m->step->rank - 1],
                           .c = (char *)job->c,
                           .c_row = job->c_stride * (int64_t)sizeof(float),
                           .items = 1,
                           .rows = job->rows,
                           .columns = matmul_columns(unit),
                           .first_k = first_k,
                           .end_k = end_k};
  direct_run(unit->walker, m, &work);
}

/* All panels of the group for each block of k of a chain, so that the packed strip is used while it is near; a chain
 * goes on from block to block in c. */
static void run_k_chain(MatmulJob *job, int64_t chain) {
  const Matmul *m = job->unit->m;
  const int64_t first = chain * m->chain, end = least_of(m->k, first + m->chain);
  if (m->is_direct) {
    run_direct(job, first, end);
    return;
  }
  int64_t k = first;
  do { /* once if there are no steps at all: zeroes */
    const int64_t block = block_at(m, k, end);
    matmul_place_strip(job, k, block);
    job->y = matmul_panels_at(job->unit, k, block);
    job->fetch = matmul_fetch_strip(job);
    job->accumulate = k > first;
    k += block;
    job->is_last = k == m->k;
    matmul_run_tiles(job);
  } while (k < end);
}

/* Several chains of the job's rows. */
static void run_chains_of_strip(MatmulJob *job) {
  const PartialSums sums = sums_at(job->unit, job->row, job->rows);
  const int64_t chains = partial_chains(job->unit->m->k);
  for (int64_t chain = 0; chain < chains; chain++) {
    job->c = partial_place(&sums, chain, &job->c_stride);
    run_k_chain(job, chain);
    partial_add(&sums, chain, chains);
  }
}

/* The job's rows, and what follows the product there. */
static void run_strip(MatmulJob *job) {
  const Matmul *m = job->unit->m;
  if (m->chain < m->k) {
    run_chains_of_strip(job);
  } else {
    job->c = (float *)unit_results(job->unit, job->row);
    job->c_stride = c_row_bytes(m) / (int64_t)sizeof(float);
    run_k_chain(job, 0);
  }
  finish_rows(job->unit, job->row, job->rows);
}

static void run_all_strips(const MatmulUnit *unit, const StripRange *strips) {
  StripCursor cursor = {strips->first, strips->row};
  MatmulJob job = matmul_job(unit);
  while ((job.rows = next_strip(unit, strips, &cursor, &job.row)) > 0) run_strip(&job);
}

// ---- block of k by block of k ----

/* A block of k of a chain, all strips, the first of which has its results at of->c. If it is the last one of the only
 * chain, each strip's epilogue follows at once. */
static void run_k_block(const MatmulJob *of, const StripRange *strips) {
  const MatmulUnit *unit = of->unit;
  const Matmul *m = unit->m;
  const int64_t n = unit->end_panel - unit->first_panel, calls = (strips->end - strips->first) * n;
  const bool is_whole = !unit->rows.mask && !unit->steps.mask;
  MatmulJob job = *of;
  job.y = matmul_panels_at(unit, of->k, of->block);
  StripCursor cursor = {strips->first, strips->row};
  for (int64_t i = 0; (job.rows = next_strip(unit, strips, &cursor, &job.row)) > 0; i++) {
    matmul_place_strip(&job, of->k, of->block);
    job.fetch = is_whole ? matmul_fetch_block(&job, i * n, calls) : (Fetch){0};
    job.c = of->c + (job.row - strips->row) * job.c_stride;
    if (m->step->in_order) job.chain = unit->chain + (job.row - strips->row) * job.chain_stride;
    matmul_run_tiles(&job);
    if (job.is_last && m->chain >= m->k) finish_rows(unit, job.row, job.rows);
  }
}

/* What follows the product in rows [row, end), if they are live. */
static void finish_live_rows(const MatmulUnit *unit, int64_t row, int64_t end) {
  int64_t first = row, rows = end - row;
  for (int64_t at = row; at < end; at = first + rows) {
    if (unit->rows.mask && (rows = live_run(&unit->rows, true, at, end, &first)) == 0) return;
    finish_rows(unit, first, rows);
  }
}

/* All strips for each block: their chains go on where the results are. */
static void run_blocks(const MatmulUnit *unit, const StripRange *strips) {
  const Matmul *m = unit->m;
  const PartialSums sums = sums_at(unit, strips->row, strips->end_row - strips->row);
  const int64_t chains = ceil_div(m->k, m->chain);
  MatmulJob job = matmul_job(unit);
  for (int64_t chain = 0; chain < chains; chain++) {
    const int64_t begin = chain * m->chain, end = least_of(m->k, begin + m->chain);
    job.c = partial_place(&sums, chain, &job.c_stride);
    for (job.k = begin; job.k < end; job.k += job.block) {
      job.block = block_at(m, job.k, end);
      job.accumulate = job.k > begin;
      job.is_last = job.k + job.block == m->k;
      run_k_block(&job, strips);
    }
    partial_add(&sums, chain, chains);
  }
  if (m->chain < m->k) finish_live_rows(unit, strips->row, strips->end_row);
}

// ---- units ----

/* The masks of the unit's item. */
static void find_live(MatmulUnit *unit) {
  const Matmul *m = unit->m;
  if (!m->live.mask) return;
  LiveRows *live = m->step->live_steps ? &unit->steps : &unit->rows;
  *live = m->live;
  if (m->step->live_steps != TFM_STEPS_SHARED) live->mask += unit->item * (m->step->live_steps ? m->k : m->rows);
}

/* Unit of group number `group` of items x groups. */
static MatmulUnit unit_of(const Walker *walker, const Matmul *m, int64_t group) {
  const tfm_context *context = walker->context;
  MatmulUnit unit = {.walker = walker, .m = m, .item = group / m->groups};
  unit.first_panel = m->panels * (group % m->groups) / m->groups;
  unit.end_panel = m->panels * (group % m->groups + 1) / m->groups;
  unit.strip = (float *)(void *)(walker->scratch + matmul_counted_bytes(m));
  unit.chain = unit.strip + (int64_t)m->step->tile_rows * TFM_STRIP_STRIDE;
  unit.waiting = unit.chain + matmul_chain_floats(m);
  unit.panels = unit.waiting + partial_levels(m->k) * matmul_waiting_floats(m);
  unit.x = matmul_item(context, m, m->x, unit.item);
  unit.y = matmul_item(context, m, m->y, unit.item);
  unit.c = matmul_item(context, m, m->c, unit.item);
  find_live(&unit);
  if (m->y_stays && m->step->x_stays && !m->live.mask && unit.item + 1 < m->items) {
    unit.next_x = matmul_item(context, m, m->x, unit.item + 1);
    unit.next_y = matmul_item(context, m, m->y, unit.item + 1);
  }
  return unit;
}

/* Rows that are not live become 0 where somebody reads them: after the sums of chains, which are added up in all
 * rows. */
static void clear_rows_left_out(const MatmulUnit *unit, const StripRange *strips) {
  const ClearJob job = {.rows = unit_results(unit, 0),
                        .stride = c_row_bytes(unit->m),
                        .bytes = matmul_columns(unit) * (int64_t)sizeof(float)};
  live_clear(&unit->rows, strips->row, strips->end_row, &job);
}

/* Unit `number` of items x groups x strip units; `packed` is the group whose panels are in scratch. */
static void run_matmul_unit(const Walker *walker, const Matmul *m, int64_t number, int64_t *packed) {
  const int64_t part = number % m->strip_units, group = number / m->strip_units;
  MatmulUnit unit = unit_of(walker, m, group);
  if (*packed != group && !m->y_stays && !m->is_direct && m->packed_k == m->k)
    matmul_pack_panels(&unit, 0, m->k, unit.panels);
  *packed = group;
  StripRange strips = {.first = m->strips * part / m->strip_units, .end = m->strips * (part + 1) / m->strip_units};
  strips.row = m->rows * strips.first / m->strips;
  strips.end_row = unit.end_row = m->rows * strips.end / m->strips;
  if (m->is_direct && m->k <= TFM_CHAIN) { /* all strips at once */
    MatmulJob job = matmul_job(&unit);
    job.row = strips.row;
    job.rows = strips.end_row - strips.row;
    run_strip(&job);
    return;
  }
  if (m->by_blocks) run_blocks(&unit, &strips);
  else run_all_strips(&unit, &strips);
  if (unit.rows.mask && unit.rows.zeroed) clear_rows_left_out(&unit, &strips);
}

void matmul_run(Walker *walker, const tfm_step *step, const GradientSums *sums) {
  Matmul m = matmul_of(walker->context, step, walker->threads);
  m.sums = sums;
  if (m.items <= 0 || m.rows <= 0 || m.columns <= 0) return;
  const int64_t items = m.step->live_steps == TFM_STEPS_SHARED ? 1 : m.items;
  live_unless_all(&m.live, items * (m.step->live_steps ? m.k : m.rows));
  if (m.step->direct == TFM_DIRECT_ONE_ROW) {
    sums->one_row(walker, &m);
    return;
  }
  if (sums) sums->count(walker, step, &m);
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
      for (int64_t i = first; i < end; i++) run_matmul_unit(walker, &m, i, &packed);
  }
}

void step_matmul(Walker *walker, const tfm_step *step) { matmul_run(walker, step, NULL); }
