/* Trains by a compiled library. Compiled with -DM_(name)=<prefix>_##name, -include of the model's header, and batches.c
 * beside it, which defines `batches`, `n_batches` and `largest`.
 *
 * usage: training FOLDER STEPS ACCUMULATE SEED THREADS [[evaluate | initial | refusals | stops | load | train] [FILE]]
 * stops: after each step the trainer is saved and ended, and another goes on from the file.
 * Weights are read from FOLDER/weight.PATH where that file exists; results, gradients of the first step and weights at
 * the end are written to FOLDER/out.NAME as raw f32. From the second step on nothing may be allocated. ROUNDING in
 * the environment, a place in `modes`, is how the caller rounds, which must be the same at the end. Exit code 1 and a line
 * on stderr after an error. */
#define _POSIX_C_SOURCE 200809L
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches.c"

enum { MOST_PARTS = 16 };

static const char *folder;
static int allocations;

static void *count_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  allocations++;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void count_release(void *user, void *memory, size_t bytes) {
  (void)user, (void)bytes;
  free(memory);
}

static void fail(const char *what, const tfm_error *error) {
  fprintf(stderr, "%s: status %d: %s%s%s\n", what, error->status, error->place ? error->place : "", error->place ? ": " : "",
          error->message);
  exit(1);
}

static void put(const char *name, const float *data, size_t n) {
  char path[4096];
  snprintf(path, sizeof path, "%s/out.%s", folder, name);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, sizeof *data, n, file) != n || fclose(file)) abort();
}

static size_t elements(const int64_t *dims, int32_t rank) {
  size_t n = 1;
  for (int32_t i = 0; i < rank; i++) n *= (size_t)dims[i];
  return n;
}

/* Calls `visit` for each weight that has such a tensor, with its name and its numbers. */
static void each_tensor(M_(trainer) * trainer, tfm_train_tensor which, const char *prefix,
                        void (*visit)(const char *name, float *data, size_t n)) {
  const char *path;
  for (int64_t i = 0; (path = M_(trainer_path)(trainer, i)); i++) {
    char name[4096];
    int64_t dims[8];
    int32_t rank;
    float *data;
    snprintf(name, sizeof name, "%s%s", prefix, path);
    if (!M_(trainer_tensor)(trainer, path, which, &data, dims, &rank, NULL)) visit(name, data, elements(dims, rank));
  }
}

static void read_weight(const char *name, float *data, size_t n) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  if (!file) return;
  if (fread(data, sizeof *data, n, file) != n) abort();
  fclose(file);
}

static void put_weight(const char *name, float *data, size_t n) { put(name, data, n); }

/* A line for each weight: its path, and its sizes with an x between. */
static void put_shapes(M_(trainer) * trainer) {
  char path[4096];
  const char *name;
  snprintf(path, sizeof path, "%s/shapes", folder);
  FILE *file = fopen(path, "w");
  for (int64_t i = 0; file && (name = M_(trainer_path)(trainer, i)); i++) {
    int64_t dims[8];
    int32_t rank;
    float *data;
    if (M_(trainer_tensor)(trainer, name, TFM_TENSOR_WEIGHT, &data, dims, &rank, NULL)) abort();
    fprintf(file, "%s ", name);
    for (int32_t k = 0; k < rank; k++) fprintf(file, "%s%lld", k ? "x" : "", (long long)dims[k]);
    fprintf(file, "\n");
  }
  if (!file || fclose(file)) abort();
}

/* As runtime/library/open.h has it: a model whose weights a trainer packed has them in a block of its own. */
struct packed_model {
  const void *library, *program, *decoding, *packed;
  void *mapping;
  size_t mapping_bytes;
};

/* The packed weights of the model that the trainer makes, and perhaps what they were made of. */
static void put_model(M_(trainer) * trainer) {
  M_(model) * made;
  tfm_error error;
  if (M_(trainer_model)(trainer, &made, &error)) fail("model", &error);
  const struct packed_model *model = (const void *)made;
  if (model->mapping) put("packed", model->packed, model->mapping_bytes / sizeof(float));
  M_(close)(made);
}

static void put_results(const tfm_step_result *result) {
  float numbers[TFM_MAX_RESULTS];
  for (int i = 0; i < TFM_MAX_RESULTS; i++) numbers[i] = (float)result->results[i];
  put("results", numbers, TFM_MAX_RESULTS);
}

