/* Beginning: runs the source program, makes room for all rows of all lengths, and puts what the sources gave into pages.
 *
 * In: the inputs of the source program, how many rows of how many tokens there may be. Whatever a step may need later is
 * allocated here: tables, pages, the tensors of a run, the workspace for the largest runs. */
#include <string.h>

#include "allocate.h"
#include "beside.h"
#include "decoder.h"
#include "layout.h"
#include "run.h"

/* --- Memory -------------------------------------------------------------------------------------------------------- */

/* Room of at least `bytes`, whatever was in it before. */
static bool block_reserve(tfm_decoder *decoder, int number, int64_t bytes) {
  DecoderBlock *block = &decoder->blocks[number];
  if (bytes <= block->bytes) return true;
  release_room(&decoder->allocator, block->memory, block->bytes);
  *block = (DecoderBlock){.bytes = bytes};
  if (number == BLOCK_OWN) decoder->own_pages.memory = NULL;
  if (number == BLOCK_FLAT) decoder->flat_pages.memory = NULL;
  block->memory = allocate_room(&decoder->allocator, &block->bytes);
  if (!block->memory) block->bytes = 0;
  return block->memory;
}

static tfm_status no_memory(tfm_error *error, const char *what) {
  return decoder_refuse(error, TFM_E_NOMEM, "no memory for %s", what);
}

/* --- The sources --------------------------------------------------------------------------------------------------- */

static int64_t tensor_bytes(const tfm_tensor_info *info, const int64_t *dims) {
  int64_t bytes = dtype_size(info->dtype);
  for (uint32_t i = 0; i < info->rank; i++) bytes *= dims[i];
  return bytes;
}

static int64_t output_bytes(const tfm_context *context, uint32_t output) {
  return tensor_bytes(&context->program->outputs[output], context->output_dims + (size_t)output * TFM_MAX_RANK);
}

static bool fills_pages(const tfm_decoding *decoding, uint32_t output) {
  for (uint32_t i = 0; i < decoding->step->n_caches; i++)
    if (decoding->step->caches[i].of_source && decoding->cache_sources[i] == output) return true;
  return false;
}

static bool is_kept(const tfm_decoding *decoding, uint32_t output) {
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (input_is_of_source(decoding, i) && decoding->inputs[i].number == output) return true;
  return false;
}

/* The source program's outputs: those that are kept in one block, the others, which only fill pages, in another. */
static void place_outputs(tfm_decoder *decoder, Layout *kept, Layout *passing) {
  tfm_context *source = decoder->source;
  void **outputs = source->callers + source->program->n_inputs;
  for (uint32_t i = 0; i < source->program->n_outputs; i++) {
    outputs[i] = NULL;
    if (is_kept(decoder->decoding, i)) outputs[i] = layout_take(kept, output_bytes(source, i), 1);
    else if (fills_pages(decoder->decoding, i)) outputs[i] = layout_take(passing, output_bytes(source, i), 1);
  }
}

/* Positions of the longest source that fills pages. */
static int64_t source_positions(const tfm_decoder *decoder) {
  const tfm_program *step = decoder->decoding->step;
  int64_t most = 0;
  for (uint32_t i = 0; i < step->n_caches; i++) {
    if (!step->caches[i].of_source) continue;
    most = greatest_of(most, decoder->source->output_dims[decoder->decoding->cache_sources[i] * TFM_MAX_RANK + 1]);
  }
  return most;
}

/* One cache's positions of one item: those of the output, [items][positions][columns]. */
static void fill_item(tfm_decoder *decoder, const tfm_cache *cache, const float *values, int64_t positions,
                      float *const *pages) {
  int64_t stride = cache->columns * (int64_t)sizeof(float);
  PageSlice slice = {.cache = cache, .floats = decoder->decoding->step->source_page_floats};
  for (int64_t first = 0; first < positions; first += TFM_CACHE_PAGE) {
    slice.page = pages[first / TFM_CACHE_PAGE];
    slice.n = least_of(TFM_CACHE_PAGE, positions - first);
    page_write(&slice, 0, cache->columns, (const char *)values + first * stride, stride, sizeof(float));
  }
}

static void fill_pages(tfm_decoder *decoder) {
  const tfm_program *step = decoder->decoding->step;
  const tfm_context *source = decoder->source;
  for (uint32_t i = 0; i < step->n_caches; i++) {
    const tfm_cache *cache = &step->caches[i];
    if (!cache->of_source) continue;
    uint32_t output = decoder->decoding->cache_sources[i];
    int64_t positions = source->output_dims[output * TFM_MAX_RANK + 1];
    const float *values = source->callers[source->program->n_inputs + output];
    for (int64_t item = 0; item < decoder->items; item++)
      fill_item(decoder, cache, values + item * positions * cache->columns, positions,
                decoder->item_pages + item * decoder->pages_per_item);
  }
}

