/* In: a checked call. Out: its scores, by runs of the step program.
 *
 * Rows of a run have the same number of positions, the same number of new tokens, and sources of the same sizes. Runs of few
 * tokens are executed together; the long beginnings of rows are cut into chunks, each a run of its own. Scores are written
 * where the caller wants them if the rows stand side by side there, else by way of the decoder's own memory. */
#include <string.h>

#include "decoder.h"

typedef struct Together { /* runs that will be executed together */
  const int64_t *members;
  int64_t rows, tokens, n;
  DecoderRun runs[MOST_TOGETHER];
} Together;

/* --- Tokens and scores --------------------------------------------------------------------------------------------- */

/* Whether these members' scores lie side by side. */
static bool side_by_side(const int64_t *members, int64_t n) {
  for (int64_t i = 1; i < n; i++)
    if (members[i] != members[0] + i) return false;
  return true;
}

/* Where the caller wants the scores after `number` of the last tokens of a member. */
static float *place_of(const DecoderCall *call, float *array, int64_t width, int64_t member, int64_t number) {
  return array ? array + (member * call->kept + number) * width : NULL;
}

/* The tokens of a run, from number `done` of each of its rows on. */
static void collect_tokens(tfm_decoder *decoder, const DecoderCall *call, const DecoderRun *run, int64_t done) {
  for (int64_t i = 0; i < run->rows; i++) {
    decoder->run_rows[run->first + i] = decoder_row_of(decoder, call, run->members[i]);
    memcpy(decoder->tokens + run->first_token + i * run->fresh, call->rows[run->members[i]].tokens + done,
           (size_t)run->fresh * sizeof *decoder->tokens);
  }
}

/* What the caller wants of a run whose scores begin `before` rows of scores into `scores` and `log_sums`. */
static void want(const DecoderCall *call, DecoderRun *run, float *scores, float *log_sums, int64_t before, int64_t vocab) {
  if (call->scores) run->scores = scores + before * vocab;
  if (call->log_sums) run->log_sums = log_sums + before;
  run->best = call->best;
}

static void spread(const DecoderCall *call, const int64_t *members, int64_t n, float *array, const float *from,
                   int64_t width) {
  if (!array) return;
  for (int64_t i = 0; i < n; i++)
    memcpy(place_of(call, array, width, members[i], 0), from + i * call->kept * width,
           (size_t)(call->kept * width) * sizeof *from);
}

/* Executes runs that give the scores after the last call->kept tokens of their rows. */
static tfm_status run_with_scores(tfm_decoder *decoder, const DecoderCall *call, Together *together, tfm_error *error) {
  const int64_t *members = together->members, vocab = decoder->decoding->vocab;
  bool direct = side_by_side(members, together->rows);
  float *scores = direct ? place_of(call, call->scores, vocab, members[0], 0) : decoder->scores;
  float *log_sums = direct ? place_of(call, call->log_sums, 1, members[0], 0) : decoder->log_sums;
  for (int64_t i = 0; i < together->n && call->kept; i++) {
    DecoderRun *run = &together->runs[i];
    want(call, run, scores, log_sums, run->first * call->kept, vocab);
  }
  tfm_status status = decoder_run(decoder, together->runs, together->n, error);
  if (status || direct || !call->kept) return status;
  spread(call, members, together->rows, call->scores, decoder->scores, vocab);
  spread(call, members, together->rows, call->log_sums, decoder->log_sums, 1);
  return TFM_OK;
}

/* --- Runs together ------------------------------------------------------------------------------------------------- */

static tfm_status run_together(tfm_decoder *decoder, const DecoderCall *call, Together *together, tfm_error *error) {
  if (!together->n) return TFM_OK;
  for (int64_t i = 0; i < together->n; i++) collect_tokens(decoder, call, &together->runs[i], 0);
  tfm_status status = run_with_scores(decoder, call, together, error);
  together->n = together->rows = together->tokens = 0;
  return status;
}

static bool has_room(const tfm_decoder *decoder, const DecoderCall *call, const Together *together, int64_t rows,
                     int64_t fresh) {
  if (!together->n) return true;
  return together->n < decoder->most_together && together->tokens + rows * fresh <= RUN_TOKENS &&
         (together->rows + rows) * call->kept <= decoder->max_rows;
}

/* A run of rows that get all their tokens at once. */
static void add_run(const tfm_decoder *decoder, const DecoderCall *call, Together *together, const int64_t *members,
                    int64_t rows) {
  const DecoderRow *row = decoder_row_of(decoder, call, members[0]);
  int64_t fresh = call->rows[members[0]].n_tokens;
  if (!together->n) together->members = members;
  together->runs[together->n++] = (DecoderRun){.group = group_of_row(decoder, row),
                                               .members = members,
                                               .rows = rows,
                                               .first = together->rows,
                                               .first_token = together->tokens,
                                               .past = row->length,
                                               .fresh = fresh,
                                               .kept = greatest_of(1, call->kept)};
  together->rows += rows;
  together->tokens += rows * fresh;
}

