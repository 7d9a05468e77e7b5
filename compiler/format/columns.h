/* FormatLines: lines of the text that is made, and what of them stands in columns. Inside format only.
 *
 * In: lines one after the other, each with its parts. Out: the text, in which `as` and comments at the ends of lines
 * that follow one another stand in one column. */
#ifndef TFM_FORMAT_COLUMNS_H
#define TFM_FORMAT_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "base/vec.h"

enum { MOST_COLUMNS = 120 };

typedef struct FormatLine {
  uint32_t indent;
  bool after_empty;
  const char *text;    /* without what follows */
  const char *path;    /* `as "path"` at the end of a statement of one line, or NULL */
  const char *comment; /* behind it, or NULL */
} FormatLine;

typedef struct FormatLines {
  VEC(FormatLine) all;
} FormatLines;

void lines_print(StrBuf *out, const FormatLines *lines);
uint32_t text_width(const char *text);

#endif
