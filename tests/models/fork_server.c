/* Starts a program many times for the price of once: loaded before it (LD_PRELOAD), it lets the dynamic linker do its
 * work, which takes longer than tfmc needs for a tiny model, and forks in the place of main for each request.
 *
 * In, on standard input: the number of bytes of a request as 4 bytes, then texts that each end in a zero byte: the file
 * for standard output, the file for standard error, seconds of the processor that the program may take, and its
 * arguments from argv[0] on. Out, on standard output: 4 bytes for each request, what waitpid says of the program. A
 * request that cannot be read ends the server. Without TFM_FORK_SERVER in the environment the program runs as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 16, MOST_TEXTS = 256, CANNOT_START = 120, HANGS = 20 };

typedef int Main(int argc, char **argv, char **environment);
typedef void Hook(void);
typedef int Start(Main *main, int argc, char **argv, Hook *init, Hook *fini, Hook *rtld_fini, void *stack_end);

static Main *program;

static int read_all(void *to, size_t size) {
  for (char *at = to; size > 0;) {
    ssize_t got = read(STDIN_FILENO, at, size);
    if (got <= 0)
      return 0;
    at += got;
    size -= (size_t)got;
  }
  return 1;
}

static void put_at(int number, const char *file, int flags) {
  int opened = open(file, flags | O_CLOEXEC, 0600);
  if (opened < 0 || dup2(opened, number) < 0)
    _exit(CANNOT_START);
  close(opened);
}

/* Returns what waitpid says of the program with these texts. */
static int32_t run(int count, char **texts, char **environment) {
  pid_t child = fork();
  if (child == 0) {
    put_at(STDIN_FILENO, "/dev/null", O_RDONLY);
    put_at(STDOUT_FILENO, texts[0], O_WRONLY | O_CREAT | O_TRUNC);
    put_at(STDERR_FILENO, texts[1], O_WRONLY | O_CREAT | O_TRUNC);
    rlim_t seconds = (rlim_t)atoi(texts[2]);
    setrlimit(RLIMIT_CPU, &(struct rlimit){seconds, seconds});
    alarm(HANGS * (unsigned)seconds);
    exit(program(count - 3, texts + 3, environment));
  }
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child)
    _exit(CANNOT_START);
  return status;
}

static int serve(int argc, char **argv, char **environment) {
  if (!getenv("TFM_FORK_SERVER"))
    return program(argc, argv, environment);
  static char request[MOST_BYTES];
  static char *texts[MOST_TEXTS + 1];
  uint32_t size = 0;
  while (read_all(&size, sizeof size) && size > 0 && size <= sizeof request && read_all(request, size)) {
    int count = 0;
    if (request[size - 1]) break;
    for (char *at = request; at < request + size && count < MOST_TEXTS; at += strlen(at) + 1)
      texts[count++] = at;
    texts[count] = NULL;
    if (count < 4)
      break;
    int32_t status = run(count, texts, environment);
    if (write(STDOUT_FILENO, &status, sizeof status) != sizeof status)
      break;
  }
  return 0;
}

Start __libc_start_main;

int __libc_start_main(Main *main, int argc, char **argv, Hook *init, Hook *fini, Hook *rtld_fini, void *stack_end) {
  program = main;
  Start *start = (Start *)dlsym(RTLD_NEXT, "__libc_start_main");
  return start(serve, argc, argv, init, fini, rtld_fini, stack_end);
}
