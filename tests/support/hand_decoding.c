/* The writer of hand_decoding.h, as programs and as loops. The run-time sizes of the step program are past, fresh,
 * kept, rows and source, in this order; those of the encoder program are rows and source. */
#include "hand_decoding.h"

#include <math.h>
#include <string.h>

enum { PAST, FRESH, KEPT, ROWS, SOURCE };
/* Four heads of queries read two heads of keys and values. Q, K and V are the widths of a token's query, keys and
 * values. */
enum { KV_HEADS = 2, GROUP = 2, H = HAND_H, E = 8, Q = KV_HEADS * GROUP * H, K = KV_HEADS * H, V = KV_HEADS * E };
enum { OWN_KEYS, OWN_VALUES, SOURCE_KEYS, SOURCE_VALUES, N_CACHES };
enum { BUFFER_Q, BUFFER_K, BUFFER_V, BUFFER_SELF, BUFFER_CROSS };
enum { IN_TOKENS, IN_MASK, IN_HISTORY };
enum { OUT_LOGITS, OUT_LOGSUMEXP, OUT_HISTORY };

/* What a token is, as a query, key or value: a small number that differs between tokens and columns, so that a row or
 * column mixed up shows. The last token's value is NaN: where it is masked, no NaN may come out. */
static float number_of(int which, int64_t id, int64_t column) {
  if (which == BUFFER_V && id == WRITER_VOCAB - 1) return NAN;
  return (float)((id * 31 + column * 17 + (id ^ column) * 5 + which * 7) % 23 - 11) * 0.1f;
}

/* An element of an i32 operand. */
static int32_t int_at(const tfm_row_args *args, int operand, int64_t row, int64_t column) {
  int32_t x;
  memcpy(&x, hand_at(args, operand, row, column), sizeof x);
  return x;
}

// ---- kernels ----

/* Operand 1: ids; operand 2: the position of row 0, which is added to queries and keys so that order matters. */
static void embed(const tfm_row_args *args, int which) {
  for (int64_t i = 0; i < args->rows; i++) {
    float position = 0.01f * (float)(int_at(args, 2, 0, 0) + args->coordinates[1] + i);
    for (int64_t j = 0; j < args->columns; j++) {
      float x = number_of(which, int_at(args, 1, i, j), args->coordinates[0] + j) + (which == BUFFER_V ? 0 : position);
      memcpy(hand_at(args, 0, i, j), &x, sizeof x);
    }
  }
}

static void embed_query(const tfm_row_args *args) { embed(args, BUFFER_Q); }
static void embed_key(const tfm_row_args *args) { embed(args, BUFFER_K); }
static void embed_value(const tfm_row_args *args) { embed(args, BUFFER_V); }

static void copy_ints(const tfm_row_args *args) {
  for (int64_t i = 0; i < args->rows; i++)
    for (int64_t j = 0; j < args->columns; j++) memcpy(hand_at(args, 0, i, j), hand_at(args, 1, i, j), 4);
}

static void copy_bytes(const tfm_row_args *args) {
  for (int64_t i = 0; i < args->rows; i++)
    for (int64_t j = 0; j < args->columns; j++) *hand_at(args, 0, i, j) = *hand_at(args, 1, i, j);
}

/* Scales and masks a block of scores: by the mask, or causally, where `offset` is the position of the first query. */
static void score(const tfm_row_args *args, int64_t offset, int with_mask) {
  for (int64_t i = 0; i < args->rows; i++)
    for (int64_t j = 0; j < args->columns; j++) {
      int masked = with_mask ? *hand_at(args, 1, i, j) : args->coordinates[0] + j > args->coordinates[1] + i + offset;
      float x = masked ? -INFINITY : hand_float_at(args, 0, i, j) * 0.3f;
      memcpy(hand_at(args, 0, i, j), &x, sizeof x);
    }
}

static void score_own(const tfm_row_args *args) { score(args, int_at(args, 1, 0, 0), 0); }
static void score_source(const tfm_row_args *args) { score(args, 0, 1); }

