/* Texts of files and of standard input. See text_files.h. */
#include "cli/text_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "weights/files.h"

const char *text_file_name(const char *path) { return strcmp(path, "-") == 0 ? "<stdin>" : path; }

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

bool text_file_read(Session *session, const char *path, size_t most, DiagCode code, StrBuf *text) {
  if (!(strcmp(path, "-") == 0 ? read_stdin(session, most, text) : read_file(session, path, most, text))) return false;
  if (text->length <= most) return true;
  diag_error_at(&session->diag, text_file_name(path), code, "the text is larger than %zu MiB", most >> 20);
  return false;
}
