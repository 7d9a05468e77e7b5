/* Rows of different lengths, and of sources of different lengths, in one call, give the bits that each row alone gives:
 * dozens of rows that join, leave, go back and become copies of each other between calls of any mixture, with 1 to 8 threads,
 * after several beginnings. Calls that fail change nothing, whichever of the runs together was at fault: the calls after them
 * give the same bits. */
#include <math.h>
#include <stdlib.h>

#include "codegen/codegen.h"
#include "compile/quantize.h"
#include "compiled_model.h"
#include "elaborate_text.h"
#include "same_values.h"
#include "tfm/decode.h"

enum { VOCAB = 60, LENGTH = 70, SEQUENCES = 5, MOST_ITEMS = 5, MOST_ROWS = 100, MOST_INPUTS = 4 };

/* Tokens that no row has: the models divide by what they are modulo 7, and one quotient is no id. */
enum { DIVIDES_BY_ZERO = 7, GIVES_NO_ID = 8, IS_NO_ID = VOCAB };

typedef struct Model {
  Arena *arena;
  Diag diag;
  uint32_t random;
  Compiled made;
  tfm_value inputs[MOST_INPUTS]; /* of the source program */
  int64_t items, lengths[MOST_ITEMS]; /* lengths: of the ragged size `source` */
  int32_t tokens[SEQUENCES][LENGTH];
  float expected[MOST_ITEMS][SEQUENCES][LENGTH][VOCAB];
} Model;

static void ok(tfm_status status, const tfm_error *error) { cr_assert_eq(status, TFM_OK, "%s", error->message); }
static void good(const Model *m, bool condition) { cr_assert(condition, "%s", first_message(&m->diag)); }
static int64_t draw(Model *m, int64_t n) {
  m->random = m->random * 1664525 + 1013904223;
  return (int64_t)(m->random >> 8) % n;
}

// ---- models ----

#define DEPENDS_ON_TOKENS "embed(ids) + other(100 // (ids % 7))"
#define GENERATES "    return logits\n  }\n  generate ids from logits { bos = 1  eos = 2  pad = 0  max_length = 70 }\n}\n"

/* What depends on positions alone is added when tokens have been looked at, which may fail. */
static const char encoder[] =
    "model M(d) {\n"
    "  embed = Embedding(60, d)\n"
    "  other = Embedding(60, d)\n"
    "  encoder = Encoder(d, 2, 2, 48)\n"
    "  after = Linear(d, d)\n"
    "  head = Linear(d, 60)\n"
    "  forward(ids: i32[batch, time]) {\n"
    "    x = encoder(" DEPENDS_ON_TOKENS ", is_causal = true)\n"
    "    logits = head(after(x) + sinusoid(positions(x, 1), d))\n" GENERATES;

/* Sources with a mask, which rows in any order have to gather. */
static const char decoder[] =
    "model M(d) {\n"
    "  embed = Embedding(60, d)\n"
    "  other = Embedding(60, d)\n"
    "  decoder = Decoder(d, 2, 2, 48)\n"
    "  head = Linear(d, 60)\n"
    "  forward(memory: f32[batch, source, d], hidden: bool[batch, source], ids: i32[batch, time]) {\n"
    "    x = " DEPENDS_ON_TOKENS " + sinusoid(positions(ids, 1), d)\n"
    "    logits = decoder(x, memory, memory_key_padding_mask = hidden, tgt_is_causal = true) -> head\n" GENERATES;

/* The same with sources of their own lengths. */
static const char ragged[] =
    "model M(d) {\n"
    "  embed = Embedding(60, d)\n"
    "  other = Embedding(60, d)\n"
    "  decoder = Decoder(d, 2, 2, 48)\n"
    "  head = Linear(d, 60)\n"
    "  forward(memory: f32[batch, ragged source, d], hidden: bool[batch, source], ids: i32[batch, time]) {\n"
    "    require source <= 40, \"one item has {source} positions, one of {batch}\"\n"
    "    x = " DEPENDS_ON_TOKENS " + sinusoid(positions(ids, 1), d)\n"
    "    logits = decoder(x, memory, memory_key_padding_mask = hidden, tgt_is_causal = true) -> head\n" GENERATES;

