/* What the options of generation do to the scores of one row.
 *
 * In: scores, complete options, the row's tokens. Out: the scores that a token is chosen from. They apply in the order
 * of transformers: penalties, repeated n-grams, least length, forced first and last token, suppressed tokens, the
 * caller's own function; biases, which transformers does not have, come before the penalties. In beam search the rest
 * are made log probabilities again if renormalize_logits says so. Else only the tokens concerned are touched: a
 * forbidden token becomes -inf where it stands; a token with another score becomes -inf too, and its new score goes to
 * the list of changed ones. Forbidding comes first, so that a forbidden token is never changed; the result does not
 * depend on that order, because -inf stays what it is. Refused: scores that on_scores has made NaN or +inf. */
#include <math.h>
#include <string.h>

#include "decode/loops/logit_row.h"
#include "generate/loops/choose.h"
#include "tfm/abi/double_functions.h"

/* A row may hold ids beyond the vocabulary, such as a start token of its own: they have no score. */
static bool is_scored(const Chooser *c, int32_t token) { return token >= 0 && token < c->vocab; }

/* A new score that the shift and the bounds know nothing of. */
static void change(Chooser *c, RowScores *row, int64_t token, float score) {
  row->scores[token] = -INFINITY;
  c->changed[row->n_changed++] = (ChangedScore){token, score};
}

/* A negative score is multiplied, a positive one divided: both make the token less likely (Keskar et al., CTRL, 2019).
 * Then what was written counts, in vLLM's order: a penalty for each time, and one for having been written at all. */
static float penalised(const tfm_generate_options *o, float score, int64_t written) {
  const float repetition = (float)o->repetition_penalty;
  if (repetition != 1) score = score < 0 ? score * repetition : score / repetition;
  if (!written) return score;
  score -= (float)o->frequency_penalty * (float)written;
  return score - (float)o->presence_penalty;
}

/* Marks each token as not seen yet. */
static void clear_marks(Chooser *c) {
  if (++c->stamp == 0) { /* a chooser may live for years: old stamps must not come again */
    memset(c->stamps, 0, (size_t)c->vocab * sizeof *c->stamps);
    c->stamp = 1;
  }
}

/* Whether a token of the row is looked at for the first time since clear_marks. */
static bool mark(Chooser *c, int32_t token) {
  const bool is_new = c->stamps[token] != c->stamp;
  c->stamps[token] = c->stamp;
  return is_new;
}

/* Each token once, however often it stands in the row. Padding in front is not part of the text. */
static void penalise(Chooser *c, RowScores *row, const RowText *text) {
  const int32_t *tokens = text->tokens;
  clear_marks(c);
  for (int64_t i = text->padding; i < text->length; i++) {
    if (!is_scored(c, tokens[i])) continue;
    if (mark(c, tokens[i])) c->written[tokens[i]] = 0;
    c->written[tokens[i]] += i >= text->start;
  }
  clear_marks(c);
  for (int64_t i = text->padding; i < text->length; i++) {
    if (!is_scored(c, tokens[i]) || !mark(c, tokens[i])) continue;
    const float score = row_score(row, tokens[i]);
    if (score > -INFINITY) change(c, row, tokens[i], penalised(c->options, score, c->written[tokens[i]]));
  }
}

/* Where the last n - 1 tokens stood before, the token that followed them is forbidden. */
static void forbid_ngrams(const Chooser *c, float *scores, const int32_t *tokens, int64_t length) {
  const int64_t n = c->options->no_repeat_ngram_size;
  const int32_t *tail = tokens + length - n + 1;
  for (int64_t i = 0; i + n <= length; i++) {
    int64_t same = 0;
    while (same < n - 1 && tokens[i + same] == tail[same]) same++;
    if (same == n - 1 && is_scored(c, tokens[i + n - 1])) scores[tokens[i + n - 1]] = -INFINITY;
  }
}

