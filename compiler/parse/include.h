/* A program: a file and everything it includes, each file once.
 *
 * Refuses: cycles, more than 32 files deep, files outside the folder of the first file, what is no regular file. */
#ifndef TFM_PARSE_INCLUDE_H
#define TFM_PARSE_INCLUDE_H

#include "parse/parse.h"

typedef struct ParsedFile {
  Source *source;
  Ast *ast;     /* AST_FILE */
  bool is_main; /* the file the user named; not an included one */
} ParsedFile;

typedef struct ParsedProgram {
  VEC(ParsedFile) files; /* in the order in which they were finished: included files before the includer */
} ParsedProgram;

/* NULL after an error. */
ParsedProgram *parse_program(Arena *arena, Map *names, Diag *diag, const char *path);
/* The same from text in memory (libtfm, tests): includes are errors. */
ParsedProgram *parse_text(Arena *arena, Map *names, Diag *diag, const char *path, const char *text, size_t size);

#endif
