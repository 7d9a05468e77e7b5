/* Sources of different lengths: what is refused of them, of whom; rows that are as long as the checks of the model allow for
 * their own item; what a search writes for an item, whatever the others are. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "codegen/codegen.h"
#include "compiled_model.h"
#include "elaborate_text.h"
#include "same_values.h"
#include "tfm/decode.h"

enum { VOCAB = 40, ITEMS = 6, POSITIONS = 12, LENGTH = 30, BAD_ID = VOCAB };

static const char translator[] =
    "model M(d = 16) {\n"
    "  embed = Embedding(40, d)\n"
    "  other = Embedding(40, d)\n"
    "  encoder = Encoder(d, 2, 1, 24)\n"
    "  decoder = Decoder(d, 2, 2, 24)\n"
    "  forward(src: i32[batch, ragged source], scale: f32[batch, 3], ids: i32[batch, time]) {\n"
    "    require source <= 10, \"{source} positions are too many for one of {batch}\"\n"
    "    require time <= 20 + source, \"{time} tokens for {source} positions\"\n"
    "    memory = encoder(embed(src) + other(12 // src)) * sum(scale, axis = 1, keepdim = true)[:, none]\n"
    "    x = embed(ids) + sinusoid(positions(ids, 1), d)\n"
    "    all = sum(memory, axis = 1, keepdim = true) * 0.2\n"
    "    logits = linear(decoder(x, memory, tgt_is_causal = true) + all, other.weight)\n"
    "    return logits\n"
    "  }\n"
    "  generate ids from logits { bos = 1  eos = 2  pad = 0 }\n"
    "}\n";

static Arena *arena;
static Compiled made;
static uint32_t source_size; /* of the source program: the ragged one */
static int32_t ids[ITEMS * POSITIONS];
static float scale[ITEMS * 3];
static int64_t lengths[ITEMS] = {4, 9, 4, 0, 10, 1};

static void setup(void) {
  arena = arena_create();
  Diag diag = diag_new(arena);
  Graph *graph = elaborate_text(arena, &diag, translator, &(ElaborateOptions){0});
  cr_assert(graph, "%s", first_message(&diag));
  RandomWeights weights = {arena, graph, map_new(arena)};
  cr_assert(compiled_decoding(&made, arena, &diag, graph, host_target(), random_weight, &weights));
  cr_assert_not_null(made.decoding.ragged);
  while (strcmp(made.decoding.encoder->symbols[source_size], "source") != 0) source_size++;
  for (int i = 0; i < ITEMS * POSITIONS; i++)
    ids[i] = i % POSITIONS < lengths[i / POSITIONS] ? 1 + i * 7 % (VOCAB - 1) : i % 2 ? INT_MIN : INT_MAX;
  for (int i = 0; i < ITEMS * 3; i++) scale[i] = 0.2f + 0.3f * (float)(i % 5);
}

static void teardown(void) {
  compiled_free(&made);
  arena_destroy(arena);
}

TestSuite(decoding_ragged, .init = setup, .fini = teardown);

// ---- beginning ----

static tfm_decoder *decoder_new(int32_t threads) {
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_decoder *decoder;
  tfm_error error;
  cr_assert_eq(tfm_decoder_create(&made.decoding, made.packed, made.packed, &options, &decoder, &error), TFM_OK);
  return decoder;
}

/* Of the size with this number; items first...first + n. */
static tfm_status begin_part(tfm_decoder *decoder, int64_t first, int64_t n, uint32_t size, const int64_t *given,
                             int64_t rows, tfm_error *error) {
  const int64_t src_dims[] = {n, POSITIONS}, scale_dims[] = {n, 3};
  const tfm_value inputs[] = {{ids + first * POSITIONS, TFM_I32, 2, src_dims}, {scale + first * 3, TFM_F32, 2, scale_dims}};
  const int64_t *all[SIZE_MAX_SYMBOLS] = {NULL};
  all[size] = given;
  return tfm_decoder_begin_ragged(decoder, inputs, all, rows, LENGTH, error);
}

static void begin(tfm_decoder *decoder, int64_t first, int64_t n, int64_t rows) {
  tfm_error error;
  cr_assert_eq(begin_part(decoder, first, n, source_size, lengths + first, rows, &error), TFM_OK, "%s", error.message);
}

/* The item as the only one of an ordinary batch. */
static void begin_alone(tfm_decoder *decoder, int64_t item, int64_t rows) {
  const int64_t src_dims[] = {1, lengths[item]}, scale_dims[] = {1, 3};
  const tfm_value inputs[] = {{ids + item * POSITIONS, TFM_I32, 2, src_dims}, {scale + item * 3, TFM_F32, 2, scale_dims}};
  tfm_error error;
  cr_assert_eq(tfm_decoder_begin(decoder, inputs, rows, LENGTH, &error), TFM_OK, "%s", error.message);
}

