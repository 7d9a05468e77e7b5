/* The call for the logits of some rows: all logits, or the best tokens alone.
 *
 * In: rows that a loop has added. Out: logits with their bounds and, in beam search, the logsumexp of each row
 * (Generation.shifts), or the best tokens of each row. Refused: logits that are NaN or +inf or all -inf, and a
 * logsumexp that is not finite.
 *
 * A model that has `best` need not give a matrix of logits. All tokens that the options may concern are then set
 * apart: the model gives their logits one by one, they are processed like those of a whole row, and compete with the
 * best of the rest. The tokens that are chosen are therefore the same as from all logits: any other token keeps its
 * logit, and is among the best if it could win. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "generate/generation_state.h"
#include "decode/loops/logit_row.h"
#include "machine/tuning.h"
#include "tfm/abi/double_functions.h"

// ---- rows that are too long ----

/* A check of the model that prompts passed is about the length of what was written: this says which length passes it.
 * A model that reported its error by other means leaves the message empty. */
static void name_limit(const Generation *g) {
  tfm_error *error = g->error;
  if (!error || (error->reason != TFM_REASON_CHECK && *error->message)) return;
  int64_t length = 0, start = 0;
  for (int64_t row = 0; row < g->n_rows; row++) {
    if (g->row_lengths[row] <= length) continue;
    length = g->row_lengths[row];
    start = g->items[g->row_items[row]].start;
  }
  const size_t used = strlen(error->message);
  if (length > start)
    snprintf(error->message + used, sizeof error->message - used,
             "%smax_length %lld (--max-length %lld) ends rows before", used ? "; " : "", (long long)length - 1,
             (long long)length - 1);
}

static tfm_status called(const Generation *g, tfm_status status) {
  if (status == TFM_E_INPUT) name_limit(g);
  return status;
}

// ---- the best tokens in place of all logits ----

/* How many tokens of a row can matter: all candidates of a beam search may come from one row. */
static int64_t tokens_wanted(const Generation *g) { return g->beams == 1 ? 1 : g->heap_size; }

/* Sampling needs all probabilities, as does making scores log probabilities again; on_scores gets all scores, and in
 * greedy decoding the score of a token needs the sum over all. In beam search that sum must come from the model. */
static bool is_possible(const Generation *g) {
  const tfm_generate_options *o = &g->options;
  if (!g->model->best || o->on_scores || options_renormalise(o) || tokens_wanted(g) > g->model->most_best) return false;
  return g->beams == 1 ? !o->do_sample && !o->return_token_scores : g->model->gives_logsumexp;
}

/* Whether tokens of the row itself may be forbidden (as the end of an n-gram) or penalised. */
static bool concerns_own_tokens(const tfm_generate_options *o) {
  return o->no_repeat_ngram_size != 0 || options_penalise(o);
}

static bool concerns_ends(const tfm_generate_options *o) { return o->min_new_tokens > 0 || o->min_length > 0; }

/* NULL in `apart` saves the model the look at each token where no option concerns any. */
bool best_make(Generation *g) {
  const tfm_generate_options *o = &g->options;
  if (!is_possible(g)) return true;
  const int64_t rows = g->n_items * g->beams;
  const bool wants_apart = concerns_own_tokens(o) || (concerns_ends(o) && o->eos_token_ids.n) ||
                           o->logit_bias.n || o->suppress_tokens.n || o->begin_suppress_tokens.n;
  g->n_best = tokens_wanted(g);
  g->best = generation_allocate(g, rows * g->n_best, sizeof *g->best);
  g->apart = wants_apart ? generation_allocate(g, rows * row_words(g->vocab), sizeof *g->apart) : NULL;
  return g->best && (g->apart || !wants_apart);
}

// ---- tokens that are set apart ----

static uint64_t *apart_of(const Generation *g, int64_t row) { return g->apart + row * row_words(g->vocab); }

static void set_token_apart(const Generation *g, uint64_t *apart, int64_t token) {
  if (token >= 0 && token < g->vocab) apart[token / 64] |= (uint64_t)1 << token % 64;
}

static void set_list_apart(const Generation *g, uint64_t *apart, const tfm_token_list *list) {
  for (uint64_t i = 0; i < list->n; i++) set_token_apart(g, apart, list->tokens[i]);
}

