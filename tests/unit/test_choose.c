/* tfm_choose: a loop over it writes what tfm_generate writes, whatever the options; its probabilities are those of the
 * logits as given; what it refuses changes nothing. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tfm/generate.h"

enum { VOCAB = 300, WORDS = (VOCAB + 31) / 32, LONGEST = 40, TOP = 7 }; /* blocks of logits are 128 long */

// ---- a model by hand ----

static uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= UINT64_C(0x9e3779b97f4a7c15);
  return x ^ x >> 29;
}

/* Logits that depend on the last three tokens; many are equal, some are -inf. */
static void logits_after(const int32_t *tokens, int64_t length, float *logits) {
  uint64_t state = 17;
  for (int64_t i = length > 3 ? length - 3 : 0; i < length; i++) state = mix(state + (uint64_t)tokens[i] + 1);
  for (int64_t i = 0; i < VOCAB; i++) {
    const uint64_t x = mix(state + (uint64_t)i * 7919);
    logits[i] = x % 17 == 0 ? -INFINITY : (float)(int)(x % 41) / 8 - 2;
  }
}

static tfm_status model_logits(void *user, const tfm_step_rows *rows, float *logits, float *sums, tfm_error *error) {
  (void)user, (void)sums, (void)error;
  for (int64_t i = 0; i < rows->n; i++) logits_after(rows->tokens[i], rows->lengths[i], logits + i * VOCAB);
  return TFM_OK;
}

static const tfm_generate_model model = {.vocab = VOCAB, .logits = model_logits};

static tfm_chooser *chooser_of(int64_t vocab) {
  tfm_chooser *chooser;
  tfm_error error;
  cr_assert_eq(tfm_chooser_create(vocab, &chooser, &error), TFM_OK, "%s", error.message);
  return chooser;
}

// ---- the same rows as tfm_generate ----

static uint64_t random_state = 1;

static int64_t draw(int64_t n) {
  random_state = mix(random_state + 12345);
  return (int64_t)(random_state % (uint64_t)n);
}

static void double_some(void *user, int64_t item, const int32_t *tokens, int64_t length, float *scores) {
  (void)user, (void)item;
  for (int64_t i = length % 5; i < VOCAB; i += 5) scores[i] = scores[i] * 2 + (float)tokens[length - 1] / 64;
}

typedef struct Lists {
  int64_t ends[2], suppressed[40], first[3];
  tfm_token_bias biases[6];
} Lists;

/* Each option has an effect in about a third of the cases. */
static tfm_generate_options random_options(Lists *lists) {
  tfm_generate_options o;
  tfm_generate_defaults(&o);
  o.max_new_tokens = 1 + draw(20);
  for (int i = 0; i < 2; i++) lists->ends[i] = draw(VOCAB);
  for (int i = 0; i < 40; i++) lists->suppressed[i] = draw(VOCAB);
  for (int i = 0; i < 3; i++) lists->first[i] = draw(VOCAB);
  for (int i = 0; i < 6; i++) lists->biases[i] = (tfm_token_bias){draw(VOCAB), (double)draw(33) / 4 - 4};
  if (!draw(3)) o.logit_bias = (tfm_bias_list){lists->biases, (uint64_t)draw(7)};
  o.eos_token_ids = (tfm_token_list){lists->ends, (uint64_t)draw(3)};
  if (!draw(3)) o.suppress_tokens = (tfm_token_list){lists->suppressed, (uint64_t)draw(40)};
  if (!draw(3)) o.begin_suppress_tokens = (tfm_token_list){lists->first, (uint64_t)draw(4)};
  if (!draw(3)) o.repetition_penalty = 0.5 + (double)draw(8) / 4;
  if (!draw(3)) o.presence_penalty = (double)draw(9) / 4 - 1;
  if (!draw(3)) o.frequency_penalty = (double)draw(9) / 8 - 0.5;
  if (!draw(3)) o.no_repeat_ngram_size = 1 + draw(3);
  if (!draw(3)) o.min_new_tokens = draw(o.max_new_tokens);
  if (!draw(4)) o.forced_bos_token_id = draw(VOCAB);
  if (!draw(4)) o.forced_eos_token_id = draw(VOCAB);
  if (!draw(5)) o.on_scores = double_some;
  if (!draw(3)) return o;
  o.do_sample = 1;
  o.seed = (uint64_t)draw(1000);
  if (!draw(2)) o.temperature = (double)draw(5) / 2;
  if (!draw(2)) o.top_k = draw(VOCAB + 20);
  if (!draw(2)) o.top_p = 0.05 + (double)draw(19) / 20;
  if (!draw(2)) o.min_p = (double)draw(11) / 20;
  return o;
}

