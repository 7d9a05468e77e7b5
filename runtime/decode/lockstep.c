/* Lockstep runs: runs of one program with different sizes that are executed together, step by step.
 *
 * In: a bound context and the sizes of other runs (lists of contexts); rows of a decoder with their new tokens (runs
 * of the step program). Out: logits or the best tokens of each row, and what the caches of the rows have become. A run
 * that does not fit into the memory of the first one is not refused: it is executed later, in another list. */
#include "context/binding.h"
#include "decode/decoder.h"
#include "decode/lockstep.h"
#include "steps/epilogue.h"
#include "walk/walk.h"

#include <string.h>

/* The context shares weights and pool and owns neither; its memory is assigned by lockstep_bind. */
tfm_context *lockstep_create(const tfm_context *first) {
  tfm_context *context = context_new(first->program, &first->allocator, first->threads);
  if (!context) return NULL;
  context->weights = first->weights;
  context->pool = first->pool;
  context->decoding.cached_steps = first->decoding.cached_steps;
  context->decoding.consumer = first->decoding.consumer;
  return context;
}

void lockstep_destroy(tfm_context *context) {
  if (!context) return;
  context->memory.workspace = NULL; /* the first one's */
  tfm_context_destroy(context);
}

// ---- binding ----

/* What the first context itself takes of each buffer is where the next run begins. */
void lockstep_none(tfm_context *first) {
  first->decoding.lockstep = NULL;
  for (uint32_t i = 0; i < first->program->n_buffers; i++)
    first->memory.buffer_taken[i] = memory_buffer_bytes(first, i);
}

/* Places each buffer behind what is taken of it. False: there is not enough room. Operands are resolved again only if
 * a buffer has moved since the last run. */