/* The first step by its two halves, the others whole. */
static void train(M_(trainer) *trainer, int64_t steps, int64_t accumulate) {
  M_(objective_args) parts[MOST_PARTS];
  tfm_step_result result = {.struct_size = sizeof result};
  tfm_error error;
  int after_first = 0;
  if (accumulate > MOST_PARTS) abort();
  if (M_(trainer_reserve)(trainer, &largest, &error)) fail("reserve", &error);
  for (int64_t k = 0; k < steps; k++) {
    for (int64_t i = 0; i < accumulate; i++) parts[i] = batches[(k * accumulate + i) % n_batches];
    M_(trainer_set_epoch)(trainer, k * accumulate / n_batches);
    if (k) {
      if (M_(trainer_step)(trainer, parts, accumulate, 0, &result, &error)) fail("step", &error);
    } else {
      if (M_(trainer_gradients)(trainer, parts, accumulate, 0, &result, &error)) fail("gradients", &error);
      put_results(&result);
      each_tensor(trainer, TFM_TENSOR_GRADIENT, "grad.", put_weight);
      if (M_(trainer_update)(trainer, &result, &error)) fail("update", &error);
      after_first = allocations;
    }
    if (result.step != k + 1 || M_(trainer_steps)(trainer) != k + 1) abort();
  }
  if (allocations != after_first) {
    fprintf(stderr, "%d allocations after the first step\n", allocations - after_first);
    exit(1);
  }
}

/* Each step by another trainer, which knows no more than the file of the one before. */
static M_(trainer) *stop_and_go(M_(trainer) *trainer, int64_t steps) {
  tfm_step_result result = {.struct_size = sizeof result};
  tfm_error error;
  char checkpoints[4096], state[8192];
  int64_t bytes;
  snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", folder);
  for (int64_t k = 0; k < steps; k++) {
    if (M_(trainer_step)(trainer, &batches[k % n_batches], 1, 0, &result, &error)) fail("step", &error);
    if (M_(trainer_save)(trainer, checkpoints, &k, sizeof k, &error)) fail("save", &error);
    M_(trainer_free)(trainer);
    snprintf(state, sizeof state, "%s/step-%08lld/state.tfmt", checkpoints, (long long)k + 1);
    if (M_(trainer_new)(state, NULL, &trainer, &error)) fail("new", &error);
    const void *note = M_(trainer_note)(trainer, &bytes);
    if (!note || bytes != sizeof k || memcmp(note, &k, sizeof k) != 0 || M_(trainer_steps)(trainer) != k + 1) abort();
  }
  return trainer;
}

#ifdef REFUSALS
static void expect(int got, tfm_status wanted, const char *what, const char *words, const tfm_error *error) {
  if (got == (int)wanted && strstr(error->message, words)) return;
  fprintf(stderr, "%s: status %d, wanted %d: %s\n", what, got, wanted, error->message);
  exit(1);
}