static bool is_end(const tfm_generate_options *options, int32_t token) {
  for (uint64_t i = 0; i < options->eos_token_ids.n; i++)
    if (options->eos_token_ids.tokens[i] == token) return true;
  return false;
}

/* Row number `item` by a loop of our own; returns its length. -1: refused. */
static int64_t write_row(tfm_chooser *chooser, const tfm_generate_options *options, int64_t item, int32_t *tokens,
                         int64_t start) {
  tfm_stream stream = tfm_stream_begin(options->seed, (uint64_t)item);
  const int64_t limit = start + options->max_new_tokens;
  int64_t length = start;
  while (length < limit) {
    float logits[VOCAB];
    logits_after(tokens, length, logits);
    const tfm_choice_row row = {.options = options, .tokens = tokens, .length = length, .start = start,
                                .limit = limit, .logits = logits, .stream = &stream, .n_top = -1};
    tfm_choice choice = {.token = -7};
    tfm_error error;
    if (tfm_choose(chooser, &row, &choice, &error) != TFM_OK) {
      cr_assert_eq(choice.token, -7, "a refusal set the choice");
      cr_assert(strstr(error.message, "every token is forbidden"), "%s", error.message);
      return -1;
    }
    cr_assert(isnan(choice.logprob), "not wanted");
    tokens[length++] = choice.token;
    if (is_end(options, choice.token)) break;
  }
  return length;
}

Test(choose, writes_the_rows_of_generate) {
  enum { ROWS = 3, CASES = 4000 };
  tfm_chooser *chooser = chooser_of(VOCAB);
  int64_t compared = 0;
  for (int c = 0; c < CASES; c++) {
    Lists lists;
    const tfm_generate_options options = random_options(&lists);
    const int64_t width = 1 + draw(5);
    int32_t prompts[ROWS * 5];
    int64_t lengths[ROWS];
    for (int i = 0; i < ROWS * 5; i++) prompts[i] = (int32_t)draw(VOCAB);
    for (int i = 0; i < ROWS; i++) lengths[i] = 1 + draw(width);
    const tfm_prompts given = {.n = ROWS, .width = width, .tokens = prompts, .lengths = lengths};
    tfm_generated generated;
    tfm_error error;
    const tfm_status status = tfm_generate(&model, &given, &options, &generated, &error);
    bool refused = false;
    for (int i = 0; i < ROWS && !refused; i++) {
      int32_t tokens[LONGEST];
      memcpy(tokens, prompts + i * width, (size_t)lengths[i] * sizeof *tokens);
      const int64_t length = write_row(chooser, &options, i, tokens, lengths[i]);
      refused = length < 0;
      if (refused || status != TFM_OK) continue;
      cr_assert_eq(length, generated.lengths[i], "case %d row %d", c, i);
      for (int64_t t = 0; t < length; t++)
        cr_assert_eq(tokens[t], generated.sequences[i * generated.width + t], "case %d row %d token %lld", c, i,
                     (long long)t);
      compared++;
    }
    cr_assert_eq(refused, status != TFM_OK, "case %d: %s", c, status ? error.message : "only tfm_choose refuses");
    if (status == TFM_OK) tfm_generated_free(&generated);
  }
  cr_assert_gt(compared, CASES, "only %lld rows were not refused", (long long)compared);
  tfm_chooser_destroy(chooser);
}

