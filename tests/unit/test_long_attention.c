/* Attention over more than 16,384 keys: its sums, of weights and of weighted values, are those of chains of so many
 * keys, added in a tree; they stay exact where one chain would not; rows have the same bits whatever is beside them,
 * behind them or wanted, with any number of threads, in the whole forward and token by token. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codegen/codegen.h"
#include "compiled_model.h"
#include "elaborate_text.h"
#include "passes/passes.h"
#include "same_values.h"
#include "tfm/decode.h"
#include "tfm/tfm.h"

enum { H = 8, E = 24, CHAIN = 16384 }; /* CHAIN is part of the definition of the bits: not taken from a header */

static Arena *arena;
static Diag diag;

static void setup(void) {
  arena = arena_create();
  diag = diag_new(arena);
}

static void teardown(void) { arena_destroy(arena); }

TestSuite(long_attention, .init = setup, .fini = teardown);

static void ok(tfm_status status, const tfm_error *error) { cr_assert_eq(status, TFM_OK, "%s", error->message); }

// ---- numbers ----

/* In [-0.5, 0.5). */
static float mixed(int64_t i) {
  uint32_t bits = ((uint32_t)i + 7919u) * 2654435761u;
  bits ^= bits >> 15;
  return (float)(bits * 2246822519u >> 8) * 0x1p-24f - 0.5f;
}

static tfm_value number_tensor(int64_t batch, int64_t rows, int64_t columns) {
  Tensor *tensor = tensor_new(arena, DTYPE_F32, 3, (const int64_t[]){batch, rows, columns});
  return (tfm_value){tensor->data, TFM_F32, 3, tensor->dims};
}

static tfm_value mask_tensor(int64_t batch, int64_t keys) {
  Tensor *tensor = tensor_new(arena, DTYPE_BOOL, 2, (const int64_t[]){batch, keys});
  memset(tensor->data, 0, (size_t)(batch * keys));
  return (tfm_value){tensor->data, TFM_BOOL, 2, tensor->dims};
}

/* All zero. */
typedef struct Inputs {
  tfm_value values[4]; /* q, k, v, pad */
  float *q, *k, *v;
  uint8_t *pad;
  int64_t batch, rows, keys;
} Inputs;

static Inputs inputs_new(int64_t batch, int64_t rows, int64_t keys) {
  Inputs in = {.values = {number_tensor(batch, rows, H), number_tensor(batch, keys, H), number_tensor(batch, keys, E),
                          mask_tensor(batch, keys)},
               .batch = batch,
               .rows = rows,
               .keys = keys};
  in.q = in.values[0].data, in.k = in.values[1].data, in.v = in.values[2].data, in.pad = in.values[3].data;
  memset(in.q, 0, (size_t)(batch * rows * H) * sizeof(float));
  memset(in.k, 0, (size_t)(batch * keys * H) * sizeof(float));
  memset(in.v, 0, (size_t)(batch * keys * E) * sizeof(float));
  return in;
}

// ---- runs ----

typedef struct Model {
  const TargetInfo *target;
  Compiled compiled;
} Model;

static Model model_of(const TargetInfo *target, const char *head, const char *columns) {
  Model m = {.target = target};
  char text[400];
  snprintf(text, sizeof text,
           "model M() {\n"
           "  forward(q: f32[batch, rows, %s], k: f32[batch, keys, %s], v: f32[batch, keys, %s],\n"
           "          pad: bool[batch, keys]) {\n"
           "    p = softmax(where(pad[:, none], -inf, q @ transpose(k, 1, 2)))\n"
           "    return a = p @ v, p\n"
           "  }\n"
           "}\n",
           head, head, columns);
  Graph *graph = elaborate_text(arena, &diag, text, &(ElaborateOptions){0});
  cr_assert(graph, "%s", first_message(&diag));
  m.compiled = compiled_forward(arena, &diag, graph, &(PassOptions){.level = 2}, target, NULL, NULL);
  cr_assert_eq(m.compiled.forward->steps[0].kind, TFM_STEP_ATTENTION);
  return m;
}

static Model model_new(const TargetInfo *target) { return model_of(target, "8", "24"); }

