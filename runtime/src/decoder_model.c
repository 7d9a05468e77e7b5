/* For tfm_generate: rows that continue rows of the call before. Row i of a call is the decoder's row i. */
#include "decoder.h"
#include "fp_mode.h"
#include "generation.h"

int64_t tfm_decoder_longest_row(const tfm_generate_options *options, int64_t start) {
  int64_t least = least_of(greatest_of(start, 1), TFM_DECODER_MOST);
  return least_of(greatest_of(generation_limit(options, least), least), TFM_DECODER_MOST);
}

/* The rows of a first call join anew. */
static tfm_status start_rows(tfm_decoder *decoder, const tfm_step_rows *rows, tfm_error *error) {
  decoder_forget_rows(decoder);
  tfm_status status = TFM_OK;
  for (int64_t i = 0, row; i < rows->n && !status; i++) status = tfm_decoder_join(decoder, rows->items[i], &row, error);
  return status;
}

static bool is_first_call(const tfm_step_rows *rows) {
  for (int64_t i = 0; i < rows->n; i++)
    if (rows->parents[i] >= 0) return false;
  return true;
}

/* The decoder's rows become those of the call; the tokens that they have not got yet are in decoder->model_rows. */
static tfm_status continue_rows(tfm_decoder *decoder, const tfm_step_rows *rows, tfm_error *error) {
  if (!decoder->begun) return decoder_check_row(decoder, 0, error);
  tfm_status status = is_first_call(rows) ? start_rows(decoder, rows, error)
                                          : tfm_decoder_reorder(decoder, rows->n, rows->parents, error);
  for (int64_t i = 0; i < rows->n && !status; i++) {
    int64_t known = decoder->rows[i].length;
    decoder->model_rows[i] = (tfm_decoder_row){i, rows->tokens[i] + known, rows->lengths[i] - known};
  }
  return status;
}

static tfm_status model_scores(void *user, const tfm_step_rows *rows, float *scores, float *log_sums,
                               tfm_error *error) {
  tfm_decoder *decoder = user;
  tfm_status status = continue_rows(decoder, rows, error);
  return status ? status : tfm_decoder_step(decoder, rows->n, decoder->model_rows, 1, scores, log_sums, error);
}

static tfm_status model_best(void *user, const tfm_step_rows *rows, const tfm_best_call *call, tfm_error *error) {
  tfm_decoder *decoder = user;
  tfm_status status = continue_rows(decoder, rows, error);
  return status ? status : decoder_step_best(decoder, rows->n, decoder->model_rows, call, error);
}

typedef struct SharedWork {
  void (*work)(void *context, int64_t part, int64_t parts);
  void *context;
} SharedWork;

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
  pool_run(pool, claimed ? pool_threads(pool) : 1, do_part, &shared);
  if (claimed) pool_release(pool);
}

tfm_generate_model tfm_decoder_model(tfm_decoder *decoder) {
  return (tfm_generate_model){.vocab = decoder->decoding->vocab,
                              .user = decoder,
                              .scores = model_scores,
                              .gives_log_sums = decoder->decoding->log_sum != TFM_NONE,
                              .share = model_share,
                              .best = decoder->step->consumer ? model_best : NULL,
                              .most_best = decoder->step->consumer ? MOST_BEST : 0};
}
