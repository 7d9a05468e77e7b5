/* Decoders that were opened with limits: sources come and go while rows are decoded, each row says how many logits it
 * wants, pages may run out. Every logit has the bits of a decoder that has only that row and its source. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "hand_decoding.h"
#include "tfm/decode.h"

enum { ITEMS = 4, ROWS = 5, SOURCE = 20, LENGTH = 70, NONE = -1 };

typedef struct Source { /* of an item; n NONE: there is none */
  int64_t n;
  int32_t tokens[SOURCE];
  uint8_t masked[SOURCE];
} Source;

typedef struct Row { /* item NONE: there is none */
  int64_t item, length;
  int32_t tokens[LENGTH];
} Row;

typedef struct World {
  HandDecoding hand;
  tfm_decoder *decoder, *alone;
  Source sources[ITEMS];
  Row rows[ROWS];
  uint32_t random;
  int64_t allocations;
} World;

static World world;

static int64_t draw(int64_t n) {
  world.random = world.random * 1664525 + 1013904223;
  return (int64_t)(world.random >> 8) % n;
}

static void *counted_allocate(void *user, size_t bytes, size_t alignment) {
  ((World *)user)->allocations++;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void counted_release(void *user, void *memory, size_t bytes) {
  (void)user, (void)bytes;
  free(memory);
}

static tfm_decoder *decoder_new(int32_t threads) {
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads,
                                       .allocator = {counted_allocate, counted_release, &world}};
  tfm_decoder *decoder;
  tfm_error error;
  cr_assert_eq(tfm_decoder_create(&world.hand.decoding, NULL, NULL, &options, &decoder, &error), TFM_OK, "%s",
               error.message);
  return decoder;
}

/* The largest value of each size of the encoder program. */
static const int64_t *source_sizes(void) {
  static int64_t sizes[8];
  for (uint32_t i = 0; i < world.hand.decoding.encoder->n_symbols; i++) sizes[i] = SOURCE;
  sizes[world.hand.decoding.encoder_rows] = 0; /* not read */
  return sizes;
}

static tfm_decoder_limits limits_of(void) {
  return (tfm_decoder_limits){
      .struct_size = sizeof(tfm_decoder_limits), .rows = ROWS, .length = LENGTH, .items = ITEMS,
      .source_sizes = source_sizes()};
}

static void setup(int32_t threads) {
  memset(&world, 0, sizeof world);
  world.random = (uint32_t)threads;
  hand_writer(&world.hand);
  world.decoder = decoder_new(threads);
  world.alone = decoder_new(1);
  for (int i = 0; i < ITEMS; i++) world.sources[i].n = NONE;
  for (int i = 0; i < ROWS; i++) world.rows[i].item = NONE;
}

static void open_decoder(const tfm_decoder_limits *limits) {
  tfm_error error;
  cr_assert_eq(tfm_decoder_open(world.decoder, limits, &error), TFM_OK, "%s", error.message);
}

static void teardown(void) {
  tfm_decoder_destroy(world.decoder);
  tfm_decoder_destroy(world.alone);
}

// ---- sources ----

static void fill_source(Source *source, int64_t n) {
  source->n = n;
  for (int64_t i = 0; i < n; i++) {
    source->tokens[i] = (int32_t)draw(WRITER_VOCAB - 1);
    source->masked[i] = i > 0 && draw(4) == 0;
  }
}

/* Adds so many sources of this length; *first is the number of the first. */
static tfm_status add(int64_t n, int64_t length, int64_t *first, tfm_error *error) {
  Source made[ITEMS];
  int32_t tokens[ITEMS * SOURCE];
  uint8_t masked[ITEMS * SOURCE];
  const int64_t dims[] = {n, length};
  const tfm_value inputs[] = {{tokens, TFM_I32, 2, dims}, {masked, TFM_BOOL, 2, dims}};
  for (int64_t i = 0; i < n; i++) {
    fill_source(&made[i], length);
    memcpy(tokens + i * length, made[i].tokens, (size_t)length * sizeof *tokens);
    memcpy(masked + i * length, made[i].masked, (size_t)length);
  }
  const tfm_status status = tfm_decoder_add_source(world.decoder, inputs, NULL, first, error);
  for (int64_t i = 0; i < n && status == TFM_OK; i++) {
    cr_assert_eq(world.sources[*first + i].n, NONE, "item %lld is there twice", (long long)(*first + i));
    world.sources[*first + i] = made[i];
  }
  return status;
}

