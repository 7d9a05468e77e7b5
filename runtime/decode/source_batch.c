/* A batch of sources: what the encoder program computes once for each of its items.
 *
 * In: the inputs of the encoder program, and lengths of the items where their sizes differ. Items whose sources have
 * the same sizes form a group; one run of the encoder program computes a whole group. Out: tensors that the steps read,
 * and keys and values in the pages of each item. Refused: lengths that do not lie within the inputs, sizes beyond the
 * limits of the decoder, and whatever the model refuses of an item alone. All is found before anything is computed,
 * except for faults of the computation itself. */
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "context/binding.h"
#include "decode/decoder_memory.h"
#include "decode/sources.h"
#include "walk/walk.h"

// ---- groups of items ----

/* Lengths of one size, for all items: 0 to what the inputs have. */
static tfm_status check_lengths(const tfm_decoder *decoder, uint32_t symbol, const int64_t *lengths, int64_t n,
                                tfm_error *error) {
  const char *name = decoder->source->program->symbols[symbol];
  const int64_t most = decoder->source->binding.symbols[symbol];
  const uint8_t *ragged = decoder->decoding->ragged;
  if (!ragged || !ragged[symbol])
    return tfm_refuse(error, TFM_E_USAGE, "%s is not ragged: all items have the same", name);
  for (int64_t i = 0; i < n; i++)
    if (lengths[i] < 0 || lengths[i] > most)
      return tfm_refuse(error, TFM_E_INPUT, "'%s.lengths' has a length of %lld, but %s is %lld", name,
                            (long long)lengths[i], name, (long long)most);
  return TFM_OK;
}

/* Sizes of the inputs that go beyond the limits; what counts the items is no limit. */
static tfm_status check_limits(const tfm_decoder *decoder, tfm_error *error) {
  const int64_t *most = decoder->sources.sizes, *sizes = decoder->source->binding.symbols;
  for (uint32_t i = 0; i < source_sizes(decoder) && decoder->sources.limits; i++)
    if (i != decoder->decoding->encoder_rows && sizes[i] > most[i])
      return tfm_refuse(error, TFM_E_INPUT, "%s is %lld; the decoder was opened for %lld at most",
                        decoder->source->program->symbols[i], (long long)sizes[i], (long long)most[i]);
  return TFM_OK;
}

/* The sizes of the inputs as given, which bound the lengths of all items. */
static tfm_status read_sizes(tfm_decoder *decoder, const SourceInputs *inputs, int64_t *items, tfm_error *error) {
  const tfm_decoding *decoding = decoder->decoding;
  *items = 1;
  if (!decoder->source) return TFM_OK;
  tfm_status status = context_set_inputs(decoder->source, inputs->given, error);
  if (!status) status = check_limits(decoder, error);
  if (!status && decoding->encoder_rows != TFM_NONE)
    *items = decoder->source->binding.symbols[decoding->encoder_rows];
  for (uint32_t i = 0; i < source_sizes(decoder) && inputs->lengths && !status; i++)
    if (inputs->lengths[i]) status = check_lengths(decoder, i, inputs->lengths[i], *items, error);
  return status;
}

/* Without lengths there is one group, else at most one for each item. */
static void place_groups(const tfm_decoder *decoder, SourceBatch *batch, bool has_lengths, Layout *layout) {
  const int64_t most = has_lengths ? greatest_of(1, batch->n) : 1, sizes = source_sizes(decoder);
  const int64_t step_inputs = decoder->decoding->step->n_inputs;
  int64_t *symbols;
  const char **kept;
#define ARRAY(place, count) ((place) = layout_take(layout, (count), sizeof *(place)))
  ARRAY(batch->item, batch->n);
  ARRAY(batch->order, batch->n);
  ARRAY(batch->groups, most);
  ARRAY(symbols, most * sizes);
  ARRAY(kept, most * step_inputs);
#undef ARRAY
  for (int64_t i = 0; i < most && layout->block; i++)
    batch->groups[i] = (SourceGroup){.symbols = symbols + i * sizes, .kept = kept + i * step_inputs};
}

/* Its length, if it has one, else the size of the inputs. */
static int64_t size_of_item(const tfm_decoder *decoder, const SourceInputs *inputs, uint32_t symbol, int64_t item) {
  const bool is_given = inputs->lengths && inputs->lengths[symbol] && item >= 0;
  return is_given ? inputs->lengths[symbol][item] : decoder->source->binding.symbols[symbol];
}

