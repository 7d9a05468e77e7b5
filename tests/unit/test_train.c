/* Random numbers, schedules and updates of training: known answers, and formulas written out a second time. Gradients and
 * whole steps are golden cases (tests/goldens/train). */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "train/random.h"
#include "train/update.h"

Test(train, philox_known_answers) {
  static const struct {
    uint32_t counter[4], key[2], words[4];
  } rows[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint32_t words[4];
    philox(rows[i].counter, rows[i].key, words);
    cr_expect(memcmp(words, rows[i].words, sizeof words) == 0, "row %zu: %08x", i, words[0]);
  }
}

Test(train, initial_values_stay_in_their_range) {
  const Parameter p = {.path = "a.weight", .rank = 2, .dims = {40, 60}, .elements = 2400};
  const double bound = sqrt(6.0 / 100);
  static float values[2400], again[2400];
  double sum = 0, squares = 0;
  draw_initial(&p, &(Initial){INITIAL_XAVIER_UNIFORM, 1, 0}, 5, values);
  draw_initial(&p, &(Initial){INITIAL_XAVIER_UNIFORM, 1, 0}, 5, again);
  cr_expect(memcmp(values, again, sizeof values) == 0);
  for (int i = 0; i < 2400; i++) {
    cr_expect(fabs((double)values[i]) <= bound);
    sum += (double)values[i];
    squares += (double)values[i] * (double)values[i];
  }
  cr_expect(fabs(sum / 2400) < 0.02);
  cr_expect(fabs(squares / 2400 - bound * bound / 3) < 0.002);
  draw_initial(&p, &(Initial){INITIAL_CONSTANT, 0.5, 0}, 5, values);
  cr_expect(values[0] == 0.5f && values[2399] == 0.5f);
}

Test(train, rates_of_schedules) {
  TrainSettings s = {.lr = 2, .warmup = 4, .steps = 12, .final_lr = 1, .model_size = 16, .gamma = 0.5};
  cr_expect(update_rate(&s, 2, 0) == 1.0 && update_rate(&s, 4, 0) == 2.0 && update_rate(&s, 100, 0) == 2.0);
  s.schedule = SCHEDULE_LINEAR;
  cr_expect(update_rate(&s, 8, 0) == 1.5 && update_rate(&s, 12, 0) == 1.0 && update_rate(&s, 50, 0) == 1.0);
  s.schedule = SCHEDULE_COSINE;
  cr_expect(fabs(update_rate(&s, 8, 0) - 1.5) < 1e-12 && fabs(update_rate(&s, 12, 0) - 1) < 1e-12);
  s.schedule = SCHEDULE_EXPONENTIAL;
  cr_expect(update_rate(&s, 3, 2) == 1.5 && update_rate(&s, 50, 0) == 2.0 && update_rate(&s, 50, 2) == 0.5);
  s.schedule = SCHEDULE_NOAM;
  cr_expect(fabs(update_rate(&s, 4, 0) - 0.25) < 1e-12 && fabs(update_rate(&s, 2, 0) - 0.125) < 1e-12 &&
            fabs(update_rate(&s, 16, 0) - 0.125) < 1e-12);
  s.schedule = SCHEDULE_INVERSE_SQRT;
  cr_expect(update_rate(&s, 2, 0) == 1.0 && update_rate(&s, 16, 0) == 1.0);
}

Test(train, squares_of_long_blocks) {
  static float ones[10007];
  for (int i = 0; i < 10007; i++) ones[i] = i % 2 ? 1.0f : -1.0f;
  cr_expect(update_squares(ones, 10007) == 10007.0);
  cr_expect(update_squares(ones, 0) == 0.0);
}

/* Two steps of each optimizer on one number, in double. */
Test(train, updates_of_one_number) {
  const double g[] = {0.5, -0.25}, lr = 0.1, decay = 0.01;
  for (int k = 0; k < 5; k++) {
    TrainSettings s = {.optimizer = k < 3 ? OPTIMIZER_SGD : k == 3 ? OPTIMIZER_ADAM : OPTIMIZER_ADAMW,
                       .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .momentum = k == 0 ? 0 : 0.9, .nesterov = k == 2};
    float weight = 1, first = 0, second = 0;
    double p = 1, m = 0, v = 0;
    for (int t = 1; t <= 2; t++) {
      const float gradient = (float)g[t - 1];
      const Update u = {.weight = &weight, .first = k == 0 ? NULL : &first, .second = k < 3 ? NULL : &second,
                        .gradient = &gradient, .n = 1, .clip = 0.5, .rate = lr, .decay = decay, .t = t};
      update_weight(&s, &u);
      double d = g[t - 1] * 0.5 + (k == 4 ? 0 : decay * p);
      if (k < 3) {
        m = t == 1 ? d : 0.9 * m + d;
        p -= lr * (k == 0 ? d : k == 1 ? m : d + 0.9 * m);
        continue;
      }
      if (k == 4) p *= 1 - lr * decay;
      m = 0.9 * m + 0.1 * d;
      v = 0.99 * v + 0.01 * d * d;
      p -= lr * (m / (1 - pow(0.9, t))) / (sqrt(v / (1 - pow(0.99, t))) + 1e-8);
    }
    cr_expect(fabs((double)weight - p) < 1e-6, "optimizer %d: %g, wanted %g", k, (double)weight, p);
  }
}

Test(train, patterns) {
  static const char *texts[] = {"*.bias", "embed.*", "a"};
  const Patterns p = {.texts = {.items = texts, .n = 3}};
  cr_expect(patterns_match(&p, "layers.0.bias") && patterns_match(&p, "embed.weight") && patterns_match(&p, "a"));
  cr_expect(!patterns_match(&p, "bias") && !patterns_match(&p, "a.b") && !patterns_match(&p, "embedding.weight"));
}
