/* JsonCursor: the header of a safetensors file, byte by byte, as strict JSON.
 *
 * In: a file and the range of its header. Out: strings, integers, punctuation. The header is read in pieces, so a
 * hostile one costs no memory; a library that builds a tree would take many times its size. There is no recursion
 * either: the reader above knows the three levels of the format. The first fault is reported with its byte in the
 * header; from then on every function fails, so callers need not stop at once. Refuses what JSON does not allow
 * (malformed UTF-8, raw control bytes, lone surrogates), and numbers that are not whole. */
#ifndef TFM_WEIGHTS_JSON_CURSOR_H
#define TFM_WEIGHTS_JSON_CURSOR_H

#include "base/strbuf.h"
#include "weights/files.h"

typedef struct JsonCursor {
  Diag *diag;
  const InFile *file;
  int64_t begin, size; /* the header: `size` bytes from `begin` on in the file */
  int64_t at;          /* the next byte, counted in the header */
  bool failed;
  int64_t piece_begin;
  size_t piece_size;
  unsigned char piece[1 << 15];
} JsonCursor;

/* Reports a fault at byte `at` of the header, and fails. */
bool cursor_fail(JsonCursor *cursor, int64_t at, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Returns the next byte that is not blank and leaves it where it is; -1 at the end or after a fault. */
int cursor_peek(JsonCursor *cursor);
/* Consumes the byte `c`, which must be the next that is not blank. */
bool cursor_expect(JsonCursor *cursor, char c);
/* Consumes `,` or the closing byte; *more is true after a comma. */
bool cursor_separator(JsonCursor *cursor, char close, bool *more);
/* Reads a string. Its first `limit` bytes replace the contents of `text`; *length is its whole length, so that the
 * caller can refuse one that is too long. */
bool cursor_string(JsonCursor *cursor, StrBuf *text, size_t limit, size_t *length);
/* Reads a whole number from 0 to 2^63 - 1. */
bool cursor_integer(JsonCursor *cursor, int64_t *value);

#endif
