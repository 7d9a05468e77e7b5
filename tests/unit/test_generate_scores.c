/* The decoding loop's way with scores: many tokens in blocks, equal scores far apart, sums of the model, the caller's
 * function on scores, sampling from short lists, no memory taken while tokens are written (I22, I24, I26), the same
 * bits in all of the caller's rounding modes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "tfm/generate.h"

enum { VOCAB = 700, MOST_ROWS = 12 };

static int64_t allocations;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) {
  allocations++;
  return __real_calloc(count, size);
}

typedef struct Model {
  int64_t calls, allocations_at_first, sums_given;
  bool is_flat;     /* all scores are equal */
  int64_t bad_call; /* the call that gives a sum that is none; 0: none does */
} Model;

/* Depends on the last token and the length; a few large ones, in distant blocks. */
static float score_of(const Model *model, const int32_t *tokens, int64_t length, int64_t token) {
  if (model->is_flat) return 1.5f;
  uint32_t x = (uint32_t)tokens[length - 1] * 2654435761u + (uint32_t)length * 40503u + (uint32_t)token * 2246822519u;
  x = (x ^ x >> 15) * 2654435761u;
  return (float)(x >> 8) * 0x1p-21f - (x % 97 ? 4 : 0);
}

static tfm_status scores_of(void *user, const tfm_step_rows *rows, float *scores, float *logsumexp, tfm_error *error) {
  Model *model = user;
  (void)error;
  if (!model->calls++) model->allocations_at_first = allocations;
  else cr_assert_eq(allocations, model->allocations_at_first, "memory was taken before call %lld", (long long)model->calls);
  for (int64_t i = 0; i < rows->n; i++) {
    double sum = 0;
    for (int64_t t = 0; t < VOCAB; t++) {
      float score = scores[i * VOCAB + t] = score_of(model, rows->tokens[i], rows->lengths[i], t);
      sum += exp((double)score);
    }
    if (logsumexp) logsumexp[i] = (float)(model->calls == model->bad_call ? NAN : log(sum));
  }
  model->sums_given += logsumexp != NULL;
  return TFM_OK;
}

static tfm_generate_options options_of(int64_t beams) {
  static const int64_t end[] = {699};
  tfm_generate_options options;
  tfm_generate_defaults(&options);
  options.num_beams = options.num_return_sequences = beams;
  options.max_new_tokens = 30;
  options.eos_token_ids = (tfm_token_list){end, 1};
  return options;
}

static tfm_status run(Model *model, bool gives_sums, const tfm_generate_options *options, tfm_generated *generated,
                      tfm_error *error) {
  const tfm_generate_model asked = {.vocab = VOCAB, .user = model, .logits = scores_of, .gives_logsumexp = gives_sums};
  const tfm_prompts prompts = {.n = 2, .width = 1, .tokens = (const int32_t[]){3, 500}};
  return tfm_generate(&asked, &prompts, options, generated, error);
}

static tfm_generated written_by(Model *model, bool gives_sums, const tfm_generate_options *options) {
  tfm_generated generated;
  tfm_error error;
  cr_assert_eq(run(model, gives_sums, options, &generated, &error), TFM_OK, "%s", error.message);
  return generated;
}

static void expect_same(const tfm_generated *a, const tfm_generated *b) {
  cr_assert(a->n == b->n && a->width == b->width);
  cr_assert_arr_eq(a->sequences, b->sequences, (size_t)(a->n * a->width) * sizeof *a->sequences);
  for (int64_t i = 0; a->scores && i < a->n; i++) cr_assert_float_eq(a->scores[i], b->scores[i], 1e-5);
}

Test(generate_scores, greedy_finds_the_largest) {
  Model model = {0};
  const tfm_generate_options options = options_of(1);
  tfm_generated generated = written_by(&model, true, &options);
  for (int64_t i = 0; i < generated.n; i++) {
    const int32_t *row = generated.sequences + i * generated.width;
    for (int64_t length = 1; length < generated.lengths[i]; length++)
      for (int64_t t = 0; t < VOCAB; t++)
        cr_assert_leq(score_of(&model, row, length, t), score_of(&model, row, length, row[length]));
  }
  cr_assert_eq(model.sums_given, 0, "sums that no one needs");
  tfm_generated_free(&generated);
}

