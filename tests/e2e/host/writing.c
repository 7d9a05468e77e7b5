/* A program's own search with a compiled model: what steps compute is, bit by bit, what forward computes, however rows
 * are cut, copied, shortened; errors change nothing; steps allocate nothing. Then generate, beside a loop of forwards,
 * and in all of the caller's rounding modes.
 *
 * usage: writing THREADS */
#include <math.h>
#include <xmmintrin.h>

#include "tfm/generate.h"
#include "writing.h"

enum { TO_NEAREST = 0x1f80, FLAGS = 0x3f }; /* of MXCSR; the flags say what happened so far */

static tfm_error error;
static translator_context *context, *other; /* of one model */
static int32_t src[ITEMS * SOURCE];

typedef struct Row { /* what a row of the decoder should hold */
  int64_t item, number;
  int32_t tokens[LONGEST];
  int n;
} Row;

static translator_args args_of(int64_t time, const int32_t *tgt) {
  return (translator_args){.struct_size = sizeof(translator_args), .batch = ITEMS, .source = SOURCE, .time = time, .src = src, .tgt = tgt};
}

/* logits[row->n][VOCAB] of forward alone, in the other context. */
static void expect(const Row *row, float *logits) {
  translator_args args = args_of(row->n, row->tokens);
  args.batch = 1;
  args.src = src + row->item * SOURCE;
  args.logits = logits;
  args.logits_capacity = (int64_t)LONGEST * VOCAB;
  SUCCEEDS(translator_forward(other, &args, &error));
}

static int same_scores(const Row *row, int first, int n, const float *scores) {
  static float logits[LONGEST * VOCAB];
  expect(row, logits);
  return memcmp(logits + (size_t)first * VOCAB, scores, sizeof(float) * (size_t)n * VOCAB) == 0;
}

static void begin(void) {
  translator_args args = args_of(0, NULL);
  SUCCEEDS(translator_begin(context, &args, 8, LONGEST, &error));
}

static void join(Row *row, int64_t item) {
  row->item = item;
  row->n = 0;
  SUCCEEDS(translator_join(context, item, &row->number, &error));
  CHECK(translator_length(context, row->number) == 0);
}

/* Each of the rows goes on by as many tokens as `counts` says, of which the last `kept` are scored; without allocating. */
static void step(Row *rows, int n, const int *counts, int kept, uint32_t seed) {
  static float scores[8 * 16 * VOCAB], logsumexp[8 * 16];
  tfm_decoder_row parts[8];
  for (int i = 0; i < n; i++) {
    fill_tokens(rows[i].tokens + rows[i].n, counts[i], seed + (uint32_t)i);
    parts[i] = (tfm_decoder_row){rows[i].number, rows[i].tokens + rows[i].n, counts[i], 0};
    rows[i].n += counts[i];
  }
  long before = atomic_load(&n_allocations);
  SUCCEEDS(translator_step(context, n, parts, kept, scores, logsumexp, &error));
  CHECK(atomic_load(&n_allocations) == before);
  for (int i = 0; i < n; i++) {
    CHECK(translator_length(context, rows[i].number) == rows[i].n);
    CHECK(same_scores(&rows[i], rows[i].n - kept, kept, scores + (size_t)i * (size_t)kept * VOCAB));
  }
  for (int i = 0; i < n * kept; i++) CHECK(logsumexp[i] > -100 && logsumexp[i] < 100);
}

// ---- rows ----

static void test_steps(Row *rows) {
  begin();
  for (int i = 0; i < 3; i++) join(&rows[i], i);
  step(rows, 1, (int[]){20}, 7, 1);
  step(rows + 1, 2, (int[]){1, 5}, 1, 2);
  for (uint32_t i = 0; i < 18; i++) step(rows + 1, 1, (int[]){1}, 1, 10 + i);
  step(rows, 3, (int[]){3, 4, 2}, 2, 40);
  step(rows, 3, (int[]){1, 1, 1}, 1, 50);
}

