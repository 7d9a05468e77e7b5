/* The decoder on a model made by hand: whichever way rows are cut into steps, copied, cut back and mixed, their scores
 * are the same bits, and those that plain loops give. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode/decoder.h"
#include "hand_decoding.h"

enum { ITEMS = 2, SOURCE = 40 };

typedef struct Fixture {
  HandDecoding hand;
  int32_t source[ITEMS * SOURCE];
  uint8_t masked[ITEMS * SOURCE];
  tfm_decoder *decoder;
} Fixture;

static Fixture fixture;

static void begin(int64_t rows, int64_t length) {
  static const int64_t dims[] = {ITEMS, SOURCE};
  const tfm_value inputs[] = {{fixture.source, TFM_I32, 2, dims}, {fixture.masked, TFM_BOOL, 2, dims}};
  tfm_error error;
  cr_assert_eq(tfm_decoder_begin(fixture.decoder, inputs, rows, length, &error), TFM_OK, "%s", error.message);
}

static void setup(int32_t threads) {
  hand_writer(&fixture.hand);
  for (int i = 0; i < ITEMS * SOURCE; i++) fixture.source[i] = (i * 7 + 3) % (WRITER_VOCAB - 1);
  for (int i = 0; i < SOURCE; i++) fixture.masked[SOURCE + i] = i >= 21 || i == 3;
  fixture.source[SOURCE + 3] = WRITER_VOCAB - 1; /* masked: no number is seen */
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_error error;
  cr_assert_eq(tfm_decoder_create(&fixture.hand.decoding, NULL, NULL, &options, &fixture.decoder, &error), TFM_OK, "%s",
               error.message);
}

static void teardown(void) { tfm_decoder_destroy(fixture.decoder); }

static void tokens_fill(int32_t *tokens, int64_t n, int seed) {
  for (int64_t i = 0; i < n; i++) tokens[i] = (int32_t)((i * i * 3 + i * 11 + seed * 5 + i / 7) % (WRITER_VOCAB - 1));
}

static int64_t join(int64_t item) {
  int64_t row = -1;
  tfm_error error;
  cr_assert_eq(tfm_decoder_join(fixture.decoder, item, &row, &error), TFM_OK, "%s", error.message);
  return row;
}

static void step(int64_t n, const tfm_decoder_row *rows, int64_t kept, float *scores, float *logsumexp) {
  tfm_error error;
  cr_assert_eq(tfm_decoder_step(fixture.decoder, n, rows, kept, scores, logsumexp, &error), TFM_OK, "%s", error.message);
}

static void step_one(int64_t row, const int32_t *tokens, int64_t n, int64_t kept, float *scores) {
  const tfm_decoder_row part = {row, tokens, n, 0};
  step(1, &part, kept, scores, NULL);
}

static void check_scores(const float *scores, int64_t item, const int32_t *tokens, int64_t n) {
  float expected[WRITER_VOCAB];
  const WriterSource source = {fixture.source + item * SOURCE, fixture.masked + item * SOURCE, SOURCE};
  hand_writer_scores(&source, tokens, n, expected);
  for (int i = 0; i < WRITER_VOCAB; i++)
    cr_assert_float_eq(scores[i], expected[i], 2e-5, "after %lld tokens, score %d: %g, expected %g", (long long)n, i,
                       (double)scores[i], (double)expected[i]);
}

static int64_t pages_in_use(void) {
  return fixture.decoder->caches.own.n_touched - fixture.decoder->caches.own.n_free;
}

#define SAME(a, b, n) cr_assert_eq(memcmp((a), (b), (size_t)(n) * WRITER_VOCAB * sizeof(float)), 0)

