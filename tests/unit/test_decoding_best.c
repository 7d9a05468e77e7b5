/* The best tokens of each row are those that the whole scores give, whatever the number of rows and threads, on every
 * instruction set of this CPU: equal scores, -inf, NaN and +inf among them, tokens that are set apart; so are the logs of
 * sums. Greedy generation and beam search write the same tokens with and without a matrix of scores, and say the same where
 * they cannot go on. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>

#include "codegen/codegen.h"
#include "compiled_model.h"
#include "elaborate_text.h"
#include "guarded_memory.h"
#include "tfm/decode.h"

enum { MOST_ROWS = 600, LENGTH = 24 };

typedef struct Shape {
  const char *last; /* what becomes of the product */
  int64_t vocab, d;
} Shape;

typedef struct Model {
  Arena *arena;
  Diag diag;
  Shape shape;
  uint32_t random;
  Compiled made;
} Model;

static void ok(tfm_status status, const tfm_error *error) { cr_assert_eq(status, TFM_OK, "%s", error->message); }
static void good(const Model *m, bool condition) {
  cr_assert(condition, "%s", first_message(&m->diag));
}

// ---- the model ----

/* What comes before a token enters by `mix` alone, so that a token whose embedding is no number spoils its own row only. */
static const char text[] =
    "model M(vocab = %lld, d = %lld) {\n"
    "  embed = Embedding(vocab, d)\n"
    "  mix = Embedding(vocab, d)\n"
    "  head = Linear(d, vocab)\n"
    "  forward(ids: i32[batch, time]) {\n"
    "    m = mix(ids)\n"
    "    seen = softmax(where(causal_mask(m, m), -inf, m @ transpose(m, -1, -2))) @ m\n"
    "    logits = head(embed(ids) + seen)%s\n"
    "    return logits\n"
    "  }\n"
    "  generate ids from logits { bos = 1  eos = 2  pad = 0  max_length = 30 }\n"
    "}\n";

/* The last tokens: these make scores that are no numbers, or -inf. */
enum { GIVES_NAN = 1, GIVES_INFINITY, GIVES_NO_SCORE, GIVES_ONE_INFINITY, N_SPECIAL };

static uint32_t next_random(Model *m) { return (m->random = m->random * 1664525 + 1013904223) >> 8; }

/* Distant tokens have the same weights, every fifth and a whole stretch have -inf as their bias. Component 0 is that of a special token, which
 * all scores add; component 1 is added by the score of one token. */
static const Tensor *weight_named(void *context, const char *name) {
  Model *m = context;
  const int64_t vocab = m->shape.vocab, d = m->shape.d, period = vocab / 3 + 1;
  const bool is_head = strncmp(name, "head", 4) == 0, is_bias = strstr(name, "bias");
  Tensor *out = tensor_new(m->arena, DTYPE_F32, is_bias ? 1 : 2, (const int64_t[]){vocab, d});
  float *weights = out->data;
  m->random = (uint32_t)strlen(name) * 7919;
  const int64_t columns = is_bias ? 1 : d;
  for (int64_t i = 0; i < vocab * columns; i++)
    weights[i] = is_head && i >= period * columns ? weights[i - period * columns]
                                                  : (float)(next_random(m) % 2001) / 2000 - 0.5f;
  for (int64_t t = 0; t < vocab && is_bias; t++)
    if (t % 5 == 4 || (vocab > 400 && t >= 128 && t < 320)) weights[t] = -INFINITY;
  for (int64_t t = 0; t < vocab && is_head && !is_bias; t++)
    weights[t * d] = 1, weights[t * d + 1] = t == vocab / 2 ? 10 : 0;
  if (strcmp(name, "embed.weight") == 0) {
    for (int64_t t = 0; t < vocab; t++) weights[t * d] = weights[t * d + 1] = 0;
    weights[(vocab - GIVES_NAN) * d] = NAN;
    weights[(vocab - GIVES_INFINITY) * d] = INFINITY;
    weights[(vocab - GIVES_NO_SCORE) * d] = -INFINITY;
    weights[(vocab - GIVES_ONE_INFINITY) * d + 1] = 3e38f;
  } else if (!is_head) {
    for (int64_t t = 0; t < vocab; t++) weights[t * d] = weights[t * d + 1] = 0;
  }
  return out;
}

