/* Items whose sources have the same sizes: one run of the source program computes all of them.
 *
 * In: the inputs of the source program, and lengths of items whose sizes differ. Out: the groups; the inputs of some items
 * of a group, without what stands behind their sizes. Refused: lengths that do not lie within the inputs, and of sizes that
 * are the same for all items. */
#include <string.h>

#include "decoder.h"
#include "layout.h"

/* --- Groups -------------------------------------------------------------------------------------------------------- */

static uint32_t n_sizes(const tfm_decoder *decoder) { return decoder->source ? decoder->source->program->n_symbols : 0; }

static tfm_status check_lengths(const tfm_decoder *decoder, uint32_t symbol, const int64_t *lengths, tfm_error *error) {
  const char *name = decoder->source->program->symbols[symbol];
  const int64_t most = decoder->source->symbols[symbol];
  const uint8_t *ragged = decoder->decoding->ragged;
  if (!ragged || !ragged[symbol])
    return decoder_refuse(error, TFM_E_USAGE, "%s is not ragged: all items have the same", name);
  for (int64_t i = 0; i < decoder->items; i++)
    if (lengths[i] < 0 || lengths[i] > most)
      return decoder_refuse(error, TFM_E_INPUT, "'%s.lengths' has a length of %lld, but %s is %lld", name,
                            (long long)lengths[i], name, (long long)most);
  return TFM_OK;
}

static tfm_status read_sizes(tfm_decoder *decoder, const SourceInputs *inputs, tfm_error *error) {
  const tfm_decoding *decoding = decoder->decoding;
  decoder->items = 1;
  if (!decoder->source) return TFM_OK;
  tfm_status status = context_set_inputs(decoder->source, inputs->given, error);
  if (!status && decoding->source_rows != TFM_NONE) decoder->items = decoder->source->symbols[decoding->source_rows];
  for (uint32_t i = 0; i < n_sizes(decoder) && inputs->lengths && !status; i++)
    if (inputs->lengths[i]) status = check_lengths(decoder, i, inputs->lengths[i], error);
  return status;
}

/* Without lengths there is one group. */
static void place_groups(tfm_decoder *decoder, const SourceInputs *inputs, Layout *layout) {
  const int64_t most = inputs->lengths ? greatest_of(1, decoder->items) : 1, sizes = n_sizes(decoder);
  const int64_t step_inputs = decoder->decoding->step->n_inputs;
  int64_t *symbols;
  const char **kept;
#define ARRAY(place, count) ((place) = layout_take(layout, (count), sizeof *(place)))
  ARRAY(decoder->item, decoder->items);
  ARRAY(decoder->order, decoder->items);
  ARRAY(decoder->groups, most);
  ARRAY(symbols, most * sizes);
  ARRAY(kept, most * step_inputs);
#undef ARRAY
  for (int64_t i = 0; i < most && layout->block; i++)
    decoder->groups[i] = (SourceGroup){.symbols = symbols + i * sizes, .kept = kept + i * step_inputs};
}

static int64_t size_of_item(const tfm_decoder *decoder, const SourceInputs *inputs, uint32_t symbol, int64_t item) {
  const bool is_given = inputs->lengths && inputs->lengths[symbol] && item < decoder->items;
  return is_given ? inputs->lengths[symbol][item] : decoder->source->symbols[symbol];
}

/* The first group that the item fits, but for the number of its items; a new one if there is none. */
static int64_t group_for(tfm_decoder *decoder, const SourceInputs *inputs, int64_t item) {
  const uint32_t sizes = n_sizes(decoder);
  for (int64_t i = 0; i < decoder->n_groups; i++) {
    uint32_t symbol = 0;
    while (symbol < sizes && decoder->groups[i].symbols[symbol] == size_of_item(decoder, inputs, symbol, item)) symbol++;
    if (symbol == sizes) return i;
  }
  SourceGroup *group = &decoder->groups[decoder->n_groups];
  for (uint32_t i = 0; i < sizes; i++) group->symbols[i] = size_of_item(decoder, inputs, i, item);
  return decoder->n_groups++;
}

