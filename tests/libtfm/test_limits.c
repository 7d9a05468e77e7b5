/* libtfm in hosts with little room, many threads or peculiar settings: a status, or a model that works; never the end. */
#include <dlfcn.h>
#include <fenv.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "small_model.h"

enum { N_THREADS = 16, FEW_CYCLES = 20 /* unless TFM_TEST_CYCLES says how many */ };

/* The status of compiling and running; a wrong result is TFM_E_INTERNAL. */
static tfm_status try_it(tfm_compile_options options, tfm_error *error) {
  tfm_compiled *compiled = NULL;
  tfm_status status = tfm_compile(&options, &compiled, error);
  if (status == TFM_OK && small_run(compiled, error)) status = TFM_E_INTERNAL;
  tfm_compiled_free(compiled);
  return status;
}

// ---- limits of the system ----

typedef struct Limit {
  const char *name;
  int resource;
  rlim_t value;
} Limit;

/* In a process of its own: with the limit it works or gives a status, without it it works. Exits with what went wrong. */
static int live_with(const Limit *limit) {
  struct rlimit before, now;
  tfm_error error;
  getrlimit((__rlimit_resource_t)limit->resource, &before);
  now = (struct rlimit){limit->value, before.rlim_max};
  if (setrlimit((__rlimit_resource_t)limit->resource, &now)) return 1;
  tfm_status status = try_it(small_options(), &error);
  if (status != TFM_OK && status != TFM_E_ENV && status != TFM_E_NOMEM) return 2;
  if (status != TFM_OK && !*error.message) return 3;
  if (setrlimit((__rlimit_resource_t)limit->resource, &before)) return 4;
  return try_it(small_options(), &error) == TFM_OK ? 0 : 5;
}

/* How a child process ended that did this. */
static int in_a_child(int (*act)(const Limit *), const Limit *limit) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(act(limit));
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

static void test_limits(void) {
#ifdef TFM_SANITIZED
  return; /* sanitizers need room for themselves */
#endif
  static const Limit limits[] = {{"no files", RLIMIT_NOFILE, 4},          {"few files", RLIMIT_NOFILE, 14},
                                 {"no file size", RLIMIT_FSIZE, 0},       {"small files", RLIMIT_FSIZE, 5000},
                                 {"little memory", RLIMIT_AS, 100 << 20}, {"little data", RLIMIT_DATA, 10 << 20},
                                 {"small stack", RLIMIT_STACK, 64 << 10}};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    int status = in_a_child(live_with, &limits[i]);
    CHECK(status == 0, "%s: %x", limits[i].name, (unsigned)status);
  }
}

// ---- peculiar hosts ----

static int live_without_streams(const Limit *limit) {
  (void)limit;
  tfm_error error;
  for (int file = 0; file < 3; file++) close(file);
  return try_it(small_options(), &error) == TFM_OK ? 0 : 1;
}

static int live_without_new_code(const Limit *limit) {
  (void)limit;
  tfm_error error;
  if (prctl(65 /* PR_SET_MDWE */, 1 /* PR_MDWE_REFUSE_EXEC_GAIN */, 0L, 0L, 0L)) return 0; /* an older system */
  tfm_status status = try_it(small_options(), &error);
  return status == TFM_E_ENV && strstr(error.message, "tfmc compile") ? 0 : 1;
}

static int live_with_traps(const Limit *limit) {
  (void)limit;
  tfm_error error;
  feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
  tfm_compile_options options = small_options();
  if (try_it(options, &error)) return 1;
  options.in_process = 1;
  if (try_it(options, &error)) return 2;
  return fegetexcept() == (FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW) ? 0 : 3;
}

static int live_with_another_llvm(const Limit *limit) {
  (void)limit;
  tfm_error error;
  if (!dlopen("libLLVM-14.so.1", RTLD_NOW | RTLD_GLOBAL)) return 0;
  tfm_compile_options options = small_options();
  options.in_process = 1;
  return try_it(options, &error) == TFM_OK ? 0 : 1;
}

static void test_peculiar_hosts(void) {
  CHECK(in_a_child(live_without_streams, NULL) == 0, "no standard streams");
  CHECK(in_a_child(live_without_new_code, NULL) == 0, "no new code");
  CHECK(in_a_child(live_with_traps, NULL) == 0, "traps of floating point");
  CHECK(in_a_child(live_with_another_llvm, NULL) == 0, "another LLVM");
}

// ---- threads and repetition ----

static void *compile_and_run(void *context) {
  tfm_status *status = context;
  tfm_error error;
  *status = try_it(small_options(), &error);
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[N_THREADS];
  tfm_status statuses[N_THREADS];
  for (int i = 0; i < N_THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, compile_and_run, &statuses[i]) == 0, "no thread");
  for (int i = 0; i < N_THREADS; i++) {
    pthread_join(threads[i], NULL);
    CHECK(statuses[i] == TFM_OK, "thread %d: %d", i, statuses[i]);
  }
}

static int count_mappings(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  int n = 0;
  for (int c; maps && (c = fgetc(maps)) != EOF;) n += c == '\n';
  if (maps) fclose(maps);
  return n;
}

static void test_repetition(void) {
  tfm_error error;
  tfm_compile_options options = small_options(), wrong = small_options();
  wrong.text = "no model";
  const char *asked = getenv("TFM_TEST_CYCLES");
  int mappings = 0, n_cycles = asked ? atoi(asked) : FEW_CYCLES;
  size_t bytes = 0;
  for (int i = 0; i < n_cycles; i++) {
    if (i == FEW_CYCLES / 2) { /* what the system's allocator keeps for later is there by now */
      mappings = count_mappings();
      bytes = mallinfo2().uordblks;
    }
    CHECK(try_it(options, &error) == TFM_OK, "%s", error.message);
    CHECK(try_it(wrong, &error) == TFM_E_INPUT, "%s", error.message);
  }
  CHECK(count_mappings() <= mappings, "%d mappings, %d before", count_mappings(), mappings);
  size_t grown = mallinfo2().uordblks - bytes; /* one lost piece in each cycle would be 32 bytes or more */
  CHECK(grown < (size_t)(n_cycles - FEW_CYCLES / 2) * 32 || grown > SIZE_MAX / 2, "%zu bytes more", grown);
}

int main(void) {
  test_repetition(); /* first: threads leave memory of their own behind */
  test_threads();
  test_limits();
  test_peculiar_hosts();
  return end_of_checks();
}