// ---- penalties ----

/* What vLLM computes, by counting anew: biases, repetition for all of the row, then what was written. */
static float penalised_score(const tfm_generate_options *o, const int32_t *tokens, int64_t start, int64_t length,
                             float score, int32_t token) {
  int64_t stands = 0, written = 0;
  for (int64_t i = 0; i < length; i++) {
    stands += tokens[i] == token;
    written += tokens[i] == token && i >= start;
  }
  for (uint64_t i = 0; i < o->logit_bias.n; i++)
    if (o->logit_bias.biases[i].token == token) score += (float)o->logit_bias.biases[i].bias;
  const float repetition = (float)o->repetition_penalty;
  if (stands && repetition != 1) score = score < 0 ? score * repetition : score / repetition;
  if (written) score -= (float)o->frequency_penalty * (float)written;
  if (written) score -= (float)o->presence_penalty;
  return score;
}

Test(choose, biases_and_penalties_of_what_was_written_and_not_of_the_prompt) {
  enum { LENGTH = 30 };
  tfm_chooser *chooser = chooser_of(VOCAB);
  int64_t moved = 0;
  for (int c = 0; c < 2000; c++) {
    tfm_generate_options options;
    tfm_generate_defaults(&options);
    options.presence_penalty = (double)draw(17) / 4 - 2;
    options.frequency_penalty = (double)draw(17) / 8 - 1;
    if (draw(2)) options.repetition_penalty = 0.5 + (double)draw(8) / 4;
    tfm_token_bias biases[5];
    for (int i = 0; i < 5; i++) biases[i] = (tfm_token_bias){draw(VOCAB), (double)draw(65) / 4 - 8};
    options.logit_bias = (tfm_bias_list){biases, (uint64_t)draw(6)};
    int32_t tokens[LENGTH];
    for (int i = 0; i < LENGTH; i++) tokens[i] = (int32_t)draw(draw(2) ? VOCAB : 6);
    const int64_t length = 1 + draw(LENGTH), start = draw(length + 1);
    float logits[VOCAB];
    logits_after(tokens, length, logits);
    int32_t wanted = 0, unchanged = 0;
    for (int32_t i = 1; i < VOCAB; i++) {
      if (logits[i] > logits[unchanged]) unchanged = i;
      if (penalised_score(&options, tokens, start, length, logits[i], i) >
          penalised_score(&options, tokens, start, length, logits[wanted], wanted))
        wanted = i;
    }
    const tfm_choice_row row = {.options = &options, .tokens = tokens, .length = length, .start = start,
                                .limit = LENGTH + 1, .logits = logits, .n_top = -1};
    tfm_choice choice;
    tfm_error error;
    cr_assert_eq(tfm_choose(chooser, &row, &choice, &error), TFM_OK, "%s", error.message);
    cr_assert_eq(choice.token, wanted, "case %d: %d in place of %d", c, choice.token, wanted);
    moved += wanted != unchanged;
  }
  cr_assert_gt(moved, 100, "penalties changed %lld choices", (long long)moved);
  tfm_chooser_destroy(chooser);
}