static bool is_read(int64_t item) {
  for (int i = 0; i < ROWS; i++)
    if (world.rows[i].item == item) return true;
  return false;
}

static void drop_one(void) {
  const int64_t item = draw(ITEMS);
  tfm_error error;
  const tfm_status status = tfm_decoder_drop_source(world.decoder, item, &error);
  if (world.sources[item].n == NONE || is_read(item)) {
    cr_assert_eq(status, TFM_E_INPUT);
    cr_assert(strstr(error.message, world.sources[item].n == NONE ? "there is no item" : "a row reads it"), "%s",
              error.message);
    return;
  }
  cr_assert_eq(status, TFM_OK, "%s", error.message);
  world.sources[item].n = NONE;
}

static int64_t items(void) {
  int64_t n = 0;
  for (int i = 0; i < ITEMS; i++) n += world.sources[i].n != NONE;
  return n;
}

/* As many as there is room for, or more, which is refused. */
static void add_some(void) {
  const int64_t n = 1 + draw(2);
  int64_t first;
  tfm_error error;
  const tfm_status status = add(n, 1 + draw(SOURCE), &first, &error);
  if (status == TFM_OK) return;
  cr_assert_eq(status, TFM_E_INPUT);
  cr_assert(strstr(error.message, "there is no room for"), "%s", error.message);
  cr_assert(n > 1 || items() == ITEMS, "there was room");
}

// ---- rows ----

static void join_or_leave(void) {
  tfm_error error;
  Row *row = &world.rows[draw(ROWS)];
  if (row->item != NONE) {
    cr_assert_eq(tfm_decoder_leave(world.decoder, row - world.rows, &error), TFM_OK, "%s", error.message);
    row->item = NONE;
    return;
  }
  const int64_t item = draw(ITEMS);
  int64_t number;
  const tfm_status status = tfm_decoder_join(world.decoder, item, &number, &error);
  if (world.sources[item].n == NONE) {
    cr_assert_eq(status, TFM_E_INPUT);
    return;
  }
  cr_assert_eq(status, TFM_OK, "%s", error.message);
  cr_assert_eq(world.rows[number].item, NONE);
  world.rows[number] = (Row){.item = item};
}

