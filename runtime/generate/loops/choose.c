/* tfm_choose: the next token of a row, for callers that have logits and write the loop themselves.
 *
 * In: the logits of one row, its tokens, the options. Out: a token, and the log of its probability among the logits as
 * given, with the likeliest tokens beside it. Refused: options out of their range, logits that are NaN or +inf, a row
 * of which every token is forbidden. A refusal leaves the row's stream as it was. tfm_generate chooses by the same
 * functions (row_apply_options, row_choose). */
#include "generate/loops/choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode/loops/logit_row.h"
#include "tfm/abi/double_functions.h"

// ---- the choice ----

/* Blocks whose bound is below the best so far are skipped; of equal scores the lowest token wins, whichever list it
 * comes from. */
int64_t row_best(const Chooser *chooser, const RowScores *row) {
  float most = -INFINITY;
  int64_t best = TFM_NO_TOKEN;
  for (int64_t i = 0; i < row->n_changed; i++) {
    const ChangedScore *c = &chooser->changed[i];
    if (c->score > most || (c->score == most && c->token < best)) most = c->score, best = c->token;
  }
  for (int64_t block = 0; block < row->n_blocks; block++) {
    const int64_t first = block * ROW_BLOCK;
    const int64_t end = first + ROW_BLOCK < chooser->vocab ? first + ROW_BLOCK : chooser->vocab;
    if (row->bounds[block] < most || (row->bounds[block] == most && first > best)) continue;
    for (int64_t i = first; i < end; i++)
      if (row->scores[i] > most || (row->scores[i] == most && i < best)) most = row->scores[i], best = i;
  }
  return best;
}

/* The log of the probability of a token among all that are allowed. */
static float log_probability(const Chooser *c, RowScores *row, int64_t token) {
  row_settle(c, row);
  const float most = row_max(row->bounds, row->n_blocks);
  return (float)((double)row->scores[token] - (double)most - double_log(row_exp_sum(row->scores, c->vocab, most)));
}

int64_t row_choose(Chooser *c, RowScores *row, tfm_stream *stream, float *score) {
  const int64_t token = row_best(c, row);
  if (token == TFM_NO_TOKEN) return token;
  if (c->options->do_sample) {
    sample_restrict(c, row);
    return sample_draw(c, row, stream, score);
  }
  if (c->options->return_token_scores) *score = log_probability(c, row, token);
  return token;
}

// ---- a chooser ----

tfm_status tfm_chooser_create(int64_t vocab, tfm_chooser **chooser, tfm_error *error) {
  if (!chooser) return tfm_refuse(error, TFM_E_USAGE, "there is no place for the chooser");
  *chooser = NULL;
  if (vocab < 1 || vocab > INT32_MAX)
    return tfm_refuse(error, TFM_E_INPUT, "a vocabulary of %lld tokens; it must have 1 to %d", (long long)vocab,
                      INT32_MAX);
  tfm_chooser *made = calloc(1, sizeof *made);
  if (!made) return tfm_no_memory(error, "a chooser");
  made->vocab = vocab;
  made->changed = calloc((size_t)vocab, sizeof *made->changed);
  made->stamps = calloc((size_t)vocab, sizeof *made->stamps);
  made->written = calloc((size_t)vocab, sizeof *made->written);
  made->heap = calloc((size_t)vocab, sizeof *made->heap);
  made->bounds = calloc((size_t)row_blocks(vocab), sizeof *made->bounds);
  made->given = calloc((size_t)vocab, sizeof *made->given);
  if (made->changed && made->stamps && made->written && made->heap && made->bounds && made->given) {
    *chooser = made;
    return tfm_succeed(error);
  }
  tfm_chooser_destroy(made);
  return tfm_no_memory(error, "a chooser");
}

void tfm_chooser_destroy(tfm_chooser *chooser) {
  if (!chooser) return;
  free(chooser->changed);
  free(chooser->stamps);
  free(chooser->written);
  free(chooser->heap);
  free(chooser->bounds);
  free(chooser->given);
  free(chooser);
}

// ---- the likeliest tokens ----

/* The log of the sum of exp(logits), of which at least one is above -inf. */
static double chooser_logsumexp(const Chooser *c, const float *logits) {
  const float most = row_max(c->bounds, row_blocks(c->vocab));
  return (double)most + double_log(row_exp_sum(logits, c->vocab, most));
}

/* The heap holds the best tokens so far, the worst of them as its root: of equal logits the higher token is worse.
 * Tokens come in ascending order, so an equal logit never replaces what is there. */
static int64_t collect_top(Chooser *c, const float *logits, int64_t wanted) {
  int64_t n = 0;
  for (int64_t token = 0; token < c->vocab; token++) {
    if (n == wanted && token % ROW_BLOCK == 0 && -(double)c->bounds[token / ROW_BLOCK] >= c->heap[0].key) {
      token += ROW_BLOCK - 1; /* nothing in this block is better */
      continue;
    }
    if (!(logits[token] > -INFINITY)) continue;
    const HeapEntry entry = {-(double)logits[token], token};
    if (n < wanted) {
      c->heap[n++] = entry;
      if (n == wanted) heap_order(c->heap, n);
    } else if (heap_is_before(c->heap[0], entry)) {
      c->heap[0] = entry;
      heap_sink(c->heap, n, 0);
    }
  }
  if (n < wanted) heap_order(c->heap, n);
  return n;
}

/* The worst comes out of the heap first, so the list is filled from its end. */
static void find_top(Chooser *c, const tfm_choice_row *row, double sum) {
  const int64_t wanted = row->n_top < c->vocab ? row->n_top : c->vocab;
  int64_t n = wanted ? collect_top(c, row->logits, wanted) : 0;
  for (int64_t i = n; i < row->n_top; i++) row->top[i] = (tfm_best_token){-INFINITY, TFM_NO_TOKEN};
  for (; n; n--) {
    const HeapEntry worst = heap_pop(c->heap, n);
    row->top[n - 1] = (tfm_best_token){(float)(-worst.key - sum), (int32_t)worst.id};
  }
}

