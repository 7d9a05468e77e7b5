/* Dot: the program `dot` of Graphviz, as a process.
 *
 * In: a text with one or more pictures, the format to make of them. Out: what it wrote; or why there is nothing: the
 * system's error, or how it ended and what it said. See dot.h. */
#include "draw/dot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/whole_io.h"

extern char **environ;

/* Returns a file without a name that holds the text, positioned at its beginning; -1 with errno set. Files and not
 * pipes: `dot` reads everything before it writes, but a pipe in each direction could still block both. */
static int file_of(const StrBuf *text) {
  const char *folder = getenv("TMPDIR");
  char *name = arena_printf(text->arena, "%s/tfmc-XXXXXX", folder && *folder ? folder : "/tmp");
  int fd = mkstemp(name);
  if (fd < 0) return -1;
  unlink(name);
  if (!write_all(fd, text->text, text->length)) {
    close(fd);
    return -1;
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

typedef struct DotFiles {
  int in, out, err;
} DotFiles;

static DotFiles files_of(const StrBuf *text) {
  StrBuf empty = strbuf_new(text->arena);
  return (DotFiles){file_of(text), file_of(&empty), file_of(&empty)};
}

static void close_files(const DotFiles *files) {
  const int all[] = {files->in, files->out, files->err};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i] >= 0) close(all[i]);
}

/* Starts `dot -TFORMAT -Gsplines=EDGES`. 0, or an error number. */
static int start_dot(const char *name, const char *edges, const DotFiles *files, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, files->in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, files->out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, files->err, STDERR_FILENO);
  char dot[] = "dot", format[8], splines[32], *arguments[] = {dot, format, splines, NULL};
  snprintf(format, sizeof format, "-T%s", name);
  snprintf(splines, sizeof splines, "-Gsplines=%s", edges);
  int error = posix_spawnp(pid, "dot", &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

static void read_to_end(int fd, StrBuf *text) {
  char piece[4096];
  lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;) strbuf_add_n(text, piece, (size_t)n);
}

/* Takes the picture only if `dot` ended well; one that is cut off is worse than none. */
DotAttempt dot_attempt(Arena *arena, const StrBuf *text, const char *format, const char *edges) {
  DotAttempt attempt = {.picture = strbuf_new(arena), .said = strbuf_new(arena)};
  const DotFiles files = files_of(text);
  pid_t pid;
  const bool is_open = files.in >= 0 && files.out >= 0 && files.err >= 0;
  attempt.error = is_open ? start_dot(format, edges, &files, &pid) : errno;
  if (!attempt.error && waitpid(pid, &attempt.status, 0) < 0) attempt.error = errno;
  if (!attempt.error && !attempt.status) read_to_end(files.out, &attempt.picture);
  if (!attempt.error) read_to_end(files.err, &attempt.said);
  close_files(&files);
  return attempt;
}
