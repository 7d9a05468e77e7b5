/* tfmc fmt: the one style of .tfm text.
 *
 * In: .tfm files, or standard input. Out: the files, replaced where their text differs, or the text on stdout; with
 * --diff what would change. Refused are texts with errors, which are left alone. With --check and --diff nothing is
 * written. */
#include <string.h>

#include "cli/commands/commands.h"
#include "format/format.h"
#include "format/line_diff.h"
#include "weights/files.h"

enum { MOST_BYTES = 16 << 20 }; /* of a text that the parser takes */

static bool replace(Session *session, const char *path, const StrBuf *text) {
  OutFile *file = ARENA_NEW(session->arena, OutFile);
  if (!out_file_open(file, &session->diag, path)) return false;
  out_file_write(file, text->text, text->length);
  return out_file_commit(file);
}

static void print_diff(Session *session, const char *path, const StrBuf *text, const StrBuf *made) {
  StrBuf shown = strbuf_new(session->arena);
  const LineDiff diff = line_diff(session->arena, text, made);
  line_diff_print(&shown, text_shown(session->arena, session_text_name(path)), &diff);
  session_print(&shown);
}

static void format_file(Session *session, const char *path) {
  const Options *options = &session->options;
  const bool is_checked = option_given(options, OPTION_CHECK_ONLY), is_shown = option_given(options, OPTION_DIFF);
  StrBuf text = strbuf_new(session->arena);
  if (!session_read_text(session, path, MOST_BYTES, DIAG_TOO_LONG, &text)) return;
  const StrBuf *made = format_text(session->arena, &session->diag, session_text_name(path), &text);
  if (!made) return;
  const bool differs = made->length != text.length || memcmp(made->text, text.text, text.length) != 0;
  if (is_shown) print_diff(session, path, &text, made);
  if (is_checked && differs)
    diag_error_at(&session->diag, session_text_name(path), DIAG_STYLE,
                  "the text is not in the one style; `tfmc fmt` lays it out");
  if (is_checked || is_shown) return;
  if (strcmp(path, "-") == 0)
    session_print(made);
  else if (differs)
    replace(session, path, made);
}

void command_fmt(Session *session) {
  const Options *options = &session->options;
  const bool is_stdin = option_given(options, OPTION_STDIN);
  if (is_stdin == (options->files.n > 0)) {
    option_error(&session->diag, OPTION_STDIN, "name files, or give --stdin without any");
    return;
  }
  if (is_stdin) format_file(session, "-");
  for (size_t i = 0; i < options->files.n; i++) format_file(session, options->files.items[i]);
}
