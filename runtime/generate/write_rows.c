/* tfm_decoder_write: a step of many rows with guesses, the choices, and what was guessed wrongly taken back.
 *
 * In: rows with the tokens that they get, some of them guessed, and the options of each. Out: the tokens that follow.
 * The logits after a guess are those that the row has if the guess is what is chosen before it; so tokens are chosen
 * until one is not the guess, and what is in the decoder behind that is forgotten. Refused, before anything runs:
 * guesses that stand in the prompt, texts that do not end with what the step appends, rows that have their full length
 * already, choosers of another vocabulary. A choice that fails (tfm_choose) is an error of its row alone. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "decode/calls.h"
#include "decode/decoder_memory.h"
#include "generate/loops/choose.h"
#include "tfm/write.h"

// ---- checks ----

static tfm_status check_choosers(const tfm_decoder *decoder, tfm_chooser *const *choosers, tfm_error *error) {
  const int64_t vocab = decoder->decoding->vocab;
  if (!choosers) return tfm_refuse(error, TFM_E_USAGE, "the choosers are a null pointer");
  for (int32_t i = 0; i < tfm_decoder_threads(decoder); i++) {
    if (!choosers[i]) return tfm_refuse(error, TFM_E_USAGE, "the chooser of thread %d is a null pointer", (int)i);
    if (choosers[i]->vocab != vocab)
      return tfm_refuse(error, TFM_E_INPUT, "a chooser of %lld tokens: the model has %lld",
                        (long long)choosers[i]->vocab, (long long)vocab);
  }
  return TFM_OK;
}

/* The text that the choice sees must be what the decoder has. */
static tfm_status check_text(const tfm_decoder *decoder, const tfm_write_row *row, tfm_error *error) {
  const tfm_choice_row *choice = &row->choice;
  const long long number = row->part.row, fresh = row->part.n_tokens;
  const int64_t before = tfm_decoder_length(decoder, row->part.row);
  if (before < 0) return tfm_refuse(error, TFM_E_INPUT, "there is no row %lld", number);
  if (!row->part.tokens || !choice->tokens)
    return tfm_refuse(error, TFM_E_USAGE, "the tokens of row %lld are a null pointer", number);
  if (fresh < 1 || fresh > TFM_DECODER_MOST || choice->length != before + fresh)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld has %lld tokens and gets %lld: its text has %lld", number,
                      (long long)before, fresh, (long long)choice->length);
  if (memcmp(choice->tokens + before, row->part.tokens, (size_t)fresh * sizeof *choice->tokens) != 0)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld: its text does not end with the tokens that it gets", number);
  return TFM_OK;
}

static tfm_status check_written_row(const tfm_decoder *decoder, const tfm_write_row *row, tfm_error *error) {
  const long long number = row->part.row, guesses = row->n_guesses;
  if (guesses == -1) return TFM_OK; /* what else is wrong with its tokens is found by the step */
  if (guesses < 0 || guesses >= row->part.n_tokens)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld gets %lld tokens, of which %lld are guesses", number,
                      (long long)row->part.n_tokens, guesses);
  if (!row->chosen) return tfm_refuse(error, TFM_E_USAGE, "row %lld has no place for its choices", number);
  if (row->choice.options && row->choice.options->on_scores)
    return tfm_refuse(error, TFM_E_USAGE, "row %lld: a step of many rows does not call on_scores; tfm_choose does",
                      number);
  const tfm_status status = check_text(decoder, row, error);
  if (status) return status;
  const int64_t length = row->choice.length - row->n_guesses;
  if (row->choice.start > length)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld: there are guesses in its prompt of %lld tokens", number,
                      (long long)row->choice.start);
  if (row->choice.limit <= length)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld has %lld tokens, and its limit is %lld", number, (long long)length,
                      (long long)row->choice.limit);
  return TFM_OK;
}

// ---- the choices ----

typedef struct Choices {
  tfm_chooser *const *choosers;
  int32_t n_choosers;
  int64_t n, vocab;
  tfm_write_row *rows; /* choice.logits: the row's own */
  atomic_llong next;   /* the row that is looked at next */
} Choices;

/* Tokens of the row that are no guesses. */
static int64_t known_length(const tfm_write_row *row) { return row->choice.length - row->n_guesses; }

/* Whether nothing follows a token after which the row has so many. */
static bool ends(const tfm_choice_row *row, int32_t token, int64_t length) {
  if (length >= row->limit) return true;
  const tfm_token_list none = {0}, *eos = row->options ? &row->options->eos_token_ids : &none;
  for (uint64_t i = 0; i < eos->n; i++)
    if (eos->tokens[i] == token) return true;
  return false;
}

/* Choice number i of a row, whose i guesses before it were right. */
static tfm_status choose_written(tfm_chooser *chooser, const tfm_write_row *row, int64_t i, tfm_error *error) {
  tfm_choice_row at = row->choice;
  at.length = known_length(row) + i;
  at.logits += i * chooser->vocab;
  if (at.allowed) at.allowed += i * ceil_div(chooser->vocab, 32);
  if (at.n_top > 0 && at.top) at.top += i * at.n_top;
  return tfm_choose(chooser, &at, &row->chosen[i], error);
}