/* Pages of items are not shared and never given back: a list is a row of addresses. */
static void place_item_pages(tfm_decoder *decoder) {
  int64_t n = decoder->items * decoder->pages_per_item;
  int64_t bytes = cache_page_bytes(decoder->decoding->step->source_page_floats);
  for (int64_t i = 0; i < n; i++) decoder->item_pages[i] = (float *)(decoder->blocks[BLOCK_SOURCE].memory + i * bytes);
  for (int64_t i = 0; i < n; i++) { /* tails, and what no position fills */
    int64_t page = i % greatest_of(1, decoder->pages_per_item);
    if (page == decoder->pages_per_item - 1) memset(decoder->item_pages[i], 0, (size_t)bytes);
    else page_tail(decoder->item_pages[i], decoder->decoding->step->source_page_floats)->has_infinite = 0;
  }
}

static tfm_status bind_source(tfm_decoder *decoder, const tfm_value *inputs, tfm_error *error) {
  decoder->items = 1;
  decoder->pages_per_item = 0;
  if (!decoder->source) return TFM_OK;
  tfm_status status = tfm_context_bind(decoder->source, inputs, error);
  if (status) return status;
  if (decoder->decoding->source_rows != TFM_NONE) decoder->items = decoder->source->symbols[decoder->decoding->source_rows];
  decoder->pages_per_item = ceil_div(source_positions(decoder), TFM_CACHE_PAGE);
  Layout kept = {0}, passing = {0};
  place_outputs(decoder, &kept, &passing);
  int64_t pages;
  if (kept.bytes < 0 || passing.bytes < 0 ||
      !size_product(&pages, decoder->items * decoder->pages_per_item,
               cache_page_bytes(decoder->decoding->step->source_page_floats)) ||
      !block_reserve(decoder, BLOCK_OUTPUTS, kept.bytes) || !block_reserve(decoder, BLOCK_SOURCE, pages))
    return no_memory(error, "what the sources give");
  return TFM_OK;
}

/* Pages must have been placed. */
static tfm_status run_source(tfm_decoder *decoder, const tfm_value *inputs, tfm_error *error) {
  tfm_context *source = decoder->source;
  const tfm_decoding *decoding = decoder->decoding;
  if (!source) return TFM_OK;
  Layout kept = {.block = decoder->blocks[BLOCK_OUTPUTS].memory}, passing = {0};
  place_outputs(decoder, &kept, &passing);
  int64_t bytes = passing.bytes;
  char *room = bytes ? allocate_room(&decoder->allocator, &bytes) : NULL;
  if (bytes && !room) return no_memory(error, "what the sources give");
  kept.bytes = 0;
  passing = (Layout){.block = room};
  place_outputs(decoder, &kept, &passing);
  for (uint32_t i = 0; i < source->program->n_inputs; i++) source->callers[i] = inputs[i].data;
  run_forget_cancelled(source);
  tfm_status status = run_steps(source, error);
  if (!status) fill_pages(decoder);
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (input_is_of_source(decoding, i))
      decoder->inputs[i].kept = source->callers[source->program->n_inputs + decoding->inputs[i].number];
  release_room(&decoder->allocator, room, bytes);
  return status;
}

/* --- The rows ------------------------------------------------------------------------------------------------------ */

/* n rows of at most RUN_TOKENS / n tokens each, or of one. */
static int64_t most_run_tokens(const tfm_decoder *decoder) {
  int64_t length = least_of(RUN_TOKENS, decoder->max_length), rows = least_of(RUN_TOKENS, decoder->max_rows);
  return greatest_of(decoder->max_rows, least_of(RUN_TOKENS, rows * length));
}

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
  ARRAY(decoder->item_pages, decoder->items * decoder->pages_per_item);
  ARRAY(decoder->members, rows);
  ARRAY(decoder->done, rows);
  ARRAY(decoder->run_rows, rows);
  ARRAY(decoder->parts, rows);
  ARRAY(decoder->own_lists, rows);
  ARRAY(decoder->source_lists, rows);
  ARRAY(decoder->gathered, rows);
  ARRAY(decoder->model_rows, rows);
  ARRAY(decoder->tokens, most_run_tokens(decoder));
  ARRAY(decoder->log_sums, rows);
  ARRAY(decoder->scores, rows > 1 ? rows * vocab : 0);
