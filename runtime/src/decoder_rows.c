/* Rows: joining, leaving, copies of each other, forgetting. Refused: numbers of rows and items that do not exist, more rows
 * than there is room for. */
#include <string.h>

#include "decoder.h"

static tfm_status check_begun(const tfm_decoder *decoder, tfm_error *error) {
  if (!decoder) return decoder_refuse(error, TFM_E_USAGE, "the decoder is a null pointer");
  if (decoder->begun) return TFM_OK;
  return decoder_refuse(error, TFM_E_USAGE, "the decoder has not begun: tfm_decoder_begin comes first");
}

tfm_status decoder_check_row(const tfm_decoder *decoder, int64_t row, tfm_error *error) {
  tfm_status status = check_begun(decoder, error);
  if (status) return status;
  if (row >= 0 && row < decoder->max_rows && decoder->rows[row].exists) return TFM_OK;
  return decoder_refuse(error, TFM_E_INPUT, "there is no row %lld", (long long)row);
}

static void drop_flat(tfm_decoder *decoder, char **flat) {
  if (*flat) page_drop(&decoder->flat_pages, *flat);
  *flat = NULL;
}

static void forget_row(tfm_decoder *decoder, DecoderRow *row) {
  page_list_cut(&decoder->own_pages, &row->own, 0);
  drop_flat(decoder, &row->flat);
  row->exists = false;
  row->length = 0;
}

void decoder_forget_rows(tfm_decoder *decoder) {
  for (int64_t i = 0; i < decoder->max_rows; i++)
    if (decoder->rows[i].exists) forget_row(decoder, &decoder->rows[i]);
}

/* A source program that does not count sources has one, which all items share. */
static tfm_status read_item(const tfm_decoder *decoder, int64_t item, int64_t *read, tfm_error *error) {
  bool counted = decoder->source && decoder->decoding->source_rows != TFM_NONE;
  if (item < 0 || (counted && item >= decoder->items))
    return decoder_refuse(error, TFM_E_INPUT, "there is no item %lld: there are %lld", (long long)item,
                          (long long)decoder->items);
  *read = counted ? item : 0;
  return TFM_OK;
}

tfm_status tfm_decoder_join(tfm_decoder *decoder, int64_t item, int64_t *row, tfm_error *error) {
  tfm_status status = check_begun(decoder, error);
  if (!status && !row) status = decoder_refuse(error, TFM_E_USAGE, "there is no place for the row's number");
  if (!status) status = read_item(decoder, item, &item, error);
  if (status) return status;
  int64_t number = 0;
  while (number < decoder->max_rows && decoder->rows[number].exists) number++;
  if (number == decoder->max_rows)
    return decoder_refuse(error, TFM_E_INPUT, "there is room for %lld rows, and all are there",
                          (long long)decoder->max_rows);
  decoder->rows[number].exists = true;
  decoder->rows[number].item = item;
  decoder->rows[number].length = 0;
  *row = number;
  return tfm_succeed(error);
}

tfm_status tfm_decoder_leave(tfm_decoder *decoder, int64_t row, tfm_error *error) {
  tfm_status status = decoder_check_row(decoder, row, error);
  if (status) return status;
  forget_row(decoder, &decoder->rows[row]);
  return tfm_succeed(error);
}

/* --- Copies -------------------------------------------------------------------------------------------------------- */

static tfm_status check_parents(const tfm_decoder *decoder, int64_t n, const int64_t *parents, tfm_error *error) {
  tfm_status status = check_begun(decoder, error);
  if (status) return status;
  if (n < 0 || n > decoder->max_rows)
    return decoder_refuse(error, TFM_E_INPUT, "there is room for %lld rows, not for %lld",
                          (long long)decoder->max_rows, (long long)n);
  if (n && !parents) return decoder_refuse(error, TFM_E_USAGE, "the parents are a null pointer");
  for (int64_t i = 0; i < n && !status; i++) status = decoder_check_row(decoder, parents[i], error);
  return status;
}