static void open_model(Model *m, const Shape *shape, const TargetInfo *target) {
  *m = (Model){.arena = arena_create(), .shape = *shape};
  m->diag = diag_new(m->arena);
  const char *source = arena_printf(m->arena, text, (long long)shape->vocab, (long long)shape->d, shape->last);
  Graph *graph = elaborate_text(m->arena, &m->diag, source, &(ElaborateOptions){0});
  good(m, graph);
  cr_assert(compiled_decoding(&m->made, m->arena, &m->diag, graph, target, weight_named, m) && !m->made.decoding.encoder);
  m->random = 99;
}

static void close_model(Model *m) {
  compiled_free(&m->made);
  arena_destroy(m->arena);
}

// ---- decoders ----

static int64_t allocations;

static void *counted_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  allocations++;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void plain_release(void *user, void *memory, size_t bytes) {
  (void)user, (void)bytes;
  free(memory);
}

static tfm_decoder *decoder_for(const Model *m, int32_t threads, int64_t rows) {
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads,
                                       .allocator = {counted_allocate, plain_release, NULL}};
  tfm_decoder *decoder;
  tfm_error error;
  ok(tfm_decoder_create(&m->made.decoding, m->made.packed, m->made.packed, &options, &decoder, &error), &error);
  ok(tfm_decoder_begin(decoder, NULL, rows, LENGTH, &error), &error);
  return decoder;
}

// ---- calls ----

typedef struct Rows { /* of a call, and what each way gives */
  int64_t n;
  int32_t tokens[MOST_ROWS][LENGTH], before[MOST_ROWS][LENGTH];
  const int32_t *places[MOST_ROWS];
  int64_t lengths[MOST_ROWS], lengths_before[MOST_ROWS], items[MOST_ROWS], parents[MOST_ROWS];
} Rows;

static int32_t random_token(Model *m) {
  const int64_t vocab = m->shape.vocab;
  if (next_random(m) % 16) return (int32_t)(next_random(m) % (uint32_t)(vocab - N_SPECIAL));
  return (int32_t)(vocab - 1 - next_random(m) % (N_SPECIAL - 1));
}

/* Prompts of different lengths; rows of one length do not stand side by side. */
static void begin_rows(Model *m, Rows *rows, int64_t n) {
  rows->n = n;
  for (int64_t i = 0; i < n; i++) {
    rows->lengths[i] = 1 + i * 3 % 4;
    rows->parents[i] = -1;
    for (int64_t t = 0; t < rows->lengths[i]; t++) rows->tokens[i][t] = random_token(m);
  }
}

/* Every row becomes a copy of some row and gets a token. */
static void continue_rows(Model *m, Rows *rows, int64_t n) {
  memcpy(rows->before, rows->tokens, sizeof rows->tokens);
  memcpy(rows->lengths_before, rows->lengths, sizeof rows->lengths);
  for (int64_t i = 0; i < n; i++) {
    const int64_t parent = rows->parents[i] = next_random(m) % 4 ? i : (int64_t)(next_random(m) % (uint32_t)rows->n);
    memcpy(rows->tokens[i], rows->before[parent], sizeof rows->tokens[i]);
    rows->lengths[i] = rows->lengths_before[parent];
    rows->tokens[i][rows->lengths[i]++] = random_token(m);
  }
  rows->n = n;
}

static bool is_apart(const uint64_t *apart, int64_t token) { return apart && apart[token / 64] >> token % 64 & 1; }

typedef struct Given { /* for one row, in place of its scores */
  const float *apart_scores;
  const tfm_best_token *best;
  float logsumexp;
} Given;

