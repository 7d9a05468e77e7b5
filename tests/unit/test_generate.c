/* The decoding loop on score functions made by hand: ties, ends, limits, every option out of its range (I19 to I26),
 * the generator of random numbers, the order of rows in calls. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tfm/generate.h"

enum { VOCAB = 6, END = 1, MOST_ROWS = 16 };

typedef struct Script { /* a model: the scores that follow each token, whatever came before */
  float next[VOCAB][VOCAB];
  int64_t calls, rows; /* how often it was asked, for how many rows in all */
  int64_t last_rows, parents[MOST_ROWS];
  tfm_status status; /* what it answers */
} Script;

static tfm_status scores_of(void *user, const tfm_step_rows *rows, float *scores, float *logsumexp,
                            tfm_error *error) {
  (void)logsumexp;
  Script *script = user;
  cr_assert_leq(rows->n, MOST_ROWS);
  script->calls++;
  script->rows += script->last_rows = rows->n;
  for (int64_t i = 0; i < rows->n; i++) {
    cr_assert_gt(rows->lengths[i], 0);
    script->parents[i] = rows->parents[i];
    memcpy(scores + i * VOCAB, script->next[rows->tokens[i][rows->lengths[i] - 1]], sizeof script->next[0]);
  }
  if (script->status != TFM_OK) *error = (tfm_error){.status = script->status, .message = "by the model"};
  return script->status;
}

/* Token t is followed by t + 1, then by 2; the end is as likely as the script says. */
static Script counting(void) {
  Script script = {0};
  for (int t = 0; t < VOCAB; t++) script.next[t][t + 1 < VOCAB ? t + 1 : 2] = 5;
  return script;
}

static const int64_t end_tokens[] = {END};

static tfm_generate_options options_of(int64_t beams) {
  tfm_generate_options options;
  tfm_generate_defaults(&options);
  options.num_beams = beams;
  options.max_new_tokens = 4;
  options.pad_token_id = 0;
  options.eos_token_ids = (tfm_token_list){end_tokens, 1};
  return options;
}

static tfm_status run(Script *script, int64_t n, const int32_t *tokens, const tfm_generate_options *options,
                      tfm_generated *generated, tfm_error *error) {
  const tfm_generate_model model = {.vocab = VOCAB, .user = script, .logits = scores_of};
  const tfm_prompts prompts = {.n = n, .width = 1, .tokens = tokens};
  return tfm_generate(&model, &prompts, options, generated, error);
}

