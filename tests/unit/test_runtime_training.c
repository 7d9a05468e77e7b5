/* The trainer of the runtime by itself: random numbers, schedules, the norm, optimizers, and steps whose graphs are functions
 * of this file. Known answers, and formulas written out a second time. Gradients of models are golden cases
 * (tests/goldens/train). */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "machine/features.h"
#include "train/trainer_parts.h"

Test(training, philox_known_answers) {
  static const struct {
    uint32_t counter[4], key[2], words[4];
  } rows[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint32_t words[4];
    tfm_philox(rows[i].counter, rows[i].key, words);
    cr_expect(memcmp(words, rows[i].words, sizeof words) == 0, "row %zu: %08x", i, words[0]);
  }
}

Test(training, initial_values_stay_in_their_range) {
  tfm_parameter p = {.path = "a.weight", .rank = 2, .dims = {40, 60}, .elements = 2400};
  const double bound = sqrt(6.0 / 100);
  static float values[2400], again[2400];
  double sum = 0, squares = 0;
  p.initial = (tfm_initial){TFM_INITIAL_XAVIER_UNIFORM, 1, 0};
  draw_initial(&p, 5, values);
  draw_initial(&p, 5, again);
  cr_expect(memcmp(values, again, sizeof values) == 0);
  for (int i = 0; i < 2400; i++) {
    cr_expect(fabs((double)values[i]) <= bound);
    sum += (double)values[i];
    squares += (double)values[i] * (double)values[i];
  }
  cr_expect(fabs(sum / 2400) < 0.02);
  cr_expect(fabs(squares / 2400 - bound * bound / 3) < 0.002);
  p.initial = (tfm_initial){TFM_INITIAL_CONSTANT, 0.5, 0};
  draw_initial(&p, 5, values);
  cr_expect(values[0] == 0.5f && values[2399] == 0.5f);
}

Test(training, rates_of_schedules) {
  tfm_train_settings s = {.lr = 2, .warmup = 4, .steps = 12, .final_lr = 1, .model_size = 16, .gamma = 0.5};
  cr_expect(optimizer_rate(&s, 2, 0) == 1.0 && optimizer_rate(&s, 4, 0) == 2.0 && optimizer_rate(&s, 100, 0) == 2.0);
  s.schedule = TFM_SCHEDULE_LINEAR;
  cr_expect(optimizer_rate(&s, 8, 0) == 1.5 && optimizer_rate(&s, 12, 0) == 1.0 && optimizer_rate(&s, 50, 0) == 1.0);
  s.schedule = TFM_SCHEDULE_COSINE;
  cr_expect(fabs(optimizer_rate(&s, 8, 0) - 1.5) < 1e-12 && fabs(optimizer_rate(&s, 12, 0) - 1) < 1e-12);
  s.schedule = TFM_SCHEDULE_EXPONENTIAL;
  cr_expect(optimizer_rate(&s, 3, 2) == 1.5 && optimizer_rate(&s, 50, 0) == 2.0 && optimizer_rate(&s, 50, 2) == 0.5);
  s.schedule = TFM_SCHEDULE_NOAM;
  cr_expect(fabs(optimizer_rate(&s, 4, 0) - 0.25) < 1e-12 && fabs(optimizer_rate(&s, 2, 0) - 0.125) < 1e-12 &&
            fabs(optimizer_rate(&s, 16, 0) - 0.125) < 1e-12);
  s.schedule = TFM_SCHEDULE_INVERSE_SQRT;
  cr_expect(optimizer_rate(&s, 2, 0) == 1.0 && optimizer_rate(&s, 16, 0) == 1.0);
}

// ---- a trainer of one weight ----

/* Its graphs: the loss is the number of the part, the gradient a value for each part and step, and what is divided by the
 * number of items in the part, which its only input holds. */
typedef struct Toy {
  int64_t n; /* elements of the weight */
  bool has_base;
  tfm_parameter parameters[2]; /* one that is trained; a base, which is not */
  tfm_training training;
  const float *gradients;
  int runs;
} Toy;

