/* Parser: what scanner, grammar actions and error messages share while one text is read. Inside parse only.
 *
 * The way of a token: scanner (grammar/tfm.l) -> TokenStream (tokens.c: brackets, recovery) -> grammar (grammar/tfm.y)
 * -> nodes (nodes.c). Faults in characters are lexical.c's, in order of tokens syntax_error.c's. */
#ifndef TFM_PARSE_PARSER_H
#define TFM_PARSE_PARSER_H

#include "parse/parse.h"

enum {
  PARSE_MAX_SIZE = 16 * 1024 * 1024,
  PARSE_MAX_NESTING = 256,
  PARSE_MAX_NAME = 1024,
  PARSE_MAX_NUMBER = 255,
  PARSE_MAX_STRING = 4096,
  PARSE_MAX_NODES = 1000000,
};

typedef struct TokenStream TokenStream;

typedef struct Parser {
  Arena *arena;
  Map *names;
  Diag *diag;
  Source *source;
  TokenStream *tokens;
  uint32_t scan_offset; /* of the next byte that the scanner reads */
  uint32_t n_nodes;
  bool is_skipping; /* looking for the place to go on after a fault: nothing is reported */
  bool is_stopped;  /* a limit was reached: the rest of the text is not read */
  Ast *result;
} Parser;

/* Adds an error, unless the parser skips or has stopped; stops it after as many as are shown. */
void parser_error(Parser *parser, SrcSpan span, DiagCode code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds an error that ends the parse: a limit, where going on would only repeat it. */
void parser_stop(Parser *parser, SrcSpan span, DiagCode code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