#undef ARRAY
  best_place(&decoder->best, layout, least_of(rows, RUN_TOKENS), decoder->step->consumer ? decoder->step->threads : 0);
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

static bool has_own_pages(const tfm_decoding *decoding) {
  for (uint32_t i = 0; i < decoding->step->n_caches; i++)
    if (!decoding->step->caches[i].of_source) return true;
  return false;
}

static tfm_status reserve_rows(tfm_decoder *decoder, tfm_error *error) {
  int64_t rows = decoder->max_rows, bytes, flat;
  decoder->pages_per_row = has_own_pages(decoder->decoding) ? ceil_div(decoder->longest, TFM_CACHE_PAGE) : 0;
  decoder->own_pages.n_pages = rows * decoder->pages_per_row;
  if (decoder->own_pages.n_pages >= UINT32_MAX ||
      !size_product(&bytes, decoder->own_pages.n_pages, cache_page_bytes(decoder->decoding->step->own_page_floats)) ||
      !size_product(&flat, 2 * rows, decoder->flat_bytes) || !block_reserve(decoder, BLOCK_OWN, bytes) ||
      !block_reserve(decoder, BLOCK_FLAT, flat))
    return decoder_refuse(error, TFM_E_NOMEM, "no memory for the caches of %lld rows of %lld tokens", (long long)rows,
                          (long long)decoder->longest);
  Layout layout = {0};
  place_tables(decoder, &layout);
  if (layout.bytes < 0 || !block_reserve(decoder, BLOCK_TABLES, layout.bytes)) return no_memory(error, "the tables of a decoder");
  layout = (Layout){.block = decoder->blocks[BLOCK_TABLES].memory};
  place_tables(decoder, &layout);
  return TFM_OK;
}

/* --- The runs ------------------------------------------------------------------------------------------------------ */

static tfm_status reserve_run(tfm_decoder *decoder, int64_t rows, int64_t length, int64_t fresh, int64_t kept,
                              int64_t together, tfm_error *error) {
  fresh = least_of(fresh, length);
  decoder_set_symbols(decoder, rows, length - fresh, fresh, greatest_of(1, least_of(kept, fresh)));
  return context_reserve_symbols(decoder->step, decoder->symbols, together, error);
}

/* The longest row of at most max_length that the checks of the model allow: a longer one is refused when it is there. */
static tfm_status find_longest(tfm_decoder *decoder, tfm_error *error) {
  tfm_status status = reserve_run(decoder, 1, decoder->max_length, 1, 1, 1, error);
  decoder->longest = decoder->max_length;
  if (status != TFM_E_INPUT) return status;
  int64_t least = 0, most = decoder->max_length; /* `least` is allowed or 0, `most` isn't */
  while (most - least > 1) {
    int64_t middle = least + (most - least) / 2;
    tfm_status tried = reserve_run(decoder, 1, middle, 1, 1, 1, NULL);
    if (tried && tried != TFM_E_INPUT) return tried;
    if (tried) most = middle;
    else least = middle;
  }
  decoder->longest = least;
  return least ? TFM_OK : status;
}

/* No more runs than rows go together; for a cache that is the same tensor for all rows there is one place. */
static int64_t most_together(const tfm_decoder *decoder) {
  const tfm_decoding *decoding = decoder->decoding;
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (input_is_flat_cache(decoding, i) && decoding->inputs[i].batch_axis == TFM_NONE) return 1;
  return decoder_has_rows(decoder) ? least_of(MOST_TOGETHER, decoder->max_rows) : 1;
}

static tfm_status make_contexts(tfm_decoder *decoder, tfm_error *error) {
  decoder->most_together = most_together(decoder);
  decoder->step->spare_bytes = decoder->most_together > 1 ? decoder->most_together * ALIGNMENT : 0;
  for (int64_t i = 0; i < decoder->most_together - 1; i++) {
    if (!decoder->beside[i]) decoder->beside[i] = beside_create(decoder->step);
    if (!decoder->beside[i]) return no_memory(error, "the runs of rows of different lengths");
  }
  return TFM_OK;
}

/* Rows of a buffer grow with rows, new tokens, or both; their product is bounded, so the most is at an end. What does not grow
 * with them, each of several runs together has once. */
