/* A decoder's life: creating and destroying it, beginning a batch, and the model that it is for tfm_generate.
 *
 * tfm_decoder_begin takes the inputs of the encoder program and says how many rows of how many tokens there may be.
 * All that a later step may need is allocated there: tables, pages, the tensors of a run, the workspace of the largest
 * runs. Refused: numbers of rows and tokens beyond TFM_DECODER_MOST, and sources for which the model's own checks
 * fail. */
#include "decode/decoder.h"

#include <string.h>

#include "base/allocate.h"
#include "decode/lockstep.h"
#include "machine/fp_mode.h"
#include "steps/walker.h"

/* A decoder without contexts: one block for the struct and the two arrays that depend on the program alone. */
static tfm_decoder *new_decoder(const tfm_decoding *decoding, const tfm_allocator *allocator) {
  int64_t head = round_up(sizeof(tfm_decoder), ALIGNMENT);
  int64_t inputs = round_up((int64_t)sizeof(StepInput) * decoding->step->n_inputs, ALIGNMENT);
  size_t bytes = (size_t)(head + inputs) + sizeof(int64_t) * decoding->step->n_symbols;
  char *block = allocate(allocator, bytes, ALIGNMENT);
  if (!block) return NULL;
  memset(block, 0, bytes);
  tfm_decoder *decoder = (tfm_decoder *)block;
  *decoder = (tfm_decoder){.decoding = decoding,
                           .allocator = *allocator,
                           .bytes = bytes,
                           .inputs = (StepInput *)(block + head),
                           .symbols = (int64_t *)(block + head + inputs)};
  return decoder;
}

/* The encoder program works with the threads of the step: the two never run at the same time. */
static tfm_status create_contexts(tfm_decoder *decoder, const void *encoder_weights, const void *step_weights,
                                  const tfm_context_options *options, tfm_error *error) {
  tfm_status status = tfm_context_create(decoder->decoding->step, step_weights, options, &decoder->step, error);
  if (status) return status;
  decoder->step->decoding.cached_steps = &cached_steps;
  if (best_create(&decoder->best, decoder->decoding, decoder->step))
    decoder->step->decoding.consumer = &decoder->best.consumer;
  if (!decoder->decoding->encoder) return TFM_OK;
  tfm_context_options shared = {.struct_size = sizeof shared,
                                .pool = decoder->step->pool,
                                .allocator = decoder->allocator};
  return tfm_context_create(decoder->decoding->encoder, encoder_weights, &shared, &decoder->source, error);
}

tfm_status tfm_decoder_create(const tfm_decoding *decoding, const void *encoder_weights, const void *step_weights,
                              const tfm_context_options *given, tfm_decoder **decoder, tfm_error *error) {
  if (!decoder) return tfm_refuse(error, TFM_E_USAGE, "there is no place for the decoder");
  *decoder = NULL;
  if (!decoding || !decoding->step) return tfm_refuse(error, TFM_E_USAGE, "the decoding is a null pointer");
  Options options;
  tfm_status status = options_read(given, &options, error);
  if (status) return status;
  tfm_decoder *made = new_decoder(decoding, &options.allocator);
  if (!made) return tfm_refuse(error, TFM_E_NOMEM, "no memory for a decoder");
  if ((status = create_contexts(made, encoder_weights, step_weights, given, error))) {
    tfm_decoder_destroy(made);
    return status;
  }
  *decoder = made;
  return tfm_succeed(error);
}

void tfm_decoder_destroy(tfm_decoder *decoder) {
  if (!decoder) return;
  tfm_context_destroy(decoder->source);
  for (int i = 0; i < MOST_TOGETHER - 1; i++) lockstep_destroy(decoder->lockstep[i]);
  tfm_context_destroy(decoder->step);
  for (int i = 0; i < N_BLOCKS; i++)
    release_room(&decoder->allocator, decoder->blocks[i].memory, decoder->blocks[i].bytes);
  const tfm_allocator allocator = decoder->allocator;
  release(&allocator, decoder, decoder->bytes);
}

