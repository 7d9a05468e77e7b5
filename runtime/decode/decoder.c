/* A decoder's life: creating and destroying it, beginning with a batch or with limits alone, adding sources. In: a
 * tfm_decoding with its packed weights; inputs, or limits. Out: a decoder.
 *
 * Beginning says how many rows of how many tokens there may be. All that a later step may need is allocated there:
 * tables, pages, the tensors of a run, the workspace of the largest runs. Refused: numbers of rows and tokens beyond
 * TFM_DECODER_MOST, and sources for which the model's own checks fail. */
#include "decode/decoder.h"

#include <string.h>

#include "base/allocate.h"
#include "decode/calls.h"
#include "decode/decoder_memory.h"
#include "decode/lockstep.h"
#include "decode/row_caches.h"
#include "decode/rows.h"
#include "decode/sources.h"
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
                           .symbols = (int64_t *)(block + head + inputs),
                           .staging = {.inputs = (StepInput *)(block + head)}};
  return decoder;
}

/* The encoder program works with the threads of the step: the two never run at the same time. */
static tfm_status create_contexts(tfm_decoder *decoder, const void *encoder_weights, const void *step_weights,
                                  const tfm_context_options *options, tfm_error *error) {
  tfm_status status = tfm_context_create(decoder->decoding->step, step_weights, options, &decoder->step, error);
  if (status) return status;
  if (best_create(&decoder->best, decoder->decoding, decoder->step))
    decoder->step->memory.consumed = decoder->best.consumed;
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

/* The blocks of all parts but the sources, which have lists of them. */
enum { N_BLOCKS = 9 };
static void list_blocks(tfm_decoder *decoder, DecoderBlock *blocks[N_BLOCKS]) {
  DecoderBlock *const all[N_BLOCKS] = {
      &decoder->rows.block,   &decoder->caches.tables,  &decoder->caches.own_block, &decoder->caches.flat_block,
      &decoder->calls.tables, &decoder->calls.writing,  &decoder->staging.tables,   &decoder->staging.block,
      &decoder->lockstep.block};
  memcpy(blocks, all, sizeof all);
}

void tfm_decoder_destroy(tfm_decoder *decoder) {
  if (!decoder) return;
  DecoderBlock *blocks[N_BLOCKS];
  sources_destroy(decoder);
  list_blocks(decoder, blocks);
  for (int i = 0; i < N_BLOCKS; i++) decoder_release_block(decoder, blocks[i]);
  tfm_context_destroy(decoder->source);
  for (int i = 0; i < MOST_TOGETHER - 1; i++) lockstep_destroy(decoder->lockstep.context[i]);
  tfm_context_destroy(decoder->step);
  const tfm_allocator allocator = decoder->allocator;
  release(&allocator, decoder, decoder->bytes);
}

void decoder_stop_with(tfm_decoder *decoder, Stop *stop) {
  decoder->step->stop = stop;
  if (decoder->source) decoder->source->stop = stop;
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
  DecoderBlock *blocks[N_BLOCKS];
  list_blocks((tfm_decoder *)decoder, blocks);
  int64_t bytes = decoder->step->memory.workspace_bytes;
  if (decoder->source) bytes += decoder->source->memory.workspace_bytes;
  for (int i = 0; i < N_BLOCKS; i++) bytes += blocks[i]->bytes;
  for (int i = 0; i < MOST_TOGETHER - 1; i++)
    if (decoder->lockstep.context[i]) bytes += (int64_t)decoder->lockstep.context[i]->bytes;
  return (uint64_t)bytes + sources_bytes(decoder);
}

int32_t tfm_decoder_threads(const tfm_decoder *decoder) { return decoder ? tfm_context_threads(decoder->step) : 0; }

/* Lockstep runs are walked by the context of `step`, whichever contexts take part. */
void tfm_decoder_profile(tfm_decoder *decoder, uint64_t *nanoseconds) {
  if (decoder) tfm_context_profile(decoder->step, nanoseconds);
}

int64_t tfm_decoder_items(const tfm_decoder *decoder) { return decoder && decoder->begun ? decoder->sources.n : 1; }

// ---- beginning ----

/* Bounds keep all later products of sizes within 64 bits. */
static tfm_status check_numbers(int64_t max_rows, int64_t max_length, tfm_error *error) {
  if (max_rows < 0 || max_rows > TFM_DECODER_MOST || max_length < 1 || max_length > TFM_DECODER_MOST)
    return tfm_refuse(error, TFM_E_INPUT, "%lld rows of %lld tokens: there may be 0 and 1 to %d", (long long)max_rows,
                      (long long)max_length, TFM_DECODER_MOST);
  return TFM_OK;
}

/* What the decoder may have to do; memory is for at least one row. */
static tfm_decoder_limits limits_of(int64_t max_rows, int64_t max_length) {
  return (tfm_decoder_limits){.rows = greatest_of(1, max_rows), .length = max_length};
}

/* A step may be smaller than the rows there are, and still have rows of logits for each of its own. */
static void begin_calls(tfm_decoder *decoder, const tfm_decoder_limits *limits) {
  const int64_t rows = limits->step_rows ? least_of(limits->step_rows, limits->rows) : limits->rows;
  calls_begin(decoder, rows, greatest_of(rows, limits->step_kept));
}

/* The room of all parts, once it is known how long rows can be. */
static tfm_status reserve_parts(tfm_decoder *decoder, const tfm_decoder_limits *limits, int64_t longest,
                                tfm_error *error) {
  const CacheSizes sizes = {longest, staging_place_flat(decoder), limits->cache_bytes};
  float **lists;
  tfm_status status = staging_reserve(decoder, error);
  if (!status) status = rows_reserve(decoder, limits->rows, limits->length, error);
  if (!status) status = caches_reserve(decoder, &sizes, &lists, error);
  if (status) return status;
  rows_place(decoder, lists);
  return calls_reserve(decoder, error);
}

/* A batch and room for it and its rows. Everything that can be refused or can lack memory comes before the first
 * computation. */
static tfm_status begin_batch(tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs,
                              const tfm_decoder_limits *limits, tfm_error *error) {
  const SourceMeasure measure = {.length = limits->length, .are_ragged = inputs->lengths};
  int64_t longest;
  tfm_status status = lockstep_reserve(decoder, error);
  staging_begin(decoder);
  if (!status) status = sources_measure(decoder, batch, &measure, &longest, error);
  if (!status) status = reserve_parts(decoder, limits, longest, error);
  if (!status) status = sources_check_room(decoder, batch, error);
  return status ? status : sources_run(decoder, batch, inputs, error);
}

static tfm_status begin_sources(tfm_decoder *decoder, const SourceInputs *inputs, const tfm_decoder_limits *limits,
                                tfm_error *error) {
  SourceBatch *batch;
  begin_calls(decoder, limits);
  tfm_status status = sources_reserve(decoder, 0, NULL, error); /* the batch takes the memory of the one before */
  if (!status) status = sources_bind(decoder, inputs, &batch, error);
  if (status) return status;
  status = sources_make_room(decoder, batch->n, error);
  if (!status) status = begin_batch(decoder, batch, inputs, limits, error);
  if (status) sources_give_up(decoder, batch);
  return status;
}

tfm_status tfm_decoder_begin_ragged(tfm_decoder *decoder, const tfm_value *inputs, const int64_t *const *lengths,
                                    int64_t max_rows, int64_t max_length, tfm_error *error) {
  if (!decoder) return tfm_refuse(error, TFM_E_USAGE, "the decoder is a null pointer");
  tfm_status status = check_numbers(max_rows, max_length, error);
  if (status) return status;
  const tfm_decoder_limits limits = limits_of(max_rows, max_length);
  decoder->begun = false;
  if ((status = begin_sources(decoder, &(SourceInputs){inputs, lengths}, &limits, error))) return status;
  decoder->begun = true;
  return tfm_succeed(error);
}

tfm_status tfm_decoder_begin(tfm_decoder *decoder, const tfm_value *inputs, int64_t max_rows, int64_t max_length,
                             tfm_error *error) {
  return tfm_decoder_begin_ragged(decoder, inputs, NULL, max_rows, max_length, error);
}

// ---- sources that come and go ----

/* Members behind the caller's struct_size are 0, which is the default of each. */
static tfm_status read_limits(const tfm_decoder *decoder, const tfm_decoder_limits *given, tfm_decoder_limits *limits,
                              tfm_error *error) {
  *limits = (tfm_decoder_limits){0};
  if (!decoder || !given)
    return tfm_refuse(error, TFM_E_USAGE, "the %s a null pointer", decoder ? "limits are" : "decoder is");
  memcpy(limits, given, given->struct_size && given->struct_size < sizeof *given ? given->struct_size : sizeof *given);
  tfm_status status = check_numbers(limits->rows, limits->length, error);
  if (status) return status;
  if (limits->rows < 1) return tfm_refuse(error, TFM_E_INPUT, "a decoder of no rows");
  if (limits->step_rows < 0 || limits->step_kept < 0 || limits->step_kept > TFM_DECODER_MOST || limits->items < 0 ||
      limits->items > TFM_DECODER_MOST)
    return tfm_refuse(error, TFM_E_INPUT, "limits lie between 0 and %d", TFM_DECODER_MOST);
  if (!decoder->source) return TFM_OK;
  if (!limits->source_sizes) return tfm_refuse(error, TFM_E_USAGE, "the limits have no sizes of sources");
  if (decoder->decoding->encoder_rows == TFM_NONE) limits->items = 1;
  return limits->items ? TFM_OK : tfm_refuse(error, TFM_E_INPUT, "a decoder of no sources");
}

static tfm_status open_limits(tfm_decoder *decoder, const tfm_decoder_limits *limits, tfm_error *error) {
  int64_t longest;
  begin_calls(decoder, limits);
  tfm_status status = sources_reserve(decoder, limits->items, limits->source_sizes, error);
  if (!status) status = lockstep_reserve(decoder, error);
  staging_begin(decoder);
  if (!status) status = sources_measure_limits(decoder, limits->length, &longest, error);
  return status ? status : reserve_parts(decoder, limits, longest, error);
}

/* A model without an encoder program has one source that takes no inputs. */
tfm_status tfm_decoder_open(tfm_decoder *decoder, const tfm_decoder_limits *given, tfm_error *error) {
  tfm_decoder_limits limits;
  tfm_status status = read_limits(decoder, given, &limits, error);
  if (status) return status;
  decoder->begun = false;
  status = decoder->source ? open_limits(decoder, &limits, error)
                           : begin_sources(decoder, &(SourceInputs){NULL, NULL}, &limits, error);
  if (status) return status;
  decoder->begun = true;
  return tfm_succeed(error);
}

static tfm_status add_sources(tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs, tfm_error *error) {
  const SourceMeasure measure = {.length = decoder->caches.longest, .is_added = true, .are_ragged = inputs->lengths};
  int64_t longest;
  tfm_status status = sources_check_room(decoder, batch, error);
  if (!status) status = sources_measure(decoder, batch, &measure, &longest, error);
  return status ? status : sources_run(decoder, batch, inputs, error);
}

/* What was gathered of items that had these numbers before is no longer theirs. */
tfm_status tfm_decoder_add_source(tfm_decoder *decoder, const tfm_value *inputs, const int64_t *const *lengths,
                                  int64_t *first_item, tfm_error *error) {
  const SourceInputs given = {inputs, lengths};
  SourceBatch *batch;
  tfm_status status = decoder_check_begun(decoder, error);
  if (status) return status;
  if (!first_item) return tfm_refuse(error, TFM_E_USAGE, "there is no place for the item's number");
  if (!decoder->source) return tfm_refuse(error, TFM_E_USAGE, "this model has no sources");
  if ((status = sources_bind(decoder, &given, &batch, error))) return status;
  status = batch->n ? add_sources(decoder, batch, &given, error)
                    : tfm_refuse(error, TFM_E_INPUT, "the inputs hold no source");
  if (status) {
    sources_give_up(decoder, batch);
    return status;
  }
  staging_forget(decoder);
  *first_item = batch->first;
  return tfm_succeed(error);
}

tfm_status tfm_decoder_drop_source(tfm_decoder *decoder, int64_t item, tfm_error *error) {
  tfm_status status = decoder_check_begun(decoder, error);
  if (!status && !decoder->source) return tfm_refuse(error, TFM_E_USAGE, "this model has no sources");
  if (!status) status = sources_find(decoder, item, &item, error);
  if (status) return status;
  if (rows_read_item(decoder, item))
    return tfm_refuse(error, TFM_E_INPUT, "item %lld cannot be dropped: a row reads it", (long long)item);
  sources_drop(decoder, item);
  return tfm_succeed(error);
}