/* The logits: both attentions, something of the row's first token, and something of its last one. */
static void add_up(const tfm_row_args *args) {
  for (int64_t i = 0; i < args->rows; i++)
    for (int64_t j = 0; j < args->columns; j++) {
      float x = hand_float_at(args, 1, i, j) + hand_float_at(args, 2, i, j);
      x += (float)int_at(args, 3, i, j) * 0.01f;
      x += (float)((int_at(args, 4, i, j) + args->coordinates[0] + j) % 13) * 0.2f;
      memcpy(hand_at(args, 0, i, j), &x, sizeof x);
    }
}

/* Reduces a row of logits; doubles, so the loops below can be compared closely. */
static void logsumexp(const tfm_row_args *args) {
  for (int64_t i = 0; i < args->rows; i++) {
    double sum = 0;
    for (int64_t j = 0; j < args->columns; j++) sum += exp((double)hand_float_at(args, 1, i, j));
    float x = (float)log(sum);
    memcpy(hand_at(args, 0, i, 0), &x, sizeof x);
  }
}

// ---- parts of programs ----

static tfm_size times(HandProgram *hand, int64_t factor, uint8_t symbol) {
  return hand_product(hand, factor, 1, &symbol);
}

/* a * the first symbol + b * the second. */
static tfm_size sum_of(HandProgram *hand, int64_t a, uint8_t first, int64_t b, uint8_t second) {
  tfm_size sum = times(hand, a, first);
  times(hand, b, second); /* its term follows */
  hand->polynomials[sum].n_terms = 2;
  return sum;
}

/* A run-time size as an operand: kernels read it as an i32. */
static tfm_operand number(tfm_size size) { return hand_operand(TFM_SPACE_SIZE, size, TFM_I32, 0, NULL); }

/* Appends a row step; work is large, so the runtime splits it over threads. */
static void row_step(HandProgram *hand, void (*kernel)(const tfm_row_args *), int rank, const tfm_size *dims,
                     int reduce, int n, const tfm_operand *operands) {
  tfm_row_step *row = &hand->rows[hand->n_rows];
  *row = (tfm_row_step){.kernel = hand_kernel(hand, (void (*)(void))kernel), .rank = (uint8_t)rank,
                        .reduce = (uint8_t)reduce, .n_operands = (uint8_t)n,
                        .first_operand = hand_operands(hand, n, operands)};
  for (int i = 0; i < rank; i++) row->dims[i] = dims[i];
  hand_step(hand, TFM_STEP_ROW, hand->n_rows++, hand_constant(hand, 1000000));
}

/* A tensor [rows, positions, columns] of what the ids are. */
static void embed_step(HandProgram *hand, void (*kernel)(const tfm_row_args *), tfm_operand result, uint32_t ids,
                       uint8_t rows, uint8_t positions, int64_t columns, tfm_size past) {
  tfm_size n = times(hand, 1, positions), width = hand_constant(hand, columns);
  const tfm_size dims[] = {times(hand, 1, rows), n, width};
  const tfm_size strides[] = {times(hand, columns, positions), width, 1};
  memcpy(result.strides, strides, sizeof strides);
  const tfm_operand operands[] = {result, hand_operand(TFM_SPACE_INPUT, ids, TFM_I32, 3, (const tfm_size[]){n, 1, 0}),
                                  number(past)};
  row_step(hand, kernel, 3, dims, 0, 3, operands);
}

/* Writes the new keys or values to the pages of a cache, behind the `past` ones. */
static void append_step(HandProgram *hand, uint32_t cache, uint32_t buffer) {
  int64_t columns = hand->caches[cache].columns;
  hand->appends[cache] = (tfm_append_step){
      .cache = cache, .rank = 4, .past = times(hand, 1, PAST),
      .x = hand_operand(TFM_SPACE_BUFFER, buffer, TFM_F32, 4,
                        (const tfm_size[]){times(hand, columns, FRESH), hand_constant(hand, columns),
                                           hand_constant(hand, columns / KV_HEADS), 1}),
      .dims = {times(hand, 1, ROWS), times(hand, 1, FRESH), hand_constant(hand, KV_HEADS),
               hand_constant(hand, columns / KV_HEADS)}};
  hand_step(hand, TFM_STEP_APPEND, cache, hand_constant(hand, 1000000));
}

/* Attention over the row's own cache, or over that of the source (cross), page by page. k and v have no operand of
 * their own, only strides: the pages are found by the cache. */
