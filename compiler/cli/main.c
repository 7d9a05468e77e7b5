/* tfmc: sets the process up, runs the command on a stack of known size, and makes sure that what it printed has
 * arrived.
 *
 * In: the command line. Out: what the command prints and writes, the messages on stderr, the exit code. A result that
 * could not be printed is an error (a full disk must not look like success), except that nobody wants it any more: a
 * closed pipe. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aot/library_file.h"
#include "cli/commands/commands.h"
#include "cli/commands/command_help.h"
#include "cli/option_rules.h"
#include "cli/text_command.h"

enum { STACK_BYTES = 64 << 20, EXIT_ENVIRONMENT = 3 };

// ---- the command ----

static void (*const commands[N_VERBS])(Session *) = {
#define VERB(Enum, name, arguments, least, most, takes, output, line, details) [VERB_##Enum] = command_##name,
#include "cli/verbs.def"
};

/* Help wins over everything else on the line. After an error of the command line nothing is printed on stdout. */
static void obey(Session *session, int argc, char **argv) {
  Options *options = &session->options;
  if (!options_parse(session->arena, &session->diag, argc, argv, options)) {
    StrBuf usage = strbuf_new(session->arena);
    if (argc < 2) help_usage(&usage);
    fputs(usage.text, stderr);
  } else if (options->wants_version) {
    puts("tfmc " TFM_VERSION);
  } else if (option_given(options, OPTION_HELP)) {
    StrBuf help = strbuf_new(session->arena);
    help_verb(&help, options->verb);
    session_print(&help);
  } else if (options_are_all_read(&session->diag, options)) {
    commands[options->verb](session);
  }
}

/* Does what the command line says and returns the exit code. stdout may still hold output that was not written. */
static int run(int argc, char **argv) {
  Arena *arena = arena_create();
  Session session = {.arena = arena, .diag = diag_new(arena), .names = map_new(arena)};
  obey(&session, argc, argv);
  int exit_code = session_finish(&session);
  library_file_close(session.library);
  arena_destroy(arena);
  return exit_code;
}

// ---- the process ----

typedef struct CommandLine {
  int argc;
  char **argv;
  int exit_code;
} CommandLine;

/* A process may be started without standard streams. A file that is opened later must not take the place of one, or
 * messages would be written into it. */
static void open_standard_streams(void) {
  int fd;
  do fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

static void *run_command(void *context) {
  CommandLine *line = context;
  line->exit_code = run(line->argc, line->argv);
  return NULL;
}

/* The limits of the language (how deep modules and expressions may nest) are tested against this stack, whatever
 * `ulimit -s` says. If no thread can be made, the own stack has to do. */
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

/* Whether nobody reads the pipe that stdout is: `tfmc dump | head` closes it early, and that is no error. The pipe is
 * asked and not errno, which later calls may have changed since the write that failed. */
static bool reader_is_gone(void) {
  struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
  return poll(&out, 1, 0) > 0 && out.revents & POLLERR;
}

int main(int argc, char **argv) {
  open_standard_streams();
  const int of_texts = text_command(argc, argv);
  if (of_texts >= 0) return of_texts;
  signal(SIGPIPE, SIG_IGN); /* the command finishes its work, and the files of -o, before it looks at stdout */
  signal(SIGXFSZ, SIG_IGN); /* under `ulimit -f` the write fails, which is a message that names the file */
  CommandLine line = {argc, argv, 0};
  run_on_large_stack(&line);
  bool arrived = !ferror(stdout);
  if (fflush(stdout) != 0) arrived = false;
  if (!arrived && reader_is_gone()) return line.exit_code;
  if (fclose(stdout) != 0) arrived = false;
  if (arrived) return line.exit_code;
  const int number = session_print_error() ? session_print_error() : errno;
  fprintf(stderr, "tfmc: error: cannot write to standard output: %s\n", strerror(number));
  return line.exit_code ? line.exit_code : EXIT_ENVIRONMENT;
}