Test(runtime_decoder, splits_make_no_difference) {
  static int32_t tokens[WRITER_MOST];
  static float whole[WRITER_MOST * WRITER_VOCAB], cut[WRITER_MOST * WRITER_VOCAB];
  tokens_fill(tokens, WRITER_MOST, 1);
  for (int32_t threads = 1; threads <= 3; threads++) {
    setup(threads);
    begin(3, WRITER_MOST);
    int64_t row = join(1);
    step_one(row, tokens, WRITER_MOST, WRITER_MOST, threads == 1 ? whole : cut);
    if (threads > 1) SAME(whole, cut, WRITER_MOST);
    static const int64_t positions[] = {0, 1, 14, 15, 16, 17, 100, 511, 512, 513, 599};
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++)
      check_scores(whole + positions[i] * WRITER_VOCAB, 1, tokens, positions[i] + 1);
    tfm_decoder_truncate(fixture.decoder, row, 0, NULL);
    cr_expect_eq(pages_in_use(), 0);
    static const int64_t lengths[] = {1, 1, 14, 1, 30, 3, 200, 263, 1, 85, 1};
    for (int64_t i = 0, done = 0; i < 11; done += lengths[i++])
      step_one(row, tokens + done, lengths[i], lengths[i], cut + done * WRITER_VOCAB);
    SAME(whole, cut, WRITER_MOST);
    teardown();
  }
}

Test(runtime_decoder, rows_of_all_lengths_together) {
  enum { ROWS = 7 };
  static const int64_t beginnings[ROWS] = {5, 20, 5, 33, 20, 5, 600}, items[ROWS] = {0, 1, 1, 0, 0, 0, 1};
  static int32_t tokens[ROWS][WRITER_MOST];
  static float scores[ROWS * 2 * WRITER_VOCAB], logsumexp[ROWS * 2];
  setup(2);
  begin(ROWS, WRITER_MOST);
  tfm_decoder_row rows[ROWS];
  for (int i = 0; i < ROWS; i++) {
    tokens_fill(tokens[i], beginnings[i], i);
    rows[i] = (tfm_decoder_row){join(items[i]), tokens[i], beginnings[i], 0};
    cr_expect_eq(rows[i].row, i);
  }
  step(ROWS, rows, 2, scores, logsumexp);
  for (int i = 0; i < ROWS; i++) {
    check_scores(scores + (2 * i) * WRITER_VOCAB, items[i], tokens[i], beginnings[i] - 1);
    check_scores(scores + (2 * i + 1) * WRITER_VOCAB, items[i], tokens[i], beginnings[i]);
    double sum = 0;
    for (int j = 0; j < WRITER_VOCAB; j++) sum += exp((double)scores[(2 * i + 1) * WRITER_VOCAB + j]);
    cr_expect_float_eq(logsumexp[2 * i + 1], log(sum), 1e-5);
    cr_expect_eq(tfm_decoder_length(fixture.decoder, i), beginnings[i]);
  }
  /* Rows come and go: numbers stay. */
  cr_assert_eq(tfm_decoder_leave(fixture.decoder, 1, NULL), TFM_OK);
  cr_expect_eq(tfm_decoder_length(fixture.decoder, 1), -1);
  cr_expect_eq(join(0), 1);
  int32_t more[] = {3, 4};
  const tfm_decoder_row next[] = {
      {4, more, 1, 0}, {1, more, 2, 0}, {0, more, 1, 0}, {2, more + 1, 1, 0}, {5, more, 1, 0}};
  step(5, next, 1, scores, NULL);
  for (int i = 0; i < 5; i++) {
    int64_t row = next[i].row, length = row == 1 ? 0 : beginnings[row];
    memcpy(tokens[row] + length, next[i].tokens, (size_t)next[i].n_tokens * sizeof(int32_t));
    check_scores(scores + i * WRITER_VOCAB, row == 1 ? 0 : items[row], tokens[row], length + next[i].n_tokens);
  }
  teardown();
}