/* The group whose sizes are those of the item (-1: of the inputs), but for the number of items; a new one if there is
 * none. */
static int64_t group_for(const tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs, int64_t item) {
  const uint32_t sizes = source_sizes(decoder);
  for (int64_t i = 0; i < batch->n_groups; i++) {
    uint32_t symbol = 0;
    while (symbol < sizes && batch->groups[i].symbols[symbol] == size_of_item(decoder, inputs, symbol, item))
      symbol++;
    if (symbol == sizes) return i;
  }
  SourceGroup *group = &batch->groups[batch->n_groups];
  for (uint32_t i = 0; i < sizes; i++) group->symbols[i] = size_of_item(decoder, inputs, i, item);
  return batch->n_groups++;
}

/* Numbers the items group by group. Without items there is still a group, because the sizes of a step must be known. */
static void form_groups(const tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs) {
  batch->n_groups = 0;
  if (!batch->n || !inputs->lengths) group_for(decoder, batch, inputs, -1);
  for (int64_t i = 0; i < batch->n; i++) {
    SourceGroup *group = &batch->groups[inputs->lengths ? group_for(decoder, batch, inputs, i) : 0];
    batch->item[i] = (SourceItem){.group = group, .place = group->n++};
  }
  int64_t first = 0;
  for (SourceGroup *group = batch->groups; group < batch->groups + batch->n_groups; first += group++->n) {
    group->first = first;
    if (decoder->decoding->encoder_rows != TFM_NONE && decoder->source)
      group->symbols[decoder->decoding->encoder_rows] = group->n;
  }
  for (int64_t i = 0; i < batch->n; i++) batch->order[batch->item[i].group->first + batch->item[i].place] = i;
}

/* Forms the groups. Only sizes are read, no contents. */
static tfm_status groups_make(tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs, tfm_error *error) {
  tfm_status status = read_sizes(decoder, inputs, &batch->n, error);
  if (status) return status;
  Layout layout = {0};
  place_groups(decoder, batch, inputs->lengths, &layout);
  if (layout.bytes < 0 || !decoder_reserve_block(decoder, &batch->tables, layout.bytes))
    return tfm_refuse(error, TFM_E_NOMEM, "no memory for %lld sources", (long long)batch->n);
  layout = (Layout){.block = batch->tables.memory};
  place_groups(decoder, batch, inputs->lengths, &layout);
  form_groups(decoder, batch, inputs);
  return TFM_OK;
}

// ---- inputs ----

/* Of models with ragged sizes the first axis of an input is that of the items, or it has no such axis. */
static bool has_items(const tfm_decoder *decoder, uint32_t input) {
  const tfm_tensor_info *info = &decoder->source->program->inputs[input];
  const uint64_t batch = symbol_bit(decoder->decoding->encoder_rows);
  return info->rank && decoder->source->binding.value_symbols[info->dims[0]] & batch;
}

/* Bytes behind each index of the axes before these. */
static int64_t bytes_within(const int64_t *dims, uint32_t rank, int64_t bytes) {
  for (uint32_t i = 0; i < rank; i++) bytes *= dims[i];
  return bytes;
}

/* Copies what lies within the first to_dims[i] of each axis of `from`. */
static void copy_beginning(char *to, const int64_t *to_dims, const char *from, const int64_t *from_dims, uint32_t rank,
                           int64_t bytes) {
  if (rank <= 1) {
    memcpy(to, from, (size_t)bytes_within(to_dims, rank, bytes));
    return;
  }
  const int64_t to_stride = bytes_within(to_dims + 1, rank - 1, bytes);
  const int64_t from_stride = bytes_within(from_dims + 1, rank - 1, bytes);
  for (int64_t i = 0; i < to_dims[0]; i++)
    copy_beginning(to + i * to_stride, to_dims + 1, from + i * from_stride, from_dims + 1, rank - 1, bytes);
}