Test(generate_scores, sums_of_the_model) {
  tfm_generate_options options = options_of(4);
  options.repetition_penalty = 1.2;
  Model with = {0}, without = {0};
  tfm_generated a = written_by(&with, true, &options), b = written_by(&without, false, &options);
  expect_same(&a, &b);
  cr_assert_eq(with.sums_given, with.calls);
  cr_assert_eq(without.sums_given, 0);
  tfm_generated_free(&a);
  tfm_generated_free(&b);
}

Test(generate_scores, I24_a_sum_that_is_none) {
  const tfm_generate_options options = options_of(2);
  Model model = {.bad_call = 3};
  tfm_generated generated;
  tfm_error error;
  cr_assert_eq(run(&model, true, &options, &generated, &error), TFM_E_INPUT);
  cr_assert(strstr(error.message, "row 0: the model's logsumexp for token 3 is not finite"), "%s", error.message);
}

/* I22: in the first step and later; what is forbidden leaves its place to the next. */
Test(generate_scores, I22_equal_scores_in_all_blocks) {
  Model model = {.is_flat = true};
  tfm_generate_options options = options_of(3);
  options.eos_token_ids.n = 0;
  options.max_new_tokens = 2;
  tfm_generated generated = written_by(&model, false, &options);
  cr_assert_arr_eq(generated.sequences, ((int32_t[]){3, 0, 0, 3, 0, 1, 3, 0, 2, 500, 0, 0, 500, 0, 1, 500, 0, 2}),
                   18 * sizeof(int32_t));
  tfm_generated_free(&generated);
  options.suppress_tokens = (tfm_token_list){(const int64_t[]){0, 2}, 2};
  options.num_beams = options.num_return_sequences = 1;
  Model again = {.is_flat = true};
  generated = written_by(&again, false, &options);
  cr_assert_eq(generated.sequences[2], 1);
  tfm_generated_free(&generated);
}

/* Fewer candidates than beams: those that are impossible follow, the lower beam and token first. */
Test(generate_scores, forced_tokens) {
  Model model = {0};
  tfm_generate_options options = options_of(3);
  options.forced_bos_token_id = 650;
  options.forced_eos_token_id = 699;
  options.max_new_tokens = 4;
  tfm_generated generated = written_by(&model, false, &options);
  for (int64_t i = 0; i < generated.n; i += 3) {
    const int32_t *best = generated.sequences + i * generated.width;
    cr_assert_eq(best[1], 650);
    cr_assert_eq(best[generated.lengths[i] - 1], 699);
    cr_assert(isfinite(generated.scores[i]));
  }
  tfm_generated_free(&generated);
}

// ---- scores of tokens ----

static double logsumexp_of(const Model *model, const int32_t *row, int64_t length) {
  double sum = 0;
  for (int64_t t = 0; t < VOCAB; t++) sum += exp((double)score_of(model, row, length, t));
  return log(sum);
}

/* Of beams: what was added for each token; its sum is that of the row. */
Test(generate_scores, scores_of_tokens_of_beams) {
  Model model = {0};
  tfm_generate_options options = options_of(4);
  options.return_token_scores = 1;
  options.length_penalty = 0;
  tfm_generated generated = written_by(&model, true, &options);
  for (int64_t i = 0; i < generated.n; i++) {
    const int32_t *row = generated.sequences + i * generated.width;
    const float *scores = generated.token_scores + i * generated.width;
    double sum = 0;
    for (int64_t length = 1; length < generated.lengths[i]; length++) {
      sum += (double)scores[length];
      cr_assert_float_eq(scores[length], (double)score_of(&model, row, length, row[length]) - logsumexp_of(&model, row, length),
                         1e-4);
    }
    cr_assert_eq(scores[0], 0);
    cr_assert_float_eq(sum, generated.scores[i], 1e-4);
    for (int64_t t = generated.lengths[i]; t < generated.width; t++) cr_assert_eq(scores[t], 0);
  }
  tfm_generated_free(&generated);
}

