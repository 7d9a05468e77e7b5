/* tfm_generate writes the same rows with any number of guesses: greedily and by draws, with all options, until a caller's
 * stop, to the last row that a model allows. It needs fewer steps where rows repeat themselves. */
#include <math.h>
#include <stdlib.h>

#include "codegen/codegen.h"
#include "compiled_model.h"
#include "elaborate_text.h"
#include "tfm/decode.h"

enum { VOCAB = 12, D = 8, POSITIONS = 40, PROMPTS = 4, WIDTH = 9 };

/* A model whose rows of vectors x see one another by `seen`. Longer rows than there are positions are refused. */
#define MODEL_THAT_SEES(seen)                                   \
  "model M(vocab = 12, d = 8, longest = 40) {\n"                \
  "  embed = Embedding(vocab, d)\n"                             \
  "  mix = Embedding(vocab, d)\n"                               \
  "  place = Embedding(longest, d)\n"                           \
  "  head = Linear(d, vocab)\n"                                 \
  "  forward(ids: i32[batch, time]) {\n"                        \
  "    x = mix(ids) + place(positions(ids, 1)) * 0.2\n"         \
  "    seen = " seen "\n"                                       \
  "    logits = head(x + seen + embed(ids)) * 2\n"              \
  "    return logits\n"                                         \
  "  }\n"                                                       \
  "  generate ids from logits { bos = 1  eos = 2  pad = 0 }\n"  \
  "}\n"

static const char cached[] = MODEL_THAT_SEES("softmax(where(causal_mask(x, x), -inf, x @ transpose(x, -1, -2))) @ x");
/* Rows of this one have a state, which is not cut but returns to before its step. */
static const char with_state[] = MODEL_THAT_SEES("shift(x, 1, 1) + shift(x, 3, 1)");

typedef struct Model {
  Arena *arena;
  Diag diag;
  Compiled made;
  tfm_decoder *decoder;
} Model;

static uint32_t seed;
static uint32_t next_random(void) { return (seed = seed * 1664525 + 1013904223) >> 8; }
static uint32_t draw(uint32_t n) { return next_random() % n; }

/* One token makes the logits behind it no numbers, and no others: a wrong guess of it must not end a row. */
static const Tensor *weight_named(void *context, const char *name) {
  const bool is_bias = strstr(name, "bias"), is_place = !strncmp(name, "place", 5);
  const int64_t rows = is_place ? POSITIONS : VOCAB;
  Tensor *out = tensor_new(context, DTYPE_F32, is_bias ? 1 : 2, (const int64_t[]){rows, D});
  float *weights = out->data;
  for (int64_t i = 0; i < rows * (is_bias ? 1 : D); i++) weights[i] = (float)draw(2001) / 500 - 2;
  if (!strncmp(name, "embed", 5)) weights[(VOCAB - 1) * D] = NAN;
  return out;
}

static void open_model(Model *m, const char *text, uint32_t number) {
  tfm_error error;
  *m = (Model){.arena = arena_create()};
  m->diag = diag_new(m->arena);
  seed = number;
  Graph *graph = elaborate_text(m->arena, &m->diag, text, &(ElaborateOptions){0});
  cr_assert(graph && compiled_decoding(&m->made, m->arena, &m->diag, graph, host_target(), weight_named, m->arena), "%s",
            first_message(&m->diag));
  const tfm_context_options options = {.struct_size = sizeof options, .threads = 2};
  cr_assert_eq(tfm_decoder_create(&m->made.decoding, m->made.packed, m->made.packed, &options, &m->decoder, &error), 0);
  cr_assert_eq(tfm_decoder_begin(m->decoder, NULL, PROMPTS, 4 * POSITIONS, &error), TFM_OK, "%s", error.message);
}

static void close_model(Model *m) {
  tfm_decoder_destroy(m->decoder);
  compiled_free(&m->made);
  arena_destroy(m->arena);
}

// ---- what is generated ----

typedef struct Watched {
  tfm_generate_model inner;
  int64_t steps, guesses, spoilt, told, stop_after; /* spoilt: guesses of the token that spoils its logits; stop_after:
                                                       tokens; 0: never */
} Watched;