/* What is kept of earlier positions is as long as the source, and a tensor; what is read of the source is too. */
static const char coverage[] =
    "model M(d) {\n"
    "  embed = Embedding(60, d)\n"
    "  other = Embedding(60, d)\n"
    "  q = Linear(d, d)\n"
    "  k = Linear(d, d)\n"
    "  norm = LayerNorm(d)\n"
    "  head = Linear(d, 60)\n"
    "  forward(memory: f32[batch, ragged source, d], ids: i32[batch, time]) {\n"
    "    x = norm(" DEPENDS_ON_TOKENS " + sinusoid(positions(ids, 1), d))\n"
    "    read = relu(memory)\n"
    "    covered = relu(x @ transpose(read, 1, 2))\n"
    "    before = where(causal_mask(x, x), 0, relu(q(x) @ transpose(k(x), 1, 2)))\n"
    "    logits = head(norm(x + (before @ covered) @ memory))\n" GENERATES;

/* Sums over earlier positions that are no attention: their caches are tensors. */
static const char sums[] =
    "layer Summed(d) {\n"
    "  q = Linear(d, d)\n"
    "  k = Linear(d, d)\n"
    "  v = Linear(d, d)\n"
    "  forward(x) = where(causal_mask(x, x), 0, relu(q(x) @ transpose(k(x), -1, -2))) @ v(x)\n"
    "}\n"
    "model M(d) {\n"
    "  embed = Embedding(60, d)\n"
    "  other = Embedding(60, d)\n"
    "  summed = Summed(d)\n"
    "  norm = LayerNorm(d)\n"
    "  head = Linear(d, 60)\n"
    "  forward(ids: i32[batch, time]) {\n"
    "    x = norm(" DEPENDS_ON_TOKENS ")\n"
    "    logits = head(norm(x + summed(x) + sinusoid(positions(x, 1), d)))\n" GENERATES;

/* Experts of which each token has two: their products take the chosen rows of all runs together. */
static const char experts[] =
    "layer Expert(d) {\n"
    "  up = Linear(d, 40)\n"
    "  down = Linear(40, d)\n"
    "  forward(x) = down(relu(up(x)))\n"
    "}\n"
    "model M(d) {\n"
    "  embed = Embedding(60, d)\n"
    "  other = Embedding(60, d)\n"
    "  encoder = Encoder(d, 2, 1, 48)\n"
    "  gate = Linear(d, 5)\n"
    "  experts = [Expert(d) for e in 5]\n"
    "  head = Linear(d, 60)\n"
    "  forward(ids: i32[batch, time]) {\n"
    "    x = encoder(" DEPENDS_ON_TOKENS
    " + sinusoid(positions(ids, 1), d), is_causal = true)\n"
    "    p, chosen = topk(softmax(gate(x)), 2)\n"
    "    w = sum(p[..., none] * one_hot(chosen, 5), axis = -2)\n"
    "    logits = head(x + sum([w[..., e, none] * experts[e](x) for e in 5]))\n" GENERATES;

static void fill_randomly(Model *m, const tfm_value *value) {
  for (int64_t i = 0; i < value_elements(value); i++)
    if (value->dtype == TFM_F32) ((float *)value->data)[i] = (float)draw(m, 2001) / 2000 - 0.5f;
    else ((uint8_t *)value->data)[i] = draw(m, 3) == 0;
}

static Model *open_model(const char *text, const char *d, const char *rule, const TargetInfo *target) {
  Model *m = calloc(1, sizeof *m);
  m->arena = arena_create();
  m->diag = diag_new(m->arena);
  Definition width = {"d", d};
  Graph *graph = elaborate_text(m->arena, &m->diag, text, &(ElaborateOptions){.definitions = &width, .n_definitions = 1});
  good(m, graph);
  RandomWeights weights = {m->arena, graph_clone(m->arena, graph), map_new(m->arena)};
  good(m, quantize_weights(graph, &m->diag, &rule, 1));
  cr_assert(compiled_decoding(&m->made, m->arena, &m->diag, graph, target, random_weight, &weights));
  for (int s = 0; s < SEQUENCES; s++)
    for (int t = 0; t < LENGTH; t++)
      do m->tokens[s][t] = (int32_t)draw(m, VOCAB);
      while (m->tokens[s][t] % 7 <= 1);
  return m;
}

static void close_model(Model *m) {
  compiled_free(&m->made);
  arena_destroy(m->arena);
  free(m);
}

// ---- what is expected ----

/* What stands behind the lengths of the items is never looked at. */
static void spoil_padding(const Model *m, const tfm_value *value, int64_t positions) {
  const int64_t columns = positions ? value_elements(value) / m->items / positions : 0;
  for (int64_t item = 0; item < m->items; item++)
    for (int64_t i = (item * positions + m->lengths[item]) * columns; i < (item + 1) * positions * columns; i++)
      if (value->dtype == TFM_F32) ((float *)value->data)[i] = NAN;
      else ((uint8_t *)value->data)[i] = 77;
}