/* The parts of these items, cut to the dims of `part`, one after the other. */
static tfm_status copy_items(const tfm_value *whole, const tfm_value *part, const int64_t *items, tfm_error *error) {
  const uint32_t rank = (uint32_t)whole->rank - 1;
  const int64_t element = dtype_size((uint8_t)whole->dtype);
  for (uint32_t i = 1; i <= rank; i++)
    if (part->dims[i] > whole->dims[i])
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL,
                      "the shape of an item does not lie within that of the batch");
  const int64_t bytes = bytes_within(part->dims + 1, rank, element);
  const int64_t whole_bytes = bytes_within(whole->dims + 1, rank, element);
  for (int64_t i = 0; i < part->dims[0] && bytes; i++)
    copy_beginning((char *)part->data + i * bytes, part->dims + 1, (const char *)whole->data + items[i] * whole_bytes,
                   whole->dims + 1, rank, element);
  return TFM_OK;
}

/* Bytes that groups_gather needs at most. */
static int64_t groups_room(const tfm_decoder *decoder, const SourceInputs *inputs) {
  int64_t bytes = 0;
  for (uint32_t i = 0; inputs->lengths && i < decoder->source->program->n_inputs; i++)
    if (has_items(decoder, i))
      bytes += round_up(bytes_within(inputs->given[i].dims, (uint32_t)inputs->given[i].rank,
                                     dtype_size((uint8_t)inputs->given[i].dtype)),
                        ALIGNMENT);
  return bytes;
}

/* Fills decoder->source->given with the inputs of these items, as many as the context is bound to. `room` takes those
 * that are put together; others are used where the caller has them. */
static tfm_status groups_gather(const tfm_decoder *decoder, const SourceInputs *inputs, char *room,
                                const int64_t *items, tfm_error *error) {
  tfm_context *source = decoder->source;
  tfm_status status = TFM_OK;
  for (uint32_t i = 0; i < source->program->n_inputs && !status; i++) {
    const tfm_value *whole = &inputs->given[i];
    tfm_value *part = &source->given[i];
    *part = *whole;
    part->dims = source->binding.input_dims + (size_t)i * TFM_MAX_RANK;
    if (!inputs->lengths || !has_items(decoder, i)) continue;
    part->data = room;
    if ((status = copy_items(whole, part, items, error))) return status;
    const int64_t bytes = bytes_within(part->dims, (uint32_t)part->rank, dtype_size((uint8_t)part->dtype));
    if (bytes) room += round_up(bytes, ALIGNMENT); /* without items there is no room: NULL */
  }
  return status;
}

// ---- where outputs go ----

/* Whether an output is copied into the pages of the items. */
static bool fills_pages(const tfm_decoding *decoding, uint32_t output) {
  for (uint32_t i = 0; i < decoding->step->n_caches; i++)
    if (decoding->step->caches[i].of_encoder && decoding->cache_encoded[i] == output) return true;
  return false;
}

/* Whether the step reads an output as a tensor, so that it must stay until the next begin. */
static bool is_kept(const tfm_decoding *decoding, uint32_t output) {
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (input_is_of_encoder(decoding, i) && decoding->inputs[i].number == output) return true;
  return false;
}

/* Addresses of the encoder program's outputs: those that stay are in one block, those that only fill pages in another,
 * which each group uses again. Others are not computed. */
static void place_outputs(tfm_decoder *decoder, Layout *kept, Layout *passing) {
  tfm_context *source = decoder->source;
  void **outputs = source->run.callers + source->program->n_inputs;
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
    if (!step->caches[i].of_encoder) continue;
    most = greatest_of(most,
                       decoder->source->binding.output_dims[decoder->decoding->cache_encoded[i] * TFM_MAX_RANK + 1]);
  }
  return most;
}

// ---- pages ----

/* Copies one cache's positions of one item, [positions][columns] of the output, into its pages. */
static void fill_item(const tfm_decoder *decoder, const tfm_cache *cache, const float *values, int64_t positions,
                      float *const *pages) {
  int64_t stride = cache->columns * (int64_t)sizeof(float);
  PageSlice slice = {.cache = cache,
                     .context = decoder->step,
                     .floats = decoder->decoding->step->encoder_page_floats};
  const bool is_int8 = cache->form == TFM_FORM_INT8;
  tfm_page_writer *const write = is_int8 ? decoder->decoding->step->drivers->write_int8 : page_write;
  for (int64_t first = 0; first < positions; first += TFM_CACHE_PAGE) {
    slice.page = pages[first / TFM_CACHE_PAGE];
    slice.n = least_of(TFM_CACHE_PAGE, positions - first);
    write(&slice, 0, cache->columns, (const char *)values + first * stride, stride, sizeof(float));
  }
}