static tfm_status watched_logits(void *user, const tfm_step_rows *rows, float *logits, float *sums, tfm_error *error) {
  Watched *w = user;
  w->steps++;
  return w->inner.logits(w->inner.user, rows, logits, sums, error);
}

static tfm_status watched_guessed(void *user, const tfm_step_rows *rows, const int64_t *guesses, float *logits,
                                  tfm_error *error) {
  Watched *w = user;
  w->steps++;
  for (int64_t i = 0; i < rows->n; i++) {
    w->guesses += guesses[i];
    for (int64_t k = 1; k <= guesses[i]; k++) w->spoilt += rows->tokens[i][rows->lengths[i] - k] == VOCAB - 1;
  }
  return w->inner.guessed(w->inner.user, rows, guesses, logits, error);
}

static int count_token(void *user, int64_t item, int32_t token) {
  Watched *w = user;
  (void)item, (void)token;
  return ++w->told == w->stop_after;
}

static void prefer_some(void *user, int64_t item, const int32_t *tokens, int64_t length, float *scores) {
  (void)user;
  scores[(tokens[length - 1] + item + length) % (VOCAB - 1)] += 1.5f;
}

typedef struct Prompts {
  tfm_prompts given;
  int32_t tokens[PROMPTS * WIDTH];
  int64_t lengths[PROMPTS];
} Prompts;

static void random_prompts(Prompts *p, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    p->lengths[i] = 1 + draw(WIDTH);
    int32_t *row = p->tokens + i * WIDTH;
    for (int64_t t = 0; t < WIDTH; t++) row[t] = t > 2 && draw(2) ? row[t - 3] : (int32_t)draw(VOCAB - 1);
    if (!draw(2)) row[draw(WIDTH)] = VOCAB - 1; /* at its end: refused at once; before: guessed */
  }
  p->given = (tfm_prompts){n, WIDTH, p->tokens, p->lengths, NULL};
}

static tfm_generate_options random_options(int64_t *tokens) {
  tfm_generate_options o;
  tfm_generate_defaults(&o);
  o.max_new_tokens = 1 + draw(4) * 12 + draw(4);
  for (int i = 0; i < 4; i++) tokens[i] = (int64_t)draw(VOCAB);
  tokens[4] = VOCAB - 1;
  if (draw(2)) o.eos_token_ids = (tfm_token_list){tokens, draw(2)};
  o.suppress_tokens = (tfm_token_list){tokens + 4, draw(4) != 0};
  o.do_sample = draw(2);
  o.seed = next_random();
  o.temperature = 0.3 + draw(4) * 0.3;
  if (!draw(3)) o.top_k = 1 + draw(4);
  if (!draw(3)) o.top_p = 0.8;
  if (!draw(4)) o.repetition_penalty = 1.2;
  if (!draw(4)) o.frequency_penalty = 0.2;
  if (!draw(4)) o.no_repeat_ngram_size = 3;
  if (!draw(4)) o.min_new_tokens = draw((uint32_t)o.max_new_tokens + 1);
  if (!draw(4)) o.forced_eos_token_id = tokens[2];
  o.return_token_scores = draw(2);
  if (!draw(4)) o.on_scores = prefer_some;
  return o;
}

static tfm_status generate(const Model *m, const Prompts *prompts, tfm_generate_options options, int64_t guesses,
                           Watched *watched, tfm_generated *out, tfm_error *error) {
  options.guesses = guesses;
  options.on_token = count_token;
  options.on_token_user = watched;
  watched->inner = tfm_decoder_model(m->decoder);
  const tfm_generate_model model = {.vocab = VOCAB, .user = watched, .logits = watched_logits, .guessed = watched_guessed};
  return tfm_generate(&model, &prompts->given, &options, out, error);
}

