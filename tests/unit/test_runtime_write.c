/* tfm_decoder_write: rows that are written together, in pieces, from forks and with guesses get the tokens, the
 * probabilities and the random numbers that each gets alone, one token at a time by tfm_decoder_step and tfm_choose.
 * What fails is one row's, or changes nothing. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hand_decoding.h"
#include "tfm/write.h"

enum { ITEMS = 3, ROWS = 6, SOURCE = 9, LENGTH = 90, VOCAB = WRITER_VOCAB, MOST = 7, TOP = 3, THREADS = 3, NONE = -1 };
enum { BAD_TOKEN = VOCAB - 1 }; /* whose values are NaN */

typedef struct Source { /* of an item; n NONE: there is none */
  int64_t n;
  int32_t tokens[SOURCE];
  uint8_t masked[SOURCE];
} Source;

typedef struct Row { /* item NONE: there is none */
  int64_t item, length, written, start, limit; /* written: tokens that the decoder has */
  int32_t tokens[LENGTH + MOST];
  tfm_generate_options options;
  int64_t ends[2], suppressed[3];
  uint32_t allowed[1 + MOST];
  bool is_masked, has_ended;
  tfm_stream stream;
} Row;

typedef struct World {
  HandDecoding hand;
  tfm_decoder *decoder, *alone;
  tfm_chooser *choosers[THREADS], *chooser;
  Source sources[ITEMS];
  Row rows[ROWS];
  uint32_t random;
  int64_t chosen, right, guessed, sampled, ended, forks, failed;
} World;

static World world;

static int64_t draw(int64_t n) {
  world.random = world.random * 1664525 + 1013904223;
  return (int64_t)(world.random >> 8) % n;
}

static tfm_decoder *decoder_new(int32_t threads) {
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_decoder *decoder;
  tfm_error error;
  cr_assert_eq(tfm_decoder_create(&world.hand.decoding, NULL, NULL, &options, &decoder, &error), TFM_OK, "%s",
               error.message);
  return decoder;
}

static void open_decoder(int64_t step_kept, uint64_t cache_bytes) {
  int64_t sizes[8] = {0};
  for (uint32_t i = 0; i < world.hand.decoding.encoder->n_symbols; i++) sizes[i] = SOURCE;
  const tfm_decoder_limits limits = {.struct_size = sizeof limits, .rows = ROWS, .length = LENGTH, .items = ITEMS,
                                     .source_sizes = sizes, .step_kept = step_kept, .cache_bytes = cache_bytes};
  tfm_error error;
  cr_assert_eq(tfm_decoder_open(world.decoder, &limits, &error), TFM_OK, "%s", error.message);
}

static void setup(int32_t threads, int64_t step_kept) {
  memset(&world, 0, sizeof world);
  world.random = (uint32_t)(threads * 100 + step_kept);
  hand_writer(&world.hand);
  world.decoder = decoder_new(threads);
  world.alone = decoder_new(1);
  for (int i = 0; i < THREADS; i++) cr_assert_eq(tfm_chooser_create(VOCAB, &world.choosers[i], NULL), TFM_OK);
  cr_assert_eq(tfm_chooser_create(VOCAB, &world.chooser, NULL), TFM_OK);
  for (int i = 0; i < ITEMS; i++) world.sources[i].n = NONE;
  for (int i = 0; i < ROWS; i++) world.rows[i].item = NONE;
  open_decoder(step_kept, 0);
}

static void teardown(void) {
  for (int i = 0; i < THREADS; i++) tfm_chooser_destroy(world.choosers[i]);
  tfm_chooser_destroy(world.chooser);
  tfm_decoder_destroy(world.decoder);
  tfm_decoder_destroy(world.alone);
}

// ---- sources ----

static void add_source(void) {
  Source made = {.n = 1 + draw(SOURCE)};
  const int64_t dims[] = {1, made.n};
  const tfm_value inputs[] = {{made.tokens, TFM_I32, 2, dims}, {made.masked, TFM_BOOL, 2, dims}};
  int64_t item;
  for (int64_t i = 0; i < made.n; i++) {
    made.tokens[i] = (int32_t)draw(VOCAB - 1);
    made.masked[i] = i > 0 && draw(4) == 0;
  }
  if (tfm_decoder_add_source(world.decoder, inputs, NULL, &item, NULL) == TFM_OK) world.sources[item] = made;
}