/* All caches that come from the encoder, for all items of the group. */
static void fill_pages(const tfm_decoder *decoder, const SourceBatch *batch, const SourceGroup *group) {
  const tfm_program *step = decoder->decoding->step;
  const tfm_context *source = decoder->source;
  for (uint32_t i = 0; i < step->n_caches; i++) {
    const tfm_cache *cache = &step->caches[i];
    if (!cache->of_encoder) continue;
    uint32_t output = decoder->decoding->cache_encoded[i];
    int64_t positions = source->binding.output_dims[output * TFM_MAX_RANK + 1];
    const float *values = source->run.callers[source->program->n_inputs + output];
    for (int64_t place = 0; place < group->n; place++)
      fill_item(decoder, cache, positions ? values + place * positions * cache->columns : NULL, positions,
                batch->item[batch->order[group->first + place]].pages);
  }
}

/* Pages of items are not shared and never given back: a list is a row of addresses. Tails, and what no position fills,
 * are zero. */
static void place_pages(const tfm_decoder *decoder, SourceBatch *batch) {
  const int64_t floats = decoder->decoding->step->encoder_page_floats, bytes = cache_page_bytes(floats);
  char *page = batch->pages.memory;
  float **list = batch->lists;
  for (int64_t i = 0; i < batch->n; i++) {
    const int64_t pages = batch->item[i].group->pages;
    batch->item[i].pages = list;
    for (int64_t number = 1; number <= pages; number++, page += bytes) {
      *list++ = (float *)page;
      if (number == pages) memset(page, 0, (size_t)bytes);
      else page_tail((float *)page, floats)->has_infinite = 0;
    }
  }
}

// ---- runs ----

/* Some items of a group, as the encoder program gets them. */
typedef struct SourceRun {
  const SourceInputs *inputs;
  const SourceBatch *batch;
  const SourceGroup *group;
  const int64_t *items;
  int64_t n;
  char *room, *passing; /* for what is gathered; for outputs that only fill pages */
  bool is_real;         /* else it is only checked */
} SourceRun;

static tfm_status execute(tfm_decoder *decoder, const SourceRun *run, tfm_error *error) {
  tfm_context *source = decoder->source;
  Layout kept = {.block = run->batch->outputs.memory, .bytes = run->group->kept_offset};
  Layout passing = {.block = run->passing};
  place_outputs(decoder, &kept, &passing);
  for (uint32_t i = 0; i < source->program->n_inputs; i++) source->run.callers[i] = source->given[i].data;
  return run_steps(source, error);
}

/* Binds and gathers some items of a group, and runs them or only checks their ids. */
static tfm_status do_items(tfm_decoder *decoder, const SourceRun *run, tfm_error *error) {
  tfm_context *source = decoder->source;
  memcpy(source->asked, run->group->symbols, source->program->n_symbols * sizeof *source->asked);
  if (decoder->decoding->encoder_rows != TFM_NONE) source->asked[decoder->decoding->encoder_rows] = run->n;
  tfm_status status = context_bind_symbols(source, source->asked, error);
  if (!status) status = groups_gather(decoder, run->inputs, run->room, run->items, error);
  if (status) return status;
  return run->is_real ? execute(decoder, run, error) : ids_check_inputs(source, source->given, error);
}

/* A fault of several items is looked for in each of them alone, so that the message can name the item. */
static tfm_status do_group(tfm_decoder *decoder, SourceRun run, tfm_error *error) {
  run.items = run.batch->order + run.group->first;
  run.n = run.group->n;
  tfm_status status = do_items(decoder, &run, error);
  if (status != TFM_E_INPUT || !run.inputs->lengths) return status;
  for (run.n = 1; run.items < run.batch->order + run.group->first + run.group->n; run.items++) {
    const tfm_status alone = do_items(decoder, &run, error);
    if (alone) return decoder_name_item(alone, *run.items, error);
  }
  return status;
}

/* Adds up what the outputs of the group need. The context is bound to the sizes of the group. */
static void measure_source_group(tfm_decoder *decoder, SourceBatch *batch, SourceGroup *group, Layout *kept,
                                 Layout *passing) {
  Layout own = {0};
  group->pages = ceil_div(source_positions(decoder), TFM_CACHE_PAGE);
  group->kept_offset = kept->bytes;
  place_outputs(decoder, kept, &own);
  const bool fits = own.bytes >= 0 && passing->bytes >= 0;
  passing->bytes = fits ? greatest_of(passing->bytes, own.bytes) : -1;
  batch->n_pages += group->n * group->pages; /* each has a number of `kept` or `own`, which are counted */
}

