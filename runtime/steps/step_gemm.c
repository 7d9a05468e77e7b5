/* Products with packed weights: x wT, tile by tile, each tile's epilogue right after its last block of k.
 *
 * In: rows of a, f32 or whole numbers; weights in panels; operands of the epilogue. Out: rows of c, or their units for
 * the run's consumer. Refuses nothing.
 *
 * The loops, from outside to inside; beside them what they are cut by, and where it stays; in brackets the function
 * that has each:
 *
 *   units              a block of rows (128) x a group of panels      threads share them; a thread keeps its panels
 *     chains           TFM_CHAIN steps of k, CHAINED_PANELS panels    results that wait in scratch    [run_chains]
 *       blocks of k    TFM_K_BLOCK steps (WHOLE_K_BLOCK of bytes)     of the rows: the second-level cache
 *         tiles        all of the block; where k is short, one        its rows of results are written as a whole
 *           panels     step->panel columns of packed weights          read once, each names the next  [gemm_block]
 *             bands    step->width columns; of few rows, with AVX2,   the columns of a tile; of few tiles
 *                      all of a panel, and of one row all of k, of    (Block.in_order) pieces are outside
 *                      two panels [run_two_panels]                    and bands in each   [moves_on]
 *               pieces Block.together steps of k: all, but where      of the weights: the nearest cache [run_panel]
 *                      tiles are few
 *                 tile tile_rows x width results                      registers: a generated kernel   [run_tiles]
 *                 short chains  TFM_SHORT_CHAIN steps, f32 of longer k  in the kernel (kernels/tile.c)
 *                   turns  4 steps of k; of INT8 16, of INT4 32       in the kernel
 *
 * All threads of the step call gemm_step, which has the loop over units: they cut it alike (gemm_cut.c) and claim units
 * (pool/share.h). Panels are cut over threads first, so that each streams its own weights; rows only
 * when there are more threads than panels. A thread that takes rows through a chain of steps (walk/chains.c) has all
 * units of these rows.
 *
 * The order of a sum is that of its chains alone: which there are in a kernel says the plan (product_chain in
 * plan/products.c), those of TFM_CHAIN steps are added in a tree (partial_sums.h). Every other cut is between results,
 * or between whole chains of one, and changes no bit.
 *
 * The epilogue of a tile follows its last piece of k (run_tiles), or, of several chains, the last sum (run_chains).
 *
 * In f32, rows of a are read where they are. Of INT8, INT4 and the MIXED forms of forms.def (`rows_are_whole`) a step
 * before this one has rounded them (step_quantize of step_row.c; abi/kernels.h draws such a row), the loops
 * are the same, and only the tile kernel is another. Sums of INT8 and INT4 have no order: c holds them, i32, until the
 * last call for a tile scales them. Those of MIXED forms are f32, group after group of k.
 *
 * While a panel is used, the next one is on its way: each tile that fetches names its part of it (`next`), and the last
 * unit of a step names the first panel of the next gemm.
 *
 * Results go to a matrix, or to the run's consumer by way of scratch that holds those of one unit, or, of a chain
 * whose sum waits, to scratch too: GemmJob.to says where.
 *
 * If only some rows are live, blocks and tiles are cut from these: a row is computed alike in any tile. For the same
 * reason the rows of lockstep runs may be one product (Walker.of_all); only their epilogues and masks are each run's
 * own. */
#include <string.h>

#include "machine/tuning.h"
#include "steps/gemm_cut.h"
#include "steps/live_runs.h"
#include "tfm/abi/tiles.h"

/* This thread's share of the rows that are not live becomes 0. */
__attribute__((cold)) static void clear_other_rows(const Walker *walker, const Gemm *gemm) {
  const RowShare share = rows_of_thread(walker, &gemm->live, gemm->all_rows);
  const ClearJob job = {.rows = (char *)gemm->c,
                        .stride = gemm->c_stride * (int64_t)sizeof(float),
                        .bytes = gemm->step->n * (int64_t)sizeof(float),
                        .item = gemm->live.item};
  live_clear(&gemm->live, share.row, share.end_row, &job);
}

// ---- where results go ----

