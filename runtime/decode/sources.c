/* The sources of a decoder: items that rows read, added in batches and dropped one by one while rows of others are
 * decoded.
 *
 * In: inputs of the encoder program, which source_batch.c computes. Out: items, by number. The memory of a batch whose
 * items are all dropped is kept for the next one. Refused: more items than there is room for; an item that does not
 * exist; an item that a row reads cannot be dropped. */
#include "decode/sources.h"

#include <string.h>

#include "base/allocate.h"
#include "decode/decoder_memory.h"
#include "decode/staging.h"

// ---- batches ----

static void destroy_batches(const tfm_decoder *decoder, SourceBatch *batch) {
  while (batch) {
    SourceBatch *next = batch->next;
    decoder_release_block(decoder, &batch->tables);
    decoder_release_block(decoder, &batch->list_block);
    decoder_release_block(decoder, &batch->pages);
    decoder_release_block(decoder, &batch->outputs);
    release(&decoder->allocator, batch, sizeof *batch);
    batch = next;
  }
}

void sources_destroy(tfm_decoder *decoder) {
  destroy_batches(decoder, decoder->sources.used);
  destroy_batches(decoder, decoder->sources.unused);
  decoder_release_block(decoder, &decoder->sources.block);
  decoder->sources.used = decoder->sources.unused = NULL;
}

static uint64_t bytes_of(const SourceBatch *batch) {
  int64_t bytes = 0;
  for (; batch; batch = batch->next)
    bytes += batch->tables.bytes + batch->list_block.bytes + batch->pages.bytes + batch->outputs.bytes;
  return (uint64_t)bytes;
}

uint64_t sources_bytes(const tfm_decoder *decoder) {
  const Sources *sources = &decoder->sources;
  return bytes_of(sources->used) + bytes_of(sources->unused) + (uint64_t)sources->block.bytes;
}

/* One that was used before, or a new one; NULL: no memory. */
static SourceBatch *take_batch(tfm_decoder *decoder) {
  SourceBatch *batch = decoder->sources.unused;
  if (batch) {
    decoder->sources.unused = batch->next;
    batch->next = NULL;
    return batch;
  }
  batch = allocate(&decoder->allocator, sizeof *batch, ALIGNMENT);
  if (batch) memset(batch, 0, sizeof *batch);
  return batch;
}

void sources_give_up(tfm_decoder *decoder, SourceBatch *batch) {
  batch->next = decoder->sources.unused;
  decoder->sources.unused = batch;
}

// ---- beginning ----

static void place(const tfm_decoder *decoder, Sources *sources, int64_t most, Layout *layout) {
  sources->item = layout_take(layout, most, sizeof *sources->item);
  sources->sizes = layout_take(layout, source_sizes(decoder), sizeof *sources->sizes);
}

tfm_status sources_make_room(tfm_decoder *decoder, int64_t most, tfm_error *error) {
  Sources *sources = &decoder->sources;
  Layout layout = {0};
  place(decoder, sources, most, &layout);
  if (layout.bytes < 0 || !decoder_reserve_block(decoder, &sources->block, layout.bytes))
    return tfm_refuse(error, TFM_E_NOMEM, "no memory for %lld sources", (long long)most);
  layout = (Layout){.block = sources->block.memory};
  place(decoder, sources, most, &layout);
  for (int64_t i = 0; i < most; i++) sources->item[i] = (SourceItem){0};
  sources->most = most;
  sources->limits = false;
  return TFM_OK;
}

/* Of the batches of before one is kept with its memory, which the next beginning mostly needs again. */
tfm_status sources_reserve(tfm_decoder *decoder, int64_t most, const int64_t *sizes, tfm_error *error) {
  Sources *sources = &decoder->sources;
  if (sources->used) {
    destroy_batches(decoder, sources->unused);
    sources->unused = sources->used;
    sources->used = NULL;
  }
  if (sources->unused) {
    destroy_batches(decoder, sources->unused->next);
    sources->unused->next = NULL;
  }
  sources->n = 0;
  const tfm_status status = sources_make_room(decoder, most, error);
  sources->limits = !status && sizes;
  if (sources->limits) memcpy(sources->sizes, sizes, source_sizes(decoder) * sizeof *sizes);
  return status;
}

