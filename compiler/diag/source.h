/* Source: the text of one file and where its lines begin. SrcSpan: a piece of it.
 *
 * In: bytes, which may be anything. Out: line, column (in bytes, from 1) and the text of a line, computed only when
 * something is printed. CR, LF and CR LF each end a line. Malformed UTF-8 is passed on byte by byte and escaped where
 * it is shown. The text is not copied: its owner must keep it as long as the source. */
#ifndef TFM_DIAG_SOURCE_H
#define TFM_DIAG_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/strbuf.h"

typedef struct Source {
  const char *path; /* as the user gave it; "<std>" for the standard layers, "-D name" for a definition */
  const char *name; /* the path from the folder of the main file, wherever that lies; else the same as `path` */
  const char *text; /* `size` bytes and a NUL */
  uint32_t size;
  Arena *arena; /* the one it lives in: line_starts must live as long */
  uint32_t *line_starts; /* n_lines of them, made on first use */
  uint32_t n_lines;
} Source;

/* Bytes [begin, end) of a source. `source` NULL: no place. */
typedef struct SrcSpan {
  Source *source;
  uint32_t begin, end;
} SrcSpan;

typedef struct SrcPlace {
  uint32_t line, column; /* from 1 */
} SrcPlace;

/* `text` is kept, not copied; it must outlive the source. */
Source *source_new(Arena *arena, const char *path, const char *text, uint32_t size);
SrcPlace source_place(Source *source, uint32_t offset);
/* The line (from 1) without its end; `*length` gets its bytes. */
const char *source_line(Source *source, uint32_t line, uint32_t *length);

#define NO_SPAN ((SrcSpan){0})

// ---- UTF-8, one character at a time ----

/* Bytes of the character at `text`, 0 if it is malformed or `size` ends inside it. */
unsigned utf8_decode(const char *text, size_t size, uint32_t *character);
/* Columns on a terminal: 0 for combining marks, 2 for wide characters, else 1. Not for control characters. */
unsigned utf8_width(uint32_t character);
/* Characters that change the direction of what follows, so that text reads otherwise than it is. */
bool utf8_is_bidi_control(uint32_t character);
/* Appends `text`, with every byte and character that a terminal should not get escaped: \n, \t, \x1b, \u202e. */
void utf8_add_escaped(StrBuf *out, const char *text, size_t size);
/* The text as people may see it, in a table or a report: the same, or a copy in which that is escaped. */
const char *text_shown(Arena *arena, const char *text);
/* Appends one unit of a text, a character or a malformed byte, escaped if need be. Returns its bytes; `*width` gets
 * the columns of what was appended. */
unsigned utf8_add_unit(StrBuf *out, const char *text, size_t size, unsigned *width);

#endif