static void test_reorder(Row *rows) {
  const int64_t parents[] = {rows[1].number, rows[1].number, rows[0].number, rows[2].number, rows[1].number};
  const int from[] = {1, 1, 0, 2, 1};
  Row before[3];
  memcpy(before, rows, sizeof before);
  SUCCEEDS(translator_reorder(context, 5, parents, &error));
  for (int i = 0; i < 5; i++) {
    rows[i] = before[from[i]];
    rows[i].number = i;
    CHECK(translator_length(context, i) == rows[i].n);
  }
  CHECK(translator_length(context, 5) == -1);
  step(rows, 5, (int[]){1, 1, 1, 1, 1}, 1, 60);
  step(rows, 5, (int[]){2, 1, 1, 3, 5}, 1, 70);
  SUCCEEDS(translator_reorder(context, 2, (const int64_t[]){3, 0}, &error));
  memcpy(before, rows, sizeof before);
  rows[0] = rows[3];
  rows[1] = before[0];
  rows[0].number = 0;
  rows[1].number = 1;
  step(rows, 2, (int[]){1, 1}, 1, 80);
}

static void test_truncate(Row *row) {
  for (int less = 1; less < 14; less += 6) {
    SUCCEEDS(translator_truncate(context, row->number, row->n - less, &error));
    row->n -= less;
    CHECK(translator_length(context, row->number) == row->n);
    step(row, 1, (int[]){2}, 2, 90 + (uint32_t)less);
  }
  SUCCEEDS(translator_truncate(context, row->number, 0, &error));
  row->n = 0;
  step(row, 1, (int[]){4}, 4, 99);
}

static void test_leave(Row *rows) {
  Row more;
  SUCCEEDS(translator_leave(context, rows[0].number, &error));
  CHECK(translator_length(context, rows[0].number) == -1);
  join(&more, 2);
  step(&more, 1, (int[]){6}, 3, 101);
  step(&rows[1], 1, (int[]){1}, 1, 102);
}

// ---- errors ----

static void test_errors(void) {
  Row rows[2];
  float scores[VOCAB];
  int64_t number;
  const int32_t good[] = {4, 5}, bad[] = {4, VOCAB};
  const tfm_decoder_row unknown = {7, good, 1, 0}, none = {0, good, 0}, outside = {0, bad, 2};
  translator_args args = args_of(0, NULL);
  begin();
  join(&rows[0], 0);
  step(rows, 1, (int[]){5}, 1, 7);
  const tfm_decoder_row twice[] = {{rows[0].number, good, 1, 0}, {rows[0].number, good, 1, 0}};
  REFUSED(translator_join(context, ITEMS, &number, &error), TFM_E_INPUT);
  REFUSED(translator_step(context, 1, &unknown, 1, scores, NULL, &error), TFM_E_INPUT);
  REFUSED(translator_step(context, 1, &none, 1, scores, NULL, &error), TFM_E_INPUT);
  REFUSED(translator_step(context, 1, &outside, 1, scores, NULL, &error), TFM_E_INPUT);
  REFUSED(translator_step(context, 2, twice, 1, scores, NULL, &error), TFM_E_INPUT);
  REFUSED(translator_truncate(context, rows[0].number, 6, &error), TFM_E_INPUT);
  REFUSED(translator_reorder(context, 1, (const int64_t[]){5}, &error), TFM_E_INPUT);
  REFUSED(translator_leave(context, 3, &error), TFM_E_INPUT);
  CHECK(translator_length(context, rows[0].number) == 5);
  step(rows, 1, (int[]){2}, 2, 8);
  args.src = NULL;
  REFUSED(translator_begin(context, &args, 1, 5, &error), TFM_E_INPUT);
  REFUSED(translator_step(context, 1, &unknown, 1, scores, NULL, &error), TFM_E_USAGE);
  args = args_of(0, NULL);
  REFUSED(translator_begin(context, &args, -1, 5, &error), TFM_E_INPUT);
  REFUSED(translator_begin(NULL, &args, 1, 5, &error), TFM_E_USAGE);
  args.batch = -1;
  REFUSED(translator_begin(context, &args, 1, 5, &error), TFM_E_INPUT);
  translator_end(context);
  REFUSED(translator_join(context, 0, &number, &error), TFM_E_USAGE);
  CHECK(translator_length(context, 0) == -1);
  translator_end(NULL);
}

// ---- generate ----

