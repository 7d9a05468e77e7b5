/* The logits of one row: passes over all of them, what the options do to them, and choosing among the best alone.
 *
 * The options apply in the order of transformers: repetition, repeated n-grams, least length, forced first and last token,
 * suppressed tokens, the caller's own function. Nothing is normalised again afterwards. Only the tokens concerned are touched: a
 * forbidden token becomes -inf where it stands; a token with another score becomes -inf too, and its new score goes to the list
 * of changed ones. Forbidding comes first, so a forbidden token is never changed; the result does not depend on that order,
 * because -inf stays what it is.
 *
 * A model that has `best` gives no matrix of logits. All tokens that the options may concern are then set apart: the model gives
 * their logits one by one, they are processed like those of a whole row, and compete with the best of the rest. So the tokens
 * are the same as those that the whole row gives. */
#include "generate_row.h"

#include <math.h>
#include <string.h>

#include "generation.h"

// ---- passes over a row ----

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Vectors of the language of gcc and clang, not of a machine: the loop over exp is none that they find by themselves.
 * Four of them are the 16 lanes. */
enum { WIDTH = 4, LANES = 16 };
typedef float Floats __attribute__((vector_size(WIDTH * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(WIDTH * sizeof(int32_t))));
typedef double Doubles __attribute__((vector_size(WIDTH * sizeof(double))));

static inline Floats load(const float *from) {
  Floats x;
  memcpy(&x, from, sizeof x);
  return x;
}

// ---- the largest ----

/* a > b ? a : b: one instruction, which compilers find in the loop or don't. */
static inline Floats larger(Floats a, Floats b) {
#if defined(__x86_64__)
  return (Floats)_mm_max_ps((__m128)a, (__m128)b);
#else
  Floats c;
  for (int i = 0; i < WIDTH; i++) c[i] = a[i] > b[i] ? a[i] : b[i];
  return c;
#endif
}

static inline Ints is_number(Floats x) { return x < (Floats){INFINITY, INFINITY, INFINITY, INFINITY}; }

/* The largest of n scores, n a multiple of 16; `fine` loses the lanes that met NaN or +inf. */
static inline float max_of_lanes(const float *scores, int64_t n, Ints *fine) {
  const Floats none = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  Floats a = none, b = none, c = none, d = none;
  Ints all = *fine;
  for (int64_t i = 0; i < n; i += LANES) {
    Floats w = load(scores + i), x = load(scores + i + 4), y = load(scores + i + 8), z = load(scores + i + 12);
    all &= is_number(w) & is_number(x) & is_number(y) & is_number(z);
    a = larger(w, a), b = larger(x, b), c = larger(y, c), d = larger(z, d);
  }
  *fine = all;
  a = larger(larger(a, b), larger(c, d));
  float most = a[0];
  for (int i = 1; i < WIDTH; i++) most = a[i] > most ? a[i] : most;
  return most;
}

static float max_of_rest(const float *scores, int64_t n, float most, bool *fine) {
  for (int64_t i = 0; i < n; i++) {
    *fine &= scores[i] < INFINITY;
    most = scores[i] > most ? scores[i] : most;
  }
  return most;
}

bool row_scan(const float *scores, int64_t n, float *bounds) {
  const int64_t whole = n / ROW_BLOCK * ROW_BLOCK;
  Ints fine = {-1, -1, -1, -1};
  for (int64_t i = 0; i < whole; i += ROW_BLOCK) *bounds++ = max_of_lanes(scores + i, ROW_BLOCK, &fine);
  bool is_fine = fine[0] && fine[1] && fine[2] && fine[3];
  if (whole < n) *bounds = max_of_rest(scores + whole, n - whole, -INFINITY, &is_fine);
  return is_fine;
}

bool row_peak(const float *scores, int64_t n, float *most) {
  const int64_t whole = n / LANES * LANES;
  Ints fine = {-1, -1, -1, -1};
  *most = max_of_lanes(scores, whole, &fine);
  bool is_fine = fine[0] && fine[1] && fine[2] && fine[3];
  *most = max_of_rest(scores + whole, n - whole, *most, &is_fine);
  return is_fine;
}

float row_max(const float *scores, int64_t n) {
  float most;
  row_peak(scores, n, &most);
  return most;
}

int64_t row_find(const float *scores, int64_t first, int64_t n, float least) {
  const Floats bound = {least, least, least, least};
  for (; first + LANES <= n; first += LANES) {
    const float *at = scores + first;
    const Ints some = (load(at) >= bound) | (load(at + 4) >= bound) | (load(at + 8) >= bound) | (load(at + 12) >= bound);
    if (some[0] | some[1] | some[2] | some[3]) break;
  }
  while (first < n && !(scores[first] >= least)) first++;
  return first;
}

// ---- exponentials ----

/* exp for x <= 0: x = k ln 2 + r with |r| <= ln 2 / 2, the series of e^r to the 7th power, times 2^k. The error is about
 * one unit in the last place. What is below -85 is computed as -85 and masked out. */
static inline Floats exp_of(Floats x) {
  const float round = 0x1.8p23f;
  const Floats least = {-85, -85, -85, -85};
  const Ints is_small = x < least;
  const Floats clamped = (Floats)(((Ints)x & ~is_small) | ((Ints)least & is_small));
  const Floats k = (clamped * 0x1.715476p0f + round) - round;
  const Floats r = (clamped - k * 0x1.62ep-1f) - k * 0x1.0bfbe8p-15f;
  Floats series = r * (1.0f / 5040) + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const Ints power = (__builtin_convertvector(k, Ints) + 127) << 23;
  return (Floats)((Ints)(series * (Floats)power) & ~is_small);
}

double row_exp(const float *scores, int64_t n, float most, float *weights) {
  Doubles sum = {0};
  Floats x;
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) {
    memcpy(&x, scores + i, sizeof x);
    x = exp_of(x - most);
    memcpy(weights + i, &x, sizeof x);
    sum += __builtin_convertvector(x, Doubles);
  }
  x = (Floats){-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  for (int64_t k = i; k < n; k++) x[k - i] = scores[k];
  x = exp_of(x - most);
  for (int64_t k = i; k < n; k++) weights[k] = x[k - i];
  sum += __builtin_convertvector(x, Doubles);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Blocks of lanes in f32, the blocks and the lanes in f64. */
double row_exp_sum(const float *scores, int64_t n, float most) {
  enum { BLOCK = 512 };
  double total = 0;
  const int64_t whole = n / LANES * LANES;
  for (int64_t block = 0; block < whole; block += BLOCK) {
    const int64_t end = block + BLOCK < whole ? block + BLOCK : whole;
    Floats a = {0}, b = {0}, c = {0}, d = {0};
    for (int64_t i = block; i < end; i += LANES) {
      a += exp_of(load(scores + i) - most);
      b += exp_of(load(scores + i + 4) - most);
      c += exp_of(load(scores + i + 8) - most);
      d += exp_of(load(scores + i + 12) - most);
    }
    const Doubles sum = __builtin_convertvector((a + b) + (c + d), Doubles);
    total += (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  float weights[LANES];
  return total + row_exp(scores + whole, n - whole, most, weights);
}

// ---- what the options do ----

/* Ids beyond the scores may stand in a row (a start token of its own), they have no score. */
static bool is_scored(const Generation *g, int32_t token) { return token >= 0 && token < g->vocab; }

static void change(Generation *g, RowScores *row, int64_t token, float score) {
  row->scores[token] = -INFINITY;
  g->changed[row->n_changed++] = (ChangedScore){token, score};
}

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

/* This token alone has a score, 0. It may be suppressed all the same. */
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

static tfm_status ask_caller(Generation *g, RowScores *row, const int32_t *tokens, int64_t length) {
  row_settle(g, row);
  g->options.on_scores(g->options.on_scores_user, row->item, tokens, length, row->scores);
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

// ---- the best tokens in place of all logits ----

/* How many of a row are looked at. Of the candidates of a beam search all could be of one row. */
static int64_t tokens_wanted(const Generation *g) { return g->beams == 1 ? 1 : g->heap_size; }

static bool is_possible(const Generation *g) {
  const tfm_generate_options *o = &g->options;
  if (!g->model->best || o->on_scores || tokens_wanted(g) > g->model->most_best) return false;
  return g->beams == 1 ? !o->do_sample && !o->return_token_scores : g->model->gives_logsumexp;
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
  const float most = best_of(g, number)->logit;
  if (isnan(most)) return generation_refuse_scores(g, number, false);
  RowScores row = {.scores = generation_row_scores(g, number)};
  if (!(most > -INFINITY)) add_apart(g, number, &row);
  if (!(most > -INFINITY || row.n_changed)) return generation_refuse_scores(g, number, true);
  return g->logsumexp ? generation_take_sum(g, number, (double)g->logsumexp[number]) : TFM_OK;
}

tfm_status best_call(Generation *g, const tfm_step_rows *rows) {
  const tfm_best_call call = {g->n_best, g->best, g->apart, g->scores, g->logsumexp};
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
  for (int64_t i = 0; i < g->n_best; i++) add_changed(g, row, best_of(g, number)[i].token, best_of(g, number)[i].logit);
  row->n_blocks = 0;
  return TFM_OK;
}