static void choose_row(tfm_chooser *chooser, tfm_write_row *row) {
  const int64_t known = known_length(row);
  bool is_right = true;
  for (int64_t i = 0; i <= row->n_guesses && is_right; i++) {
    tfm_error error;
    if ((row->status = choose_written(chooser, row, i, &error)) != TFM_OK) {
      snprintf(row->message, sizeof row->message, "%.*s", (int)sizeof row->message - 1, error.message);
      return;
    }
    const int32_t token = row->chosen[i].token;
    row->n_chosen = i + 1;
    is_right = i < row->n_guesses && token == row->choice.tokens[known + i] &&
               !ends(&row->choice, token, known + i + 1);
  }
}

/* Any thread takes any row: what is chosen does not depend on the chooser. */
static void choose_some(void *context, int64_t part, int64_t parts) {
  Choices *choices = context;
  (void)parts;
  if (part >= choices->n_choosers) return;
  for (int64_t i; (i = atomic_fetch_add(&choices->next, 1)) < choices->n;)
    if (choices->rows[i].n_guesses >= 0) choose_row(choices->choosers[part], &choices->rows[i]);
}

/* One row is not worth waking threads for. */
static void choose_all(tfm_decoder *decoder, Choices *choices, int64_t choosing) {
  const tfm_generate_model model = tfm_decoder_model(decoder);
  if (choosing > 1) model.share(model.user, choose_some, choices);
  else choose_some(choices, 0, 1);
}

/* The last chosen token is not in the decoder; after a failed choice it is the last right guess, which is. A row with
 * states cannot be cut within its last step: it returns to before it, and the next step reads right tokens again. */
static void take_back(tfm_decoder *decoder, tfm_write_row *row) {
  const int64_t right = known_length(row) + row->n_chosen - (row->status == TFM_OK);
  const int64_t length = tfm_decoder_keeps(decoder, row->part.row, right);
  tfm_error error;
  if (length == tfm_decoder_length(decoder, row->part.row)) return;
  const tfm_status status = tfm_decoder_truncate(decoder, row->part.row, length, &error);
  if (status == TFM_OK) return;
  row->status = status;
  snprintf(row->message, sizeof row->message, "%.*s", (int)sizeof row->message - 1, error.message);
}

// ---- the call ----

static tfm_status check_writing(const tfm_decoder *decoder, tfm_chooser *const *choosers, int64_t n,
                                const tfm_write_row *rows, tfm_error *error) {
  tfm_status status = decoder_check_begun(decoder, error);
  if (!status) status = check_choosers(decoder, choosers, error);
  if (status) return status;
  if (n < 0) return tfm_refuse(error, TFM_E_INPUT, "a number of rows is negative");
  if (n && !rows) return tfm_refuse(error, TFM_E_USAGE, "the rows are a null pointer");
  for (int64_t i = 0; i < n && !status; i++) status = check_written_row(decoder, &rows[i], error);
  return status;
}

/* Every row gets its place in the logits, and the results of a row that chooses nothing. Returns how many choose. */
static int64_t begin_rows(Choices *choices, float *logits) {
  int64_t choosing = 0;
  for (int64_t i = 0; i < choices->n; i++) {
    tfm_write_row *row = &choices->rows[i];
    row->n_chosen = 0;
    row->status = TFM_OK;
    row->message[0] = '\0';
    if (row->n_guesses < 0) continue;
    row->choice.logits = logits;
    logits += (row->n_guesses + 1) * choices->vocab;
    choosing++;
  }
  return choosing;
}

tfm_status tfm_decoder_write(tfm_decoder *decoder, tfm_chooser *const *choosers, int64_t n, tfm_write_row *rows,
                             tfm_error *error) {
  int64_t kept = 0;
  float *logits;
  tfm_status status = check_writing(decoder, choosers, n, rows, error);
  for (int64_t i = 0; i < n && !status; i++) kept += rows[i].n_guesses + 1;
  if (!status) status = calls_reserve_writing(decoder, n, kept, &logits, error);
  if (status) return status;
  for (int64_t i = 0; i < n; i++) {
    const int64_t wanted = rows[i].n_guesses + 1;
    calls_write_row(decoder, i, &rows[i].part, wanted ? wanted : -1);
  }
  status = tfm_decoder_step(decoder, n, decoder->calls.written, 1, logits, NULL, error);
  if (status) return status;
  Choices choices = {.choosers = choosers, .n_choosers = tfm_decoder_threads(decoder), .n = n,
                     .vocab = decoder->decoding->vocab, .rows = rows};
  choose_all(decoder, &choices, begin_rows(&choices, logits));
  for (int64_t i = 0; i < n; i++) {
    if (rows[i].n_guesses < 0) continue;
    rows[i].choice.logits = NULL;
    take_back(decoder, &rows[i]);
  }
  return tfm_succeed(error);
}