Test(runtime_decoder, copies_share_pages_until_they_differ) {
  enum { START = 35, BEAMS = 4 };
  static int32_t tokens[BEAMS][WRITER_MOST], others[BEAMS][WRITER_MOST];
  static float scores[BEAMS * WRITER_VOCAB];
  setup(2);
  begin(BEAMS, 100);
  tokens_fill(tokens[0], START, 3);
  step_one(join(1), tokens[0], START, 1, scores);
  cr_expect_eq(pages_in_use(), 3);
  int64_t parents[BEAMS] = {0};
  for (int round = 0; round < 40; round++) {
    cr_assert_eq(tfm_decoder_reorder(fixture.decoder, BEAMS, parents, NULL), TFM_OK);
    if (round == 0) cr_expect_eq(pages_in_use(), 3);
    tfm_decoder_row rows[BEAMS];
    memcpy(others, tokens, sizeof others);
    for (int i = 0; i < BEAMS; i++) {
      memcpy(tokens[i], others[parents[i]], sizeof tokens[i]);
      tokens[i][START + round] = (round * 3 + i * 5 + 1) % (WRITER_VOCAB - 1);
      rows[i] = (tfm_decoder_row){i, tokens[i] + START + round, 1, 0};
    }
    step(BEAMS, rows, 1, scores, NULL);
    if (round == 0) cr_expect_eq(pages_in_use(), 2 + BEAMS, "each has its own last page: %lld", (long long)pages_in_use());
    for (int i = 0; i < BEAMS; i++) check_scores(scores + i * WRITER_VOCAB, 1, tokens[i], START + round + 1);
    for (int i = 0; i < BEAMS; i++) parents[i] = (i * 7 + round) % 5 % BEAMS;
  }
  cr_assert_eq(tfm_decoder_reorder(fixture.decoder, 0, NULL, NULL), TFM_OK);
  cr_expect_eq(pages_in_use(), 0);
  teardown();
}

static void expect_error(tfm_status status, tfm_status expected, const tfm_error *error, const char *message) {
  cr_expect_eq(status, expected, "%s: %d", error->message, status);
  cr_expect_str_eq(error->message, message);
}

/* A copy takes the first number that is free; the others keep theirs. */
Test(runtime_decoder, forked_rows_go_their_own_ways) {
  enum { START = 35, ROWS = 4 };
  static int32_t tokens[ROWS][WRITER_MOST];
  float scores[WRITER_VOCAB];
  setup(2);
  begin(ROWS, 100);
  tokens_fill(tokens[0], WRITER_MOST, 3);
  tokens_fill(tokens[1], WRITER_MOST, 6);
  step_one(join(1), tokens[0], START, 1, scores);
  step_one(join(0), tokens[1], 50, 1, scores);
  tfm_decoder_leave(fixture.decoder, join(0), NULL);
  const int64_t before = pages_in_use();
  int64_t copy = -1, second = -1;
  cr_assert_eq(tfm_decoder_fork(fixture.decoder, 0, &copy, NULL), TFM_OK);
  cr_assert_eq(tfm_decoder_fork(fixture.decoder, copy, &second, NULL), TFM_OK);
  cr_expect(copy == 2 && second == 3);
  cr_expect_eq(tfm_decoder_length(fixture.decoder, second), START);
  cr_expect_eq(pages_in_use(), before, "all pages are shared");
  for (int64_t row = 2; row < ROWS; row++) memcpy(tokens[row], tokens[0], sizeof tokens[row]);
  for (int64_t at = START; at < 70; at++)
    for (int64_t row = 0; row < ROWS; row++) {
      if (row != 1) tokens[row][at] = (int32_t)(at + 3 * row) % (WRITER_VOCAB - 1);
      if (row == 1 && at < 50) continue;
      step_one(row, tokens[row] + at, 1, 1, scores);
      check_scores(scores, row != 1, tokens[row], at + 1);
    }
  tfm_error error;
  expect_error(tfm_decoder_fork(fixture.decoder, 0, &copy, &error), TFM_E_INPUT, &error,
               "there is room for 4 rows, and all are there");
  tfm_decoder_leave(fixture.decoder, 0, NULL); /* what the copies share with it stays */
  expect_error(tfm_decoder_fork(fixture.decoder, 0, &copy, &error), TFM_E_INPUT, &error, "there is no row 0");
  expect_error(tfm_decoder_fork(fixture.decoder, 2, NULL, &error), TFM_E_USAGE, &error,
               "there is no place for the row's number");
  cr_assert_eq(tfm_decoder_fork(fixture.decoder, 2, &copy, NULL), TFM_OK);
  cr_expect_eq(copy, 0);
  cr_assert_eq(tfm_decoder_truncate(fixture.decoder, 0, 20, NULL), TFM_OK);
  step_one(0, tokens[0] + 20, START - 20, 1, scores);
  check_scores(scores, 1, tokens[0], START);
  step_one(2, tokens[2], 1, 1, scores);
  tokens[2][70] = tokens[2][0];
  check_scores(scores, 1, tokens[2], 71);
  teardown();
}

