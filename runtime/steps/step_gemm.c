/* Products with packed weights: x wT, tile by tile, each tile's epilogue right after its last block of k.
 *
 * A unit of work is a block of rows times a group of panels. Panels are cut over threads first, so that each streams
 * its own weights; rows only when there are more threads than panels. While a panel is used, the next one is on its
 * way: each tile names its share of it (`next`), and the last unit of a step names the first panel of the next gemm.
 *
 * Results go to a matrix, or to the context's consumer by way of scratch that holds those of one unit.
 *
 * More than TFM_CHAIN steps of k are several chains, whose results are added in a tree (partial_sums.h): some panels at
 * a time, chain after chain, with what waits in scratch.
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

// ---- panels ----

/* The weights of a panel from block k_block of the chain on. */
static const char *panel_at(const Gemm *gemm, int64_t panel, int64_t k_block) {
  const tfm_gemm_step *step = gemm->step;
  return gemm->weights + panel * whole_panel_bytes(step) +
         gemm_panel_bytes(step, gemm->begin_k + k_block * k_block_of(step));
}

static float *results_at(const Gemm *gemm, const Tile *tile, int64_t column) {
  int64_t row = gemm->is_waiting ? tile->before : tile->row - gemm->c_row;
  return gemm->c + row * gemm->c_stride + (column - gemm->c_column);
}

typedef struct Strip { /* of one panel: the columns of one tile, some steps of k */
  const char *weights, *next; /* next: what is read after it */
  int64_t column, columns, first_k, k;
  int64_t share; /* bytes of `next` for each tile */
} Strip;

/* The epilogue of a tile, right after its last step of k, while it is still in the nearest cache. In one product of
 * several runs the rows of a tile may belong to different runs. */
static void finish_tile(const Walker *walker, const Gemm *gemm, char *c, const Tile *tile, const Strip *strip) {
  const int64_t stride = gemm->c_stride * (int64_t)sizeof(float);
  if (!gemm->epilogue.kernel) return;
  const Region at = {tile->row, tile->rows, strip->column, strip->columns};
  if (gemm->call->kernel) epilogue_call(gemm->call, c, stride, &at);
  else if (walker->of_all)
    walker->context->decoding.cached_steps->finish_tile(walker, gemm->step, c, stride, &at);
  else epilogue_run(walker, &gemm->epilogue, c, stride, &at);
}

/* Lines that another core had last come as slowly as from memory: those that a tile writes are asked for while the one
 * before it is computed. */
static void fetch_for_tile(const Gemm *gemm, const Tile *tile, const Strip *strip) {
  fetch_rows_for_writing(results_at(gemm, tile, strip->column), gemm->c_stride, tile->rows, strip->columns);
}

/* The tiles of a block against one strip. */
static void run_strip(const Walker *walker, const Gemm *gemm, const Block *block, const Strip *strip) {
  const tfm_gemm_step *step = gemm->step;
  for (int64_t tile = 0; tile < block->n; tile++) {
    float *c = results_at(gemm, &block->tiles[tile], strip->column);
    const char *a = (const char *)(gemm->a + block->tiles[tile].row * gemm->a_stride) +
                    tfm_whole_row_bytes(step->form, step->a_bytes, strip->first_k);
    const bool goes_on = is_whole_numbers(step) && strip->first_k + strip->k < step->k;
    block->tiles[tile].kernel((const float *)(const void *)a, strip->weights, c, gemm->c_stride, strip->k,
                              (strip->first_k > gemm->begin_k) + 2 * goes_on, strip->columns,
                              strip->next + tile * strip->share, block->lines);
    if (gemm->chains == 1 && strip->first_k + strip->k == step->k)
      finish_tile(walker, gemm, (char *)c, &block->tiles[tile], strip);
  }
}

