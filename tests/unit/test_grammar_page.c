/* The examples of grammar/README.md: each parses, or is refused, as its block says. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "diag/render.h"
#include "parse/parse.h"

static void check_example(const char *kind, const char *text) {
  Arena *arena = arena_create();
  Map names = map_new(arena);
  Diag diag = diag_new(arena);
  bool is_expression = strcmp(kind, " expression") == 0, is_refused = strcmp(kind, " refused") == 0;
  cr_expect(is_expression || is_refused || !*kind, "an unknown kind of example:%s", kind);
  Source *source = source_new(arena, "README.md", text, (uint32_t)strlen(text));
  const Ast *ast = (is_expression ? parse_expression : parse_file)(arena, &names, &diag, source);
  StrBuf messages = strbuf_new(arena);
  render_text(&messages, &diag, false);
  cr_expect((ast == NULL) == is_refused, "%s%s", text, messages.text);
  arena_destroy(arena);
}

Test(grammar_page, every_example) {
  static char page[1 << 16];
  FILE *file = fopen(TFM_SOURCE_DIR "/grammar/README.md", "rb");
  cr_assert(file != NULL);
  page[fread(page, 1, sizeof page - 1, file)] = '\0';
  fclose(file);
  unsigned n = 0;
  static const char fence[] = "\n```tfm";
  for (char *at = page; (at = strstr(at, fence)); n++) {
    char *kind = at + strlen(fence), *text = strchr(kind, '\n'), *end = strstr(text, "\n```");
    cr_assert(end != NULL);
    *text++ = *end = '\0';
    check_example(kind, text);
    at = end + 4;
  }
  cr_expect(n > 20, "only %u examples", n);
}