static void compare(const tfm_generated *got, const tfm_generated *wanted) {
  const size_t n = (size_t)(wanted->n * wanted->width);
  cr_assert(got->n == wanted->n && got->width == wanted->width && got->n_tokens == wanted->n_tokens);
  cr_assert_arr_eq(got->lengths, wanted->lengths, (size_t)wanted->n * sizeof *wanted->lengths);
  cr_assert_arr_eq(got->sequences, wanted->sequences, n * sizeof *wanted->sequences);
  if (wanted->token_scores) cr_assert_arr_eq(got->token_scores, wanted->token_scores, n * sizeof *wanted->token_scores);
}

typedef struct Sums {
  int64_t written, refused, steps, plain_steps, guesses, spoilt;
} Sums;

static void compare_round(const Model *m, Sums *sums) {
  Prompts prompts;
  int64_t tokens[5];
  tfm_generated wanted, got;
  tfm_error error = {0}, wanted_error = {0};
  const bool is_alone = draw(2);
  random_prompts(&prompts, is_alone ? 1 : PROMPTS);
  const tfm_generate_options options = random_options(tokens);
  Watched plain = {0}, guessing = {0};
  if (is_alone && !draw(3)) plain.stop_after = guessing.stop_after = 1 + draw(9);
  const int64_t guesses = draw(4) ? 1 + (int64_t)draw(15) : -1;
  const tfm_status status = generate(m, &prompts, options, 0, &plain, &wanted, &wanted_error);
  cr_assert_eq(plain.guesses, 0);
  cr_assert_eq(generate(m, &prompts, options, guesses, &guessing, &got, &error), status, "%s; %s", error.message,
               wanted_error.message);
  if (status != TFM_OK) {
    if (is_alone) cr_assert_str_eq(error.message, wanted_error.message);
    sums->refused++;
    return;
  }
  compare(&got, &wanted);
  cr_assert_eq(guessing.told, plain.told);
  sums->written++;
  sums->steps += guessing.steps, sums->plain_steps += plain.steps, sums->guesses += guessing.guesses,
    sums->spoilt += guessing.spoilt;
  tfm_generated_free(&got), tfm_generated_free(&wanted);
}

Test(generate_guesses, rows_are_the_same, .timeout = 300) {
  Sums sums = {0};
  for (uint32_t number = 0; number < 6; number++) {
    Model m;
    open_model(&m, number % 2 ? with_state : cached, number * 977 + 5);
    for (int round = 0; round < 100; round++) compare_round(&m, &sums);
    close_model(&m);
  }
  cr_expect(sums.written > 150 && sums.refused > 20, "%lld, %lld", (long long)sums.written, (long long)sums.refused);
  cr_expect(sums.spoilt > 10, "%lld", (long long)sums.spoilt);
  cr_expect(sums.guesses > 1000 && sums.steps < sums.plain_steps, "%lld guesses, %lld steps, not %lld",
            (long long)sums.guesses, (long long)sums.steps, (long long)sums.plain_steps);
}

/* Without the function there is nothing to guess with; beams are many rows that are guesses of each other. */
Test(generate_guesses, need_a_model_that_can_and_no_beams) {
  Model m;
  Prompts prompts;
  tfm_generate_options options;
  tfm_generated out;
  tfm_error error;
  open_model(&m, cached, 3);
  random_prompts(&prompts, 2);
  tfm_generate_defaults(&options);
  options.guesses = 4;
  tfm_generate_model model = tfm_decoder_model(m.decoder);
  model.guessed = NULL;
  cr_expect_eq(tfm_generate(&model, &prompts.given, &options, &out, &error), TFM_OK, "%s", error.message);
  tfm_generated_free(&out);
  options.num_beams = 2;
  cr_expect_eq(tfm_generate(&model, &prompts.given, &options, &out, &error), TFM_E_INPUT);
  cr_expect_str_eq(error.message, "guesses is 4 and num_beams 2: tokens of beams are not guessed");
  options.num_beams = 1;
  for (options.guesses = -2; options.guesses <= 16; options.guesses += 18) {
    cr_expect_eq(tfm_generate(&model, &prompts.given, &options, &out, &error), TFM_E_INPUT);
    cr_expect(strstr(error.message, options.guesses < 0 ? "guesses is -2" : "guesses is 16"), "%s", error.message);
  }
  close_model(&m);
}
