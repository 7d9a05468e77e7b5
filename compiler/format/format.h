/* The one style of .tfm text.
 *
 * In: the text of a file. Out: the same tokens and comments, laid out anew; formatting that again changes nothing, and
 * the model it describes is the same. Refuses a text that does not parse: messages say why, and it is left alone.
 *
 * Two spaces for each block; lines of at most 120 columns, where something can be broken; `=` of assignments that
 * follow one another in one column, and `as` and comments at ends of lines likewise; at most one empty line, and one
 * between layers. Lines that the author broke after commas and operators stay broken; a block on one line stays there
 * while it fits. Strings and numbers stay as they were written. */
#ifndef TFM_FORMAT_FORMAT_H
#define TFM_FORMAT_FORMAT_H

#include "diag/diag.h"

/* NULL after an error. The result ends with one line end; it is empty if the text is. */
const StrBuf *format_text(Arena *arena, Diag *diag, const char *path, const StrBuf *text);

#endif