static bool nothing_moves(const tfm_decoder *decoder, int64_t n, const int64_t *parents) {
  for (int64_t i = 0; i < n; i++)
    if (parents[i] != i) return false;
  for (int64_t i = n; i < decoder->max_rows; i++)
    if (decoder->rows[i].exists) return false;
  return true;
}

/* Copies refer to the pages of their parents; who writes first to a page that others have too gets a copy of it, so the
 * last child goes on with its parent's own. */
tfm_status tfm_decoder_reorder(tfm_decoder *decoder, int64_t n, const int64_t *parents, tfm_error *error) {
  tfm_status status = check_parents(decoder, n, parents, error);
  if (status) return status;
  if (nothing_moves(decoder, n, parents)) return tfm_succeed(error);
  for (int64_t i = 0; i < n; i++) {
    const DecoderRow *parent = &decoder->rows[parents[i]];
    DecoderRow *row = &decoder->spare[i];
    row->exists = true;
    row->item = parent->item;
    row->length = parent->length;
    row->flat = parent->flat;
    if (row->flat) page_keep(&decoder->flat_pages, row->flat);
    page_list_copy(&decoder->own_pages, &row->own, &parent->own);
  }
  decoder_forget_rows(decoder);
  DecoderRow *before = decoder->rows;
  decoder->rows = decoder->spare;
  decoder->spare = before;
  return tfm_succeed(error);
}

/* --- Forgetting ---------------------------------------------------------------------------------------------------- */

/* Of a cache that is a tensor with `past` positions, the first `length` are kept: [outer][past][inner] bytes. */
static void cut_flat(const tfm_decoder *decoder, uint32_t input, char *to, const char *from, int64_t past,
                     int64_t length) {
  const tfm_tensor_info *info = &decoder->decoding->step->inputs[input];
  const int64_t *dims = decoder->step->input_dims + (size_t)input * TFM_MAX_RANK;
  uint32_t axis = decoder->decoding->inputs[input].past_axis;
  int64_t outer = 1, inner = dtype_size(info->dtype);
  for (uint32_t i = 0; i < info->rank; i++) {
    int64_t dim = dims[i];
    if (i < axis) outer *= dim;
    if (i > axis) inner *= dim;
  }
  to += decoder->inputs[input].flat_offset;
  from += decoder->inputs[input].flat_offset;
  for (int64_t i = 0; i < outer; i++) memmove(to + i * length * inner, from + i * past * inner, (size_t)(length * inner));
}

static tfm_status truncate_flat(tfm_decoder *decoder, DecoderRow *row, int64_t length, tfm_error *error) {
  decoder_set_symbols(decoder, group_of_row(decoder, row), 1, row->length, 1, 1);
  tfm_status status = context_set_symbols(decoder->step, decoder->symbols, error);
  if (status) return status;
  char *from = row->flat;
  bool shared = page_is_shared(&decoder->flat_pages, from);
  if (shared) row->flat = page_take(&decoder->flat_pages);
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++)
    if (input_is_flat_cache(decoder->decoding, i))
      cut_flat(decoder, i, row->flat, from, row->length, length);
  if (shared) page_drop(&decoder->flat_pages, from);
  return TFM_OK;
}

tfm_status tfm_decoder_truncate(tfm_decoder *decoder, int64_t number, int64_t length, tfm_error *error) {
  tfm_status status = decoder_check_row(decoder, number, error);
  if (status) return status;
  DecoderRow *row = &decoder->rows[number];
  if (length < 0 || length > row->length)
    return decoder_refuse(error, TFM_E_INPUT, "row %lld has %lld tokens, not %lld", (long long)number,
                          (long long)row->length, (long long)length);
  if (row->flat && length < row->length && (status = truncate_flat(decoder, row, length, error))) return status;
  row->length = length;
  page_list_cut(&decoder->own_pages, &row->own, length);
  return tfm_succeed(error);
}

int64_t tfm_decoder_length(const tfm_decoder *decoder, int64_t row) {
  return decoder_check_row(decoder, row, NULL) ? -1 : decoder->rows[row].length;
}