/* Both contexts, since the call that is under way may be in either; the flag of the other is cleared by its next
 * call. */
void tfm_decoder_cancel(tfm_decoder *decoder) {
  if (!decoder) return;
  tfm_context_cancel(decoder->source);
  tfm_context_cancel(decoder->step);
}

uint64_t tfm_decoder_bytes(const tfm_decoder *decoder) {
  if (!decoder) return 0;
  int64_t bytes = decoder->step->memory.workspace_bytes;
  if (decoder->source) bytes += decoder->source->memory.workspace_bytes;
  for (int i = 0; i < N_BLOCKS; i++) bytes += decoder->blocks[i].bytes;
  for (int i = 0; i < MOST_TOGETHER - 1; i++)
    if (decoder->lockstep[i]) bytes += (int64_t)decoder->lockstep[i]->bytes;
  return (uint64_t)bytes;
}

int32_t tfm_decoder_threads(const tfm_decoder *decoder) { return decoder ? tfm_context_threads(decoder->step) : 0; }

/* Lockstep runs are walked by the context of `step`, whichever contexts take part. */
void tfm_decoder_profile(tfm_decoder *decoder, uint64_t *nanoseconds) {
  if (decoder) tfm_context_profile(decoder->step, nanoseconds);
}

int64_t tfm_decoder_items(const tfm_decoder *decoder) { return decoder && decoder->begun ? decoder->items : 1; }

// ---- memory ----

/* "no memory for WHAT". */
// ---- the rows ----

/* The most tokens of a run: n rows of at most RUN_TOKENS / n tokens each, or of one. */
static int64_t most_run_tokens(const tfm_decoder *decoder) {
  int64_t length = least_of(RUN_TOKENS, decoder->max_length), rows = least_of(RUN_TOKENS, decoder->max_rows);
  return greatest_of(decoder->max_rows, least_of(RUN_TOKENS, rows * length));
}

/* Called twice, to learn the size and to place. Two lists of pages for each row: its own and that of the spare row. */
static void place_tables(tfm_decoder *decoder, Layout *layout) {
  int64_t rows = decoder->max_rows, pages = decoder->own_pages.n_pages, vocab = decoder->decoding->vocab;
  char *own_arrays, *flat_arrays;
  float **lists;
#define ARRAY(place, count) ((place) = layout_take(layout, (count), sizeof *(place)))
  ARRAY(decoder->rows, rows);
  ARRAY(decoder->spare, rows);
  ARRAY(lists, 2 * pages);
  ARRAY(own_arrays, page_pool_array_bytes(pages));
  ARRAY(flat_arrays, page_pool_array_bytes(2 * rows));
  ARRAY(decoder->item_pages, decoder->n_item_pages);
  ARRAY(decoder->members, rows);
  ARRAY(decoder->done, rows);
  ARRAY(decoder->run_rows, rows);
  ARRAY(decoder->parts, rows);
  ARRAY(decoder->own_lists, rows);
  ARRAY(decoder->source_lists, rows);
  ARRAY(decoder->gathered, rows);
  ARRAY(decoder->model_rows, rows);
  ARRAY(decoder->tokens, most_run_tokens(decoder));
  ARRAY(decoder->logsumexp, rows);
  ARRAY(decoder->logits, rows > 1 ? rows * vocab : 0);
#undef ARRAY
  const int32_t threads = decoder->step->decoding.consumer ? decoder->step->threads : 0;
  best_place(&decoder->best, layout, least_of(rows, RUN_TOKENS), threads);
  if (!layout->block) return;
  page_pool_place(&decoder->own_pages, decoder->blocks[BLOCK_OWN].memory,
                  cache_page_bytes(decoder->decoding->step->own_page_floats), pages, own_arrays);
  page_pool_place(&decoder->flat_pages, decoder->blocks[BLOCK_FLAT].memory, decoder->flat_bytes, 2 * rows, flat_arrays);
  for (int64_t i = 0; i < rows; i++) {
    decoder->gathered[i] = (Gathered){0};
    decoder->rows[i] = (DecoderRow){.own.pages = lists + i * decoder->pages_per_row};
    decoder->spare[i] = (DecoderRow){.own.pages = lists + (rows + i) * decoder->pages_per_row};
  }
}

