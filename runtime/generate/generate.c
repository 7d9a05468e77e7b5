/* tfm_generate: checks a call, allocates what the loops need, and runs greedy decoding, sampling or beam search.
 *
 * In: a model, prompts, options. Out: the sequences, whose memory is the caller's. Refused: options out of their range, prompts
 * without room for a token, logits that are NaN or +inf or all -inf, rows all of whose tokens are forbidden. When a call fails,
 * nothing is returned and all memory is given back. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generate_row.h"
#include "generation.h"

// ---- memory and errors ----

void *generation_allocate(Generation *g, int64_t count, size_t size) {
  void *block = calloc(count > 0 ? (size_t)count : 1, size);
  if (block) g->blocks[g->n_blocks++] = block;
  return block;
}

tfm_status generation_no_memory(Generation *g) {
  return tfm_fail(g->error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "not enough memory for generation");
}

tfm_status generation_refuse(Generation *g, const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return tfm_fail(g->error, TFM_E_INPUT, TFM_REASON_VALUE, NULL, "%s", text);
}

int64_t generation_first_length(const Generation *g) {
  enum { ROOM = 4096 }; /* new tokens */
  int64_t longest = g->widest + 1;
  for (int64_t i = 0; i < g->n_items; i++) longest = g->items[i].limit > longest ? g->items[i].limit : longest;
  return longest < g->widest + ROOM ? longest : g->widest + ROOM;
}

bool token_rows_make(TokenRows *rows, int64_t n, int64_t length) {
  int64_t elements;
  *rows = (TokenRows){NULL, n > 0 ? n : 1, length};
  if (__builtin_mul_overflow(rows->n, rows->stride, &elements)) return false;
  rows->tokens = calloc((size_t)elements, sizeof *rows->tokens);
  return rows->tokens != NULL;
}

bool token_rows_reserve(TokenRows *rows, int64_t length) {
  if (length <= rows->stride || !rows->tokens) return true;
  TokenRows wider;
  if (!token_rows_make(&wider, rows->n, 2 * length)) return false;
  for (int64_t i = 0; i < rows->n; i++)
    memcpy(token_row(&wider, i), token_row(rows, i), (size_t)rows->stride * sizeof *rows->tokens);
  free(rows->tokens);
  *rows = wider;
  return true;
}

void token_rows_free(TokenRows *rows) { free(rows->tokens); }

void generation_copy_prompt(const Generation *g, int64_t item, int32_t *row) {
  const int32_t *prompt = g->prompts->tokens + item * g->prompts->width;
  memcpy(row, prompt, (size_t)g->items[item].start * sizeof *row);
}

// ---- the call for scores ----

void generation_add_row(Generation *g, int64_t item, int64_t parent, const int32_t *tokens, int64_t length) {
  int64_t row = g->n_rows++;
  g->row_tokens[row] = tokens;
  g->row_lengths[row] = length;
  g->row_items[row] = item;
  g->row_parents[row] = parent;
}

float *generation_row_scores(const Generation *g, int64_t row) { return g->scores + row * g->vocab; }

bool generation_is_eos(const Generation *g, int64_t token) {
  for (uint64_t i = 0; i < g->options.eos_token_ids.n; i++)
    if (g->options.eos_token_ids.tokens[i] == token) return true;
  return false;
}

/* The same columns of all rows: those that the same thread is likely to have computed. A bound of NaN says that there is
 * no number among its scores. */
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

/* Waking a thread costs some microseconds: so many scores are looked at meanwhile. */
enum { WORTH_SHARING = 1 << 17 };

static void scan_rows(Generation *g) {
  if (g->model->share && g->n_rows * g->vocab >= WORTH_SHARING) g->model->share(g->model->user, scan_part, g);
  else scan_part(g, 0, 1);
}

static bool has_nan(const float *bounds, int64_t n) {
  bool is_nan = false;
  for (int64_t i = 0; i < n; i++) is_nan |= isnan(bounds[i]);
  return is_nan;
}

