/* What one run of a command shares: texts that it reads, where its output goes, its messages, a line of progress. See
 * session.h.
 *
 * In: options, texts, a diag. Out: stdout, the file of -o, stderr. Messages are collected and printed once, at the
 * end, so they never mix with progress or output, and JSON messages are complete. */
#include "cli/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "diag/render.h"
#include "weights/files.h"

// ---- texts that are read ----

const char *session_text_name(const char *path) { return strcmp(path, "-") == 0 ? "<stdin>" : path; }

/* The size of a pipe is not known, so it is read in pieces up to the limit. */
static bool read_stdin(Session *session, size_t most, StrBuf *text) {
  char piece[4096];
  size_t n;
  while ((n = fread(piece, 1, sizeof piece, stdin)) > 0 && text->length <= most) strbuf_add_n(text, piece, n);
  if (ferror(stdin)) diag_error_at(&session->diag, "<stdin>", DIAG_FILE, "cannot read: %s", strerror(errno));
  return !ferror(stdin);
}

static bool read_file(Session *session, const char *path, size_t most, StrBuf *text) {
  InFile file;
  if (!in_file_open(&file, &session->diag, path)) return false;
  size_t size = (uint64_t)file.size <= most ? (size_t)file.size : most + 1;
  char *bytes = arena_alloc(session->arena, size);
  bool read = in_file_read(&file, &session->diag, 0, bytes, size);
  strbuf_add_n(text, bytes, size);
  in_file_close(&file);
  return read;
}

bool session_read_text(Session *session, const char *path, size_t most, DiagCode code, StrBuf *text) {
  if (!(strcmp(path, "-") == 0 ? read_stdin(session, most, text) : read_file(session, path, most, text))) return false;
  if (text->length <= most) return true;
  diag_error_at(&session->diag, session_text_name(path), code, "the text is larger than %zu MiB", most >> 20);
  return false;
}

// ---- output ----

/* The reason of the first write that failed: later ones do not tell it any more. */
static int print_error;

void session_print(const StrBuf *text) {
  errno = 0;
  if (fwrite(text->text, 1, text->length, stdout) != text->length && !print_error) print_error = errno;
}

int session_print_error(void) { return print_error; }

void session_write(Session *session, const StrBuf *text) {
  const char *path = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (!path) {
    session_print(text);
    return;
  }
  OutFile *file = ARENA_NEW(session->arena, OutFile);
  if (!out_file_open(file, &session->diag, path)) return;
  out_file_write(file, text->text, text->length);
  session->wrote_output = out_file_commit(file);
}

bool session_check_output(Session *session, const char *output, const char *const *inputs, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (!inputs[i] || !same_file(output, inputs[i])) continue;
    diag_error_at(&session->diag, output, DIAG_USAGE, "the output would overwrite the input %s", inputs[i]);
    return false;
  }
  return out_file_check(&session->diag, output);
}

// ---- messages ----

/* auto: stderr is a terminal that is not "dumb", and NO_COLOR (no-color.org) is not set. */
static bool wants_color(const Options *options) {
  const char *when = option_text(options, OPTION_COLOR, "auto");
  if (strcmp(when, "auto") != 0) return strcmp(when, "always") == 0;
  const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
  if (no_color && *no_color) return false;
  return isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
}

/* Commands whose summary says that nothing was written: those for which a file was the purpose. */
static bool has_output(const Options *options) {
  return option_given(options, OPTION_OUTPUT) && verb_table[options->verb].output == OUTPUT_FILE;
}

static void drop_warnings(Diag *diag) {
  size_t kept = 0;
  for (size_t i = 0; i < diag->messages.n; i++)
    if (diag->messages.items[i].severity == DIAG_ERROR) diag->messages.items[kept++] = diag->messages.items[i];
  diag->messages.n = kept;
}

