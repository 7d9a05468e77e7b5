/* In: a gemm step, its rows in a run. Out: how it is cut. See gemm_cut.h. */
#include "steps/gemm_cut.h"

#include <string.h>

#include "machine/machine.h"
#include "machine/processors.h"
#include "machine/tuning.h"

/* Blocks of k end where a call may end, in f32 with a chain: so where they end changes no bit. */
_Static_assert(TFM_CHAIN % TFM_SHORT_CHAIN == 0, "a long chain is whole short ones");
#define FORM(ENUM, name, KIND, bits, together, group, each, beside, SCALE, lane, turn, unit, line) \
  _Static_assert((TFM_KIND_##KIND != TFM_KIND_FLOAT ? WHOLE_K_BLOCK : TFM_K_BLOCK) % (unit) == 0, #name);
#include "tfm/abi/forms.def"

/* Of the second-level cache for the rows of a: beyond it, several panels share what was loaded. The other half is for
 * the panel and the results. */
static int64_t resident_bytes(void) { return cpu_cache_bytes(2) / ROWS_PART; }

/* Of a panel and the rows of a: they stay in the first-level cache from tile to tile, beside the lines of c. */
static int64_t near_bytes(void) { return cpu_cache_bytes(1) / 6 * NEAR_SIXTHS; }

int64_t gemm_panel_bytes(const tfm_gemm_step *step, int64_t k) { return tfm_form_bytes(step->form, k) * step->panel; }

// ---- rows ----

/* The masks of all parts, one behind the other. */
__attribute__((cold)) static void join_masks(const Walker *walker, const tfm_step *step, LiveRows *live, char *joined) {
  const tfm_gemm_step *info = &walker->context->program->gemms[step->index];
  live->mask = joined;
  live->item = 0; /* parts may have items of different sizes */
  for (int32_t i = 0; i < walker->call->n; i++) {
    const tfm_context *part = walker->call->parts[i].context;
    int64_t rows = value_of(part, info->rows);
    memcpy(joined, live_rows_of(part, &operands_of(part, step)->gemm.mask, info->live).mask, (size_t)rows);
    joined += rows;
  }
}

void gemm_choose_rows(const Walker *walker, const tfm_step *step, Gemm *gemm, char *joined) {
  const tfm_context *context = walker->context;
  gemm->all_rows = value_of(context, gemm->step->rows);
  for (int32_t i = 1; walker->of_all && i < walker->call->n; i++)
    gemm->all_rows += value_of(walker->call->parts[i].context, gemm->step->rows);
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

// ---- units ----

/* The most rows that a tile takes of so many. Two tiles that take whole panels are no slower than one that does not
 * where weights are near, and faster where they come from memory. */
static int64_t rows_of_tiles(const tfm_gemm_step *step, int64_t rows) {
  const int64_t whole = step->tiles[0];
  return whole > 1 && rows <= 2 * whole ? whole : step->tile_rows;
}

/* Rows that take whole panels are few and stay near however long they are; panels are read from end to end. */
static int64_t k_block_for(const Gemm *gemm) {
  return takes_whole_panels(gemm->step, gemm->rows) ? greatest_of(1, gemm->step->k) : k_block_of(gemm->step);
}

GemmChain gemm_chain(const Gemm *gemm, int64_t chain) {
  const int64_t begin = chain * TFM_CHAIN, k = gemm->step->k;
  const int64_t end = gemm->chains == 1 ? k : least_of(begin + TFM_CHAIN, k);
  return (GemmChain){begin, end, greatest_of(1, ceil_div(end - begin, k_block_for(gemm)))};
}

/* How the step is cut. Blocks of rows bound what stays in the second-level cache; groups of panels are made large
 * enough to be worth a claim and small enough that every thread gets four. With few steps of k a group is all panels,
 * so that rows are written as a whole. A consumer fixes the group itself. */
void gemm_size_units(Gemm *gemm, int32_t threads) {
  const tfm_gemm_step *step = gemm->step;
  gemm->tiles = ceil_div(gemm->rows, rows_of_tiles(step, gemm->rows));
  gemm->panels = ceil_div(step->n, step->panel);
  gemm->blocks = ceil_div(gemm->rows, BLOCK_ROWS);
  if (gemm->panels < threads) gemm->blocks = greatest_of(gemm->blocks, ceil_div(threads, gemm->panels) * 2);
  gemm->blocks = least_of(gemm->blocks, gemm->tiles);
  gemm->chains = chains_of(step);
  gemm->k_blocks = gemm_chain(gemm, 0).blocks;
  int64_t block_rows = ceil_div(gemm->rows, gemm->blocks);
  int64_t group = LEAST_UNIT_WORK / greatest_of(1, 2 * block_rows * step->k * step->panel);
  if (gemm->k_blocks > 1 && block_rows * step->k * step->a_bytes > resident_bytes())
    group = greatest_of(group, PANELS_PER_LOAD);
  group = least_of(group, gemm->panels / (4 * (int64_t)threads)); /* enough units to share evenly */
  group = greatest_of(group, share_coarsen(gemm->panels * gemm->blocks));
  if (threads == 1 && gemm->k_blocks == 1) group = gemm->panels;
  if (is_short(gemm) && gemm->blocks >= 4 * (int64_t)threads) group = gemm->panels;
  gemm->panels_per_group = gemm->consumer ? gemm->context->memory.consumed.panels : greatest_of(1, group);
}

// ---- tiles ----

static void add_tile(const Gemm *gemm, Block *block, int64_t row, int64_t rows) {
  block->tiles[block->n++] = (Tile){row, rows, block->rows,
                                      KERNEL_OF(tfm_tile_kernel, gemm->context, gemm->step->tiles[rows])};
  block->rows += rows;
}

static bool is_half(const tfm_gemm_step *step) { return !rows_are_whole(step) && step->form != TFM_FORM_F32; }

/* Tiles of weights in 16 bits whose equal height has hardly enough sums for additions to follow one another, while half
 * of a whole tile computes two chains side by side (kernels/tile.c). */
static bool has_slow_height(const tfm_gemm_step *step, int64_t rows, int64_t tiles) {
  return is_half(step) && step->width <= NARROW_COLUMNS && tiles > 1 && rows / tiles == step->tile_rows - 2;
}

/* The first row of a tile of a run. Tiles have nearly equal heights; but tile registers are set up for whole ones, and
 * take as long for fewer rows, and a slow height is left out: the last tile has half of the rows of a whole one. Not
 * part of each caller, because all libraries have this code. */
__attribute__((noinline)) static int64_t first_of_tile(const tfm_gemm_step *step, int64_t rows, int64_t tile,
                                                       int64_t tiles) {
  if (step->is_matrix) return least_of(rows, tile * step->tile_rows);
  if (tile == tiles || !has_slow_height(step, rows, tiles)) return rows * tile / tiles;
  return (rows - step->tile_rows / 2) * tile / (tiles - 1);
}

static void cut_run(const Gemm *gemm, Block *block, int64_t row, int64_t rows) {
  int64_t tiles = ceil_div(rows, rows_of_tiles(gemm->step, rows));
  for (int64_t tile = 0; tile < tiles; tile++) {
    int64_t first = first_of_tile(gemm->step, rows, tile, tiles);
    add_tile(gemm, block, row + first, first_of_tile(gemm->step, rows, tile + 1, tiles) - first);
  }
}

/* Tiles over all rows: a short last one would use the registers badly. */
static void cut_all_rows(const Gemm *gemm, Block *block) {
  int64_t end = gemm->tiles * (block->number + 1) / gemm->blocks;
  for (int64_t tile = gemm->tiles * block->number / gemm->blocks; tile < end; tile++) {
    int64_t row = first_of_tile(gemm->step, gemm->rows, tile, gemm->tiles);
    const int64_t rows = first_of_tile(gemm->step, gemm->rows, tile + 1, gemm->tiles) - row;
    add_tile(gemm, block, gemm->share.first + row, rows);
  }
}

/* Each block has an equal number of live rows; a tile never spans two runs of them. */
static void cut_live_rows(const Gemm *gemm, Block *block) {
  int64_t first = gemm->share.first, end = first + gemm->rows * (block->number + 1) / gemm->blocks, row;
  live_seek(&gemm->live, &block->cursor, gemm->all_rows, first + gemm->rows * block->number / gemm->blocks);
  while (block->cursor.before < end) {
    int64_t rows = live_next(&gemm->live, &block->cursor, gemm->all_rows, end - block->cursor.before, &row);
    cut_run(gemm, block, row, rows);
  }
}

/* Whether pieces of the weights of a few rows are read in the order of memory. Tiles as wide as panels read so anyway;
 * where a tile takes a line of several, as with AVX2, a CPU does not foresee the next one (bench/notes.md). */
static bool reads_in_order(const Gemm *gemm, const Block *block) {
  return block->n <= NEAR_TILES && block->width < gemm->step->panel &&
         machine_vector_bytes(gemm->context->program->features) == ALIGNMENT / 2;
}

/* Steps of k that go together. A few tiles use weights that still come from far away: they take turns on so few that
 * all but the first tile find them in the nearest cache, and the bands of a single one too. Pieces of whole numbers
 * are as long as one another, because a short last one takes longer to begin than to compute. */
static int64_t steps_together(const Gemm *gemm, const Block *block) {
  const tfm_gemm_step *step = gemm->step;
  const int64_t tiles = block->n;
  bool is_wide = step->width > WIDE_COLUMNS_PER_ROW * step->tile_rows;
  if (tiles > (is_wide ? NEAR_WIDE_TILES : NEAR_TILES) || (tiles <= 1 && !block->in_order)) return INT64_MAX;
  const int64_t least = least_steps_of(step), of_a = least * tiles * step->tile_rows * step->a_bytes;
  const int64_t bytes = gemm_panel_bytes(step, least) * (block->in_order ? 2 : 1) + of_a;
  const int64_t chains = is_half(step) && step->width <= NARROW_COLUMNS ? 2 : 1; /* go side by side (kernels/tile.c) */
  const int64_t most = least * greatest_of(chains, near_bytes() / bytes / chains * chains);
  if (!rows_are_whole(step) || step->k <= most) return most;
  return round_up(ceil_div(step->k, ceil_div(step->k, most)), least);
}

static int64_t calls_of(const tfm_gemm_step *step, const Block *block) {
  return ceil_div(step->panel, block->width) * block->n;
}

int64_t gemm_bytes_ahead(const tfm_gemm_step *step, const Block *block, int64_t k) {
  return least_of(block->lines * (k / turn_of(step)), gemm_panel_bytes(step, k) / calls_of(step, block) / ALIGNMENT) *
         ALIGNMENT;
}

/* Whether the CPU reads on in the weights of a few rows faster than tiles fetch them. Forms of groups compute too long
 * between two lines; tiles whose vectors are half a line take up to 2.4 times as long if nobody fetches (bf16). */
static bool is_read_ahead(const Gemm *gemm, const Block *block) {
  return block->rows <= ROWS_READ_AHEAD && tfm_form_row_of(gemm->step->form)->group == 1 && machine_reads_ahead() &&
         machine_vector_bytes(gemm->context->program->features) == ALIGNMENT;
}

static bool all_take_whole_panels(const tfm_gemm_step *step, const Block *block) {
  for (int64_t i = 0; i < block->n; i++)
    if (!takes_whole_panels(step, block->tiles[i].rows)) return false;
  return true;
}

/* What tiles fetch of the next panel meanwhile: lines in each turn, and the bytes of a call with k steps, which is what
 * most calls have. */
static void pace_block(const Gemm *gemm, Block *block) {
  const tfm_gemm_step *step = gemm->step;
  block->width = all_take_whole_panels(step, block) ? step->panel : step->width;
  block->in_order = reads_in_order(gemm, block);
  block->together = steps_together(gemm, block);
  block->lines = least_of(TFM_PREFETCH_LINES,
                          ceil_div(gemm_panel_bytes(step, turn_of(step)), ALIGNMENT * calls_of(step, block)));
  if (is_read_ahead(gemm, block) || block->width > step->width) block->lines = 0; /* whole panels are read ahead too */
  block->k = least_of(block->together, least_of(k_block_for(gemm), gemm_chain(gemm, 0).end));
  block->ahead = gemm_bytes_ahead(step, block, block->k);
}

void gemm_enter_block(const Gemm *gemm, Block *block, int64_t number) {
  if (block->number == number) return;
  block->number = number;
  block->n = block->rows = 0;
  (gemm->live.mask ? cut_live_rows : cut_all_rows)(gemm, block);
  pace_block(gemm, block);
}