typedef struct Results { /* a matrix, or a part of it */
  float *c;
  int64_t stride;      /* elements between rows */
  int64_t row, column; /* of the first element */
  bool by_tile;        /* the rows of the block's tiles, one behind the other */
} Results;

/* A block of rows times some panels, for a chain of k. */
typedef struct GemmJob {
  const Walker *walker;
  const Gemm *gemm;
  const Block *block;
  int64_t first_panel, end_panel;
  const char *after; /* what is read next */
  GemmChain k;
  Results to;
} GemmJob;

static inline float *results_at(const Results *to, const Tile *tile, int64_t column) {
  const int64_t row = to->by_tile ? tile->before : tile->row - to->row;
  return to->c + row * to->stride + (column - to->column);
}

/* The epilogue of a tile, right after its last step of k, while it is still in the nearest cache: by what was found for
 * the whole step; or, in one product of several runs, whose rows a tile may mix, run by run; or, where its rows are
 * several axes, by the place of the tile. */
static inline void finish_tile(const GemmJob *job, float *c, const Tile *tile, int64_t column, int64_t columns) {
  const Gemm *gemm = job->gemm;
  const int64_t stride = job->to.stride * (int64_t)sizeof(float);
  if (!gemm->epilogue.kernel) return;
  const Region at = {tile->row, tile->rows, column, columns};
  if (gemm->prepared->kernel) epilogue_call(gemm->prepared, (char *)c, stride, &at);
  else if (job->walker->of_all)
    job->walker->call->lockstep->finish_tile(job->walker, gemm->step, (char *)c, stride, &at);
  else epilogue_run(job->walker, &gemm->epilogue, (char *)c, stride, &at);
}

// ---- the walk over panels ----

typedef struct PanelWalk { /* the loops around a panel */
  const GemmJob *job;
  int64_t first_k, end_k;          /* of the block of k */
  int64_t tile, tiles;             /* those that go together */
  int64_t scales, panel_bytes;     /* scales: where those begin that no tile fetches; if there are none, panel_bytes */
  int64_t column_bytes, lines;     /* between neighbouring columns; what tiles fetch, see pace_block in gemm_cut.c */
  bool fetches_next, fetches_rows; /* results: of the next tile; whole rows of a later one */
  bool in_order;                   /* see Block */
  int64_t end_of_two;              /* up to it panels are read two at a time */
} PanelWalk;

typedef struct Band { /* of a panel: the columns of one tile, some steps of k */
  const char *weights, *next; /* next: what is read after it */
  int64_t column, columns, first_k, k;
  int64_t of_panel; /* columns of it; 0: not its first band */
  int64_t ahead; /* bytes of `next` that each tile fetches */
} Band;

/* The tiles that go together against one piece of a band; one that takes whole panels, against that of the first.
 * Lines that another core had last come as slowly as from memory: those that a tile writes are asked for while the one
 * before it is computed. */
static inline void run_tiles(const PanelWalk *walk, const Band *band) {
  const GemmJob *job = walk->job;
  const Gemm *gemm = job->gemm;
  const tfm_gemm_step *step = gemm->step;
  const char *a = (const char *)gemm->a + tfm_row_bytes(step->form, step->a_bytes, band->first_k);
  const bool is_end = band->first_k + band->k == step->k, goes_on = rows_are_whole(step) && !is_end;
  const int64_t accumulate = (band->first_k > job->k.begin ? TFM_ACCUMULATE : 0) | (goes_on ? TFM_MORE_FOLLOW : 0);
  const Tile *tile = &job->block->tiles[walk->tile], *end = tile + walk->tiles;
  for (const char *next = band->next; tile < end; tile++, next += band->ahead) {
    float *c = results_at(&job->to, tile, band->column);
    const int64_t columns = takes_whole_panels(step, tile->rows) ? band->of_panel : band->columns;
    if (walk->fetches_next && tile + 1 < end)
      fetch_rows_for_writing(results_at(&job->to, tile + 1, band->column), job->to.stride, tile[1].rows, band->columns);
    if (columns == 0) continue;
    tile->kernel((const float *)(const void *)a + tile->row * gemm->a_stride, band->weights, c, job->to.stride, band->k,
                 accumulate, columns, next, walk->lines);
    if (is_end && gemm->chains == 1) finish_tile(job, c, tile, band->column, columns);
  }
}