/* Whether a row writes any cache into pages of its own. */
static bool has_own_pages(const tfm_decoding *decoding) {
  for (uint32_t i = 0; i < decoding->step->n_caches; i++)
    if (!decoding->step->caches[i].of_encoder) return true;
  return false;
}

/* Twice the flat blocks of all rows: while a step is under way each row has its old caches and the next ones. */
static tfm_status reserve_rows(tfm_decoder *decoder, tfm_error *error) {
  int64_t rows = decoder->max_rows, bytes, flat;
  decoder->pages_per_row = has_own_pages(decoder->decoding) ? ceil_div(decoder->longest, TFM_CACHE_PAGE) : 0;
  decoder->own_pages.n_pages = rows * decoder->pages_per_row;
  if (decoder->own_pages.n_pages >= UINT32_MAX ||
      !size_product(&bytes, decoder->own_pages.n_pages, cache_page_bytes(decoder->decoding->step->own_page_floats)) ||
      !size_product(&flat, 2 * rows, decoder->flat_bytes) || !decoder_reserve_block(decoder, BLOCK_OWN, bytes) ||
      !decoder_reserve_block(decoder, BLOCK_FLAT, flat))
    return tfm_refuse(error, TFM_E_NOMEM, "no memory for the caches of %lld rows of %lld tokens", (long long)rows,
                          (long long)decoder->longest);
  Layout layout = {0};
  place_tables(decoder, &layout);
  if (layout.bytes < 0 || !decoder_reserve_block(decoder, BLOCK_TABLES, layout.bytes))
    return tfm_no_memory(error, "the tables of a decoder");
  layout = (Layout){.block = decoder->blocks[BLOCK_TABLES].memory};
  place_tables(decoder, &layout);
  return TFM_OK;
}

// ---- the runs ----

/* Makes room in the step's context for `together` runs of these sizes that end at the longest row. */
static tfm_status reserve_run(tfm_decoder *decoder, const SourceGroup *group, int64_t rows, int64_t fresh, int64_t kept,
                              int64_t together, tfm_error *error) {
  fresh = least_of(fresh, group->longest);
  decoder_set_symbols(decoder, group, rows, group->longest - fresh, fresh, greatest_of(1, least_of(kept, fresh)));
  return context_reserve_symbols(decoder->step, decoder->symbols, together, error);
}

static tfm_status reserve_one(tfm_decoder *decoder, SourceGroup *group, int64_t length, tfm_error *error) {
  group->longest = length;
  return reserve_run(decoder, group, 1, 1, 1, 1, error);
}

/* The longest row of at most max_length that the checks of the model allow, by halving. Checks such as `length <=
 * max_positions` are monotonic in the length; a step refuses a longer row with the message of the check. */
static tfm_status find_longest(tfm_decoder *decoder, SourceGroup *group, tfm_error *error) {
  tfm_status status = reserve_one(decoder, group, decoder->max_length, error);
  if (status != TFM_E_INPUT) return status;
  int64_t least = 0, most = decoder->max_length; /* `least` is allowed or 0, `most` isn't */
  while (most - least > 1) {
    int64_t middle = least + (most - least) / 2;
    tfm_status tried = reserve_one(decoder, group, middle, NULL);
    if (tried && tried != TFM_E_INPUT) return tried;
    if (tried) most = middle;
    else least = middle;
  }
  group->longest = least;
  return least ? TFM_OK : status;
}