/* --- Long beginnings ----------------------------------------------------------------------------------------------- */

/* Tokens [done, done + fresh) of rows that all have the same number of them. Of several rows, all scores that are wanted
 * are of one chunk. */
static tfm_status run_chunk(tfm_decoder *decoder, const DecoderCall *call, const int64_t *members, int64_t n, int64_t done,
                            int64_t fresh, tfm_error *error) {
  const int64_t end = done + fresh, first = call->rows[*members].n_tokens - call->kept, vocab = decoder->decoding->vocab;
  const int64_t kept = greatest_of(0, end - greatest_of(done, first)), number = end - kept - first;
  Together chunk = {.members = members, .rows = n, .n = 1};
  const DecoderRow *row = decoder_row_of(decoder, call, *members);
  DecoderRun *run = &chunk.runs[0];
  *run = (DecoderRun){.group = group_of_row(decoder, row),
                      .members = members,
                      .rows = n,
                      .past = row->length + done,
                      .fresh = fresh,
                      .kept = greatest_of(1, kept)};
  collect_tokens(decoder, call, run, done);
  if (kept && kept == call->kept) return run_with_scores(decoder, call, &chunk, error);
  if (kept)
    want(call, run, place_of(call, call->scores, vocab, *members, number),
         place_of(call, call->log_sums, 1, *members, number), 0, vocab);
  return decoder_run(decoder, run, 1, error);
}

/* The first chunk is the shorter one, so that the last has all the scores. */
static tfm_status run_chunks(tfm_decoder *decoder, const DecoderCall *call, const int64_t *members, int64_t n,
                             tfm_error *error) {
  int64_t most = decoder_chunk(n), total = call->rows[members[0]].n_tokens, done = 0;
  tfm_status status = TFM_OK;
  for (int64_t fresh = (total - 1) % most + 1; done < total && !status; done += fresh, fresh = most)
    status = run_chunk(decoder, call, members, n, done, fresh, error);
  return status;
}

/* --- The call ------------------------------------------------------------------------------------------------------ */

static bool alike(const tfm_decoder *decoder, const DecoderCall *call, int64_t a, int64_t b) {
  const DecoderRow *row = decoder_row_of(decoder, call, a), *other = decoder_row_of(decoder, call, b);
  return row->length == other->length && call->rows[a].n_tokens == call->rows[b].n_tokens &&
         group_of_row(decoder, row) == group_of_row(decoder, other);
}

/* Puts the rows of the call into decoder->members, each followed by all that are like it. */
static void order_members(tfm_decoder *decoder, const DecoderCall *call) {
  int64_t n = 0;
  for (int64_t i = 0; i < call->n; i++) decoder->done[i] = 0;
  for (int64_t first = 0; first < call->n; first++) {
    if (decoder->done[first]) continue;
    for (int64_t i = first; i < call->n; i++) {
      if (decoder->done[i] || !alike(decoder, call, first, i)) continue;
      decoder->done[i] = 1;
      decoder->members[n++] = i;
    }
  }
}

/* How many members, from the first on, are one run: with several, its scores are all of one chunk. */
static int64_t run_size(const tfm_decoder *decoder, const DecoderCall *call, const int64_t *members, int64_t most) {
  if (!decoder_has_rows(decoder)) return 1;
  int64_t n = 1;
  while (n < most && alike(decoder, call, members[0], members[n])) n++;
  if (call->kept > 1 || call->best) n = greatest_of(1, least_of(n, RUN_TOKENS / call->kept));
  if (side_by_side(members, n) || call->kept == 0) return n;
  return greatest_of(1, least_of(n, decoder->max_rows / call->kept));
}

tfm_status decoder_run_call(tfm_decoder *decoder, const DecoderCall *call, tfm_error *error) {
  Together together = {.n = 0};
  tfm_status status = TFM_OK;
  order_members(decoder, call);
  for (int64_t first = 0, rows; first < call->n && !status; first += rows) {
    const int64_t *members = decoder->members + first;
    rows = run_size(decoder, call, members, call->n - first);
    const int64_t fresh = call->rows[members[0]].n_tokens;
    const bool is_long = fresh > decoder_chunk(rows);
    if (is_long || !has_room(decoder, call, &together, rows, fresh)) status = run_together(decoder, call, &together, error);
    if (status) return status;
    if (is_long) status = run_chunks(decoder, call, members, rows, error);
    else add_run(decoder, call, &together, members, rows);
  }
  return status ? status : run_together(decoder, call, &together, error);
}