static void attention_step(HandProgram *hand, int cross, tfm_operand operand) {
  tfm_attention_step *a = &hand->attentions[cross];
  *a = (tfm_attention_step){.tile_rows = HAND_TILE_ROWS, .qk_width = TFM_CACHE_PAGE, .pv_width = HAND_WIDTH, .rank = 5,
                            .n_operands = 2, .causal = !cross, .padding = (uint8_t)cross, .padding_true = 1,
                            .k_cache = cross ? SOURCE_KEYS : OWN_KEYS, .v_cache = cross ? SOURCE_VALUES : OWN_VALUES,
                            .causal_offset = times(hand, 1, PAST), .h = H, .e = E, .pack_keys = TFM_NONE,
                            .pack_values = TFM_NONE, .keys_in_place = TFM_NONE};
  const tfm_size dims[] = {times(hand, 1, ROWS), hand_constant(hand, KV_HEADS), hand_constant(hand, GROUP),
                           times(hand, 1, FRESH), cross ? times(hand, 1, SOURCE) : sum_of(hand, 1, PAST, 1, FRESH)};
  memcpy(a->dims, dims, sizeof dims);
  tfm_size h = hand_constant(hand, H), e = hand_constant(hand, E);
  a->q = hand_operand(TFM_SPACE_BUFFER, BUFFER_Q, TFM_F32, 5,
                      (const tfm_size[]){times(hand, Q, FRESH), hand_constant(hand, GROUP * H), h,
                                         hand_constant(hand, Q), 0});
  a->c = hand_operand(TFM_SPACE_BUFFER, cross ? BUFFER_CROSS : BUFFER_SELF, TFM_F32, 5,
                      (const tfm_size[]){times(hand, WRITER_VOCAB, FRESH), hand_constant(hand, GROUP * E), e,
                                         hand_constant(hand, WRITER_VOCAB), 0});
  a->k = hand_operand(TFM_SPACE_SIZE, 0, TFM_F32, 5, (const tfm_size[]){0, h, 0, 0, 1});
  a->v = hand_operand(TFM_SPACE_SIZE, 0, TFM_F32, 5, (const tfm_size[]){0, e, 0, 0, 1});
  hand_use_tiles(hand, HAND_PAGE_KEYS, a->qk_tiles);
  hand_use_tiles(hand, HAND_PAGE_VALUES, a->pv_tiles);
  hand_use_tiles(hand, HAND_PAGE_VALUES_EXACT, a->pv_exact_tiles);
  a->score = hand_kernel(hand, cross ? (void (*)(void))score_source : (void (*)(void))score_own);
  a->softmax = hand_kernel(hand, (void (*)(void))hand_softmax);
  a->scale_rows = hand_kernel(hand, (void (*)(void))hand_multiply);
  a->finite = hand_kernel(hand, (void (*)(void))hand_finite);
  const tfm_operand operands[] = {hand_operand(TFM_SPACE_BUFFER, TFM_NONE, TFM_F32, 0, NULL), operand};
  a->first_operand = hand_operands(hand, 2, operands);
  hand_step(hand, TFM_STEP_ATTENTION, (uint32_t)cross, hand_constant(hand, 1000000));
}

// ---- the programs ----

/* Keys and values of the source tokens, and the mask, handed on as it is. */
static void encoder_program(HandProgram *hand) {
  hand_open(hand, "source");
  tfm_size rows = hand_symbol(hand, "rows"), n = hand_symbol(hand, "source");
  tfm_size k = hand_constant(hand, K), v = hand_constant(hand, V);
  hand_input(hand, "src", TFM_I32, "i32[rows, source]", 2, (const tfm_size[]){rows, n});
  hand_input(hand, "mask", TFM_BOOL, "bool[rows, source]", 2, (const tfm_size[]){rows, n});
  hand_output(hand, "source.0", TFM_F32, "f32[rows, source, 24]", 3, (const tfm_size[]){rows, n, k});
  hand_output(hand, "source.1", TFM_F32, "f32[rows, source, 16]", 3, (const tfm_size[]){rows, n, v});
  hand_output(hand, "source.2", TFM_BOOL, "bool[rows, source]", 2, (const tfm_size[]){rows, n});
  hand->id_limits[0] = (tfm_id_limit){.limit = hand_constant(hand, WRITER_VOCAB), .place = "writer.tfm:2:3"};
  hand->program.n_id_limits = 1;
  embed_step(hand, embed_key, hand_operand(TFM_SPACE_OUTPUT, 0, TFM_F32, 0, NULL), 0, 0, 1, K, 0);
  embed_step(hand, embed_value, hand_operand(TFM_SPACE_OUTPUT, 1, TFM_F32, 0, NULL), 0, 0, 1, V, 0);
  const tfm_size dims[] = {rows, n}, strides[] = {n, 1};
  const tfm_operand operands[] = {hand_operand(TFM_SPACE_OUTPUT, 2, TFM_BOOL, 2, strides),
                                  hand_operand(TFM_SPACE_INPUT, 1, TFM_BOOL, 2, strides)};
  row_step(hand, copy_bytes, 2, dims, 0, 2, operands);
  hand_close(hand);
}

