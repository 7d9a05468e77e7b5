/* libtfm: models of texts that are trained while a program runs. They have the bytes of `tfmc train`, and of the library
 * that `tfmc compile --training` makes, opened without its header. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/temporary.h"
#include "check.h"
#include "small_model.h"
#include "tfm/abi/program.h"

enum { STEPS = 5, TIME = 3, WORDS = 7, D = 4, VALUES = 2 /* of a part */, MOST = WORDS * D };

#define OBJECTIVE                                                                                            \
  "  embed = Embedding(7, 4)\n"                                                                              \
  "  head = Linear(4, 7)\n"                                                                                  \
  "  forward(ids: i32[batch, time]) { return logits = ids -> embed -> Dropout(0.1) -> head }\n"              \
  "  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {\n"                                      \
  "    logits = forward(ids)\n"                                                                              \
  "    return loss = cross_entropy(logits, labels, ignore_index = 0),\n"                                     \
  "           right = sum(sum(f32(argmax(logits) == labels)))\n"                                             \
  "  }\n"
static const char text[] = "model Tiny {\n" OBJECTIVE "  train objective { lr = 0.1  clip_norm = 1 }\n}\n";

static char folder[TEMPORARY_BYTES], file_name[2 * TEMPORARY_BYTES];

static char *in_folder(const char *name) {
  snprintf(file_name, sizeof file_name, "%s/%s", folder, name);
  return file_name;
}

// ---- batches: in memory, and as a file for the command ----

static int32_t ids[2][2 * TIME] = {{1, 2, 3, 4, 5, 6}, {3, 1, 0}}, labels[2][2 * TIME] = {{2, 3, 4, 5, 6, 1}, {1, 3, 0}};
static const int64_t dims[2][2] = {{2, TIME}, {1, TIME}};

static void write_batches(const char *path) {
  static const char header[] =
      "{\"ids@0\":{\"dtype\":\"I32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
      "\"labels@0\":{\"dtype\":\"I32\",\"shape\":[2,3],\"data_offsets\":[24,48]},"
      "\"ids@1\":{\"dtype\":\"I32\",\"shape\":[1,3],\"data_offsets\":[48,60]},"
      "\"labels@1\":{\"dtype\":\"I32\",\"shape\":[1,3],\"data_offsets\":[60,72]}}";
  const uint64_t length = sizeof header - 1;
  FILE *file = fopen(path, "wb");
  fwrite(&length, sizeof length, 1, file);
  fwrite(header, length, 1, file);
  for (int part = 0; part < 2; part++) {
    fwrite(ids[part], sizeof(int32_t), (size_t)(dims[part][0] * TIME), file);
    fwrite(labels[part], sizeof(int32_t), (size_t)(dims[part][0] * TIME), file);
  }
  fclose(file);
}

/* The values of both parts. */
static void fill_values(tfm_value values[2 * VALUES]) {
  for (int part = 0; part < 2; part++) {
    values[part * VALUES] = (tfm_value){ids[part], 1, 2, dims[part]};
    values[part * VALUES + 1] = (tfm_value){labels[part], 1, 2, dims[part]};
  }
}

/* The numbers of a tensor in a safetensors file; how many there are. */
static int read_tensor(const char *path, const char *name, float *numbers) {
  static char bytes[1 << 16];
  char key[100];
  uint64_t length = 0;
  long begin = 0, end = 0;
  FILE *file = fopen(path, "rb");
  const size_t n = file ? fread(bytes, 1, sizeof bytes - 1, file) : 0;
  if (file) fclose(file);
  if (n > sizeof length) memcpy(&length, bytes, sizeof length);
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *at = length ? strstr(bytes + sizeof length, key) : NULL;
  at = at ? strstr(at, "data_offsets") : NULL;
  if (!at || sscanf(at, "data_offsets\":[%ld,%ld]", &begin, &end) != 2 || end - begin > MOST * 4) return 0;
  memcpy(numbers, bytes + sizeof length + length + begin, (size_t)(end - begin));
  return (int)((end - begin) / 4);
}