/* The best token that is worse than `before`, of those that are not set apart. */
static tfm_best_token best_after(const Model *m, const float *all, const uint64_t *apart, tfm_best_token before) {
  tfm_best_token best = {-INFINITY, TFM_NO_TOKEN};
  for (int64_t t = 0; t < m->shape.vocab; t++) {
    const bool is_after = all[t] < before.logit || (all[t] == before.logit && t > before.token);
    if (is_after && !is_apart(apart, t) && all[t] > best.logit) best = (tfm_best_token){all[t], (int32_t)t};
  }
  return best;
}

static void compare_best(const Model *m, int64_t row, const float *all, const uint64_t *apart, int64_t n_best,
                         const Given *given) {
  tfm_best_token want = {INFINITY, TFM_NO_TOKEN};
  for (int64_t i = 0; i < n_best; i++) {
    if (want.logit > -INFINITY) want = best_after(m, all, apart, want);
    cr_assert(given->best[i].logit == want.logit && given->best[i].token == want.token,
              "row %lld, number %lld: token %d (%g), not %d (%g)", (long long)row, (long long)i, given->best[i].token,
              given->best[i].logit, want.token, want.logit);
  }
}

static void compare_row(const Model *m, int64_t row, const float *all, float sum, const uint64_t *apart, int64_t n_best,
                        const Given *given) {
  bool are_numbers = true, has_score = false;
  for (int64_t t = 0; t < m->shape.vocab; t++) {
    const float score = given->apart_scores[t];
    are_numbers &= all[t] < INFINITY;
    has_score |= all[t] > -INFINITY;
    if (!is_apart(apart, t)) cr_assert_eq(score, 12345.0f, "row %lld: a score that nobody wants, %lld", (long long)row, (long long)t);
    else cr_assert(memcmp(&score, &all[t], sizeof *all) == 0, "row %lld, token %lld", (long long)row, (long long)t);
  }
  if (!are_numbers) {
    cr_assert(isnan(given->best->logit), "row %lld: %g", (long long)row, given->best->logit);
    return;
  }
  compare_best(m, row, all, apart, n_best, given);
  if (has_score)
    cr_assert(memcmp(&given->logsumexp, &sum, sizeof sum) == 0, "row %lld: the sum's log is %.9g, not %.9g",
              (long long)row, given->logsumexp, sum);
}

/* Both ways for the same rows. */
static void compare_call(Model *m, const Rows *rows, const tfm_generate_model *whole, const tfm_generate_model *fused,
                         int64_t n_best, uint32_t set_apart) {
  const int64_t vocab = m->shape.vocab, words = (vocab + 63) / 64;
  const tfm_step_rows call = {rows->n, rows->places, rows->lengths, rows->items, rows->parents};
  float *all = malloc((size_t)(rows->n * vocab) * sizeof *all), *given = malloc((size_t)(rows->n * vocab) * sizeof *given);
  float *sums = malloc((size_t)rows->n * sizeof *sums), *logsumexp = malloc((size_t)rows->n * sizeof *logsumexp);
  const size_t apart_bytes = (size_t)(rows->n * words) * sizeof(uint64_t);
  uint64_t *apart = set_apart ? guarded_new(apart_bytes) : NULL;
  tfm_best_token *best = calloc((size_t)(rows->n * n_best), sizeof *best);
  tfm_error error;
  for (int64_t i = 0; i < rows->n * vocab; i++) given[i] = 12345;
  for (int64_t i = 0; i < rows->n * vocab && apart; i++)
    if (next_random(m) % set_apart == 0) apart[i / vocab * words + i % vocab / 64] |= (uint64_t)1 << i % vocab % 64;
  ok(whole->logits(whole->user, &call, all, sums, &error), &error);
  const int64_t before = allocations;
  const tfm_best_call wanted = {n_best, best, apart, given, n_best > 1 ? logsumexp : NULL};
  ok(fused->best(fused->user, &call, &wanted, &error), &error);
  cr_assert_eq(allocations, before);
  for (int64_t i = 0; i < rows->n; i++) {
    const Given of_row = {given + i * vocab, best + i * n_best, n_best > 1 ? logsumexp[i] : sums[i]};
    compare_row(m, i, all + i * vocab, sums[i], apart ? apart + i * words : NULL, n_best, &of_row);
  }
  free(all), free(given), free(sums), free(logsumexp), free(best), guarded_free(apart, apart_bytes);
}