static bool place_buffers(const tfm_context *first, tfm_context *context) {
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

tfm_status lockstep_bind(tfm_context *first, tfm_context *last, tfm_context *context, const int64_t *symbols,
                         bool *fits, tfm_error *error) {
  tfm_status status = context_set_shapes(context, symbols, error);
  if (status) return status;
  int64_t scratch = context_scratch_bytes(context);
  *fits = scratch >= 0 && scratch <= first->memory.scratch_bytes && place_buffers(first, context);
  if (!*fits) return TFM_OK;
  for (uint32_t i = 0; i < first->program->n_buffers; i++)
    first->memory.buffer_taken[i] += memory_buffer_bytes(context, i);
  resolve_operands(context);
  resolve_threads(context);
  context->decoding.lockstep = NULL;
  last->decoding.lockstep = context;
  return TFM_OK;
}

// ---- steps ----

/* A step whose work in all lockstep runs is worth all threads is shared, even if it is not in any single one: that is
 * what makes runs of one token worth more than one thread. */
int32_t lockstep_share_steps(tfm_context *first) {
  int64_t total = 0;
  for (uint32_t i = 0; i < first->program->n_steps; i++) {
    StepState *state = &first->run.steps[i];
    int64_t work = 0;
    state->idle = true;
    for (const tfm_context *context = first; context; context = context->decoding.lockstep) {
      if (context->run.steps[i].skipped) continue;
      state->idle = false;
      if (__builtin_add_overflow(work, context->run.steps[i].work, &work)) work = INT64_MAX;
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
bool lockstep_is_one_product(const tfm_context *first, const tfm_step *step) {
  const tfm_gemm_step *gemm = &first->program->gemms[step->index];
  const ptrdiff_t number = step - first->program->steps;
  if (first->run.steps[number].skipped) return false;
  const GemmConsumer *consumer = first->decoding.consumer;
  const bool consumed = consumer && consumer->wanted && consumer->step == number;
  int64_t all_rows = value_of(first, gemm->rows);
  for (const tfm_context *before = first, *next; (next = before->decoding.lockstep); before = next) {
    int64_t rows = value_of(before, gemm->rows);
    all_rows += value_of(next, gemm->rows);
    const struct gemm_operands *own = &operands_of(before, step)->gemm, *others = &operands_of(next, step)->gemm;
    if (next->run.steps[number].skipped || !continues(before, &own->a, next, &others->a, rows)) return false;
    if (!consumed && !continues(before, &own->c, next, &others->c, rows)) return false;
  }
  return !gemm->live || all_rows <= MOST_JOINED_ROWS;
}

/* Walks the runs and gives each the rows of the tile that are its own, counted from its own first row. */
void lockstep_finish_tile(const Walker *walker, const tfm_gemm_step *step, char *tile, int64_t tile_stride,
                          const Region *at) {
  Walker own = *walker;
  for (int64_t first = 0; own.context && first < at->row + at->rows; own.context = own.context->decoding.lockstep) {
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

// ---- runs of the step program ----

/* The axis of the batch splits a tensor into `outer` indexes before it and the bytes of a row behind it. */
Parts parts_of(const tfm_tensor_info *info, const int64_t *dims, uint32_t batch_axis, int64_t rows) {
  Parts parts = {1, dtype_size(info->dtype)};
  for (uint32_t i = 0; i < info->rank; i++) {
    if (batch_axis != TFM_NONE && i < batch_axis)
      parts.outer *= dims[i];
    else
      parts.bytes *= i == batch_axis ? dims[i] / greatest_of(1, rows) : dims[i];
  }
  return parts;
}

/* Sizes that are none of the four come from the group's encoder program. */
void decoder_set_symbols(tfm_decoder *decoder, const SourceGroup *group, int64_t rows, int64_t past, int64_t fresh,
                         int64_t kept) {
  const tfm_decoding *decoding = decoder->decoding;
  for (uint32_t i = 0; i < decoding->step->n_symbols; i++) {
    if (i == decoding->past) decoder->symbols[i] = past;
    else if (i == decoding->fresh) decoder->symbols[i] = fresh;
    else if (i == decoding->kept) decoder->symbols[i] = kept;
    else if (i == decoding->rows) decoder->symbols[i] = rows;
    else decoder->symbols[i] = decoding->sizes[i] == TFM_NONE ? 0 : group->symbols[decoding->sizes[i]];
  }
}

// ---- what goes in ----

typedef struct Run { /* a run and the context that it is bound to */
  const DecoderRun *info;
  tfm_context *context;
  DecoderRow **rows; /* info->rows of them */
} Run;

/* The parts of an input for the sizes that the run is bound to. */
static Parts input_parts(const tfm_decoder *decoder, const Run *run, uint32_t input) {
  return parts_of(&decoder->decoding->step->inputs[input],
                  run->context->binding.input_dims + (size_t)input * TFM_MAX_RANK,
                  decoder->decoding->inputs[input].batch_axis, run->info->rows);
}

static char *staging_of(const tfm_decoder *decoder, const Run *run, uint32_t input) {
  const StepInput *state = &decoder->inputs[input];
  const int64_t skipped = run->info->first * state->staging_row;
  return skipped ? state->staging + skipped : state->staging; /* a tensor without bytes is NULL */
}

static char *result_of(const tfm_decoder *decoder, const Run *run, uint32_t input) {
  const StepInput *state = &decoder->inputs[input];
  return state->result + run->info->first * state->result_row;
}

/* Puts a row's part for each outer index, `stride` bytes apart in `sources`, side by side. A source without positions
 * has parts without bytes, and no memory. */
static void gather(char *target, const Parts *parts, int64_t rows, const char *const *sources, int64_t stride) {
  if (!parts->bytes) return;
  for (int64_t outer = 0; outer < parts->outer; outer++)
    for (int64_t row = 0; row < rows; row++, target += parts->bytes)
      memcpy(target, sources[row] + outer * stride, (size_t)parts->bytes);
}

/* Which of its group's items a row of the run reads. */
static int64_t place_of_item(const tfm_decoder *decoder, const Run *run, int64_t row) {
  return decoder->item[run->rows[row]->item].place;
}

/* Whether the rows read items of the group that follow one another. */
static bool items_in_order(const tfm_decoder *decoder, const Run *run) {
  for (int64_t i = 1; i < run->info->rows; i++)
    if (place_of_item(decoder, run, i) != place_of_item(decoder, run, 0) + i) return false;
  return true;
}

/* The tensor of a source as it is, if the rows' part of it is in one piece; else NULL, and the parts must be
 * gathered. */
static void *kept_in_place(const tfm_decoder *decoder, const Run *run, uint32_t input, bool in_order) {
  const SourceGroup *group = run->info->group;
  if (decoder->decoding->inputs[input].batch_axis == TFM_NONE) return (void *)group->kept[input];
  Parts parts = input_parts(decoder, run, input);
  if (!in_order || (parts.outer > 1 && run->info->rows < group->n)) return NULL;
  const int64_t skipped = place_of_item(decoder, run, 0) * parts.bytes;
  return (void *)(skipped ? group->kept[input] + skipped : group->kept[input]); /* a tensor without bytes is NULL */
}

/* Whether staging holds the parts of exactly these items from an earlier run: beams read the same source step after
 * step. */
static bool items_are_gathered(const tfm_decoder *decoder, const Run *run) {
  const Gathered *gathered = decoder->gathered + run->info->first;
  for (int64_t i = 0; i < run->info->rows; i++)
    if (gathered[i].item != run->rows[i]->item || gathered[i].first != run->info->first ||
        gathered[i].rows != run->info->rows)
      return false;
  return true;
}

/* Puts the encoder's tensors together for the rows that read them. They stay valid from run to run as long as the
 * items do. */
static void gather_items(tfm_decoder *decoder, const Run *run) {
  const tfm_decoding *decoding = decoder->decoding;
  const SourceGroup *group = run->info->group;
  for (int64_t i = 0; i < run->info->rows; i++)
    decoder->gathered[run->info->first + i] = (Gathered){run->rows[i]->item, run->info->first, run->info->rows};
  for (uint32_t input = 0; input < decoding->step->n_inputs; input++) {
    if (!input_is_of_encoder(decoding, input) || decoding->inputs[input].batch_axis == TFM_NONE) continue;
    Parts parts = input_parts(decoder, run, input);
    if (!parts.bytes) continue; /* a tensor without bytes is NULL */
    for (int64_t i = 0; i < run->info->rows; i++)
      decoder->parts[i] = group->kept[input] + place_of_item(decoder, run, i) * parts.bytes;
    gather(staging_of(decoder, run, input), &parts, run->info->rows, decoder->parts, group->n * parts.bytes);
  }
}

/* The chunks of a long beginning continue what the chunk before wrote. */
static const char *flat_of(const DecoderRow *row) { return row->next_flat ? row->next_flat : row->flat; }

/* Puts the caches that are tensors together. One that is the same for all rows is read from the first. */
static void gather_flat(tfm_decoder *decoder, const Run *run, uint32_t input) {
  Parts parts = input_parts(decoder, run, input);
  int64_t rows = decoder->decoding->inputs[input].batch_axis == TFM_NONE ? 1 : run->info->rows;
  if (parts.bytes * parts.outer == 0) return; /* no positions yet */
  for (int64_t i = 0; i < rows; i++) decoder->parts[i] = flat_of(run->rows[i]) + decoder->inputs[input].flat_offset;
  gather(staging_of(decoder, run, input), &parts, rows, decoder->parts, parts.bytes);
}

/* Where the run reads an input: the tokens, staging, or the encoder's tensor itself. */
static void *input_address(tfm_decoder *decoder, const Run *run, uint32_t input, bool in_order) {
  const tfm_decoding *decoding = decoder->decoding;
  if (input == decoding->decoder_input) return decoder->tokens + run->info->first_token;
  if (decoding->inputs[input].is_cache) {
    gather_flat(decoder, run, input);
    return staging_of(decoder, run, input);
  }
  void *kept = kept_in_place(decoder, run, input, in_order);
  return kept ? kept : staging_of(decoder, run, input);
}

/* One input that is not in one piece decides for all: they are gathered together. */
static bool needs_gathering(const tfm_decoder *decoder, const Run *run, bool in_order) {
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++)
    if (input_is_of_encoder(decoder->decoding, i) && !kept_in_place(decoder, run, i, in_order))
      return !items_are_gathered(decoder, run);
  return false;
}

static void set_inputs(tfm_decoder *decoder, const Run *run) {
  tfm_context *step = run->context;
  bool in_order = items_in_order(decoder, run);
  if (needs_gathering(decoder, run, in_order)) gather_items(decoder, run);
  for (uint32_t i = 0; i < step->program->n_inputs; i++) {
    const tfm_tensor_info *info = &step->program->inputs[i];
    step->run.callers[i] = input_address(decoder, run, i, in_order);
    step->given[i] = (tfm_value){step->run.callers[i], info->dtype, info->rank,
                                 step->binding.input_dims + (size_t)i * TFM_MAX_RANK};
  }
}

// ---- what comes out ----

/* Outputs that are NULL are not computed; caches that are tensors always are. */
static void set_outputs(tfm_decoder *decoder, const Run *run) {
  tfm_context *step = run->context;
  const tfm_decoding *decoding = decoder->decoding;
  void **outputs = step->run.callers + step->program->n_inputs;
  for (uint32_t i = 0; i < step->program->n_outputs; i++) outputs[i] = NULL;
  /* The best are taken by the consumer; any address says that the steps which lead to them are wanted. */
  outputs[decoding->logits] = run->info->best ? (void *)run->info->best->best : run->info->logits;
  if (decoding->logsumexp != TFM_NONE) outputs[decoding->logsumexp] = run->info->logsumexp;
  for (uint32_t i = 0; i < step->program->n_inputs; i++)
    if (input_is_flat_cache(decoding, i)) outputs[decoding->inputs[i].number] = result_of(decoder, run, i);
}

/* Cuts the next value of a cache into the parts of the rows. */
static void take_flat(tfm_decoder *decoder, const Run *run, uint32_t input) {
  const tfm_step_input *info = &decoder->decoding->inputs[input];
  const int64_t rows = run->info->rows;
  Parts parts = parts_of(&decoder->decoding->step->outputs[info->number],
                         run->context->binding.output_dims + (size_t)info->number * TFM_MAX_RANK, info->batch_axis,
                         rows);
  bool same = info->batch_axis == TFM_NONE;
  for (int64_t i = 0; i < rows; i++) {
    const char *from = result_of(decoder, run, input) + (same ? 0 : i * parts.bytes);
    char *to = run->rows[i]->next_flat + decoder->inputs[input].flat_offset;
    for (int64_t outer = 0; outer < parts.outer; outer++, to += parts.bytes)
      memcpy(to, from + outer * parts.bytes * (same ? 1 : rows), (size_t)parts.bytes);
  }
}

/* next_flat becomes `flat` only when the whole step has succeeded. */
static void take_results(tfm_decoder *decoder, const Run *run) {
  if (!decoder->flat_bytes) return;
  for (int64_t i = 0; i < run->info->rows; i++)
    if (!run->rows[i]->next_flat) run->rows[i]->next_flat = page_take(&decoder->flat_pages);
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++)
    if (input_is_flat_cache(decoder->decoding, i)) take_flat(decoder, run, i);
}

// ---- the runs ----

/* The lists that append and attention of this run read. */
static void set_pages(tfm_decoder *decoder, const Run *run, int64_t number) {
  const int64_t first = run->info->first;
  for (int64_t i = 0; i < run->info->rows; i++) {
    decoder->own_lists[first + i] = run->rows[i]->own.pages;
    decoder->source_lists[first + i] = decoder->item[run->rows[i]->item].pages;
  }
  decoder->caches[number] = (CacheRows){decoder->own_lists + first, decoder->source_lists + first};
  run->context->decoding.caches = &decoder->caches[number];
}

/* A run, the context that it is bound to, and its rows. */
static Run run_in(const tfm_decoder *decoder, const DecoderRun *info, tfm_context *context) {
  return (Run){info, context, decoder->run_rows + info->first};
}

/* Binds as many runs as there is room for, at least one; *bound says how many. */
static tfm_status bind_runs(tfm_decoder *decoder, const DecoderRun *runs, int64_t n, int64_t *bound, tfm_error *error) {
  decoder_set_symbols(decoder, runs->group, runs->rows, runs->past, runs->fresh, runs->kept);
  tfm_status status = context_bind_symbols(decoder->step, decoder->symbols, error);
  *bound = 1;
  if (status || n == 1) return status;
  lockstep_none(decoder->step);
  tfm_context *last = decoder->step;
  for (; *bound < n; ++*bound) {
    tfm_context *context = decoder->lockstep[*bound - 1];
    const DecoderRun *run = &runs[*bound];
    bool fits;
    decoder_set_symbols(decoder, run->group, run->rows, run->past, run->fresh, run->kept);
    status = lockstep_bind(decoder->step, last, context, decoder->symbols, &fits, error);
    if (status || !fits) return status;
    context->decoding.consumed_before = run->first - runs->first;
    last = context;
  }
  return TFM_OK;
}

/* Ids are checked for every run before any of them is executed. */
static tfm_status run_bound(tfm_decoder *decoder, const DecoderRun *runs, int64_t n, tfm_error *error) {
  tfm_context *context = decoder->step;
  for (int64_t i = 0; i < n; i++, context = context->decoding.lockstep) {
    const Run run = run_in(decoder, &runs[i], context);
    set_inputs(decoder, &run);
    set_outputs(decoder, &run);
    set_pages(decoder, &run, i);
    tfm_status status = ids_check_inputs(context, context->given, error);
    if (status) return status;
  }
  const int64_t rows = runs[n - 1].first + runs[n - 1].rows - runs->first;
  if (runs->best) best_begin(&decoder->best, runs->best, runs->members, rows, decoder->step->threads);
  tfm_status status = run_steps(decoder->step, error);
  if (runs->best) best_end(&decoder->best, rows, decoder->step->threads);
  context = decoder->step;
  for (int64_t i = 0; i < n && !status; i++, context = context->decoding.lockstep) {
    const Run run = run_in(decoder, &runs[i], context);
    take_results(decoder, &run);
  }
  return status;
}

tfm_status decoder_run(tfm_decoder *decoder, const DecoderRun *runs, int64_t n, tfm_error *error) {
  tfm_status status = TFM_OK;
  for (int64_t first = 0, bound; first < n && !status; first += bound) {
    status = bind_runs(decoder, runs + first, n - first, &bound, error);
    if (!status) status = run_bound(decoder, runs + first, bound, error);
    decoder->step->decoding.lockstep = NULL; /* others may run it alone */
  }
  return status;
}
