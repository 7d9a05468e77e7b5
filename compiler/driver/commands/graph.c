/* tfmc graph: a model as a picture. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/commands/commands.h"
#include "driver/model.h"

extern char **environ;

// ---- the program `dot` ----

/* A file without a name that holds the text, at its beginning; -1 with errno set. */
static int file_of(const StrBuf *text) {
  char name[] = "/tmp/tfmc-XXXXXX";
  int fd = mkstemp(name);
  if (fd < 0) return -1;
  unlink(name);
  for (size_t at = 0; at < text->length;) {
    ssize_t n = write(fd, text->text + at, text->length - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      close(fd);
      return -1;
    }
    at += (size_t)n;
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

/* Starts `dot -Tsvg`, reading from `in`, writing to `out`. 0, or an error number. */
static int start_dot(int in, int out, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  char dot[] = "dot", format[] = "-Tsvg", *arguments[] = {dot, format, NULL};
  int error = posix_spawnp(pid, "dot", &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

static void read_all(int fd, StrBuf *text) {
  char piece[4096];
  lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;) strbuf_add_n(text, piece, (size_t)n);
}

static bool draw(Session *session, const StrBuf *text, StrBuf *picture) {
  StrBuf empty = strbuf_new(session->arena);
  int in = file_of(text), out = file_of(&empty), status = 0;
  pid_t pid;
  int error = in < 0 || out < 0 ? errno : start_dot(in, out, &pid);
  if (!error && waitpid(pid, &status, 0) < 0) error = errno;
  if (!error && status == 0) read_all(out, picture);
  if (in >= 0) close(in);
  if (out >= 0) close(out);
  if (error == ENOENT)
    diag_error_at(&session->diag, NULL, DIAG_TOOL,
                  "the program `dot` was not found; install graphviz, or use --format=dot");
  else if (error)
    diag_error_at(&session->diag, NULL, DIAG_TOOL, "cannot run `dot`: %s", strerror(error));
  else if (status)
    diag_error_at(&session->diag, NULL, DIAG_TOOL, "`dot` failed; --format=dot prints what it was given");
  return !error && status == 0;
}

// ---- the command ----

void command_graph(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (output && !session_check_output(session, output, &session->options.files.items[0], 1)) return;
  Graph *graph = model_load(session);
  if (!graph) return;
  StrBuf text = strbuf_new(session->arena), picture = strbuf_new(session->arena);
  graph_dot(&text, graph);
  if (option_is(&session->options, OPTION_FORMAT, "dot", "dot")) session_write(session, &text);
  else if (draw(session, &text, &picture)) session_write(session, &picture);
}