static void compare_calls(Model *m, int32_t threads, int64_t n) {
  static Rows rows;
  for (int64_t i = 0; i < MOST_ROWS; i++) rows.places[i] = rows.tokens[i], rows.items[i] = 0;
  tfm_decoder *decoders[] = {decoder_for(m, threads, n), decoder_for(m, threads, n)};
  const tfm_generate_model whole = tfm_decoder_model(decoders[0]), fused = tfm_decoder_model(decoders[1]);
  cr_assert_not_null(fused.best);
  begin_rows(m, &rows, n);
  const int64_t n_best[] = {8, fused.most_best, 1};
  compare_call(m, &rows, &whole, &fused, 1, 0);
  for (int step = 0; step < 3; step++) {
    continue_rows(m, &rows, step < 2 ? n : n / 2 + 1);
    compare_call(m, &rows, &whole, &fused, n_best[step], step == 0 ? 7 : step == 1 ? 1 : 0); /* some, all, none set apart */
  }
  continue_rows(m, &rows, rows.n);
  compare_call(m, &rows, &whole, &fused, 5, 0);
  tfm_decoder_destroy(decoders[0]);
  tfm_decoder_destroy(decoders[1]);
}

static const Shape fused_shapes[] = {{"", 30, 8},    {"", 64, 24},         {" * 0.5", 133, 32},
                                     {"", 1500, 16}, {" -> tanh", 700, 12}, {"", 90, 800}};

Test(decoding_best, is_the_one_that_the_scores_give, .timeout = 300) {
  for (const TargetInfo *target = targets; target->name; target++)
    for (size_t i = 0; i < sizeof fused_shapes / sizeof *fused_shapes && !host_lacks(target); i++) {
      Model m;
      open_model(&m, &fused_shapes[i], target);
      for (int32_t threads = 1; threads <= 4; threads *= 2) {
        compare_calls(&m, threads, 1);
        compare_calls(&m, threads, 8);
        compare_calls(&m, threads, 37);
        compare_calls(&m, threads, 140);
      }
      if (fused_shapes[i].vocab <= 133) compare_calls(&m, 2, MOST_ROWS);
      close_model(&m);
    }
}

/* The largest of what is no product as it stands is looked for in the matrix. */
Test(decoding_best, needs_a_product) {
  const Shape shapes[] = {{" -> softmax", 30, 8}, {" -> log_softmax", 30, 8}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    Model m;
    open_model(&m, &shapes[i], host_target());
    tfm_decoder *decoder = decoder_for(&m, 1, 1);
    cr_expect_null(tfm_decoder_model(decoder).best, "%s", shapes[i].last);
    tfm_decoder_destroy(decoder);
    close_model(&m);
  }
}

// ---- generation ----

enum { N_PROMPTS = 6, WIDTH = 5, MOST_BEAMS = 5 };

typedef struct Watched {
  tfm_generate_model inner;
  int64_t matrices, bests;
} Watched;

static tfm_status watched_scores(void *user, const tfm_step_rows *rows, float *scores, float *logsumexp, tfm_error *error) {
  Watched *watched = user;
  watched->matrices++;
  return watched->inner.logits(watched->inner.user, rows, scores, logsumexp, error);
}

static tfm_status watched_best(void *user, const tfm_step_rows *rows, const tfm_best_call *call, tfm_error *error) {
  Watched *watched = user;
  watched->bests++;
  return watched->inner.best(watched->inner.user, rows, call, error);
}

