/* Models whose rows have their own lengths (ragged time) as a C program sees them: prompts of different lengths side by
 * side, with what is no token behind the short ones; steps of such rows, bit by bit what forward gives for each alone
 * or for rows of one length; a row that grows beyond the model's table. What generate writes goes to standard output, a
 * row a line, for the test to compare with `tfmc generate`.
 *
 * usage: writing_ragged THREADS */
#include "hummer.h"
#include "teller.h"
#include "writing.h"

enum { WIDTH = 5, NEW_TOKENS = 12, PLACES = 40 /* of Teller's table */ };

static tfm_error error;
static const int64_t lengths[ITEMS] = {5, 1, 3};
static const int32_t prompts[ITEMS * WIDTH] = {3, 14, 15, 9, 26, 27, 1000, -1, 1000, 1000, 31, 8, 32, 1000, 1000};

// ---- generate ----

static void tell(teller_context *context) {
  const teller_args args = {.batch = ITEMS, .time = WIDTH, .tgt = prompts};
  tfm_generated written;
  WRITES_ROWS(teller, context, &args, lengths, NEW_TOKENS);
  REFUSED(teller_generate(context, &args, NULL, NULL, &written, &error), TFM_E_INPUT); /* then 1000 is a token */
  REFUSED(teller_generate(context, &args, (const int64_t[]){5, 6, 3}, NULL, &written, &error), TFM_E_INPUT);
}

static void hum(hummer_context *context) {
  const hummer_args args = {.batch = ITEMS, .time = WIDTH, .tgt = prompts};
  WRITES_ROWS(hummer, context, &args, lengths, NEW_TOKENS);
}

// ---- steps and forward ----

/* The scores after the last token of each of n rows of one length. */
static void forward(teller_context *context, int n, int time, const int32_t *tokens, float *last) {
  static float logits[ITEMS * PLACES * VOCAB];
  const teller_args args = {
      .batch = n, .time = time, .tgt = tokens, .logits = logits, .logits_capacity = sizeof logits / sizeof *logits};
  SUCCEEDS(teller_forward(context, &args, &error));
  for (int i = 0; i < n; i++)
    memcpy(last + (size_t)i * VOCAB, logits + ((size_t)(i + 1) * (size_t)time - 1) * VOCAB, VOCAB * sizeof *last);
}

static void test_steps(teller_context *context, teller_context *other) {
  static float scores[ITEMS * VOCAB], alone[ITEMS * VOCAB];
  const teller_args args = {.batch = ITEMS};
  tfm_decoder_row rows[ITEMS] = {0};
  SUCCEEDS(teller_begin(context, &args, ITEMS, PLACES, &error));
  for (int i = 0; i < ITEMS; i++) {
    rows[i] = (tfm_decoder_row){.tokens = prompts + i * WIDTH, .n_tokens = lengths[i]};
    SUCCEEDS(teller_join(context, i, &rows[i].row, &error));
  }
  long before = atomic_load(&n_allocations);
  SUCCEEDS(teller_step(context, ITEMS, rows, 1, scores, NULL, &error));
  CHECK(atomic_load(&n_allocations) == before);
  for (int i = 0; i < ITEMS; i++) {
    forward(other, 1, (int)lengths[i], prompts + i * WIDTH, alone);
    CHECK(memcmp(alone, scores + (size_t)i * VOCAB, VOCAB * sizeof *alone) == 0);
  }
  const int32_t more[ITEMS][4] = {{6}, {7, 8, 9, 10}, {11, 12}}; /* now two of them have five tokens, and one has six */
  for (int i = 0; i < ITEMS; i++) rows[i] = (tfm_decoder_row){rows[i].row, more[i], i == 0 ? 1 : i == 1 ? 4 : 2, 0};
  SUCCEEDS(teller_step(context, ITEMS, rows, 1, scores, NULL, &error));
  const int32_t five[2 * 5] = {27, 7, 8, 9, 10, 31, 8, 32, 11, 12};
  forward(other, 2, 5, five, alone);
  CHECK(memcmp(alone, scores + VOCAB, 2 * VOCAB * sizeof *alone) == 0);
}

/* The message speaks of the row's length by the model's name for it, and the row is as it was. */
static void test_beyond_the_table(teller_context *context, teller_context *other) {
  static float scores[VOCAB], alone[VOCAB];
  static int32_t tokens[PLACES + 1];
  const teller_args args = {.batch = 1}, too_long = {.batch = 1, .time = PLACES + 1, .tgt = tokens, .logits = scores};
  const char *const wanted = "the slice 0 : time = 41 is not within an axis of 40";
  tfm_decoder_row row = {.tokens = tokens, .n_tokens = PLACES - 1};
  fill_tokens(tokens, PLACES + 1, 6);
  SUCCEEDS(teller_begin(context, &args, 1, PLACES + 1, &error));
  SUCCEEDS(teller_join(context, 0, &row.row, &error));
  SUCCEEDS(teller_step(context, 1, &row, 1, scores, NULL, &error));
  row.tokens += row.n_tokens;
  row.n_tokens = 2;
  REFUSED(teller_step(context, 1, &row, 1, scores, NULL, &error), TFM_E_INPUT);
  CHECK(strcmp(error.message, wanted) == 0);
  REFUSED(teller_forward(other, &too_long, &error), TFM_E_INPUT);
  CHECK(strcmp(error.message, wanted) == 0);
  row.n_tokens = 1;
  SUCCEEDS(teller_step(context, 1, &row, 1, scores, NULL, &error));
  forward(other, 1, PLACES, tokens, alone);
  CHECK(memcmp(alone, scores, sizeof scores) == 0);
}

int main(int argc, char **argv) {
  const tfm_context_options with = {.struct_size = sizeof with, .threads = argc > 1 ? atoi(argv[1]) : 1};
  teller_model *teller;
  teller_context *context, *other;
  hummer_model *hummer;
  hummer_context *humming;
  if (teller_open(NULL, &teller, &error) || teller_context_new(teller, &with, &context, &error) ||
      teller_context_new(teller, NULL, &other, &error) || hummer_open(NULL, &hummer, &error) ||
      hummer_context_new(hummer, &with, &humming, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  tell(context);
  hum(humming);
  test_steps(context, other);
  test_beyond_the_table(context, other);
  teller_context_free(context);
  teller_context_free(other);
  teller_close(teller);
  hummer_context_free(humming);
  hummer_close(hummer);
  return n_wrong != 0;
}