Test(runtime_decoder, truncated_rows_go_on) {
  static int32_t tokens[WRITER_MOST];
  float scores[WRITER_VOCAB], copy[WRITER_VOCAB];
  setup(2);
  begin(2, 80);
  tokens_fill(tokens, 70, 5);
  int64_t row = join(0), parents[] = {0, 0};
  step_one(row, tokens, 70, 1, scores);
  cr_assert_eq(tfm_decoder_reorder(fixture.decoder, 2, parents, NULL), TFM_OK);
  static const int64_t lengths[] = {64, 33, 32, 31, 0};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    cr_assert_eq(tfm_decoder_truncate(fixture.decoder, 0, lengths[i], NULL), TFM_OK);
    cr_expect_eq(tfm_decoder_length(fixture.decoder, 0), lengths[i]);
    tokens[lengths[i]] = (tokens[lengths[i]] + 1) % 7;
    step_one(0, tokens + lengths[i], 1, 1, scores);
    check_scores(scores, 0, tokens, lengths[i] + 1);
  }
  tokens_fill(tokens, 71, 5);
  step_one(1, tokens + 70, 1, 1, copy); /* the copy knows nothing of it */
  check_scores(copy, 0, tokens, 71);
  teardown();
}

/* Rows that go together in a tile give what each gives alone. */
Test(runtime_decoder, company_makes_no_difference) {
  enum { ROWS = 11, START = 30, ROUNDS = 20 };
  static int32_t tokens[ROWS][WRITER_MOST];
  static float together[ROUNDS][ROWS * WRITER_VOCAB], alone[WRITER_VOCAB];
  static const int64_t parents[ROWS] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1};
  for (int32_t threads = 1; threads <= 5; threads += 2) {
    setup(threads);
    begin(ROWS + 1, START + ROUNDS);
    for (int i = 0; i < ROWS; i++) {
      tokens_fill(tokens[i], START + ROUNDS, 3);
      for (int j = START; j < START + ROUNDS; j++) tokens[i][j] = (tokens[i][j] + i) % (WRITER_VOCAB - 1);
    }
    const tfm_decoder_row starts[] = {{join(0), tokens[0], START, 0}, {join(1), tokens[0], START, 0}};
    step(2, starts, 1, together[0], NULL);
    cr_assert_eq(tfm_decoder_reorder(fixture.decoder, ROWS, parents, NULL), TFM_OK);
    for (int round = 0; round < ROUNDS; round++) {
      tfm_decoder_row rows[ROWS];
      for (int i = 0; i < ROWS; i++) rows[i] = (tfm_decoder_row){i, tokens[i] + START + round, 1, 0};
      step(ROWS, rows, 1, together[round], NULL);
    }
    for (int i = 0; i < ROWS; i++) {
      int64_t row = join(parents[i]);
      step_one(row, tokens[i], START, 1, alone);
      for (int round = 0; round < ROUNDS; round++) {
        step_one(row, tokens[i] + START + round, 1, 1, alone);
        SAME(alone, together[round] + i * WRITER_VOCAB, 1);
      }
      tfm_decoder_leave(fixture.decoder, row, NULL);
    }
    teardown();
  }
}

