/* What the options do to the logits of one row.
 *
 * The options apply in the order of transformers: repetition penalty, repeated n-grams, least length, forced first and
 * last token, suppressed tokens, the caller's own function. Nothing is normalised again afterwards. Only the tokens
 * concerned are touched: a forbidden token becomes -inf where it stands; a token with another score becomes -inf too,
 * and its new score goes to the list of changed ones. Forbidding comes first, so that a forbidden token is never
 * changed; the result does not depend on that order, because -inf stays what it is. Refused: scores that on_scores has
 * made NaN or +inf. */
#include "logit_row.h"

#include <math.h>
#include <string.h>

#include "generation.h"

// ---- what the options do ----

/* A row may hold ids beyond the vocabulary, such as a start token of its own: they have no score. */
static bool is_scored(const Generation *g, int32_t token) { return token >= 0 && token < g->vocab; }

/* A new score that the shift and the bounds know nothing of. */
static void change(Generation *g, RowScores *row, int64_t token, float score) {
  row->scores[token] = -INFINITY;
  g->changed[row->n_changed++] = (ChangedScore){token, score};
}

/* Each token once, however often it stands in the row: stamps mark those that were seen, and a new stamp clears all
 * marks at once. Padding in front is not part of the text. A negative score is multiplied, a positive one divided:
 * both make the token less likely (Keskar et al., CTRL, 2019). */
static void penalise_repetition(Generation *g, RowScores *row, const int32_t *tokens, int64_t length) {
  const float penalty = (float)g->options.repetition_penalty;
  g->stamp++;
  for (int64_t i = g->items[row->item].padding; i < length; i++) {
    if (!is_scored(g, tokens[i]) || g->stamps[tokens[i]] == g->stamp) continue;
    g->stamps[tokens[i]] = g->stamp;
    const float score = row_score(row, tokens[i]);
    if (score > -INFINITY) change(g, row, tokens[i], score < 0 ? score * penalty : score / penalty);
  }
}

/* Where the last n - 1 tokens stood before, the token that followed them is forbidden. */
static void forbid_ngrams(const Generation *g, float *scores, const int32_t *tokens, int64_t length) {
  const int64_t n = g->options.no_repeat_ngram_size;
  const int32_t *tail = tokens + length - n + 1;
  for (int64_t i = 0; i + n <= length; i++) {
    int64_t same = 0;
    while (same < n - 1 && tokens[i + same] == tail[same]) same++;
    if (same == n - 1 && is_scored(g, tokens[i + n - 1])) scores[tokens[i + n - 1]] = -INFINITY;
  }
}

static void forbid(float *scores, const tfm_token_list *list) {
  for (uint64_t i = 0; i < list->n; i++) scores[list->tokens[i]] = -INFINITY;
}

/* Only this token has a score, 0; if it is suppressed, no token has one. */
static void force(Generation *g, RowScores *row, int64_t token) {
  row->n_blocks = row->n_changed = 0;
  for (uint64_t i = 0; i < g->options.suppress_tokens.n; i++)
    if (g->options.suppress_tokens.tokens[i] == token) return;
  g->changed[row->n_changed++] = (ChangedScore){token, 0};
}

void row_settle(const Generation *g, RowScores *row) {
  const int64_t n = row->n_blocks ? g->vocab : 0;
  for (int64_t i = 0; i < n && row->shift != 0; i++) row->scores[i] = row_score(row, i);
  for (int64_t i = n; i < g->vocab; i++) row->scores[i] = -INFINITY;
  for (int64_t i = 0; i < row->n_changed; i++) row->scores[g->changed[i].token] = g->changed[i].score;
  row_scan(row->scores, g->vocab, row->bounds);
  row->n_blocks = row_blocks(g->vocab);
  row->n_changed = 0;
  row->shift = 0;
}

/* The caller sees all scores at once, so the row is settled first. It may write anything, so the row is checked
 * again. */
static tfm_status ask_caller(Generation *g, RowScores *row, const int32_t *tokens, int64_t length) {
  row_settle(g, row);
  generation_enter_caller(g);
  g->options.on_scores(g->options.on_scores_user, row->item, tokens, length, row->scores);
  generation_leave_caller(g);
  if (row_scan(row->scores, g->vocab, row->bounds)) return TFM_OK;
  return generation_refuse(g, "row %lld: the scores of token %lld are not finite after on_scores",
                           (long long)row->item, (long long)length);
}

tfm_status process_row(Generation *g, int64_t number, RowScores *row) {
  const tfm_generate_options *o = &g->options;
  const Item *item = &g->items[g->row_items[number]];
  const int32_t *tokens = g->row_tokens[number];
  const int64_t length = g->row_lengths[number], n_blocks = row_blocks(g->vocab);
  float *scores = generation_row_scores(g, number);
  *row = (RowScores){scores, g->bounds + number * n_blocks, n_blocks, g->row_items[number], 0, g->shifts[number]};
  if (o->no_repeat_ngram_size && length >= o->no_repeat_ngram_size) forbid_ngrams(g, scores, tokens, length);
  if (length - item->start < o->min_new_tokens || length < o->min_length) forbid(scores, &o->eos_token_ids);
  forbid(scores, &o->suppress_tokens);
  if (o->repetition_penalty != 1) penalise_repetition(g, row, tokens, length);
  if (o->forced_bos_token_id != TFM_NO_TOKEN && length == 1) force(g, row, o->forced_bos_token_id);
  if (o->forced_eos_token_id != TFM_NO_TOKEN && length == item->limit - 1) force(g, row, o->forced_eos_token_id);
  return o->on_scores ? ask_caller(g, row, tokens, length) : TFM_OK;
}

/* Blocks whose bound is below the best so far are skipped; of equal scores the lowest token wins, whichever list it
 * comes from. */
int64_t row_best(const Generation *g, const RowScores *row) {
  float most = -INFINITY;
  int64_t best = TFM_NO_TOKEN;
  for (int64_t i = 0; i < row->n_changed; i++) {
    const ChangedScore *c = &g->changed[i];
    if (c->score > most || (c->score == most && c->token < best)) most = c->score, best = c->token;
  }
  for (int64_t block = 0; block < row->n_blocks; block++) {
    const int64_t first = block * ROW_BLOCK, end = first + ROW_BLOCK < g->vocab ? first + ROW_BLOCK : g->vocab;
    if (row->bounds[block] < most || (row->bounds[block] == most && first > best)) continue;
    for (int64_t i = first; i < end; i++)
      if (row->scores[i] > most || (row->scores[i] == most && i < best)) most = row->scores[i], best = i;
  }
  return best;
}
