/* A decoder as the model of tfm_generate: rows of a call continue rows of the call before.
 *
 * In: rows of tokens with their parents. Out: logits, or the best tokens. The decoder's rows become those of the call;
 * tokens that they have already are not computed again. Refused: what tfm_decoder_step refuses. */
#include "decode/calls.h"
#include "decode/decoder_memory.h"
#include "decode/rows.h"
#include "machine/fp_mode.h"
#include "steps/walker.h"

/* The rows of a first call replace all rows of the batch before. */
static tfm_status start_rows(tfm_decoder *decoder, const tfm_step_rows *rows, tfm_error *error) {
  rows_forget(decoder);
  tfm_status status = TFM_OK;
  for (int64_t i = 0, row; i < rows->n && !status; i++)
    status = tfm_decoder_join(decoder, rows->items[i], &row, error);
  return status;
}

/* The first call of a generation has no parents. */
static bool is_first_call(const tfm_step_rows *rows) {
  for (int64_t i = 0; i < rows->n; i++)
    if (rows->parents[i] >= 0) return false;
  return true;
}

/* The decoder's rows become those that the rows of the call continue. */
static tfm_status match_rows(tfm_decoder *decoder, const tfm_step_rows *rows, tfm_error *error) {
  tfm_status status = decoder_check_begun(decoder, error);
  if (status) return status;
  return is_first_call(rows) ? start_rows(decoder, rows, error)
                             : tfm_decoder_reorder(decoder, rows->n, rows->parents, error);
}

/* calls.model_rows gets the tokens that the rows do not have yet: usually one each. */
static tfm_status continue_rows(tfm_decoder *decoder, const tfm_step_rows *rows, tfm_error *error) {
  tfm_status status = match_rows(decoder, rows, error);
  for (int64_t i = 0; i < rows->n && !status; i++) {
    int64_t known = decoder->rows.row[i].length;
    calls_continue_row(decoder, i, rows->tokens[i] + known, rows->lengths[i] - known, 1);
  }
  return status;
}

/* The logsumexp of a row is the same with a matrix of logits and without, to the bit: which of the two a generation
 * asks for depends on options that must not decide between beams. */
static tfm_status model_logits(void *user, const tfm_step_rows *rows, float *logits, float *logsumexp,
                               tfm_error *error) {
  tfm_decoder *decoder = user;
  tfm_status status = continue_rows(decoder, rows, error);
  float *of_program = decoder->best.consumed.panels ? NULL : logsumexp;
  if (!status) status = tfm_decoder_step(decoder, rows->n, decoder->calls.model_rows, 1, logits, of_program, error);
  if (!status && logsumexp && !of_program) best_logsumexp(&decoder->best, logits, rows->n, logsumexp);
  return status;
}

static tfm_status model_best(void *user, const tfm_step_rows *rows, const tfm_best_call *call, tfm_error *error) {
  tfm_decoder *decoder = user;
  tfm_status status = continue_rows(decoder, rows, error);
  return status ? status : decoder_step_best(decoder, rows->n, decoder->calls.model_rows, call, error);
}

/* Rows end with the guesses of the call before, of which those that were wrong are taken back. Of a row with states all
 * are, and it reads the right ones again. */
static tfm_status take_guesses_back(tfm_decoder *decoder, const tfm_step_rows *rows, const int64_t *guesses,
                                    tfm_error *error) {
  tfm_status status = TFM_OK;
  for (int64_t i = 0; i < rows->n && !status; i++) {
    const int64_t parent = rows->parents[i], right = rows->lengths[i] - guesses[i] - 1;
    if (parent < 0 || tfm_decoder_length(decoder, parent) <= right) continue;
    status = tfm_decoder_truncate(decoder, parent, tfm_decoder_keeps(decoder, parent, right), error);
  }
  return status;
}

static tfm_status model_guessed(void *user, const tfm_step_rows *rows, const int64_t *guesses, float *logits,
                                tfm_error *error) {
  tfm_decoder *decoder = user;
  tfm_status status = take_guesses_back(decoder, rows, guesses, error);
  if (!status) status = match_rows(decoder, rows, error);
  for (int64_t i = 0; i < rows->n && !status; i++) {
    const int64_t known = decoder->rows.row[i].length;
    calls_continue_row(decoder, i, rows->tokens[i] + known, rows->lengths[i] - known, guesses[i] + 1);
  }
  return status ? status : tfm_decoder_step(decoder, rows->n, decoder->calls.model_rows, 1, logits, NULL, error);
}

typedef struct SharedWork {
  void (*work)(void *context, int64_t part, int64_t parts);
  void *context;
} SharedWork;

/* The floating-point mode is the runtime's in every thread, so that sums have the same bits. */
static void do_part(void *argument, PoolMember *member) {
  const SharedWork *shared = argument;
  uint64_t fp_mode = fp_mode_enter();
  shared->work(shared->context, member->thread, member->active);
  fp_mode_leave(fp_mode);
}

/* By the threads of the step, which are still awake. */
static void model_share(void *user, void (*work)(void *context, int64_t part, int64_t parts), void *context) {
  const tfm_decoder *decoder = user;
  Pool *pool = decoder->step->pool;
  SharedWork shared = {work, context};
  bool claimed = decoder->step->threads > 1 && pool_claim(pool);
  pool_run(pool, claimed ? pool_threads_now(pool, pool_threads(pool)) : 1, do_part, &shared);
  if (claimed) pool_release(pool);
}

tfm_generate_model tfm_decoder_model(tfm_decoder *decoder) {
  return (tfm_generate_model){.vocab = decoder->decoding->vocab,
                              .user = decoder,
                              .logits = model_logits,
                              .gives_logsumexp = decoder->decoding->logsumexp != TFM_NONE,
                              .share = model_share,
                              .best = decoder->best.consumed.panels ? model_best : NULL,
                              .most_best = decoder->best.consumed.panels ? MOST_BEST : 0,
                              .guessed = model_guessed};
}
