/* What is done to the scores of a row before a token is chosen, in the order of transformers: repetition, repeated
 * n-grams, least length, forced first and last token, suppressed tokens. Nothing is normalised again afterwards. */
#include <math.h>

#include "generate_row.h"
#include "generation.h"

void process_log_softmax(float *scores, int64_t vocab) {
  const float most = row_max(scores, vocab);
  const double shift = (double)most + log(row_exp_sum(scores, vocab, most));
  for (int64_t i = 0; i < vocab; i++) scores[i] = (float)((double)scores[i] - shift);
}

/* Ids beyond the scores may stand in a row (a start token of its own), they have no score. */
static bool is_scored(const Generation *g, int32_t token) { return token >= 0 && token < g->vocab; }

static void penalise_repetition(Generation *g, float *scores, const int32_t *tokens, int64_t length, int64_t padding) {
  const float penalty = (float)g->options.repetition_penalty;
  g->stamp++;
  for (int64_t i = padding; i < length; i++) {
    if (!is_scored(g, tokens[i]) || g->stamps[tokens[i]] == g->stamp) continue;
    g->stamps[tokens[i]] = g->stamp;
    float *score = &scores[tokens[i]];
    *score = *score < 0 ? *score * penalty : *score / penalty;
  }
}

static void forbid_ngrams(const Generation *g, float *scores, const int32_t *tokens, int64_t length) {
  const int64_t n = g->options.no_repeat_ngram_size;
  const int32_t *tail = tokens + length - n + 1;
  for (int64_t i = 0; i + n <= length; i++) {
    int64_t same = 0;
    while (same < n - 1 && tokens[i + same] == tail[same]) same++;
    if (same == n - 1 && is_scored(g, tokens[i + n - 1])) scores[tokens[i + n - 1]] = -INFINITY;
  }
}

static void force(const Generation *g, float *scores, int64_t token) {
  for (int64_t i = 0; i < g->vocab; i++) scores[i] = i == token ? 0 : -INFINITY;
}

static void forbid(float *scores, const tfm_token_list *list) {
  for (uint64_t i = 0; i < list->n; i++) scores[list->tokens[i]] = -INFINITY;
}

void process_scores(Generation *g, int64_t row) {
  const tfm_generate_options *o = &g->options;
  const Item *item = &g->items[g->row_items[row]];
  const int32_t *tokens = g->row_tokens[row];
  const int64_t length = g->row_lengths[row];
  float *scores = generation_row_scores(g, row);
  if (o->repetition_penalty != 1) penalise_repetition(g, scores, tokens, length, item->padding);
  if (o->no_repeat_ngram_size && length >= o->no_repeat_ngram_size) forbid_ngrams(g, scores, tokens, length);
  if (length - item->start < o->min_new_tokens || length < o->min_length) forbid(scores, &o->eos_token_ids);
  if (o->forced_bos_token_id != TFM_NO_TOKEN && length == 1) force(g, scores, o->forced_bos_token_id);
  if (o->forced_eos_token_id != TFM_NO_TOKEN && length == item->limit - 1) force(g, scores, o->forced_eos_token_id);
  forbid(scores, &o->suppress_tokens);
}
