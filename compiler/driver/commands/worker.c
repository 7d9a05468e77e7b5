/* tfmc worker: what libtfm starts to have a model compiled. Not for the command line.
 *
 * In: options, and the source text in standard input. Out: parts in the file that is standard output, messages as lines
 * of JSON on standard error. With TFM_TEST_FATAL in the environment it fails on purpose, for tests of those who start it. */
#define _GNU_SOURCE /* prctl's constants */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "driver/commands/commands.h"
#include "driver/worker.h"

void command_worker(Session *session) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody is left to read the result */
  signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write */
  const char *failure = getenv("TFM_TEST_FATAL"), *features = NULL;
  if (failure && strcmp(failure, "llvm") == 0) features = "-64bit"; /* LLVM ends a process that wants this */
  if (failure && strcmp(failure, "hang") == 0) pause();
  worker_run(session, STDIN_FILENO, STDOUT_FILENO, features);
}
