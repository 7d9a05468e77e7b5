/* Greedy decoding and beam search without a matrix of scores: the model gives each row's best tokens, as many as a search
 * looks at, and for beam search the logs of sums.
 *
 * The options forbid or change the scores of some tokens. All that may be among them are set apart: the model gives their
 * scores one by one, they are processed like those of a whole row, and compete with the best of the rest. So the tokens are
 * those that the whole row gives. */
#include <math.h>
#include <string.h>

#include "generate_row.h"
#include "generation.h"

/* How many of a row are looked at. Of the candidates of a beam search all could be of one row. */
static int64_t tokens_wanted(const Generation *g) { return g->beams == 1 ? 1 : g->heap_size; }

static bool is_possible(const Generation *g) {
  const tfm_generate_options *o = &g->options;
  if (!g->model->best || o->on_scores || tokens_wanted(g) > g->model->most_best) return false;
  return g->beams == 1 ? !o->do_sample && !o->return_token_scores : g->model->gives_log_sums;
}

/* What a row holds may be forbidden (as the end of an n-gram) or penalised. */
static bool concerns_own_tokens(const tfm_generate_options *o) {
  return o->no_repeat_ngram_size != 0 || o->repetition_penalty != 1;
}

static bool concerns_ends(const tfm_generate_options *o) { return o->min_new_tokens > 0 || o->min_length > 0; }

bool best_make(Generation *g) {
  const tfm_generate_options *o = &g->options;
  if (!is_possible(g)) return true;
  const int64_t rows = g->n_items * g->beams;
  const bool wants_apart = concerns_own_tokens(o) || (concerns_ends(o) && o->eos_token_ids.n) || o->suppress_tokens.n;
  g->n_best = tokens_wanted(g);
  g->best = generation_allocate(g, rows * g->n_best, sizeof *g->best);
  g->apart = wants_apart ? generation_allocate(g, rows * row_words(g->vocab), sizeof *g->apart) : NULL;
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

static const tfm_best_token *best_of(const Generation *g, int64_t row) { return g->best + row * g->n_best; }

static void add_changed(Generation *g, RowScores *row, int64_t token, float score) {
  if (score > -INFINITY) g->changed[row->n_changed++] = (ChangedScore){token, (float)((double)score - row->shift)};
}

/* The tokens that are set apart and have a score above -inf become changed ones. */
static void add_apart(Generation *g, int64_t number, RowScores *row) {
  for (int64_t word = 0; g->apart && word < row_words(g->vocab); word++)
    for (uint64_t left = apart_of(g, number)[word]; left; left &= left - 1) {
      const int64_t token = word * 64 + __builtin_ctzll(left);
      add_changed(g, row, token, row->scores[token]);
    }
}

static tfm_status take_best(Generation *g, int64_t number) {
  const float most = best_of(g, number)->score;
  if (isnan(most)) return generation_refuse_scores(g, number, false);
  RowScores row = {.scores = generation_row_scores(g, number)};
  if (!(most > -INFINITY)) add_apart(g, number, &row);
  if (!(most > -INFINITY || row.n_changed)) return generation_refuse_scores(g, number, true);
  return g->log_sums ? generation_take_sum(g, number, (double)g->log_sums[number]) : TFM_OK;
}

tfm_status best_call(Generation *g, const tfm_step_rows *rows) {
  const tfm_best_call call = {g->n_best, g->best, g->apart, g->scores, g->log_sums};
  for (int64_t row = 0; g->apart && row < g->n_rows; row++) choose_apart(g, row);
  tfm_status status = g->model->best(g->model->user, rows, &call, g->error);
  for (int64_t row = 0; row < g->n_rows && status == TFM_OK; row++) status = take_best(g, row);
  return status;
}

// ---- the choice ----

tfm_status best_process_row(Generation *g, int64_t number, RowScores *row) {
  tfm_status status = process_row(g, number, row);
  if (status != TFM_OK || !row->n_blocks) return status; /* a token is forced */
  add_apart(g, number, row);
  for (int64_t i = 0; i < g->n_best; i++) add_changed(g, row, best_of(g, number)[i].token, best_of(g, number)[i].score);
  row->n_blocks = 0;
  return TFM_OK;
}
