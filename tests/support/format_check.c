/* See format_check.h. */
#include "format_check.h"

#include <string.h>

#include "format/format.h"
#include "format/line_diff.h"
#include "parse/text_tokens.h"

static Source *source_of(Arena *arena, const StrBuf *text) {
  return source_new(arena, "text.tfm", text->text, (uint32_t)text->length);
}

static const char *tree_of(Arena *arena, const StrBuf *text) {
  Map names = map_new(arena);
  Diag diag = diag_new(arena);
  const Ast *file = parse_file(arena, &names, &diag, source_of(arena, text));
  StrBuf out = strbuf_new(arena);
  if (!file) return "";
  ast_print(&out, file);
  return out.text;
}

/* Tokens and comments in order, each on a line. */
static const char *tokens_of(Arena *arena, const StrBuf *text) {
  const TextTokens tokens = text_tokens(arena, source_of(arena, text));
  StrBuf out = strbuf_new(arena);
  for (size_t i = 0; i < tokens.all.n; i++) {
    const TextToken *token = &tokens.all.items[i];
    strbuf_add_n(&out, text->text + token->begin, token->end - token->begin);
    strbuf_add_char(&out, '\n');
  }
  return out.text;
}

static void add_lines(StrBuf *out, const TextLines *lines, uint32_t first, uint32_t end) {
  strbuf_add_n(out, lines->text + lines->starts[first], lines->starts[end] - lines->starts[first]);
}

/* The new text, from the old one and the changes. */
static const char *changed(Arena *arena, const LineDiff *diff) {
  StrBuf out = strbuf_new(arena);
  uint32_t at = 0;
  for (size_t i = 0; i < diff->changes.n; i++) {
    const LineChange *change = &diff->changes.items[i];
    add_lines(&out, &diff->old, at, change->old_first);
    add_lines(&out, &diff->new, change->new_first, change->new_first + change->new_n);
    at = change->old_first + change->old_n;
  }
  add_lines(&out, &diff->old, at, diff->old.n);
  return out.text;
}

const char *format_fault(Arena *arena, const char *bytes, size_t size, unsigned *laid_out) {
  Diag diag = diag_new(arena);
  StrBuf text = strbuf_new(arena);
  strbuf_add_n(&text, bytes, size);
  const StrBuf *made = format_text(arena, &diag, "text.tfm", &text);
  if ((made != NULL) == diag_has_errors(&diag)) return "neither a text nor messages, or both";
  if (!made) return NULL;
  ++*laid_out;
  if (strcmp(tokens_of(arena, &text), tokens_of(arena, made)) != 0) return "other tokens or comments";
  if (strcmp(tree_of(arena, &text), tree_of(arena, made)) != 0) return "another tree";
  const StrBuf *again = format_text(arena, &diag, "text.tfm", made);
  if (!again || strcmp(made->text, again->text) != 0) return "another text the second time";
  const LineDiff diff = line_diff(arena, &text, made);
  return strcmp(changed(arena, &diff), made->text) == 0 ? NULL : "the changes of its lines lead elsewhere";
}