/* No more runs than rows can go in lockstep. A cache that is one tensor for all rows has one place, so only one run at
 * a time can write it. */
static int64_t most_together(const tfm_decoder *decoder) {
  const tfm_decoding *decoding = decoder->decoding;
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (input_is_flat_cache(decoding, i) && decoding->inputs[i].batch_axis == TFM_NONE) return 1;
  return decoder_has_rows(decoder) ? least_of(MOST_TOGETHER, decoder->max_rows) : 1;
}

/* Contexts of lockstep runs are kept from batch to batch; each begins its part of a buffer at a multiple of ALIGNMENT,
 * for which spare_bytes is reserved. */
static tfm_status make_contexts(tfm_decoder *decoder, tfm_error *error) {
  decoder->most_together = most_together(decoder);
  decoder->step->memory.spare_bytes = decoder->most_together > 1 ? decoder->most_together * ALIGNMENT : 0;
  for (int64_t i = 0; i < decoder->most_together - 1; i++) {
    if (!decoder->lockstep[i]) decoder->lockstep[i] = lockstep_create(decoder->step);
    if (!decoder->lockstep[i]) return tfm_no_memory(error, "the runs of rows of different lengths");
  }
  return TFM_OK;
}

/* A buffer grows with rows, with new tokens, or with both; their product is bounded by RUN_TOKENS, so every buffer is
 * largest in one of three runs: one row of many tokens, all rows, or the most runs in lockstep. What does not grow
 * with them, each lockstep run has once. */
static tfm_status reserve_runs(tfm_decoder *decoder, const SourceGroup *group, tfm_error *error) {
  int64_t rows = decoder_has_rows(decoder) ? decoder->max_rows : 1, n = decoder->most_together;
  tfm_status status = reserve_run(decoder, group, 1, RUN_TOKENS, greatest_of(LEAST_KEPT, rows), 1, error);
  if (!status)
    status = reserve_run(decoder, group, rows, decoder_chunk(rows), greatest_of(1, LEAST_KEPT / rows), 1, error);
  if (!status && n > 1) status = reserve_run(decoder, group, 1, decoder_chunk(n), 1, n, error);
  return status;
}

/* Bytes that a row of the group takes of each tensor, at most: in the run of one row that ends at the longest. */
static tfm_status measure_row(tfm_decoder *decoder, const SourceGroup *group, tfm_error *error) {
  const tfm_decoding *decoding = decoder->decoding;
  decoder_set_symbols(decoder, group, 1, group->longest - 1, 1, 1);
  tfm_status status = context_set_shapes(decoder->step, decoder->symbols, error);
  for (uint32_t i = 0; i < decoding->step->n_inputs && !status; i++) {
    StepInput *state = &decoder->inputs[i];
    if (i == decoding->decoder_input) continue;
    state->staging_row = greatest_of(state->staging_row, decoder_input_bytes(decoder->step, i));
    if (decoding->inputs[i].is_cache)
      state->result_row = greatest_of(state->result_row,
                                      decoder_output_bytes(decoder->step, decoding->inputs[i].number));
  }
  return status;
}

/* Offsets of the caches that are tensors in the flat block of a row, sized for the largest of all groups. */
static tfm_status place_flat(tfm_decoder *decoder, tfm_error *error) {
  Layout flat = {0};
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++) {
    if (!input_is_flat_cache(decoder->decoding, i)) continue;
    decoder->inputs[i].flat_offset = flat.bytes;
    layout_take(&flat, decoder->inputs[i].result_row, 1);
  }
  decoder->flat_bytes = flat.bytes;
  return flat.bytes >= 0 ? TFM_OK : tfm_no_memory(error, "the longest row");
}

/* The three steps depend on the longest row, which the first finds. */
static tfm_status reserve_group(tfm_decoder *decoder, SourceGroup *group, tfm_error *error) {
  tfm_status status = find_longest(decoder, group, error);
  if (!status) status = reserve_runs(decoder, group, error);
  return status ? status : measure_row(decoder, group, error);
}