/* The results [batch][rows][E]; the weights too if they are wanted. */
static const float *run(const Model *m, const Inputs *in, int32_t threads, bool weights) {
  tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_context *context;
  tfm_error error;
  tfm_value outputs[] = {number_tensor(in->batch, in->rows, E), number_tensor(in->batch, in->rows, in->keys)};
  const float *results = outputs[0].data;
  if (!weights) outputs[1].data = NULL;
  ok(tfm_context_create(m->compiled.forward, m->compiled.packed, &options, &context, &error), &error);
  ok(tfm_context_bind(context, in->values, &error), &error);
  ok(tfm_context_run(context, in->values, outputs, &error), &error);
  tfm_context_destroy(context);
  return results;
}

// ---- the definition ----

static float tree(const float *chains, int64_t n) {
  int64_t left = 1;
  if (n == 1) return *chains;
  while (2 * left < n) left *= 2;
  return tree(chains, left) + tree(chains + left, n - left);
}

/* All weights are 1. */
static float mean_of(const Inputs *in, int64_t column) {
  float chains[64] = {0};
  for (int64_t key = 0; key < in->keys; key++) chains[key / CHAIN] += in->v[key * E + column];
  return tree(chains, (in->keys - 1) / CHAIN + 1) * (1 / (float)in->keys);
}

static void check_bits(int64_t keys) {
  static const int64_t rows[] = {1, 7, 150};
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Model m = model_new(target);
    for (int i = 0; i < 3; i++)
      for (int32_t threads = 1; threads <= 2; threads++) {
        Inputs in = inputs_new(1, rows[i], keys);
        for (int64_t n = 0; n < keys * E; n++) in.v[n] = mixed(n);
        const float *got = run(&m, &in, threads, false);
        for (int64_t place = 0; place < 3; place++) {
          int64_t row = place * (rows[i] - 1) / 2, column = place * (E - 1) / 2;
          float want = mean_of(&in, column);
          cr_assert_eq(got[row * E + column], want, "%s: %lld keys, [%lld][%lld]: %a, not %a", target->name,
                       (long long)keys, (long long)row, (long long)column, (double)got[row * E + column], (double)want);
        }
      }
    compiled_free(&m.compiled);
  }
}

Test(long_attention, one_chain) { check_bits(CHAIN); }
Test(long_attention, a_chain_and_one_key) { check_bits(CHAIN + 1); }
Test(long_attention, three_chains) { check_bits(40000); }
Test(long_attention, six_chains) { check_bits(5 * CHAIN + 77); }

// ---- exactness ----

/* The sum of values: chains of 16,384 are exact, but at 2^14 each step of a longer one would lose its last bits. */
Test(long_attention, sums_of_values_stay_exact) {
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Model m = model_new(target);
    Inputs in = inputs_new(1, 2, 300000);
    for (int64_t i = 0; i < in.keys * E; i++) in.v[i] = 1 + 0x1p-10f;
    const float *got = run(&m, &in, 2, false);
    for (int64_t i = 0; i < 2 * E; i++) cr_assert_float_eq(got[i] / (1 + 0x1p-10), 1, 1e-5, "%g", (double)got[i]);
    compiled_free(&m.compiled);
  }
}

static double sum_of_weights(const Inputs *in, double score) { return 1 + (double)(in->keys - 1) * exp(score); }

/* The sum of weights, all but the first of which are alike: the block of 512 that is added is always rounded in the
 * same direction. All values but one are 0, so the sum of values is exact with one chain too. */
Test(long_attention, sums_of_weights_stay_exact) {
  Inputs in = inputs_new(1, 1, 1 << 20);
  in.q[0] = 1;
  in.v[0] = 1;
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Model m = model_new(target);
    for (int n = 1; n <= 3; n++) {
      const float score = -0x1p-4f * (float)n;
      for (int64_t key = 1; key < in.keys; key++) in.k[key * H] = score;
      const float *got = run(&m, &in, 2, false);
      const double want = 1 / sum_of_weights(&in, score);
      cr_assert_float_eq(got[0] / want, 1, 1e-5, "%s: score %g: %g, not %g", target->name, score, (double)got[0], want);
    }
    compiled_free(&m.compiled);
  }
}