/* Takes over the outputs that the encoder program has just computed for the group. */
static void take_group(const tfm_decoder *decoder, const SourceBatch *batch, SourceGroup *group) {
  const tfm_decoding *decoding = decoder->decoding;
  void *const *outputs = decoder->source->run.callers + decoder->source->program->n_inputs;
  fill_pages(decoder, batch, group);
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (input_is_of_encoder(decoding, i)) group->kept[i] = outputs[decoding->inputs[i].number];
}

/* Measures all groups, with `kept` and `passing` getting the bytes of their outputs. */
static tfm_status check_groups(tfm_decoder *decoder, SourceBatch *batch, SourceRun run, Layout *kept, Layout *passing,
                               tfm_error *error) {
  tfm_status status = TFM_OK;
  for (int64_t i = 0; i < batch->n_groups && !status; i++) {
    run.group = &batch->groups[i];
    status = do_group(decoder, run, error);
    if (!status) measure_source_group(decoder, batch, &batch->groups[i], kept, passing);
  }
  return status;
}

static tfm_status run_groups(tfm_decoder *decoder, const SourceBatch *batch, SourceRun run, tfm_error *error) {
  tfm_status status = TFM_OK;
  run_forget_cancelled(decoder->source);
  run.is_real = true;
  for (int64_t i = 0; i < batch->n_groups && !status; i++) {
    run.group = &batch->groups[i];
    status = do_group(decoder, run, error);
    if (!status) take_group(decoder, batch, &batch->groups[i]);
  }
  return status;
}

/* Room for what the encoder program gives, and for the lists of pages. */
static tfm_status reserve_batch(const tfm_decoder *decoder, SourceBatch *batch, int64_t kept, int64_t passing,
                                tfm_error *error) {
  int64_t pages;
  batch->passing_bytes = passing;
  if (kept < 0 || passing < 0 ||
      !size_product(&pages, batch->n_pages, cache_page_bytes(decoder->decoding->step->encoder_page_floats)) ||
      !decoder_reserve_block(decoder, &batch->outputs, kept) ||
      !decoder_reserve_block(decoder, &batch->pages, pages) ||
      !decoder_reserve_block(decoder, &batch->list_block, batch->n_pages * (int64_t)sizeof(float *)))
    return tfm_no_memory(error, "what the sources give");
  batch->lists = (float **)(void *)batch->list_block.memory;
  return TFM_OK;
}

/* Room for gathered inputs is needed twice, here and in batch_run, and is given back in between: it may be as large as
 * the inputs. */
tfm_status batch_bind(tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs, tfm_error *error) {
  batch->n_pages = batch->passing_bytes = 0;
  tfm_status status = groups_make(decoder, batch, inputs, error);
  if (status || !decoder->source) return status;
  Layout kept = {0}, passing = {0};
  int64_t bytes = groups_room(decoder, inputs);
  char *room = bytes ? allocate_room(&decoder->allocator, &bytes) : NULL;
  if (bytes && !room) return tfm_no_memory(error, "what the sources give");
  const SourceRun run = {.inputs = inputs, .batch = batch, .room = room};
  status = check_groups(decoder, batch, run, &kept, &passing, error);
  release_room(&decoder->allocator, room, bytes);
  return status ? status : reserve_batch(decoder, batch, kept.bytes, passing.bytes, error);
}

tfm_status batch_run(tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs, tfm_error *error) {
  if (!decoder->source) return TFM_OK;
  const int64_t gathered = groups_room(decoder, inputs);
  int64_t bytes = gathered + batch->passing_bytes;
  char *room = bytes ? allocate_room(&decoder->allocator, &bytes) : NULL;
  if (bytes && !room) return tfm_no_memory(error, "what the sources give");
  const SourceRun run = {
      .inputs = inputs, .batch = batch, .room = room, .passing = room ? room + gathered : NULL};
  place_pages(decoder, batch);
  const tfm_status status = run_groups(decoder, batch, run, error);
  release_room(&decoder->allocator, room, bytes);
  return status;
}