static void drop_source(void) {
  const int64_t item = draw(ITEMS);
  bool is_read = false;
  for (int i = 0; i < ROWS; i++) is_read |= world.rows[i].item == item;
  if (world.sources[item].n == NONE || is_read) return;
  cr_assert_eq(tfm_decoder_drop_source(world.decoder, item, NULL), TFM_OK);
  world.sources[item].n = NONE;
}

// ---- rows ----

/* Each option has an effect in some of the rows. The token whose values are NaN is never chosen. */
static void choose_options(Row *row) {
  tfm_generate_options *o = &row->options;
  tfm_generate_defaults(o);
  for (int i = 0; i < 2; i++) row->ends[i] = draw(VOCAB - 1);
  row->suppressed[0] = BAD_TOKEN;
  for (int i = 1; i < 3; i++) row->suppressed[i] = draw(VOCAB - 1);
  o->suppress_tokens = (tfm_token_list){row->suppressed, 3};
  if (draw(3) == 0) o->eos_token_ids = (tfm_token_list){row->ends, 2};
  if (draw(3) == 0) o->repetition_penalty = 0.5 + (double)draw(6) / 4;
  if (draw(4) == 0) o->presence_penalty = (double)draw(6) / 4 - 0.5;
  if (draw(4) == 0) o->frequency_penalty = (double)draw(6) / 8 - 0.25;
  if (draw(4) == 0) o->min_p = (double)draw(6) / 8;
  if (draw(3) == 0) o->no_repeat_ngram_size = 2 + draw(2);
  if (draw(4) == 0) o->min_new_tokens = draw(9);
  if (draw(3) == 0) o->forced_eos_token_id = draw(2) ? row->ends[0] : row->suppressed[1]; /* the last choice may fail */
  if (draw(2)) {
    o->do_sample = 1;
    o->temperature = 0.25 + (double)draw(8) / 4;
    if (draw(2)) o->top_k = 2 + draw(9);
    if (draw(2)) o->top_p = 0.25 + (double)draw(3) / 4;
  }
  row->is_masked = draw(4) == 0;
  for (int i = 0; i <= MOST; i++) row->allowed[i] = row->is_masked ? 0x7fffffff ^ 1u << draw(VOCAB - 1) : 0x7fffffff;
  const uint64_t seed = (uint64_t)draw(1000);
  row->stream = tfm_stream_begin(seed, (uint64_t)draw(5));
}

/* The options of a row point into the row. */
static void point_options(Row *row) {
  row->options.suppress_tokens.tokens = row->suppressed;
  row->options.eos_token_ids.tokens = row->ends;
}

static bool add_row(int64_t most_prompt) {
  const int64_t item = draw(ITEMS);
  int64_t number;
  if (world.sources[item].n == NONE) return false;
  if (tfm_decoder_join(world.decoder, item, &number, NULL) != TFM_OK) return false;
  Row *row = &world.rows[number];
  cr_assert_eq(row->item, NONE);
  *row = (Row){.item = item, .length = 1 + draw(most_prompt)};
  row->start = row->length;
  row->limit = row->length + 1 + draw(LENGTH - row->length);
  for (int64_t i = 0; i < row->length; i++) row->tokens[i] = (int32_t)draw(VOCAB - 1);
  choose_options(row);
  point_options(row);
  return true;
}

static void fork_row(void) {
  Row *row = &world.rows[draw(ROWS)];
  int64_t number;
  if (row->item == NONE || tfm_decoder_fork(world.decoder, row - world.rows, &number, NULL) != TFM_OK) return;
  world.rows[number] = *row;
  choose_options(&world.rows[number]); /* goes on in its own way */
  point_options(&world.rows[number]);
  world.forks++;
}

/* Back to some of the tokens: the rest is to be read again, with other tokens at the end. */
static void shorten_row(void) {
  Row *row = &world.rows[draw(ROWS)];
  if (row->item == NONE || row->written == 0) return;
  row->written = draw(row->written + 1);
  row->length = row->start = row->written + 1;
  row->tokens[row->length - 1] = (int32_t)draw(VOCAB - 1);
  row->limit = row->length + 1 + draw(LENGTH - row->length + 1);
  if (row->limit > LENGTH) row->limit = LENGTH;
  if (row->limit <= row->length) row->length = row->start = row->limit - 1, row->written = row->length - 1;
  row->has_ended = false;
  cr_assert_eq(tfm_decoder_truncate(world.decoder, row - world.rows, row->written, NULL), TFM_OK);
}

