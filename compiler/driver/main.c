/* tfmc: sets the process up, runs the command on a stack of known size, and makes sure that what it printed arrived. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "driver/driver.h"

enum { STACK_BYTES = 64 << 20, EXIT_ENVIRONMENT = 3 };

typedef struct CommandLine {
  int argc;
  char **argv;
  int exit_code;
} CommandLine;

/* A file that is opened later must not take the place of a standard stream that was closed. */
static void open_standard_streams(void) {
  int fd;
  do fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

static void *run_command(void *context) {
  CommandLine *line = context;
  line->exit_code = driver_main(line->argc, line->argv);
  return NULL;
}

/* The limits of the language are tested against this stack, whatever `ulimit -s` says. */
static void run_on_large_stack(CommandLine *line) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  bool is_running = pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
                    pthread_create(&thread, &attributes, run_command, line) == 0;
  pthread_attr_destroy(&attributes);
  if (is_running) pthread_join(thread, NULL);
  else run_command(line);
}

int main(int argc, char **argv) {
  open_standard_streams();
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of the write that meets it */
  CommandLine line = {argc, argv, 0};
  run_on_large_stack(&line);
  bool arrived = !ferror(stdout);
  if (fflush(stdout) != 0 || fclose(stdout) != 0) arrived = false;
  if (arrived) return line.exit_code;
  fprintf(stderr, "tfmc: error: cannot write to standard output: %s\n", strerror(errno));
  return line.exit_code ? line.exit_code : EXIT_ENVIRONMENT;
}
