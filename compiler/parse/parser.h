/* Parser: what scanner, grammar actions and error messages share while one text is read. Inside parse only.
 *
 * A token goes from the scanner (grammar/tfm.l, whose values lexical.c makes) through the TokenStream (tokens.c:
 * brackets, recovery) and the grammar (grammar/tfm.y) into nodes (parser.c). A token out of place is reported by
 * parse.c. */
#ifndef TFM_PARSE_PARSER_H
#define TFM_PARSE_PARSER_H

#include "ast/ast.h"
#include "base/map.h"
#include "base/vec.h"
#include "diag/diag.h"

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

// ---- errors ----

/* Adds an error, unless the parser skips or has stopped; stops it after as many as are shown. */
void parser_error(Parser *parser, SrcSpan span, DiagCode code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds an error that ends the parse: a limit, where going on would only repeat it. */
void parser_stop(Parser *parser, SrcSpan span, DiagCode code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// ---- nodes ----

typedef struct AstList {
  VEC(Ast *) nodes;
} AstList;

/* The children of a node_new, at least one; any of them may be NULL. */
#define CHILDREN(...) (Ast *[]){__VA_ARGS__}, sizeof((Ast *[]){__VA_ARGS__}) / sizeof(Ast *)
#define NO_CHILDREN NULL, 0

Ast *node_new(Parser *parser, AstKind kind, SrcSpan span, const char *name, Ast *const *children, size_t n);
/* A node whose children are `first` (left out if NULL) and the list's. */
Ast *node_of_list(Parser *parser, AstKind kind, SrcSpan span, const char *name, Ast *first, const AstList *list);

AstList *list_new(Parser *parser);
/* Adds a node and returns the list; NULL, which stands for a fault, is left out. */
AstList *list_add(Parser *parser, AstList *list, Ast *node);
/* The same for arguments of a call: none by place may follow one by name. */
AstList *list_add_argument(Parser *parser, AstList *list, Ast *argument);

/* An error unless the condition of a `require` without a text is `x in list`, which says itself what is wrong. */
void check_choice(Parser *parser, const Ast *condition);

/* The one copy of a text among the names. */
const char *intern(Parser *parser, const char *text);

/* From the beginning of one span to the end of another. */
SrcSpan span_join(SrcSpan first, SrcSpan last);

// ---- tokens of the scanner ----

/* Each function returns the token for the grammar, or 0 if the text is to be skipped; faults are reported. */
int lexical_name(Parser *parser, const char *text, SrcSpan span, const char **name);
int lexical_number(Parser *parser, const char *text, SrcSpan span, Ast **number);
int lexical_infinity(Parser *parser, SrcSpan span, Ast **number);
int lexical_malformed_number(Parser *parser, const char *text, SrcSpan span, Ast **number);
/* `text` with its quotes. */
int lexical_string(Parser *parser, const char *text, SrcSpan span, const char **value);
int lexical_unterminated_string(Parser *parser, SrcSpan span, const char **value);
int lexical_single_quotes(Parser *parser, SrcSpan span, const char **value);
int lexical_unexpected(Parser *parser, const char *text, SrcSpan span);

/* Reports the first byte that may not stand in a text: NUL, other control bytes, malformed UTF-8, bidi controls. */
bool lexical_check_bytes(Parser *parser);

// ---- syntax errors ----

/* Reports a token that cannot stand where it does; `expected` are the tokens that could. */
void syntax_error_report(Parser *parser, int token, SrcSpan span, const int *expected, int n_expected);

#endif