/* Where little is computed, what takes the time is fetching the lines that are written: those of a tile that comes
 * later are asked for early, as they stand where the rows lie one behind the other. So a processor sees whole rows go
 * by, as it does where numbers are only set, and not a piece of each of some rows. */
static inline void fetch_rows(const PanelWalk *walk, int64_t column, int64_t columns) {
  const GemmJob *job = walk->job;
  const Tile *tile = &job->block->tiles[walk->tile];
  const int64_t n = job->gemm->step->n, line = ALIGNMENT / (int64_t)sizeof(float);
  const int64_t lines = ceil_div(tile->rows * n, line);
  const float *later = results_at(&job->to, tile, 0) + TILES_AHEAD * tile->rows * n;
  const int64_t end = lines * (column + columns) / n;
  for (int64_t i = lines * column / n; i < end; i++) __builtin_prefetch(later + i * line, 0, 2);
}

/* Goes on behind a piece of a band: to the next piece, or to that of the next band where pieces are read in order.
 * False: that was the last one. */
static inline bool moves_on(const PanelWalk *walk, Band *band, int64_t *done, int64_t columns) {
  const int64_t width = walk->job->block->width;
  if (walk->in_order) {
    *done = *done + width < columns ? *done + width : 0;
    if (*done == 0) band->first_k += band->k;
    return band->first_k < walk->end_k;
  }
  band->first_k += band->k;
  if (band->first_k < walk->end_k) return true;
  band->first_k = walk->first_k;
  *done += width;
  return *done < columns;
}

/* A block of k of a panel, band after band and piece after piece: its weights stay near while rows go by. In order
 * it is piece after piece, band after band of each, and what is read next is the piece behind. */
static inline void run_panel(const PanelWalk *walk, int64_t panel, const char *weights, const char *next) {
  const tfm_gemm_step *step = walk->job->gemm->step;
  const Block *block = walk->job->block;
  const int64_t column = panel * step->panel, columns = least_of(step->panel, step->n - column);
  Band band = {.next = next, .first_k = walk->first_k};
  int64_t done = 0;
  for (int64_t at = walk->scales; at < walk->panel_bytes; at += ALIGNMENT) __builtin_prefetch(weights + at, 0, 3);
  do { /* once if there are no steps at all: zeroes */
    band.column = column + done;
    band.columns = least_of(block->width, columns - done);
    band.of_panel = done ? 0 : columns;
    if (walk->fetches_rows) fetch_rows(walk, band.column, band.columns);
    band.k = least_of(block->together, walk->end_k - band.first_k);
    band.ahead = band.k == block->k ? block->ahead : gemm_bytes_ahead(step, block, band.k);
    const int64_t before = band.first_k - walk->first_k;
    band.weights = weights + done * walk->column_bytes + (before ? gemm_panel_bytes(step, before) : 0);
    if (walk->in_order && done == 0)
      band.next = band.first_k + band.k < walk->end_k ? weights + gemm_panel_bytes(step, before + band.k) : next;
    run_tiles(walk, &band);
    band.next += walk->tiles * band.ahead;
  } while (moves_on(walk, &band, &done, columns));
}

/* Whether a call of a tile takes all of k. */
static bool takes_all_steps(const Gemm *gemm, const Block *block) {
  return gemm->chains == 1 && gemm->k_blocks == 1 && block->k == gemm->step->k;
}

/* One row times two panels, all of k: memory gives more where it is read in two places (bench/notes.md). */
static inline void run_two_panels(const PanelWalk *walk, int64_t panel, const char *weights) {
  const GemmJob *job = walk->job;
  const Gemm *gemm = job->gemm;
  const tfm_gemm_step *step = gemm->step;
  const Tile *tile = job->block->tiles;
  const int64_t column = panel * step->panel;
  float *c = results_at(&job->to, tile, column);
  const tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, gemm->context, step->two_panels);
  const char *a = (const char *)(gemm->a + tile->row * gemm->a_stride);
  kernel((const float *)(const void *)(a + tfm_row_bytes(step->form, step->a_bytes, walk->first_k)), weights, c,
         job->to.stride, walk->end_k - walk->first_k, 0, 2 * step->panel, weights + walk->panel_bytes, 0);
  if (gemm->chains == 1) finish_tile(job, c, tile, column, 2 * step->panel);
}