static void make_ragged(Model *m, int64_t positions) {
  for (int64_t item = 0; item < m->items; item++)
    m->lengths[item] = !m->made.decoding.ragged ? positions : item == 1 ? m->lengths[0] : draw(m, positions + 1);
  for (uint32_t i = 0; i < m->made.decoding.encoder->n_inputs; i++) spoil_padding(m, &m->inputs[i], positions);
}

/* Other numbers of sources and positions in them, other values. */
static void make_inputs(Model *m, int64_t items, int64_t positions, uint32_t seed) {
  const tfm_program *source = m->made.decoding.encoder;
  m->items = source ? items : 1;
  m->random = seed;
  if (!source) return;
  int64_t symbols[SIZE_MAX_SYMBOLS];
  for (uint32_t i = 0; i < source->n_symbols; i++)
    symbols[i] = strcmp(source->symbols[i], "batch") == 0 ? items : positions;
  zero_inputs(m->arena, m->made.plans.decoding->encoder, symbols, m->inputs);
  for (uint32_t i = 0; i < source->n_inputs; i++) fill_randomly(m, &m->inputs[i]);
  make_ragged(m, positions);
}

static tfm_decoder *decoder_new(const Model *m, int32_t threads) {
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_decoder *made;
  tfm_error error;
  ok(tfm_decoder_create(&m->made.decoding, m->made.packed, m->made.packed, &options, &made, &error), &error);
  return made;
}

static void begin(const Model *m, tfm_decoder *d, int64_t rows) {
  const tfm_program *source = m->made.decoding.encoder;
  const int64_t *lengths[SIZE_MAX_SYMBOLS] = {NULL};
  tfm_error error;
  for (uint32_t i = 0; source && i < source->n_symbols; i++)
    if (strcmp(source->symbols[i], "source") == 0) lengths[i] = m->lengths;
  const bool are_ragged = m->made.decoding.ragged;
  ok(tfm_decoder_begin_ragged(d, source ? m->inputs : NULL, are_ragged ? lengths : NULL, rows, LENGTH, &error), &error);
}

/* With one item, whose positions are all there are. */
static void begin_alone(const Model *m, tfm_decoder *d, int64_t item) {
  tfm_value inputs[MOST_INPUTS];
  int64_t dims[MOST_INPUTS][TFM_MAX_RANK];
  tfm_error error;
  for (uint32_t i = 0; m->made.decoding.encoder && i < m->made.decoding.encoder->n_inputs; i++) {
    inputs[i] = m->inputs[i];
    memcpy(dims[i], inputs[i].dims, (size_t)inputs[i].rank * sizeof *dims[i]);
    inputs[i].dims = dims[i];
    dims[i][0] = 1;
    inputs[i].data = (char *)inputs[i].data + item * value_elements(&inputs[i]) * (inputs[i].dtype == TFM_F32 ? 4 : 1);
    dims[i][1] = m->lengths[item];
  }
  ok(tfm_decoder_begin(d, m->made.decoding.encoder ? inputs : NULL, 1, LENGTH, &error), &error);
}

/* A row alone, token by token. */
static void find_expected(Model *m) {
  tfm_decoder *d = decoder_new(m, 1);
  tfm_error error;
  for (int64_t item = 0; item < m->items; item++)
    for (int s = 0; s < SEQUENCES; s++) {
      int64_t row;
      begin_alone(m, d, item);
      ok(tfm_decoder_join(d, 0, &row, &error), &error);
      for (int t = 0; t < LENGTH; t++) {
        const tfm_decoder_row part = {row, &m->tokens[s][t], 1, 0};
        ok(tfm_decoder_step(d, 1, &part, 1, m->expected[item][s][t], NULL, &error), &error);
      }
      ok(tfm_decoder_leave(d, row, &error), &error);
    }
  tfm_decoder_destroy(d);
}

// ---- rows ----

typedef struct Row { /* the first `length` tokens of a sequence; length -1: there is none */
  int64_t item, sequence, length;
} Row;

typedef struct Crowd {
  Model *m;
  tfm_decoder *decoder;
  int64_t n;
  Row rows[MOST_ROWS];
} Crowd;

typedef struct Call {
  int64_t n, kept;
  tfm_decoder_row rows[MOST_ROWS];
} Call;