/* All tokens that are likely enough are drawn, and no other, beside top_k and at other temperatures, too. */
Test(choose, min_p_keeps_what_is_likely_beside_the_likeliest) {
  tfm_chooser *chooser = chooser_of(VOCAB);
  const int32_t tokens[] = {3, 9};
  float given[VOCAB];
  logits_after(tokens, 2, given);
  for (int c = 0; c < 12; c++) {
    tfm_generate_options options;
    tfm_generate_defaults(&options);
    options.do_sample = 1;
    options.min_p = (const double[]){0.2, 0.5, 1}[c % 3];
    options.temperature = c % 2 ? 1 : 2;
    options.top_k = c < 6 ? 0 : 3;
    bool drawn[VOCAB] = {0};
    float most = -INFINITY;
    for (int i = 0; i < VOCAB; i++) most = given[i] > most ? given[i] : most;
    for (uint64_t n = 0; n < 2000; n++) {
      float logits[VOCAB];
      memcpy(logits, given, sizeof logits);
      tfm_stream stream = tfm_stream_begin(5, n);
      const tfm_choice_row row = {.options = &options, .tokens = tokens, .length = 2, .start = 2, .limit = 9,
                                  .logits = logits, .stream = &stream, .n_top = -1};
      tfm_choice choice;
      tfm_error error;
      cr_assert_eq(tfm_choose(chooser, &row, &choice, &error), TFM_OK, "%s", error.message);
      drawn[choice.token] = true;
    }
    for (int i = 0; i < VOCAB; i++) {
      const double share = exp(((double)given[i] - (double)most) / options.temperature);
      int64_t better = 0;
      for (int k = 0; k < VOCAB; k++) better += given[k] > given[i];
      const bool is_kept = share >= options.min_p && (!options.top_k || better < options.top_k);
      if (fabs(share - options.min_p) > 1e-4) cr_assert_eq(drawn[i], is_kept, "case %d, token %d, %g", c, i, share);
    }
  }
  tfm_chooser_destroy(chooser);
}

// ---- probabilities ----

/* The logits as given, whatever the options do to them. */
Test(choose, probabilities_are_those_of_the_logits_as_given) {
  tfm_chooser *chooser = chooser_of(VOCAB);
  for (int c = 0; c < 200; c++) {
    Lists lists;
    tfm_generate_options options = random_options(&lists);
    options.suppress_tokens.n = 0;
    const int32_t tokens[] = {(int32_t)draw(VOCAB), (int32_t)draw(VOCAB)};
    float logits[VOCAB], given[VOCAB];
    logits_after(tokens, 2, given);
    memcpy(logits, given, sizeof given);
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += exp((double)given[i]);
    tfm_stream stream = tfm_stream_begin(1, 2);
    tfm_best_token top[TOP];
    const tfm_choice_row row = {.options = &options, .tokens = tokens, .length = 2, .start = 2, .limit = 9,
                                .logits = logits, .stream = &stream, .n_top = TOP, .top = top};
    tfm_choice choice;
    tfm_error error;
    cr_assert_eq(tfm_choose(chooser, &row, &choice, &error), TFM_OK, "%s", error.message);
    const double wanted = (double)given[choice.token] - log(sum);
    cr_assert(choice.logprob == (float)wanted || fabs((double)choice.logprob - wanted) < 1e-5, "%g is not %g",
              (double)choice.logprob, wanted);
    for (int i = 0; i < TOP; i++) { /* each is the next best of all, by logit and then by number */
      int best = -1;
      for (int t = 0; t < VOCAB; t++) {
        const bool is_later = i == 0 || given[t] < given[top[i - 1].token] ||
                              (given[t] == given[top[i - 1].token] && t > top[i - 1].token);
        if (is_later && (best < 0 || given[t] > given[best])) best = t;
      }
      cr_assert_eq(top[i].token, best, "case %d place %d: %d is not %d", c, i, top[i].token, best);
      cr_assert_lt(fabs((double)top[i].logit - ((double)given[best] - log(sum))), 1e-5);
    }
  }
  tfm_chooser_destroy(chooser);
}

Test(choose, fewer_possible_tokens_than_the_likeliest_that_are_wanted) {
  tfm_chooser *chooser = chooser_of(3);
  float logits[] = {-INFINITY, 0, 1};
  tfm_best_token top[5];
  const tfm_choice_row row = {.logits = logits, .n_top = 5, .top = top};
  tfm_choice choice;
  cr_assert_eq(tfm_choose(chooser, &row, &choice, NULL), TFM_OK);
  cr_assert_eq(choice.token, 2);
  const int32_t wanted[] = {2, 1, TFM_NO_TOKEN, TFM_NO_TOKEN, TFM_NO_TOKEN};
  for (int i = 0; i < 5; i++) cr_assert_eq(top[i].token, wanted[i]);
  cr_assert_eq(top[2].logit, -INFINITY);
  tfm_chooser_destroy(chooser);
}

// ---- tokens that are allowed ----

