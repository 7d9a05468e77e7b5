/* tfmc graph: a model as a picture, with its modules as boxes.
 *
 * In: a .tfm file and a stage of compilation that is a graph or a plan (stages.def). Out: Graphviz text, or the picture
 * that the program `dot` makes of it. Refused: stages that are text, pictures with more boxes than anybody can read.
 * A picture that `dot` cannot lay out with curved edges is drawn with straight ones, and a note on stderr says so. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/shown.h"

// ---- the program `dot` ----

extern char **environ;

/* Returns a file without a name that holds the text, positioned at its beginning; -1 with errno set. Files and not
 * pipes: `dot` reads everything before it writes, but a pipe in each direction could still block both. */
static int file_of(const StrBuf *text) {
  const char *folder = getenv("TMPDIR");
  char *name = arena_printf(text->arena, "%s/tfmc-XXXXXX", folder && *folder ? folder : "/tmp");
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

static void read_all(int fd, StrBuf *text) {
  char piece[4096];
  lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;) strbuf_add_n(text, piece, (size_t)n);
}

typedef struct Attempt {
  int error, status; /* of the system, and of `dot` */
  StrBuf picture, said;
} Attempt;

/* Takes the picture only if `dot` ended well; one that is cut off is worse than none. */
static Attempt try_edges(Session *session, const StrBuf *text, const char *edges) {
  Attempt attempt = {.picture = strbuf_new(session->arena), .said = strbuf_new(session->arena)};
  const DotFiles files = files_of(text);
  pid_t pid;
  const char *format = option_text(&session->options, OPTION_FORMAT, "svg");
  const bool is_open = files.in >= 0 && files.out >= 0 && files.err >= 0;
  attempt.error = is_open ? start_dot(format, edges, &files, &pid) : errno;
  if (!attempt.error && waitpid(pid, &attempt.status, 0) < 0) attempt.error = errno;
  if (!attempt.error && !attempt.status) read_all(files.out, &attempt.picture);
  if (!attempt.error) read_all(files.err, &attempt.said);
  close_files(&files);
  return attempt;
}

/* The first line of what `dot` said, for the message. */
static const char *first_line(const StrBuf *said) {
  if (!said->length) return "";
  return arena_printf(said->arena, " (%.*s)", (int)strcspn(said->text, "\n"), said->text);
}

static void report_failure(Session *session, const Attempt *last) {
  if (last->error == ENOENT)
    diag_error_at(&session->diag, NULL, DIAG_TOOL,
                  "the program `dot` was not found; install graphviz, or use --format=dot");
  else if (last->error)
    diag_error_at(&session->diag, NULL, DIAG_TOOL, "cannot run `dot`: %s", strerror(last->error));
  else
    diag_error_at(&session->diag, NULL, DIAG_TOOL, "`dot` failed%s; --format=dot prints what it was given",
                  first_line(&last->said));
}

/* Graphviz 2.43 gives up some large pictures while it bends edges around boxes ("lost edge"); straight edges need no
 * such way. */
static bool draw(Session *session, const StrBuf *text, StrBuf *picture) {
  static const char *const edges[] = {"spline", "line"};
  Attempt attempt = {0};
  for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
    attempt = try_edges(session, text, edges[i]);
    if (attempt.error) break;
    if (attempt.status) continue;
    *picture = attempt.picture;
    if (i && !option_given(&session->options, OPTION_QUIET))
      fputs("tfmc: note: `dot` could not lay this picture out with curved edges: they are straight lines\n", stderr);
    return true;
  }
  report_failure(session, &attempt);
  return false;
}

// ---- the command ----

static Drawing *draw_stage(Session *session) {
  const StageInfo *stage = shown_stage(session);
  if (stage->form == FORM_AST || stage->form == FORM_LLVM || stage->form == FORM_ASM) {
    option_error(&session->diag, OPTION_STAGE, "%s is text, which `tfmc dump` prints: only graphs and plans are drawn",
                 stage->name);
    return NULL;
  }
  Graph *graph = shown_graph(session, stage);
  if (!graph || diag_has_errors(&session->diag)) return NULL;
  if (stage->form != FORM_PLAN) return drawing_of_graph(session->arena, graph);
  const Plan *plan = shown_plan(session, graph);
  return plan ? drawing_of_plan(plan) : NULL;
}

/* The time of a layout grows faster than the picture, and nobody can read one with more boxes than this. */
static bool is_readable(Session *session, uint32_t boxes) {
  enum { MOST_BOXES = 1500 };
  if (boxes <= MOST_BOXES) return true;
  diag_error_at(&session->diag, NULL, DIAG_LIMIT,
                "the picture would have %u boxes, more than the %d that can be laid out: "
                "use a lower --depth, --stage=fused, or --format=dot",
                boxes, MOST_BOXES);
  return false;
}

void command_graph(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (output && !session_check_output(session, output, &session->options.files.items[0], 1)) return;
  Drawing *drawing = draw_stage(session);
  if (!drawing) return;
  StrBuf text = strbuf_new(session->arena), picture = strbuf_new(session->arena);
  uint32_t boxes = drawing_print(&text, drawing, (uint32_t)option_count(&session->options, OPTION_DEPTH, 1));
  if (option_is(&session->options, OPTION_FORMAT, "dot", "dot")) session_write(session, &text);
  else if (is_readable(session, boxes) && draw(session, &text, &picture)) session_write(session, &picture);
}
