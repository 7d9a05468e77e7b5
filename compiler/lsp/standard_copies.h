/* Files with the texts of the standard layers, for editors, which can only show what is a file. */
#ifndef TFM_LSP_STANDARD_COPIES_H
#define TFM_LSP_STANDARD_COPIES_H

#include "base/arena.h"

/* The path of a read-only file with the text of "<std>" or its like, written if it is not there: in tfmc/standard of
 * TFM_CACHE_DIR, XDG_CACHE_HOME or ~/.cache, under a hash of the text. NULL if it cannot be written. */
const char *standard_copy(Arena *arena, const char *name);

#endif