/* Inputs, outputs, buffers with the steps in which they live, and checks of the step program. */
static void step_values(HandProgram *hand, tfm_size rows, tfm_size past, tfm_size fresh, tfm_size length) {
  hand_input(hand, "tgt", TFM_I32, "i32[rows, fresh]", 2, (const tfm_size[]){rows, fresh});
  hand_input(hand, "source.2", TFM_BOOL, "bool[rows, source]", 2, (const tfm_size[]){rows, times(hand, 1, SOURCE)});
  hand_input(hand, "cache.2", TFM_I32, "i32[rows, past]", 2, (const tfm_size[]){rows, past});
  tfm_size kept = times(hand, 1, KEPT), vocab = hand_constant(hand, WRITER_VOCAB);
  hand_output(hand, "logits", TFM_F32, "f32[rows, kept, 32]", 3, (const tfm_size[]){rows, kept, vocab});
  hand_output(hand, "logsumexp", TFM_F32, "f32[rows, kept]", 2, (const tfm_size[]){rows, kept});
  hand_output(hand, "cache.2", TFM_I32, "i32[rows, past + fresh]", 2, (const tfm_size[]){rows, length});
  const uint8_t both[] = {ROWS, FRESH};
  hand_buffer(hand, TFM_F32, hand_product(hand, Q, 2, both), 0, 6);
  hand_buffer(hand, TFM_F32, hand_product(hand, K, 2, both), 1, 3);
  hand_buffer(hand, TFM_F32, hand_product(hand, V, 2, both), 2, 4);
  hand_buffer(hand, TFM_F32, hand_product(hand, WRITER_VOCAB, 2, both), 5, 9);
  hand_buffer(hand, TFM_F32, hand_product(hand, WRITER_VOCAB, 2, both), 6, 9);
  hand->id_limits[0] = (tfm_id_limit){.limit = vocab, .place = "writer.tfm:3:3"};
  hand->program.n_id_limits = 1;
  hand->conditions[0] = (tfm_condition){TFM_LE, length, hand_constant(hand, WRITER_MOST)};
  hand->parts[0] = (tfm_message_part){"a row of ", length};
  hand->parts[1] = (tfm_message_part){" tokens is too long", TFM_NONE};
  hand->checks[0] = (tfm_check){.n_conditions = 1, .n_parts = 2, .place = "writer.tfm:5:5"};
  hand->program.n_checks = 1;
}

/* Where the pages of each cache lie: [own keys, own values] in one pool, [16 floats, source keys, source values] in
 * the other. The 16 floats are no part of any cache; they make offsets differ from zero. */
static void step_caches(HandProgram *hand) {
  hand->caches[OWN_KEYS] = (tfm_cache){.kind = TFM_CACHE_KEYS,
                                       .of_encoder = 0,
                                       .number = 0,
                                       .columns = K,
                                       .head = 1,
                                       .round = TFM_NONE,
                                       .stride = TFM_CACHE_PAGE,
                                       .offset = 0};
  hand->caches[OWN_VALUES] = (tfm_cache){.kind = TFM_CACHE_VALUES,
                                         .of_encoder = 0,
                                         .number = 1,
                                         .columns = V,
                                         .head = 1,
                                         .round = TFM_NONE,
                                         .stride = 1,
                                         .offset = K * TFM_CACHE_PAGE};
  hand->caches[SOURCE_KEYS] = (tfm_cache){.kind = TFM_CACHE_KEYS,
                                          .of_encoder = 1,
                                          .number = 0,
                                          .columns = K,
                                          .head = 1,
                                          .round = TFM_NONE,
                                          .stride = TFM_CACHE_PAGE,
                                          .offset = 16};
  hand->caches[SOURCE_VALUES] = (tfm_cache){.kind = TFM_CACHE_VALUES,
                                            .of_encoder = 1,
                                            .number = 1,
                                            .columns = V,
                                            .head = 1,
                                            .round = TFM_NONE,
                                            .stride = 1,
                                            .offset = 16 + K * TFM_CACHE_PAGE};
  hand->program.n_caches = N_CACHES;
  hand->program.own_page_floats = (K + V) * TFM_CACHE_PAGE;
  hand->program.encoder_page_floats = (K + V) * TFM_CACHE_PAGE + 16;
}