static tfm_status toy_bind(void *user, const tfm_train_graph *graph, tfm_value *inputs, tfm_value *outputs,
                           int64_t *sizes, tfm_error *error) {
  (void)user, (void)graph, (void)outputs, (void)error;
  sizes[0] = *(const int32_t *)inputs[0].data;
  return TFM_OK;
}

static tfm_status toy_run(void *user, const tfm_train_graph *graph, const tfm_value *inputs, const tfm_value *outputs,
                          tfm_error *error) {
  Toy *toy = user;
  (void)error;
  if (graph == &toy->training.step.bottoms) {
    *(float *)outputs[0].data = (float)*(const int32_t *)inputs[0].data;
    return TFM_OK;
  }
  for (int64_t i = 0; i < toy->n; i++) ((float *)outputs[1].data)[i] = toy->gradients[toy->runs];
  *(float *)outputs[0].data = (float)(toy->runs + 1) * *(const float *)inputs[1].data;
  toy->runs++;
  return TFM_OK;
}

static tfm_trainer *toy_with(Toy *toy, int64_t n, const float *gradients, const tfm_trainer_options *options) {
  static const tfm_train_input inputs[] = {{TFM_FROM_BATCH, 0}, {TFM_FROM_SEED, 0}};
  static const tfm_result_part part = {1, 0, 0, TFM_NONE, TFM_NONE};
  static const tfm_train_result result = {"loss", 0, 1};
  tfm_trainer *trainer;
  tfm_error error;
  toy->n = n;
  toy->gradients = gradients;
  toy->parameters[0] = (tfm_parameter){.path = "w", .elements = n, .rank = 1, .dims = {n}, .gradient = 1, .rate = 1, .decays = 1};
  tfm_training *training = &toy->training;
  toy->parameters[1] = (tfm_parameter){.path = "base", .elements = 8, .rank = 1, .dims = {8}, .gradient = TFM_NONE};
  training->parameters = toy->parameters;
  training->frozen_bytes = toy->has_base ? 64 : 0;
  training->optimize = training->optimizer == TFM_OPTIMIZER_SGD ? tfm_optimize_sgd : tfm_optimize_adam;
  training->floats = (uint64_t)(n + 15) / 16 * 16;
  training->n_inputs = training->n_seeds = training->n_sizes = 1;
  training->n_parameters = toy->has_base ? 2 : 1;
  training->batch = 0;
  training->step = (tfm_objective){.results = &result, .parts = &part, .n_results = 1, .n_parts = 1, .n_tops = 1};
  training->step.tops = (tfm_train_graph){.inputs = inputs, .n_inputs = 2, .n_outputs = 2};
  training->step.bottoms = (tfm_train_graph){.inputs = inputs, .n_inputs = 1, .n_outputs = 1};
  const tfm_train_engine engine = {.user = toy, .bind = toy_bind, .run = toy_run};
  cr_assert(tfm_trainer_create(training, &engine, options, &trainer, &error) == TFM_OK, "%s", error.message);
  return trainer;
}

static tfm_trainer *toy_new(Toy *toy, int64_t n, const float *gradients) { return toy_with(toy, n, gradients, NULL); }

/* Gradients over parts of so many items. */
static tfm_status toy_gradients(tfm_trainer *trainer, const int32_t *items, int n, double *loss, tfm_error *error) {
  tfm_value values[16];
  for (int i = 0; i < n; i++) values[i] = (tfm_value){.data = (void *)&items[i], .dtype = TFM_I32};
  const tfm_train_parts parts = {.n = n, .values = values};
  return tfm_train_gradients(trainer, &parts, 0, loss, error);
}

static const tfm_train_settings plain = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};

