/* A step: checks the call, makes room in the rows' pages, has it executed, and lets the rows have their new tokens only when
 * that has succeeded. */
#include "decoder.h"
#include "run.h"

/* --- Checks -------------------------------------------------------------------------------------------------------- */

/* A row that is longer than the model allows: its own check says so. */
static tfm_status refuse_length(tfm_decoder *decoder, const SourceGroup *group, int64_t length, tfm_error *error) {
  decoder_set_symbols(decoder, group, 1, length - 1, 1, 1);
  tfm_status status = context_set_shapes(decoder->step, decoder->symbols, error);
  return status ? status : decoder_refuse(error, TFM_E_INPUT, "a row of %lld tokens is too long", (long long)length);
}

static tfm_status check_part(tfm_decoder *decoder, const tfm_decoder_row *part, int64_t kept, tfm_error *error) {
  tfm_status status = decoder_check_row(decoder, part->row, error);
  if (status) return status;
  const DecoderRow *row = &decoder->rows[part->row];
  long long number = part->row;
  if (row->in_call) return decoder_refuse(error, TFM_E_INPUT, "row %lld is there twice", number);
  if (part->n_tokens < 1) return decoder_refuse(error, TFM_E_INPUT, "row %lld gets no tokens", number);
  if (!part->tokens) return decoder_refuse(error, TFM_E_USAGE, "the tokens of row %lld are a null pointer", number);
  if (kept > part->n_tokens)
    return decoder_refuse(error, TFM_E_INPUT, "row %lld gets %lld tokens: there are no scores after the last %lld", number,
                          (long long)part->n_tokens, (long long)kept);
  if (part->n_tokens > decoder->max_length - row->length)
    return decoder_refuse(error, TFM_E_INPUT, "row %lld has %lld tokens and gets %lld: there is room for %lld", number,
                          (long long)row->length, (long long)part->n_tokens, (long long)decoder->max_length);
  const SourceGroup *group = group_of_row(decoder, row);
  if (part->n_tokens > group->longest - row->length)
    return refuse_length(decoder, group, row->length + part->n_tokens, error);
  return TFM_OK;
}

static tfm_status check_call(tfm_decoder *decoder, const DecoderCall *call, tfm_error *error) {
  if (!decoder || !decoder->begun) return decoder_check_row(decoder, 0, error);
  if (call->n < 0 || call->kept < 0) return decoder_refuse(error, TFM_E_INPUT, "a number of rows or scores is negative");
  if (call->n && !call->rows) return decoder_refuse(error, TFM_E_USAGE, "the rows are a null pointer");
  if (call->log_sums && decoder->decoding->log_sum == TFM_NONE)
    return decoder_refuse(error, TFM_E_USAGE, "this model gives no sums of exponentials");
  tfm_status status = TFM_OK;
  int64_t checked = 0;
  for (; checked < call->n && !status; checked++) {
    status = check_part(decoder, &call->rows[checked], call->kept, error);
    if (!status) decoder->rows[call->rows[checked].row].in_call = true;
  }
  for (int64_t i = 0; i < checked; i++) {
    int64_t row = call->rows[i].row;
    if (row >= 0 && row < decoder->max_rows) decoder->rows[row].in_call = false;
  }
  return status;
}

/* --- Success and failure ------------------------------------------------------------------------------------------- */

static void drop(tfm_decoder *decoder, char *flat) {
  if (flat) page_drop(&decoder->flat_pages, flat);
}

static void finish_row(tfm_decoder *decoder, DecoderRow *row, int64_t n_tokens, bool succeeded) {
  if (succeeded) {
    row->length += n_tokens;
    if (row->next_flat) {
      drop(decoder, row->flat);
      row->flat = row->next_flat;
    }
  } else {
    drop(decoder, row->next_flat);
    page_list_cut(&decoder->own_pages, &row->own, row->length);
  }
  row->next_flat = NULL;
}

static tfm_status take_step(tfm_decoder *decoder, const DecoderCall *call, tfm_error *error) {
  tfm_status status = check_call(decoder, call, error);
  if (status) return status;
  if (decoder->own_pages.n_pages)
    for (int64_t i = 0; i < call->n; i++) {
      DecoderRow *row = decoder_row_of(decoder, call, i);
      page_list_extend(&decoder->own_pages, &row->own, row->length, row->length + call->rows[i].n_tokens);
    }
  run_forget_cancelled(decoder->step);
  status = decoder_run_call(decoder, call, error);
  for (int64_t i = 0; i < call->n; i++) finish_row(decoder, decoder_row_of(decoder, call, i), call->rows[i].n_tokens, !status);
  return status ? status : tfm_succeed(error);
}

tfm_status tfm_decoder_step(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, int64_t kept, float *scores,
                            float *log_sums, tfm_error *error) {
  const DecoderCall call = {.rows = rows, .n = n, .kept = kept, .scores = scores, .log_sums = log_sums};
  return take_step(decoder, &call, error);
}

tfm_status decoder_step_best(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, const tfm_best_call *best,
                             tfm_error *error) {
  const DecoderCall call = {.rows = rows, .n = n, .kept = 1, .best = best};
  return take_step(decoder, &call, error);
}
