/* Threads that write with the same models at once get what one thread got alone: sequences of whole generations, and scores
 * of steps. usage: writing_threads RUNS */
#include "writing.h"

#include "callers.h"
#include "teller.h"

enum { CALLERS = 8, KINDS = 5 /* of what a caller does */, WIDTH = 5 };

static translator_model *translator;
static speaker_model *speaker;
static averager_model *averager;
static teller_model *teller;
static tfm_pool *pool;
static int32_t src[ITEMS * SOURCE], tgt[ITEMS * WIDTH];

typedef struct Contexts { /* of one caller */
  translator_context *translator;
  speaker_context *speaker;
  averager_context *averager;
  teller_context *teller;
} Contexts;

typedef struct Result {
  int64_t n, width;
  int32_t tokens[ITEMS * LONGEST];
  float scores[ITEMS * VOCAB];
} Result;

static Result expected[KINDS];

static tfm_status make(Contexts *made, int32_t threads, tfm_pool *shared, tfm_error *error) {
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads, .spin_us = threads > 2 ? -1 : 20,
                                       .pool = shared};
  tfm_status status = translator_context_new(translator, &options, &made->translator, error);
  if (!status) status = speaker_context_new(speaker, &options, &made->speaker, error);
  if (!status) status = averager_context_new(averager, &options, &made->averager, error);
  return status ? status : teller_context_new(teller, &options, &made->teller, error);
}

static void drop(Contexts *made) {
  translator_context_free(made->translator);
  speaker_context_free(made->speaker);
  averager_context_free(made->averager);
  teller_context_free(made->teller);
}

static void keep(tfm_generated *written, Result *result) {
  result->n = written->n;
  result->width = written->width;
  memcpy(result->tokens, written->sequences, sizeof(int32_t) * (size_t)(written->n * written->width));
  if (written->scores) memcpy(result->scores, written->scores, sizeof(float) * (size_t)written->n);
  translator_generated_free(written);
}

static tfm_status translate(Contexts *with, Result *result, tfm_error *error) {
  const translator_args args = {.batch = ITEMS, .source = SOURCE, .src = src};
  tfm_generate_options options;
  tfm_generated written;
  translator_generate_defaults(&options);
  options.num_beams = 4;
  tfm_status status = translator_generate(with->translator, &args, NULL, &options, &written, error);
  if (!status) keep(&written, result);
  return status;
}

static tfm_status speak(Contexts *with, Result *result, tfm_error *error) {
  const speaker_args args = {.batch = ITEMS, .time = WIDTH, .tgt = tgt};
  tfm_generate_options options;
  tfm_generated written;
  speaker_generate_defaults(&options);
  options.do_sample = 1;
  options.max_new_tokens = 30;
  tfm_status status = speaker_generate(with->speaker, &args, (const int64_t[]){5, 2, 5}, &options, &written, error);
  if (!status) keep(&written, result);
  return status;
}

/* Rows of a ragged size. */
static tfm_status tell(Contexts *with, Result *result, tfm_error *error) {
  const teller_args args = {.batch = ITEMS, .time = WIDTH, .tgt = tgt};
  tfm_generate_options options;
  tfm_generated written;
  teller_generate_defaults(&options);
  options.num_beams = 3;
  tfm_status status = teller_generate(with->teller, &args, (const int64_t[]){1, 5, 4}, &options, &written, error);
  if (!status) keep(&written, result);
  return status;
}

static tfm_status average(Contexts *with, Result *result, tfm_error *error) {
  const averager_args args = {.batch = ITEMS, .time = WIDTH, .tgt = tgt};
  tfm_generated written;
  tfm_status status = averager_generate(with->averager, &args, NULL, NULL, &written, error);
  if (!status) keep(&written, result);
  return status;
}

/* Steps of one's own: the scores of the last one. */
static tfm_status search(Contexts *with, Result *result, tfm_error *error) {
  const translator_args args = {.batch = ITEMS, .source = SOURCE, .src = src};
  tfm_decoder_row rows[ITEMS];
  tfm_status status = translator_begin(with->translator, &args, ITEMS, LONGEST, error);
  for (int64_t i = 0; i < ITEMS && !status; i++) {
    rows[i] = (tfm_decoder_row){.tokens = tgt + i * WIDTH, .n_tokens = 3};
    status = translator_join(with->translator, i, &rows[i].row, error);
  }
  if (!status) status = translator_step(with->translator, ITEMS, rows, 1, result->scores, NULL, error);
  if (!status) status = translator_reorder(with->translator, ITEMS, (const int64_t[]){2, 2, 0}, error);
  for (int k = 0; k < WIDTH && !status; k++) {
    for (int64_t i = 0; i < ITEMS; i++) rows[i] = (tfm_decoder_row){i, tgt + i * WIDTH + k, 1, 0};
    status = translator_step(with->translator, ITEMS, rows, 1, result->scores, NULL, error);
  }
  return status;
}