// ---- tokens that the caller allows ----

static bool is_allowed(const tfm_choice_row *row, int64_t token) {
  return !row->allowed || row->allowed[token / 32] >> token % 32 & 1;
}

/* Forbids all others. A word whose tokens are all allowed costs one comparison. */
static void forbid_others(const Chooser *c, const tfm_choice_row *row) {
  if (!row->allowed) return;
  for (int64_t first = 0; first < c->vocab; first += 32) {
    if (row->allowed[first / 32] == UINT32_MAX) continue;
    for (int64_t i = first; i < c->vocab && i < first + 32; i++)
      if (!is_allowed(row, i)) row->logits[i] = -INFINITY;
  }
  row_scan(row->logits, c->vocab, c->bounds);
}

/* A token that an option forces, or a score that on_scores has written, does not make it allowed. */
static void forbid_others_again(const Chooser *c, const tfm_choice_row *row, RowScores *scores) {
  if (!row->allowed) return;
  if (c->options->on_scores) forbid_others(c, row);
  int64_t kept = 0;
  for (int64_t i = 0; i < scores->n_changed; i++)
    if (is_allowed(row, c->changed[i].token)) c->changed[kept++] = c->changed[i];
  scores->n_changed = kept;
}

// ---- the call ----

static tfm_status check_row(const tfm_chooser *chooser, const tfm_choice_row *row, const tfm_choice *choice,
                            tfm_error *error) {
  if (!chooser || !row || !choice)
    return tfm_refuse(error, TFM_E_USAGE, "the %s is a null pointer",
                      !chooser ? "chooser" : !row ? "row" : "choice");
  if (!row->logits) return tfm_refuse(error, TFM_E_USAGE, "the logits are a null pointer");
  if (!row->tokens && row->length) return tfm_refuse(error, TFM_E_USAGE, "the tokens are a null pointer");
  if (row->n_top > 0 && !row->top) return tfm_refuse(error, TFM_E_USAGE, "there is no place for the likeliest tokens");
  if (row->length < 0 || row->start < 0 || row->start > row->length)
    return tfm_refuse(error, TFM_E_INPUT, "a row of %lld tokens with a prompt of %lld", (long long)row->length,
                      (long long)row->start);
  if (row->padding < 0 || row->padding > row->start)
    return tfm_refuse(error, TFM_E_INPUT, "%lld tokens of padding in a prompt of %lld", (long long)row->padding,
                      (long long)row->start);
  if (row->n_top < -1) return tfm_refuse(error, TFM_E_INPUT, "%lld likeliest tokens are wanted", (long long)row->n_top);
  return TFM_OK;
}

/* What is wanted of the logits as they were given comes before anything overwrites them. */
static tfm_status take_logits(Chooser *c, const tfm_choice_row *row, double *sum) {
  const bool are_numbers = row_scan(row->logits, c->vocab, c->bounds);
  if (!are_numbers || !(row_max(c->bounds, row_blocks(c->vocab)) > -INFINITY))
    return tfm_refuse(c->error, TFM_E_INPUT, "the logits of token %lld are %s", (long long)row->length,
                      are_numbers ? "all -inf" : "not finite");
  if (row->n_top < 0) return TFM_OK;
  *sum = chooser_logsumexp(c, row->logits);
  find_top(c, row, *sum);
  return TFM_OK;
}

/* The logits as given are kept if the choice's probability among them is wanted: the options overwrite them. */
static tfm_status choose(Chooser *c, const tfm_choice_row *row, tfm_choice *choice) {
  const RowText text = {row->tokens, row->length, row->start, row->limit, row->padding, 0};
  RowScores scores = {.scores = row->logits, .bounds = c->bounds, .n_blocks = row_blocks(c->vocab)};
  double sum = 0;
  float score;
  tfm_status status = take_logits(c, row, &sum);
  if (status != TFM_OK) return status;
  if (row->n_top >= 0) memcpy(c->given, row->logits, (size_t)c->vocab * sizeof *c->given);
  forbid_others(c, row);
  if ((status = row_apply_options(c, &text, &scores)) != TFM_OK) return status;
  forbid_others_again(c, row, &scores);
  const int64_t token = row_choose(c, &scores, row->stream, &score);
  if (token == TFM_NO_TOKEN)
    return tfm_refuse(c->error, TFM_E_INPUT, "every token is forbidden as token %lld", (long long)row->length);
  *choice = (tfm_choice){(int32_t)token, row->n_top < 0 ? NAN : (float)((double)c->given[token] - sum)};
  return TFM_OK;
}

/* Beams and returned rows are not a chooser's. The options are copied and checked each time, which costs little beside
 * a look at the whole vocabulary, and a struct that was never checked does no harm. */
tfm_status tfm_choose(tfm_chooser *chooser, const tfm_choice_row *row, tfm_choice *choice, tfm_error *error) {
  tfm_status status = check_row(chooser, row, choice, error);
  if (status != TFM_OK) return status;
  tfm_generate_options options;
  if ((status = options_complete(row->options, chooser->vocab, true, &options, error)) != TFM_OK) return status;
  if (options.do_sample && !row->stream)
    return tfm_refuse(error, TFM_E_USAGE, "do_sample needs a stream of random numbers");
  chooser->options = &options;
  chooser->error = error;
  chooser->callers_mode = fp_mode_enter();
  status = choose(chooser, row, choice);
  fp_mode_leave(chooser->callers_mode);
  return status != TFM_OK ? status : tfm_succeed(error);
}
