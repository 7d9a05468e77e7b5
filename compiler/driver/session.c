#include "driver/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diag/render.h"
#include "weights/files.h"

void session_print(const StrBuf *text) { fwrite(text->text, 1, text->length, stdout); }

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

static bool wants_color(const Options *options) {
  const char *when = option_text(options, OPTION_COLOR, "auto");
  if (strcmp(when, "auto") != 0) return strcmp(when, "always") == 0;
  const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
  if (no_color && *no_color) return false;
  return isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
}

static bool has_output(const Options *options) {
  return option_given(options, OPTION_OUTPUT) && (options->verb == VERB_RUN || options->verb == VERB_GENERATE || options->verb == VERB_DUMP);
}

static void drop_warnings(Diag *diag) {
  size_t kept = 0;
  for (size_t i = 0; i < diag->messages.n; i++)
    if (diag->messages.items[i].severity == DIAG_ERROR) diag->messages.items[kept++] = diag->messages.items[i];
  diag->messages.n = kept;
}

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
