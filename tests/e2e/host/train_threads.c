/* Trainers of one compiled model in many threads: what each learns is what a trainer with one thread learns, to the bit.
 *
 * usage: train_threads RUNS FOLDER. Callers have trainers with one to three threads, or of a shared pool; half of them are
 * disturbed by another thread, which saves, evaluates, takes the model and cancels: it is refused while a step runs, or
 * the step is, and is done again. A step is cancelled a few times only, or it would never end on a machine where the other
 * thread always finds a processor. Then one, two and four threads are ranks that exchange what they have. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pupil.h"

#include "callers.h"

enum { CALLERS = 6, STEPS = 6, CANCELS = 3, PARTS = 4, ITEMS = 4, TIME = 36, RANKS = 4, WEIGHTS = 60 * 32 + 2 * 12704 + 36 * 33 };

static const char *folder;
static tfm_pool *pool;
static int32_t ids[PARTS * ITEMS * TIME], labels[PARTS * ITEMS * TIME];
static pupil_objective_args parts[PARTS];
static float expected[WEIGHTS], expected_of_shards[WEIGHTS];

static pupil_trainer *trainer_of(const tfm_trainer_options *options) {
  pupil_trainer *trainer;
  tfm_error error;
  if (!pupil_trainer_new(NULL, options, &trainer, &error)) return trainer;
  fprintf(stderr, "%s\n", error.message);
  exit(1);
}

static tfm_trainer_options options_of(int32_t threads, tfm_pool *shared) {
  return (tfm_trainer_options){.struct_size = sizeof(tfm_trainer_options), .seed = 7, .threads = threads,
                               .spin_us = threads > 2 ? -1 : 20, .pool = shared};
}

static void copy_weights(pupil_trainer *trainer, float *to) {
  const char *path;
  size_t at = 0;
  for (int64_t i = 0; (path = pupil_trainer_path(trainer, i)); i++) {
    int64_t dims[8];
    int32_t rank;
    float *data;
    size_t n = 1;
    if (pupil_trainer_tensor(trainer, path, TFM_TENSOR_WEIGHT, &data, dims, &rank, NULL)) abort();
    for (int32_t k = 0; k < rank; k++) n *= (size_t)dims[k];
    if (at + n > WEIGHTS) abort();
    memcpy(to + at, data, n * sizeof *to);
    at += n;
  }
  if (at != WEIGHTS) abort();
}

static bool has_learnt(pupil_trainer *trainer, const float *wanted) {
  float *weights = malloc(WEIGHTS * sizeof *weights);
  copy_weights(trainer, weights);
  const bool same = memcmp(weights, wanted, WEIGHTS * sizeof *weights) == 0;
  free(weights);
  return same;
}

// ---- trainers beside each other ----

typedef struct Intruder {
  pthread_t thread;
  pupil_trainer *trainer;
  atomic_bool done;
  atomic_int cancels; /* left for the step that is to be done */
  int number, failed;
} Intruder;

static bool is_usual(tfm_status status) { return !status || status == TFM_E_USAGE || status == TFM_E_CANCELLED; }

static tfm_status run_model(pupil_trainer *trainer) {
  float *logits = malloc(ITEMS * TIME * 60 * sizeof *logits);
  const pupil_args args = {.struct_size = sizeof args, .batch = ITEMS, .time = TIME, .ids = ids, .logits = logits,
                           .logits_capacity = ITEMS * TIME * 60};
  pupil_model *model;
  pupil_context *context = NULL;
  tfm_status status = pupil_trainer_model(trainer, &model, NULL);
  if (!status) status = pupil_context_new(model, NULL, &context, NULL);
  if (!status) status = pupil_forward(context, &args, NULL);
  pupil_context_free(context);
  pupil_close(model);
  free(logits);
  return status;
}

static void *intrude(void *argument) {
  Intruder *intruder = argument;
  char own[4096];
  snprintf(own, sizeof own, "%s/%d", folder, intruder->number);
  for (int i = 0; !atomic_load(&intruder->done); i++) {
    tfm_step_result result = {.struct_size = sizeof result};
    if (i % 4 == 0) intruder->failed += !is_usual(pupil_trainer_save(intruder->trainer, own, "note", 4, NULL));
    if (i % 4 == 1) intruder->failed += !is_usual(pupil_trainer_evaluate(intruder->trainer, parts, 1, &result, NULL));
    if (i % 4 == 2) intruder->failed += !is_usual(run_model(intruder->trainer));
    if (i % 16 == 3 && atomic_load(&intruder->cancels)) {
      atomic_fetch_sub(&intruder->cancels, 1);
      pupil_trainer_cancel(intruder->trainer);
    }
  }
  return NULL;
}

static tfm_status step(pupil_trainer *trainer, int64_t first, int64_t n, tfm_error *error) {
  tfm_step_result result = {.struct_size = sizeof result};
  tfm_status status;
  do status = pupil_trainer_step(trainer, parts + first, n, first * ITEMS, &result, error);
  while (status == TFM_E_USAGE || status == TFM_E_CANCELLED);
  return status;
}