static tfm_status reserve_runs(tfm_decoder *decoder, tfm_error *error) {
  int64_t length = decoder->longest, rows = decoder_has_rows(decoder) ? decoder->max_rows : 1, n = decoder->most_together;
  tfm_status status = reserve_run(decoder, 1, length, RUN_TOKENS, greatest_of(LEAST_KEPT, rows), 1, error);
  if (!status) status = reserve_run(decoder, rows, length, decoder_chunk(rows), greatest_of(1, LEAST_KEPT / rows), 1, error);
  if (!status && n > 1) status = reserve_run(decoder, 1, length, decoder_chunk(n), 1, n, error);
  return status;
}

/* Bytes of all caches that are tensors of the longest row: those that a run of one row that ends there gives. */
static tfm_status measure_flat(tfm_decoder *decoder, tfm_error *error) {
  const tfm_decoding *decoding = decoder->decoding;
  decoder_set_symbols(decoder, 1, decoder->longest - 1, 1, 1);
  tfm_status status = context_set_shapes(decoder->step, decoder->symbols, error);
  Layout flat = {0};
  for (uint32_t i = 0; i < decoding->step->n_inputs && !status; i++) {
    if (!input_is_flat_cache(decoding, i)) continue;
    decoder->inputs[i].flat_offset = flat.bytes;
    layout_take(&flat, output_bytes(decoder->step, decoding->inputs[i].number), 1);
  }
  decoder->flat_bytes = flat.bytes;
  return status || flat.bytes >= 0 ? status : no_memory(error, "the longest row");
}

static int64_t input_bytes(const tfm_context *context, uint32_t input) {
  return tensor_bytes(&context->program->inputs[input], context->input_dims + (size_t)input * TFM_MAX_RANK);
}

/* Room for the tensors of the largest run: with the sizes that measure_flat set, times the rows. */
static void place_staging(tfm_decoder *decoder, Layout *layout) {
  const tfm_decoding *decoding = decoder->decoding;
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++) {
    if (i == decoding->tokens) continue;
    const tfm_step_input *info = &decoding->inputs[i];
    StepInput *state = &decoder->inputs[i];
    int64_t rows = info->batch_axis == TFM_NONE ? 1 : decoder->max_rows;
    state->staging_row = input_bytes(decoder->step, i);
    state->result_row = info->is_cache ? output_bytes(decoder->step, info->number) : 0;
    if (info->is_cache || info->batch_axis != TFM_NONE) state->staging = layout_take(layout, rows, state->staging_row);
    if (info->is_cache) state->result = layout_take(layout, rows, state->result_row);
  }
}

static tfm_status reserve_staging(tfm_decoder *decoder, tfm_error *error) {
  Layout layout = {0};
  place_staging(decoder, &layout);
  if (layout.bytes < 0 || !block_reserve(decoder, BLOCK_STAGING, layout.bytes))
    return no_memory(error, "the tensors of the rows");
  layout = (Layout){.block = decoder->blocks[BLOCK_STAGING].memory};
  place_staging(decoder, &layout);
  return TFM_OK;
}

/* --- Beginning ----------------------------------------------------------------------------------------------------- */

static tfm_status check_begin(const tfm_decoder *decoder, int64_t max_rows, int64_t max_length, tfm_error *error) {
  if (!decoder) return decoder_refuse(error, TFM_E_USAGE, "the decoder is a null pointer");
  if (max_rows < 0 || max_rows > TFM_DECODER_MOST || max_length < 1 || max_length > TFM_DECODER_MOST)
    return decoder_refuse(error, TFM_E_INPUT, "%lld rows of %lld tokens: there may be 0 and 1 to %d", (long long)max_rows,
                          (long long)max_length, TFM_DECODER_MOST);
  return TFM_OK;
}

tfm_status tfm_decoder_begin(tfm_decoder *decoder, const tfm_value *inputs, int64_t max_rows, int64_t max_length,
                             tfm_error *error) {
  tfm_status status = check_begin(decoder, max_rows, max_length, error);
  if (status) return status;
  decoder->begun = false;
  decoder->max_rows = max_rows ? max_rows : 1; /* memory is for at least one */
  decoder->max_length = max_length;
  if ((status = bind_source(decoder, inputs, error))) return status;
  if ((status = make_contexts(decoder, error))) return status;
  if ((status = find_longest(decoder, error))) return status;
  if ((status = reserve_runs(decoder, error))) return status;
  if ((status = measure_flat(decoder, error))) return status;
  if ((status = reserve_staging(decoder, error))) return status;
  if ((status = reserve_rows(decoder, error))) return status;
  place_item_pages(decoder);
  if ((status = run_source(decoder, inputs, error))) return status;
  decoder->begun = true;
  return tfm_succeed(error);
}