/* The tensor that the step caches: what there was, then the new tokens. */
static void history_steps(HandProgram *hand, tfm_size rows, tfm_size past, tfm_size fresh, tfm_size length) {
  const tfm_operand before[] = {hand_operand(TFM_SPACE_OUTPUT, OUT_HISTORY, TFM_I32, 2, (const tfm_size[]){length, 1}),
                                hand_operand(TFM_SPACE_INPUT, IN_HISTORY, TFM_I32, 2, (const tfm_size[]){past, 1})};
  row_step(hand, copy_ints, 2, (const tfm_size[]){rows, past}, 0, 2, before);
  tfm_operand after[] = {before[0], hand_operand(TFM_SPACE_INPUT, IN_TOKENS, TFM_I32, 2, (const tfm_size[]){fresh, 1})};
  after[0].offset = past;
  row_step(hand, copy_ints, 2, (const tfm_size[]){rows, fresh}, 0, 2, after);
}

/* The last `kept` positions give logits: offsets skip the fresh - kept before them. */
static void logits_steps(HandProgram *hand, tfm_size rows, tfm_size length) {
  tfm_size kept = times(hand, 1, KEPT), vocab = hand_constant(hand, WRITER_VOCAB);
  tfm_size row = times(hand, WRITER_VOCAB, FRESH), out_row = times(hand, WRITER_VOCAB, KEPT);
  tfm_operand operands[] = {
      hand_operand(TFM_SPACE_OUTPUT, OUT_LOGITS, TFM_F32, 3, (const tfm_size[]){out_row, vocab, 1}),
      hand_operand(TFM_SPACE_BUFFER, BUFFER_SELF, TFM_F32, 3, (const tfm_size[]){row, vocab, 1}),
      hand_operand(TFM_SPACE_BUFFER, BUFFER_CROSS, TFM_F32, 3, (const tfm_size[]){row, vocab, 1}),
      hand_operand(TFM_SPACE_OUTPUT, OUT_HISTORY, TFM_I32, 3, (const tfm_size[]){length, 0, 0}),
      hand_operand(TFM_SPACE_OUTPUT, OUT_HISTORY, TFM_I32, 3, (const tfm_size[]){length, 1, 0})};
  operands[1].offset = operands[2].offset = sum_of(hand, WRITER_VOCAB, FRESH, -WRITER_VOCAB, KEPT);
  operands[4].offset = sum_of(hand, 1, PAST, 1, FRESH);
  times(hand, -1, KEPT);
  hand->polynomials[operands[4].offset].n_terms = 3;
  row_step(hand, add_up, 3, (const tfm_size[]){rows, kept, vocab}, 0, 5, operands);
  const tfm_operand sums[] = {hand_operand(TFM_SPACE_OUTPUT, OUT_LOGSUMEXP, TFM_F32, 3, (const tfm_size[]){kept, 1, 0}),
                              operands[0]};
  row_step(hand, logsumexp, 3, (const tfm_size[]){rows, kept, vocab}, 1, 2, sums);
}