/* The same against a block of k of a panel, strip after strip: a strip's weights stay near while the rows go by. */
static void run_panel(const Walker *walker, const Gemm *gemm, const Block *block, int64_t panel, int64_t k_block,
                      const char *next) {
  const tfm_gemm_step *step = gemm->step;
  int64_t column = panel * step->panel, columns = least_of(step->panel, step->n - column);
  int64_t first_k = gemm->begin_k + k_block * k_block_of(step),
          end_k = least_of(first_k + k_block_of(step), gemm->end_k);
  const char *weights = panel_at(gemm, panel, k_block);
  Strip strip = {.next = next};
  for (int64_t done = 0; done < columns; done += step->width) {
    strip.column = column + done;
    strip.columns = least_of(step->width, columns - done);
    strip.first_k = first_k;
    do { /* once if there are no steps at all: zeroes */
      strip.k = least_of(block->together, end_k - strip.first_k);
      strip.share = strip.k == block->k ? block->share : gemm_share_of(step, block, strip.k);
      strip.weights = weights + gemm_panel_bytes(step, strip.first_k - first_k) + done * lane_of(step);
      run_strip(walker, gemm, block, &strip);
      strip.next += block->n * strip.share;
      strip.first_k += strip.k;
    } while (strip.first_k < end_k);
  }
}

/* What is read after the unit: the next one of this thread's part, or the next gemm. */
static const char *after_unit(const Gemm *gemm, const Claimer *claimer, int64_t block, int64_t group) {
  const Part part = claimer->own;
  if (group + 1 < part.end_group) return panel_at(gemm, (group + 1) * gemm->panels_per_group, 0);
  if (block + 1 < part.end_block) return panel_at(gemm, part.first_group * gemm->panels_per_group, 0);
  return gemm->after;
}

/* Panels within one block of k: the rows of a for that block are loaded once for all of them. `after` is read next. */
static void run_panels(const Walker *walker, const Gemm *gemm, const Block *block, int64_t first_panel,
                       int64_t end_panel, const char *after) {
  for (int64_t k_block = 0; k_block < gemm->k_blocks; k_block++) {
    for (int64_t panel = first_panel; panel < end_panel; panel++) {
      const char *next = panel + 1 < end_panel          ? panel_at(gemm, panel + 1, k_block)
                          : k_block + 1 < gemm->k_blocks ? panel_at(gemm, first_panel, k_block + 1)
                                                         : after;
      run_panel(walker, gemm, block, panel, k_block, next);
    }
  }
}

/* The same where a panel is one strip and k one piece. What tiles fetch of a panel may end before its scales. */
static void run_whole_panels(const Walker *walker, const Gemm *gemm, const Block *block, int64_t first_panel,
                             int64_t end_panel, const char *after) {
  const tfm_gemm_step *step = gemm->step;
  const int64_t bytes = whole_panel_bytes(step), scales = gemm_panel_bytes(step, step->k);
  const bool fetches = is_whole_numbers(step) && gemm->blocks > 1;
  const char *weights = panel_at(gemm, first_panel, 0);
  Strip strip = {.k = step->k};
  for (int64_t panel = first_panel; panel < end_panel; panel++, weights += bytes) {
    const char *next = panel + 1 < end_panel ? weights + bytes : after;
    strip.column = panel * step->panel;
    strip.columns = least_of(step->panel, step->n - strip.column);
    for (int64_t at = scales; at < bytes; at += ALIGNMENT) __builtin_prefetch(weights + at, 0, 3);
    for (int64_t number = 0; number < block->n; number++, next += block->share) {
      const Tile *tile = &block->tiles[number];
      float *c = results_at(gemm, tile, strip.column);
      if (fetches && number + 1 < block->n) fetch_for_tile(gemm, tile + 1, &strip);
      tile->kernel(gemm->a + tile->row * gemm->a_stride, weights, c, gemm->c_stride, step->k, 0, strip.columns, next,
                   block->lines);
      finish_tile(walker, gemm, (char *)c, tile, &strip);
    }
  }
}