/* Sometimes a prompt's last token is a special one. */
static tfm_prompts random_prompts(Model *m, int32_t *tokens, int64_t *lengths, int64_t *padding) {
  for (int64_t i = 0; i < N_PROMPTS; i++) {
    lengths[i] = 1 + (int64_t)(next_random(m) % WIDTH);
    padding[i] = (int64_t)next_random(m) % lengths[i];
    for (int64_t t = 0; t < WIDTH; t++)
      tokens[i * WIDTH + t] = (int32_t)(next_random(m) % (uint32_t)(m->shape.vocab - N_SPECIAL));
  }
  if (next_random(m) % 4 == 0) tokens[3 * WIDTH + lengths[3] - 1] = random_token(m);
  return (tfm_prompts){N_PROMPTS, WIDTH, tokens, lengths, padding};
}

static tfm_generate_options random_options(Model *m, int64_t *tokens) {
  tfm_generate_options options;
  tfm_generate_defaults(&options);
  options.max_new_tokens = 12;
  for (int i = 0; i < 40; i++) tokens[i] = (int64_t)next_random(m) % m->shape.vocab;
  options.eos_token_ids = (tfm_token_list){tokens, next_random(m) % 4};
  options.suppress_tokens = (tfm_token_list){tokens + 4, next_random(m) % 3 ? next_random(m) % 36 : 0};
  static tfm_token_bias biases[8];
  for (int i = 0; i < 8; i++) biases[i] = (tfm_token_bias){tokens[32 + i], (double)(next_random(m) % 33) * 0.31 - 5};
  if (next_random(m) % 3 == 0) options.logit_bias = (tfm_bias_list){biases, next_random(m) % 9};
  if (next_random(m) % 3 == 0) options.min_new_tokens = next_random(m) % 12;
  if (next_random(m) % 5 == 0) options.min_length = next_random(m) % 8;
  if (next_random(m) % 3 == 0) options.repetition_penalty = 1.3;
  if (next_random(m) % 5 == 0) options.repetition_penalty = 0.7;
  if (next_random(m) % 5 == 0) options.presence_penalty = (double)(next_random(m) % 5) / 2 - 1;
  if (next_random(m) % 5 == 0) options.frequency_penalty = (double)(next_random(m) % 5) / 4 - 0.5;
  if (next_random(m) % 3 == 0) options.no_repeat_ngram_size = 1 + next_random(m) % 3;
  if (next_random(m) % 5 == 0) options.forced_bos_token_id = tokens[0];
  if (next_random(m) % 4 == 0) options.forced_eos_token_id = tokens[next_random(m) % 8];
  return options;
}

static void add_beams(Model *m, tfm_generate_options *options) {
  options->num_beams = 2 + next_random(m) % (MOST_BEAMS - 1);
  options->num_return_sequences = 1 + next_random(m) % options->num_beams;
  options->early_stopping = (tfm_early_stopping)(next_random(m) % 3);
  options->length_penalty = (double)(next_random(m) % 5) / 2 - 0.5;
  options->return_token_scores = next_random(m) % 2;
}

/* The two ways take log probabilities from the same sums: a last bit decides between beams that are nearly equal. */
static void compare_scores(const float *got, const float *expected, int64_t n) {
  for (int64_t i = 0; i < n && expected; i++)
    cr_assert(memcmp(&got[i], &expected[i], sizeof *got) == 0, "%.9g, not %.9g", got[i], expected[i]);
}