/* Among what is allowed: all tokens but one, and of these the k largest when drawing. */
Test(generate_scores, scores_of_tokens_of_single_rows) {
  for (int is_drawn = 0; is_drawn < 2; is_drawn++) {
    Model model = {0};
    tfm_generate_options options = options_of(1);
    options.return_token_scores = 1;
    options.do_sample = is_drawn;
    options.temperature = 0.5;
    options.top_k = is_drawn ? 1 : 0;
    options.suppress_tokens = (tfm_token_list){(const int64_t[]){11}, 1};
    tfm_generated generated = written_by(&model, true, &options);
    for (int64_t length = 1; length < generated.lengths[0]; length++) {
      const int32_t *row = generated.sequences;
      double rest = exp(logsumexp_of(&model, row, length)) - exp((double)score_of(&model, row, length, 11));
      double wanted = is_drawn ? 0 : (double)score_of(&model, row, length, row[length]) - log(rest);
      cr_assert_float_eq(generated.token_scores[length], wanted, 1e-4);
    }
    tfm_generated_free(&generated);
  }
}

// ---- the caller's function ----

typedef struct Caller {
  int64_t calls, forbidden;
  bool is_beam;
  float bad; /* written to a score; 0: nothing is */
} Caller;

static void on_scores(void *user, int64_t item, const int32_t *tokens, int64_t length, float *scores) {
  Caller *caller = user;
  double sum = 0;
  for (int64_t t = 0; t < VOCAB; t++) sum += exp((double)scores[t]);
  if (caller->is_beam) cr_assert_float_eq(sum, 1, 1e-4, "no log probabilities");
  cr_assert(item == 0 || item == 1);
  cr_assert_eq(tokens[0], item ? 500 : 3);
  cr_assert_gt(length, 0);
  caller->calls++;
  if (caller->forbidden) scores[caller->forbidden] = -INFINITY;
  if (caller->bad != 0) scores[7] = caller->bad;
}

Test(generate_scores, the_caller_changes_scores) {
  for (int64_t beams = 1; beams <= 4; beams += 3) {
    Model model = {0}, again = {0};
    Caller caller = {.is_beam = beams > 1};
    tfm_generate_options options = options_of(beams);
    tfm_generated plain = written_by(&model, false, &options);
    caller.forbidden = plain.sequences[1];
    options.on_scores = on_scores;
    options.on_scores_user = &caller;
    tfm_generated changed = written_by(&again, true, &options);
    cr_assert_gt(caller.calls, 2);
    options.on_scores = NULL;
    options.suppress_tokens = (tfm_token_list){&caller.forbidden, 1};
    Model third = {0};
    tfm_generated wanted = written_by(&third, false, &options);
    expect_same(&changed, &wanted);
    tfm_generated_free(&plain);
    tfm_generated_free(&changed);
    tfm_generated_free(&wanted);
  }
}

Test(generate_scores, I24_the_caller_makes_scores_that_are_none) {
  const float bad[] = {NAN, INFINITY};
  for (int i = 0; i < 4; i++) {
    Model model = {0};
    Caller caller = {.bad = bad[i / 2]};
    tfm_generate_options options = options_of(1 + i % 2);
    options.on_scores = on_scores;
    options.on_scores_user = &caller;
    tfm_generated generated;
    tfm_error error;
    cr_assert_eq(run(&model, false, &options, &generated, &error), TFM_E_INPUT);
    cr_assert(strstr(error.message, "not finite after on_scores"), "%s", error.message);
  }
}

// ---- sampling ----

static void probabilities_of(const tfm_generate_options *options, float *probabilities) {
  Model model = {0};
  const tfm_generate_model asked = {.vocab = VOCAB, .user = &model, .logits = scores_of};
  const tfm_prompts prompts = {.n = 1, .width = 1, .tokens = (const int32_t[]){3}};
  cr_assert_eq(tfm_generate_first_step(&asked, &prompts, options, probabilities, NULL), TFM_OK);
}

/* By sorting: what short lists must give. */
static int descending(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x < y) - (x > y);
}