static void leave_row(Row *row) {
  cr_assert_eq(tfm_decoder_leave(world.decoder, row - world.rows, NULL), TFM_OK);
  row->item = NONE;
}

// ---- a row alone ----

typedef struct Expected {
  tfm_choice choices[MOST + 1];
  tfm_best_token top[MOST + 1][TOP];
  tfm_stream streams[MOST + 1]; /* after each choice */
  int64_t n;                    /* fewer than wanted: the row ends */
  bool fails;                   /* the choice behind these is refused */
} Expected;

static bool is_end(const Row *row, int32_t token, int64_t length) {
  bool ends = length >= row->limit;
  for (uint64_t i = 0; i < row->options.eos_token_ids.n; i++) ends |= row->ends[i] == token;
  return ends;
}

static tfm_choice_row choice_of(Row *row, int64_t length, tfm_stream *stream, const uint32_t *allowed) {
  return (tfm_choice_row){.options = &row->options, .tokens = row->tokens, .length = length, .start = row->start,
                          .limit = row->limit, .allowed = row->is_masked ? allowed : NULL, .stream = stream,
                          .n_top = TOP};
}

/* What follows a row, by steps of one token with nothing else in the decoder. */
static void write_alone(const Row *given, int64_t wanted, Expected *expected) {
  Row row = *given;
  const Source *source = &world.sources[row.item];
  const int64_t dims[] = {1, source->n};
  const tfm_value inputs[] = {{(void *)source->tokens, TFM_I32, 2, dims}, {(void *)source->masked, TFM_BOOL, 2, dims}};
  tfm_error error;
  tfm_decoder_row part = {.tokens = row.tokens, .n_tokens = row.length};
  point_options(&row);
  cr_assert_eq(tfm_decoder_begin(world.alone, inputs, 1, LENGTH, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(tfm_decoder_join(world.alone, 0, &part.row, &error), TFM_OK);
  *expected = (Expected){0};
  for (bool goes_on = true; goes_on && expected->n < wanted;) {
    float logits[VOCAB];
    const int64_t i = expected->n;
    cr_assert_eq(tfm_decoder_step(world.alone, 1, &part, 1, logits, NULL, &error), TFM_OK, "%s", error.message);
    tfm_choice_row choice = choice_of(&row, row.length, &row.stream, &row.allowed[i]);
    choice.logits = logits;
    choice.top = expected->top[i];
    expected->fails = tfm_choose(world.chooser, &choice, &expected->choices[i], &error) != TFM_OK;
    if (expected->fails) {
      cr_assert(strstr(error.message, "every token is forbidden"), "%s", error.message);
      return;
    }
    expected->streams[i] = row.stream;
    expected->n++;
    row.tokens[row.length++] = expected->choices[i].token;
    goes_on = !is_end(&row, expected->choices[i].token, row.length);
    part.tokens = &row.tokens[row.length - 1];
    part.n_tokens = 1;
  }
}

// ---- rows together ----

typedef struct Part { /* of a call */
  Row *row;
  Expected expected;
  tfm_choice chosen[MOST + 1];
  tfm_best_token top[MOST + 1][TOP];
  int64_t guesses, right;
  tfm_stream stream; /* before */
} Part;

/* A piece of what the row has not read yet; the last one comes with guesses, some of which are what will be chosen. */
static tfm_write_row next_of(Part *part, Row *row, int64_t most_guesses) {
  const int64_t left = row->length - row->written, fresh = draw(2) ? left : 1 + draw(left);
  tfm_write_row made = {.part = {row - world.rows, row->tokens + row->written, fresh, 0}, .n_guesses = -1};
  *part = (Part){.row = row, .stream = row->stream};
  if (fresh < left) return made;
  const int64_t room = LENGTH - row->length;
  int64_t guesses = draw(most_guesses + 1);
  if (guesses > room) guesses = room;
  write_alone(row, guesses + 1, &part->expected);
  const int64_t wrong = draw(2) ? guesses : draw(guesses + 1);
  part->guesses = guesses;
  for (int64_t i = 0; i < guesses; i++) {
    const bool is_known = i < part->expected.n;
    const int32_t right = is_known ? part->expected.choices[i].token : (int32_t)draw(VOCAB - 1);
    row->tokens[row->length + i] = i < wrong ? right : (right + 1 + (int32_t)draw(VOCAB - 2)) % (VOCAB - 1);
    if (part->right == i && is_known && row->tokens[row->length + i] == right) part->right++;
  }
  made.part.n_tokens += guesses;
  made.n_guesses = guesses;
  made.choice = choice_of(row, row->length + guesses, &row->stream, row->allowed);
  made.choice.top = part->top[0];
  made.chosen = part->chosen;
  return made;
}

/* What was chosen is what the row gets alone, as far as the guesses were right. */
static void check_part(const Part *part, const tfm_write_row *written) {
  Row *row = part->row;
  const long long number = row - world.rows;
  const bool fails = part->expected.fails && part->right == part->expected.n;
  cr_assert_eq(written->status, fails ? TFM_E_INPUT : TFM_OK, "row %lld: %s", number, written->message);
  cr_assert_null(written->choice.logits);
  if (written->n_guesses < 0) {
    cr_assert_eq(written->n_chosen, 0);
    row->written += written->part.n_tokens;
  } else {
    const int64_t wanted = part->right + (part->right < part->expected.n);
    cr_assert_eq(written->n_chosen, wanted, "row %lld: %lld chosen, not %lld", number, (long long)written->n_chosen,
                 (long long)wanted);
    const size_t n = (size_t)wanted;
    cr_assert_eq(memcmp(part->chosen, part->expected.choices, n * sizeof *part->chosen), 0, "row %lld", number);
    cr_assert_eq(memcmp(part->top, part->expected.top, n * sizeof *part->top), 0, "row %lld", number);
    const tfm_stream stream = wanted ? part->expected.streams[wanted - 1] : part->stream;
    cr_assert_eq(memcmp(&row->stream, &stream, sizeof stream), 0, "row %lld", number);
    for (int64_t i = 0; i < wanted; i++) row->tokens[row->length++] = part->chosen[i].token;
    row->written = row->length - !fails;
    row->has_ended = fails || is_end(row, row->tokens[row->length - 1], row->length);
    world.failed += fails;
    world.chosen += wanted, world.guessed += part->guesses, world.right += part->right;
    world.sampled += row->options.do_sample, world.ended += row->has_ended;
  }
  cr_assert_eq(tfm_decoder_length(world.decoder, number), row->written, "row %lld", number);
}

static void write_some(int64_t most_guesses) {
  static Part parts[ROWS];
  tfm_write_row rows[ROWS];
  int64_t n = 0;
  for (int i = 0; i < ROWS; i++) {
    Row *row = &world.rows[(i + 2) % ROWS]; /* not in their order */
    if (row->item == NONE || row->has_ended || draw(5) == 0) continue;
    rows[n] = next_of(&parts[n], row, most_guesses);
    n++;
  }
  tfm_error error;
  cr_assert_eq(tfm_decoder_write(world.decoder, world.choosers, n, rows, &error), TFM_OK, "%s", error.message);
  for (int64_t i = 0; i < n; i++) check_part(&parts[i], &rows[i]);
}

static void leave_those_that_ended(void) {
  for (int i = 0; i < ROWS; i++)
    if (world.rows[i].item != NONE && world.rows[i].has_ended) leave_row(&world.rows[i]);
}

Test(runtime_write, guesses_change_nothing) {
  for (int32_t threads = 1; threads <= THREADS; threads++) {
    setup(threads, threads == 2 ? ROWS * (MOST + 1) : 0); /* with room for all logits, and without */
    for (int i = 0; i < ITEMS; i++) add_source();
    uint64_t bytes = 0;
    for (int i = 0; i < 120; i++) {
      leave_those_that_ended();
      while (add_row(20)) continue;
      write_some(i % 3 ? MOST : 0);
      if (i == 0) bytes = tfm_decoder_bytes(world.decoder);
    }
    if (threads == 2) cr_assert_eq(tfm_decoder_bytes(world.decoder), bytes, "room was made again within the limits");
    cr_assert_gt(world.right, 200, "%lld of %lld guesses were right", (long long)world.right, (long long)world.guessed);
    cr_assert_gt(world.guessed - world.right, 200);
    cr_assert_gt(world.sampled, 50);
    cr_assert_gt(world.ended, 20);
    cr_assert_gt(world.failed, 0);
    teardown();
  }
}

Test(runtime_write, whatever_comes_and_goes_each_row_writes_what_it_writes_alone) {
  for (int32_t threads = 1; threads <= THREADS; threads++) {
    setup(threads, 0);
    for (int i = 0; i < 300; i++) {
      if (draw(4) == 0) add_source();
      if (draw(6) == 0) drop_source();
      if (draw(2) == 0) add_row(40);
      if (draw(2) == 0) fork_row();
      if (draw(8) == 0) shorten_row();
      if (draw(8) == 0 && world.rows[i % ROWS].item != NONE) leave_row(&world.rows[i % ROWS]);
      leave_those_that_ended();
      write_some(3);
    }
    cr_assert_gt(world.chosen, 400, "%lld", (long long)world.chosen);
    cr_assert_gt(world.forks, 5);
    teardown();
  }
}

// ---- errors ----

/* Rows 0, 1 and 2 have one token each that is still to be read. */
static void add_three(void) {
  while (world.sources[0].n == NONE || world.sources[1].n == NONE || world.sources[2].n == NONE) add_source();
  for (int i = 0; i < 3; i++) {
    cr_assert(add_row(1));
    Row *row = &world.rows[i];
    tfm_generate_defaults(&row->options);
    row->options.do_sample = 1;
    row->options.suppress_tokens = (tfm_token_list){row->suppressed, 1};
    row->is_masked = false;
    row->limit = LENGTH;
  }
}

static tfm_write_row whole(Row *row, int64_t guesses, tfm_choice *chosen) {
  return (tfm_write_row){.part = {row - world.rows, row->tokens, row->length + guesses, 0}, .n_guesses = guesses,
                         .choice = {.options = &row->options, .tokens = row->tokens, .length = row->length + guesses,
                                    .start = row->start, .limit = row->limit, .stream = &row->stream, .n_top = -1},
                         .chosen = chosen};
}

Test(runtime_write, what_fails_in_one_row_is_that_rows_error) {
  for (int64_t place = 0; place < 3; place++) { /* of the guess that makes all that follows NaN */
    setup(2, 0);
    add_three();
    tfm_write_row rows[3];
    tfm_choice chosen[3][MOST + 1];
    Expected expected[3];
    tfm_error error;
    for (int i = 0; i < 3; i++) {
      Row *row = &world.rows[i];
      write_alone(row, 3, &expected[i]);
      for (int k = 0; k < 2; k++) row->tokens[row->length + k] = expected[i].choices[k].token;
      rows[i] = whole(row, 2, chosen[i]);
    }
    Row *bad = &world.rows[1];
    const tfm_stream before = bad->stream;
    bad->options.top_p = place == 0 ? 7 : 1;                /* the first choice is refused */
    if (place == 1) bad->tokens[0] = BAD_TOKEN;             /* the first logits are NaN */
    uint32_t masks[] = {UINT32_MAX, UINT32_MAX, 0};
    if (place == 2) rows[1].choice.allowed = masks;         /* nothing is left as the third token */
    cr_assert_eq(tfm_decoder_write(world.decoder, world.choosers, 3, rows, &error), TFM_OK, "%s", error.message);
    const char *words[] = {"top_p is 7", "not finite", "every token is forbidden as token 3"};
    cr_assert_eq(rows[1].status, TFM_E_INPUT);
    cr_assert(strstr(rows[1].message, words[place]), "%s", rows[1].message);
    cr_assert_eq(rows[1].n_chosen, place == 2 ? 2 : 0);
    cr_assert_eq(tfm_decoder_length(world.decoder, 1), bad->length + rows[1].n_chosen);
    cr_assert_eq(memcmp(&bad->stream, place == 2 ? &expected[1].streams[1] : &before, sizeof before), 0);
    for (int i = 0; i < 3; i += 2) {
      cr_assert_eq(rows[i].status, TFM_OK, "%s", rows[i].message);
      cr_assert_eq(rows[i].n_chosen, 3);
      for (int k = 0; k < 3; k++) cr_assert_eq(chosen[i][k].token, expected[i].choices[k].token);
    }
    teardown();
  }
}

/* A call that is refused: nothing has moved. */
static void expect_refusal(tfm_write_row *rows, int64_t n, tfm_chooser *const *choosers, tfm_status wanted,
                           const char *words) {
  tfm_error error = {0};
  const tfm_stream before = world.rows[0].stream;
  rows[0].n_chosen = 77;
  cr_assert_eq(tfm_decoder_write(world.decoder, choosers, n, rows, &error), wanted, "%s: %s", words, error.message);
  cr_assert(strstr(error.message, words), "\"%s\" lacks \"%s\"", error.message, words);
  cr_assert_eq(rows[0].n_chosen, 77);
  cr_assert_eq(memcmp(&before, &world.rows[0].stream, sizeof before), 0);
  for (int i = 0; i < 3; i++) cr_assert_eq(tfm_decoder_length(world.decoder, i), 0);
}

static void never_called(void *user, int64_t item, const int32_t *tokens, int64_t length, float *scores) {
  (void)user, (void)item, (void)tokens, (void)length, (void)scores;
}

Test(runtime_write, refusals_change_nothing) {
  setup(2, 0);
  add_three();
  tfm_choice chosen[3][MOST + 1];
  tfm_chooser *other;
  cr_assert_eq(tfm_chooser_create(VOCAB + 1, &other, NULL), TFM_OK);
#define REFUSED(status, words, ...)                                                    \
  do {                                                                                 \
    tfm_write_row rows[3];                                                             \
    tfm_chooser *choosers[] = {world.choosers[0], world.choosers[1]};                  \
    int64_t n = 3;                                                                     \
    for (int i = 0; i < 3; i++) rows[i] = whole(&world.rows[i], 1, chosen[i]);         \
    __VA_ARGS__;                                                                       \
    expect_refusal(rows, n, choosers, status, words);                                  \
  } while (0)
  tfm_generate_options hooked = world.rows[1].options;
  hooked.on_scores = never_called;
  REFUSED(TFM_E_INPUT, "of which 2 are guesses", rows[1].n_guesses = 2);
  REFUSED(TFM_E_INPUT, "of which -2 are guesses", rows[1].n_guesses = -2);
  REFUSED(TFM_E_USAGE, "no place for its choices", rows[1].chosen = NULL);
  REFUSED(TFM_E_USAGE, "does not call on_scores", rows[1].choice.options = &hooked);
  REFUSED(TFM_E_INPUT, "there is no row 9", rows[1].part.row = 9);
  REFUSED(TFM_E_INPUT, "is there twice", rows[1] = rows[0]);
  REFUSED(TFM_E_USAGE, "are a null pointer", rows[1].choice.tokens = NULL);
  REFUSED(TFM_E_USAGE, "are a null pointer", rows[1].part.tokens = NULL);
  REFUSED(TFM_E_INPUT, "its text has 3", rows[1].choice.length = 3);
  REFUSED(TFM_E_INPUT, "does not end with the tokens", rows[1].part.tokens++);
  REFUSED(TFM_E_INPUT, "guesses in its prompt of 2", rows[1].choice.start = 2);
  REFUSED(TFM_E_INPUT, "its limit is 1", rows[1].choice.limit = 1);
  REFUSED(TFM_E_INPUT, "gets no tokens", rows[1].n_guesses = -1; rows[1].part.n_tokens = 0);
  REFUSED(TFM_E_INPUT, "a number of rows is negative", n = -1);
  REFUSED(TFM_E_INPUT, "a chooser of 33 tokens", choosers[1] = other);
  REFUSED(TFM_E_USAGE, "the chooser of thread 1", choosers[1] = NULL);
#undef REFUSED
  tfm_write_row row = whole(&world.rows[0], 0, chosen[0]);
  expect_refusal(&row, 1, NULL, TFM_E_USAGE, "choosers are a null");
  cr_assert_eq(tfm_decoder_write(world.decoder, world.choosers, 1, NULL, NULL), TFM_E_USAGE);
  cr_assert_eq(tfm_decoder_write(NULL, world.choosers, 1, &row, NULL), TFM_E_USAGE);
  cr_assert_eq(tfm_decoder_write(world.decoder, world.choosers, 0, NULL, NULL), TFM_OK);
  open_decoder(0, 1); /* no page fits */
  for (int i = 0; i < 3; i++) world.rows[i].item = NONE;
  for (int i = 0; i < ITEMS; i++) world.sources[i].n = NONE;
  add_three();
  tfm_write_row rows[] = {whole(&world.rows[0], 0, chosen[0])};
  expect_refusal(rows, 1, world.choosers, TFM_E_NOMEM, "pages of caches");
  tfm_chooser_destroy(other);
  teardown();
}