/* Without items there is a group nevertheless: sizes must be known. */
static void form_groups(tfm_decoder *decoder, const SourceInputs *inputs) {
  decoder->n_groups = 0;
  if (!decoder->items) group_for(decoder, inputs, 0);
  for (int64_t i = 0; i < decoder->items; i++) {
    const int64_t group = inputs->lengths ? group_for(decoder, inputs, i) : 0;
    if (!decoder->n_groups) group_for(decoder, inputs, i);
    decoder->item[i] = (SourceItem){.group = group, .place = decoder->groups[group].n++};
  }
  int64_t first = 0;
  for (SourceGroup *group = decoder->groups; group < decoder->groups + decoder->n_groups; first += group++->n) {
    group->first = first;
    if (decoder->decoding->source_rows != TFM_NONE && decoder->source)
      group->symbols[decoder->decoding->source_rows] = group->n;
  }
  for (int64_t i = 0; i < decoder->items; i++)
    decoder->order[decoder->groups[decoder->item[i].group].first + decoder->item[i].place] = i;
}

tfm_status groups_make(tfm_decoder *decoder, const SourceInputs *inputs, tfm_error *error) {
  tfm_status status = read_sizes(decoder, inputs, error);
  if (status) return status;
  Layout layout = {0};
  place_groups(decoder, inputs, &layout);
  if (layout.bytes < 0 || !decoder_reserve_block(decoder, BLOCK_ITEMS, layout.bytes))
    return decoder_refuse(error, TFM_E_NOMEM, "no memory for %lld sources", (long long)decoder->items);
  layout = (Layout){.block = decoder->blocks[BLOCK_ITEMS].memory};
  place_groups(decoder, inputs, &layout);
  form_groups(decoder, inputs);
  return TFM_OK;
}

/* --- Inputs -------------------------------------------------------------------------------------------------------- */

/* Of models with ragged sizes the first axis of an input is that of the items, or it has no such axis. */
static bool has_items(const tfm_decoder *decoder, uint32_t input) {
  const tfm_tensor_info *info = &decoder->source->program->inputs[input];
  return info->rank && decoder->source->value_symbols[info->dims[0]] & symbol_bit(decoder->decoding->source_rows);
}

/* Bytes behind each index of the axes before these. */
static int64_t bytes_within(const int64_t *dims, uint32_t rank, int64_t bytes) {
  for (uint32_t i = 0; i < rank; i++) bytes *= dims[i];
  return bytes;
}

/* What lies in `from` within the first to_dims[i] of each axis. */
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

static tfm_status gather_items(const tfm_value *whole, const tfm_value *part, const int64_t *items, tfm_error *error) {
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

int64_t groups_room(const tfm_decoder *decoder, const SourceInputs *inputs) {
  int64_t bytes = 0;
  for (uint32_t i = 0; inputs->lengths && i < decoder->source->program->n_inputs; i++)
    if (has_items(decoder, i))
      bytes += round_up(bytes_within(inputs->given[i].dims, (uint32_t)inputs->given[i].rank,
                                     dtype_size((uint8_t)inputs->given[i].dtype)),
                        ALIGNMENT);
  return bytes;
}

tfm_status groups_gather(const tfm_decoder *decoder, const SourceInputs *inputs, char *room, const int64_t *items,
                         tfm_error *error) {
  tfm_context *source = decoder->source;
  tfm_status status = TFM_OK;
  for (uint32_t i = 0; i < source->program->n_inputs && !status; i++) {
    const tfm_value *whole = &inputs->given[i];
    tfm_value *part = &source->given[i];
    *part = *whole;
    part->dims = source->input_dims + (size_t)i * TFM_MAX_RANK;
    if (!inputs->lengths || !has_items(decoder, i)) continue;
    part->data = room;
    if ((status = gather_items(whole, part, items, error))) return status;
    room += round_up(bytes_within(part->dims, (uint32_t)part->rank, dtype_size((uint8_t)part->dtype)), ALIGNMENT);
  }
  return status;
}