/* One row goes alone; of more, each but one needs a context beside that of the step. */
Test(runtime_decoder, there_are_no_more_contexts_than_runs) {
  setup(1);
  for (int64_t rows = 1; rows <= 5; rows += 2) {
    begin(rows, 4);
    for (int64_t i = 0; i < 8; i++) cr_expect_eq(fixture.decoder->lockstep.context[i] != NULL, i < rows - 1, "%lld", (long long)i);
  }
  teardown();
}

/* Rows of different lengths go together as runs beside one another: with the bits of each alone. */
Test(runtime_decoder, other_lengths_make_no_difference) {
  enum { ROWS = 40, ROUNDS = 12, MOST = 3 * ROWS + ROUNDS * 3 };
  static int32_t tokens[MOST];
  static float together[ROUNDS][ROWS * WRITER_VOCAB], alone[WRITER_VOCAB];
  tokens_fill(tokens, MOST, 4);
  for (int32_t threads = 1; threads <= 5; threads += 2) {
    setup(threads);
    begin(ROWS + 1, MOST);
    for (int64_t i = 0; i < ROWS; i++) join(i % 3 == 0);
    for (int round = 0; round < ROUNDS; round++) {
      tfm_decoder_row rows[ROWS];
      for (int64_t i = 0; i < ROWS; i++) {
        int64_t row = (i * 7 + round) % ROWS, length = tfm_decoder_length(fixture.decoder, row);
        rows[i] = (tfm_decoder_row){row, tokens + length, round ? 1 + (row + round) % 3 : 1 + row / 2, 0};
      }
      step(ROWS, rows, 1, together[round], NULL);
    }
    for (int64_t i = 0; i < MOST_TOGETHER - 1; i++)
      cr_expect_eq(fixture.decoder->lockstep.context[i]->memory.workspace, fixture.decoder->step->memory.workspace, "run %lld waits", (long long)i + 1);
    for (int64_t row = 0; row < ROWS; row++) {
      int64_t copy = join(row % 3 == 0), length = 0;
      for (int round = 0; round < ROUNDS; round++) {
        int64_t place = ((row - round) * 23 % ROWS + ROWS) % ROWS, n = round ? 1 + (row + round) % 3 : 1 + row / 2;
        step_one(copy, tokens + length, n, 1, alone);
        length += n;
        SAME(alone, together[round] + place * WRITER_VOCAB, 1);
      }
      tfm_decoder_leave(fixture.decoder, copy, NULL);
    }
    teardown();
  }
}

/* --- Anything in any order ----------------------------------------------------------------------------------------- */

enum { CROWD = 6, LONGEST = 70 };

typedef struct Mirror { /* what the rows should be */
  int64_t length[CROWD], item[CROWD]; /* length -1: no such row */
  int32_t tokens[CROWD][LONGEST];
  uint32_t seed;
} Mirror;

static int64_t draw(Mirror *m, int64_t n) {
  m->seed = m->seed * 1664525u + 1013904223u;
  return (int64_t)(m->seed >> 8) % n;
}

static void random_step(Mirror *m) {
  static float scores[CROWD * 2 * WRITER_VOCAB];
  tfm_decoder_row rows[CROWD];
  int64_t n = 0, kept = 1 + draw(m, 2);
  for (int64_t i = 0; i < CROWD; i++) {
    int64_t n_tokens = kept + (draw(m, 4) ? 0 : draw(m, 25));
    if (m->length[i] < 0 || m->length[i] + n_tokens > LONGEST || draw(m, 5) == 0) continue;
    int32_t *tokens = m->tokens[i] + m->length[i];
    for (int64_t k = 0; k < n_tokens; k++) tokens[k] = (int32_t)draw(m, WRITER_VOCAB - 1);
    rows[n++] = (tfm_decoder_row){i, tokens, n_tokens, 0};
    m->length[i] += n_tokens;
  }
  step(n, rows, kept, scores, NULL);
  for (int64_t i = 0; i < n * kept; i++) {
    int64_t row = rows[i / kept].row;
    check_scores(scores + i * WRITER_VOCAB, m->item[row], m->tokens[row], m->length[row] - kept + 1 + i % kept);
  }
}

