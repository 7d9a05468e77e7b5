/* The only door to flex and bison: text in, AST out.
 *
 * Refuses what grammar/tfm.y does not allow, bytes that are not UTF-8, NUL, direction controls, nesting over 256,
 * names over 1024 bytes, strings over 4096, files over 16 MiB. Several faults give one message each. The parser never
 * crashes, never exits and keeps no state between calls; its use of the stack does not grow with the input beyond the
 * nesting limit, so it may be fed with anything. */
#ifndef TFM_PARSE_PARSE_H
#define TFM_PARSE_PARSE_H

#include "ast/ast.h"
#include "base/map.h"
#include "diag/diag.h"

/* A file: AST_FILE, or NULL after an error. `names` interns the names. */
Ast *parse_file(Arena *arena, Map *names, Diag *diag, Source *source);
/* The same for editors: after an error what could be read around the faults; NULL if nothing could. */
Ast *parse_file_with_faults(Arena *arena, Map *names, Diag *diag, Source *source);
/* One expression, the value of a -D. */
Ast *parse_expression(Arena *arena, Map *names, Diag *diag, Source *source);

#endif
