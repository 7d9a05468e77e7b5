/* libtfm: models from text, in a child process and in this one; what goes wrong there gives a status here. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/temporary.h"
#include "check.h"
#include "small_model.h"

typedef struct Messages {
  int n;
  char first[400];
} Messages;

static void take_message(void *user, const char *json) {
  Messages *messages = user;
  if (!messages->n++) snprintf(messages->first, sizeof messages->first, "%s", json);
}

/* Compiles and runs; the status of compiling. */
static tfm_status try_it(const tfm_compile_options *options, tfm_error *error) {
  tfm_compiled *compiled = NULL;
  memset(error, 0, sizeof *error);
  tfm_status status = tfm_compile(options, &compiled, error);
  CHECK((status == TFM_OK) == (compiled != NULL), "status %d", status);
  if (status == TFM_OK) CHECK(small_run(compiled, error) == 0, "%s", error->message);
  tfm_compiled_free(compiled);
  return status;
}

static void expect(const tfm_compile_options *options, tfm_status status, const char *words) {
  tfm_error error;
  tfm_status got = try_it(options, &error);
  CHECK(got == status, "status %d instead of %d: %s", got, status, error.message);
  CHECK(strstr(error.message, words), "'%s' is not in: %s", words, error.message);
}

static void expect_ok(const tfm_compile_options *options) {
  tfm_error error;
  tfm_status got = try_it(options, &error);
  CHECK(got == TFM_OK, "status %d: %s", got, error.message);
}

// ---- what works ----

static void test_ways(void) {
  tfm_compile_options options = small_options();
  expect_ok(&options);
  options.no_fusion = 1;
  options.march = "x86-64";
  expect_ok(&options);
  options.text_size = sizeof small_text - 1;
  options.path = "-small.tfm"; /* a name like an option is a name all the same */
  options.deadline_ms = 60000;
  expect_ok(&options);
  const char *definitions[] = {"n=3"};
  options.definitions = definitions;
  options.n_definitions = 1;
  options.model = "Small";
  expect_ok(&options);
  options.in_process = 1;
  expect_ok(&options);
}

/* The model has few and small numbers, so bf16 leaves its results as they are. */
static void test_rules(void) {
  for (int in_process = 0; in_process < 2; in_process++) {
    tfm_compile_options options = small_options();
    options.in_process = in_process;
    options.quantize = "bf16,up=f32,up.weight=bf16";
    expect_ok(&options);
    options.quantize = "up.wieght=int8";
    expect(&options, TFM_E_USAGE, "up.wieght");
    options.struct_size = 0; /* the first version, which had no such member */
    expect_ok(&options);
  }
}

static void test_file(void) {
  char path[TEMPORARY_BYTES];
  int file = mkstemp(temporary_name(path, "test-libtfm"));
  CHECK(file >= 0 && write(file, small_text, sizeof small_text - 1) == sizeof small_text - 1, "no file");
  close(file);
  tfm_compile_options options = small_options();
  options.text = NULL;
  options.path = path;
  expect_ok(&options);
  options.in_process = 1;
  expect_ok(&options);
  unlink(path);
  expect(&options, TFM_E_ENV, path);
  options.in_process = 0;
  expect(&options, TFM_E_ENV, path);
}

static void *compile_on_small_stack(void *context) {
  (void)context;
  tfm_compile_options options = small_options();
  expect_ok(&options);
  options.in_process = 1;
  expect_ok(&options);
  return NULL;
}

static void test_small_stack(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstacksize(&attributes, 64 << 10) == 0, "no such stack");
  CHECK(pthread_create(&thread, &attributes, compile_on_small_stack, NULL) == 0, "no thread");
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
}

static void test_after_fork(void) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    tfm_compile_options options = small_options();
    tfm_error error;
    _exit(try_it(&options, &error) == TFM_OK && !n_failed ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0, "status %d", status);
}

/* The system forgets children of such a process: nobody can be asked how ours ended. */
static void test_ignored_children(void) {
  signal(SIGCHLD, SIG_IGN);
  tfm_compile_options options = small_options();
  expect_ok(&options);
  setenv("TFM_TEST_FATAL", "llvm", 1);
  expect(&options, TFM_E_INTERNAL, "LLVM ERROR");
  unsetenv("TFM_TEST_FATAL");
  signal(SIGCHLD, SIG_DFL);
}

// ---- what does not ----

static void test_faults_of_the_model(void) {
  Messages messages = {0};
  tfm_compile_options options = small_options();
  options.message = take_message;
  options.message_user = &messages;
  options.text = "model M {\n  forward(x: f32[n]) { return y = z }\n}\n";
  options.path = "shown.tfm";
  for (options.in_process = 0; options.in_process < 2; options.in_process++) {
    messages.n = 0;
    expect(&options, TFM_E_INPUT, "shown.tfm:2:");
    CHECK(messages.n >= 1, "%d messages", messages.n);
    CHECK(strstr(messages.first, "\"line\":2"), "%s", messages.first);
  }
  options = small_options();
  options.n_weights = 1;
  expect(&options, TFM_E_INPUT, "weights: there is no tensor \"up.bias\"");
  options.text = "include \"other.tfm\"\n";
  expect(&options, TFM_E_INPUT, "other.tfm");
  options = small_options();
  const char *definitions[] = {"m=3"};
  options.definitions = definitions;
  options.n_definitions = 1;
  expect(&options, TFM_E_INPUT, "m");
}