static bool has_whole_panels(const Gemm *gemm, const Block *block) {
  const tfm_gemm_step *step = gemm->step;
  return gemm->chains == 1 && gemm->k_blocks == 1 && step->width == step->panel && block->k == step->k;
}

/* Where little is computed, what takes the time is fetching the lines that are written: those of a tile that comes
 * later are asked for early, as they stand where the rows lie one behind the other. So a processor sees whole rows go
 * by, as it does where numbers are only set, and not a piece of each of some rows. `part` of `parts`. */
static void fetch_results(const float *c, int64_t floats, int64_t part, int64_t parts) {
  const int64_t line = ALIGNMENT / (int64_t)sizeof(float), lines = ceil_div(floats, line);
  for (int64_t i = lines * part / parts; i < lines * (part + 1) / parts; i++) __builtin_prefetch(c + i * line, 0, 2);
}

/* Few steps of k: tile by tile through all panels of the group, whose weights stay near. */
static void run_short_panels(const Walker *walker, const Gemm *gemm, const Block *block, int64_t first_panel,
                             int64_t end_panel) {
  const tfm_gemm_step *step = gemm->step;
  for (int64_t number = 0; number < block->n; number++) {
    const Tile *tile = &block->tiles[number];
    const float *a = gemm->a + tile->row * gemm->a_stride;
    Strip strip = {.column = first_panel * step->panel};
    const int64_t end = least_of(step->n, end_panel * step->panel), strips = ceil_div(end - strip.column, step->width);
    const float *later = results_at(gemm, tile, strip.column) + TILES_AHEAD * tile->rows * gemm->c_stride;
    const int64_t floats = gemm->c_stride == step->n && end - strip.column == step->n ? tile->rows * step->n : 0;
    int64_t number_of_strip = 0;
    for (int64_t in_panel = 0, panel = first_panel; strip.column < end; strip.column += step->width) {
      float *c = results_at(gemm, tile, strip.column);
      const char *weights = panel_at(gemm, panel, 0) + in_panel * lane_of(step);
      strip.columns = least_of(step->width, step->n - strip.column);
      fetch_results(later, floats, number_of_strip++, strips);
      tile->kernel(a, weights, c, gemm->c_stride, step->k, 0, strip.columns, weights, 0);
      finish_tile(walker, gemm, (char *)c, tile, &strip);
      in_panel += step->width;
      if (in_panel == step->panel) in_panel = 0, panel++;
    }
  }
}

// ---- several chains ----

static int64_t waiting_stride(const tfm_gemm_step *step) { return CHAINED_PANELS * (int64_t)step->panel; }
static int64_t waiting_floats(const tfm_gemm_step *step) { return UNIT_ROWS * waiting_stride(step); }

static PartialSums sums_of(const Gemm *gemm, const Tile *tile, int64_t column, int64_t columns) {
  return (PartialSums){.c = results_at(gemm, tile, column),
                       .c_stride = gemm->c_stride,
                       .waiting = gemm->waiting + tile->before * waiting_stride(gemm->step),
                       .stride = waiting_stride(gemm->step),
                       .level = waiting_floats(gemm->step),
                       .rows = tile->rows,
                       .columns = columns};
}

/* One chain of all tiles and some panels, where its results belong: in c or with those that wait. */
static void run_chain(const Walker *walker, const Gemm *gemm, const Block *block, int64_t first_panel,
                      int64_t end_panel, int64_t chain, const char *after) {
  Gemm part = *gemm;
  int64_t column = first_panel * gemm->step->panel;
  PartialSums sums = sums_of(gemm, &block->tiles[0], column, 0);
  float *place = partial_place(&sums, chain, &part.c_stride);
  gemm_set_chain(&part, chain);
  if (place != sums.c) {
    part.c = place;
    part.c_column = column;
    part.is_waiting = true;
  }
  run_panels(walker, &part, block, first_panel, end_panel, after);
}

