/* LineDiff: which lines of a text became which lines of another.
 *
 * In: two texts. Out: the changes in order, least in number while there are few of them (at most MOST_STEPS lines
 * differ; else all between the first and the last that do is one change), and the unified diff that `patch` reads. */
#ifndef TFM_FORMAT_LINE_DIFF_H
#define TFM_FORMAT_LINE_DIFF_H

#include <stdint.h>

#include "base/strbuf.h"
#include "base/vec.h"

typedef struct TextLines {
  const char *text;
  uint32_t *starts; /* n + 1 of them: line i is [starts[i], starts[i + 1]), its end included */
  uint32_t n;
} TextLines;

typedef struct LineChange { /* lines [old_first, old_first + old_n) became [new_first, new_first + new_n) */
  uint32_t old_first, old_n, new_first, new_n;
} LineChange;

typedef struct LineDiff {
  TextLines old, new;
  VEC(LineChange) changes;
} LineDiff;

LineDiff line_diff(Arena *arena, const StrBuf *old, const StrBuf *new);
/* Nothing if the texts are equal. `name` is shown as it is. */
void line_diff_print(StrBuf *out, const char *name, const LineDiff *diff);

#endif