tfm_status sources_bind(tfm_decoder *decoder, const SourceInputs *inputs, SourceBatch **batch, tfm_error *error) {
  *batch = take_batch(decoder);
  if (!*batch) return tfm_no_memory(error, "sources");
  const tfm_status status = batch_bind(decoder, *batch, inputs, error);
  if (status) sources_give_up(decoder, *batch);
  return status;
}

// ---- lengths of rows ----

/* The three parts depend on the longest row, which the first finds. */
static tfm_status measure_group(tfm_decoder *decoder, SourceGroup *group, int64_t length, bool is_added,
                                tfm_error *error) {
  tfm_status status = decoder_reserve_group(decoder, group, length, &group->longest, error);
  if (status) return status;
  return is_added ? staging_check(decoder, group, error) : staging_measure(decoder, group, error);
}

tfm_status sources_measure(tfm_decoder *decoder, SourceBatch *batch, const SourceMeasure *measure, int64_t *longest,
                           tfm_error *error) {
  *longest = 0;
  for (int64_t i = 0; i < batch->n_groups; i++) {
    SourceGroup *group = &batch->groups[i];
    const tfm_status status = measure_group(decoder, group, measure->length, measure->is_added, error);
    if (status && measure->are_ragged && group->n) return decoder_name_item(status, batch->order[group->first], error);
    if (status) return status;
    *longest = greatest_of(*longest, group->longest);
  }
  return TFM_OK;
}

/* Groups of the largest sizes, before there are any sources. */
tfm_status sources_measure_limits(tfm_decoder *decoder, int64_t length, int64_t *longest, tfm_error *error) {
  SourceGroup group = {.symbols = decoder->sources.sizes};
  tfm_status status = measure_group(decoder, &group, length, false, error);
  *longest = group.longest;
  return status;
}

// ---- items ----

/* The first of n numbers in a row that no item has; -1: there are none. */
static int64_t find_room(const Sources *sources, int64_t n) {
  for (int64_t first = 0; first + n <= sources->most; first++) {
    int64_t free = 0;
    while (free < n && !sources->item[first + free].group) free++;
    if (free == n) return first;
    first += free;
  }
  return -1;
}

tfm_status sources_check_room(const tfm_decoder *decoder, SourceBatch *batch, tfm_error *error) {
  const Sources *sources = &decoder->sources;
  batch->first = find_room(sources, batch->n);
  if (batch->first >= 0) return TFM_OK;
  return tfm_refuse(error, TFM_E_INPUT, "there is no room for %lld sources: there are %lld, and may be %lld",
                    (long long)batch->n, (long long)sources->n, (long long)sources->most);
}

tfm_status sources_run(tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs, tfm_error *error) {
  Sources *sources = &decoder->sources;
  tfm_status status = batch_run(decoder, batch, inputs, error);
  if (status) return status;
  for (int64_t i = 0; i < batch->n; i++) sources->item[batch->first + i] = batch->item[i];
  batch->left = batch->n;
  batch->next = sources->used;
  sources->used = batch;
  sources->n += batch->n;
  return TFM_OK;
}

/* An encoder program that does not count its sources has one, which all rows read. */
static bool is_counted(const tfm_decoder *decoder) {
  return decoder->source && decoder->decoding->encoder_rows != TFM_NONE;
}

tfm_status sources_find(const tfm_decoder *decoder, int64_t item, int64_t *found, tfm_error *error) {
  const Sources *sources = &decoder->sources;
  const int64_t number = is_counted(decoder) ? item : 0;
  if (item < 0 || number >= sources->most || !sources->item[number].group)
    return tfm_refuse(error, TFM_E_INPUT, "there is no item %lld: there are %lld", (long long)item,
                      (long long)sources->n);
  *found = number;
  return TFM_OK;
}

/* A batch that has lost its last item is nobody's. One without items stays as long as the decoder's sources do. */
void sources_drop(tfm_decoder *decoder, int64_t item) {
  Sources *sources = &decoder->sources;
  SourceBatch **place = &sources->used, *batch;
  while (item < (*place)->first || item >= (*place)->first + (*place)->n) place = &(*place)->next;
  batch = *place;
  sources->item[item] = (SourceItem){0};
  sources->n--;
  if (--batch->left) return;
  *place = batch->next;
  sources_give_up(decoder, batch);
}