// ---- refusals ----

static void expect_refused(uint32_t size, const int64_t *given, tfm_status status, const char *says) {
  tfm_decoder *decoder = decoder_new(1);
  tfm_error error;
  cr_expect_eq(begin_part(decoder, 0, ITEMS, size, given, ITEMS, &error), status, "%s", says);
  cr_expect_eq(error.status, status);
  cr_expect(strstr(error.message, says), "%s, not %s", error.message, says);
  int64_t row;
  cr_expect_neq(tfm_decoder_join(decoder, 0, &row, &error), TFM_OK, "after %s", says);
  cr_expect_eq(begin_part(decoder, 0, ITEMS, size, given, ITEMS, NULL), status);
  begin(decoder, 0, ITEMS, ITEMS);
  cr_expect_eq(tfm_decoder_join(decoder, ITEMS - 1, &row, &error), TFM_OK);
  tfm_decoder_destroy(decoder);
}

static void expect_length_refused(int64_t item, int64_t length, const char *says) {
  int64_t given[ITEMS];
  memcpy(given, lengths, sizeof given);
  given[item] = length;
  expect_refused(source_size, given, TFM_E_INPUT, says);
}

Test(decoding_ragged, lengths_lie_within_the_inputs) {
  expect_length_refused(2, -1, "'source.lengths' has a length of -1, but source is 12");
  expect_length_refused(5, 13, "'source.lengths' has a length of 13, but source is 12");
  expect_length_refused(0, INT64_MAX, "'source.lengths' has a length of 9223372036854775807, but source is 12");
}

Test(decoding_ragged, other_sizes_have_no_lengths) {
  expect_refused(made.decoding.encoder_rows, lengths, TFM_E_USAGE, "batch is not ragged: all items have the same");
}

/* Checks speak of one item, and are those of the items, not of the padded batch. */
Test(decoding_ragged, a_check_names_its_item) {
  expect_length_refused(4, 11, "item 4: 11 positions are too many for one of 1");
  expect_length_refused(0, 12, "item 0: 12 positions are too many for one of 1");
}

/* Items 0 and 2 have the same length. */
Test(decoding_ragged, an_id_names_its_item) {
  const int32_t before = ids[2 * POSITIONS + 3];
  tfm_decoder *decoder = decoder_new(2);
  tfm_error error;
  ids[2 * POSITIONS + 3] = BAD_ID;
  cr_expect_eq(begin_part(decoder, 0, ITEMS, source_size, lengths, ITEMS, &error), TFM_E_INPUT);
  cr_expect_str_eq(error.message, "item 2: input \"src\"[0,3] = 40, legal range is [0, 40)");
  ids[2 * POSITIONS + 3] = 0; /* divides */
  cr_expect_eq(begin_part(decoder, 0, ITEMS, source_size, lengths, ITEMS, &error), TFM_E_INPUT);
  cr_expect_str_eq(error.message, "item 2: integer division by zero");
  cr_expect_eq(error.reason, TFM_REASON_ARITHMETIC);
  ids[2 * POSITIONS + 3] = before;
  begin(decoder, 0, ITEMS, 1);
  tfm_decoder_destroy(decoder);
}

Test(decoding_ragged, there_may_be_no_items) {
  tfm_decoder *decoder = decoder_new(1);
  tfm_error error;
  int64_t row;
  const int64_t src_dims[] = {0, 7}, scale_dims[] = {0, 3}, *none[SIZE_MAX_SYMBOLS] = {NULL};
  const tfm_value inputs[] = {{NULL, TFM_I32, 2, src_dims}, {NULL, TFM_F32, 2, scale_dims}};
  none[source_size] = lengths;
  cr_expect_eq(tfm_decoder_begin_ragged(decoder, inputs, none, 0, LENGTH, &error), TFM_OK, "%s", error.message);
  cr_expect_eq(tfm_decoder_items(decoder), 0);
  cr_expect_eq(tfm_decoder_join(decoder, 0, &row, &error), TFM_E_INPUT);
  begin(decoder, 0, ITEMS, ITEMS);
  cr_expect_eq(tfm_decoder_items(decoder), ITEMS);
  tfm_decoder_destroy(decoder);
}

// ---- rows ----

