/* usage: print_tokens FILE...
 * The tokens of texts as `tfmc fmt` has them, comments among them: a line for each file, "# PATH", then for each token
 * its kind and its first and last byte. */
#include <stdio.h>
#include <stdlib.h>

#include "parse/text_tokens.h"

static const char *const kinds[] = {"word", "number", "string", "mark", "comment", "end"};

static void print_file(const char *path) {
  Arena *arena = arena_create();
  StrBuf text = strbuf_new(arena);
  char piece[4096];
  FILE *file = fopen(path, "rb");
  if (!file) exit(EXIT_FAILURE);
  for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;) strbuf_add_n(&text, piece, n);
  fclose(file);
  const TextTokens tokens = text_tokens(arena, source_new(arena, path, text.text, (uint32_t)text.length));
  printf("# %s\n", path);
  for (size_t i = 0; i + 1 < tokens.all.n; i++)
    printf("%s %u %u\n", kinds[tokens.all.items[i].kind], tokens.all.items[i].begin, tokens.all.items[i].end);
  arena_destroy(arena);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) print_file(argv[i]);
  return EXIT_SUCCESS;
}
