/* Dot: pictures laid out by the program `dot` of Graphviz. In: texts of pictures. Out: what `dot` makes of them. */
#ifndef TFM_DRAW_DOT_H
#define TFM_DRAW_DOT_H

#include <stdbool.h>

#include "base/strbuf.h"

typedef struct DotAttempt {
  int error, status; /* of the system (ENOENT: there is no `dot`), and of `dot`; 0 both: it is done */
  StrBuf picture, said;
} DotAttempt;

/* Runs `dot -TFORMAT -Gsplines=EDGES`. */
DotAttempt dot_attempt(Arena *arena, const StrBuf *text, const char *format, const char *edges);

#endif