static void reorder(Crowd *crowd) {
  int64_t parents[MOST_ROWS], n = crowd->n;
  Row before[MOST_ROWS];
  memcpy(before, crowd->rows, sizeof before);
  for (int64_t i = 0; i < n; i++) {
    parents[i] = draw(crowd->m, 3) ? i : draw(crowd->m, crowd->n);
    if (before[parents[i]].length < 0) n = i;
    else crowd->rows[i] = before[parents[i]];
  }
  tfm_error error;
  for (int64_t i = n; i < crowd->n; i++) crowd->rows[i].length = -1;
  ok(tfm_decoder_reorder(crowd->decoder, n, parents, &error), &error);
}

static void join(Crowd *crowd) {
  tfm_error error;
  int64_t row, item = draw(crowd->m, crowd->m->items);
  ok(tfm_decoder_join(crowd->decoder, item, &row, &error), &error);
  cr_assert_lt(crowd->rows[row].length, 0);
  crowd->rows[row] = (Row){item, draw(crowd->m, SEQUENCES), 0};
}

/* Any row, as often as there is room; the first free number is the copy's. */
static void fork_row(Crowd *crowd) {
  tfm_error error;
  int64_t row, parent = draw(crowd->m, crowd->n);
  if (crowd->rows[parent].length < 0) return;
  ok(tfm_decoder_fork(crowd->decoder, parent, &row, &error), &error);
  cr_assert_lt(crowd->rows[row].length, 0);
  crowd->rows[row] = crowd->rows[parent];
}

static void change(Crowd *crowd) {
  tfm_error error;
  if (draw(crowd->m, 12) == 0) reorder(crowd);
  for (int64_t i = 0; i < crowd->n; i++) {
    Row *row = &crowd->rows[i];
    if (row->length < 0) {
      if (draw(crowd->m, 2)) (draw(crowd->m, 4) ? join : fork_row)(crowd);
    } else if (draw(crowd->m, 20) == 0 || row->length == LENGTH) {
      ok(tfm_decoder_leave(crowd->decoder, i, &error), &error);
      row->length = -1;
    } else if (draw(crowd->m, 20) == 0) {
      row->length = draw(crowd->m, row->length + 1);
      ok(tfm_decoder_truncate(crowd->decoder, i, row->length, &error), &error);
    }
  }
}

/* Some of the rows, in any order. Few different numbers of new tokens, so that there are runs of several rows too. */
static void choose(Crowd *crowd, Call *call) {
  Model *m = crowd->m;
  const int64_t most = draw(m, 4) ? 2 : 40, shift = draw(m, crowd->n), left_out = draw(m, 3);
  call->n = 0;
  call->kept = draw(m, 6) ? 1 : draw(m, 4);
  for (int64_t k = 0; k < crowd->n; k++) {
    const int64_t i = (k * 37 + shift) % crowd->n; /* 37 divides no number of rows that is used */
    const Row *row = &crowd->rows[i];
    int64_t n = (call->kept ? call->kept : 1) + (draw(m, 3) ? 0 : draw(m, most));
    if (n > LENGTH - row->length) n = LENGTH - row->length;
    if (row->length < 0 || n < call->kept || n == 0 || draw(m, 4) < left_out) continue;
    call->rows[call->n++] = (tfm_decoder_row){i, &m->tokens[row->sequence][row->length], n, 0};
  }
}

static void compare(const Crowd *crowd, const Call *call, const float *scores) {
  for (int64_t i = 0; i < call->n; i++) {
    const Row *row = &crowd->rows[call->rows[i].row];
    cr_assert_eq(tfm_decoder_length(crowd->decoder, call->rows[i].row), row->length);
    for (int64_t k = 0; k < call->kept; k++) {
      const float *want = crowd->m->expected[row->item][row->sequence][row->length - call->kept + k];
      cr_assert(memcmp(scores + (i * call->kept + k) * VOCAB, want, sizeof(float) * VOCAB) == 0,
                "row %lld of %lld (item %lld, sequence %lld), %lld tokens, %lld of them new: score %lld of %lld",
                (long long)i, (long long)call->n, (long long)row->item, (long long)row->sequence, (long long)row->length,
                (long long)call->rows[i].n_tokens, (long long)k, (long long)call->kept);
    }
  }
}

static void check_logsumexp(const Call *call, const float *scores, const float *logsumexp) {
  for (int64_t i = 0; i < call->n * call->kept; i++) {
    double sum = 0;
    for (int t = 0; t < VOCAB; t++) sum += exp((double)scores[i * VOCAB + t]);
    cr_assert_float_eq(logsumexp[i], log(sum), 1e-4);
  }
}

