/* The rows of tokens of a decoder: they join, are copied, are cut short, leave.
 *
 * In: numbers of rows and items. Out: rows, whose caches are in row_caches.c. Refused: rows and items that do not
 * exist, more rows than there is room for, a row that a call names twice. A refusal changes nothing. */
#include <string.h>

#include "base/allocate.h"
#include "decode/decoder_memory.h"
#include "decode/row_caches.h"
#include "decode/rows.h"
#include "decode/sources.h"

// ---- room ----

static void place_rows(Rows *rows, int64_t most, Layout *layout) {
  rows->row = layout_take(layout, most, sizeof *rows->row);
  rows->spare = layout_take(layout, most, sizeof *rows->spare);
}

tfm_status rows_reserve(tfm_decoder *decoder, int64_t most, int64_t length, tfm_error *error) {
  Rows *rows = &decoder->rows;
  Layout layout = {0};
  place_rows(rows, most, &layout);
  if (layout.bytes < 0 || !decoder_reserve_block(decoder, &rows->block, layout.bytes))
    return tfm_no_memory(error, "the rows of a decoder");
  layout = (Layout){.block = rows->block.memory};
  place_rows(rows, most, &layout);
  rows->most = most;
  rows->length = length;
  return TFM_OK;
}

void rows_place(tfm_decoder *decoder, float **lists) {
  Rows *rows = &decoder->rows;
  const int64_t pages = decoder->caches.pages_per_row;
  for (int64_t i = 0; i < rows->most; i++) {
    rows->row[i] = (DecoderRow){.own.pages = lists + i * pages};
    rows->spare[i] = (DecoderRow){.own.pages = lists + (rows->most + i) * pages};
  }
}

// ---- checks ----

tfm_status rows_check(const tfm_decoder *decoder, int64_t row, tfm_error *error) {
  tfm_status status = decoder_check_begun(decoder, error);
  if (status) return status;
  if (row >= 0 && row < decoder->rows.most && decoder->rows.row[row].exists) return TFM_OK;
  return tfm_refuse(error, TFM_E_INPUT, "there is no row %lld", (long long)row);
}

bool rows_read_item(const tfm_decoder *decoder, int64_t item) {
  for (int64_t i = 0; i < decoder->rows.most; i++)
    if (decoder->rows.row[i].exists && decoder->rows.row[i].item == item) return true;
  return false;
}

/* The first number that no row has. */
static tfm_status find_row_room(const tfm_decoder *decoder, int64_t *row, tfm_error *error) {
  if (!row) return tfm_refuse(error, TFM_E_USAGE, "there is no place for the row's number");
  int64_t number = 0;
  while (number < decoder->rows.most && decoder->rows.row[number].exists) number++;
  if (number == decoder->rows.most)
    return tfm_refuse(error, TFM_E_INPUT, "there is room for %lld rows, and all are there",
                      (long long)decoder->rows.most);
  *row = number;
  return TFM_OK;
}

/* in_call marks rows that were seen, so that a row which is named twice is found; all marks are cleared again. */
tfm_status rows_check_call(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *parts, tfm_error *error) {
  tfm_status status = TFM_OK;
  int64_t checked = 0;
  for (; checked < n && !status; checked++) {
    const int64_t number = parts[checked].row;
    if ((status = rows_check(decoder, number, error))) break;
    DecoderRow *row = &decoder->rows.row[number];
    if (row->in_call) status = tfm_refuse(error, TFM_E_INPUT, "row %lld is there twice", (long long)number);
    row->in_call = true;
  }
  for (int64_t i = 0; i < checked; i++) decoder->rows.row[parts[i].row].in_call = false;
  return status;
}

// ---- joining and leaving ----

static void forget(tfm_decoder *decoder, DecoderRow *row) {
  caches_cut_row(decoder, row, 0, NULL);
  row->exists = false;
  row->length = 0;
}

void rows_forget(tfm_decoder *decoder) {
  for (int64_t i = 0; i < decoder->rows.most; i++)
    if (decoder->rows.row[i].exists) forget(decoder, &decoder->rows.row[i]);
}

