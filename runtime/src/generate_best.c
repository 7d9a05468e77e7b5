/* Greedy decoding without a matrix of scores: the model gives each row's best token.
 *
 * The options forbid or change the scores of some tokens. All that may be among them are set apart: the model gives their
 * scores one by one, they are processed like those of a whole row, and the best of them is compared with the best of the
 * rest. So the token is the one that the whole row gives. */
#include <math.h>
#include <string.h>

#include "generate_row.h"
#include "generation.h"

bool best_is_possible(const Generation *g) {
  const tfm_generate_options *o = &g->options;
  return g->model->best && !o->do_sample && !o->on_scores && !o->return_token_scores;
}

/* What a row holds may be forbidden (as the end of an n-gram) or penalised. */
static bool concerns_own_tokens(const tfm_generate_options *o) {
  return o->no_repeat_ngram_size != 0 || o->repetition_penalty != 1;
}

static bool concerns_ends(const tfm_generate_options *o) { return o->min_new_tokens > 0 || o->min_length > 0; }

bool best_make(Generation *g) {
  const tfm_generate_options *o = &g->options;
  const bool wants_apart = concerns_own_tokens(o) || (concerns_ends(o) && o->eos_token_ids.n) || o->suppress_tokens.n;
  g->best = generation_allocate(g, g->n_items, sizeof *g->best);
  g->apart = wants_apart ? generation_allocate(g, g->n_items * row_words(g->vocab), sizeof *g->apart) : NULL;
  return g->best && (g->apart || !wants_apart);
}

// ---- the call ----

static uint64_t *apart_of(const Generation *g, int64_t row) { return g->apart + row * row_words(g->vocab); }

static void set_apart(const Generation *g, uint64_t *apart, int64_t token) {
  if (token >= 0 && token < g->vocab) apart[token / 64] |= (uint64_t)1 << token % 64;
}

static void set_list_apart(const Generation *g, uint64_t *apart, const tfm_token_list *list) {
  for (uint64_t i = 0; i < list->n; i++) set_apart(g, apart, list->tokens[i]);
}

/* Every token that process_row may touch; what it forces needs no score. */
static void choose_apart(const Generation *g, int64_t row) {
  const tfm_generate_options *o = &g->options;
  uint64_t *apart = apart_of(g, row);
  memset(apart, 0, (size_t)row_words(g->vocab) * sizeof *apart);
  set_list_apart(g, apart, &o->suppress_tokens);
  if (concerns_ends(o)) set_list_apart(g, apart, &o->eos_token_ids);
  for (int64_t i = 0; concerns_own_tokens(o) && i < g->row_lengths[row]; i++) set_apart(g, apart, g->row_tokens[row][i]);
}

/* Puts the tokens that are set apart and have a score above -inf into the list of changed ones, behind n others. Returns how
 * many there are then. */
static int64_t list_apart(Generation *g, int64_t row, int64_t n) {
  const float *scores = generation_row_scores(g, row);
  for (int64_t word = 0; g->apart && word < row_words(g->vocab); word++)
    for (uint64_t left = apart_of(g, row)[word]; left; left &= left - 1) {
      const int64_t token = word * 64 + __builtin_ctzll(left);
      if (scores[token] > -INFINITY) g->changed[n++] = (ChangedScore){token, scores[token]};
    }
  return n;
}

static tfm_status take_best(Generation *g, int64_t row) {
  const float most = g->best[row].score;
  if (isnan(most)) return generation_refuse_scores(g, row, false);
  return most > -INFINITY || list_apart(g, row, 0) ? TFM_OK : generation_refuse_scores(g, row, true);
}

tfm_status best_call(Generation *g) {
  const tfm_step_rows rows = {g->n_rows, g->row_tokens, g->row_lengths, g->row_items, g->row_parents};
  for (int64_t row = 0; g->apart && row < g->n_rows; row++) choose_apart(g, row);
  tfm_status status = g->model->best(g->model->user, &rows, g->apart, g->scores, g->best, g->error);
  for (int64_t row = 0; row < g->n_rows && status == TFM_OK; row++) status = take_best(g, row);
  return status;
}

// ---- the choice ----

tfm_status best_choose(Generation *g, int64_t number, int64_t *token) {
  RowScores row;
  tfm_status status = process_row(g, number, &row);
  if (status != TFM_OK) return status;
  if (row.n_blocks) { /* nothing is forced */
    row.n_changed = list_apart(g, number, row.n_changed);
    if (g->best[number].score > -INFINITY)
      g->changed[row.n_changed++] = (ChangedScore){g->best[number].token, g->best[number].score};
    row.n_blocks = 0;
  }
  *token = row_best(g, &row);
  return *token == TFM_NO_TOKEN ? generation_refuse_row(g, row.item, g->row_lengths[number]) : TFM_OK;
}