/* A model for tfm_generate that runs forward on whole rows, one by one. */
static tfm_status forward_scores(void *user, const tfm_step_rows *rows, float *scores, float *logsumexp, tfm_error *failure) {
  static float logits[LONGEST * VOCAB];
  (void)user, (void)logsumexp, (void)failure;
  for (int64_t i = 0; i < rows->n; i++) {
    Row row = {.item = rows->items[i], .n = (int)rows->lengths[i]};
    memcpy(row.tokens, rows->tokens[i], sizeof(int32_t) * (size_t)row.n);
    expect(&row, logits);
    memcpy(scores + i * VOCAB, logits + (size_t)(row.n - 1) * VOCAB, sizeof(float) * VOCAB);
  }
  return TFM_OK;
}

static void test_generate(const tfm_generate_options *options, const int32_t *tgt, int64_t width, const int64_t *lengths) {
  const tfm_generate_model model = {.vocab = VOCAB, .logits = forward_scores};
  const int32_t starts[ITEMS] = {1, 1, 1};
  const tfm_prompts prompts = {.n = ITEMS, .width = tgt ? width : 1, .tokens = tgt ? tgt : starts, .lengths = lengths};
  const translator_args args = args_of(width, tgt);
  tfm_generated wanted, got;
  SUCCEEDS(tfm_generate(&model, &prompts, options, &wanted, &error));
  SUCCEEDS(translator_generate(context, &args, lengths, options, &got, &error));
  CHECK(got.n == wanted.n && got.width == wanted.width && got.n_tokens == wanted.n_tokens);
  CHECK(memcmp(got.sequences, wanted.sequences, sizeof(int32_t) * (size_t)(got.n * got.width)) == 0);
  for (int64_t i = 0; i < got.n && got.scores; i++) {
    float apart = got.scores[i] - wanted.scores[i];
    CHECK(apart < 1e-5f && apart > -1e-5f);
  }
  translator_generated_free(&got);
  tfm_generated_free(&wanted);
}

static void test_generating(void) {
  tfm_generate_options options;
  int32_t tgt[ITEMS * 6];
  fill_tokens(tgt, ITEMS * 6, 77);
  translator_generate_defaults(&options);
  CHECK(options.max_length == 24 && options.pad_token_id == 0 && options.num_beams == 1 && options.eos_token_ids.n == 0);
  test_generate(&options, NULL, 0, NULL);
  test_generate(&options, tgt, 6, NULL);
  test_generate(&options, tgt, 6, (const int64_t[]){6, 1, 3});
  options.num_beams = 4;
  options.num_return_sequences = 2;
  test_generate(&options, NULL, 0, NULL);
  test_generate(&options, tgt, 6, (const int64_t[]){2, 6, 3});
  translator_generate_defaults(&options);
  options.do_sample = 1;
  options.seed = 5;
  options.top_k = 10;
  test_generate(&options, NULL, 0, NULL);
}

// ---- what generate calls ----

typedef struct Watch {
  int n_tokens, cancel_at;
  long allocations, later; /* at the second token; more than that */
} Watch;

static int watch(void *user, int64_t item, int32_t token) {
  Watch *w = user;
  (void)item, (void)token;
  long now = atomic_load(&n_allocations);
  if (++w->n_tokens == 2) w->allocations = now;
  if (w->n_tokens > 2) w->later = now - w->allocations;
  if (w->n_tokens == w->cancel_at) translator_cancel(context);
  return 0;
}

static void only_seven(void *user, int64_t item, const int32_t *tokens, int64_t length, float *scores) {
  CHECK(length >= 1 && item < ITEMS && tokens[0] == 1);
  for (int i = 0; i < VOCAB; i++)
    if (i != *(const int *)user) scores[i] = -INFINITY;
}