/* Mixed scores, whose maximum grows on the way, and values of one sign, against double precision. */
static double right_result(const Inputs *in, int64_t row, int64_t column) {
  double most = -INFINITY, sum = 0, result = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t key = 0; key < in->keys; key++) {
      double score = 0;
      for (int64_t i = 0; i < H; i++) score += (double)in->q[row * H + i] * in->k[key * H + i];
      if (pass == 0)
        most = fmax(most, score);
      else
        sum += exp(score - most), result += exp(score - most) * in->v[key * E + column];
    }
  return result / sum;
}

static void fill_mixed(Inputs *in) {
  for (int64_t i = 0; i < in->batch * in->rows * H; i++) in->q[i] = 4 * mixed(i + 5);
  for (int64_t i = 0; i < in->batch * in->keys; i++)
    for (int64_t h = 0; h < H; h++) in->k[i * H + h] = mixed(i * H + h + 99) + 0x1p-16f * (float)(i % in->keys);
  for (int64_t i = 0; i < in->batch * in->keys * E; i++) in->v[i] = 1.5f + mixed(i);
}

Test(long_attention, mixed_scores_stay_exact) {
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Model m = model_new(target);
    Inputs in = inputs_new(1, 3, 60000);
    fill_mixed(&in);
    const float *got = run(&m, &in, 2, true);
    for (int64_t row = 0; row < in.rows; row++)
      for (int64_t column = 0; column < E; column += 11)
        cr_assert_float_eq(got[row * E + column] / right_result(&in, row, column), 1, 1e-5);
    compiled_free(&m.compiled);
  }
}

// ---- the same bits ----

/* Row `row` of item `item` alone, with no key that is masked at the end. */
static void check_alone(const Model *m, const Inputs *all, const float *got, int64_t item, int64_t row, int64_t keys) {
  Inputs in = inputs_new(1, 1, keys);
  memcpy(in.q, all->q + (item * all->rows + row) * H, H * sizeof(float));
  memcpy(in.k, all->k + item * all->keys * H, (size_t)(keys * H) * sizeof(float));
  memcpy(in.v, all->v + item * all->keys * E, (size_t)(keys * E) * sizeof(float));
  memcpy(in.pad, all->pad + item * all->keys, (size_t)keys);
  const float *alone = run(m, &in, 1, false);
  cr_assert_eq(memcmp(alone, got + (item * all->rows + row) * E, E * sizeof(float)), 0, "%s: item %lld, row %lld",
               m->target->name, (long long)item, (long long)row);
}

Test(long_attention, same_bits) {
  static const int64_t lengths[] = {40000, 2 * CHAIN, CHAIN + 7};
  const float *first = NULL; /* of the instruction sets with FMA */
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Model m = model_new(target);
    Inputs in = inputs_new(3, 37, 70000);
    fill_mixed(&in);
    for (int64_t item = 0; item < in.batch; item++)
      for (int64_t key = 0; key < in.keys; key++) /* the end, and one chain and single keys before it */
        in.pad[item * in.keys + key] = key >= lengths[item] || key % 13 == 5 || (item == 0 && key / CHAIN == 1);
    const float *got = run(&m, &in, 2, false);
    const size_t bytes = (size_t)(in.batch * in.rows * E) * sizeof *got;
    cr_assert_eq(memcmp(got, run(&m, &in, 1, true), bytes), 0, "%s: threads, weights", target->name);
    if (target->has_fma && first) cr_assert_eq(memcmp(got, first, bytes), 0, "%s", target->name);
    if (target->has_fma && !first) first = got;
    for (int64_t item = 0; item < in.batch; item++)
      for (int64_t row = 0; row < in.rows; row += 12) check_alone(&m, &in, got, item, row, lengths[item]);
    compiled_free(&m.compiled);
  }
}

// ---- one query ----

enum { HEAD = 23, WIDE = 64, ROWS = 5, KEYS = 1100 }; /* two blocks of keys and a part */

/* The results of queries, [rows][WIDE]; `inputs` are keys, values and their mask. */
static const float *answers(const Model *m, const tfm_value *inputs, const float *q, int64_t rows) {
  tfm_context_options options = {.struct_size = sizeof options, .threads = 1};
  tfm_context *context;
  tfm_error error;
  tfm_value values[] = {number_tensor(1, rows, HEAD), inputs[0], inputs[1], inputs[2]};
  tfm_value outputs[] = {number_tensor(1, rows, WIDE), number_tensor(1, rows, inputs[0].dims[1])};
  const float *results = outputs[0].data;
  memcpy(values[0].data, q, (size_t)(rows * HEAD) * sizeof *q);
  outputs[1].data = NULL;
  ok(tfm_context_create(m->compiled.forward, m->compiled.packed, &options, &context, &error), &error);
  ok(tfm_context_bind(context, values, &error), &error);
  ok(tfm_context_run(context, values, outputs, &error), &error);
  tfm_context_destroy(context);
  return results;
}