/* Embeds the fresh tokens, appends them to the caches, attends to both caches, and adds up the logits. */
static void step_program(HandProgram *hand) {
  hand_open(hand, "step");
  tfm_size past = hand_symbol(hand, "past"), fresh = hand_symbol(hand, "fresh");
  hand_symbol(hand, "kept");
  tfm_size rows = hand_symbol(hand, "rows"), source = hand_symbol(hand, "source");
  tfm_size length = sum_of(hand, 1, PAST, 1, FRESH);
  step_values(hand, rows, past, fresh, length);
  step_caches(hand);
  embed_step(hand, embed_query, hand_operand(TFM_SPACE_BUFFER, BUFFER_Q, TFM_F32, 0, NULL), IN_TOKENS, ROWS, FRESH, Q,
             past);
  embed_step(hand, embed_key, hand_operand(TFM_SPACE_BUFFER, BUFFER_K, TFM_F32, 0, NULL), IN_TOKENS, ROWS, FRESH, K,
             past);
  embed_step(hand, embed_value, hand_operand(TFM_SPACE_BUFFER, BUFFER_V, TFM_F32, 0, NULL), IN_TOKENS, ROWS, FRESH, V,
             past);
  append_step(hand, OWN_KEYS, BUFFER_K);
  append_step(hand, OWN_VALUES, BUFFER_V);
  attention_step(hand, 0, number(past));
  attention_step(hand, 1, hand_operand(TFM_SPACE_INPUT, IN_MASK, TFM_BOOL, 5, (const tfm_size[]){source, 0, 0, 0, 1}));
  history_steps(hand, rows, past, fresh, length);
  logits_steps(hand, rows, length);
  hand_close(hand);
}

/* How the two programs belong together: which inputs of the step are encoded, cached or new. */
void hand_writer(HandDecoding *hand) {
  encoder_program(&hand->source);
  step_program(&hand->step);
  hand->inputs[IN_TOKENS] = (tfm_step_input){0};
  hand->inputs[IN_MASK] = (tfm_step_input){.number = 2};
  hand->inputs[IN_HISTORY] = (tfm_step_input){.is_cache = 1, .number = OUT_HISTORY, .past_axis = 1};
  for (int i = 0; i < SOURCE; i++) hand->sizes[i] = TFM_NONE;
  hand->sizes[SOURCE] = 1;
  hand->cache_encoded[SOURCE_KEYS] = 0;
  hand->cache_encoded[SOURCE_VALUES] = 1;
  hand->decoding = (tfm_decoding){.encoder = &hand->source.program, .step = &hand->step.program,
                                  .decoder_input = IN_TOKENS, .inputs = hand->inputs, .past = PAST, .fresh = FRESH,
                                  .kept = KEPT, .rows = ROWS, .encoder_rows = 0, .sizes = hand->sizes,
                                  .logits = OUT_LOGITS, .logsumexp = OUT_LOGSUMEXP, .vocab = WRITER_VOCAB,
                                  .cache_encoded = hand->cache_encoded};
}

// ---- the same by loops ----

/* Attention of one query by its definition, in doubles; grouped heads read the keys of head / GROUP. */
static void attend(int64_t id, int64_t position, const int32_t *tokens, const uint8_t *masked, int64_t n,
                   float *scores) {
  for (int64_t head = 0; head < KV_HEADS * GROUP; head++) {
    double weights[WRITER_MOST], sum = 0, result[E] = {0};
    for (int64_t key = 0; key < n; key++) {
      double product = 0;
      for (int64_t i = 0; i < H; i++)
        product += (double)(number_of(BUFFER_Q, id, head * H + i) + 0.01f * (float)position) *
                   (double)(number_of(BUFFER_K, tokens[key], head / GROUP * H + i) + 0.01f * (float)key);
      weights[key] = masked && masked[key] ? 0 : exp(product * 0.3);
      sum += weights[key];
    }
    for (int64_t key = 0; key < n; key++)
      for (int64_t i = 0; i < E && weights[key] != 0; i++)
        result[i] += weights[key] * (double)number_of(BUFFER_V, tokens[key], head / GROUP * E + i);
    for (int64_t i = 0; i < E; i++) scores[head * E + i] += sum == 0 ? 0 : (float)(result[i] / sum);
  }
}

/* Everything anew for one row, without caches: what every step must reproduce. */
void hand_writer_scores(const WriterSource *source, const int32_t *tokens, int64_t n, float *scores) {
  int32_t last = tokens[n - 1];
  for (int64_t i = 0; i < WRITER_VOCAB; i++) scores[i] = (float)tokens[0] * 0.01f + (float)((last + i) % 13) * 0.2f;
  attend(last, n - 1, tokens, NULL, n, scores);
  attend(last, n - 1, source->tokens, source->masked, source->n, scores);
}
