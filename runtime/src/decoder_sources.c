/* The sources: runs the source program for each group of items, keeps what steps read, and puts keys and values into the
 * pages of the items.
 *
 * In: the inputs of the source program, groups of items. Out: tensors of each group, pages of each item. Refused: what the
 * model refuses of an item alone, which is found out before anything is computed, but for faults of the computation. */
#include <stdio.h>
#include <string.h>

#include "allocate.h"
#include "decoder.h"
#include "layout.h"
#include "run.h"

/* --- Where outputs go ---------------------------------------------------------------------------------------------- */

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
    if (is_kept(decoder->decoding, i)) outputs[i] = layout_take(kept, decoder_output_bytes(source, i), 1);
    else if (fills_pages(decoder->decoding, i)) outputs[i] = layout_take(passing, decoder_output_bytes(source, i), 1);
  }
}

/* Positions of the longest output that fills pages. */
static int64_t source_positions(const tfm_decoder *decoder) {
  const tfm_program *step = decoder->decoding->step;
  int64_t most = 0;
  for (uint32_t i = 0; i < step->n_caches; i++) {
    if (!step->caches[i].of_source) continue;
    most = greatest_of(most, decoder->source->output_dims[decoder->decoding->cache_sources[i] * TFM_MAX_RANK + 1]);
  }
  return most;
}

/* --- Pages --------------------------------------------------------------------------------------------------------- */

/* One cache's positions of one item: those of the output, [items][positions][columns]. */
static void fill_item(const tfm_decoder *decoder, const tfm_cache *cache, const float *values, int64_t positions,
                      float *const *pages) {
  int64_t stride = cache->columns * (int64_t)sizeof(float);
  PageSlice slice = {.cache = cache, .floats = decoder->decoding->step->source_page_floats};
  for (int64_t first = 0; first < positions; first += TFM_CACHE_PAGE) {
    slice.page = pages[first / TFM_CACHE_PAGE];
    slice.n = least_of(TFM_CACHE_PAGE, positions - first);
    page_write(&slice, 0, cache->columns, (const char *)values + first * stride, stride, sizeof(float));
  }
}

static void fill_pages(const tfm_decoder *decoder, const SourceGroup *group) {
  const tfm_program *step = decoder->decoding->step;
  const tfm_context *source = decoder->source;
  for (uint32_t i = 0; i < step->n_caches; i++) {
    const tfm_cache *cache = &step->caches[i];
    if (!cache->of_source) continue;
    uint32_t output = decoder->decoding->cache_sources[i];
    int64_t positions = source->output_dims[output * TFM_MAX_RANK + 1];
    const float *values = source->callers[source->program->n_inputs + output];
    for (int64_t place = 0; place < group->n; place++)
      fill_item(decoder, cache, values + place * positions * cache->columns, positions,
                decoder->item[decoder->order[group->first + place]].pages);
  }
}

/* Pages of items are not shared and never given back: a list is a row of addresses. Tails, and what no position fills, are
 * zero. */
void sources_place_pages(tfm_decoder *decoder) {
  const int64_t floats = decoder->decoding->step->source_page_floats, bytes = cache_page_bytes(floats);
  char *page = decoder->blocks[BLOCK_SOURCE].memory;
  float **list = decoder->item_pages;
  for (int64_t i = 0; i < decoder->items; i++) {
    const int64_t pages = decoder->groups[decoder->item[i].group].pages;
    decoder->item[i].pages = list;
    for (int64_t number = 1; number <= pages; number++, page += bytes) {
      *list++ = (float *)page;
      if (number == pages) memset(page, 0, (size_t)bytes);
      else page_tail((float *)page, floats)->has_infinite = 0;
    }
  }
}

/* --- Runs ---------------------------------------------------------------------------------------------------------- */

/* Some items of a group, as the source program gets them. */
typedef struct SourceRun {
  const SourceInputs *inputs;
  const SourceGroup *group;
  const int64_t *items;
  int64_t n;
  char *room, *passing; /* for what is gathered; for outputs that only fill pages */
  bool is_real;         /* else it is only checked */
} SourceRun;

static tfm_status execute(tfm_decoder *decoder, const SourceRun *run, tfm_error *error) {
  tfm_context *source = decoder->source;
  Layout kept = {.block = decoder->blocks[BLOCK_OUTPUTS].memory, .bytes = run->group->kept_offset};
  Layout passing = {.block = run->passing};
  place_outputs(decoder, &kept, &passing);
  for (uint32_t i = 0; i < source->program->n_inputs; i++) source->callers[i] = source->given[i].data;
  return run_steps(source, error);
}

static tfm_status do_items(tfm_decoder *decoder, const SourceRun *run, tfm_error *error) {
  tfm_context *source = decoder->source;
  memcpy(source->asked, run->group->symbols, source->program->n_symbols * sizeof *source->asked);
  if (decoder->decoding->source_rows != TFM_NONE) source->asked[decoder->decoding->source_rows] = run->n;
  tfm_status status = context_bind_symbols(source, source->asked, error);
  if (!status) status = groups_gather(decoder, run->inputs, run->room, run->items, error);
  if (status) return status;
  return run->is_real ? execute(decoder, run, error) : ids_check_inputs(source, source->given, error);
}