/* Every row alone, whose keys and values are then read where they lie, and among the others. */
static void check_one_query(const Model *m, const tfm_value *inputs, bool finite, const char *what) {
  float q[ROWS * HEAD];
  for (int64_t i = 0; i < ROWS * HEAD; i++) q[i] = mixed(i + 3);
  const float *all = answers(m, inputs, q, ROWS);
  for (int64_t row = 0; row < ROWS; row++) {
    const float *alone = answers(m, inputs, q + row * HEAD, 1);
    cr_assert_eq(memcmp(alone, all + row * WIDE, WIDE * sizeof *alone), 0, "%s: %s: row %lld", m->target->name, what,
                 (long long)row);
    for (int64_t i = 0; i < WIDE; i++) cr_assert(!finite || isfinite(alone[i]), "%s: %s", m->target->name, what);
    cr_assert(finite || !isfinite(alone[9]), "%s: %s", m->target->name, what);
  }
}

/* A key that is masked hides what its value is, in any block of keys; others show it. */
Test(long_attention, one_query_has_the_bits_of_many) {
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Model m = model_of(target, "23", "64"), few = model_of(target, "8", "64");
    cr_assert_neq(m.compiled.forward->attentions[0].keys_in_place, TFM_NONE);
    cr_assert_eq(few.compiled.forward->attentions[0].keys_in_place, TFM_NONE);
    const tfm_value inputs[] = {number_tensor(1, KEYS, HEAD), number_tensor(1, KEYS, WIDE), mask_tensor(1, KEYS)};
    float *k = inputs[0].data, *v = inputs[1].data;
    uint8_t *pad = inputs[2].data;
    for (int64_t i = 0; i < KEYS * HEAD; i++) k[i] = 3 * mixed(i);
    for (int64_t i = 0; i < KEYS * WIDE; i++) v[i] = mixed(i);
    check_one_query(&m, inputs, true, "finite values");
    static const int64_t keys[] = {3, 700, KEYS - 1};
    for (int i = 0; i < 3; i++) {
      pad[keys[i]] = 1;
      v[keys[i] * WIDE + 9] = i == 1 ? NAN : INFINITY;
      check_one_query(&m, inputs, true, "a masked value that is not finite");
    }
    v[800 * WIDE + 9] = -INFINITY;
    check_one_query(&m, inputs, false, "an infinite value");
    v[900 * WIDE + 9] = NAN;
    check_one_query(&m, inputs, false, "a value that is no number");
    compiled_free(&m.compiled);
    compiled_free(&few.compiled);
  }
}

/* Few queries read few keys where they lie; among others they share panels of keys that are packed. */
Test(long_attention, few_scores_have_the_bits_of_many) {
  enum { MANY = 70 };
  static const int64_t shapes[][2] = {{1, 1}, {2, 5}, {4, 16}, {4, 64}, {5, 33}, {15, 17}, {16, 16}};
  float q[MANY * HEAD];
  for (int64_t i = 0; i < MANY * HEAD; i++) q[i] = mixed(i + 3);
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Model m = model_of(target, "23", "64");
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
      const int64_t rows = shapes[shape][0], keys = shapes[shape][1];
      const tfm_value inputs[] = {number_tensor(1, keys, HEAD), number_tensor(1, keys, WIDE), mask_tensor(1, keys)};
      for (int64_t i = 0; i < keys * HEAD; i++) ((float *)inputs[0].data)[i] = 3 * mixed(i);
      for (int64_t i = 0; i < keys * WIDE; i++) ((float *)inputs[1].data)[i] = mixed(i + 1);
      if (keys > 4) {
        ((uint8_t *)inputs[2].data)[3] = 1;
        ((float *)inputs[1].data)[3 * WIDE] = NAN;
      }
      const float *alone = answers(&m, inputs, q, rows), *all = answers(&m, inputs, q, MANY);
      cr_assert_eq(memcmp(alone, all, (size_t)(rows * WIDE) * sizeof *all), 0, "%s: %lld queries, %lld keys",
                   target->name, (long long)rows, (long long)keys);
      cr_assert(isfinite(alone[0]));
    }
    compiled_free(&m.compiled);
  }
}