static int command(const char *words) {
  char line[4 * TEMPORARY_BYTES];
  snprintf(line, sizeof line, "cd '%s' && \"$TFM_COMPILER\" %s", folder, words);
  return system(line);
}

// ---- trainers ----

static tfm_compile_options training_options(void) {
  tfm_compile_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.text = text;
  options.training = 1;
  return options;
}

static void train(tfm_trainer *trainer, int from, int to) {
  tfm_value values[2 * VALUES];
  tfm_step_result result = {.struct_size = sizeof result};
  tfm_error error;
  fill_values(values);
  for (int i = from; i < to; i++)
    CHECK(tfm_trainer_step(trainer, values, 2, 0, &result, &error) == TFM_OK && result.step == i + 1, "%s",
          error.message);
}

/* The tensors of the trainer are those of the file, whose names begin with `prefix`. */
static void expect_weights(tfm_trainer *trainer, const char *path, const char *prefix) {
  float numbers[MOST];
  int n_paths = 0;
  for (const char *name; (name = tfm_trainer_path(trainer, n_paths)); n_paths++) {
    char key[100];
    float *data = NULL;
    int64_t shape[8];
    int32_t rank = 0;
    tfm_error error;
    snprintf(key, sizeof key, "%s%s", prefix, name);
    tfm_trainer_tensor(trainer, name, TFM_TENSOR_WEIGHT, &data, shape, &rank, &error);
    const int64_t n = rank == 2 ? shape[0] * shape[1] : shape[0];
    CHECK(read_tensor(path, key, numbers) == n, "%s", key);
    CHECK(data && memcmp(data, numbers, (size_t)n * sizeof(float)) == 0, "%s", name);
  }
  CHECK(n_paths == 3, "%d", n_paths);
}

static tfm_trainer *trainer_of_seed(const tfm_compiled *compiled, const char *state, uint64_t seed) {
  tfm_trainer_options options;
  tfm_trainer *trainer = NULL;
  tfm_error error;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.seed = seed;
  options.threads = 2;
  CHECK(tfm_compiled_trainer(compiled, state, &options, &trainer, &error) == TFM_OK, "%s", error.message);
  return trainer;
}

static tfm_trainer *trainer_of(const tfm_compiled *compiled, const char *state) {
  return trainer_of_seed(compiled, state, 7);
}

/* What a trainer says of its objective. */
static void test_description(const tfm_trainer *trainer) {
  uint32_t n = 0;
  tfm_train_settings settings;
  const tfm_tensor_info *inputs = tfm_trainer_inputs(trainer, &n);
  CHECK(n == 2 && strcmp(inputs[0].name, "ids") == 0 && inputs[1].dtype == TFM_I32, "%u", n);
  CHECK(strcmp(tfm_trainer_result(trainer, 1), "right") == 0 && !tfm_trainer_result(trainer, 2), "the results");
  tfm_trainer_settings(trainer, &settings);
  CHECK(settings.lr == 0.1 && settings.clip_norm == 1, "%g", settings.lr);
}

static void test_evaluation(tfm_trainer *trainer) {
  tfm_value values[2 * VALUES];
  tfm_step_result result = {.struct_size = sizeof result}, again = result;
  tfm_error error;
  fill_values(values);
  CHECK(tfm_trainer_evaluate(trainer, values, 2, &result, &error) == TFM_OK, "%s", error.message);
  CHECK(result.loss > 0 && result.results[0] == result.loss && result.results[1] >= 0, "%g", result.loss);
  CHECK(tfm_trainer_evaluate(trainer, values, 2, &again, &error) == TFM_OK && again.loss == result.loss, "%g",
        again.loss);
}