tfm_status tfm_decoder_join(tfm_decoder *decoder, int64_t item, int64_t *row, tfm_error *error) {
  tfm_status status = decoder_check_begun(decoder, error);
  int64_t number;
  if (!status) status = sources_find(decoder, item, &item, error);
  if (!status) status = find_row_room(decoder, row ? &number : NULL, error);
  if (status) return status;
  decoder->rows.row[number].exists = true;
  decoder->rows.row[number].item = item;
  decoder->rows.row[number].length = 0;
  *row = number;
  return tfm_succeed(error);
}

tfm_status tfm_decoder_leave(tfm_decoder *decoder, int64_t row, tfm_error *error) {
  tfm_status status = rows_check(decoder, row, error);
  if (status) return status;
  forget(decoder, &decoder->rows.row[row]);
  return tfm_succeed(error);
}

void rows_finish(tfm_decoder *decoder, DecoderRow *row, int64_t n_tokens, bool succeeded) {
  caches_finish_row(decoder, row, succeeded);
  if (succeeded) row->length += n_tokens;
}

// ---- copies ----

static tfm_status check_parents(const tfm_decoder *decoder, int64_t n, const int64_t *parents, tfm_error *error) {
  tfm_status status = decoder_check_begun(decoder, error);
  if (status) return status;
  if (n < 0 || n > decoder->rows.most)
    return tfm_refuse(error, TFM_E_INPUT, "there is room for %lld rows, not for %lld", (long long)decoder->rows.most,
                      (long long)n);
  if (n && !parents) return tfm_refuse(error, TFM_E_USAGE, "the parents are a null pointer");
  for (int64_t i = 0; i < n && !status; i++) status = rows_check(decoder, parents[i], error);
  return status;
}

/* Whether the rows stay as they are: usual in greedy decoding, and worth no copies. */
static bool nothing_moves(const tfm_decoder *decoder, int64_t n, const int64_t *parents) {
  for (int64_t i = 0; i < n; i++)
    if (parents[i] != i) return false;
  for (int64_t i = n; i < decoder->rows.most; i++)
    if (decoder->rows.row[i].exists) return false;
  return true;
}

static void copy_row(tfm_decoder *decoder, DecoderRow *row, const DecoderRow *parent) {
  row->exists = true;
  row->item = parent->item;
  row->length = parent->length;
  caches_copy_row(decoder, row, parent);
}

tfm_status tfm_decoder_fork(tfm_decoder *decoder, int64_t row, int64_t *copy, tfm_error *error) {
  tfm_status status = rows_check(decoder, row, error);
  int64_t number;
  if (!status) status = find_row_room(decoder, copy ? &number : NULL, error);
  if (status) return status;
  copy_row(decoder, &decoder->rows.row[number], &decoder->rows.row[row]);
  *copy = number;
  return tfm_succeed(error);
}

tfm_status tfm_decoder_reorder(tfm_decoder *decoder, int64_t n, const int64_t *parents, tfm_error *error) {
  tfm_status status = check_parents(decoder, n, parents, error);
  if (status) return status;
  if (nothing_moves(decoder, n, parents)) return tfm_succeed(error);
  Rows *rows = &decoder->rows;
  for (int64_t i = 0; i < n; i++) copy_row(decoder, &rows->spare[i], &rows->row[parents[i]]);
  rows_forget(decoder);
  DecoderRow *before = rows->row;
  rows->row = rows->spare;
  rows->spare = before;
  return tfm_succeed(error);
}

// ---- cutting short ----

tfm_status tfm_decoder_truncate(tfm_decoder *decoder, int64_t number, int64_t length, tfm_error *error) {
  tfm_status status = rows_check(decoder, number, error);
  if (status) return status;
  DecoderRow *row = &decoder->rows.row[number];
  if (length < 0 || length > row->length)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld has %lld tokens, not %lld", (long long)number,
                      (long long)row->length, (long long)length);
  if ((status = caches_cut_row(decoder, row, length, error))) return status;
  row->length = length;
  return tfm_succeed(error);
}

int64_t tfm_decoder_keeps(const tfm_decoder *decoder, int64_t row, int64_t length) {
  if (length < 0 || rows_check(decoder, row, NULL)) return -1;
  return caches_keep(decoder, &decoder->rows.row[row], length);
}

int64_t tfm_decoder_length(const tfm_decoder *decoder, int64_t row) {
  return rows_check(decoder, row, NULL) ? -1 : decoder->rows.row[row].length;
}
