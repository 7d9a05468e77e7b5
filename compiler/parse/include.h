/* A program: a file and everything it includes, each file once.
 *
 * In: a path, or texts in memory. Out: the trees of all files, in the arena. Refuses cycles, files nested deeper than
 * 32, files outside the folder of the first one, and whatever is no regular file. */
#ifndef TFM_PARSE_INCLUDE_H
#define TFM_PARSE_INCLUDE_H

#include "parse/parse.h"

typedef struct ParsedFile {
  Source *source; /* its name is the path from the folder of the main file: "model.tfm", "parts/head.tfm" */
  Ast *ast;     /* AST_FILE */
  bool is_main;     /* the file the user named; not an included one */
} ParsedFile;

typedef struct ParsedProgram {
  VEC(ParsedFile) files; /* in the order in which they were finished: included files before the includer */
} ParsedProgram;

typedef struct NamedText {
  const char *name, *text;
  size_t size;
  bool is_main;
} NamedText;

/* Texts in place of files: what an editor has open. NULL for a file that is not open. `resolved`: a real path. */
typedef struct OpenTexts {
  void *context;
  const NamedText *(*find)(void *context, const char *resolved);
} OpenTexts;

/* NULL after an error. */
ParsedProgram *parse_program(Arena *arena, Map *names, Diag *diag, const char *path);
/* The same for editors: after errors, which the Diag counts, what could be read of each file. NULL if nothing could be
 * read of the main file. */
ParsedProgram *parse_open_program(Arena *arena, Map *names, Diag *diag, const char *path, const OpenTexts *open);
/* The same from text in memory (libtfm, tests): includes are errors. */
ParsedProgram *parse_text(Arena *arena, Map *names, Diag *diag, const char *path, const char *text, size_t size);
/* The same from the files of a program that was parsed before, in its order: includes are not followed again. */
ParsedProgram *parse_texts(Arena *arena, Map *names, Diag *diag, const NamedText *texts, size_t n);

#endif
