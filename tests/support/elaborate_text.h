/* Graphs of models that tests write down or find in files.
 *
 * In: the text or the path of a program. Out: its graph, or NULL with messages in `diag`, as the command line would
 * get it. */
#ifndef TFM_TESTS_ELABORATE_TEXT_H
#define TFM_TESTS_ELABORATE_TEXT_H

#include <criterion/criterion.h>
#include <string.h>

#include "elaborate/elaborate.h"
#include "first_message.h"

/* NULL after an error. */
Graph *elaborate_text(Arena *arena, Diag *diag, const char *text, const ElaborateOptions *options);
Graph *elaborate_file(Arena *arena, Diag *diag, const char *path, const ElaborateOptions *options);
/* A whole file; fails the test if it cannot be read. */
char *read_text(Arena *arena, const char *path);

#endif