/* The epilogue comes when the sums are complete. Few programs have such a long k, and all libraries have this code. */
__attribute__((cold)) static void run_chains(const Walker *walker, const Gemm *gemm, const Block *block,
                                             int64_t first_panel, int64_t end_panel, const char *after) {
  const tfm_gemm_step *step = gemm->step;
  int64_t column = first_panel * step->panel, columns = least_of(step->n, end_panel * step->panel) - column;
  for (int64_t chain = 0; chain < gemm->chains; chain++) {
    run_chain(walker, gemm, block, first_panel, end_panel, chain, after);
    for (int64_t tile = 0; tile < block->n; tile++) {
      PartialSums sums = sums_of(gemm, &block->tiles[tile], column, columns);
      partial_add(&sums, chain, gemm->chains);
    }
  }
  for (int64_t number = 0; number < block->n; number++) {
    const Tile *tile = &block->tiles[number];
    for (int64_t done = 0; done < columns; done += step->width) {
      Strip strip = {.column = column + done, .columns = least_of(step->width, columns - done)};
      finish_tile(walker, gemm, (char *)results_at(gemm, tile, strip.column), tile, &strip);
    }
  }
}

static void run_unit(const Walker *walker, const Gemm *gemm, const Claimer *claimer, const Block *block,
                     int64_t group) {
  int64_t first_panel = group * gemm->panels_per_group;
  int64_t end_panel = least_of(gemm->panels, first_panel + gemm->panels_per_group);
  const char *after = after_unit(gemm, claimer, block->number, group);
  if (is_short(gemm)) run_short_panels(walker, gemm, block, first_panel, end_panel);
  else if (has_whole_panels(gemm, block)) run_whole_panels(walker, gemm, block, first_panel, end_panel, after);
  else if (gemm->chains == 1) run_panels(walker, gemm, block, first_panel, end_panel, after);
  else
    for (int64_t panel = first_panel; panel < end_panel; panel += CHAINED_PANELS)
      run_chains(walker, gemm, block, panel, least_of(end_panel, panel + CHAINED_PANELS), after);
}

// ---- results that are consumed ----

/* The same with the results in scratch. */
static void run_consumed(const Walker *walker, const Gemm *gemm, const Claimer *claimer, const Block *block,
                         int64_t group) {
  Gemm part = *gemm;
  const Tile *last = &block->tiles[block->n - 1];
  part.c = (float *)walker->scratch;
  part.c_row = block->tiles[0].row;
  part.c_column = group * gemm->panels_per_group * gemm->step->panel;
  part.c_stride = gemm->panels_per_group * gemm->step->panel;
  run_unit(walker, &part, claimer, block, group);
  const GemmUnit unit = {.first_row = walker->context->decoding.consumed_before + part.c_row,
                         .rows = last->row + last->rows - part.c_row,
                         .first_column = part.c_column,
                         .columns = least_of(part.c_stride, gemm->step->n - part.c_column)};
  gemm->consumer->take(gemm->consumer, walker->thread, part.c, part.c_stride, &unit);
}

/* The first panel of this thread in the next gemm; the last memory of this one if there is none. */
static const char *first_panel_after(const Walker *walker, const Gemm *gemm, const tfm_step *step) {
  const tfm_context *context = walker->context;
  uint32_t next = context->run.steps[step - context->program->steps].next_gemm;
  if (next == TFM_NONE) return gemm->weights;
  const tfm_gemm_step *after = &context->program->gemms[context->program->steps[next].index];
  int64_t panels = ceil_div(after->n, after->panel);
  const tfm_weight *weight = &context->program->weights[after->weight];
  return context->weights + weight->offset + panels * walker->thread / walker->threads * whole_panel_bytes(after);
}

static bool has_consumer(const tfm_context *context, const tfm_step *step) {
  return context->decoding.consumer && context->decoding.consumer->step == step - context->program->steps;
}