tfm_status generation_refuse_scores(Generation *g, int64_t row, bool are_numbers) {
  return generation_refuse(g, "row %lld: the scores of token %lld are %s", (long long)g->row_items[row],
                           (long long)g->row_lengths[row], are_numbers ? "all -inf" : "not finite");
}

tfm_status generation_take_sum(Generation *g, int64_t row, double sum) {
  g->shifts[row] = sum;
  if (isfinite(sum)) return TFM_OK;
  return generation_refuse(g, "row %lld: the model's sum for token %lld is not finite", (long long)g->row_items[row],
                           (long long)g->row_lengths[row]);
}

/* NaN and +inf are no scores; -inf is that of a token which is never said. */
static tfm_status take_row(Generation *g, int64_t row) {
  const int64_t n_blocks = row_blocks(g->vocab);
  const float *bounds = g->bounds + row * n_blocks;
  const bool are_numbers = !has_nan(bounds, n_blocks);
  const float most = are_numbers ? row_max(bounds, n_blocks) : -INFINITY;
  if (!(most > -INFINITY)) return generation_refuse_scores(g, row, are_numbers);
  if (g->beams == 1) return TFM_OK;
  if (g->logsumexp) return generation_take_sum(g, row, (double)g->logsumexp[row]);
  return generation_take_sum(g, row, (double)most + log(row_exp_sum(generation_row_scores(g, row), g->vocab, most)));
}

tfm_status generation_refuse_row(Generation *g, int64_t item, int64_t length) {
  return generation_refuse(g, "row %lld: every token is forbidden as token %lld", (long long)item, (long long)length);
}

tfm_status generation_call(Generation *g) {
  const tfm_step_rows rows = {g->n_rows, g->row_tokens, g->row_lengths, g->row_items, g->row_parents};
  if (g->best) return best_call(g, &rows);
  tfm_status status = g->model->logits(g->model->user, &rows, g->scores, g->logsumexp, g->error);
  if (status == TFM_OK) scan_rows(g);
  for (int64_t row = 0; row < g->n_rows && status == TFM_OK; row++) status = take_row(g, row);
  return status;
}

// ---- beginning and end ----

/* Room for a call of `rows` rows, and for looking at one of them. */
static bool make_room(Generation *g, int64_t rows) {
  int64_t elements;
  if (__builtin_mul_overflow(rows, g->vocab, &elements)) return false;
  const bool wants_sums = g->beams > 1 && g->model->gives_logsumexp;
  g->row_tokens = generation_allocate(g, rows, sizeof *g->row_tokens);
  g->row_lengths = generation_allocate(g, rows, sizeof *g->row_lengths);
  g->row_items = generation_allocate(g, rows, sizeof *g->row_items);
  g->row_parents = generation_allocate(g, rows, sizeof *g->row_parents);
  g->scores = generation_allocate(g, elements, sizeof *g->scores);
  g->bounds = generation_allocate(g, rows * row_blocks(g->vocab), sizeof *g->bounds);
  g->shifts = generation_allocate(g, rows, sizeof *g->shifts);
  g->logsumexp = wants_sums ? generation_allocate(g, rows, sizeof *g->logsumexp) : NULL;
  g->changed = generation_allocate(g, g->vocab, sizeof *g->changed);
  g->stamps = generation_allocate(g, g->vocab, sizeof *g->stamps);
  g->heap = generation_allocate(g, g->heap_size, sizeof *g->heap);
  return g->row_tokens && g->row_lengths && g->row_items && g->row_parents && g->scores && g->bounds && g->shifts &&
         (g->logsumexp || !wants_sums) && g->changed && g->stamps && g->heap;
}

