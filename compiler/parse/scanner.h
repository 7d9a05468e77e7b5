/* The scanner as the TokenStream sees it; made by flex from grammar/tfm.l. Inside parse only. */
#ifndef TFM_PARSE_SCANNER_H
#define TFM_PARSE_SCANNER_H

#include "parse/parser.h"
#include "tfm.tab.h"

/* Reads `source` of the parser, which is copied: flex writes into what it scans. All memory is the parser's arena's. */
void *scanner_new(Parser *parser);
/* The next token; 0 at the end. A fault inside flex stops the parser. */
int scanner_next(Parser *parser, void *scanner, TFM_YYSTYPE *value, SrcSpan *span);

#endif