/* Of the results of one unit, if they are consumed. */
static int64_t consumed_floats(const tfm_context *context, const tfm_step *step) {
  if (!has_consumer(context, step)) return 0;
  return UNIT_ROWS * context->decoding.consumer->panels * context->program->gemms[step->index].panel;
}

/* Consumed results, then chains that wait; most steps have neither. */
int64_t gemm_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  const tfm_gemm_step *info = &context->program->gemms[step->index];
  const int64_t levels = is_whole_numbers(info) ? 0 : partial_levels(info->k);
  return (consumed_floats(context, step) + levels * waiting_floats(info)) * (int64_t)sizeof(float);
}

/* The masks of all lockstep runs, one behind the other. */
__attribute__((cold)) static void join_masks(const Walker *walker, const tfm_step *step, LiveRows *live, char *joined) {
  const tfm_gemm_step *info = &walker->context->program->gemms[step->index];
  live->mask = joined;
  live->item = 0; /* runs may have items of different sizes */
  for (const tfm_context *run = walker->context; run; run = run->decoding.lockstep) {
    int64_t rows = value_of(run, info->rows);
    memcpy(joined, live_rows_of(run, &operands_of(run, step)->gemm.mask, info->live).mask, (size_t)rows);
    joined += rows;
  }
}

/* A consumer gets whole blocks of rows, so rows that are not live are computed too. */
static void choose_rows(const Walker *walker, const tfm_step *step, Gemm *gemm, char *joined) {
  const tfm_context *context = walker->context;
  gemm->all_rows = value_of(context, gemm->step->rows);
  for (const tfm_context *next = context->decoding.lockstep; walker->of_all && next; next = next->decoding.lockstep)
    gemm->all_rows += value_of(next, gemm->step->rows);
  gemm->rows = gemm->all_rows;
  if (gemm->consumer) return;
  gemm->live = live_rows_of(context, &operands_of(context, step)->gemm.mask, gemm->step->live);
  if (gemm->live.mask && walker->of_all) join_masks(walker, step, &gemm->live, joined);
  live_unless_all(&gemm->live, gemm->all_rows);
  if (walker->rows) {
    gemm->share = *walker->rows;
    gemm->rows = gemm->share.end - gemm->share.first;
  } else if (gemm->live.mask) gemm->rows = live_count(&gemm->live, gemm->all_rows);
}

void step_gemm(Walker *walker, const tfm_step *step) {
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
               .consumer = has_consumer(context, step) ? context->decoding.consumer : NULL};
  if (gemm.consumer && !gemm.consumer->wanted) gemm.consumer = NULL;
  char joined[MOST_JOINED_ROWS];
  choose_rows(walker, step, &gemm, joined);
  if (gemm.all_rows <= 0 || info->n <= 0) return;
  if (gemm.live.zeroed) clear_other_rows(walker, &gemm);
  if (gemm.rows == 0) return;
  gemm.after = first_panel_after(walker, &gemm, step);
  EpilogueCall call;
  if (walker->of_all) call.kernel = NULL;
  else epilogue_prepare(walker, &gemm.epilogue, &call);
  gemm.call = &call;
  gemm_size_units(&gemm, walker->threads);
  Claimer claimer = walker_claimer(walker, gemm.blocks, ceil_div(gemm.panels, gemm.panels_per_group));
  claimer.keeps = is_whole_numbers(info); /* units are a quarter as long as those of f32 */
  Block block; /* its tiles are set when it is entered */
  block.number = -1;
  block.cursor = gemm.share.cursor;
  if (info->is_matrix) tfm_tiles_begin();
  for (int64_t number, group; share_claim(&claimer, &number, &group);) {
    gemm_enter_block(&gemm, &block, number);
    (gemm.consumer ? run_consumed : run_unit)(walker, &gemm, &claimer, &block, group);
  }
  if (info->is_matrix) tfm_tiles_end();
}