/* The logits after the last n tokens of the row by the decoder that has nothing else. */
static void logits_alone(const Row *row, int64_t n, float *logits) {
  const Source *source = &world.sources[row->item];
  const int64_t dims[] = {1, source->n};
  const tfm_value inputs[] = {{(void *)source->tokens, TFM_I32, 2, dims}, {(void *)source->masked, TFM_BOOL, 2, dims}};
  tfm_error error;
  tfm_decoder_row part = {.tokens = row->tokens, .n_tokens = row->length};
  cr_assert_eq(tfm_decoder_begin(world.alone, inputs, 1, LENGTH, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(tfm_decoder_join(world.alone, 0, &part.row, &error), TFM_OK);
  cr_assert_eq(tfm_decoder_step(world.alone, 1, &part, n, logits, NULL, &error), TFM_OK, "%s", error.message);
}

/* Some rows get tokens; each wants logits after some of them, or none. */
static void step_some(void) {
  static float logits[ROWS * LENGTH * WRITER_VOCAB], sums[ROWS * LENGTH], expected[LENGTH * WRITER_VOCAB];
  tfm_decoder_row parts[ROWS];
  int64_t n = 0, wanted[ROWS], of_all = draw(2);
  for (int i = 0; i < ROWS; i++) {
    Row *row = &world.rows[i];
    const int64_t fresh = draw(3) ? 1 + draw(2) : 1 + draw(20);
    if (row->item == NONE || draw(4) == 0 || row->length + fresh > LENGTH) continue;
    for (int64_t t = 0; t < fresh; t++) row->tokens[row->length + t] = (int32_t)draw(WRITER_VOCAB - 1);
    const int64_t kept = draw(2) ? 0 : draw(2) ? -1 : 1 + draw(fresh);
    parts[n] = (tfm_decoder_row){i, row->tokens + row->length, fresh, kept};
    wanted[n++] = kept < 0 ? 0 : kept ? kept : of_all;
    row->length += fresh;
  }
  for (int64_t i = n - 1; i > 0; i--) { /* in any order */
    const int64_t other = draw(i + 1), kept = wanted[i];
    const tfm_decoder_row part = parts[i];
    parts[i] = parts[other], parts[other] = part;
    wanted[i] = wanted[other], wanted[other] = kept;
  }
  tfm_error error;
  cr_assert_eq(tfm_decoder_step(world.decoder, n, parts, of_all, logits, sums, &error), TFM_OK, "%s", error.message);
  const float *next = logits;
  for (int64_t i = 0; i < n; i++) {
    if (!wanted[i]) continue;
    logits_alone(&world.rows[parts[i].row], wanted[i], expected);
    const size_t numbers = (size_t)wanted[i] * WRITER_VOCAB;
    cr_assert_eq(memcmp(next, expected, numbers * sizeof *next), 0, "row %lld of %lld tokens, %lld logits",
                 (long long)parts[i].row, (long long)world.rows[parts[i].row].length, (long long)wanted[i]);
    next += numbers;
  }
}

Test(runtime_decoder_sources, whatever_comes_and_goes_each_row_has_its_own_bits) {
  for (int32_t threads = 1; threads <= 3; threads++) {
    setup(threads);
    const tfm_decoder_limits limits = limits_of();
    open_decoder(&limits);
    for (int i = 0; i < 400; i++) {
      if (draw(8) == 0) add_some();
      if (draw(8) == 0) drop_one();
      if (draw(2) == 0) join_or_leave();
      cr_assert_eq(tfm_decoder_items(world.decoder), items());
      step_some();
    }
    teardown();
  }
}

/* Rows 0 and 1 in one run. */
static void step_both(void) {
  float logits[2 * WRITER_VOCAB], expected[WRITER_VOCAB];
  tfm_decoder_row parts[2];
  for (int i = 0; i < 2; i++) {
    Row *row = &world.rows[i];
    for (int t = 0; t < 2; t++) row->tokens[row->length + t] = (int32_t)draw(WRITER_VOCAB - 1);
    parts[i] = (tfm_decoder_row){i, row->tokens + row->length, 2, 0};
    row->length += 2;
  }
  tfm_error error;
  cr_assert_eq(tfm_decoder_step(world.decoder, 2, parts, 1, logits, NULL, &error), TFM_OK, "%s", error.message);
  for (int i = 0; i < 2; i++) {
    logits_alone(&world.rows[i], 1, expected);
    cr_assert_eq(memcmp(logits + i * WRITER_VOCAB, expected, sizeof expected), 0, "row %d", i);
  }
}

/* The number of a dropped item is used again, by rows at the same place: nothing of the old source may be seen. */
Test(runtime_decoder_sources, a_number_that_is_used_again_means_the_new_source) {
  setup(1);
  const tfm_decoder_limits limits = limits_of();
  open_decoder(&limits);
  tfm_error error;
  int64_t item, row;
  for (int round = 0; round < 6; round++) {
    cr_assert_eq(add(2, SOURCE, &item, &error), TFM_OK, "%s", error.message);
    cr_assert_eq(item, 0);
    for (int64_t i = 1; i >= 0; i--) { /* against the order, so that their tensors are put together */
      cr_assert_eq(tfm_decoder_join(world.decoder, i, &row, &error), TFM_OK);
      world.rows[row] = (Row){.item = i};
    }
    for (int i = 0; i < 3; i++) step_both();
    for (int i = 0; i < 2; i++) {
      tfm_decoder_leave(world.decoder, i, NULL);
      world.rows[i].item = NONE;
    }
    for (int i = 0; i < 2; i++) {
      cr_assert_eq(tfm_decoder_drop_source(world.decoder, i, &error), TFM_OK, "%s", error.message);
      world.sources[i].n = NONE;
    }
  }
  teardown();
}

// ---- memory ----

Test(runtime_decoder_sources, steps_within_the_limits_allocate_nothing) {
  setup(2);
  tfm_decoder_limits limits = limits_of();
  limits.step_kept = 64;
  open_decoder(&limits);
  static float logits[64 * WRITER_VOCAB];
  int32_t tokens[LENGTH] = {0};
  int64_t item, row;
  tfm_error error;
  for (int64_t i = 0; i < ITEMS; i++) cr_assert_eq(add(1, SOURCE - i, &item, &error), TFM_OK, "%s", error.message);
  const int64_t before = world.allocations;
  for (int64_t round = 0; round < 3; round++) {
    tfm_decoder_row parts[ROWS];
    for (int64_t i = 0; i < ROWS; i++) {
      cr_assert_eq(tfm_decoder_join(world.decoder, i % ITEMS, &row, &error), TFM_OK, "%s", error.message);
      parts[i] = (tfm_decoder_row){row, tokens, 1 + 13 * i, i == 1 ? 12 : i % 3 - 1};
    }
    for (int i = 0; i < 4; i++) {
      cr_assert_eq(tfm_decoder_step(world.decoder, ROWS, parts, 1, logits, NULL, &error), TFM_OK, "%s", error.message);
      for (int64_t k = 0; k < ROWS; k++) parts[k].n_tokens = 1, parts[k].kept = k % 2 - 1;
    }
    for (int64_t i = 0; i < ROWS; i++) tfm_decoder_leave(world.decoder, i, NULL);
  }
  cr_assert_eq(world.allocations, before);
  const uint64_t bytes = tfm_decoder_bytes(world.decoder);
  for (int round = 0; round < 5; round++) { /* the memory of sources that are gone is used again */
    for (int64_t i = 0; i < ITEMS; i++) cr_assert_eq(tfm_decoder_drop_source(world.decoder, i, &error), TFM_OK);
    for (int64_t i = 0; i < ITEMS; i++) world.sources[i].n = NONE;
    for (int64_t i = 0; i < ITEMS; i++) cr_assert_eq(add(1, SOURCE - i, &item, &error), TFM_OK);
  }
  cr_assert_leq(tfm_decoder_bytes(world.decoder), bytes + bytes / 2);
  teardown();
}

Test(runtime_decoder_sources, a_step_without_pages_is_refused_before_anything_is_computed) {
  setup(1);
  tfm_decoder_limits limits = limits_of();
  open_decoder(&limits);
  int64_t left, item, rows[2];
  const int64_t of_a_row = tfm_decoder_pages(world.decoder, LENGTH, &left);
  cr_assert_gt(of_a_row, 1);
  cr_assert_eq(left, ROWS * of_a_row, "by default all rows have room");
  limits.cache_bytes = 1; /* grows until one row and a half fit */
  while (left > of_a_row * 3 / 2 || left < of_a_row) {
    open_decoder(&limits);
    tfm_decoder_pages(world.decoder, 0, &left);
    if (left < of_a_row) limits.cache_bytes += limits.cache_bytes / 16 + 1;
    else if (left > of_a_row * 3 / 2) cr_assert_fail("%lld pages", (long long)left);
  }
  int32_t tokens[LENGTH] = {0};
  float logits[2 * WRITER_VOCAB];
  tfm_error error;
  cr_assert_eq(add(1, 5, &item, &error), TFM_OK, "%s", error.message);
  for (int i = 0; i < 2; i++) tfm_decoder_join(world.decoder, item, &rows[i], NULL);
  tfm_decoder_row parts[] = {{rows[0], tokens, LENGTH, 0}, {rows[1], tokens, LENGTH, 0}};
  cr_assert_eq(tfm_decoder_step(world.decoder, 2, parts, 1, logits, NULL, &error), TFM_E_NOMEM);
  cr_assert(strstr(error.message, "pages of caches"), "%s", error.message);
  cr_assert_eq(tfm_decoder_length(world.decoder, rows[0]), 0);
  int64_t now;
  tfm_decoder_pages(world.decoder, 0, &now);
  cr_assert_eq(now, left);
  cr_assert_eq(tfm_decoder_step(world.decoder, 1, parts, 1, logits, NULL, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(tfm_decoder_step(world.decoder, 1, parts + 1, 1, logits, NULL, &error), TFM_E_NOMEM);
  tfm_decoder_leave(world.decoder, rows[0], NULL);
  cr_assert_eq(tfm_decoder_step(world.decoder, 1, parts + 1, 1, logits, NULL, &error), TFM_OK, "%s", error.message);
  teardown();
}

// ---- refusals ----

Test(runtime_decoder_sources, limits_out_of_their_range) {
  setup(1);
#define REFUSED(wanted, words, ...)                                              \
  do {                                                                           \
    tfm_decoder_limits limits = limits_of();                                     \
    tfm_error error = {0};                                                       \
    __VA_ARGS__;                                                                 \
    cr_expect_eq(tfm_decoder_open(world.decoder, &limits, &error), wanted, words); \
    cr_expect(strstr(error.message, words), "%s, not %s", error.message, words); \
  } while (0)
  REFUSED(TFM_E_INPUT, "no rows", limits.rows = 0);
  REFUSED(TFM_E_INPUT, "there may be", limits.length = 0);
  REFUSED(TFM_E_INPUT, "there may be", limits.rows = TFM_DECODER_MOST + 1);
  REFUSED(TFM_E_INPUT, "limits lie", limits.step_kept = -1);
  REFUSED(TFM_E_INPUT, "limits lie", limits.step_rows = -1);
  REFUSED(TFM_E_INPUT, "limits lie", limits.items = TFM_DECODER_MOST + 1);
  REFUSED(TFM_E_INPUT, "no sources", limits.items = 0);
  REFUSED(TFM_E_USAGE, "no sizes of sources", limits.source_sizes = NULL);
#undef REFUSED
  cr_expect_eq(tfm_decoder_open(world.decoder, NULL, NULL), TFM_E_USAGE);
  cr_expect_eq(tfm_decoder_open(NULL, &(tfm_decoder_limits){0}, NULL), TFM_E_USAGE);
  int64_t item;
  tfm_error error;
  cr_expect_eq(add(1, 3, &item, &error), TFM_E_USAGE, "it has not begun");
  const tfm_decoder_limits limits = limits_of();
  open_decoder(&limits);
  const int64_t dims[] = {1, SOURCE + 1};
  int32_t tokens[SOURCE + 1] = {0};
  uint8_t masked[SOURCE + 1] = {0};
  const tfm_value inputs[] = {{tokens, TFM_I32, 2, dims}, {masked, TFM_BOOL, 2, dims}};
  cr_expect_eq(tfm_decoder_add_source(world.decoder, inputs, NULL, &item, &error), TFM_E_INPUT);
  cr_expect(strstr(error.message, "is 21; the decoder was opened for 20 at most"), "%s", error.message);
  cr_expect_eq(tfm_decoder_add_source(world.decoder, inputs, NULL, NULL, &error), TFM_E_USAGE);
  cr_expect_eq(tfm_decoder_items(world.decoder), 0);
  teardown();
}

Test(runtime_decoder_sources, steps_of_more_rows_than_a_step_may_have) {
  setup(1);
  tfm_decoder_limits limits = limits_of();
  limits.step_rows = 2;
  open_decoder(&limits);
  int64_t item, row;
  tfm_error error;
  int32_t token = 1;
  float logits[3 * WRITER_VOCAB];
  tfm_decoder_row parts[3];
  cr_assert_eq(add(1, 4, &item, &error), TFM_OK, "%s", error.message);
  for (int i = 0; i < 3; i++) {
    cr_assert_eq(tfm_decoder_join(world.decoder, item, &row, &error), TFM_OK, "%s", error.message);
    parts[i] = (tfm_decoder_row){row, &token, 1, 0};
  }
  cr_expect_eq(tfm_decoder_step(world.decoder, 3, parts, 1, logits, NULL, &error), TFM_E_INPUT);
  cr_expect(strstr(error.message, "a step of 3 rows: there is room for 2"), "%s", error.message);
  cr_expect_eq(tfm_decoder_step(world.decoder, 2, parts, 1, logits, NULL, &error), TFM_OK, "%s", error.message);
  parts[2].kept = -2;
  cr_expect_eq(tfm_decoder_step(world.decoder, 1, parts + 2, 1, logits, NULL, &error), TFM_E_INPUT);
  cr_expect(strstr(error.message, "wants -2 logits"), "%s", error.message);
  parts[2].kept = 2;
  cr_expect_eq(tfm_decoder_step(world.decoder, 1, parts + 2, 1, logits, NULL, &error), TFM_E_INPUT);
  cr_expect(strstr(error.message, "there are no logits after the last 2"), "%s", error.message);
  teardown();
}
