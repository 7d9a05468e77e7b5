/* A step: checks the call, makes room in the rows' pages, cuts the rows into runs, and lets the rows have their new tokens
 * only when all runs have succeeded.
 *
 * Rows of a run have the same number of positions and the same number of new tokens. Long beginnings are cut into chunks.
 * Scores are written where the caller wants them if the rows of the run stand side by side there, else by way of the
 * decoder's own memory. */
#include <string.h>

#include "decoder.h"

typedef struct Call {
  const tfm_decoder_row *rows;
  int64_t n, kept;
  float *scores, *log_sums;
  const BestCall *best; /* NULL, or in place of the scores and sums: kept is 1 */
} Call;

/* --- Checks -------------------------------------------------------------------------------------------------------- */

/* A row that is longer than the model allows: its own check says so. */
static tfm_status refuse_length(tfm_decoder *decoder, int64_t length, tfm_error *error) {
  decoder_set_symbols(decoder, 1, length - 1, 1, 1);
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
  if (part->n_tokens > decoder->longest - row->length)
    return refuse_length(decoder, row->length + part->n_tokens, error);
  return TFM_OK;
}

static tfm_status check_call(tfm_decoder *decoder, const Call *call, tfm_error *error) {
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

/* --- Runs ---------------------------------------------------------------------------------------------------------- */

static DecoderRow *row_of(const tfm_decoder *decoder, const Call *call, int64_t member) {
  return &decoder->rows[call->rows[member].row];
}

/* Whether these members' scores lie side by side. */
static bool side_by_side(const int64_t *members, int64_t n) { return members[n - 1] - members[0] == n - 1; }

/* Where the caller wants the scores after `number` of the last tokens of a member. */
static float *place_of(const Call *call, float *array, int64_t width, int64_t member, int64_t number) {
  return array ? array + (member * call->kept + number) * width : NULL;
}

/* One chunk of a batch: tokens [done, done + fresh) of `total` of each member. */
typedef struct Chunk {
  const int64_t *members;
  int64_t n, done, fresh, total;
} Chunk;

static void collect_tokens(tfm_decoder *decoder, const Call *call, const Chunk *chunk) {
  for (int64_t i = 0; i < chunk->n; i++) {
    decoder->run_rows[i] = row_of(decoder, call, chunk->members[i]);
    memcpy(decoder->tokens + i * chunk->fresh, call->rows[chunk->members[i]].tokens + chunk->done,
           (size_t)chunk->fresh * sizeof *decoder->tokens);
  }
}

static void spread(const Call *call, const Chunk *chunk, float *array, const float *from, int64_t width) {
  if (!array) return;
  for (int64_t i = 0; i < chunk->n; i++)
    memcpy(place_of(call, array, width, chunk->members[i], 0), from + i * call->kept * width,
           (size_t)(call->kept * width) * sizeof *from);
}

static tfm_status run_chunk(tfm_decoder *decoder, const Call *call, const Chunk *chunk, tfm_error *error) {
  int64_t vocab = decoder->decoding->vocab, end = chunk->done + chunk->fresh, first = chunk->total - call->kept;
  int64_t kept = greatest_of(0, end - greatest_of(chunk->done, first)), number = end - kept - first;
  DecoderRun run = {.rows = chunk->n,
                    .past = row_of(decoder, call, chunk->members[0])->length + chunk->done,
                    .fresh = chunk->fresh,
                    .kept = greatest_of(1, kept)};
  collect_tokens(decoder, call, chunk);
  bool direct = chunk->n == 1 || side_by_side(chunk->members, chunk->n);
  if (kept) {
    run.scores = direct ? place_of(call, call->scores, vocab, chunk->members[0], number) : decoder->scores;
    run.log_sums = direct ? place_of(call, call->log_sums, 1, chunk->members[0], number) : decoder->log_sums;
    if (!call->scores) run.scores = NULL;
    if (!call->log_sums) run.log_sums = NULL;
    run.best = call->best;
    run.members = chunk->members;
  }
  tfm_status status = decoder_run(decoder, &run, error);
  if (status || direct || !kept) return status;
  spread(call, chunk, call->scores, decoder->scores, vocab);
  spread(call, chunk, call->log_sums, decoder->log_sums, 1);
  return TFM_OK;
}

/* How many of the members go into one run: with several, its scores are all of one chunk. */
static int64_t batch_size(const tfm_decoder *decoder, const Call *call, const int64_t *members, int64_t n) {
  if (!decoder_has_rows(decoder)) return 1;
  if (call->kept > 1 || call->best) n = greatest_of(1, least_of(n, RUN_TOKENS / call->kept));
  if (side_by_side(members, n) || call->kept == 0) return n;
  return greatest_of(1, least_of(n, decoder->max_rows / call->kept));
}

/* The first chunk is the shorter one, so that the last has all the scores. */
static tfm_status run_batch(tfm_decoder *decoder, const Call *call, const int64_t *members, int64_t n,
                            tfm_error *error) {
  int64_t most = decoder_chunk(n), total = call->rows[members[0]].n_tokens;
  Chunk chunk = {.members = members, .n = n, .total = total, .fresh = (total - 1) % most + 1};
  tfm_status status = TFM_OK;
  while (chunk.done < total && !status) {
    status = run_chunk(decoder, call, &chunk, error);
    chunk.done += chunk.fresh;
    chunk.fresh = most;
  }
  return status;
}

static tfm_status run_group(tfm_decoder *decoder, const Call *call, int64_t n, tfm_error *error) {
  tfm_status status = TFM_OK;
  for (int64_t first = 0, size; first < n && !status; first += size) {
    const int64_t *members = decoder->members + first;
    size = batch_size(decoder, call, members, n - first);
    status = run_batch(decoder, call, members, size, error);
  }
  return status;
}

/* The rows from `first` on that are like it, in decoder->members. */
static int64_t collect_group(tfm_decoder *decoder, const Call *call, int64_t first) {
  int64_t n = 0, length = row_of(decoder, call, first)->length, n_tokens = call->rows[first].n_tokens;
  for (int64_t i = first; i < call->n; i++) {
    if (decoder->done[i] || row_of(decoder, call, i)->length != length || call->rows[i].n_tokens != n_tokens) continue;
    decoder->done[i] = 1;
    decoder->members[n++] = i;
  }
  return n;
}

static tfm_status run_all(tfm_decoder *decoder, const Call *call, tfm_error *error) {
  tfm_status status = TFM_OK;
  for (int64_t i = 0; i < call->n; i++) decoder->done[i] = 0;
  for (int64_t i = 0; i < call->n && !status; i++)
    if (!decoder->done[i]) status = run_group(decoder, call, collect_group(decoder, call, i), error);
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

static tfm_status take_step(tfm_decoder *decoder, const Call *call, tfm_error *error) {
  tfm_status status = check_call(decoder, call, error);
  if (status) return status;
  if (decoder->own_pages.n_pages)
    for (int64_t i = 0; i < call->n; i++) {
      DecoderRow *row = row_of(decoder, call, i);
      page_list_extend(&decoder->own_pages, &row->own, row->length, row->length + call->rows[i].n_tokens);
    }
  status = run_all(decoder, call, error);
  for (int64_t i = 0; i < call->n; i++) finish_row(decoder, row_of(decoder, call, i), call->rows[i].n_tokens, !status);
  return status ? status : tfm_succeed(error);
}

tfm_status tfm_decoder_step(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, int64_t kept, float *scores,
                            float *log_sums, tfm_error *error) {
  const Call call = {.rows = rows, .n = n, .kept = kept, .scores = scores, .log_sums = log_sums};
  return take_step(decoder, &call, error);
}

tfm_status decoder_step_best(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, const BestCall *best,
                             tfm_error *error) {
  const Call call = {.rows = rows, .n = n, .kept = 1, .best = best};
  return take_step(decoder, &call, error);
}
