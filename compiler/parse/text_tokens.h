/* TextTokens: the tokens of a text as they were written, comments among them, for whoever lays text out.
 *
 * In: a source that parse_file takes. Out: every token with its bytes, and what stands before it: a line end, an empty
 * line. What is between two tokens is blanks alone. Refuses nothing: a text with faults gives tokens as far as it can
 * be read. */
#ifndef TFM_PARSE_TEXT_TOKENS_H
#define TFM_PARSE_TEXT_TOKENS_H

#include "base/vec.h"
#include "parse/parse.h"

typedef enum TextKind {
  TEXT_WORD, /* names, and words of the language */
  TEXT_NUMBER,
  TEXT_STRING,
  TEXT_MARK,
  TEXT_COMMENT, /* without blanks at its end */
  TEXT_END
} TextKind;

typedef struct TextToken {
  TextKind kind;
  uint32_t begin, end;           /* bytes of the source */
  bool on_new_line, after_empty; /* a line end, an empty line stands before it */
} TextToken;

typedef struct TextTokens {
  VEC(TextToken) all; /* the last one is TEXT_END */
} TextTokens;

TextTokens text_tokens(Arena *arena, Source *source);

#endif
