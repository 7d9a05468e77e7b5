/* Chains of rows: where rows are many, threads take them through several steps without a barrier (tfm_row_chain).
 *
 * In: a context with a plan of memory that allows it, a chain. Out: the results of its steps. Programs that have
 * chains have drivers for them (drivers.def). Refused: a run with so few rows that sharing panels is faster. */
#include "machine/processors.h"
#include "machine/tuning.h"
#include "walk/walk.h"

typedef struct ChainRows { /* those of a chain, in one run */
  LiveRows live;
  int64_t rows, all, shares; /* all: those that are live */
  int64_t tile_rows;
  LiveCursor near; /* whole tiles behind the beginning of a run, not behind the share that was looked for last */
} ChainRows;

static int64_t chain_rows(const tfm_context *context, const tfm_row_chain *chain) {
  const tfm_program *program = context->program;
  return value_of(context, program->gemms[program->steps[chain->gemm].index].rows);
}

static bool has_near_weights(const tfm_program *program, const tfm_row_chain *chain) {
  int64_t bytes = 0;
  for (uint32_t i = chain->first_step; i < chain->first_step + chain->n_steps; i++)
    if (program->steps[i].kind == TFM_STEP_GEMM)
      bytes += (int64_t)program->weights[program->gemms[program->steps[i].index].weight].bytes;
  return bytes <= 2 * cpu_cache_bytes(2);
}

static ChainRows rows_of_chain(const tfm_context *context, const tfm_row_chain *chain, int32_t threads) {
  const tfm_step *step = &context->program->steps[chain->gemm];
  const tfm_gemm_step *gemm = &context->program->gemms[step->index];
  ChainRows rows = {.rows = chain_rows(context, chain), .tile_rows = gemm->tile_rows,
                    .live = live_rows_of(context, &operands_of(context, step)->gemm.mask, gemm->live)};
  live_unless_all(&rows.live, rows.rows);
  rows.all = rows.live.mask ? live_count(&rows.live, rows.rows) : rows.rows;
  const int64_t most = has_near_weights(context->program, chain) ? NEAR_CHAIN_ROWS : FAR_CHAIN_ROWS;
  rows.shares = threads * greatest_of(1, ceil_div(rows.all, most * threads));
  rows.shares /= share_coarsen(rows.shares);
  return rows;
}

/* Where share number `share` begins: near its even part, a whole number of tiles behind the beginning of a run of live
 * rows, so that cutting there makes no more tiles. A thread's shares follow one another: the mask is looked at from
 * where the last one was found, because looking at all of it for each share takes longer than the work of many rows. */
static LiveCursor begin_of_share(ChainRows *rows, int64_t share) {
  const int64_t wanted = rows->all * share / rows->shares, tile = rows->tile_rows;
  int64_t first = 0, n = rows->all, before = 0;
  if (share == rows->shares) return (LiveCursor){rows->rows, rows->all};
  LiveCursor cursor = rows->near.before <= wanted ? rows->near : (LiveCursor){0};
  while (rows->live.mask && cursor.before <= wanted && cursor.before < rows->all) {
    before = cursor.before;
    n = live_next(&rows->live, &cursor, rows->rows, wanted - before + tile, &first);
  }
  const int64_t whole = (wanted - before) / tile * tile;
  rows->near = (LiveCursor){first + whole, before + whole};
  const int64_t taken = least_of(n, (wanted - before + tile / 2) / tile * tile);
  return (LiveCursor){first + taken, before + taken};
}

static RowShare share_of_chain(ChainRows *rows, int64_t share) {
  const LiveCursor begin = begin_of_share(rows, share), end = begin_of_share(rows, share + 1);
  return (RowShare){.first = begin.before, .end = end.before, .cursor = begin, .row = share ? begin.row : 0,
                    .end_row = end.row};
}

/* A thread takes share after share through all steps, without a barrier. False: that is not worth it with so few
 * rows, and nothing was done. */
bool chains_take(Walker *walker, const tfm_row_chain *chain, Course *course) {
  const int32_t threads = walker->member->active;
  const RunPart *part = &walker->call->parts[0]; /* there is no other */
  ChainRows rows = rows_of_chain(part->context, chain, threads);
  if (rows.all < LEAST_CHAIN_ROWS * (int64_t)threads) return false;
  walker->thread = walker->member->thread;
  walker->threads = threads;
  Claimer claimer = walker_claimer(walker, rows.shares, 1);
  for (int64_t number, group; share_claim(&claimer, &number, &group);) {
    const RowShare share = share_of_chain(&rows, number);
    walker->rows = &share;
    for (uint32_t i = chain->first_step; i < chain->first_step + chain->n_steps; i++) {
      if (walk_is_idle(walker->call, i) || walk_has_fault(walker->call)) continue;
      walk_step(walker, part, i, 0, 1);
      course_end_step(course, i, true);
    }
  }
  walker->rows = NULL;
  course->any = course->others = true;
  course->last = chain->first_step + chain->n_steps;
  return true;
}

/* A buffer lives as if all of the chain were one step: one thread may be at its end while another is at its
 * beginning. */
static void live_through(const tfm_row_chain *chain, BufferLife *life) {
  const uint32_t first = chain->first_step, last = first + chain->n_steps - 1;
  if (life->first_step >= first && life->first_step <= last) life->first_step = first;
  if (life->last_step >= first && life->last_step <= last) life->last_step = last;
}

/* Whether a run may take rows through chains: if those of some chain are many enough. */
bool chains_plan(tfm_context *context) {
  const tfm_program *program = context->program;
  const tfm_row_chain *chains = program->row_chains;
  int64_t most = 0;
  for (uint32_t i = 0; i < program->n_row_chains; i++) most = greatest_of(most, chain_rows(context, &chains[i]));
  if (most < LEAST_CHAIN_ROWS * (int64_t)context->threads) return false;
  for (uint32_t buffer = 0; buffer < program->n_buffers; buffer++)
    for (uint32_t i = 0; i < program->n_row_chains; i++) live_through(&chains[i], &context->memory.lives[buffer]);
  return true;
}
