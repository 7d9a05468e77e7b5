/* Lockstep runs: runs of one program with different sizes that are executed together, step by step.
 *
 * In: a bound context and the sizes of other runs; rows of a decoder with their new tokens (runs of the step program).
 * Out: logits or the best tokens of each row, and what the caches of the rows have become. A run that does not fit into
 * the memory of the first one is not refused: it is executed later, in another call. */
#include "base/allocate.h"
#include "context/binding.h"
#include "decode/decoder_memory.h"
#include "decode/lockstep.h"
#include "decode/staging.h"
#include "steps/epilogue.h"
#include "walk/walk.h"

#include <string.h>

/* The context shares weights and pool and owns neither; its memory is assigned by lockstep_bind. */
tfm_context *lockstep_create(const tfm_context *first) {
  tfm_context *context = context_new(first->program, &first->allocator, first->threads);
  if (!context) return NULL;
  context->weights = first->weights;
  context->pool = first->pool;
  context->memory.consumed = first->memory.consumed;
  return context;
}

void lockstep_destroy(tfm_context *context) {
  if (!context) return;
  context->memory.workspace = NULL; /* the first one's */
  context_end(context);
}

// ---- binding ----

/* What the first context itself takes of each buffer is where the next run begins. */
void lockstep_none(tfm_context *first) {
  for (uint32_t i = 0; i < first->program->n_buffers; i++)
    first->memory.buffer_taken[i] = memory_buffer_bytes(first, i);
}

/* Places each buffer behind what is taken of it. False: there is not enough room. Operands are resolved again only if
 * a buffer has moved since the last run. */
static bool place_beside(const tfm_context *first, tfm_context *context) {
  for (uint32_t i = 0; i < first->program->n_buffers; i++) {
    int64_t bytes = memory_buffer_bytes(context, i);
    int64_t offset = first->memory.buffer_offsets[i] + first->memory.buffer_taken[i];
    if (bytes < 0 || bytes > first->memory.buffer_bytes[i] - first->memory.buffer_taken[i]) return false;
    if (context->memory.buffer_offsets[i] != offset) context->run.operands_stale = ALL_SYMBOLS;
    context->memory.buffer_offsets[i] = offset;
  }
  if (context->memory.workspace != first->memory.workspace) context->run.operands_stale = ALL_SYMBOLS;
  context->memory.workspace = first->memory.workspace;
  return true;
}

tfm_status lockstep_bind(tfm_context *first, tfm_context *context, const int64_t *symbols, bool *fits,
                         tfm_error *error) {
  tfm_status status = context_set_shapes(context, symbols, error);
  if (status) return status;
  int64_t scratch = context_scratch_bytes(context);
  *fits = scratch >= 0 && scratch <= first->memory.scratch_bytes && place_beside(first, context);
  if (!*fits) return TFM_OK;
  for (uint32_t i = 0; i < first->program->n_buffers; i++)
    first->memory.buffer_taken[i] += memory_buffer_bytes(context, i);
  resolve_operands(context);
  resolve_threads(context);
  return TFM_OK;
}

// ---- steps ----

/* A step whose work in all lockstep runs is worth all threads is shared, even if it is not in any single one: that is
 * what makes runs of one token worth more than one thread. */
int32_t lockstep_share_steps(const RunCall *call) {
  tfm_context *first = call->parts[0].context;
  int64_t total = 0;
  for (uint32_t i = 0; i < first->program->n_steps; i++) {
    StepState *state = &first->run.steps[i];
    int64_t work = 0;
    state->idle = true;
    for (int32_t part = 0; part < call->n; part++) {
      const StepState *own = &call->parts[part].context->run.steps[i];
      if (own->skipped) continue;
      state->idle = false;
      if (__builtin_add_overflow(work, own->work, &work)) work = INT64_MAX;
    }
    state->shared = resolve_is_parallel(first, work);
    if (state->shared && __builtin_add_overflow(total, work, &total)) total = INT64_MAX;
  }
  return resolve_active(first, total);
}