static void random_reorder(Mirror *m) {
  static Mirror before;
  before = *m;
  int64_t parents[CROWD], n = draw(m, CROWD + 1);
  for (int64_t i = 0; i < n; i++) {
    parents[i] = draw(m, CROWD);
    if (m->length[parents[i]] < 0) n = i;
  }
  cr_assert_eq(tfm_decoder_reorder(fixture.decoder, n, parents, NULL), TFM_OK);
  for (int64_t i = 0; i < CROWD; i++) {
    m->length[i] = i < n ? before.length[parents[i]] : -1;
    m->item[i] = i < n ? before.item[parents[i]] : 0;
    if (i < n) memcpy(m->tokens[i], before.tokens[parents[i]], sizeof m->tokens[i]);
  }
}

static void random_change(Mirror *m) {
  int64_t row = draw(m, CROWD), what = draw(m, 8);
  if (what == 0) {
    random_reorder(m);
  } else if (m->length[row] < 0) {
    int64_t item = draw(m, ITEMS), parent = draw(m, CROWD), number;
    if (m->length[parent] < 0 || draw(m, 2)) {
      number = join(item);
      m->length[number] = 0;
      m->item[number] = item;
    } else {
      cr_assert_eq(tfm_decoder_fork(fixture.decoder, parent, &number, NULL), TFM_OK);
      m->length[number] = m->length[parent];
      m->item[number] = m->item[parent];
      memcpy(m->tokens[number], m->tokens[parent], sizeof m->tokens[number]);
    }
  } else if (what == 1) {
    cr_assert_eq(tfm_decoder_leave(fixture.decoder, row, NULL), TFM_OK);
    m->length[row] = -1;
  } else if (what < 4) {
    m->length[row] = draw(m, m->length[row] + 1);
    cr_assert_eq(tfm_decoder_truncate(fixture.decoder, row, m->length[row], NULL), TFM_OK);
  }
}

Test(runtime_decoder, anything_in_any_order) {
  static Mirror m = {.seed = 5};
  for (int i = 0; i < CROWD; i++) m.length[i] = -1;
  setup(2);
  begin(CROWD, LONGEST);
  for (int round = 0; round < 600; round++) {
    random_change(&m);
    random_step(&m);
    for (int i = 0; i < CROWD; i++) cr_assert_eq(tfm_decoder_length(fixture.decoder, i), m.length[i]);
  }
  cr_assert_eq(tfm_decoder_reorder(fixture.decoder, 0, NULL, NULL), TFM_OK);
  cr_expect_eq(pages_in_use(), 0);
  cr_expect_eq(fixture.decoder->caches.flat.n_touched, fixture.decoder->caches.flat.n_free);
  teardown();
}

/* --- Errors -------------------------------------------------------------------------------------------------------- */