static void test_callbacks(void) {
  const translator_args args = args_of(0, NULL);
  Watch w = {0};
  int seven = 7;
  tfm_generate_options options;
  tfm_generated got;
  translator_generate_defaults(&options);
  options.on_token = watch;
  options.on_token_user = &w;
  for (options.num_beams = 1; options.num_beams < 5; options.num_beams += 3) {
    w = (Watch){0};
    SUCCEEDS(translator_generate(context, &args, NULL, &options, &got, &error));
    CHECK(w.n_tokens > 10 && w.later == 0);
    translator_generated_free(&got);
  }
  options.num_beams = 1;
  w = (Watch){.cancel_at = 9};
  REFUSED(translator_generate(context, &args, NULL, &options, &got, &error), TFM_E_CANCELLED);
  CHECK(w.n_tokens < 12 && !got.sequences);
  options.on_token = NULL;
  options.on_scores = only_seven;
  options.on_scores_user = &seven;
  SUCCEEDS(translator_generate(context, &args, NULL, &options, &got, &error));
  for (int64_t i = 0; i < got.n * got.width; i++) CHECK(got.sequences[i] == (i % got.width ? 7 : 1));
  translator_generated_free(&got);
  options.temperature = -1;
  REFUSED(translator_generate(context, &args, NULL, &options, &got, &error), TFM_E_INPUT);
  REFUSED(translator_generate(context, &args, NULL, NULL, NULL, &error), TFM_E_USAGE);
  REFUSED(translator_generate(context, &args, (const int64_t[]){1, 1, 1}, NULL, &got, &error), TFM_E_USAGE);
  REFUSED(translator_step(context, 0, NULL, 1, NULL, NULL, &error), TFM_E_USAGE);
}

// ---- the caller's rounding mode ----

static unsigned mode_of_caller;

static int in_mode(void *user, int64_t item, int32_t token) {
  (void)user, (void)item, (void)token;
  CHECK((_mm_getcsr() & ~FLAGS) == mode_of_caller);
  return 0;
}

static tfm_generated write_in_mode(tfm_generate_options *options, unsigned mode) {
  const translator_args args = args_of(0, NULL);
  tfm_generated written;
  options->on_token = in_mode;
  mode_of_caller = mode;
  _mm_setcsr(mode);
  tfm_status status = translator_generate(context, &args, NULL, options, &written, &error);
  unsigned after = _mm_getcsr() & ~FLAGS;
  _mm_setcsr(TO_NEAREST);
  SUCCEEDS(status);
  CHECK(after == mode);
  return written;
}

static void same_bits(const tfm_generated *a, const tfm_generated *b) {
  const size_t n = (size_t)(a->n * a->width);
  CHECK(a->n == b->n && a->width == b->width);
  if (a->n != b->n || a->width != b->width) return;
  CHECK(memcmp(a->sequences, b->sequences, n * sizeof *a->sequences) == 0);
  CHECK(!a->scores || memcmp(a->scores, b->scores, (size_t)a->n * sizeof *a->scores) == 0);
  CHECK(!a->token_scores || memcmp(a->token_scores, b->token_scores, n * sizeof *a->token_scores) == 0);
}

/* Beams with the model's own sums and without, token scores of greedy decoding, samples: the same in every mode. */
static void test_modes(void) {
  const unsigned modes[] = {0x3f80, 0x5f80, 0x7f80};
  for (int kind = 0; kind < 4; kind++) {
    tfm_generate_options options;
    translator_generate_defaults(&options);
    options.num_beams = options.num_return_sequences = kind < 2 ? 4 : 1;
    options.length_penalty = 0.3;
    options.return_token_scores = kind > 0;
    options.do_sample = kind == 3;
    options.temperature = 0.7;
    options.top_p = 0.9;
    tfm_generated wanted = write_in_mode(&options, TO_NEAREST);
    for (int i = 0; i < 3; i++) {
      tfm_generated got = write_in_mode(&options, modes[i]);
      same_bits(&wanted, &got);
      translator_generated_free(&got);
    }
    translator_generated_free(&wanted);
  }
}

// ---- memory ----

/* Each allocation fails once; then the context works as if nothing had been. */
static void test_no_memory(int64_t beams) {
  const translator_args args = args_of(0, NULL);
  tfm_generate_options options;
  tfm_generated wanted, got;
  translator_generate_defaults(&options);
  options.num_beams = beams;
  SUCCEEDS(translator_generate(context, &args, NULL, &options, &wanted, &error));
  int n_failed = 0;
  for (tfm_status status = TFM_E_NOMEM; status == TFM_E_NOMEM; n_failed++) {
    translator_end(context);
    atomic_store(&failing, atomic_load(&n_allocations) + n_failed);
    status = translator_generate(context, &args, NULL, &options, &got, &error);
    atomic_store(&failing, -1);
    CHECK(status == TFM_E_NOMEM ? !got.sequences && error.message[0] : status == TFM_OK);
  }
  CHECK(n_failed > 8);
  CHECK(got.sequences && memcmp(got.sequences, wanted.sequences, sizeof(int32_t) * (size_t)(got.n * got.width)) == 0);
  translator_generated_free(&wanted);
  translator_generated_free(&got);
}