/* An error of a ragged batch names the first item of the group. */
static tfm_status reserve_groups(tfm_decoder *decoder, bool are_ragged, tfm_error *error) {
  decoder->longest = 0;
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++)
    decoder->inputs[i].staging_row = decoder->inputs[i].result_row = 0;
  for (int64_t i = 0; i < decoder->n_groups; i++) {
    SourceGroup *group = &decoder->groups[i];
    const tfm_status status = reserve_group(decoder, group, error);
    if (status) return are_ragged && group->n ? decoder_name_item(status, decoder->order[group->first], error) : status;
    decoder->longest = greatest_of(decoder->longest, group->longest);
  }
  return place_flat(decoder, error);
}

/* Room for the tensors of the largest run. An input that all rows share needs staging only if it is a cache. */
static void place_staging(tfm_decoder *decoder, Layout *layout) {
  const tfm_decoding *decoding = decoder->decoding;
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++) {
    if (i == decoding->decoder_input) continue;
    const tfm_step_input *info = &decoding->inputs[i];
    StepInput *state = &decoder->inputs[i];
    int64_t rows = info->batch_axis == TFM_NONE ? 1 : decoder->max_rows;
    if (info->is_cache || info->batch_axis != TFM_NONE) state->staging = layout_take(layout, rows, state->staging_row);
    if (info->is_cache) state->result = layout_take(layout, rows, state->result_row);
  }
}

static tfm_status reserve_staging(tfm_decoder *decoder, tfm_error *error) {
  Layout layout = {0};
  place_staging(decoder, &layout);
  if (layout.bytes < 0 || !decoder_reserve_block(decoder, BLOCK_STAGING, layout.bytes))
    return tfm_no_memory(error, "the tensors of the rows");
  layout = (Layout){.block = decoder->blocks[BLOCK_STAGING].memory};
  place_staging(decoder, &layout);
  return TFM_OK;
}

// ---- beginning ----

/* Bounds keep all later products of sizes within 64 bits. */
static tfm_status check_begin(const tfm_decoder *decoder, int64_t max_rows, int64_t max_length, tfm_error *error) {
  if (!decoder) return tfm_refuse(error, TFM_E_USAGE, "the decoder is a null pointer");
  if (max_rows < 0 || max_rows > TFM_DECODER_MOST || max_length < 1 || max_length > TFM_DECODER_MOST)
    return tfm_refuse(error, TFM_E_INPUT, "%lld rows of %lld tokens: there may be 0 and 1 to %d", (long long)max_rows,
                          (long long)max_length, TFM_DECODER_MOST);
  return TFM_OK;
}

/* Everything that can be refused or can lack memory comes before the first computation. */
static tfm_status begin(tfm_decoder *decoder, const SourceInputs *inputs, tfm_error *error) {
  tfm_status status = sources_bind(decoder, inputs, error);
  if (!status) status = make_contexts(decoder, error);
  if (!status) status = reserve_groups(decoder, inputs->lengths, error);
  if (!status) status = reserve_staging(decoder, error);
  if (!status) status = reserve_rows(decoder, error);
  if (status) return status;
  sources_place_pages(decoder);
  return sources_run(decoder, inputs, error);
}

tfm_status tfm_decoder_begin_ragged(tfm_decoder *decoder, const tfm_value *inputs, const int64_t *const *lengths,
                                    int64_t max_rows, int64_t max_length, tfm_error *error) {
  tfm_status status = check_begin(decoder, max_rows, max_length, error);
  if (status) return status;
  decoder->begun = false;
  decoder->max_rows = max_rows ? max_rows : 1; /* memory is for at least one */
  decoder->max_length = max_length;
  if ((status = begin(decoder, &(SourceInputs){inputs, lengths}, error))) return status;
  decoder->begun = true;
  return tfm_succeed(error);
}