static tfm_status begin(Generation *g, const tfm_generate_options *options, tfm_error *error) {
  g->error = error;
  g->n_items = g->prompts->n;
  if (g->n_items < 0 || g->prompts->width < 0) return generation_refuse(g, "the prompts have a negative size");
  if (!(g->items = generation_allocate(g, g->n_items, sizeof *g->items))) return generation_no_memory(g);
  tfm_status status = generation_read_options(g, options);
  if (status != TFM_OK) return status;
  const uint64_t n_eos = g->options.eos_token_ids.n;
  const int64_t all = g->beams * g->vocab;
  const int64_t candidates = (n_eos < 1 ? 2 : 1 + (int64_t)n_eos) * g->beams;
  g->heap_size = g->beams == 1 ? g->vocab : candidates < all ? candidates : all;
  return make_room(g, g->n_items * g->beams) ? TFM_OK : generation_no_memory(g);
}

static void end(Generation *g) {
  while (g->n_blocks) free(g->blocks[--g->n_blocks]);
}

tfm_status generated_make(Generation *g, tfm_generated *generated, int64_t n, int64_t width, bool has_scores) {
  int64_t elements;
  if (__builtin_mul_overflow(n, width, &elements)) return generation_no_memory(g);
  generated->sequences = calloc((size_t)elements + 1, sizeof *generated->sequences);
  generated->lengths = calloc((size_t)n + 1, sizeof *generated->lengths);
  generated->scores = has_scores ? calloc((size_t)n + 1, sizeof *generated->scores) : NULL;
  const bool of_tokens = g->options.return_token_scores;
  generated->token_scores = of_tokens ? calloc((size_t)elements + 1, sizeof *generated->token_scores) : NULL;
  if (!generated->sequences || !generated->lengths || (has_scores && !generated->scores) ||
      (of_tokens && !generated->token_scores))
    return generation_no_memory(g);
  for (int64_t i = 0; i < elements; i++) generated->sequences[i] = g->pad;
  generated->n = n;
  generated->width = width;
  return TFM_OK;
}

void tfm_generated_free(tfm_generated *generated) {
  if (!generated) return;
  free(generated->sequences);
  free(generated->lengths);
  free(generated->scores);
  free(generated->token_scores);
  *generated = (tfm_generated){0};
}

tfm_status tfm_generate(const tfm_generate_model *model, const tfm_prompts *prompts,
                        const tfm_generate_options *options, tfm_generated *generated, tfm_error *error) {
  Generation g = {.model = model, .prompts = prompts};
  tfm_generated result = {0};
  tfm_status status = begin(&g, options, error);
  if (status == TFM_OK) status = g.beams > 1 ? generate_beams(&g, &result) : generate_single(&g, &result);
  end(&g);
  if (status != TFM_OK) {
    tfm_generated_free(&result);
    return status;
  }
  *generated = result;
  return tfm_succeed(error);
}

// ---- the first step ----

static tfm_status first_step(Generation *g, float *probabilities) {
  for (int64_t i = 0; i < g->n_items; i++)
    generation_add_row(g, i, -1, g->prompts->tokens + i * g->prompts->width, g->items[i].start);
  tfm_status status = g->n_items ? generation_call(g) : TFM_OK;
  for (int64_t i = 0; i < g->n_items && status == TFM_OK; i++) {
    RowScores row;
    status = process_row(g, i, &row);
    if (status != TFM_OK) return status;
    row_settle(g, &row);
    if (row_best(g, &row) == TFM_NO_TOKEN) return generation_refuse_row(g, i, g->row_lengths[i]);
    if (g->options.do_sample) sample_restrict(g, &row);
    sample_probabilities(g, &row, probabilities + i * g->vocab);
  }
  return status;
}

tfm_status tfm_generate_first_step(const tfm_generate_model *model, const tfm_prompts *prompts,
                                   const tfm_generate_options *options, float *probabilities, tfm_error *error) {
  Generation g = {.model = model, .prompts = prompts};
  tfm_status status = begin(&g, options, error);
  if (status == TFM_OK) status = first_step(&g, probabilities);
  end(&g);
  return status == TFM_OK ? tfm_succeed(error) : status;
}
