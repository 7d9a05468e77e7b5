/* tfmc fmt: the one style of .tfm text.
 *
 * In: .tfm files, or - for standard input. Out: the files, replaced where their text differs, or the text on stdout.
 * Refused are texts with errors, which are left alone. With --check nothing is written. */
#include <string.h>

#include "cli/commands/commands.h"
#include "format/format.h"
#include "weights/files.h"

enum { MOST_BYTES = 16 << 20 }; /* of a text that the parser takes */

static bool replace(Session *session, const char *path, const StrBuf *text) {
  OutFile *file = ARENA_NEW(session->arena, OutFile);
  if (!out_file_open(file, &session->diag, path)) return false;
  out_file_write(file, text->text, text->length);
  return out_file_commit(file);
}

static void format_file(Session *session, const char *path) {
  StrBuf text = strbuf_new(session->arena);
  if (!session_read_text(session, path, MOST_BYTES, DIAG_TOO_LONG, &text)) return;
  const StrBuf *made = format_text(session->arena, &session->diag, session_text_name(path), &text);
  if (!made) return;
  const bool differs = made->length != text.length || memcmp(made->text, text.text, text.length) != 0;
  if (option_given(&session->options, OPTION_CHECK_ONLY)) {
    if (differs)
      diag_error_at(&session->diag, session_text_name(path), DIAG_STYLE,
                    "the text is not in the one style; `tfmc fmt` lays it out");
  } else if (strcmp(path, "-") == 0) {
    session_print(made);
  } else if (differs) {
    replace(session, path, made);
  }
}

void command_fmt(Session *session) {
  for (size_t i = 0; i < session->options.files.n; i++) format_file(session, session->options.files.items[i]);
}