/* The model computes what the weights say, and goes on doing so without its trainer. */
static void test_model(tfm_trainer *trainer) {
  tfm_model *model = NULL;
  tfm_context *context = NULL;
  tfm_error error;
  float logits[2][2 * TIME * WORDS];
  const int64_t logits_dims[] = {2, TIME, WORDS};
  const tfm_value input = {ids[0], 1, 2, dims[0]};
  CHECK(tfm_trainer_model(trainer, &model, &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_model_context(model, NULL, &context, &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_context_bind(context, &input, &error) == TFM_OK, "%s", error.message);
  for (int i = 0; i < 2; i++) {
    const tfm_value output = {logits[i], 0, 3, logits_dims};
    CHECK(tfm_context_run(context, &input, &output, &error) == TFM_OK, "%s", error.message);
    train(trainer, STEPS + i, STEPS + i + 1);
  }
  CHECK(memcmp(logits[0], logits[1], sizeof logits[0]) == 0, "the model changed with its trainer");
  tfm_context_destroy(context);
  tfm_model_close(model);
}

// ---- the same bytes as of the command ----

static void test_bytes(const tfm_compiled *compiled) {
  char state[2 * TEMPORARY_BYTES + 40];
  tfm_error error;
  tfm_trainer *trainer = trainer_of(compiled, NULL);
  test_description(trainer);
  train(trainer, 0, 2);
  CHECK(tfm_trainer_save(trainer, in_folder("run"), "note", 5, &error) == TFM_OK, "%s", error.message);
  tfm_trainer_destroy(trainer);
  snprintf(state, sizeof state, "%s/step-00000002/state.tfmt", in_folder("run"));
  trainer = trainer_of(compiled, state);
  int64_t bytes = 0;
  const char *note = tfm_trainer_note(trainer, &bytes);
  CHECK(bytes == 5 && strcmp(note, "note") == 0 && tfm_trainer_steps(trainer) == 2, "%lld", (long long)bytes);
  train(trainer, 2, STEPS);
  expect_weights(trainer, in_folder("command.safetensors"), "after.");
  test_evaluation(trainer);
  test_model(trainer);
  tfm_trainer_destroy(trainer);
}

/* The library's own file, and what the compiler made in memory, kept in a file. */
static void test_files(const tfm_compiled *compiled) {
  tfm_trainer_options options;
  tfm_trainer *trainer = NULL;
  tfm_compiled *mapped = NULL;
  tfm_error error;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.seed = 7;
  CHECK(tfm_trainer_open(in_folder("libtiny.so"), NULL, &options, &trainer, &error) == TFM_OK, "%s", error.message);
  train(trainer, 0, STEPS);
  expect_weights(trainer, in_folder("command.safetensors"), "after.");
  test_model(trainer);
  tfm_model *model = NULL;
  CHECK(tfm_trainer_model(trainer, &model, &error) == TFM_OK, "%s", error.message);
  tfm_trainer_destroy(trainer);
  CHECK(tfm_model_program(model)->n_inputs == 1, "a model that outlives its trainer");
  tfm_model_close(model);
  CHECK(tfm_compiled_save(compiled, in_folder("tiny.tfmm"), &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_model_map(in_folder("tiny.tfmm"), &mapped, &error) == TFM_OK, "%s", error.message);
  CHECK(!tfm_compiled_model(mapped), "a model without weights");
  trainer = trainer_of(mapped, NULL);
  train(trainer, 0, STEPS);
  expect_weights(trainer, in_folder("command.safetensors"), "after.");
  tfm_trainer_destroy(trainer);
  tfm_compiled_free(mapped);
}

/* They can be released once a trainer has its own; a file has those of a trainer then. */
static void test_released_weights(tfm_compiled *compiled) {
  tfm_trainer *trainer = trainer_of(compiled, NULL), *none = NULL;
  tfm_error error;
  CHECK(tfm_compiled_release_weights(compiled, &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_compiled_release_weights(compiled, &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_compiled_trainer(compiled, NULL, NULL, &none, &error) == TFM_E_USAGE && strstr(error.message, "released"),
        "%s", error.message);
  CHECK(tfm_compiled_save(compiled, in_folder("x.tfmm"), &error) == TFM_E_USAGE, "%s", error.message);
  train(trainer, 0, 2);
  CHECK(tfm_compiled_save_trainer(compiled, trainer, in_folder("x.tfmm"), &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_trainer_save(trainer, in_folder("released"), NULL, 0, &error) == TFM_OK, "%s", error.message);
  tfm_compiled *mapped = NULL;
  CHECK(tfm_model_map(in_folder("x.tfmm"), &mapped, &error) == TFM_OK, "%s", error.message);
  tfm_trainer *again = trainer_of(mapped, NULL);
  expect_weights(again, in_folder("released/step-00000002/weights.safetensors"), "");
  CHECK(tfm_trainer_steps(again) == 0, "steps of a trainer that begins");
  tfm_trainer_destroy(again);
  tfm_compiled_free(mapped);
  again = trainer_of(compiled, in_folder("released/step-00000002/state.tfmt")); /* a state is enough */
  train(again, 2, 3);
  train(trainer, 2, 3);
  CHECK(tfm_trainer_save(trainer, in_folder("released"), NULL, 0, &error) == TFM_OK, "%s", error.message);
  expect_weights(again, in_folder("released/step-00000003/weights.safetensors"), "");
  tfm_trainer_destroy(again);
  tfm_trainer_destroy(trainer);
}

/* Some begin with initial values although the others are given, of the trainer's seed. */
static void test_new_weights(tfm_compile_options options) {
  static const char *const patterns[] = {"head.*"};
  float *own = NULL, *fresh = NULL;
  tfm_compiled *compiled = NULL, *plain = NULL;
  tfm_error error;
  options.n_weights = 1;
  options.new_weights = patterns;
  options.n_new_weights = 1;
  options.recompute = "layer";
  CHECK(tfm_compile(&options, &compiled, &error) == TFM_OK, "%s", error.message);
  options = training_options();
  CHECK(tfm_compile(&options, &plain, &error) == TFM_OK, "%s", error.message);
  tfm_trainer *trainer = trainer_of_seed(compiled, NULL, 9), *other = trainer_of_seed(plain, NULL, 9);
  tfm_trainer_tensor(trainer, "head.weight", TFM_TENSOR_WEIGHT, &own, NULL, NULL, &error);
  tfm_trainer_tensor(other, "head.weight", TFM_TENSOR_WEIGHT, &fresh, NULL, NULL, &error);
  CHECK(own && fresh && !memcmp(own, fresh, MOST * sizeof *own), "a weight that is new");
  tfm_trainer_tensor(trainer, "embed.weight", TFM_TENSOR_WEIGHT, &own, NULL, NULL, &error);
  tfm_trainer_tensor(other, "embed.weight", TFM_TENSOR_WEIGHT, &fresh, NULL, NULL, &error);
  CHECK(own && fresh && memcmp(own, fresh, MOST * sizeof *own), "a weight that is given");
  tfm_trainer_destroy(trainer);
  tfm_trainer_destroy(other);
  tfm_compiled_free(compiled);
  tfm_compiled_free(plain);
  options.new_weights = patterns;
  options.n_new_weights = 1;
  CHECK(tfm_compile(&options, &compiled, &error) == TFM_E_USAGE, "%s", error.message);
}

/* Weights that the text is compiled with are those that training begins with. */
static void test_given_weights(void) {
  float numbers[3][MOST];
  static const char *const names[] = {"after.embed.weight", "after.head.weight", "after.head.bias"};
  static const int64_t shapes[][2] = {{WORDS, D}, {WORDS, D}, {WORDS}};
  tfm_tensor weights[3];
  for (int i = 0; i < 3; i++) {
    CHECK(read_tensor(in_folder("start.safetensors"), names[i], numbers[i]) == (i < 2 ? MOST : WORDS), "%s", names[i]);
    weights[i] = (tfm_tensor){names[i] + strlen("after."), "F32", i < 2 ? 2 : 1, shapes[i], numbers[i]};
  }
  tfm_compile_options options = training_options();
  options.weights = weights;
  options.n_weights = 3;
  tfm_compiled *compiled = NULL;
  tfm_error error;
  CHECK(tfm_compile(&options, &compiled, &error) == TFM_OK, "%s", error.message);
  tfm_trainer *trainer = trainer_of(compiled, NULL);
  expect_weights(trainer, in_folder("start.safetensors"), "after.");
  tfm_trainer_destroy(trainer);
  test_released_weights(compiled);
  tfm_compiled_free(compiled);
  test_new_weights(options);
  options.n_weights = 2;
  CHECK(tfm_compile(&options, &compiled, &error) == TFM_E_INPUT && strstr(error.message, "head.bias"), "%s",
        error.message);
}

/* Settings in place of those of the train block. */
static void test_given_settings(void) {
  static const char *settings[] = {"lr=0.25", "schedule=cosine", "steps=9"};
  tfm_compile_options options = training_options();
  options.settings = settings;
  options.n_settings = 3;
  tfm_compiled *compiled = NULL;
  tfm_error error;
  CHECK(tfm_compile(&options, &compiled, &error) == TFM_OK, "%s", error.message);
  tfm_trainer *trainer = trainer_of(compiled, NULL);
  tfm_train_settings found;
  tfm_trainer_settings(trainer, &found);
  CHECK(found.lr == 0.25 && found.schedule == TFM_SCHEDULE_COSINE && found.steps == 9 && found.clip_norm == 1, "%g",
        found.lr);
  tfm_trainer_destroy(trainer);
  tfm_compiled_free(compiled);
  settings[0] = "lr=-1";
  CHECK(tfm_compile(&options, &compiled, &error) == TFM_E_INPUT && strstr(error.message, "lr"), "%s", error.message);
  options.training = 0;
  CHECK(tfm_compile(&options, &compiled, &error) == TFM_E_USAGE, "%s", error.message);
}

// ---- what is refused ----

static void expect(tfm_status got, tfm_status wanted, const tfm_error *error, const char *words) {
  CHECK(got == wanted && strstr(error->message, words), "status %d: %s", got, error->message);
}

static void test_bad_values(tfm_trainer *trainer) {
  tfm_value values[2 * VALUES];
  tfm_error error;
  float before[MOST], *weights = NULL;
  static int32_t none[2 * TIME + 2] = {[2 * TIME] = 1, 1}; /* as many labels as are there, not those that follow */
  static int32_t wrong[2 * TIME] = {9};
  static const int64_t longer[] = {2, TIME + 1};
  tfm_trainer_tensor(trainer, "head.weight", TFM_TENSOR_WEIGHT, &weights, NULL, NULL, &error);
  memcpy(before, weights, sizeof before);
  const struct {
    tfm_value labels;
    tfm_status status;
    const char *words;
  } cases[] = {
      {{labels[0], 0, 2, dims[0]}, TFM_E_INPUT, "\"labels\" is f32"},
      {{labels[0], 1, 1, dims[0]}, TFM_E_INPUT, "1 axis"},
      {{labels[0], 1, 2, NULL}, TFM_E_USAGE, "no dims"},
      {{NULL, 1, 2, dims[0]}, TFM_E_USAGE, "null pointer"},
      {{labels[0], 1, 2, longer}, TFM_E_INPUT, "time"},
      {{none, 1, 2, dims[0]}, TFM_E_INPUT, "no label that counts"},
      {{wrong, 1, 2, dims[0]}, TFM_E_INPUT, "labels"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fill_values(values);
    values[1] = cases[i].labels;
    expect(tfm_trainer_step(trainer, values, 1, 0, NULL, &error), cases[i].status, &error, cases[i].words);
  }
  expect(tfm_trainer_step(trainer, NULL, 1, 0, NULL, &error), TFM_E_USAGE, &error, "no parts");
  expect(tfm_trainer_step(trainer, values, 0, 0, NULL, &error), TFM_E_USAGE, &error, "no parts");
  expect(tfm_trainer_step(NULL, values, 1, 0, NULL, &error), TFM_E_USAGE, &error, "null pointer");
  expect(tfm_trainer_update(trainer, NULL, &error), TFM_E_USAGE, &error, "no gradients");
  CHECK(memcmp(before, weights, sizeof before) == 0, "weights changed");
  fill_values(values);
  CHECK(tfm_trainer_reserve(trainer, values, &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_trainer_bytes(trainer, values) > MOST * 4 && tfm_trainer_bytes(trainer, NULL) == -1, "bytes");
}

static void test_refusals(const tfm_compiled *compiled) {
  tfm_error error;
  tfm_trainer *trainer = trainer_of(compiled, NULL);
  test_bad_values(trainer);
  tfm_trainer_destroy(trainer);
  tfm_trainer_destroy(NULL);
  expect(tfm_trainer_open(in_folder("libplain.so"), NULL, NULL, &trainer, &error), TFM_E_ENV, &error, "--training");
  expect(tfm_trainer_open(in_folder("command.safetensors"), NULL, NULL, &trainer, &error), TFM_E_ENV, &error,
         "no shared library");
  expect(tfm_trainer_open(NULL, NULL, NULL, &trainer, &error), TFM_E_USAGE, &error, "null pointer");
  expect(tfm_compiled_trainer(compiled, in_folder("absent.tfmt"), NULL, &trainer, &error), TFM_E_ENV, &error,
         "absent.tfmt");
  CHECK(!trainer, "a trainer after a failure");
  tfm_compile_options options = small_options();
  tfm_compiled *plain = NULL;
  CHECK(tfm_compile(&options, &plain, &error) == TFM_OK, "%s", error.message);
  expect(tfm_compiled_trainer(plain, NULL, NULL, &trainer, &error), TFM_E_USAGE, &error, "to be trained");
  tfm_compiled_free(plain);
  options.training = 1;
  expect(tfm_compile(&options, &plain, &error), TFM_E_INPUT, &error, "train");
}

// ---- folders of other runs ----

/* Items for `tfmc train --data`: both rows of the first part. */
static void write_items(const char *path) {
  static const char header[] =
      "{\"ids\":{\"dtype\":\"I32\",\"shape\":[6],\"data_offsets\":[0,24]},"
      "\"labels\":{\"dtype\":\"I32\",\"shape\":[6],\"data_offsets\":[24,48]},"
      "\"ids.lengths\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[48,56]},"
      "\"labels.lengths\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[56,64]}}";
  static const int32_t lengths[] = {TIME, TIME, TIME, TIME};
  const uint64_t length = sizeof header - 1;
  FILE *file = fopen(path, "wb");
  fwrite(&length, sizeof length, 1, file);
  fwrite(header, length, 1, file);
  fwrite(ids[0], sizeof(int32_t), 2 * TIME, file);
  fwrite(labels[0], sizeof(int32_t), 2 * TIME, file);
  fwrite(lengths, sizeof lengths, 1, file);
  fclose(file);
}

/* What `latest` of a folder says: its newest checkpoint. */
static const char *newest(const char *run) {
  static char line[100];
  char path[100];
  snprintf(path, sizeof path, "%s/latest", run);
  FILE *file = fopen(in_folder(path), "r");
  const size_t n = file ? fread(line, 1, sizeof line - 1, file) : 0;
  if (file) fclose(file);
  line[n] = 0;
  return line;
}

static int n_files(const char *run) {
  int n = 0;
  DIR *names = opendir(in_folder(run));
  while (names && readdir(names)) n++;
  if (names) closedir(names);
  return n;
}

/* A save that would leave neither run able to go on says so, and the folder stays as it is. */
static void refuse_folder(tfm_trainer *trainer, const char *run, const char *step) {
  tfm_error error;
  char was[100];
  const int n = n_files(run);
  snprintf(was, sizeof was, "%s", newest(run));
  expect(tfm_trainer_save(trainer, in_folder(run), NULL, 0, &error), TFM_E_ENV, &error, "the folder holds another run");
  CHECK(strstr(error.message, step) && strstr(error.message, run), "%s", error.message);
  CHECK(*was && strcmp(newest(run), was) == 0, "%s: %s, was %s", run, newest(run), was);
  CHECK(n > 2 && n_files(run) == n, "%s: %d files, there were %d", run, n_files(run), n);
}

/* Trainers of another seed, of another model, and one that is not as far as the run. */
static void test_folders_of_trainers(const tfm_compiled *compiled) {
  tfm_error error;
  tfm_compile_options options = training_options();
  tfm_compiled *other = NULL;
  static char other_text[sizeof text];
  memcpy(other_text, text, sizeof text);
  memcpy(strstr(other_text, "0.1"), "0.2", 3); /* of the dropout */
  options.text = other_text;
  CHECK(tfm_compile(&options, &other, &error) == TFM_OK, "%s", error.message);
  tfm_trainer *trainers[] = {trainer_of(compiled, NULL), trainer_of_seed(compiled, NULL, 8), trainer_of(other, NULL)};
  for (int i = 0; i < 3; i++) {
    train(trainers[i], 0, i ? STEPS : 1);
    refuse_folder(trainers[i], "run", "step 2");
    tfm_trainer_destroy(trainers[i]);
  }
  tfm_compiled_free(other);
  for (int i = 0; i < 2; i++) { /* an earlier trainer of the same kind left the folder behind */
    tfm_trainer *same = trainer_of(compiled, NULL);
    train(same, 0, 1 + i);
    CHECK(tfm_trainer_save(same, in_folder("again"), NULL, 0, &error) == TFM_OK, "%s", error.message);
    tfm_trainer_destroy(same);
  }
}

/* A run of the command goes on as if nothing had been tried. */
static void test_folders_of_the_command(const tfm_compiled *compiled) {
  static const char run[] = "train tiny.tfm -q --data items.safetensors --seed 7 --out course";
  char words[200], state[TEMPORARY_BYTES + 100];
  tfm_error error;
  write_items(in_folder("items.safetensors"));
  snprintf(words, sizeof words, "%s --steps 3", run);
  CHECK(!command(words), "tfmc train --data");
  for (int steps = 1; steps <= STEPS; steps += STEPS - 1) {
    tfm_trainer *trainer = trainer_of(compiled, NULL);
    train(trainer, 0, steps);
    refuse_folder(trainer, "course", "step 3");
    tfm_trainer_destroy(trainer);
  }
  snprintf(words, sizeof words, "%s --steps 4 --resume", run);
  CHECK(!command(words), "the run cannot be resumed");
  snprintf(state, sizeof state, "%s/course/step-00000004/state.tfmt", folder);
  tfm_trainer *trainer = trainer_of(compiled, state);
  train(trainer, 4, STEPS);
  CHECK(tfm_trainer_save(trainer, in_folder("course"), NULL, 0, &error) == TFM_OK, "%s", error.message);
  tfm_trainer_destroy(trainer);
}

int main(void) {
  tfm_compile_options options = training_options();
  tfm_compiled *compiled = NULL;
  tfm_error error;
  CHECK(mkdtemp(temporary_name(folder, "training")), "a folder");
  write_batches(in_folder("batches.safetensors"));
  FILE *model = fopen(in_folder("tiny.tfm"), "w");
  fputs(text, model);
  fclose(model);
  CHECK(!command(
            "train tiny.tfm -q --batches batches.safetensors --steps 5 --accumulate 2 --seed 7 -o command.safetensors"),
        "tfmc train");
  CHECK(!command("train tiny.tfm -q --steps 0 --seed 3 -o start.safetensors"), "tfmc train --steps 0");
  CHECK(!command("compile tiny.tfm -q --training -o libtiny.so"), "tfmc compile --training");
  CHECK(!command("compile tiny.tfm -q -o libplain.so"), "tfmc compile");
  for (int in_process = 0; in_process < 2; in_process++) {
    options.in_process = in_process;
    CHECK(tfm_compile(&options, &compiled, &error) == TFM_OK, "%s", error.message);
    if (!compiled) break;
    test_bytes(compiled);
    if (!in_process) test_files(compiled);
    if (!in_process) test_refusals(compiled);
    if (!in_process) test_folders_of_trainers(compiled);
    if (!in_process) test_folders_of_the_command(compiled);
    tfm_compiled_free(compiled);
  }
  test_given_weights();
  test_given_settings();
  char line[TEMPORARY_BYTES + 20];
  snprintf(line, sizeof line, "rm -rf '%s'", folder);
  CHECK(!system(line), "%s", line);
  return end_of_checks();
}
