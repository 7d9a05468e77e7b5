/* TokenStream: the tokens of one text, between scanner and grammar. Inside parse only.
 *
 * In: tokens of the scanner. Out: the same, with brackets counted, so that nesting ends at PARSE_MAX_NESTING. After a
 * fault it looks for the place where the text can be read again (the next line that begins a statement, the end of the
 * block, the next layer) and gives the token SYNC, the braces that are missing, and what stands there: one fault gives
 * one message, and what follows is still checked. */
#ifndef TFM_PARSE_TOKENS_H
#define TFM_PARSE_TOKENS_H

#include "parse/parser.h"

/* `first_token` is TOK_START_FILE or TOK_START_EXPRESSION. `scanner` is flex's. */
TokenStream *token_stream_new(Arena *arena, void *scanner, int first_token);
/* After a fault at the newest token: the next token is SYNC. */
void token_stream_recover(Parser *parser);
/* The innermost bracket that is open before the newest token, NO_SPAN if there is none. */
/* The tokens before the newest: 0 for the one before it, 1 for the one before that; no span if there is none. */
SrcSpan token_stream_before(const Parser *parser, int i);
SrcSpan token_stream_open_bracket(const Parser *parser);

/* "then", "name", "(": a token as the grammar spells it. */
const char *token_name(int token);

#endif