tfm_status tfm_decoder_begin(tfm_decoder *decoder, const tfm_value *inputs, int64_t max_rows, int64_t max_length,
                             tfm_error *error) {
  return tfm_decoder_begin_ragged(decoder, inputs, NULL, max_rows, max_length, error);
}

// ---- a decoder as the model of tfm_generate ----

/* The rows of a first call replace all rows of the batch before. */
static tfm_status start_rows(tfm_decoder *decoder, const tfm_step_rows *rows, tfm_error *error) {
  decoder_forget_rows(decoder);
  tfm_status status = TFM_OK;
  for (int64_t i = 0, row; i < rows->n && !status; i++) status = tfm_decoder_join(decoder, rows->items[i], &row, error);
  return status;
}

/* The first call of a generation has no parents. */
static bool is_first_call(const tfm_step_rows *rows) {
  for (int64_t i = 0; i < rows->n; i++)
    if (rows->parents[i] >= 0) return false;
  return true;
}

/* The decoder's rows become those of the call. decoder->model_rows gets the tokens that they do not have yet: usually
 * one each. */
static tfm_status continue_rows(tfm_decoder *decoder, const tfm_step_rows *rows, tfm_error *error) {
  if (!decoder->begun) return decoder_check_row(decoder, 0, error);
  tfm_status status = is_first_call(rows) ? start_rows(decoder, rows, error)
                                          : tfm_decoder_reorder(decoder, rows->n, rows->parents, error);
  for (int64_t i = 0; i < rows->n && !status; i++) {
    int64_t known = decoder->rows[i].length;
    decoder->model_rows[i] = (tfm_decoder_row){i, rows->tokens[i] + known, rows->lengths[i] - known};
  }
  return status;
}

static tfm_status model_logits(void *user, const tfm_step_rows *rows, float *logits, float *logsumexp,
                               tfm_error *error) {
  tfm_decoder *decoder = user;
  tfm_status status = continue_rows(decoder, rows, error);
  return status ? status : tfm_decoder_step(decoder, rows->n, decoder->model_rows, 1, logits, logsumexp, error);
}

static tfm_status model_best(void *user, const tfm_step_rows *rows, const tfm_best_call *call, tfm_error *error) {
  tfm_decoder *decoder = user;
  tfm_status status = continue_rows(decoder, rows, error);
  return status ? status : decoder_step_best(decoder, rows->n, decoder->model_rows, call, error);
}

typedef struct SharedWork {
  void (*work)(void *context, int64_t part, int64_t parts);
  void *context;
} SharedWork;

/* The floating-point mode is the runtime's in every thread, so that sums have the same bits. */
static void do_part(void *argument, PoolMember *member) {
  const SharedWork *shared = argument;
  uint64_t fp_mode = fp_mode_enter();
  shared->work(shared->context, member->thread, member->active);
  fp_mode_leave(fp_mode);
}

/* By the threads of the step, which are still awake. */
static void model_share(void *user, void (*work)(void *context, int64_t part, int64_t parts), void *context) {
  const tfm_decoder *decoder = user;
  Pool *pool = decoder->step->pool;
  SharedWork shared = {work, context};
  bool claimed = decoder->step->threads > 1 && pool_claim(pool);
  pool_run(pool, claimed ? pool_threads(pool) : 1, do_part, &shared);
  if (claimed) pool_release(pool);
}

tfm_generate_model tfm_decoder_model(tfm_decoder *decoder) {
  return (tfm_generate_model){.vocab = decoder->decoding->vocab,
                              .user = decoder,
                              .logits = model_logits,
                              .gives_logsumexp = decoder->decoding->logsumexp != TFM_NONE,
                              .share = model_share,
                              .best = decoder->step->decoding.consumer ? model_best : NULL,
                              .most_best = decoder->step->decoding.consumer ? MOST_BEST : 0};
}