static void expect_rows(Script *script, int64_t n, const int32_t *tokens, const tfm_generate_options *options,
                        int64_t width, const int32_t *wanted) {
  tfm_generated generated;
  tfm_error error;
  cr_assert_eq(run(script, n, tokens, options, &generated, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(generated.width, width, "width %lld", (long long)generated.width);
  for (int64_t i = 0; i < generated.n * width; i++)
    cr_assert_eq(generated.sequences[i], wanted[i], "element %lld is %d, not %d", (long long)i, generated.sequences[i],
                 wanted[i]);
  tfm_generated_free(&generated);
}

/* Refused with a message that has these words; a correct run works after it (I26). */
static void expect_refusal(Script *script, const tfm_generate_options *options, const char *words) {
  const int32_t start = 3;
  tfm_generated generated = {.n = 77};
  tfm_error error = {0};
  cr_assert_eq(run(script, 1, &start, options, &generated, &error), TFM_E_INPUT, "accepted, but: %s", words);
  cr_assert(strstr(error.message, words), "\"%s\" lacks \"%s\"", error.message, words);
  cr_assert_eq(generated.n, 77, "the result was touched");
  Script sane = counting();
  const tfm_generate_options plain = options_of(1);
  expect_rows(&sane, 1, &start, &plain, 5, (const int32_t[]){3, 4, 5, 2, 3});
}

#define REFUSED(words, ...)                          \
  do {                                               \
    Script script_ = counting();                     \
    tfm_generate_options options = options_of(2);    \
    __VA_ARGS__;                                     \
    expect_refusal(&script_, &options, words);       \
  } while (0)

// ---- results ----

Test(generate, greedy_follows_the_largest_score) {
  Script script = counting();
  const tfm_generate_options options = options_of(1);
  expect_rows(&script, 1, (const int32_t[]){0}, &options, 2, (const int32_t[]){0, 1});
  expect_rows(&script, 2, (const int32_t[]){0, 4}, &options, 5, (const int32_t[]){0, 1, 0, 0, 0, 4, 5, 2, 3, 4});
}

Test(generate, rows_that_have_ended_are_not_computed) {
  Script script = counting();
  const tfm_generate_options options = options_of(1);
  expect_rows(&script, 3, (const int32_t[]){0, 4, 0}, &options, 5,
              (const int32_t[]){0, 1, 0, 0, 0, 4, 5, 2, 3, 4, 0, 1, 0, 0, 0});
  cr_assert_eq(script.calls, 4);
  cr_assert_eq(script.rows, 3 + 1 + 1 + 1);
  cr_assert_eq(script.parents[0], 0);
}

Test(generate, equal_scores_give_the_lowest_token) {
  Script script = {0};
  tfm_generate_options options = options_of(1);
  expect_rows(&script, 1, (const int32_t[]){3}, &options, 5, (const int32_t[]){3, 0, 0, 0, 0});
  options.suppress_tokens = (tfm_token_list){(const int64_t[]){0, 1}, 2};
  expect_rows(&script, 1, (const int32_t[]){3}, &options, 5, (const int32_t[]){3, 2, 2, 2, 2});
}

/* I22: of equal candidates the lower beam, then the lower token. */
Test(generate, beams_of_equal_scores) {
  Script script = {0};
  tfm_generate_options options = options_of(2);
  options.num_return_sequences = 2;
  options.max_new_tokens = 2;
  options.eos_token_ids.n = 0;
  expect_rows(&script, 1, (const int32_t[]){3}, &options, 3, (const int32_t[]){3, 0, 0, 3, 0, 1});
  for (double penalty = -2; penalty <= 2; penalty += 2) {
    options.length_penalty = penalty;
    expect_rows(&script, 1, (const int32_t[]){3}, &options, 3, (const int32_t[]){3, 0, 0, 3, 0, 1});
  }
}

Test(generate, only_one_row_of_each_item_in_the_first_step_of_beam_search) {
  Script script = counting();
  tfm_generate_options options = options_of(3);
  options.max_new_tokens = 2;
  options.eos_token_ids.n = 0;
  tfm_generated generated;
  tfm_error error;
  cr_assert_eq(run(&script, 2, (const int32_t[]){3, 4}, &options, &generated, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(script.rows, 2 + 6);
  cr_assert_eq(script.parents[0], 0);
  cr_assert_eq(script.parents[3], 1);
  cr_assert_eq(generated.n_tokens, 4);
  tfm_generated_free(&generated);
}

/* I21: the end at step 0, in every beam at once, never. */
Test(generate, end_at_once) {
  Script script = {0};
  for (int t = 0; t < VOCAB; t++) script.next[t][END] = 30;
  for (int64_t beams = 1; beams <= 4; beams += 3) {
    tfm_generate_options options = options_of(beams);
    options.early_stopping = TFM_EARLY_TRUE;
    expect_rows(&script, 1, (const int32_t[]){3}, &options, 2, (const int32_t[]){3, END});
  }
}

Test(generate, every_beam_ends_at_once) {
  Script script = {0};
  tfm_generate_options options = options_of(2);
  options.eos_token_ids = (tfm_token_list){(const int64_t[]){0, 1, 2, 3, 4, 5}, 6};
  options.num_return_sequences = 2;
  expect_rows(&script, 1, (const int32_t[]){3}, &options, 2, (const int32_t[]){3, 0, 3, 1});
}

Test(generate, the_end_never_comes) {
  Script script = counting();
  tfm_generate_options options = options_of(1);
  options.eos_token_ids.n = 0;
  options.max_new_tokens = -1;
  options.max_length = 3;
  expect_rows(&script, 1, (const int32_t[]){0}, &options, 3, (const int32_t[]){0, 1, 2});
  options.max_length = -1;
  tfm_generated generated;
  cr_assert_eq(run(&script, 1, (const int32_t[]){0}, &options, &generated, NULL), TFM_OK);
  cr_assert_eq(generated.width, 1 + TFM_DEFAULT_NEW_TOKENS);
  tfm_generated_free(&generated);
}

/* I22: penalties that make powers of 0 and infinity. */
Test(generate, extreme_length_penalties_give_no_nan) {
  const double penalties[] = {0, -1, 1e9, -1e9, 1e300};
  for (size_t i = 0; i < sizeof penalties / sizeof *penalties; i++) {
    Script script = counting();
    tfm_generate_options options = options_of(3);
    options.length_penalty = penalties[i];
    options.forced_eos_token_id = END;
    options.num_return_sequences = 3;
    tfm_generated generated;
    tfm_error error;
    cr_assert_eq(run(&script, 1, (const int32_t[]){3}, &options, &generated, &error), TFM_OK, "%s", error.message);
    for (int64_t k = 0; k < 3; k++) cr_assert(!isnan(generated.scores[k]), "penalty %g", penalties[i]);
    tfm_generated_free(&generated);
  }
}

Test(generate, rows_grow_beyond_the_first_allocation) {
  Script script = counting();
  for (int64_t beams = 1; beams <= 3; beams += 2) {
    tfm_generate_options options = options_of(beams);
    options.max_new_tokens = 1000;
    options.suppress_tokens = options.eos_token_ids;
    tfm_generated generated;
    tfm_error error;
    cr_assert_eq(run(&script, 2, (const int32_t[]){2, 4}, &options, &generated, &error), TFM_OK, "%s", error.message);
    cr_assert_eq(generated.width, 1001);
    for (int64_t t = 1; t < 1001; t++) {
      int32_t before = generated.sequences[t - 1];
      cr_assert_eq(generated.sequences[t], before + 1 < VOCAB ? before + 1 : 2);
    }
    tfm_generated_free(&generated);
  }
}

Test(generate, prompts_of_different_lengths) {
  Script script = counting();
  const tfm_generate_model model = {.vocab = VOCAB, .user = &script, .logits = scores_of};
  const int64_t lengths[] = {1, 3};
  const tfm_prompts prompts = {
      .n = 2, .width = 3, .tokens = (const int32_t[]){2, 9999, -5, 3, 3, 2}, .lengths = lengths};
  const tfm_generate_options options = options_of(1);
  tfm_generated generated;
  tfm_error error;
  cr_assert_eq(tfm_generate(&model, &prompts, &options, &generated, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(generated.width, 7);
  cr_assert_arr_eq(generated.sequences, ((int32_t[]){2, 3, 4, 5, 2, 0, 0, 3, 3, 2, 3, 4, 5, 2}), 14 * sizeof(int32_t));
  cr_assert_eq(generated.lengths[0], 5);
  tfm_generated_free(&generated);
}

Test(generate, no_rows) {
  Script script = counting();
  for (int64_t beams = 1; beams <= 2; beams++) {
    const tfm_generate_options options = options_of(beams);
    expect_rows(&script, 0, NULL, &options, 1, NULL);
  }
  cr_assert_eq(script.calls, 0);
}

// ---- sampling ----

Test(generate, temperature_0_is_greedy) {
  Script script = counting();
  tfm_generate_options options = options_of(1);
  options.do_sample = 1;
  options.temperature = 0;
  expect_rows(&script, 1, (const int32_t[]){3}, &options, 5, (const int32_t[]){3, 4, 5, 2, 3});
  options.temperature = 1e-300;
  expect_rows(&script, 1, (const int32_t[]){3}, &options, 5, (const int32_t[]){3, 4, 5, 2, 3});
}

/* The frequencies are those of the probabilities; the seed decides, not the other rows. */
Test(generate, draws_come_from_the_distribution) {
  enum { DRAWS = 4000 };
  Script script = {0};
  for (int t = 0; t < VOCAB; t++)
    for (int i = 0; i < VOCAB; i++) script.next[t][i] = i < 3 ? logf((float)(i + 1)) : -INFINITY;
  tfm_generate_options options = options_of(1);
  options.do_sample = 1;
  options.max_new_tokens = DRAWS;
  options.eos_token_ids.n = 0;
  options.seed = 42;
  tfm_generated alone, among;
  tfm_error error;
  cr_assert_eq(run(&script, 1, (const int32_t[]){3}, &options, &alone, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(run(&script, 3, (const int32_t[]){3, 3, 3}, &options, &among, &error), TFM_OK, "%s", error.message);
  cr_assert_arr_eq(alone.sequences, among.sequences, (DRAWS + 1) * sizeof(int32_t));
  cr_assert_neq(memcmp(among.sequences, among.sequences + among.width, DRAWS * sizeof(int32_t)), 0);
  int counts[VOCAB] = {0};
  for (int t = 1; t <= DRAWS; t++) counts[alone.sequences[t]]++;
  for (int i = 0; i < 3; i++)
    cr_assert_lt(fabs(counts[i] / (double)DRAWS - (i + 1) / 6.0), 0.03, "token %d: %d", i, counts[i]);
  cr_assert_eq(counts[3] + counts[4] + counts[5], 0);
  tfm_generated_free(&alone);
  tfm_generated_free(&among);
}

Test(generate, top_k_and_top_p) {
  Script script = {0};
  float probabilities[VOCAB];
  for (int i = 0; i < VOCAB; i++) script.next[3][i] = logf((float)(i < 2 ? 4 : i < 4 ? 2 : 1));
  const tfm_generate_model model = {.vocab = VOCAB, .user = &script, .logits = scores_of};
  const tfm_prompts prompts = {.n = 1, .width = 1, .tokens = (const int32_t[]){3}};
  tfm_generate_options options = options_of(1);
  options.do_sample = 1;
  options.top_k = 3; /* all that equal the third stay */
  cr_assert_eq(tfm_generate_first_step(&model, &prompts, &options, probabilities, NULL), TFM_OK);
  cr_assert(fabsf(probabilities[0] - 4.0f / 12) < 1e-6f && probabilities[3] > 0 && probabilities[4] == 0);
  options.top_k = 1000000;
  options.top_p = 0.5; /* of 14: the two of 4 reach 8, more than half; equal ones: the higher token counts as larger */
  cr_assert_eq(tfm_generate_first_step(&model, &prompts, &options, probabilities, NULL), TFM_OK);
  cr_assert(fabsf(probabilities[0] - 0.5f) < 1e-6f && fabsf(probabilities[1] - 0.5f) < 1e-6f && probabilities[2] == 0);
  options.top_p = 1e-9;
  cr_assert_eq(tfm_generate_first_step(&model, &prompts, &options, probabilities, NULL), TFM_OK);
  cr_assert(probabilities[1] == 1 && probabilities[0] == 0);
}

// ---- what is refused ----

Test(generate, I19_beams) {
  REFUSED("num_beams is 0", options.num_beams = 0);
  REFUSED("num_beams is -1", options.num_beams = -1);
  REFUSED("num_beams is 7, but there are only 6 tokens", options.num_beams = 7);
  REFUSED("num_beams is 1025", options.num_beams = TFM_MAX_BEAMS + 1);
  Script script = counting();
  const tfm_generate_options options = options_of(VOCAB);
  expect_rows(&script, 1, (const int32_t[]){0}, &options, 2, (const int32_t[]){0, 1});
}

static tfm_status scores_of_one_token(void *user, const tfm_step_rows *rows, float *scores, float *logsumexp,
                            tfm_error *error) {
  (void)logsumexp;
  (void)user, (void)error;
  for (int64_t i = 0; i < rows->n; i++) scores[i] = 0;
  return TFM_OK;
}

Test(generate, I19_one_token) {
  const tfm_generate_model model = {.vocab = 1, .logits = scores_of_one_token};
  const tfm_prompts prompts = {.n = 1, .width = 1, .tokens = (const int32_t[]){0}};
  tfm_generate_options options = options_of(1);
  options.eos_token_ids.n = 0;
  tfm_generated generated;
  cr_assert_eq(tfm_generate(&model, &prompts, &options, &generated, NULL), TFM_OK);
  cr_assert_eq(generated.width, 5);
  tfm_generated_free(&generated);
}

Test(generate, I20_numbers_of_sampling) {
  REFUSED("num_return_sequences is 3", options.num_return_sequences = 3);
  REFUSED("num_return_sequences is 0", options.num_return_sequences = 0);
  REFUSED("top_k is -1", options.top_k = -1);
  REFUSED("top_p is 0", options.top_p = 0);
  REFUSED("top_p is 1.5", options.top_p = 1.5);
  REFUSED("top_p is", options.top_p = NAN);
  REFUSED("temperature is -1", options.temperature = -1);
  REFUSED("temperature is", options.temperature = NAN);
  REFUSED("temperature is inf", options.temperature = INFINITY);
  REFUSED("do_sample", options.do_sample = 1);
}

Test(generate, I21_tokens_that_do_not_exist) {
  static const int64_t bad[] = {1, VOCAB}, negative[] = {-1};
  REFUSED("eos_token_id: token 6 does not exist", options.eos_token_ids = (tfm_token_list){bad, 2});
  REFUSED("eos_token_id: token -1", options.eos_token_ids = (tfm_token_list){negative, 1});
  REFUSED("suppress_tokens: token 6", options.suppress_tokens = (tfm_token_list){bad, 2});
  REFUSED("forced_bos_token_id: token 6", options.forced_bos_token_id = VOCAB);
  REFUSED("forced_eos_token_id: token -2", options.forced_eos_token_id = -2);
  REFUSED("pad_token_id: token 6", options.pad_token_id = VOCAB);
  REFUSED("eos_token_id: 2 tokens, but the pointer to them is NULL", options.eos_token_ids = (tfm_token_list){NULL, 2});
  REFUSED("suppress_tokens: 1 tokens, but the pointer", options.suppress_tokens = (tfm_token_list){NULL, 1});
}

Test(generate, nothing_to_give_back) {
  tfm_generated none = {0};
  tfm_generated_free(NULL);
  tfm_generated_free(&none);
}

Test(generate, I22_penalties) {
  REFUSED("length_penalty is", options.length_penalty = NAN);
  REFUSED("length_penalty is inf", options.length_penalty = INFINITY);
  REFUSED("early_stopping is 3", options.early_stopping = (tfm_early_stopping)3);
}

Test(generate, I23_lengths) {
  REFUSED("min_new_tokens is 5", options.min_new_tokens = 5);
  REFUSED("min_length is 6, greater than max_length, 5", options.min_length = 6);
  REFUSED("max_new_tokens is 0", options.max_new_tokens = 0);
  REFUSED("max_length is 0", options.max_length = 0);
  REFUSED("the prompt has 1 tokens, and max_length is 1", options.max_new_tokens = -1; options.max_length = 1);
  REFUSED("tokens are too many", options.max_new_tokens = INT32_MAX);
  REFUSED("no_repeat_ngram_size is -1", options.no_repeat_ngram_size = -1);
  Script script = counting();
  const tfm_generate_model model = {.vocab = VOCAB, .user = &script, .logits = scores_of};
  const tfm_generate_options options = options_of(1);
  tfm_generated generated;
  tfm_error error;
  const int64_t lengths[] = {1, 4, 0, 1};
  tfm_prompts prompts = {.n = 2, .width = 3, .tokens = (const int32_t[9]){0}, .lengths = lengths};
  cr_assert_eq(tfm_generate(&model, &prompts, &options, &generated, &error), TFM_E_INPUT);
  cr_assert(strstr(error.message, "row 1: the prompt has 4 tokens"), "%s", error.message);
  prompts.lengths = lengths + 2;
  cr_assert_eq(tfm_generate(&model, &prompts, &options, &generated, &error), TFM_E_INPUT);
  prompts = (tfm_prompts){.n = 1, .width = 0};
  cr_assert_eq(tfm_generate(&model, &prompts, &options, &generated, &error), TFM_E_INPUT);
  cr_assert_eq(script.calls, 0);
}

static void expect_no_choice(float score, const char *words) {
  for (int64_t beams = 1; beams <= 2; beams++) {
    Script script = counting();
    for (int i = 0; i < VOCAB; i++) script.next[4][i] = score;
    const tfm_generate_options options = options_of(beams);
    expect_refusal(&script, &options, words);
  }
}

Test(generate, I24_scores_that_are_none) {
  expect_no_choice(-INFINITY, "row 0: the logits of token 2 are all -inf");
  expect_no_choice(NAN, "not finite");
  expect_no_choice(INFINITY, "not finite");
  Script script = counting();
  script.next[4][0] = NAN; /* one is enough */
  const tfm_generate_options options = options_of(1);
  expect_refusal(&script, &options, "not finite");
}

Test(generate, I24_everything_is_forbidden) {
  static const int64_t all[] = {0, 1, 2, 3, 4, 5};
  REFUSED("every token is forbidden as token 1", options.suppress_tokens = (tfm_token_list){all, 6});
  REFUSED("every token is forbidden as token 1", options.suppress_tokens = (tfm_token_list){all, 6};
          options.num_beams = 1);
  REFUSED("every token is forbidden", options.no_repeat_ngram_size = 1; options.max_new_tokens = 9;
          options.num_beams = 1; options.eos_token_ids.n = 0);
}

Test(generate, I25_repetition) {
  REFUSED("repetition_penalty is 0", options.repetition_penalty = 0);
  REFUSED("repetition_penalty is -1", options.repetition_penalty = -1);
  REFUSED("repetition_penalty is", options.repetition_penalty = NAN);
  const tfm_token_bias outside = {6, 1}, greatest = {0, 1001}, no_number = {0, NAN};
  REFUSED("logit_bias: token 6", options.logit_bias = (tfm_bias_list){&outside, 1});
  REFUSED("logit_bias is 1001", options.logit_bias = (tfm_bias_list){&greatest, 1});
  REFUSED("logit_bias is", options.logit_bias = (tfm_bias_list){&no_number, 1});
  REFUSED("logit_bias: 1 tokens, but the pointer", options.logit_bias = (tfm_bias_list){NULL, 1});
  REFUSED("presence_penalty is 1e+300", options.presence_penalty = 1e300);
  REFUSED("frequency_penalty is -1001", options.frequency_penalty = -1001);
  REFUSED("frequency_penalty is", options.frequency_penalty = NAN);
  REFUSED("min_p is 1.5", options.min_p = 1.5);
}

Test(generate, errors_of_the_model_are_passed_on) {
  for (int64_t beams = 1; beams <= 2; beams++) {
    Script script = counting();
    script.status = TFM_E_CANCELLED;
    const tfm_generate_options options = options_of(beams);
    tfm_generated generated;
    tfm_error error;
    cr_assert_eq(run(&script, 1, (const int32_t[]){3}, &options, &generated, &error), TFM_E_CANCELLED);
    cr_assert_str_eq(error.message, "by the model");
  }
}

// ---- memory ----

static int64_t allocations_left = -1; /* -1: any number */

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) {
  if (allocations_left == 0) return NULL;
  if (allocations_left > 0) allocations_left--;
  return __real_calloc(count, size);
}

Test(generate, every_allocation_may_fail) {
  for (int64_t beams = 1; beams <= 3; beams += 2) {
    tfm_status status = TFM_E_NOMEM;
    int64_t n = 0;
    for (; status == TFM_E_NOMEM; n++) {
      Script script = counting();
      tfm_generate_options options = options_of(beams);
      options.max_new_tokens = 200;
      options.suppress_tokens = options.eos_token_ids;
      tfm_generated generated = {0};
      allocations_left = n;
      status = run(&script, 2, (const int32_t[]){2, 4}, &options, &generated, NULL);
      allocations_left = -1;
      tfm_generated_free(&generated);
    }
    cr_assert_eq(status, TFM_OK, "status %d", (int)status);
    cr_assert_gt(n, 15, "only %lld allocations", (long long)n);
  }
}

// ---- the caller's function ----

typedef struct Heard {
  int32_t tokens[8];
  int n, most;
} Heard;

static int hear(void *user, int64_t item, int32_t token) {
  Heard *heard = user;
  cr_assert_eq(item, 0);
  heard->tokens[heard->n++] = token;
  return heard->n == heard->most;
}

Test(generate, the_caller_hears_each_token_and_can_stop) {
  for (int64_t beams = 1; beams <= 2; beams++) {
    Script script = counting();
    Heard heard = {.most = 2};
    tfm_generate_options options = options_of(beams);
    options.on_token = hear;
    options.on_token_user = &heard;
    expect_rows(&script, 1, (const int32_t[]){3}, &options, 3, (const int32_t[]){3, 4, 5});
    cr_assert_eq(heard.n, 2);
    cr_assert_eq(heard.tokens[1], 5);
    cr_assert_eq(script.calls, 2);
  }
}

Test(generate, options_of_an_older_program) {
  Script script = counting();
  tfm_generate_options options = options_of(1);
  options.struct_size = offsetof(tfm_generate_options, suppress_tokens);
  options.suppress_tokens = (tfm_token_list){(const int64_t[]){4}, 1}; /* beyond it, not read */
  expect_rows(&script, 1, (const int32_t[]){3}, &options, 5, (const int32_t[]){3, 4, 5, 2, 3});
}
