/* Tokens of the scanner, and comments, which it leaves out, from the gaps between them. See text_tokens.h. */
#include "parse/text_tokens.h"

#include <string.h>

#include "parse/scanner.h"
#include "tfm.tab.h"

static TextKind kind_of(const char *text) {
  const unsigned char first = (unsigned char)*text;
  if (first == '"') return TEXT_STRING;
  if (first >= '0' && first <= '9') return TEXT_NUMBER;
  return first == '_' || (first | 32u) - 'a' < 26u ? TEXT_WORD : TEXT_MARK;
}

static void add(Arena *arena, TextTokens *tokens, TextToken token, unsigned lines) {
  token.on_new_line = lines > 0 || !tokens->all.n;
  token.after_empty = lines > 1 && tokens->all.n;
  vec_push(arena, &tokens->all, token);
}

/* Adds the comments between two tokens; returns the number of line ends behind the last of them. */
static unsigned add_comments(Arena *arena, TextTokens *tokens, const char *text, uint32_t at, uint32_t end) {
  unsigned lines = 0;
  while (at < end) {
    if (text[at] == '#') {
      const uint32_t begin = at;
      at += (uint32_t)strcspn(text + at, "\r\n");
      uint32_t last = at;
      while (last > begin && strchr(" \t\f", text[last - 1])) last--;
      add(arena, tokens, (TextToken){.kind = TEXT_COMMENT, .begin = begin, .end = last}, lines);
      lines = 0;
      continue;
    }
    if (text[at] == '\n' || (text[at] == '\r' && text[at + 1] != '\n')) lines++;
    at++;
  }
  return lines;
}

TextTokens text_tokens(Arena *arena, Source *source) {
  TextTokens tokens = {0};
  Map names = map_new(arena);
  Diag ignored = diag_new(arena);
  Parser parser = {.arena = arena, .names = &names, .diag = &ignored, .source = source, .is_skipping = true};
  if (source->size >= 3 && memcmp(source->text, "\xef\xbb\xbf", 3) == 0) parser.scan_offset = 3;
  uint32_t at = parser.scan_offset;
  void *scanner = scanner_new(&parser);
  for (;;) {
    TFM_YYSTYPE value;
    SrcSpan span;
    const bool is_end = scanner_next(&parser, scanner, &value, &span) == TOK_YYEOF;
    const uint32_t begin = is_end ? source->size : span.begin;
    const unsigned lines = add_comments(arena, &tokens, source->text, at, begin);
    const TextKind kind = is_end ? TEXT_END : kind_of(source->text + begin);
    add(arena, &tokens, (TextToken){.kind = kind, .begin = begin, .end = is_end ? begin : span.end}, lines);
    if (is_end) return tokens;
    at = span.end;
  }
}
