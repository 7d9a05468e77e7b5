/* Source: the text of one file and where its lines begin. Span: a piece of it.
 *
 * In: bytes. Out: line, column (in bytes, from 1) and the text of a line, computed only when something is printed.
 * CR, LF and CR LF each end a line. */
#ifndef TFM_DIAG_SOURCE_H
#define TFM_DIAG_SOURCE_H

#include <stdint.h>

#include "base/arena.h"

typedef struct Source {
  const char *path; /* as the user gave it; "<std>" for the standard layers, "-D name" for a definition */
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

#endif
