/* tfm_generate: checks a call, allocates what the loops need, and runs greedy decoding, sampling or beam search.
 *
 * In: a model, prompts, options. Out: the sequences, whose memory is the caller's. Refused: options out of their
 * range, prompts without room for a token, logits that are NaN or +inf or all -inf, rows all of whose tokens are
 * forbidden. When a call fails, nothing is returned and all memory is given back. */
#include <stdlib.h>

#include "generate/generation_state.h"
#include "generate/guesses.h"
#include "decode/loops/logit_row.h"

// ---- beginning and end ----

/* Room for a call of `rows` rows, and for looking at one of them. */
static bool make_row_room(Generation *g, int64_t rows) {
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
  Chooser *chooser = &g->chooser;
  chooser->changed = generation_allocate(g, g->vocab, sizeof *chooser->changed);
  chooser->stamps = generation_allocate(g, g->vocab, sizeof *chooser->stamps);
  chooser->written = generation_allocate(g, g->vocab, sizeof *chooser->written);
  chooser->heap = generation_allocate(g, g->heap_size, sizeof *chooser->heap);
  return g->row_tokens && g->row_lengths && g->row_items && g->row_parents && g->scores && g->bounds && g->shifts &&
         (g->logsumexp || !wants_sums) && chooser->changed && chooser->stamps && chooser->written && chooser->heap;
}

/* Of a call: the beams of each item, or one for each guess and one more. */
static int64_t most_rows(const Generation *g) {
  if (!generation_is_guessing(g)) return g->n_items * g->beams;
  return g->options.guesses < 0 ? g->n_items + MOST_GUESSES : g->n_items * (g->options.guesses + 1);
}

/* Beam search looks at max(2, 1 + ends) * beams candidates, as transformers does: even if all ends are among them, as
 * many others as there are beams remain. The heap also serves top_k of sampling, which may want the whole
 * vocabulary. */
static tfm_status begin_generation(Generation *g, const tfm_generate_options *options, tfm_error *error) {
  g->error = error;
  g->n_items = g->prompts->n;
  if (g->n_items < 0 || g->prompts->width < 0) return generation_refuse(g, "the prompts have a negative size");
  if (!(g->items = generation_allocate(g, g->n_items, sizeof *g->items))) return generation_no_memory(g);
  tfm_status status = generation_read_options(g, options);
  if (status != TFM_OK) return status;
  g->chooser.options = &g->options;
  g->chooser.vocab = g->vocab;
  g->chooser.error = error;
  const uint64_t n_eos = g->options.eos_token_ids.n;
  const int64_t all = g->beams * g->vocab;
  const int64_t candidates = (n_eos < 1 ? 2 : 1 + (int64_t)n_eos) * g->beams;
  g->heap_size = g->beams == 1 ? g->vocab : candidates < all ? candidates : all;
  return make_row_room(g, most_rows(g)) ? TFM_OK : generation_no_memory(g);
}

static void end(Generation *g) {
  while (g->n_blocks) free(g->blocks[--g->n_blocks]);
  fp_mode_leave(g->chooser.callers_mode);
}

tfm_status tfm_generate(const tfm_generate_model *model, const tfm_prompts *prompts,
                        const tfm_generate_options *options, tfm_generated *generated, tfm_error *error) {
  Generation g = {.model = model, .prompts = prompts, .chooser.callers_mode = fp_mode_enter()};
  tfm_generated result = {0};
  tfm_status status = begin_generation(&g, options, error);
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
    row_settle(&g->chooser, &row);
    if (row_best(&g->chooser, &row) == TFM_NO_TOKEN) return generation_refuse_row(g, i, g->row_lengths[i]);
    if (g->options.do_sample) sample_restrict(&g->chooser, &row);
    sample_probabilities(&g->chooser, &row, probabilities + i * g->vocab);
  }
  return status;
}

tfm_status tfm_generate_first_step(const tfm_generate_model *model, const tfm_prompts *prompts,
                                   const tfm_generate_options *options, float *probabilities, tfm_error *error) {
  Generation g = {.model = model, .prompts = prompts, .chooser.callers_mode = fp_mode_enter()};
  tfm_status status = begin_generation(&g, options, error);
  if (status == TFM_OK) status = first_step(&g, probabilities);
  end(&g);
  return status == TFM_OK ? tfm_succeed(error) : status;
}