Test(runtime_decoder, errors_change_nothing) {
  enum { START = 20 };
  int32_t tokens[WRITER_MOST], bad[] = {5, WRITER_VOCAB};
  float scores[4 * WRITER_VOCAB];
  tfm_error error;
  int64_t row;
  setup(2);
  tfm_decoder *d = fixture.decoder;
  expect_error(tfm_decoder_join(d, 0, &row, &error), TFM_E_USAGE, &error,
               "the decoder has not begun: tfm_decoder_begin comes first");
  expect_error(tfm_decoder_step(d, 0, NULL, 1, scores, NULL, &error), TFM_E_USAGE, &error,
               "the decoder has not begun: tfm_decoder_begin comes first");
  expect_error(tfm_decoder_begin(d, NULL, -1, 5, &error), TFM_E_INPUT, &error,
               "-1 rows of 5 tokens: there may be 0 and 1 to 16777216");
  begin(2, START + 4);
  tokens_fill(tokens, START, 2);
  expect_error(tfm_decoder_join(d, ITEMS, &row, &error), TFM_E_INPUT, &error, "there is no item 2: there are 2");
  join(0), join(1);
  expect_error(tfm_decoder_join(d, 0, &row, &error), TFM_E_INPUT, &error, "there is room for 2 rows, and all are there");
  const tfm_decoder_row first[] = {{0, tokens, START, 0}, {1, tokens, START - 1, 0}};
  step(2, first, 1, scores, NULL);
  tfm_decoder_row rows[] = {{0, tokens, 3, 0}, {1, bad, 2, 0}};
  expect_error(tfm_decoder_step(d, 2, rows, 1, scores, NULL, &error), TFM_E_INPUT, &error,
               "input \"tgt\"[0,1] = 32, legal range is [0, 32)");
  cr_expect_eq(tfm_decoder_length(d, 0), START);
  cr_expect_eq(pages_in_use(), 4);
  rows[1] = (tfm_decoder_row){0, tokens, 1, 0};
  expect_error(tfm_decoder_step(d, 2, rows, 1, scores, NULL, &error), TFM_E_INPUT, &error, "row 0 is there twice");
  rows[1] = (tfm_decoder_row){1, tokens, 0, 0};
  expect_error(tfm_decoder_step(d, 2, rows, 0, scores, NULL, &error), TFM_E_INPUT, &error, "row 1 gets no tokens");
  rows[1] = (tfm_decoder_row){2, tokens, 1, 0};
  expect_error(tfm_decoder_step(d, 2, rows, 1, scores, NULL, &error), TFM_E_INPUT, &error, "there is no row 2");
  rows[1] = (tfm_decoder_row){1, tokens, 6, 0};
  expect_error(tfm_decoder_step(d, 2, rows, 1, scores, NULL, &error), TFM_E_INPUT, &error,
               "row 1 has 19 tokens and gets 6: there is room for 24");
  rows[1] = (tfm_decoder_row){1, tokens, 2, 0};
  expect_error(tfm_decoder_step(d, 2, rows, 3, scores, NULL, &error), TFM_E_INPUT, &error,
               "row 1 gets 2 tokens: there are no logits after the last 3");
  const int64_t parents[] = {1, 5};
  expect_error(tfm_decoder_reorder(d, 2, parents, &error), TFM_E_INPUT, &error, "there is no row 5");
  expect_error(tfm_decoder_truncate(d, 0, START + 1, &error), TFM_E_INPUT, &error, "row 0 has 20 tokens, not 21");
  step(2, rows, 1, scores, NULL);
  memcpy(tokens + START, tokens, 3 * sizeof *tokens);
  check_scores(scores, 0, tokens, START + 3);
  teardown();
}

/* A kernel that writes into an output, after which its run is not cancelled any more. */
static tfm_row_kernel writes_tokens;
static void writes_and_cancels(const tfm_row_args *args) {
  writes_tokens(args);
  tfm_decoder_cancel(fixture.decoder);
}

Test(runtime_decoder, a_step_of_several_runs_is_cancelled_between_them) {
  static int32_t tokens[WRITER_MOST];
  static float scores[WRITER_VOCAB];
  tfm_error error;
  setup(1);
  begin(1, WRITER_MOST);
  tokens_fill(tokens, WRITER_MOST, 2);
  tfm_decoder_row row = {join(0), tokens, WRITER_MOST, 0};
  HandProgram *hand = &fixture.hand.step;
  uint32_t kernel = TFM_NONE;
  for (uint32_t i = 0; i < hand->n_rows; i++) {
    const tfm_operand *result = &hand->operands[hand->rows[i].first_operand];
    if (result->space == TFM_SPACE_OUTPUT && result->index == 2) kernel = hand->rows[i].kernel;
  }
  cr_assert_neq(kernel, TFM_NONE);
  memcpy(&writes_tokens, &hand->kernels[kernel], sizeof writes_tokens);
  const tfm_row_kernel other = writes_and_cancels;
  memcpy(&hand->kernels[kernel], &other, sizeof other);
  expect_error(tfm_decoder_step(fixture.decoder, 1, &row, 1, scores, NULL, &error), TFM_E_CANCELLED, &error,
               "the run was cancelled");
  cr_expect_eq(tfm_decoder_length(fixture.decoder, 0), 0);
  row.n_tokens = 20; /* one run: it is too late for it, and the next call is not affected */
  step(1, &row, 1, scores, NULL);
  check_scores(scores, 0, tokens, 20);
  memcpy(&hand->kernels[kernel], &writes_tokens, sizeof writes_tokens);
  row = (tfm_decoder_row){0, tokens + 20, 1, 0};
  step(1, &row, 1, scores, NULL);
  check_scores(scores, 0, tokens, 21);
  teardown();
}