/* Of the panels that are whole an even number, if they are for one row and all of k. */
static int64_t end_of_two_panels(const GemmJob *job) {
  const tfm_gemm_step *step = job->gemm->step;
  if (step->two_panels == TFM_NONE || job->block->rows != 1 || job->k.blocks > 1) return job->first_panel;
  const int64_t whole = least_of(job->end_panel, step->n / step->panel);
  return whole - ((whole - job->first_panel) & 1);
}

static PanelWalk walk_of(const GemmJob *job) {
  const Gemm *gemm = job->gemm;
  const tfm_gemm_step *step = gemm->step;
  PanelWalk walk = {.job = job, .panel_bytes = full_panel_bytes(step)};
  const bool one_tile = is_short(gemm), in_one_piece = !one_tile && takes_all_steps(gemm, job->block);
  const bool whole_panels = in_one_piece && job->block->width == step->panel;
  const bool takes_all_columns = job->to.stride == step->n && job->end_panel - job->first_panel == gemm->panels;
  walk.tiles = one_tile ? 1 : job->block->n;
  walk.lines = one_tile ? 0 : job->block->lines;
  walk.in_order = job->block->in_order && !one_tile;
  walk.scales = whole_panels ? gemm_panel_bytes(step, step->k) : walk.panel_bytes;
  walk.column_bytes = column_bytes_of(step);
  walk.fetches_next = in_one_piece && rows_are_whole(step) && (gemm->blocks > 1 || !whole_panels);
  walk.fetches_rows = one_tile && takes_all_columns;
  walk.end_of_two = end_of_two_panels(job);
  return walk;
}

/* Panels within one block of k: the rows of a for that block are loaded once for all of them. With few steps of k it is
 * tile by tile through all panels, whose weights stay near. */
static void gemm_block(const GemmJob *job) {
  const tfm_gemm_step *step = job->gemm->step;
  PanelWalk walk = walk_of(job);
  const char *panels = job->gemm->weights + job->first_panel * walk.panel_bytes;
  for (int64_t k_block = 0; k_block < job->k.blocks; k_block++) {
    walk.first_k = job->k.begin + k_block * k_block_of(step);
    walk.end_k = k_block + 1 < job->k.blocks ? walk.first_k + k_block_of(step) : job->k.end;
    const char *first = panels + gemm_panel_bytes(step, walk.first_k);
    const char *after = k_block + 1 < job->k.blocks ? panels + gemm_panel_bytes(step, walk.end_k) : job->after;
    for (walk.tile = 0; walk.tile < job->block->n; walk.tile += walk.tiles) {
      const char *weights = first;
      int64_t panel = job->first_panel;
      for (; panel < walk.end_of_two; panel += 2, weights += 2 * walk.panel_bytes)
        run_two_panels(&walk, panel, weights);
      for (; panel < job->end_panel; panel++, weights += walk.panel_bytes)
        run_panel(&walk, panel, weights, panel + 1 < job->end_panel ? weights + walk.panel_bytes : after);
    }
  }
}

// ---- several chains ----

static int64_t waiting_stride(const tfm_gemm_step *step) { return CHAINED_PANELS * (int64_t)step->panel; }
static int64_t waiting_floats(const tfm_gemm_step *step) { return UNIT_ROWS * waiting_stride(step); }

static PartialSums sums_of(const GemmJob *job, const Tile *tile, int64_t column, int64_t columns) {
  const tfm_gemm_step *step = job->gemm->step;
  return (PartialSums){.c = results_at(&job->to, tile, column),
                       .c_stride = job->to.stride,
                       .waiting = job->gemm->waiting + tile->before * waiting_stride(step),
                       .stride = waiting_stride(step),
                       .level = waiting_floats(step),
                       .rows = tile->rows,
                       .columns = columns};
}