Test(generate_scores, short_lists_hold_what_sorting_finds) {
  static float all[VOCAB], sorted[VOCAB], found[VOCAB];
  for (int i = 0; i < 8; i++) {
    tfm_generate_options options = options_of(1);
    options.do_sample = 1;
    options.temperature = i % 2 ? 0.7 : 1;
    probabilities_of(&options, all);
    memcpy(sorted, all, sizeof sorted);
    qsort(sorted, VOCAB, sizeof *sorted, descending);
    const int64_t k = i / 4 ? 40 : VOCAB;
    double mass = 0, sum = 0;
    for (int64_t t = 0; t < k; t++) mass += (double)sorted[t];
    options.top_k = k;
    options.top_p = i / 2 % 2 ? 0.6 : 1;
    int64_t n = 0;
    while (n < k && sum < options.top_p * mass) sum += (double)sorted[n++];
    probabilities_of(&options, found);
    for (int64_t t = 0; t < VOCAB; t++) {
      const double wanted = all[t] >= sorted[n - 1] ? (double)all[t] / sum : 0;
      cr_assert_float_eq(found[t], wanted, 1e-5, "case %d: token %lld has %g, not %g", i, (long long)t,
                         (double)found[t], wanted);
    }
  }
}

/* A temperature that makes all scores equal: then all are the k-th. */
Test(generate_scores, I20_a_high_temperature) {
  static float found[VOCAB];
  tfm_generate_options options = options_of(1);
  options.do_sample = 1;
  options.temperature = 1e300;
  options.top_k = 2;
  probabilities_of(&options, found);
  for (int64_t t = 0; t < VOCAB; t++) cr_assert_float_eq(found[t], 1.0 / VOCAB, 1e-6);
}

Test(generate_scores, draws_are_of_the_list) {
  Model model = {0};
  tfm_generate_options options = options_of(1);
  options.do_sample = 1;
  options.top_k = 3;
  options.max_new_tokens = 200;
  options.eos_token_ids.n = 0;
  tfm_generated generated = written_by(&model, false, &options);
  for (int64_t length = 1; length < 201; length++) {
    int64_t larger = 0;
    for (int64_t t = 0; t < VOCAB; t++)
      larger += score_of(&model, generated.sequences, length, t) >
                score_of(&model, generated.sequences, length, generated.sequences[length]);
    cr_assert_lt(larger, 3);
  }
  tfm_generated_free(&generated);
}

// ---- the caller's rounding mode ----

#if defined(__x86_64__)
enum { TO_NEAREST = 0x1f80, FLAGS = 0x3f }; /* of MXCSR; the flags say what happened so far */

typedef struct Mode {
  Model model;
  unsigned wanted;
  int64_t wrong, calls[4]; /* functions that were called in another mode; calls of each */
} Mode;

static void note(Mode *mode, int function) {
  mode->calls[function]++;
  mode->wrong += (_mm_getcsr() & ~FLAGS) != mode->wanted;
}

/* Nothing in score_of is rounded. */
static tfm_status scores_in_mode(void *user, const tfm_step_rows *rows, float *scores, float *logsumexp,
                                 tfm_error *error) {
  Mode *mode = user;
  note(mode, 0);
  return scores_of(&mode->model, rows, scores, logsumexp, error);
}

/* The work of three threads, in the mode that a thread of the caller's would have. */
static void share_in_mode(void *user, void (*work)(void *context, int64_t part, int64_t parts), void *context) {
  note(user, 1);
  for (int64_t part = 0; part < 3; part++) work(context, part, 3);
  note(user, 1);
}

static int on_token_in_mode(void *user, int64_t item, int32_t token) {
  (void)item, (void)token;
  note(user, 2);
  return 0;
}

static void on_scores_in_mode(void *user, int64_t item, const int32_t *tokens, int64_t length, float *scores) {
  (void)item, (void)tokens, (void)length, (void)scores;
  note(user, 3);
}

static tfm_generate_options options_in_mode(int kind, Mode *mode) {
  tfm_generate_options options = options_of(kind == 1 ? 4 : 1);
  options.do_sample = kind == 2;
  options.temperature = 0.7;
  options.top_p = 0.9;
  options.length_penalty = 0.3;
  options.repetition_penalty = 1.3;
  options.return_token_scores = 1;
  options.on_token = on_token_in_mode;
  options.on_scores = on_scores_in_mode;
  options.on_token_user = options.on_scores_user = mode;
  return options;
}