static void generate_both(Model *m, tfm_decoder *decoder, bool has_beams, int *written) {
  int32_t tokens[N_PROMPTS * WIDTH];
  int64_t lengths[N_PROMPTS], padding[N_PROMPTS], of_options[40];
  const tfm_prompts prompts = random_prompts(m, tokens, lengths, padding);
  tfm_generate_options options = random_options(m, of_options);
  if (has_beams) add_beams(m, &options);
  Watched watched = {.inner = tfm_decoder_model(decoder)};
  tfm_generate_model model = watched.inner;
  model.user = &watched;
  model.logits = watched_scores;
  model.best = NULL;
  model.share = NULL;
  tfm_generated expected, got;
  tfm_error expected_error = {0}, error = {0};
  const tfm_status status = tfm_generate(&model, &prompts, &options, &expected, &expected_error);
  cr_assert(watched.matrices > 0 && watched.bests == 0);
  model.best = watched_best;
  watched.matrices = 0;
  cr_assert_eq(tfm_generate(&model, &prompts, &options, &got, &error), status, "%s", error.message);
  cr_assert(watched.matrices == 0 && watched.bests > 0, "a matrix of scores was asked for");
  cr_assert_str_eq(error.message, expected_error.message);
  if (status != TFM_OK) return;
  ++*written;
  cr_assert(got.n == expected.n && got.width == expected.width);
  cr_assert_arr_eq(got.sequences, expected.sequences, (size_t)(got.n * got.width) * sizeof *got.sequences);
  cr_assert(!got.scores == !has_beams && !got.token_scores == !options.return_token_scores);
  compare_scores(got.scores, expected.scores, got.n);
  compare_scores(got.token_scores, expected.token_scores, got.n * got.width);
  tfm_generated_free(&expected);
  tfm_generated_free(&got);
}

Test(decoding_best, generation_writes_the_same, .timeout = 300) {
  const Shape shapes[] = {{"", 30, 8}, {"", 200, 32}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    Model m;
    int written = 0, with_beams = 0;
    open_model(&m, &shapes[i], host_target());
    tfm_decoder *decoder = decoder_for(&m, 2, N_PROMPTS * MOST_BEAMS);
    for (int round = 0; round < 400; round++) generate_both(&m, decoder, false, &written);
    for (int round = 0; round < 800; round++) generate_both(&m, decoder, true, &with_beams);
    cr_expect(written > 100 && written < 390, "%d", written);
    cr_expect(with_beams > 60 && with_beams < 790, "%d", with_beams);
    tfm_decoder_destroy(decoder);
    close_model(&m);
  }
}

enum { TOO_MANY_BEAMS = 17 };

/* Who looks at scores gets them. */
static void no_change(void *user, int64_t item, const int32_t *tokens, int64_t length, float *scores) {
  (void)user, (void)item, (void)tokens, (void)length, (void)scores;
}

Test(decoding_best, is_not_asked_for_by_who_needs_scores) {
  Model m;
  open_model(&m, &fused_shapes[0], host_target());
  tfm_decoder *decoder = decoder_for(&m, 1, 2 * TOO_MANY_BEAMS);
  Watched watched = {.inner = tfm_decoder_model(decoder)};
  const tfm_generate_model model = {.vocab = 30, .user = &watched, .logits = watched_scores, .gives_logsumexp = 1,
                                    .best = watched_best, .most_best = watched.inner.most_best};
  const tfm_prompts prompts = {.n = 2, .width = 1, .tokens = (const int32_t[]){3, 7}};
  const int64_t special[] = {26, 27, 28, 29};
  for (int need = 0; need < 5; need++) {
    tfm_generate_options options;
    tfm_generated generated;
    tfm_error error;
    tfm_generate_defaults(&options);
    options.suppress_tokens = (tfm_token_list){special, N_SPECIAL - 1};
    if (need == 1) options.on_scores = no_change;
    if (need == 2) options.return_token_scores = 1;
    if (need == 3) options.do_sample = 1;
    if (need == 4) options.num_beams = TOO_MANY_BEAMS; /* with twice as many candidates */
    watched.matrices = watched.bests = 0;
    ok(tfm_generate(&model, &prompts, &options, &generated, &error), &error);
    cr_expect_eq(watched.matrices > 0, need > 0, "%d", need);
    cr_expect_eq(watched.bests > 0, need == 0, "%d", need);
    tfm_generated_free(&generated);
  }
  tfm_decoder_destroy(decoder);
  close_model(&m);
}
