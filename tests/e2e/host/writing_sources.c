/* Models whose sources have their own lengths (ragged source) as a C program sees them: what stands behind the short ones is
 * never read; steps, bit by bit what forward gives for each item alone or for items that are alike; lengths that are none.
 * What generate writes goes to standard output, a row a line, for the test to compare with `tfmc generate`.
 *
 * usage: writing_sources THREADS */
#include "gatherer.h"
#include "reader.h"
#include "writing.h"

enum { SOURCES = 4, WIDTH = 6, STEPS = 3, NEW_TOKENS = 8 };

static tfm_error error;
static const int64_t lengths[SOURCES] = {3, 6, 0, 3};
static const int32_t sources[SOURCES * WIDTH] = {3,    14,   15, 1000, -1, 1000, 26, 27,   28,   29, 30, 31,
                                                 1000, 1000, -1, -1,   -1, -1,   8,  33,   9,    -1, 50, 1000};
static const float scale[SOURCES * 2] = {1, 2, -1, 0.5f, 0.25f, 3, -2, 1};

// ---- generate ----

static const int64_t too_long[SOURCES] = {3, 7, 0, 3}, negative[SOURCES] = {3, 6, -1, 3};
static const char *const is_too_long = "'source.lengths' has a length of 7, but source is 6";
static const char *const is_negative = "'source.lengths' has a length of -1, but source is 6";

#define REFUSED_WITH(call, says) \
  do { \
    REFUSED(call, TFM_E_INPUT); \
    CHECK(strstr(error.message, (says)) != NULL); \
  } while (0)

static void read_all(reader_context *context) {
  reader_args args = {.batch = SOURCES, .source = WIDTH, .src = sources, .scale = scale, .source_lengths = lengths};
  tfm_generated written;
  WRITES_ROWS(reader, context, &args, NULL, NEW_TOKENS);
  args.source_lengths = too_long;
  REFUSED_WITH(reader_generate(context, &args, NULL, NULL, &written, &error), is_too_long);
  REFUSED_WITH(reader_begin(context, &args, SOURCES, 4, &error), is_too_long);
  args.source_lengths = negative;
  REFUSED_WITH(reader_generate(context, &args, NULL, NULL, &written, &error), is_negative);
  args.source_lengths = NULL; /* then 1000 is a word */
  REFUSED_WITH(reader_generate(context, &args, NULL, NULL, &written, &error), "= 1000, legal range is [0, 50)");
}

static void gather_all(gatherer_context *context) {
  gatherer_args args = {.batch = SOURCES, .source = WIDTH, .src = sources, .source_lengths = lengths};
  tfm_generated written;
  WRITES_ROWS(gatherer, context, &args, NULL, NEW_TOKENS);
  args.source_lengths = too_long;
  REFUSED_WITH(gatherer_generate(context, &args, NULL, NULL, &written, &error), is_too_long);
  args.source_lengths = negative;
  REFUSED_WITH(gatherer_generate(context, &args, NULL, NULL, &written, &error), is_negative);
  args.source_lengths = NULL;
  REFUSED_WITH(gatherer_generate(context, &args, NULL, NULL, &written, &error), "= 1000, legal range is [0, 50)");
}

// ---- steps and forward ----

static const int32_t tokens[SOURCES][STEPS + 1] = {{1, 5, 9, 3}, {1, 2, 3, 4}, {1, 7, 7, 7}, {1, 40, 41, 42}};

/* The scores after the last of n tokens of an item, computed alone. */
static void forward_alone(reader_context *context, int item, int n, float *last) {
  static float logits[(STEPS + 1) * VOCAB];
  const reader_args args = {.batch = 1, .source = lengths[item], .time = n, .src = sources + item * WIDTH,
                            .scale = scale + item * 2, .tgt = tokens[item], .logits = logits};
  SUCCEEDS(reader_forward(context, &args, &error));
  memcpy(last, logits + (size_t)(n - 1) * VOCAB, VOCAB * sizeof *last);
}

static void test_steps(reader_context *context, reader_context *other) {
  static float scores[SOURCES * VOCAB], alone[VOCAB];
  const reader_args args = {.batch = SOURCES, .source = WIDTH, .src = sources, .scale = scale, .source_lengths = lengths};
  tfm_decoder_row rows[SOURCES];
  SUCCEEDS(reader_begin(context, &args, SOURCES, STEPS + 1, &error));
  for (int i = 0; i < SOURCES; i++) {
    rows[i] = (tfm_decoder_row){.tokens = tokens[i], .n_tokens = i % 2 + 1};
    SUCCEEDS(reader_join(context, i, &rows[i].row, &error));
  }
  for (int step = 0; step < STEPS; step++) {
    SUCCEEDS(reader_step(context, SOURCES, rows, 1, scores, NULL, &error));
    for (int i = 0; i < SOURCES; i++) {
      forward_alone(other, i, (int)reader_length(context, rows[i].row), alone);
      CHECK(memcmp(alone, scores + (size_t)i * VOCAB, sizeof alone) == 0);
      rows[i].tokens += rows[i].n_tokens;
      rows[i].n_tokens = 1;
    }
  }
  const long before = atomic_load(&n_allocations);
  for (int i = 0; i < SOURCES; i++) SUCCEEDS(reader_truncate(context, rows[i].row, 1, &error));
  for (int i = 0; i < SOURCES; i++) rows[i].tokens = tokens[i] + 1;
  SUCCEEDS(reader_step(context, SOURCES, rows, 1, scores, NULL, &error));
  CHECK(atomic_load(&n_allocations) == before);
}

/* Items of one call are alike; that lengths say so makes no difference. */
static void test_forward(reader_context *context) {
  static float logits[2 * VOCAB], again[2 * VOCAB];
  const int32_t two[2 * 3] = {3, 14, 15, 8, 9, 10}, one[2] = {1, 1};
  int64_t own[2] = {3, 3};
  reader_args args = {.batch = 2, .source = 3, .time = 1, .src = two, .scale = scale, .tgt = one, .logits = logits};
  SUCCEEDS(reader_forward(context, &args, &error));
  args.logits = again;
  args.source_lengths = own;
  SUCCEEDS(reader_forward(context, &args, &error));
  CHECK(memcmp(logits, again, sizeof again) == 0);
  own[1] = 2;
  REFUSED_WITH(reader_forward(context, &args, &error), "forward takes items whose source is 3, not 2");
  own[1] = 4;
  REFUSED_WITH(reader_forward(context, &args, &error), "forward takes items whose source is 3, not 4");
  CHECK(memcmp(logits, again, sizeof again) == 0);
}

int main(int argc, char **argv) {
  const tfm_context_options with = {.struct_size = sizeof with, .threads = argc > 1 ? atoi(argv[1]) : 1};
  reader_model *reader;
  reader_context *context, *other;
  gatherer_model *gatherer;
  gatherer_context *gathering;
  if (reader_open(NULL, &reader, &error) || reader_context_new(reader, &with, &context, &error) ||
      reader_context_new(reader, NULL, &other, &error) || gatherer_open(NULL, &gatherer, &error) ||
      gatherer_context_new(gatherer, &with, &gathering, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  read_all(context);
  gather_all(gathering);
  test_steps(context, other);
  test_forward(other);
  reader_context_free(context);
  reader_context_free(other);
  reader_close(reader);
  gatherer_context_free(gathering);
  gatherer_close(gatherer);
  return n_wrong != 0;
}
