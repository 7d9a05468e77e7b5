/* What the scanner has found, as values: names, numbers, strings, and characters that mean nothing. Inside parse only.
 *
 * Each function returns the token for the grammar, or 0 if the text is to be skipped; faults are reported. */
#ifndef TFM_PARSE_LEXICAL_H
#define TFM_PARSE_LEXICAL_H

#include "parse/nodes.h"

int lexical_name(Parser *parser, const char *text, SrcSpan span, const char **name);
int lexical_number(Parser *parser, const char *text, SrcSpan span, Ast **number);
int lexical_infinity(Parser *parser, SrcSpan span, Ast **number);
int lexical_malformed_number(Parser *parser, const char *text, SrcSpan span, Ast **number);
/* `text` with its quotes. */
int lexical_string(Parser *parser, const char *text, SrcSpan span, const char **value);
int lexical_unterminated_string(Parser *parser, SrcSpan span, const char **value);
int lexical_single_quotes(Parser *parser, SrcSpan span, const char **value);
int lexical_unexpected(Parser *parser, const char *text, SrcSpan span);

/* Reports the first byte that may not stand in a text: NUL, other control bytes, malformed UTF-8, direction controls.
 */
bool lexical_check_bytes(Parser *parser);

#endif