tfm_status decoder_name_item(tfm_status status, int64_t item, tfm_error *error) {
  if (!error) return status;
  char message[sizeof error->message];
  memcpy(message, error->message, sizeof message);
  const size_t head = (size_t)snprintf(error->message, sizeof message, "item %lld: ", (long long)item);
  snprintf(error->message + head, sizeof message - head, "%.*s", (int)(sizeof message - head - 1), message);
  return status;
}

/* What is refused of several items is refused of one of them alone, whose number is said. */
static tfm_status do_group(tfm_decoder *decoder, SourceRun run, tfm_error *error) {
  run.items = decoder->order + run.group->first;
  run.n = run.group->n;
  tfm_status status = do_items(decoder, &run, error);
  if (status != TFM_E_INPUT || !run.inputs->lengths) return status;
  for (run.n = 1; run.items < decoder->order + run.group->first + run.group->n; run.items++) {
    const tfm_status alone = do_items(decoder, &run, error);
    if (alone) return decoder_name_item(alone, *run.items, error);
  }
  return status;
}

/* The source is bound to the sizes of the group. */
static void measure_group(tfm_decoder *decoder, SourceGroup *group, Layout *kept, Layout *passing) {
  Layout own = {0};
  group->pages = ceil_div(source_positions(decoder), TFM_CACHE_PAGE);
  group->kept_offset = kept->bytes;
  place_outputs(decoder, kept, &own);
  const bool fits = own.bytes >= 0 && passing->bytes >= 0;
  passing->bytes = fits ? greatest_of(passing->bytes, own.bytes) : -1;
  decoder->n_item_pages += group->n * group->pages; /* each has a number of `kept` or `own`, which are counted */
}

/* The source has just computed the group. */
static void take_group(const tfm_decoder *decoder, SourceGroup *group) {
  const tfm_decoding *decoding = decoder->decoding;
  void *const *outputs = decoder->source->callers + decoder->source->program->n_inputs;
  fill_pages(decoder, group);
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (input_is_of_source(decoding, i)) group->kept[i] = outputs[decoding->inputs[i].number];
}

static tfm_status no_memory(tfm_error *error) {
  return decoder_refuse(error, TFM_E_NOMEM, "no memory for what the sources give");
}

/* Measures all groups, with `kept` and `passing` getting the bytes of their outputs. */
static tfm_status check_groups(tfm_decoder *decoder, SourceRun run, Layout *kept, Layout *passing, tfm_error *error) {
  tfm_status status = TFM_OK;
  for (int64_t i = 0; i < decoder->n_groups && !status; i++) {
    run.group = &decoder->groups[i];
    status = do_group(decoder, run, error);
    if (!status) measure_group(decoder, &decoder->groups[i], kept, passing);
  }
  return status;
}

static tfm_status run_groups(tfm_decoder *decoder, SourceRun run, tfm_error *error) {
  tfm_status status = TFM_OK;
  run_forget_cancelled(decoder->source);
  run.is_real = true;
  for (int64_t i = 0; i < decoder->n_groups && !status; i++) {
    run.group = &decoder->groups[i];
    status = do_group(decoder, run, error);
    if (!status) take_group(decoder, &decoder->groups[i]);
  }
  return status;
}

tfm_status sources_bind(tfm_decoder *decoder, const SourceInputs *inputs, tfm_error *error) {
  decoder->n_item_pages = decoder->passing_bytes = 0;
  tfm_status status = groups_make(decoder, inputs, error);
  if (status || !decoder->source) return status;
  Layout kept = {0}, passing = {0};
  int64_t bytes = groups_room(decoder, inputs), pages;
  char *room = bytes ? allocate_room(&decoder->allocator, &bytes) : NULL;
  if (bytes && !room) return no_memory(error);
  status = check_groups(decoder, (SourceRun){.inputs = inputs, .room = room}, &kept, &passing, error);
  release_room(&decoder->allocator, room, bytes);
  if (status) return status;
  decoder->passing_bytes = passing.bytes;
  if (kept.bytes < 0 || passing.bytes < 0 ||
      !size_product(&pages, decoder->n_item_pages, cache_page_bytes(decoder->decoding->step->source_page_floats)) ||
      !decoder_reserve_block(decoder, BLOCK_OUTPUTS, kept.bytes) || !decoder_reserve_block(decoder, BLOCK_SOURCE, pages))
    return no_memory(error);
  return TFM_OK;
}

tfm_status sources_run(tfm_decoder *decoder, const SourceInputs *inputs, tfm_error *error) {
  if (!decoder->source) return TFM_OK;
  const int64_t gathered = groups_room(decoder, inputs);
  int64_t bytes = gathered + decoder->passing_bytes;
  char *room = bytes ? allocate_room(&decoder->allocator, &bytes) : NULL;
  if (bytes && !room) return no_memory(error);
  const SourceRun run = {.inputs = inputs, .room = room, .passing = room ? room + gathered : NULL};
  const tfm_status status = run_groups(decoder, run, error);
  release_room(&decoder->allocator, room, bytes);
  return status;
}