/* In place, so that the penalties see it. Bounds may only grow: no score of a block is greater. */
static void add_biases(const RowScores *row, const tfm_bias_list *list) {
  for (uint64_t i = 0; i < list->n; i++) {
    const int64_t token = list->biases[i].token;
    float *score = &row->scores[token], *bound = &row->bounds[token / ROW_BLOCK];
    *score += (float)list->biases[i].bias;
    if (*score > *bound) *bound = *score;
  }
}

static void forbid(float *scores, const tfm_token_list *list) {
  for (uint64_t i = 0; i < list->n; i++) scores[list->tokens[i]] = -INFINITY;
}

/* Only this token has a score, 0; if it is suppressed, no token has one. */
static void force(Chooser *c, RowScores *row, int64_t token) {
  row->n_blocks = row->n_changed = 0;
  for (uint64_t i = 0; i < c->options->suppress_tokens.n; i++)
    if (c->options->suppress_tokens.tokens[i] == token) return;
  c->changed[row->n_changed++] = (ChangedScore){token, 0};
}

void row_settle(const Chooser *c, RowScores *row) {
  const int64_t n = row->n_blocks ? c->vocab : 0;
  for (int64_t i = 0; i < n && row->shift != 0; i++) row->scores[i] = row_score(row, i);
  for (int64_t i = n; i < c->vocab; i++) row->scores[i] = -INFINITY;
  for (int64_t i = 0; i < row->n_changed; i++) row->scores[c->changed[i].token] = c->changed[i].score;
  row_scan(row->scores, c->vocab, row->bounds);
  row->n_blocks = row_blocks(c->vocab);
  row->n_changed = 0;
  row->shift = 0;
}

/* The caller sees all scores at once, so the row is settled first. It may write anything, so the row is checked
 * again. */
static tfm_status ask_caller(Chooser *c, RowScores *row, const RowText *text) {
  row_settle(c, row);
  chooser_enter_caller(c);
  c->options->on_scores(c->options->on_scores_user, text->item, text->tokens, text->length, row->scores);
  chooser_leave_caller(c);
  if (row_scan(row->scores, c->vocab, row->bounds)) return TFM_OK;
  return tfm_refuse(c->error, TFM_E_INPUT, "row %lld: the scores of token %lld are not finite after on_scores",
                    (long long)text->item, (long long)text->length);
}

/* Of a row of which every token is forbidden nothing is left to be normalised. */
static void renormalise(Chooser *c, RowScores *row) {
  row_settle(c, row);
  const float most = row_max(row->bounds, row->n_blocks);
  if (most > -INFINITY) row->shift = (double)most + double_log(row_exp_sum(row->scores, c->vocab, most));
}

/* Where the first token stands that is chosen: a second token that is forced is not. */
static int64_t first_free(const tfm_generate_options *o, const RowText *text) {
  return text->start + (text->start == 1 && o->forced_bos_token_id != TFM_NO_TOKEN);
}

tfm_status row_apply_options(Chooser *c, const RowText *text, RowScores *row) {
  const tfm_generate_options *o = c->options;
  const int64_t length = text->length;
  if (o->no_repeat_ngram_size && length >= o->no_repeat_ngram_size)
    forbid_ngrams(c, row->scores, text->tokens, length);
  if (length - text->start < o->min_new_tokens || length < o->min_length) forbid(row->scores, &o->eos_token_ids);
  forbid(row->scores, &o->suppress_tokens);
  if (length == first_free(o, text)) forbid(row->scores, &o->begin_suppress_tokens);
  add_biases(row, &o->logit_bias);
  if (options_penalise(o)) penalise(c, row, text);
  if (o->forced_bos_token_id != TFM_NO_TOKEN && length == 1) force(c, row, o->forced_bos_token_id);
  if (o->forced_eos_token_id != TFM_NO_TOKEN && length == text->limit - 1) force(c, row, o->forced_eos_token_id);
  const tfm_status status = o->on_scores ? ask_caller(c, row, text) : TFM_OK;
  if (status == TFM_OK && options_renormalise(o)) renormalise(c, row);
  return status;
}