static tfm_status choose_allowed(const tfm_generate_options *options, const uint32_t *allowed, tfm_choice *choice,
                                 tfm_error *error) {
  const int32_t tokens[] = {3};
  float logits[VOCAB];
  tfm_stream stream = tfm_stream_begin(5, 0);
  tfm_chooser *chooser = chooser_of(VOCAB);
  logits_after(tokens, 1, logits);
  const tfm_choice_row row = {.options = options, .tokens = tokens, .length = 1, .start = 1, .limit = 2,
                              .logits = logits, .allowed = allowed, .stream = &stream};
  const tfm_status status = tfm_choose(chooser, &row, choice, error);
  tfm_chooser_destroy(chooser);
  return status;
}

static void raise_all(void *user, int64_t item, const int32_t *tokens, int64_t length, float *scores) {
  (void)user, (void)item, (void)tokens, (void)length;
  for (int i = 0; i < VOCAB; i++) scores[i] = (float)i;
}

Test(choose, only_allowed_tokens_are_chosen) {
  int chosen = 0;
  for (int c = 0; c < 300; c++) {
    Lists lists;
    tfm_generate_options options = random_options(&lists);
    uint32_t allowed[WORDS] = {0};
    if (c % 3) options.forced_bos_token_id = options.forced_eos_token_id = TFM_NO_TOKEN;
    if (c % 4 == 0) options.on_scores = raise_all;
    for (int i = 0; i <= c % 20; i++) {
      const int64_t token = draw(VOCAB);
      allowed[token / 32] |= 1u << token % 32;
    }
    tfm_choice choice;
    tfm_error error;
    const tfm_status status = choose_allowed(&options, allowed, &choice, &error);
    if (status != TFM_OK) {
      cr_assert(strstr(error.message, "every token is forbidden"), "%s", error.message);
      continue;
    }
    cr_assert(allowed[choice.token / 32] >> choice.token % 32 & 1, "case %d: %d is not allowed", c, choice.token);
    chosen++;
  }
  cr_assert_gt(chosen, 100);
}

/* A mask of ones changes nothing, bits behind the vocabulary are not read as tokens. */
Test(choose, a_mask_of_ones_changes_nothing) {
  uint32_t all[WORDS];
  memset(all, 0xff, sizeof all);
  for (int c = 0; c < 50; c++) {
    Lists lists;
    const tfm_generate_options options = random_options(&lists);
    tfm_choice with, without;
    const tfm_status status = choose_allowed(&options, all, &with, NULL);
    cr_assert_eq(status, choose_allowed(&options, NULL, &without, NULL));
    if (status == TFM_OK) cr_assert_eq(with.token, without.token);
  }
}

// ---- refusals ----

/* A row of three tokens of which one member is wrong; the stream stays as it was. */
static void expect_refusal(tfm_choice_row row, tfm_status wanted, const char *words) {
  tfm_chooser *chooser = chooser_of(3);
  tfm_stream stream = tfm_stream_begin(1, 1);
  const tfm_stream before = stream;
  if (row.stream) row.stream = &stream;
  tfm_choice choice = {.token = -7};
  tfm_error error = {0};
  cr_assert_eq(tfm_choose(chooser, &row, &choice, &error), wanted, "%s", words);
  cr_assert(strstr(error.message, words), "\"%s\" lacks \"%s\"", error.message, words);
  cr_assert_eq(choice.token, -7);
  cr_assert_eq(memcmp(&before, &stream, sizeof stream), 0, "%s: the stream has moved", words);
  tfm_chooser_destroy(chooser);
}

