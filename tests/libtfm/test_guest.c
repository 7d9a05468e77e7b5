/* libtfm as a guest: whatever a program has set up is as before after loading, compiling, running and freeing, in a
 * child process and in this one. Nothing is printed, and no memory is writable and executable at any time. */
#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "check.h"
#include "small_model.h"

enum { N_SIGNALS = 64, MOST_BYTES = 1 << 16 };

typedef struct State {
  void (*handlers[N_SIGNALS])(int);
  int flags[N_SIGNALS];
  sigset_t mask;
  unsigned mxcsr;
  int rounding;
  char locale[200], folder[400];
  mode_t umask;
  char environment[MOST_BYTES], files[MOST_BYTES];
  int n_threads;
  off_t printed[2];
} State;

extern char **environ;

static void handler(int number) { (void)number; }

static int count_entries(const char *folder) {
  DIR *directory = opendir(folder);
  int n = 0;
  while (directory && readdir(directory)) n++;
  if (directory) closedir(directory);
  return n;
}

/* Number and target of each open file. */
static void list_files(char *out, size_t size) {
  size_t length = 0;
  for (int file = 0; file < 256; file++) {
    char path[40], target[200];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n >= 0) length += (size_t)snprintf(out + length, size - length, "%d %.*s\n", file, (int)n, target);
  }
}

static void look(State *state) {
  memset(state, 0, sizeof *state);
  for (int i = 1; i < N_SIGNALS; i++) {
    struct sigaction action;
    if (sigaction(i, NULL, &action)) continue;
    state->handlers[i] = action.sa_handler;
    state->flags[i] = action.sa_flags;
  }
  sigprocmask(SIG_BLOCK, NULL, &state->mask);
  state->mxcsr = _mm_getcsr() & ~0x3fu; /* without the flags of what happened so far */
  state->rounding = fegetround();
  snprintf(state->locale, sizeof state->locale, "%s", setlocale(LC_ALL, NULL));
  if (!getcwd(state->folder, sizeof state->folder)) state->folder[0] = '\0';
  state->umask = umask(0);
  umask(state->umask);
  size_t length = 0;
  for (char **variable = environ; *variable; variable++)
    length += (size_t)snprintf(state->environment + length, MOST_BYTES - length, "%s\n", *variable);
  list_files(state->files, MOST_BYTES);
  state->n_threads = count_entries("/proc/self/task");
  for (int i = 0; i < 2; i++) state->printed[i] = lseek(STDOUT_FILENO + i, 0, SEEK_END);
}

static void compare(const State *a, const State *b, const char *when) {
  CHECK(memcmp(a->handlers, b->handlers, sizeof a->handlers) == 0, "%s", when);
  CHECK(memcmp(a->flags, b->flags, sizeof a->flags) == 0, "%s", when);
  CHECK(memcmp(&a->mask, &b->mask, sizeof a->mask) == 0, "%s", when);
  CHECK(a->mxcsr == b->mxcsr, "%s: %x and %x", when, a->mxcsr, b->mxcsr);
  CHECK(a->rounding == b->rounding, "%s", when);
  CHECK(strcmp(a->locale, b->locale) == 0, "%s: %s", when, b->locale);
  CHECK(strcmp(a->folder, b->folder) == 0, "%s: %s", when, b->folder);
  CHECK(a->umask == b->umask, "%s", when);
  CHECK(strcmp(a->environment, b->environment) == 0, "%s", when);
  CHECK(strcmp(a->files, b->files) == 0, "%s:\n%s%s", when, a->files, b->files);
  CHECK(a->n_threads == b->n_threads, "%s: %d and %d threads", when, a->n_threads, b->n_threads);
  CHECK(a->printed[0] == b->printed[0] && a->printed[1] == b->printed[1], "%s: something was printed", when);
}

static int n_writable_code_pages(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[1000];
  int n = 0;
  while (maps && fgets(line, sizeof line, maps)) n += strstr(line, " rwx") != NULL;
  if (maps) fclose(maps);
  return n;
}

static void be_a_guest(int in_process, const char *when) {
  static State before, after;
  tfm_error error;
  tfm_compiled *compiled = NULL;
  tfm_compile_options options = small_options();
  options.in_process = in_process;
  look(&before);
  CHECK(tfm_compile(&options, &compiled, &error) == TFM_OK, "%s: %s", when, error.message);
  if (compiled) CHECK(small_run(compiled, &error) == 0, "%s: %s", when, error.message);
  CHECK(n_writable_code_pages() == 0, "%s", when);
  tfm_compiled_free(compiled);
  look(&after);
  compare(&before, &after, when);
  options.text = "no model";
  CHECK(tfm_compile(&options, &compiled, &error) == TFM_E_INPUT, "%s: %s", when, error.message);
  look(&after);
  compare(&before, &after, when);
}

/* A host with habits of its own. */
static void set_up(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  const int handled[] = {SIGUSR1, SIGSEGV, SIGCHLD, SIGPIPE, SIGABRT, SIGINT};
  for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) sigaction(handled[i], &action, NULL);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigprocmask(SIG_BLOCK, &blocked, NULL);
  umask(027);
  if (!setlocale(LC_ALL, "de_DE.UTF-8")) setlocale(LC_ALL, "C.UTF-8");
  if (chdir("/")) return;
  setenv("HOST", "habits", 1);
}

/* What is printed goes to files, whose length tells. Returns the real standard output. */
static int watch_output(void) {
  fflush(stdout);
  int real = dup(STDOUT_FILENO);
  for (int i = 0; i < 2; i++) {
    FILE *file = tmpfile();
    if (file) dup2(fileno(file), STDOUT_FILENO + i);
  }
  return real;
}

int main(void) {
  set_up();
  int real = watch_output();
  be_a_guest(0, "child");
  _mm_setcsr(0x9fc0 | 0x2000); /* flush to zero, denormals are zero, rounding down */
  be_a_guest(0, "child, other modes of floating point");
  _mm_setcsr(0x1f80);
  be_a_guest(1, "in this process");
  be_a_guest(1, "in this process again");
  fflush(stdout);
  if (n_failed) { /* what the checks said went to the watched file */
    char text[4000];
    ssize_t n = pread(STDOUT_FILENO, text, sizeof text, 0);
    if (n > 0 && write(real, text, (size_t)n) < 0) return 1;
  }
  dup2(real, STDOUT_FILENO);
  return end_of_checks();
}