/* The loss and its gradient are divided by the items of all parts; the norm is that of the sum. */
Test(training, parts_are_one_step) {
  static const float gradients[] = {3, -1};
  Toy toy = {.training = {.settings = plain}};
  tfm_trainer *trainer = toy_new(&toy, 10007, gradients);
  double loss, norm, rate;
  cr_assert(toy_gradients(trainer, (const int32_t[]){6, 2}, 2, &loss, NULL) == TFM_OK);
  cr_expect(loss == (1 + 2) * 0.125 / 8, "%g", loss);
  cr_expect(tfm_trainer_data(trainer, 0, TFM_TENSOR_GRADIENT)[10006] == 2);
  cr_assert(tfm_train_update(trainer, loss, &norm, &rate, NULL) == TFM_OK);
  cr_expect(norm == 2 * sqrt(10007.0) && rate == 0.1 && tfm_trainer_steps(trainer) == 1);
  cr_expect(tfm_train_update(trainer, loss, &norm, &rate, NULL) == TFM_E_USAGE, "gradients are used once");
  tfm_trainer_destroy(trainer);
}

Test(training, a_step_without_a_divisor_changes_nothing) {
  static const float gradients[] = {1, INFINITY};
  Toy toy = {.training = {.settings = plain}};
  tfm_trainer *trainer = toy_new(&toy, 3, gradients);
  tfm_error error;
  double loss, norm, rate;
  cr_expect(toy_gradients(trainer, (const int32_t[]){0, 0}, 2, &loss, &error) == TFM_E_INPUT);
  cr_expect(strstr(error.message, "no label that counts"), "%s", error.message);
  cr_assert(toy_gradients(trainer, (const int32_t[]){1, 1}, 2, &loss, &error) == TFM_OK);
  cr_expect(tfm_train_update(trainer, loss, &norm, &rate, &error) == TFM_E_DIVERGED);
  cr_expect(tfm_trainer_data(trainer, 0, TFM_TENSOR_WEIGHT)[0] == 0 && tfm_trainer_steps(trainer) == 0);
  toy.training.whole = "m.tfm:1:2";
  cr_expect(toy_gradients(trainer, (const int32_t[]){1, 1}, 2, &loss, &error) == TFM_E_INPUT);
  cr_expect(strcmp(error.place, "m.tfm:1:2") == 0);
  tfm_trainer_destroy(trainer);
}

Test(training, settings_out_of_range_are_refused) {
  Toy toy = {.training = {.settings = plain}};
  tfm_trainer *trainer = toy_new(&toy, 3, NULL);
  tfm_trainer_destroy(trainer);
  for (int k = 0; k < 6; k++) {
    tfm_train_settings s = plain;
    tfm_error error;
    if (k == 0) s.lr = NAN;
    if (k == 1) s.beta2 = 1;
    if (k == 2) s.schedule = TFM_SCHEDULE_NOAM;
    if (k == 3) s.schedule = TFM_SCHEDULE_COSINE;
    if (k == 4) s.clip_norm = -1;
    if (k == 5) s.schedule = 77;
    const tfm_trainer_options options = {.struct_size = sizeof options, .settings = &s};
    cr_expect(tfm_trainer_create(&toy.training, &(tfm_train_engine){0}, &options, &trainer, &error) == TFM_E_INPUT, "%d", k);
    cr_expect(!trainer && strstr(error.message, "settings of training"), "%s", error.message);
  }
}