Test(runtime_decoder, checks_of_the_model_speak_when_a_row_gets_there) {
  static int32_t tokens[WRITER_MOST + 1];
  float scores[WRITER_VOCAB];
  tfm_error error;
  setup(1);
  begin(1, 1000);
  tokens_fill(tokens, WRITER_MOST + 1, 4);
  tfm_decoder_row row = {join(0), tokens, WRITER_MOST, 0};
  step(1, &row, 1, scores, NULL);
  check_scores(scores, 0, tokens, WRITER_MOST);
  row = (tfm_decoder_row){0, tokens + WRITER_MOST, 1, 0};
  expect_error(tfm_decoder_step(fixture.decoder, 1, &row, 1, scores, NULL, &error), TFM_E_INPUT, &error,
               "a row of 601 tokens is too long");
  cr_expect_str_eq(error.place, "writer.tfm:5:5");
  cr_expect_eq(fixture.decoder->caches.longest, WRITER_MOST, "no memory for what cannot be");
  cr_expect_eq(tfm_decoder_length(fixture.decoder, 0), WRITER_MOST);
  teardown();
}

/* --- Generation ---------------------------------------------------------------------------------------------------- */

/* A model that computes every row anew. */
static tfm_status anew(void *user, const tfm_step_rows *rows, float *scores, float *logsumexp, tfm_error *error) {
  (void)user, (void)error, (void)logsumexp;
  for (int64_t i = 0; i < rows->n; i++) {
    const WriterSource source = {fixture.source + rows->items[i] * SOURCE, fixture.masked + rows->items[i] * SOURCE, SOURCE};
    hand_writer_scores(&source, rows->tokens[i], rows->lengths[i], scores + i * WRITER_VOCAB);
  }
  return TFM_OK;
}

static void generate_both(int64_t beams) {
  const int64_t lengths[] = {3, 1};
  const int32_t starts[] = {1, 2, 3, 4, 0, 0};
  const tfm_prompts prompts = {.n = 2, .width = 3, .tokens = starts, .lengths = lengths};
  const int64_t eos[] = {9}, no_number[] = {WRITER_VOCAB - 1};
  tfm_generate_options options;
  tfm_generate_defaults(&options);
  options.num_beams = options.num_return_sequences = beams;
  options.max_new_tokens = 40;
  options.repetition_penalty = 1.3;
  options.eos_token_ids = (tfm_token_list){eos, 1};
  options.suppress_tokens = (tfm_token_list){no_number, 1};
  const tfm_generate_model whole = {.vocab = WRITER_VOCAB, .logits = anew};
  const tfm_generate_model model = tfm_decoder_model(fixture.decoder);
  tfm_generated expected, written;
  tfm_error error;
  begin(2 * beams, 50);
  cr_assert_eq(tfm_generate(&whole, &prompts, &options, &expected, &error), TFM_OK, "%s", error.message);
  for (int again = 0; again < 2; again++) {
    cr_assert_eq(tfm_generate(&model, &prompts, &options, &written, &error), TFM_OK, "%s", error.message);
    cr_expect_eq(written.width, expected.width);
    for (int64_t i = 0; i < written.n * written.width; i++) cr_expect_eq(written.sequences[i], expected.sequences[i]);
    for (int64_t i = 0; beams > 1 && i < written.n; i++) cr_expect_float_eq(written.scores[i], expected.scores[i], 1e-4);
    tfm_generated_free(&written);
  }
  tfm_generated_free(&expected);
}

Test(runtime_decoder, generation) {
  setup(2);
  generate_both(1);
  generate_both(4);
  teardown();
}