static tfm_generated written_in_mode(int kind, Mode *mode) {
  const tfm_generate_options options = options_in_mode(kind, mode);
  const tfm_generate_model asked = {.vocab = VOCAB, .user = mode, .logits = scores_in_mode, .share = share_in_mode};
  enum { PROMPTS = 200 }; /* so many that the work is worth sharing */
  static int32_t tokens[PROMPTS];
  for (int i = 0; i < PROMPTS; i++) tokens[i] = i * 3;
  const tfm_prompts prompts = {.n = PROMPTS, .width = 1, .tokens = tokens};
  tfm_generated generated = {0};
  _mm_setcsr(mode->wanted);
  tfm_status status = tfm_generate(&asked, &prompts, &options, &generated, NULL);
  unsigned after = _mm_getcsr() & ~FLAGS;
  _mm_setcsr(TO_NEAREST);
  cr_assert_eq(status, TFM_OK);
  cr_assert_eq(after, mode->wanted, "MXCSR was %x and is %x", mode->wanted, after);
  return generated;
}

static void expect_same_bits(const tfm_generated *a, const tfm_generated *b, unsigned mode) {
  const size_t elements = (size_t)(a->n * a->width);
  cr_assert(a->n == b->n && a->width == b->width, "mode %x", mode);
  cr_assert_arr_eq(a->sequences, b->sequences, elements * sizeof *a->sequences, "tokens in mode %x", mode);
  cr_assert_arr_eq(a->token_scores, b->token_scores, elements * sizeof *a->token_scores, "token scores, mode %x", mode);
  cr_assert_eq(!a->scores, !b->scores);
  if (a->scores) cr_assert_arr_eq(a->scores, b->scores, (size_t)a->n * sizeof *a->scores, "scores in mode %x", mode);
}

Test(generate_scores, the_same_bits_in_all_rounding_modes) {
  const unsigned modes[] = {0x3f80, 0x5f80, 0x7f80, 0xffc0, 0x1f00}; /* down, up, to zero; no denormals; a trap */
  for (int kind = 0; kind < 3; kind++) {
    Mode nearest = {.wanted = TO_NEAREST};
    tfm_generated wanted = written_in_mode(kind, &nearest);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
      Mode mode = {.wanted = modes[i]};
      tfm_generated got = written_in_mode(kind, &mode);
      expect_same_bits(&wanted, &got, modes[i]);
      cr_assert_eq(mode.wrong, 0, "%lld functions were called in another mode than %x", (long long)mode.wrong,
                   modes[i]);
      for (int function = 0; function < 4; function++) cr_assert_gt(mode.calls[function], 0, "function %d", function);
      tfm_generated_free(&got);
    }
    tfm_generated_free(&wanted);
  }
}

/* A function that sets a mode means it for its caller. */
static int set_mode(void *user, int64_t item, int32_t token) {
  (void)user, (void)item, (void)token;
  _mm_setcsr(0x5f80);
  return 0;
}

Test(generate_scores, a_mode_that_the_callers_function_sets_stays_the_callers) {
  Mode nearest = {.wanted = TO_NEAREST}, upward = {.wanted = TO_NEAREST};
  const tfm_prompts prompts = {.n = 2, .width = 1, .tokens = (const int32_t[]){3, 500}};
  tfm_generated wanted, got;
  tfm_generate_options options = options_in_mode(1, &nearest);
  tfm_generate_model asked = {.vocab = VOCAB, .user = &nearest, .logits = scores_in_mode};
  cr_assert_eq(tfm_generate(&asked, &prompts, &options, &wanted, NULL), TFM_OK);
  options = options_in_mode(1, &upward);
  options.on_token = set_mode;
  asked.user = &upward;
  tfm_status status = tfm_generate(&asked, &prompts, &options, &got, NULL);
  unsigned after = _mm_getcsr() & ~FLAGS;
  _mm_setcsr(TO_NEAREST);
  cr_assert(status == TFM_OK && after == 0x5f80, "status %d, mode %x", (int)status, after);
  expect_same_bits(&wanted, &got, 0x5f80);
  tfm_generated_free(&wanted);
  tfm_generated_free(&got);
}
#endif
