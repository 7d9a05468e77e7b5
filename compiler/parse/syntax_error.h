/* The message for a token that cannot stand where it does. Inside parse only. */
#ifndef TFM_PARSE_SYNTAX_ERROR_H
#define TFM_PARSE_SYNTAX_ERROR_H

#include "parse/parser.h"

/* `expected`: the tokens that could stand there. */
void syntax_error_report(Parser *parser, int token, SrcSpan span, const int *expected, int n_expected);

#endif