/* How many tokens there may be depends on the item's own length. */
Test(decoding_ragged, a_row_is_as_long_as_its_item_allows) {
  tfm_decoder *decoder = decoder_new(2);
  tfm_error error;
  int32_t tokens[LENGTH];
  float scores[2 * VOCAB];
  for (int i = 0; i < LENGTH; i++) tokens[i] = 3 + i % 30;
  begin(decoder, 0, ITEMS, ITEMS);
  for (int64_t item = 0; item < ITEMS; item++) {
    const int64_t most = 20 + lengths[item] < LENGTH ? 20 + lengths[item] : LENGTH;
    tfm_decoder_row part = {.tokens = tokens, .n_tokens = most};
    cr_assert_eq(tfm_decoder_join(decoder, item, &part.row, &error), TFM_OK);
    cr_assert_eq(tfm_decoder_step(decoder, 1, &part, 1, scores, NULL, &error), TFM_OK, "%s", error.message);
    const tfm_decoder_row more = {part.row, tokens, 1, 0};
    cr_expect_eq(tfm_decoder_step(decoder, 1, &more, 1, scores, NULL, &error), TFM_E_INPUT);
    const char *says = most == LENGTH ? "there is room for 30" : arena_printf(arena, "%lld tokens for %lld positions",
                                                                            (long long)most + 1, (long long)lengths[item]);
    cr_expect(strstr(error.message, says), "%s, not %s", error.message, says);
    cr_expect_eq(tfm_decoder_length(decoder, part.row), most);
  }
  tfm_decoder_destroy(decoder);
}

// ---- searches ----

enum { MOST_BEAMS = 4, NEW_TOKENS = 9 };

typedef struct Written {
  int64_t lengths[ITEMS * MOST_BEAMS];
  int32_t tokens[ITEMS * MOST_BEAMS][LENGTH];
  float scores[ITEMS * MOST_BEAMS];
} Written;

static void write(tfm_decoder *decoder, int64_t n, const tfm_generate_options *options, int64_t first, Written *written) {
  const tfm_generate_model model = tfm_decoder_model(decoder);
  const int64_t sequences = options->num_return_sequences;
  int32_t start[ITEMS];
  tfm_generated generated;
  tfm_error error;
  for (int64_t i = 0; i < n; i++) start[i] = 1;
  const tfm_prompts prompts = {.n = n, .width = 1, .tokens = start};
  cr_assert_eq(tfm_generate(&model, &prompts, options, &generated, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(generated.n, n * sequences);
  for (int64_t i = 0; i < generated.n; i++) {
    const int64_t at = first * sequences + i;
    written->lengths[at] = generated.lengths[i];
    memcpy(written->tokens[at], generated.sequences + i * generated.width, (size_t)generated.lengths[i] * sizeof(int32_t));
    if (generated.scores) written->scores[at] = generated.scores[i];
  }
  tfm_generated_free(&generated);
}

static void check_search(int32_t threads, int32_t beams, int32_t sequences) {
  static Written together, alone;
  tfm_generate_options options;
  tfm_generate_defaults(&options);
  options.num_beams = beams;
  options.num_return_sequences = sequences;
  options.max_new_tokens = NEW_TOKENS;
  options.no_repeat_ngram_size = 2;
  options.eos_token_ids = (tfm_token_list){(int64_t[]){2, 8, 36}, 3};
  memset(&together, 0, sizeof together);
  memset(&alone, 0, sizeof alone);
  tfm_decoder *decoder = decoder_new(threads);
  for (int64_t item = 0; item < ITEMS; item++) {
    begin_alone(decoder, item, beams);
    write(decoder, 1, &options, item, &alone);
  }
  for (int64_t first = 0; first < ITEMS; first += 5) {
    const int64_t n = first ? ITEMS - first : 5;
    begin(decoder, first, n, n * beams);
    write(decoder, n, &options, first, &together);
  }
  cr_expect(memcmp(&together, &alone, sizeof alone) == 0, "%d threads, %d beams", threads, beams);
  begin(decoder, 0, ITEMS, ITEMS * beams);
  write(decoder, ITEMS, &options, 0, &together);
  cr_expect(memcmp(&together, &alone, sizeof alone) == 0, "%d threads, %d beams, all items", threads, beams);
  for (int64_t item = 1; item < ITEMS; item++) /* the search has something to find */
    cr_expect(memcmp(alone.tokens[0], alone.tokens[item * sequences], sizeof alone.tokens[0]) != 0, "item %lld",
              (long long)item);
  tfm_decoder_destroy(decoder);
}

Test(decoding_ragged, an_item_is_written_for_as_if_it_were_alone) {
  for (int32_t threads = 1; threads <= 4; threads *= 2) {
    check_search(threads, 1, 1);
    check_search(threads, 2, 1);
    check_search(threads, MOST_BEAMS, 3);
  }
}
