/* A host of the library of tests/goldens/encoder-stack: everything that a process has must be as before when the model
 * is closed again. Runs on a stack of 64 KiB, with the rounding, locale and signal handlers of its own, and in a child.
 *
 * usage: guest WEIGHTS THREADS. Between two calls of write() on descriptor -1 there are runs within what was reserved. */
#define _GNU_SOURCE
#include <dirent.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "stack.h"

enum { BATCH = 3, TIME = 50, WIDTH = 40, RUNS = 20, STACK = 64 << 10, MODE = 0x6000 | 0x8040 /* toward 0, FTZ, DAZ, every exception traps */ };

static float x[BATCH * TIME * WIDTH], y[BATCH * TIME * WIDTH], expected[BATCH * TIME * WIDTH];
static uint8_t pad[BATCH * TIME];
static const char *weights;
static int threads, failed;
static stack_model *model;
static stack_context *context;

static void expect(int good, const char *what) {
  if (good) return;
  printf("not so: %s\n", what);
  failed = 1;
}

/* --- What a guest must leave alone --------------------------------------------------------------------------------- */

typedef struct State {
  struct sigaction actions[65];
  sigset_t mask;
  char folder[4096], locale[256], environment[65536];
  mode_t umask;
  int descriptors, threads, writable_code;
  unsigned mode;
} State;

static int entries(const char *folder) {
  DIR *dir = opendir(folder);
  int n = 0;
  while (dir && readdir(dir)) n++;
  if (dir) closedir(dir);
  return n;
}

static int writable_code(void) {
  char line[4096];
  int n = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) n += strstr(line, " rwx") != NULL;
  if (maps) fclose(maps);
  return n;
}

static void look(State *state) {
  memset(state, 0, sizeof *state);
  for (int i = 1; i < 65; i++) sigaction(i, NULL, &state->actions[i]);
  pthread_sigmask(SIG_SETMASK, NULL, &state->mask);
  expect(getcwd(state->folder, sizeof state->folder) != NULL, "a folder");
  snprintf(state->locale, sizeof state->locale, "%s", setlocale(LC_ALL, NULL));
  size_t used = 0;
  for (char **e = environ; *e && used < sizeof state->environment; e++)
    used += (size_t)snprintf(state->environment + used, sizeof state->environment - used, "%s\n", *e);
  umask(state->umask = umask(0));
  state->descriptors = entries("/proc/self/fd");
  state->threads = entries("/proc/self/task");
  state->writable_code = writable_code();
  state->mode = _mm_getcsr();
}

static void compare(const State *a, const State *b) {
  for (int i = 1; i < 65; i++) expect(a->actions[i].sa_handler == b->actions[i].sa_handler, "signal handlers");
  expect(memcmp(&a->mask, &b->mask, sizeof a->mask) == 0, "the signal mask");
  expect(strcmp(a->folder, b->folder) == 0, "the folder");
  expect(strcmp(a->locale, b->locale) == 0, "the locale");
  expect(strcmp(a->environment, b->environment) == 0, "the environment");
  expect(a->umask == b->umask, "the umask");
  expect(a->descriptors == b->descriptors, "descriptors");
  expect(a->threads == b->threads, "threads");
  expect(b->writable_code == 0, "no page is writable and executable");
  expect((a->mode & ~0x3fu) == (b->mode & ~0x3fu), "the floating-point mode");
}

/* --- The guest ----------------------------------------------------------------------------------------------------- */

static tfm_status run(float *result) {
  return stack_forward(context, &(stack_args){.batch = BATCH, .time = TIME, .src = x, .pad = pad, .y = result}, NULL);
}

static void *use(void *argument) {
  tfm_error error = {0};
  _mm_setcsr(MODE);
  expect(stack_open(weights, &model, &error) == TFM_OK, error.message);
  if (failed) return argument;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  expect(stack_context_new(model, &options, &context, &error) == TFM_OK, error.message);
  if (failed) return argument;
  expect(stack_reserve(context, &(stack_args){.batch = BATCH, .time = TIME}, &error) == TFM_OK, error.message);
  expect(run(y) == TFM_OK, "a run");
  expect(memcmp(y, expected, sizeof y) == 0, "the same bits under another rounding, on another thread");
  expect(write(-1, "", 0) < 0, "a marker");
  for (int i = 0; i < RUNS; i++) expect(run(y) == TFM_OK, "a run");
  expect(write(-1, "", 0) < 0, "a marker");
  expect(_mm_getcsr() == MODE, "the caller's floating-point mode");
  _mm_setcsr(0x1f80);
  return argument;
}

static void on_signal(int number) { (void)number; }

static void run_in_child(void) {
  int status = -1;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    memset(y, 0, sizeof y);
    int good = run(y) == TFM_OK && memcmp(y, expected, sizeof y) == 0;
    stack_context_free(context);
    stack_close(model);
    _exit(!good);
  }
  expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "a run in a child");
}

static void first_results(void) {
  tfm_error error = {0};
  for (int i = 0; i < BATCH * TIME * WIDTH; i++) x[i] = (float)(i * 37 % 101) / 50 - 1;
  for (int i = 0; i < BATCH * TIME; i++) pad[i] = i % TIME > 30 + i / TIME;
  expect(stack_open(weights, &model, &error) == TFM_OK, error.message);
  if (failed) return;
  expect(stack_context_new(model, &(tfm_context_options){.threads = 1}, &context, &error) == TFM_OK, error.message);
  expect(run(expected) == TFM_OK, "the first run");
  stack_context_free(context);
  stack_close(model);
}

int main(int argc, char **argv) {
  static State before, after;
  if (argc != 3) return 2;
  weights = argv[1];
  threads = atoi(argv[2]);
  signal(SIGUSR1, on_signal);
  signal(SIGFPE, on_signal);
  setlocale(LC_ALL, "C.UTF-8");
  first_results();
  look(&before);
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK);
  if (failed || pthread_create(&thread, &attributes, use, NULL)) return 1;
  pthread_join(thread, NULL);
  if (!failed) run_in_child();
  stack_context_free(context);
  stack_close(model);
  look(&after);
  compare(&before, &after);
  return failed;
}