/* The same call with a token in one of its rows that cannot be: nothing changes. */
static void fail(Crowd *crowd, Call call, float *scores) {
  static const int32_t bad[] = {DIVIDES_BY_ZERO, GIVES_NO_ID, IS_NO_ID, -1};
  int32_t tokens[LENGTH];
  tfm_error error;
  tfm_decoder_row *row = &call.rows[draw(crowd->m, call.n)];
  memcpy(tokens, row->tokens, (size_t)row->n_tokens * sizeof *tokens);
  tokens[draw(crowd->m, row->n_tokens)] = bad[draw(crowd->m, 4)];
  row->tokens = tokens;
  cr_assert_eq(tfm_decoder_step(crowd->decoder, call.n, call.rows, call.kept, scores, NULL, &error), TFM_E_INPUT);
}

static void take_step(Crowd *crowd) {
  static float scores[MOST_ROWS * 4 * VOCAB], logsumexp[MOST_ROWS * 4];
  Call call;
  tfm_error error;
  choose(crowd, &call);
  if (call.n && draw(crowd->m, 4) == 0) fail(crowd, call, scores);
  const bool wants_sums = draw(crowd->m, 2);
  ok(tfm_decoder_step(crowd->decoder, call.n, call.rows, call.kept, scores, wants_sums ? logsumexp : NULL, &error), &error);
  for (int64_t i = 0; i < call.n; i++) crowd->rows[call.rows[i].row].length += call.rows[i].n_tokens;
  compare(crowd, &call, scores);
  if (wants_sums) check_logsumexp(&call, scores, logsumexp);
}

// ---- the tests ----

typedef struct Beginning {
  int64_t rows, items, positions;
} Beginning;

static void check_crowds(const char *text, const char *d, const char *rule, const TargetInfo *target, int64_t steps) {
  static const Beginning beginnings[] = {{11, 3, 20}, {100, 2, 5}, {1, 1, 40}, {40, 5, 17}};
  Model *m = open_model(text, d, rule, target);
  for (int32_t threads = 1; threads <= 8; threads *= 2) {
    Crowd crowd = {.m = m, .decoder = decoder_new(m, threads)};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
      const Beginning *beginning = &beginnings[i];
      make_inputs(m, beginning->items, beginning->positions, (uint32_t)(i * 8) + (uint32_t)threads);
      find_expected(m);
      begin(m, crowd.decoder, beginning->rows);
      crowd.n = beginning->rows;
      for (int64_t row = 0; row < crowd.n; row++) crowd.rows[row].length = -1;
      for (int64_t step = 0; step < steps; step++) {
        change(&crowd);
        take_step(&crowd);
      }
    }
    tfm_decoder_destroy(crowd.decoder);
  }
  close_model(m);
}

static int64_t steps_of_crowds(void) {
  const char *given = getenv("TFM_DECODING_STEPS"); /* more calls after each beginning */
  return given ? atoll(given) : 12;
}

/* Widths that fill whole cache lines, so that rows of all runs are one product, and others. */
Test(decoding_together, any_mixture_gives_the_bits_of_each_row, .timeout = 300) {
  const int64_t steps = steps_of_crowds();
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    check_crowds(encoder, "32", "f32", target, steps);
    check_crowds(encoder, "24", "f32", target, steps);
    check_crowds(decoder, "16", "f32", target, steps);
    check_crowds(ragged, "32", "f32", target, steps);
    check_crowds(coverage, "16", "f32", target, steps);
    check_crowds(sums, "32", "f32", target, steps);
    check_crowds(experts, "32", "f32", target, steps);
  }
}

/* With caches of 8 bits: on a set that multiplies words, on one of pairs of bytes, and on the best one. */
Test(decoding_together, any_mixture_in_8_bits, .timeout = 300) {
  const TargetInfo *best = targets;
  for (const TargetInfo *target = targets; target->name; target++)
    if (!host_lacks(target)) best = target;
  for (const TargetInfo *target = targets; target->name; target++) {
    const bool is_of_pairs = strcmp(target->name, "x86-64-v3") == 0 && !host_lacks(target);
    if (target != targets && target != best && !is_of_pairs) continue;
    check_crowds(encoder, "32", "int8", target, steps_of_crowds());
    check_crowds(encoder, "24", "int8", target, steps_of_crowds());
    check_crowds(decoder, "16", "int8", target, steps_of_crowds());
    check_crowds(ragged, "32", "int8", target, steps_of_crowds());
    check_crowds(experts, "32", "int8", target, steps_of_crowds());
  }
}