/* Every token that row_apply_options may touch. A token that it forces needs no logit. */
static void choose_apart(const Generation *g, int64_t row) {
  const tfm_generate_options *o = &g->options;
  uint64_t *apart = apart_of(g, row);
  memset(apart, 0, (size_t)row_words(g->vocab) * sizeof *apart);
  set_list_apart(g, apart, &o->suppress_tokens);
  set_list_apart(g, apart, &o->begin_suppress_tokens);
  for (uint64_t i = 0; i < o->logit_bias.n; i++) set_token_apart(g, apart, o->logit_bias.biases[i].token);
  if (concerns_ends(o)) set_list_apart(g, apart, &o->eos_token_ids);
  for (int64_t i = 0; concerns_own_tokens(o) && i < g->row_lengths[row]; i++)
    set_token_apart(g, apart, g->row_tokens[row][i]);
}

static const tfm_best_token *best_of(const Generation *g, int64_t row) { return g->best + row * g->n_best; }

/* A token that is impossible is no candidate. */
static void add_changed(Generation *g, RowScores *row, int64_t token, float score) {
  const ChangedScore changed = {token, (float)((double)score - row->shift)};
  if (score > -INFINITY) g->chooser.changed[row->n_changed++] = changed;
}

/* The tokens that are set apart and have a score above -inf become changed ones. */
static void add_apart(Generation *g, int64_t number, RowScores *row) {
  for (int64_t word = 0; g->apart && word < row_words(g->vocab); word++)
    for (uint64_t left = apart_of(g, number)[word]; left; left &= left - 1) {
      const int64_t token = word * 64 + __builtin_ctzll(left);
      add_changed(g, row, token, row->scores[token]);
    }
}

/* A logsumexp that is not finite would make every score of the row NaN. */
static tfm_status take_sum(Generation *g, int64_t row, double sum) {
  g->shifts[row] = sum;
  if (isfinite(sum)) return TFM_OK;
  return generation_refuse(g, "row %lld: the model's logsumexp for token %lld is not finite",
                           (long long)g->row_items[row],
                           (long long)g->row_lengths[row]);
}

/* A row whose best is -inf may still have tokens that are set apart; only if those are -inf too is it refused. */
static tfm_status take_best(Generation *g, int64_t number) {
  const float most = best_of(g, number)->logit;
  if (isnan(most)) return generation_refuse_scores(g, number, false);
  RowScores row = {.scores = generation_row_scores(g, number)};
  if (!(most > -INFINITY)) add_apart(g, number, &row);
  if (!(most > -INFINITY || row.n_changed)) return generation_refuse_scores(g, number, true);
  return g->logsumexp ? take_sum(g, number, (double)g->logsumexp[number]) : TFM_OK;
}

/* Row by row afterwards, so that the first row that is refused is the one that is named. */
static tfm_status call_best(Generation *g, const tfm_step_rows *rows) {
  const tfm_best_call call = {g->n_best, g->best, g->apart, g->scores, g->logsumexp};
  for (int64_t row = 0; g->apart && row < g->n_rows; row++) choose_apart(g, row);
  generation_enter_caller(g);
  tfm_status status = called(g, g->model->best(g->model->user, rows, &call, g->error));
  generation_leave_caller(g);
  for (int64_t row = 0; row < g->n_rows && status == TFM_OK; row++) status = take_best(g, row);
  return status;
}

// ---- the call for all logits ----

void generation_add_row(Generation *g, int64_t item, int64_t parent, const int32_t *tokens, int64_t length) {
  int64_t row = g->n_rows++;
  g->row_tokens[row] = tokens;
  g->row_lengths[row] = length;
  g->row_items[row] = item;
  g->row_parents[row] = parent;
}

/* The same columns of all rows: those that the same thread is likely to have computed. A bound of NaN says that there
 * is no number among its scores. */
static void scan_part(void *context, int64_t part, int64_t parts) {
  Generation *g = context;
  const int64_t n_blocks = row_blocks(g->vocab), first = n_blocks * part / parts, end = n_blocks * (part + 1) / parts;
  if (first == end) return;
  const int64_t n = (end == n_blocks ? g->vocab : end * ROW_BLOCK) - first * ROW_BLOCK;
  for (int64_t row = 0; row < g->n_rows; row++) {
    float *bounds = g->bounds + row * n_blocks + first;
    if (!row_scan(generation_row_scores(g, row) + first * ROW_BLOCK, n, bounds)) *bounds = NAN;
  }
}