/* Whether the matrix of `context` begins where that of `before` ends, with the same stride. */
static bool continues(const tfm_context *before, const Operand *a, const tfm_context *context, const Operand *b,
                      int64_t rows_before) {
  return a->strides[0] == b->strides[0] &&
         operand_address(before, a) + rows_before * a->strides[0] == operand_address(context, b);
}

/* With a consumer c is no matrix, so only the rows of a must follow one another. Masks of live rows are put together
 * while the product runs, which bounds how many there may be. */
bool lockstep_is_one_product(const RunCall *call, const tfm_step *step) {
  const tfm_context *first = call->parts[0].context;
  const tfm_gemm_step *gemm = &first->program->gemms[step->index];
  const ptrdiff_t number = step - first->program->steps;
  if (first->run.steps[number].skipped) return false;
  const Consumed *of = &first->memory.consumed;
  const bool consumed = call->consumer && of->panels && of->step == number;
  int64_t all_rows = value_of(first, gemm->rows);
  for (int32_t i = 1; i < call->n; i++) {
    const tfm_context *before = call->parts[i - 1].context, *next = call->parts[i].context;
    int64_t rows = value_of(before, gemm->rows);
    all_rows += value_of(next, gemm->rows);
    const struct gemm_operands *own = &operands_of(before, step)->gemm, *others = &operands_of(next, step)->gemm;
    if (next->run.steps[number].skipped || !continues(before, &own->a, next, &others->a, rows)) return false;
    if (!consumed && !continues(before, &own->c, next, &others->c, rows)) return false;
  }
  return !gemm->live || all_rows <= MOST_JOINED_ROWS;
}

/* Walks the parts and gives each the rows of the tile that are its own, counted from its own first row. */
void lockstep_finish_tile(const Walker *walker, const tfm_gemm_step *step, char *tile, int64_t tile_stride,
                          const Region *at) {
  Walker own = *walker;
  int64_t first = 0;
  for (int32_t i = 0; i < walker->call->n && first < at->row + at->rows; i++) {
    own.part = &walker->call->parts[i];
    own.context = own.part->context;
    const int64_t end = first + value_of(own.context, step->rows), begin = greatest_of(first, at->row);
    const int64_t n = least_of(end, at->row + at->rows) - begin;
    if (n > 0) {
      const Epilogue epilogue =
          epilogue_of(own.context, step->epilogue, step->rank, step->n_operands, step->first_operand, step->dims);
      const Region part = {begin - first, n, at->column, at->columns};
      epilogue_run(&own, &epilogue, tile + (begin - at->row) * tile_stride, tile_stride, &part);
    }
    first = end;
  }
}

const LockstepFunctions lockstep_functions = {.share_steps = lockstep_share_steps,
                                              .is_one_product = lockstep_is_one_product,
                                              .finish_tile = lockstep_finish_tile};

// ---- room ----

/* No more runs than rows can go in lockstep. A cache that is one tensor for all rows has one place, so only one run at
 * a time can write it. */
static int64_t most_together(const tfm_decoder *decoder) {
  const tfm_decoding *decoding = decoder->decoding;
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (input_is_flat_cache(decoding, i) && decoding->inputs[i].batch_axis == TFM_NONE) return 1;
  return decoder_has_rows(decoder) ? least_of(MOST_TOGETHER, decoder->calls.most_rows) : 1;
}

static void place_lists(Lockstep *lockstep, int64_t rows, Layout *layout) {
  lockstep->own_lists = layout_take(layout, rows, sizeof *lockstep->own_lists);
  lockstep->source_lists = layout_take(layout, rows, sizeof *lockstep->source_lists);
}

/* Contexts of lockstep runs are kept from batch to batch; each begins its part of a buffer at a multiple of ALIGNMENT,
 * for which spare_bytes is reserved. */
tfm_status lockstep_reserve(tfm_decoder *decoder, tfm_error *error) {
  Lockstep *lockstep = &decoder->lockstep;
  lockstep->most = most_together(decoder);
  decoder->step->memory.spare_bytes = lockstep->most > 1 ? lockstep->most * ALIGNMENT : 0;
  for (int64_t i = 0; i < lockstep->most - 1; i++) {
    if (!lockstep->context[i]) lockstep->context[i] = lockstep_create(decoder->step);
    if (!lockstep->context[i]) return tfm_no_memory(error, "the runs of rows of different lengths");
  }
  const int64_t rows = decoder->calls.most_rows;
  Layout layout = {0};
  place_lists(lockstep, rows, &layout);
  if (layout.bytes < 0 || !decoder_reserve_block(decoder, &lockstep->block, layout.bytes))
    return tfm_no_memory(error, "the runs of rows of different lengths");
  layout = (Layout){.block = lockstep->block.memory};
  place_lists(lockstep, rows, &layout);
  return TFM_OK;
}