// ---- token by token ----

enum { VOCAB = 30, LENGTH = 2 * CHAIN + 20, FIRST = LENGTH - 40 };

typedef struct Writer {
  RandomWeights random;
  Compiled whole, made;
  int32_t tokens[LENGTH];
} Writer;

static const Tensor *find(void *context, const char *name) { return random_weight(context, name); }

static Writer *writer_new(const TargetInfo *target) {
  Writer *w = arena_alloc(arena, sizeof *w);
  Graph *graph = elaborate_text(arena, &diag,
                                "model M(vocab = 30, d = 16) {\n"
                                "  embed = Embedding(vocab, d)\n"
                                "  encoder = EncoderLayer(d, 1, 16)\n"
                                "  head = Linear(d, vocab)\n"
                                "  forward(ids: i32[1, time]) {\n"
                                "    logits = embed(ids) -> encoder(is_causal = true) -> head\n"
                                "    return logits\n"
                                "  }\n"
                                "  generate ids from logits { bos = 1  eos = 2  pad = 0  max_length = 40000 }\n"
                                "}\n",
                                &(ElaborateOptions){0});
  cr_assert(graph, "%s", first_message(&diag));
  w->random = (RandomWeights){arena, graph_clone(arena, graph), map_new(arena)};
  cr_assert(compiled_decoding(&w->made, arena, &diag, graph, target, find, &w->random));
  w->whole = compiled_forward(arena, &diag, graph, &(PassOptions){.level = 2}, target, find, &w->random);
  for (int64_t i = 0; i < LENGTH; i++) w->tokens[i] = (int32_t)((mixed(i) + 0.5f) * VOCAB);
  return w;
}

static const float *whole_scores(Writer *w) {
  tfm_context_options options = {.struct_size = sizeof options, .threads = 2};
  tfm_context *context;
  tfm_error error;
  const tfm_value ids = {w->tokens, TFM_I32, 2, (const int64_t[]){1, LENGTH}};
  const tfm_value scores = number_tensor(1, LENGTH, VOCAB);
  ok(tfm_context_create(w->whole.forward, w->whole.packed, &options, &context, &error), &error);
  ok(tfm_context_bind(context, &ids, &error), &error);
  ok(tfm_context_run(context, &ids, &scores, &error), &error);
  tfm_context_destroy(context);
  return scores.data;
}

/* The last tokens, in steps of 1, 7 and 5, cross the end of the second chain. */
Test(long_attention, token_by_token) {
  static const int64_t steps[] = {1, 7, 5};
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Writer *w = writer_new(target);
    const float *whole = whole_scores(w);
    tfm_context_options options = {.struct_size = sizeof options, .threads = 2};
    tfm_decoder *decoder;
    tfm_error error;
    int64_t row, n = FIRST;
    float scores[7 * VOCAB];
    ok(tfm_decoder_create(&w->made.decoding, w->made.packed, w->made.packed, &options, &decoder, &error), &error);
    ok(tfm_decoder_begin(decoder, NULL, 1, LENGTH, &error), &error);
    ok(tfm_decoder_join(decoder, 0, &row, &error), &error);
    for (int64_t done = 0, i = 0; done < LENGTH; done += n, i++) {
      if (i) n = LENGTH - done < steps[i % 3] ? LENGTH - done : steps[i % 3];
      const int64_t kept = n < 7 ? n : 7;
      ok(tfm_decoder_step(decoder, 1, &(tfm_decoder_row){row, w->tokens + done, n, 0}, kept, scores, NULL, &error),
         &error);
      cr_assert_eq(memcmp(scores, whole + (done + n - kept) * VOCAB, (size_t)(kept * VOCAB) * sizeof *scores), 0,
                   "%s: after %lld tokens", target->name, (long long)(done + n));
    }
    tfm_decoder_destroy(decoder);
    compiled_free(&w->whole);
    compiled_free(&w->made);
  }
}