/* What is called wrongly is refused, and the next step is as if nothing had happened. */
static void refusals(M_(trainer) *trainer) {
  M_(objective_args) part = batches[0];
  tfm_step_result result = {.struct_size = sizeof result};
  tfm_error error;
  float *data, before;
  if (M_(trainer_tensor)(trainer, M_(trainer_path)(trainer, 0), TFM_TENSOR_WEIGHT, &data, NULL, NULL, &error)) abort();
  before = *data;
  expect(M_(trainer_step)(NULL, &part, 1, 0, &result, &error), TFM_E_USAGE, "no trainer", "trainer is a null", &error);
  expect(M_(trainer_step)(trainer, NULL, 1, 0, &result, &error), TFM_E_USAGE, "no args", "at least one is needed", &error);
  expect(M_(trainer_step)(trainer, &part, 0, 0, &result, &error), TFM_E_USAGE, "no part", "at least one is needed", &error);
  expect(M_(trainer_update)(trainer, &result, &error), TFM_E_USAGE, "update", "no gradients", &error);
  expect(M_(trainer_tensor)(trainer, "a.b", 0, &data, NULL, NULL, &error), TFM_E_INPUT, "tensor", "no weight 'a.b'", &error);
  part.struct_size = 8;
  expect(M_(trainer_step)(trainer, &part, 1, 0, &result, &error), TFM_E_USAGE, "struct_size", "too small", &error);
  part = batches[0];
  part.ids = NULL;
  expect(M_(trainer_step)(trainer, &part, 1, 0, &result, &error), TFM_E_USAGE, "input", "null pointer", &error);
  part = batches[0];
  part.batch = -1;
  expect(M_(trainer_step)(trainer, &part, 1, 0, &result, &error), TFM_E_INPUT, "size", "negative", &error);
  expect(M_(trainer_reserve)(trainer, &part, &error), TFM_E_INPUT, "reserve", "negative", &error);
  if (M_(trainer_bytes)(NULL, &part) != -1 || M_(trainer_bytes)(NULL, &largest) < 1000) abort();
  expect(M_(trainer_step)(trainer, &batches[1], 1, 0, &result, &error), TFM_E_INPUT, "label", "in step 1, in batch 0", &error);
  expect(M_(trainer_step)(trainer, &batches[2], 1, 0, &result, &error), TFM_E_INPUT, "ignored", "no label that counts", &error);
  if (M_(trainer_tensor)(trainer, M_(trainer_path)(trainer, 0), TFM_TENSOR_WEIGHT, &data, NULL, NULL, &error)) abort();
  if (*data != before || M_(trainer_steps)(trainer) != 0) abort();
  tfm_train_settings settings;
  M_(trainer) *other;
  M_(training_defaults)(&settings);
  settings.lr = -1;
  const tfm_trainer_options options = {.struct_size = sizeof options, .settings = &settings};
  expect(M_(trainer_new)(NULL, &options, &other, &error), TFM_E_INPUT, "settings", "lr and eps", &error);
  settings.lr = 1e30;
  settings.clip_norm = 0;
  if (M_(trainer_new)(NULL, &options, &other, &error)) fail("new", &error);
  int status = 0;
  for (int i = 0; i < 9 && !status; i++) status = M_(trainer_step)(other, batches, 1, 0, &result, &error);
  expect(status, TFM_E_DIVERGED, "diverged", "training diverged in step", &error);
  M_(trainer_free)(other);
  M_(trainer_free)(NULL);
  if (M_(trainer_step)(trainer, batches, 1, 0, &result, &error)) fail("the step after all", &error);
  if (M_(trainer_evaluate)(trainer, batches, 1, NULL, &error)) fail("evaluate", &error);
}

#endif

static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

int main(int n, char **words) {
  if (n < 6) return 2;
  folder = words[1];
  const char *mode = n > 6 ? words[6] : "train";
  const tfm_trainer_options options = {.struct_size = sizeof options,
                                       .seed = strtoull(words[4], NULL, 10),
                                       .threads = atoi(words[5]),
                                       .fills = 1,
                                       .allocator = {count_allocate, count_release, NULL}};
  M_(trainer) *trainer;
  tfm_error error;
  const int rounding = getenv("ROUNDING") ? modes[atoi(getenv("ROUNDING"))] : FE_TONEAREST;
  if (fesetround(rounding)) return 2;
  if (M_(trainer_new)(n > 7 ? words[7] : NULL, &options, &trainer, &error)) fail("new", &error);
  put_shapes(trainer);
  each_tensor(trainer, TFM_TENSOR_WEIGHT, "weight.", read_weight);
  if (strcmp(mode, "evaluate") == 0) {
    tfm_step_result result = {.struct_size = sizeof result};
    if (M_(trainer_evaluate)(trainer, batches, n_batches, &result, &error)) fail("evaluate", &error);
    put_results(&result);
  } else if (strcmp(mode, "refusals") == 0) {
#ifdef REFUSALS
    refusals(trainer);
#endif
  } else if (strcmp(mode, "stops") == 0) {
    trainer = stop_and_go(trainer, strtoll(words[2], NULL, 10));
  } else if (strcmp(mode, "initial") != 0 && strcmp(mode, "load") != 0) {
    train(trainer, strtoll(words[2], NULL, 10), strtoll(words[3], NULL, 10));
  }
  if (strcmp(mode, "evaluate") != 0) each_tensor(trainer, TFM_TENSOR_WEIGHT, "after.", put_weight);
  put_model(trainer);
  M_(trainer_free)(trainer);
  return fegetround() != rounding;
}