/* Two steps of each optimizer on one number, in double. */
Test(training, updates_of_one_number) {
  static const float g[] = {0.5f, -0.25f};
  const double lr = 0.1, decay = 0.01;
  for (int k = 0; k < 5; k++) {
    Toy toy = {.training = {.optimizer = k < 3 ? TFM_OPTIMIZER_SGD : k == 3 ? TFM_OPTIMIZER_ADAM : TFM_OPTIMIZER_ADAMW,
                            .settings = plain}};
    toy.training.settings.momentum = k == 0 ? 0 : 0.9;
    toy.training.settings.nesterov = k == 2;
    toy.training.settings.weight_decay = decay;
    toy.training.settings.clip_norm = 0.125; /* halves the second gradient, quarters the first */
    tfm_trainer *trainer = toy_new(&toy, 1, g);
    float *weight = tfm_trainer_data(trainer, 0, TFM_TENSOR_WEIGHT);
    *weight = 1;
    double p = 1, m = 0, v = 0, loss, norm, rate;
    for (int t = 1; t <= 2; t++) {
      cr_assert(toy_gradients(trainer, (const int32_t[]){1}, 1, &loss, NULL) == TFM_OK);
      cr_assert(tfm_train_update(trainer, loss, &norm, &rate, NULL) == TFM_OK);
      double d = (t == 1 ? 0.125 : -0.125) + (k == 4 ? 0 : decay * p);
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
    cr_expect(fabs((double)*weight - p) < 2e-6, "optimizer %d: %g, wanted %g", k, (double)*weight, p);
    tfm_trainer_destroy(trainer);
  }
}

/* The law of docs/training.md, an element at a time: the mask of [items * per_item, rows, columns], or with the items as
 * the last axis. */
static bool is_kept(const tfm_dropout *dropout, const int64_t *dims, const MaskPlace *place, int64_t element) {
  const bool last = dropout->item_axis == 2;
  const int64_t column = element % dims[2], row = element / dims[2] % dims[1], first = element / dims[2] / dims[1];
  const int64_t item = last ? column : first / dropout->per_item;
  const uint32_t inner = last ? (uint32_t)first : (uint32_t)(first % dropout->per_item);
  const uint32_t counter[4] = {last ? 0 : (uint32_t)column / 4, inner * dropout->fold[1] + (uint32_t)row,
                               (uint32_t)(place->first_item + item), place->step};
  const uint32_t key[2] = {(uint32_t)place->seed, (uint32_t)(place->seed >> 32) ^ dropout->number};
  uint32_t words[4];
  tfm_philox(counter, key, words);
  return words[last ? 0 : column % 4] >= (uint64_t)(dropout->p * 0x1p32);
}

/* Masks follow the law for each instruction set, however threads share their lines; nothing is written behind them. */
Test(training, masks_follow_the_law) {
  enum { BEHIND = 77 };
  static uint8_t mask[64 * 7 * 1300 + 8];
  static const uint32_t features[] = {
#if defined(__x86_64__)
      0, CPU_AVX2, CPU_AVX2 | CPU_AVX512F | CPU_AVX512DQ | CPU_AVX512VL
#else
      0, 0, 0
#endif
  };
  static const int64_t shapes[][3] = {{64, 7, 40}, {62, 31, 22}, {6, 3, 1}, {4, 5, 3}, {2, 2, 1300}, {64, 7, 1031}};
  tfm_pool *pool;
  cr_assert(tfm_pool_create(3, &pool, NULL) == TFM_OK);
  for (size_t k = 0; k < 3 * 2 * sizeof shapes / sizeof *shapes; k++) {
    const int64_t *dims = shapes[k / 6], n = dims[0] * dims[1] * dims[2];
    const MaskPlace place = {.seed = 9 + (7ull << 40), .step = 3, .first_item = 5, .features = features[k % 3]};
    const tfm_dropout dropout = {.p = 0.25, .number = 1, .rank = 3, .item_axis = k / 3 % 2 ? 2 : 0,
                                 .per_item = k / 3 % 2 ? 1 : 2,
                                 .fold = {1 << 20, (uint32_t)dims[1], (uint32_t)dims[2]}};
    for (int shared = 0; shared < 2 && !(place.features & ~cpu_features()); shared++) {
      mask[n] = BEHIND;
      draw_mask(shared ? pool : NULL, &dropout, dims, &place, mask);
      cr_expect(mask[n] == BEHIND);
      for (int64_t i = 0; i < n; i++)
        cr_assert_eq(mask[i], is_kept(&dropout, dims, &place, i), "case %zu: %lld", k, (long long)i);
    }
  }
  tfm_pool_destroy(pool);
}

// ---- several ranks, each a thread ----

enum { MOST_RANKS = 4, SHARDS = 4, PARTS = 16, STEPS = 3, ELEMENTS = 40 };

typedef struct Meeting {
  pthread_barrier_t barrier;
  int32_t ranks;
  void *out[MOST_RANKS];
} Meeting;

typedef struct Member { /* a rank, and what comes of it */
  Meeting *meeting;
  int32_t rank, shards, steps;
  bool sums, spoils, spoils_base, fails;
  tfm_status status;
  tfm_error error;
  double loss, norm;
  float weights[ELEMENTS];
} Member;

static float numbers[STEPS * PARTS];

static tfm_status exchange(void *user, int32_t peer, const void *out, void *in, int64_t bytes) {
  const Member *m = user;
  m->meeting->out[m->rank] = (void *)out;
  pthread_barrier_wait(&m->meeting->barrier);
  memcpy(in, m->meeting->out[peer], (size_t)bytes);
  pthread_barrier_wait(&m->meeting->barrier);
  return TFM_OK;
}

static tfm_status sum(void *user, void *data, int64_t n, int32_t is_double) {
  const Member *m = user;
  if (m->fails) return TFM_E_ENV;
  m->meeting->out[m->rank] = data;
  pthread_barrier_wait(&m->meeting->barrier);
  double *total = calloc((size_t)n, sizeof *total);
  for (int32_t r = 0; r < m->meeting->ranks; r++)
    for (int64_t i = 0; i < n; i++)
      total[i] += is_double ? ((double *)m->meeting->out[r])[i] : (double)((float *)m->meeting->out[r])[i];
  pthread_barrier_wait(&m->meeting->barrier);
  for (int64_t i = 0; i < n; i++) {
    if (is_double) ((double *)data)[i] = total[i];
    else ((float *)data)[i] = (float)total[i];
  }
  free(total);
  return TFM_OK;
}

/* Each step has PARTS parts of one item, cut over the ranks. */
static void *train_rank(void *argument) {
  Member *m = argument;
  const int32_t ranks = m->meeting->ranks, n = PARTS / ranks;
  int32_t items[PARTS];
  float own[STEPS * PARTS];
  Toy toy = {.has_base = true, .training = {.optimizer = TFM_OPTIMIZER_ADAM, .settings = plain}};
  const tfm_trainer_options options = {.struct_size = sizeof options, .rank = m->rank, .ranks = ranks, .shards = m->shards,
                                       .sum = m->sums ? sum : NULL, .exchange = m->sums ? NULL : exchange, .user = m};
  for (int i = 0; i < PARTS; i++) items[i] = 1;
  for (int step = 0; step < STEPS; step++)
    memcpy(own + step * n, numbers + step * PARTS + m->rank * n, (size_t)n * sizeof *own);
  tfm_trainer *trainer = toy_with(&toy, ELEMENTS, own, &options);
  for (int step = 0; step < m->steps && !m->status; step++) {
    double rate;
    if (m->spoils && step == 50) tfm_trainer_data(trainer, 0, TFM_TENSOR_WEIGHT)[3] = 0.5f;
    if (m->spoils_base && step == 50) ((float *)tfm_trainer_place(trainer, 1))[7] = 0.5f;
    toy.runs = step % STEPS * n;
    m->status = toy_gradients(trainer, items, n, &m->loss, &m->error);
    if (!m->status) m->status = tfm_train_update(trainer, m->loss, &m->norm, &rate, &m->error);
  }
  memcpy(m->weights, tfm_trainer_data(trainer, 0, TFM_TENSOR_WEIGHT), sizeof m->weights);
  tfm_trainer_destroy(trainer);
  return NULL;
}

static void train_ranks(int32_t ranks, const Member *like, Member *members) {
  Meeting meeting = {.ranks = ranks};
  pthread_t threads[MOST_RANKS];
  pthread_barrier_init(&meeting.barrier, NULL, (unsigned)ranks);
  srand(7);
  for (size_t i = 0; i < STEPS * PARTS; i++) numbers[i] = (float)rand() / (float)RAND_MAX - 0.3f;
  for (int32_t r = 0; r < ranks; r++) {
    members[r] = *like;
    members[r].meeting = &meeting;
    members[r].rank = r;
    members[r].spoils = like->spoils && r == 0;
    members[r].spoils_base = like->spoils_base && r == 0;
    pthread_create(&threads[r], NULL, train_rank, &members[r]);
  }
  for (int32_t r = 0; r < ranks; r++) pthread_join(threads[r], NULL);
  pthread_barrier_destroy(&meeting.barrier);
}

Test(training, ranks_that_exchange_give_the_bits_of_one) {
  Member one[MOST_RANKS], members[MOST_RANKS];
  train_ranks(1, &(Member){.shards = SHARDS, .steps = STEPS}, one);
  cr_assert(one[0].status == TFM_OK, "%s", one[0].error.message);
  for (int32_t ranks = 2; ranks <= MOST_RANKS; ranks *= 2) {
    train_ranks(ranks, &(Member){.shards = SHARDS, .steps = STEPS}, members);
    for (int32_t r = 0; r < ranks; r++) {
      cr_assert(members[r].status == TFM_OK, "%s", members[r].error.message);
      cr_expect(memcmp(members[r].weights, one[0].weights, sizeof one[0].weights) == 0, "%d of %d", r, ranks);
      cr_expect(members[r].norm == one[0].norm);
    }
  }
  train_ranks(1, &(Member){.shards = 1, .steps = STEPS}, members);
  cr_expect(members[0].norm != one[0].norm, "another tree rounds otherwise");
}

Test(training, ranks_that_sum) {
  Member one[MOST_RANKS], members[MOST_RANKS];
  train_ranks(1, &(Member){.steps = STEPS}, one);
  train_ranks(4, &(Member){.sums = true, .steps = STEPS}, members);
  for (int32_t r = 0; r < 4; r++) {
    cr_assert(members[r].status == TFM_OK, "%s", members[r].error.message);
    cr_expect(memcmp(members[r].weights, members[0].weights, sizeof members[0].weights) == 0);
    cr_expect(fabs(members[r].norm - one[0].norm) < 1e-5 * one[0].norm);
  }
}

Test(training, ranks_that_fail_or_disagree) {
  Member members[MOST_RANKS];
  train_ranks(2, &(Member){.sums = true, .fails = true, .steps = 1}, members);
  cr_expect(members[1].status == TFM_E_ENV && strstr(members[1].error.message, "sum, the function of the caller"));
  for (int of_base = 0; of_base < 2; of_base++) {
    train_ranks(2, &(Member){.sums = true, .spoils = !of_base, .spoils_base = of_base, .steps = 120}, members);
    for (int32_t r = 0; r < 2; r++) {
      cr_expect(members[r].status == TFM_E_USAGE, "%d", members[r].status);
      cr_expect(strstr(members[r].error.message, "do not have the same weights after step 100"), "%s", members[r].error.message);
    }
  }
}

Test(training, ranks_and_shards_are_checked) {
  static const tfm_trainer_options wrong[] = {{.ranks = 2, .rank = 2, .sum = sum}, {.ranks = 2}, {.shards = 3}, {.shards = 2048},
                                              {.ranks = 3, .shards = 4, .exchange = exchange}, {.ranks = 2, .exchange = exchange},
                                              {.ranks = 2, .shards = 2, .sum = sum}, {.rank = -1}};
  Toy toy = {.training = {.settings = plain}};
  tfm_trainer *trainer = toy_new(&toy, 3, numbers);
  double loss;
  tfm_error error;
  tfm_trainer_destroy(trainer);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    tfm_trainer_options options = wrong[i];
    options.struct_size = sizeof options;
    cr_expect(tfm_trainer_create(&toy.training, &(tfm_train_engine){0}, &options, &trainer, &error) == TFM_E_USAGE, "%zu", i);
    cr_expect(strstr(error.message, "options of training"), "%s", error.message);
  }
  trainer = toy_with(&toy, 3, numbers, &(tfm_trainer_options){.struct_size = sizeof(tfm_trainer_options), .shards = 2});
  cr_expect(toy_gradients(trainer, (const int32_t[]){1, 1, 1}, 3, &loss, &error) == TFM_E_USAGE);
  cr_expect(strstr(error.message, "3 parts cannot be cut into 2 shards"), "%s", error.message);
  tfm_trainer_destroy(trainer);
}