// ---- cancelling while memory is given back ----

typedef struct Keeper { /* what a context has given back: marked, and kept so that a late write shows */
  translator_context *context; /* NULL: nothing is kept */
  struct {
    unsigned char *memory;
    size_t bytes;
  } blocks[64];
  int n;
} Keeper;

enum { MARK = 0xa5 };

static void *keeper_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void keeper_release(void *user, void *memory, size_t bytes) {
  Keeper *keeper = user;
  if (!keeper->context || keeper->n == 64) {
    free(memory);
    return;
  }
  memset(memory, MARK, bytes);
  keeper->blocks[keeper->n].memory = memory;
  keeper->blocks[keeper->n++].bytes = bytes;
  translator_cancel(keeper->context);
}

/* Between any two of the blocks that `end` gives back, cancelling no longer sees the decoder. */
static void test_late_cancel(void) {
  static Keeper keeper;
  const tfm_context_options with = {
      .struct_size = sizeof with, .threads = 1, .allocator = {keeper_allocate, keeper_release, &keeper}};
  const translator_args args = args_of(0, NULL);
  translator_model *model;
  translator_context *ending;
  SUCCEEDS(translator_open(NULL, &model, &error));
  SUCCEEDS(translator_context_new(model, &with, &ending, &error));
  SUCCEEDS(translator_begin(ending, &args, 2, LONGEST, &error));
  keeper.context = ending;
  translator_end(ending);
  keeper.context = NULL;
  CHECK(keeper.n > 2);
  for (int i = 0; i < keeper.n; i++) {
    size_t marked = 0;
    while (marked < keeper.blocks[i].bytes && keeper.blocks[i].memory[marked] == MARK) marked++;
    CHECK(marked == keeper.blocks[i].bytes);
    free(keeper.blocks[i].memory);
  }
  translator_context_free(ending);
  translator_close(model);
}

// ---- a model that is not incremental ----

static void test_whole_runs(int32_t threads) {
  const tfm_context_options with = {.struct_size = sizeof with, .threads = threads};
  const int32_t tgt[] = {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  averager_model *model;
  averager_context *averager;
  tfm_generated together, alone;
  averager_args args = {.batch = 3, .time = 4, .tgt = tgt};
  SUCCEEDS(averager_open(NULL, &model, &error));
  SUCCEEDS(averager_context_new(model, &with, &averager, &error));
  SUCCEEDS(averager_generate(averager, &args, (const int64_t[]){4, 2, 4}, NULL, &together, &error));
  args.batch = 1;
  for (int i = 0; i < 3; i++) {
    args.tgt = tgt + 4 * i;
    SUCCEEDS(averager_generate(averager, &args, (const int64_t[]){i == 1 ? 2 : 4}, NULL, &alone, &error));
    CHECK(alone.width == 10 && memcmp(alone.sequences, together.sequences + i * together.width, sizeof(int32_t) * 10) == 0);
    averager_generated_free(&alone);
  }
  args.tgt = NULL;
  REFUSED(averager_generate(averager, &args, NULL, NULL, &alone, &error), TFM_E_INPUT);
  averager_generated_free(&together);
  averager_context_free(averager);
  averager_close(model);
}

int main(int argc, char **argv) {
  static Row rows[8];
  const int32_t threads = argc > 1 ? atoi(argv[1]) : 1;
  const tfm_context_options with = {.struct_size = sizeof with, .threads = threads};
  translator_model *model;
  fill_tokens(src, ITEMS * SOURCE, 3);
  if (translator_open(NULL, &model, &error) || translator_context_new(model, &with, &context, &error) ||
      translator_context_new(model, NULL, &other, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  translator_close(model);
  test_steps(rows);
  test_reorder(rows);
  test_truncate(&rows[1]);
  test_leave(rows);
  test_errors();
  test_generating();
  test_callbacks();
  test_modes();
  test_no_memory(1);
  test_no_memory(4);
  test_late_cancel();
  test_whole_runs(threads);
  translator_context_free(context);
  translator_context_free(other);
  return n_wrong != 0;
}