static void *call(void *argument) {
  Caller *caller = argument;
  for (int run = 0; run < caller->runs && !caller->failed; run++) {
    const tfm_trainer_options options = options_of(1 + (caller->number + run) % 3, caller->number % 3 == 2 ? pool : NULL);
    Intruder intruder = {.trainer = trainer_of(&options), .number = caller->number};
    const bool disturbed = caller->number % 2;
    tfm_status status = TFM_OK;
    if (disturbed && pthread_create(&intruder.thread, NULL, intrude, &intruder)) abort();
    for (int i = 0; i < STEPS && !status; i++) {
      atomic_store(&intruder.cancels, CANCELS);
      status = step(intruder.trainer, 0, PARTS, &caller->error);
    }
    atomic_store(&intruder.done, true);
    if (disturbed) pthread_join(intruder.thread, NULL);
    caller->failed += status || intruder.failed || !has_learnt(intruder.trainer, expected);
    pupil_trainer_free(intruder.trainer);
  }
  return NULL;
}

// ---- threads as ranks ----

typedef struct Rank {
  pthread_t thread;
  int number, ranks;
  bool failed;
} Rank;

static const void *offered[RANKS];
static pthread_barrier_t meetings[RANKS][RANKS]; /* of two ranks, the lesser first */

static tfm_status exchange(void *user, int32_t peer, const void *out, void *in, int64_t bytes) {
  const Rank *rank = user;
  const int own = rank->number;
  pthread_barrier_t *meeting = own < peer ? &meetings[own][peer] : &meetings[peer][own];
  offered[own] = out;
  pthread_barrier_wait(meeting);
  memcpy(in, offered[peer], (size_t)bytes);
  pthread_barrier_wait(meeting);
  return TFM_OK;
}

static void *train_as_rank(void *argument) {
  Rank *rank = argument;
  const int n = PARTS / rank->ranks;
  tfm_trainer_options options = options_of(1 + rank->number % 2, NULL);
  tfm_error error;
  options.rank = rank->number;
  options.ranks = rank->ranks;
  options.shards = PARTS;
  options.exchange = exchange;
  options.user = rank;
  pupil_trainer *trainer = trainer_of(&options);
  for (int i = 0; i < STEPS && !rank->failed; i++) rank->failed = step(trainer, rank->number * n, n, &error) != TFM_OK;
  if (rank->failed) fprintf(stderr, "rank %d: %s\n", rank->number, error.message);
  if (rank->ranks == 1) copy_weights(trainer, expected_of_shards);
  rank->failed = rank->failed || !has_learnt(trainer, expected_of_shards);
  pupil_trainer_free(trainer);
  return NULL;
}

static int train_by_ranks(int ranks) {
  Rank all[RANKS];
  int failed = 0;
  for (int i = 0; i < ranks; i++) {
    all[i] = (Rank){.number = i, .ranks = ranks};
    if (pthread_create(&all[i].thread, NULL, train_as_rank, &all[i])) abort();
  }
  for (int i = 0; i < ranks; i++) {
    pthread_join(all[i].thread, NULL);
    failed += all[i].failed;
  }
  return failed;
}

// ---- all of it ----

static bool prepare(void) {
  for (int i = 0; i < PARTS * ITEMS * TIME; i++) {
    ids[i] = i % TIME > 20 + i / TIME ? 0 : 1 + i * 37 % 59;
    labels[i] = ids[i] ? 1 + ids[i] % 7 : 0;
  }
  for (int i = 0; i < PARTS; i++)
    parts[i] = (pupil_objective_args){.struct_size = sizeof parts[i], .batch = ITEMS, .time = TIME,
                                      .ids = ids + i * ITEMS * TIME, .labels = labels + i * ITEMS * TIME};
  for (int i = 0; i < RANKS; i++)
    for (int k = i + 1; k < RANKS; k++) pthread_barrier_init(&meetings[i][k], NULL, 2);
  const tfm_trainer_options options = options_of(1, NULL);
  pupil_trainer *trainer = trainer_of(&options);
  tfm_status status = TFM_OK;
  for (int i = 0; i < STEPS && !status; i++) status = step(trainer, 0, PARTS, NULL);
  copy_weights(trainer, expected);
  pupil_trainer_free(trainer);
  return !status && !pupil_pool_new(3, &pool, NULL);
}

/* A checkpoint that was written between steps is whole, whichever it was. */
static int go_on_from(int number) {
  char path[4096];
  pupil_trainer *trainer;
  tfm_error error;
  int failed = 0;
  for (int i = 0; i <= STEPS; i++) {
    snprintf(path, sizeof path, "%s/%d/step-%08d/state.tfmt", folder, number, i);
    FILE *file = fopen(path, "rb");
    if (!file) continue;
    fclose(file);
    if (pupil_trainer_new(path, NULL, &trainer, &error)) {
      fprintf(stderr, "%s\n", error.message);
      failed++;
      continue;
    }
    while (pupil_trainer_steps(trainer) < STEPS && !step(trainer, 0, PARTS, NULL)) continue;
    failed += !has_learnt(trainer, expected);
    pupil_trainer_free(trainer);
  }
  return failed;
}

int main(int argc, char **argv) {
  static Caller callers[CALLERS];
  if (argc != 3) return 2;
  folder = argv[2];
  if (!prepare()) return 2;
  int failed = run_callers(callers, CALLERS, atoi(argv[1]), call), apart = 0;
  for (int i = 1; i < CALLERS; i += 2) failed += go_on_from(i);
  for (int ranks = 1; ranks <= RANKS; ranks *= 2) apart += train_by_ranks(ranks);
  if (failed || apart) fprintf(stderr, "wrong: %d runs of many threads, %d ranks\n", failed, apart);
  pupil_pool_free(pool);
  return failed || apart;
}