/* One chain of all tiles and some panels, where its results belong: in c or with those that wait. */
static void run_chain(const GemmJob *job, int64_t chain) {
  GemmJob part = *job;
  const int64_t column = job->first_panel * job->gemm->step->panel;
  const PartialSums sums = sums_of(job, &job->block->tiles[0], column, 0);
  int64_t stride;
  float *place = partial_place(&sums, chain, &stride);
  part.k = gemm_chain(job->gemm, chain);
  if (place != sums.c) part.to = (Results){.c = place, .stride = stride, .column = column, .by_tile = true};
  gemm_block(&part);
}

/* The epilogue comes when the sums are complete. Few programs have such a long k: those of step_gemm_long. */
__attribute__((cold)) static void run_chains(const GemmJob *job) {
  const Gemm *gemm = job->gemm;
  const tfm_gemm_step *step = gemm->step;
  const Block *block = job->block;
  const int64_t column = job->first_panel * step->panel;
  const int64_t columns = least_of(step->n, job->end_panel * step->panel) - column;
  for (int64_t chain = 0; chain < gemm->chains; chain++) {
    run_chain(job, chain);
    for (int64_t tile = 0; tile < block->n; tile++) {
      const PartialSums sums = sums_of(job, &block->tiles[tile], column, columns);
      partial_add(&sums, chain, gemm->chains);
    }
  }
  for (int64_t number = 0; number < block->n; number++) {
    const Tile *tile = &block->tiles[number];
    for (int64_t done = 0; done < columns; done += step->width)
      finish_tile(job, results_at(&job->to, tile, column + done), tile, column + done,
                  least_of(step->width, columns - done));
  }
}

// ---- units ----

static const char *panel_at(const Gemm *gemm, int64_t panel) {
  return gemm->weights + panel * full_panel_bytes(gemm->step);
}

/* What is read after the unit: the next one of this thread's share, or the next gemm. */
static const char *after_unit(const Gemm *gemm, const Claimer *claimer, int64_t block, int64_t group) {
  const Share own = claimer->own;
  if (group + 1 < own.end_group) return panel_at(gemm, (group + 1) * gemm->panels_per_group);
  if (block + 1 < own.end_block) return panel_at(gemm, own.first_group * gemm->panels_per_group);
  return gemm->after;
}

static void run_job(GemmJob *job) {
  if (job->gemm->chains == 1) {
    gemm_block(job);
    return;
  }
  const int64_t end = job->end_panel;
  for (int64_t panel = job->first_panel; panel < end; panel += CHAINED_PANELS) {
    job->first_panel = panel;
    job->end_panel = least_of(end, panel + CHAINED_PANELS);
    job->gemm->run_chains(job);
  }
}

/* The results of a unit in scratch, for the consumer. */
static void run_consumed(GemmJob *job) {
  const Gemm *gemm = job->gemm;
  const Tile *tiles = job->block->tiles, *last = &tiles[job->block->n - 1];
  const int64_t column = job->first_panel * gemm->step->panel;
  const Results to = {.c = (float *)job->walker->scratch, .stride = gemm->panels_per_group * gemm->step->panel,
                      .row = tiles->row, .column = column};
  job->to = to;
  run_job(job);
  const GemmUnit unit = {.first_row = job->walker->part->rows_before + to.row,
                         .rows = last->row + last->rows - to.row,
                         .first_column = column,
                         .columns = least_of(to.stride, gemm->step->n - column)};
  gemm->consumer->take(gemm->consumer, job->walker->thread, to.c, to.stride, &unit);
}

static void run_unit(const Walker *walker, const Gemm *gemm, const Claimer *claimer, const Block *block,
                     int64_t group) {
  GemmJob job = {.walker = walker,
                 .gemm = gemm,
                 .block = block,
                 .first_panel = group * gemm->panels_per_group,
                 .after = after_unit(gemm, claimer, block->number, group),
                 .k = gemm_chain(gemm, 0),
                 .to = {.c = gemm->c, .stride = gemm->c_stride}};
  job.end_panel = least_of(gemm->panels, job.first_panel + gemm->panels_per_group);
  if (gemm->consumer) run_consumed(&job);
  else run_job(&job);
}

