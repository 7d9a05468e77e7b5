/* tfmc worker: what libtfm starts to have a model compiled. Not for the command line.
 *
 * In: options, and the source text in standard input. Out: parts in the file that is standard output, messages as lines
 * of JSON on standard error. With TFM_TEST_FATAL in the environment it fails on purpose, for tests of those who start it. */
#define _GNU_SOURCE /* prctl's constants */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "driver/commands/commands.h"
#include "driver/worker.h"

enum { EXIT_MEMORY = 4, LEAST_MEMORY = 64 << 20 };

/* C++ code of LLVM aborts where it cannot even allocate its exception. Whether that is why is seen from what is left. */
static void at_abort(int number) {
  static const char message[] = "out of memory\n";
  if (mmap(NULL, LEAST_MEMORY, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
    if (write(STDERR_FILENO, message, sizeof message - 1) > 0) _exit(EXIT_MEMORY);
  }
  signal(number, SIG_DFL);
  raise(number);
}

/* The limit holds from here on: the loader has done its work, so that what fails is ours to report. */
static void limit_memory(const Session *session) {
  rlim_t bytes = (rlim_t)option_count(&session->options, OPTION_MEMORY_LIMIT, 0);
  struct rlimit limit = {bytes, bytes};
  if (bytes) setrlimit(RLIMIT_AS, &limit);
  signal(SIGABRT, at_abort);
}

void command_worker(Session *session) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody is left to read the result */
  signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write */
  const char *failure = getenv("TFM_TEST_FATAL"), *features = NULL;
  if (failure && strcmp(failure, "llvm") == 0) features = "-64bit"; /* LLVM ends a process that wants this */
  if (failure && strcmp(failure, "hang") == 0) pause();
  limit_memory(session);
  worker_run(session, STDIN_FILENO, STDOUT_FILENO, features);
}