static tfm_status (*const kinds[KINDS])(Contexts *, Result *, tfm_error *) = {translate, speak, average, search, tell};

static void *call(void *argument) {
  Caller *caller = argument;
  Contexts with = {0};
  caller->failed = make(&with, 1 + caller->number % 3, caller->number % 4 == 3 ? pool : NULL, &caller->error) != TFM_OK;
  for (int run = 0; run < caller->runs && !caller->failed; run++) {
    Result result = {0};
    int kind = (run + caller->number) % KINDS;
    caller->failed = kinds[kind](&with, &result, &caller->error) || memcmp(&result, &expected[kind], sizeof result) != 0;
  }
  drop(&with);
  return NULL;
}

// ---- cancelling ----

enum { MOST_TOKENS = 4000, TIMES = 20 };

typedef struct Cancelled {
  speaker_context *context;
  atomic_int ended, n_cancelled; /* how many runs have ended, so many of them cancelled */
} Cancelled;

static void *write_long(void *argument) {
  Cancelled *c = argument;
  const speaker_args args = {.batch = ITEMS, .time = WIDTH, .tgt = tgt};
  tfm_generate_options options;
  tfm_generated written;
  speaker_generate_defaults(&options);
  options.eos_token_ids.n = 0;
  options.max_new_tokens = MOST_TOKENS;
  for (int i = 0; i < TIMES; i++) {
    tfm_status status = speaker_generate(c->context, &args, NULL, &options, &written, NULL);
    speaker_generated_free(&written);
    if (i % 3 == 0) speaker_end(c->context);
    if (status == TFM_E_CANCELLED) atomic_fetch_add(&c->n_cancelled, 1);
    atomic_fetch_add(&c->ended, 1);
  }
  return NULL;
}

/* Each of the runs is cancelled at some moment, or before it began; then no run is lost but that one. */
static int test_cancelling(void) {
  static Cancelled c;
  Contexts with = {0};
  pthread_t thread;
  tfm_error error;
  if (make(&with, 2, NULL, &error)) return 1;
  c.context = with.speaker;
  if (pthread_create(&thread, NULL, write_long, &c)) return 1;
  while (atomic_load(&c.ended) < TIMES) speaker_cancel(c.context);
  pthread_join(thread, NULL);
  Result result = {0};
  int failed = speak(&with, &result, &error) || memcmp(&result, &expected[1], sizeof result) != 0;
  drop(&with);
  if (!atomic_load(&c.n_cancelled)) fprintf(stderr, "no run was cancelled\n");
  return failed || !atomic_load(&c.n_cancelled);
}

static int prepare(tfm_error *error) {
  Contexts alone = {0};
  fill_tokens(src, ITEMS * SOURCE, 3);
  fill_tokens(tgt, ITEMS * WIDTH, 4);
  tfm_status status = translator_open(NULL, &translator, error);
  if (!status) status = speaker_open(NULL, &speaker, error);
  if (!status) status = averager_open(NULL, &averager, error);
  if (!status) status = teller_open(NULL, &teller, error);
  if (!status) status = speaker_pool_new(2, &pool, error);
  if (!status) status = make(&alone, 1, NULL, error);
  for (int i = 0; i < KINDS && !status; i++) status = kinds[i](&alone, &expected[i], error);
  drop(&alone);
  return status;
}

int main(int argc, char **argv) {
  tfm_error error;
  if (argc != 2) return 2;
  if (prepare(&error)) return fprintf(stderr, "%s\n", error.message), 1;
  static Caller callers[CALLERS];
  int failed = run_callers(callers, CALLERS, atoi(argv[1]), call) + test_cancelling();
  speaker_pool_free(pool);
  translator_close(translator);
  speaker_close(speaker);
  averager_close(averager);
  teller_close(teller);
  return failed || n_wrong;
}