// ---- the runs ----

/* The lists that append and attention of this run read. */
static void set_pages(tfm_decoder *decoder, const BoundRun *run, int64_t number) {
  const int64_t first = run->info->first;
  for (int64_t i = 0; i < run->info->sizes.rows; i++) {
    decoder->lockstep.own_lists[first + i] = run->rows[i]->own.pages;
    decoder->lockstep.source_lists[first + i] = decoder->sources.item[run->rows[i]->item].pages;
  }
  RunPart *part = &decoder->lockstep.parts[number];
  part->own = decoder->lockstep.own_lists + first;
  part->source = decoder->lockstep.source_lists + first;
}

/* A run, the context that it is bound to, and its rows. */
static BoundRun run_in(const tfm_decoder *decoder, const DecoderRun *info, tfm_context *context) {
  return (BoundRun){info, context, decoder->calls.run_rows + info->first};
}

/* Binds as many runs as there is room for, at least one; *bound says how many. They are the parts of the call. */
static tfm_status bind_runs(tfm_decoder *decoder, const DecoderRun *runs, int64_t n, int64_t *bound, tfm_error *error) {
  tfm_status status = context_bind_symbols(decoder->step, decoder_set_sizes(decoder, &runs->sizes), error);
  *bound = 1;
  decoder->lockstep.parts[0] = (RunPart){.context = decoder->step};
  if (status || n == 1) return status;
  lockstep_none(decoder->step);
  for (; *bound < n; ++*bound) {
    tfm_context *context = decoder->lockstep.context[*bound - 1];
    const DecoderRun *run = &runs[*bound];
    bool fits;
    const int64_t *symbols = decoder_set_sizes(decoder, &run->sizes);
    status = lockstep_bind(decoder->step, context, symbols, &fits, error);
    if (status || !fits) return status;
    decoder->lockstep.parts[*bound] = (RunPart){.context = context, .rows_before = run->first - runs->first};
  }
  return TFM_OK;
}

/* Ids are checked for every run before any of them is executed. */
static tfm_status run_bound(tfm_decoder *decoder, const DecoderRun *runs, int64_t n, tfm_error *error) {
  const RunPart *parts = decoder->lockstep.parts;
  for (int64_t i = 0; i < n; i++) {
    const BoundRun run = run_in(decoder, &runs[i], parts[i].context);
    staging_set_tensors(decoder, &run);
    set_pages(decoder, &run, i);
    tfm_status status = ids_check_inputs(run.context, run.context->given, error);
    if (status) return status;
  }
  const int64_t rows = runs[n - 1].first + runs[n - 1].sizes.rows - runs->first;
  const RunCall call = {.parts = parts, .n = (int32_t)n, .lockstep = &lockstep_functions,
                        .consumer = runs->best ? &decoder->best.consumer : NULL};
  if (runs->best) best_begin(&decoder->best, runs->best, runs->members, rows, decoder->step->threads);
  tfm_status status = walk_run(&call, error);
  if (runs->best) best_end(&decoder->best, rows, decoder->step->threads);
  for (int64_t i = 0; i < n && !status; i++) {
    const BoundRun run = run_in(decoder, &runs[i], parts[i].context);
    staging_take_results(decoder, &run);
  }
  return status;
}

tfm_status decoder_run(tfm_decoder *decoder, const DecoderRun *runs, int64_t n, tfm_error *error) {
  tfm_status status = TFM_OK;
  for (int64_t first = 0, bound; first < n && !status; first += bound) {
    status = bind_runs(decoder, runs + first, n - first, &bound, error);
    if (!status) status = run_bound(decoder, runs + first, bound, error);
  }
  return status;
}