Test(choose, refusals_change_nothing) {
  static tfm_stream some;
  const int32_t tokens[] = {0, 1};
  tfm_generate_options sampling, wrong, all;
  tfm_generate_defaults(&sampling);
  sampling.do_sample = 1;
  wrong = all = sampling;
  wrong.top_p = 0;
  const int64_t every[] = {0, 1, 2}, none[] = {3};
  all.suppress_tokens = (tfm_token_list){every, 3};
  float logits[] = {0, 1, 2}, bad[] = {0, NAN, 0}, infinite[] = {0, INFINITY, 0}, impossible[] = {-INFINITY, -INFINITY,
                                                                                                  -INFINITY};
  const tfm_choice_row row = {.options = &sampling, .tokens = tokens, .length = 2, .start = 1, .limit = 9,
                              .logits = logits, .stream = &some};
#define WITH(status, words, ...)                 \
  do {                                           \
    float fresh[] = {0, 1, 2};                   \
    tfm_choice_row changed = row;                \
    changed.logits = fresh;                      \
    __VA_ARGS__;                                 \
    expect_refusal(changed, status, words);      \
  } while (0)
  WITH(TFM_E_INPUT, "not finite", changed.logits = bad);
  WITH(TFM_E_INPUT, "not finite", changed.logits = infinite);
  WITH(TFM_E_INPUT, "all -inf", changed.logits = impossible);
  WITH(TFM_E_INPUT, "every token is forbidden as token 2", changed.options = &all);
  WITH(TFM_E_INPUT, "every token is forbidden", changed.allowed = (const uint32_t[]){8});
  WITH(TFM_E_INPUT, "top_p is 0", changed.options = &wrong);
  wrong = sampling;
  wrong.suppress_tokens = (tfm_token_list){none, 1};
  WITH(TFM_E_INPUT, "token 3 does not exist", changed.options = &wrong);
  WITH(TFM_E_INPUT, "a prompt of 3", changed.start = 3);
  WITH(TFM_E_INPUT, "a prompt of -1", changed.start = -1);
  WITH(TFM_E_INPUT, "2 tokens of padding", changed.padding = 2);
  WITH(TFM_E_INPUT, "-2 likeliest", changed.n_top = -2);
  WITH(TFM_E_USAGE, "needs a stream", changed.stream = NULL);
  WITH(TFM_E_USAGE, "logits are a null", changed.logits = NULL);
  WITH(TFM_E_USAGE, "tokens are a null", changed.tokens = NULL);
  WITH(TFM_E_USAGE, "no place for the likeliest", changed.n_top = 1);
#undef WITH
  tfm_chooser *chooser = (tfm_chooser *)&some;
  cr_assert_eq(tfm_chooser_create(0, &chooser, NULL), TFM_E_INPUT);
  cr_assert_null(chooser);
  cr_assert_eq(tfm_choose(NULL, &row, &(tfm_choice){0}, NULL), TFM_E_USAGE);
  tfm_chooser_destroy(NULL);
}

/* Members that a single row has no use for are not read. */
Test(choose, options_of_beam_search_are_not_read) {
  tfm_generate_options options;
  tfm_generate_defaults(&options);
  options.num_beams = 5;
  options.do_sample = 1;
  options.num_return_sequences = 9;
  tfm_choice choice;
  cr_assert_eq(choose_allowed(&options, NULL, &choice, NULL), TFM_OK);
}

Test(choose, options_are_checked_with_the_messages_of_generate) {
  tfm_generate_options options;
  tfm_error error, other;
  tfm_generate_defaults(&options);
  options.max_length = 4;
  cr_assert_eq(tfm_options_check(&options, VOCAB, 3, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(tfm_options_check(NULL, VOCAB, 3, &error), TFM_OK, "%s", error.message);
  const int64_t starts[] = {0, 4, 3, 3};
  for (int i = 0; i < 4; i++) {
    if (i == 2) options.temperature = -1;
    if (i == 3) options.temperature = 1, options.min_new_tokens = 2;
    const int32_t tokens[4] = {0};
    const tfm_prompts prompts = {.n = 1, .width = starts[i], .tokens = tokens};
    tfm_generated generated;
    cr_assert_eq(tfm_options_check(&options, VOCAB, starts[i], &error), TFM_E_INPUT);
    cr_assert_eq(tfm_generate(&model, &prompts, &options, &generated, &other), TFM_E_INPUT);
    cr_assert_str_eq(error.message, other.message);
  }
}