/* Waking a thread costs some microseconds, in which one thread scans about so many logits. */
/* The threads are the caller's too, and in a mode without subnormal numbers a bound could be zero. */
static void scan_shared_part(void *context, int64_t part, int64_t parts) {
  uint64_t fp_mode = fp_mode_enter();
  scan_part(context, part, parts);
  fp_mode_leave(fp_mode);
}

static void scan_rows(Generation *g) {
  if (g->model->share && g->n_rows * g->vocab >= TOKENS_WORTH_SHARING) {
    generation_enter_caller(g);
    g->model->share(g->model->user, scan_shared_part, g);
    generation_leave_caller(g);
  } else {
    scan_part(g, 0, 1);
  }
}

static bool has_nan(const float *bounds, int64_t n) {
  bool is_nan = false;
  for (int64_t i = 0; i < n; i++) is_nan |= isnan(bounds[i]);
  return is_nan;
}

/* Checks a row of logits and finds its shift. -inf is the logit of a token that is impossible; NaN and +inf are
 * refused. */
tfm_status generation_check_row(Generation *g, int64_t row) {
  const int64_t n_blocks = row_blocks(g->vocab);
  const float *bounds = g->bounds + row * n_blocks;
  const bool are_numbers = !has_nan(bounds, n_blocks);
  const float most = are_numbers ? row_max(bounds, n_blocks) : -INFINITY;
  if (!(most > -INFINITY)) return generation_refuse_scores(g, row, are_numbers);
  if (g->beams == 1) return TFM_OK;
  if (g->logsumexp) return take_sum(g, row, (double)g->logsumexp[row]);
  return take_sum(g, row, (double)most + double_log(row_exp_sum(generation_row_scores(g, row), g->vocab, most)));
}

tfm_status generation_call(Generation *g) {
  const tfm_step_rows rows = {g->n_rows, g->row_tokens, g->row_lengths, g->row_items, g->row_parents};
  if (g->best) return call_best(g, &rows);
  generation_enter_caller(g);
  tfm_status status = called(g, g->model->logits(g->model->user, &rows, g->scores, g->logsumexp, g->error));
  generation_leave_caller(g);
  if (status == TFM_OK) scan_rows(g);
  for (int64_t row = 0; row < g->n_rows && status == TFM_OK; row++) status = generation_check_row(g, row);
  return status;
}

/* From the last row to the first, so that none is overwritten before it was read. */
static void spread_guesses(Generation *g, const int64_t *guesses) {
  int64_t place = g->n_rows;
  for (int64_t row = 0; row < g->n_rows; row++) place += guesses[row];
  const int64_t n = place;
  for (int64_t row = g->n_rows; row-- > 0;)
    for (int64_t i = guesses[row], length = g->row_lengths[row]; i >= 0; i--, length--) {
      place--;
      g->row_tokens[place] = g->row_tokens[row];
      g->row_lengths[place] = length;
      g->row_items[place] = g->row_items[row];
      g->row_parents[place] = g->row_parents[row];
    }
  g->n_rows = n;
}

tfm_status generation_call_guessed(Generation *g, const int64_t *guesses) {
  const tfm_step_rows rows = {g->n_rows, g->row_tokens, g->row_lengths, g->row_items, g->row_parents};
  generation_enter_caller(g);
  tfm_status status = called(g, g->model->guessed(g->model->user, &rows, guesses, g->scores, g->error));
  generation_leave_caller(g);
  if (status != TFM_OK) return status;
  spread_guesses(g, guesses);
  scan_rows(g);
  return TFM_OK;
}

/* A row of best tokens becomes a list: those that were set apart, after what the options did to them, and the best. */
tfm_status generation_process_row(Generation *g, int64_t number, RowScores *row) {
  const int64_t item = g->row_items[number], n_blocks = row_blocks(g->vocab);
  const Item *info = &g->items[item];
  const RowText text = {.tokens = g->row_tokens[number], .length = g->row_lengths[number], .start = info->start,
                        .limit = info->limit, .padding = info->padding, .item = item};
  *row = (RowScores){generation_row_scores(g, number), g->bounds + number * n_blocks, n_blocks, 0, g->shifts[number]};
  tfm_status status = row_apply_options(&g->chooser, &text, row);
  if (status != TFM_OK || !g->best || !row->n_blocks) return status; /* no blocks: a token is forced */
  add_apart(g, number, row);
  for (int64_t i = 0; i < g->n_best; i++) add_changed(g, row, best_of(g, number)[i].token, best_of(g, number)[i].logit);
  row->n_blocks = 0;
  return TFM_OK;
}
