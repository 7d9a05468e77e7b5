/* Fuzz target: any bytes as a .tfm file and as the value of a -D.
 *
 * The parser must come back with a tree or with messages, never both or neither; all messages must render; a tree that
 * is printed must parse again and print the same. */
#include <string.h>

#include "diag/render.h"
#include "fuzz.h"
#include "parse/parse.h"

typedef Ast *(*ParseFunction)(Arena *, Map *, Diag *, Source *);

static Ast *parsed(Arena *arena, Diag *diag, ParseFunction parse, const char *text, size_t size) {
  Map names = map_new(arena);
  return parse(arena, &names, diag, source_new(arena, "fuzz.tfm", text, (uint32_t)size));
}

/* All three renderings, with the bytes of the input in the excerpts. */
static void render_all(Arena *arena, const Diag *diag) {
  StrBuf out = strbuf_new(arena);
  render_text(&out, diag, true);
  render_summary(&out, diag, "");
  render_json(&out, diag);
}

/* Printing what was parsed and parsing it again must reach a fixed point at once. */
static void check(ParseFunction parse, const uint8_t *bytes, size_t size) {
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  const char *text = arena_strndup(arena, (const char *)bytes, size);
  const Ast *first = parsed(arena, &diag, parse, text, size);
  if ((first != NULL) == diag_has_errors(&diag)) fuzz_fail("neither a tree nor messages, or both", text, "");
  render_all(arena, &diag);
  if (first) {
    StrBuf once = strbuf_new(arena), twice = strbuf_new(arena), dump = strbuf_new(arena);
    ast_print(&once, first);
    ast_dump(&dump, arena, first);
    const Ast *second = parsed(arena, &diag, parse, once.text, once.length);
    if (!second) fuzz_fail("what was printed does not parse", text, once.text);
    ast_print(&twice, second);
    if (strcmp(once.text, twice.text) != 0) fuzz_fail("printed differently the second time", once.text, twice.text);
  }
  arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  check(parse_file, bytes, size);
  check(parse_expression, bytes, size);
  return 0;
}
