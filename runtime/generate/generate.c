/* A generation: tfm_generate, which checks a call, allocates what the loops need, and runs greedy decoding, sampling or
 * beam search; and what every part of it uses: its memory and refusals, rows of tokens that grow, and the result.
 *
 * In: a model, prompts, options. Out: the sequences, whose memory is the caller's. Refused: options out of their
 * range, prompts without room for a token, logits that are NaN or +inf or all -inf, rows all of whose tokens are
 * forbidden. When a call fails, nothing is returned and all memory is given back. Memory comes from the C library, not
 * from a context's allocator: tfm_generate knows no context, and its result is freed by tfm_generated_free alone. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generation.h"
#include "logit_row.h"

// ---- memory and errors ----

/* The blocks are listed in the generation, which frees all of them at its end, also after an error. */
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

void generation_tell(Generation *g, int64_t item, int32_t token) {
  const tfm_generate_options *o = &g->options;
  if (!o->on_token) return;
  generation_enter_caller(g);
  if (o->on_token(o->on_token_user, item, token)) g->is_stopped = true;
  generation_leave_caller(g);
}

int64_t generation_first_length(const Generation *g) {
  enum { ROOM = 4096 }; /* new tokens; max_length may be 2^31 without meaning it */
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

/* Doubles the room, so that the cost of copying stays in proportion to the tokens. */
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

/* Lists of ends have one or two tokens. */
bool generation_is_eos(const Generation *g, int64_t token) {
  for (uint64_t i = 0; i < g->options.eos_token_ids.n; i++)
    if (g->options.eos_token_ids.tokens[i] == token) return true;
  return false;
}

// ---- refusals ----

tfm_status generation_refuse_scores(Generation *g, int64_t row, bool are_numbers) {
  return generation_refuse(g, "row %lld: the logits of token %lld are %s", (long long)g->row_items[row],
                           (long long)g->row_lengths[row], are_numbers ? "all -inf" : "not finite");
}

tfm_status generation_refuse_row(Generation *g, int64_t item, int64_t length) {
  return generation_refuse(g, "row %lld: every token is forbidden as token %lld", (long long)item, (long long)length);
}

// ---- the result ----

/* One element more than needed, because calloc of nothing may return NULL. What was made before a failure is freed by
 * tfm_generate. */
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

/* Beam search looks at max(2, 1 + ends) * beams candidates, as transformers does: even if all ends are among them, as
 * many others as there are beams remain. The heap also serves top_k of sampling, which may want the whole
 * vocabulary. */
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
  fp_mode_leave(g->callers_mode);
}

tfm_status tfm_generate(const tfm_generate_model *model, const tfm_prompts *prompts,
                        const tfm_generate_options *options, tfm_generated *generated, tfm_error *error) {
  Generation g = {.model = model, .prompts = prompts, .callers_mode = fp_mode_enter()};
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

/* One call for all prompts; greedy decoding reports its probabilities without the restrictions of sampling. */
static tfm_status first_step(Generation *g, float *probabilities) {
  for (int64_t i = 0; i < g->n_items; i++)
    generation_add_row(g, i, -1, g->prompts->tokens + i * g->prompts->width, g->items[i].start);
  tfm_status status = g->n_items ? generation_call(g) : TFM_OK;
  for (int64_t i = 0; i < g->n_items && status == TFM_OK; i++) {
    RowScores row;
    status = generation_process_row(g, i, &row);
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
  Generation g = {.model = model, .prompts = prompts, .callers_mode = fp_mode_enter()};
  tfm_status status = begin(&g, options, error);
  if (status == TFM_OK) status = first_step(&g, probabilities);
  end(&g);
  return status == TFM_OK ? tfm_succeed(error) : status;
}