static void test_faults_of_the_call(void) {
  tfm_error error;
  tfm_compile_options options = small_options();
  CHECK(tfm_compile(&options, NULL, &error) == TFM_E_USAGE, "no place");
  tfm_compiled *compiled;
  CHECK(tfm_compile(NULL, &compiled, NULL) == TFM_E_USAGE, "no options");
  options.march = "z80";
  expect(&options, TFM_E_USAGE, "z80");
  options = small_options();
  options.text = NULL;
  expect(&options, TFM_E_USAGE, "neither");
  options = small_options();
  options.weights_path = "w.safetensors";
  expect(&options, TFM_E_USAGE, "both");
  tfm_tensor wrong = small_weights[0];
  wrong.dtype = "F31";
  options = small_options();
  options.weights = &wrong;
  options.n_weights = 1;
  expect(&options, TFM_E_USAGE, "up.weight");
  options = small_options();
  options.struct_size = 8;
  expect(&options, TFM_E_USAGE, "struct_size");
}

static void test_faults_of_the_compiler(void) {
  tfm_compile_options options = small_options();
  setenv("TFM_TEST_FATAL", "llvm", 1);
  expect(&options, TFM_E_INTERNAL, "LLVM ERROR");
  setenv("TFM_TEST_FATAL", "hang", 1);
  options.deadline_ms = 300;
  expect(&options, TFM_E_CANCELLED, "300 ms");
  unsetenv("TFM_TEST_FATAL");
  options = small_options();
#ifndef TFM_SANITIZED /* whose reservations alone are larger */
  options.memory_limit = 40 << 20;
  expect(&options, TFM_E_NOMEM, "memory");
  options.memory_limit = 0;
#endif
  options.compiler = "/nonexistent/tfmc";
  expect(&options, TFM_E_ENV, "/nonexistent/tfmc");
  options.compiler = "true";
  expect(&options, TFM_E_INTERNAL, "ended with 0");
  options.compiler = "false";
  expect(&options, TFM_E_INTERNAL, "ended with 1");
  options.compiler = NULL;
  expect_ok(&options);
}

// ---- stopping, files ----

static int stop_at_once(void *user) { return ++*(int *)user; }
static int never_stop(void *user) { return ++*(int *)user, 0; }

static void test_stopping(void) {
  int asked = 0;
  tfm_compile_options options = small_options();
  options.stop_user = &asked;
  options.stop = stop_at_once;
  expect(&options, TFM_E_CANCELLED, "compiling was stopped");
  CHECK(asked == 1, "asked %d times", asked);
  options.stop = never_stop;
  expect_ok(&options);
  CHECK(asked > 1, "asked %d times", asked);
}

static void expect_refused(const char *path, const char *words) {
  tfm_error error;
  tfm_compiled *compiled = NULL;
  memset(&error, 0, sizeof error);
  tfm_status got = tfm_model_map(path, &compiled, &error);
  CHECK(got == TFM_E_ENV && !compiled, "status %d", got);
  CHECK(strstr(error.message, words), "'%s' is not in: %s", words, error.message);
  tfm_compiled_free(compiled);
}

/* The bytes of a file, changed at one place (or cut there). */
static void write_changed(const char *path, const char *bytes, long size, long at, int change) {
  FILE *file = fopen(path, "wb");
  fwrite(bytes, 1, (size_t)at, file);
  if (change) {
    fputc(bytes[at] ^ change, file);
    fwrite(bytes + at + 1, 1, (size_t)(size - at - 1), file);
  }
  fclose(file);
}

enum { MOST_FILE = 1 << 20, VERSION_AT = 16, CODE_AT = 8192 + 200 };

static void test_model_file(void) {
  tfm_compile_options options = small_options();
  tfm_compiled *compiled = NULL, *mapped = NULL;
  tfm_error error;
  char path[] = "/tmp/tfm-test-XXXXXX", changed[64];
  if (!mkdtemp(path)) return;
  char name[64];
  snprintf(name, sizeof name, "%s/small.tfmm", path);
  snprintf(changed, sizeof changed, "%s/changed.tfmm", path);
  expect_refused(name, "cannot be read: No such file");
  expect_refused(path, "is no .tfmm file");
  CHECK(tfm_compile(&options, &compiled, &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_compiled_save(compiled, "/nowhere/small.tfmm", &error) == TFM_E_ENV, "%s", error.message);
  CHECK(tfm_compiled_save(compiled, name, &error) == TFM_OK, "%s", error.message);
  tfm_compiled_free(compiled);
  CHECK(tfm_model_map(name, &mapped, &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_compiled_save(mapped, name, &error) == TFM_OK, "%s", error.message); /* replaced while it is open */
  CHECK(mapped && small_run(mapped, &error) == 0, "%s", error.message);
  tfm_compiled_free(mapped);
  static char bytes[MOST_FILE];
  FILE *file = fopen(name, "rb");
  long size = file ? (long)fread(bytes, 1, sizeof bytes, file) : 0;
  if (file) fclose(file);
  const long cuts[] = {0, 100, 4096, 8192 + 64, size - 1};
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    write_changed(changed, bytes, size, cuts[i], 0);
    expect_refused(changed, cuts[i] <= 100 ? "is no .tfmm file" : "is damaged or was cut off");
  }
  write_changed(changed, bytes, size, 0, 1);
  expect_refused(changed, "is no .tfmm file");
  write_changed(changed, bytes, size, VERSION_AT, 8);
  expect_refused(changed, "compile the model again");
  write_changed(changed, bytes, size, CODE_AT, 1);
  expect_refused(changed, "is damaged or was cut off");
  unlink(name);
  unlink(changed);
  CHECK(rmdir(path) == 0, "something is left in %s", path);
}

int main(void) {
  test_ways();
  test_rules();
  test_file();
  test_stopping();
  test_model_file();
  test_small_stack();
  test_after_fork();
  test_ignored_children();
  test_faults_of_the_model();
  test_faults_of_the_call();
  test_faults_of_the_compiler();
  return end_of_checks();
}