/* --quiet drops warnings, never errors. The exit code is that of the first error (diag_codes.def). */
int session_finish(Session *session) {
  const Options *options = &session->options;
  StrBuf text = strbuf_new(session->arena);
  if (option_given(options, OPTION_QUIET)) drop_warnings(&session->diag);
  if (option_is(options, OPTION_DIAGNOSTICS, "text", "json")) {
    render_json(&text, &session->diag);
  } else {
    render_text(&text, &session->diag, wants_color(options));
    bool says_nothing_written = diag_has_errors(&session->diag) && has_output(options) && !session->wrote_output;
    render_summary(&text, &session->diag, says_nothing_written ? ", no output written" : "");
  }
  fwrite(text.text, 1, text.length, stderr);
  return session->diag.exit_code;
}

// ---- progress ----

enum { FIRST_MILLISECONDS = 500, NEXT_MILLISECONDS = 100, BAR_CELLS = 30 };

struct Progress {
  const char *what;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t ended;
  bool is_ended;
  atomic_size_t done, all;
};

/* "\r" and "erase to the end of the line" replace what was drawn before. */
static void draw(Progress *progress, int milliseconds) {
  size_t done = atomic_load(&progress->done), all = atomic_load(&progress->all);
  char bar[BAR_CELLS + 1] = "";
  size_t cells = all ? done * BAR_CELLS / all : 0;
  if (all) {
    memset(bar, ' ', BAR_CELLS);
    memset(bar, '#', cells < BAR_CELLS ? cells : BAR_CELLS);
  }
  if (all) fprintf(stderr, "\r%s [%s] %zu/%zu\033[K", progress->what, bar, done, all);
  else fprintf(stderr, "\r%s, %.1f s\033[K", progress->what, milliseconds / 1000.0);
  fflush(stderr);
}

static struct timespec in_milliseconds(int milliseconds) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_nsec += (long)milliseconds * 1000000;
  at.tv_sec += at.tv_nsec / 1000000000;
  at.tv_nsec %= 1000000000;
  return at;
}

/* Wakes up now and then to draw. Nothing is drawn in the first half second: quick commands stay silent. The line is
 * erased at the end, so it leaves no trace in a log of the terminal. */
static void *show(void *context) {
  Progress *progress = context;
  int elapsed = 0, wait = FIRST_MILLISECONDS;
  pthread_mutex_lock(&progress->lock);
  while (!progress->is_ended) {
    struct timespec until = in_milliseconds(wait);
    if (pthread_cond_timedwait(&progress->ended, &progress->lock, &until) != ETIMEDOUT) continue;
    elapsed += wait;
    wait = NEXT_MILLISECONDS;
    draw(progress, elapsed);
  }
  pthread_mutex_unlock(&progress->lock);
  if (elapsed) fputs("\r\033[K", stderr);
  return NULL;
}

/* NULL, and then nothing happens, unless stderr is a terminal: logs and pipes get no control characters. */
Progress *progress_begin(Session *session, const char *what) {
  if (option_given(&session->options, OPTION_QUIET) || !isatty(STDERR_FILENO)) return NULL;
  Progress *progress = ARENA_NEW(session->arena, Progress);
  progress->what = what;
  pthread_mutex_init(&progress->lock, NULL);
  pthread_cond_init(&progress->ended, NULL);
  return pthread_create(&progress->thread, NULL, show, progress) == 0 ? progress : NULL;
}

void progress_set(Progress *progress, size_t done, size_t all) {
  if (!progress) return;
  atomic_store(&progress->done, done);
  atomic_store(&progress->all, all);
}

void progress_end(Progress *progress) {
  if (!progress) return;
  pthread_mutex_lock(&progress->lock);
  progress->is_ended = true;
  pthread_cond_signal(&progress->ended);
  pthread_mutex_unlock(&progress->lock);
  pthread_join(progress->thread, NULL);
  pthread_cond_destroy(&progress->ended);
  pthread_mutex_destroy(&progress->lock);
}
