/* Graphs of models that tests write down or find in files; see elaborate_text.h. Graphs and messages live in the
 * caller's arena. */
#include "elaborate_text.h"

#include <stdio.h>

Graph *elaborate_text(Arena *arena, Diag *diag, const char *text, const ElaborateOptions *options) {
  Map names = map_new(arena);
  ParsedProgram *program = parse_text(arena, &names, diag, "model.tfm", text, strlen(text));
  return program ? elaborate(arena, &names, diag, program, options) : NULL;
}

Graph *elaborate_file(Arena *arena, Diag *diag, const char *path, const ElaborateOptions *options) {
  Map names = map_new(arena);
  ParsedProgram *program = parse_program(arena, &names, diag, path);
  return program ? elaborate(arena, &names, diag, program, options) : NULL;
}

/* The text ends with a NUL; a file that contains one is cut there for callers that use strlen. */
char *read_text(Arena *arena, const char *path) {
  FILE *file = fopen(path, "rb");
  cr_assert_not_null(file, "%s", path);
  StrBuf text = strbuf_new(arena);
  char block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) strbuf_add_n(&text, block, n);
  fclose(file);
  return text.text;
}