/* The first panel of this thread in the next gemm; the first panel of this one if there is none. */
static const char *first_panel_after(const Walker *walker, const Gemm *gemm, const tfm_step *step) {
  const tfm_context *context = walker->context;
  uint32_t next = context->run.steps[step - context->program->steps].next_gemm;
  if (next == TFM_NONE) return gemm->weights;
  const tfm_gemm_step *after = &context->program->gemms[context->program->steps[next].index];
  int64_t panels = ceil_div(after->n, after->panel);
  const tfm_weight *weight = &context->program->weights[after->weight];
  return context->weights + weight->offset + panels * walker->thread / walker->threads * full_panel_bytes(after);
}

/* Whether runs may hand on the results of the step. */
static bool is_consumed(const tfm_context *context, const tfm_step *step) {
  const Consumed *consumed = &context->memory.consumed;
  return consumed->panels > 0 && consumed->step == step - context->program->steps;
}

/* Of the results of one unit, if they are consumed. */
static int64_t consumed_floats(const tfm_context *context, const tfm_step *step) {
  if (!is_consumed(context, step)) return 0;
  return UNIT_ROWS * context->memory.consumed.panels * context->program->gemms[step->index].panel;
}

/* Consumed results, then chains that wait; most steps have neither. */
int64_t gemm_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  const tfm_gemm_step *info = &context->program->gemms[step->index];
  const int64_t levels = rows_are_whole(info) ? 0 : partial_levels(info->k);
  return (consumed_floats(context, step) + levels * waiting_floats(info)) * (int64_t)sizeof(float);
}

static void gemm_step(Walker *walker, const tfm_step *step, ChainRunner *chains) {
  const tfm_context *context = walker->context;
  const tfm_gemm_step *info = &context->program->gemms[step->index];
  const struct gemm_operands *operands = &operands_of(context, step)->gemm;
  Gemm gemm = {.context = context,
               .step = info,
               .a = (const float *)operand_address(context, &operands->a),
               .weights = context->weights + context->program->weights[info->weight].offset,
               .c = (float *)operand_address(context, &operands->c),
               .a_stride = operands->a.strides[0] / (int64_t)sizeof(float),
               .c_stride = operands->c.strides[0] / (int64_t)sizeof(float),
               .epilogue = epilogue_of(context, info->epilogue, info->rank, info->n_operands, info->first_operand,
                                       info->dims),
               .waiting = (float *)walker->scratch + consumed_floats(context, step),
               .consumer = is_consumed(context, step) ? walker->call->consumer : NULL,
               .run_chains = chains};
  char joined[MOST_JOINED_ROWS];
  gemm_choose_rows(walker, step, &gemm, joined);
  if (gemm.all_rows <= 0 || info->n <= 0) return;
  if (gemm.live.zeroed) clear_other_rows(walker, &gemm);
  if (gemm.rows == 0) return;
  gemm.after = first_panel_after(walker, &gemm, step);
  EpilogueCall prepared;
  if (walker->of_all) prepared.kernel = NULL;
  else epilogue_prepare(walker, &gemm.epilogue, &prepared);
  gemm.prepared = &prepared;
  gemm_size_units(&gemm, walker->threads);
  Claimer claimer = walker_claimer(walker, gemm.blocks, ceil_div(gemm.panels, gemm.panels_per_group));
  claimer.keeps = rows_are_whole(info); /* units are a quarter as long as those of f32 */
  Block block; /* its tiles are set when it is entered */
  block.number = -1;
  block.cursor = gemm.share.cursor;
  if (info->is_matrix) tfm_tiles_begin();
  for (int64_t number, group; share_claim(&claimer, &number, &group);) {
    gemm_enter_block(&gemm, &block, number);
    run_unit(walker, &gemm, &claimer, &block, group);
  }
  if (info->is_matrix) tfm_tiles_end();
}

void step_gemm(Walker *walker, const tfm_step *step) { gemm_step(walker, step, NULL); }

void step_gemm_long(Walker *walker, const tfm_step *step) { gemm_step(walker, step, run_chains); }
