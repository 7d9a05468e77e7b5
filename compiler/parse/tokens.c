/* The token stream: brackets are counted on the way from the scanner to the grammar, and faults are recovered from.
 *
 * In: tokens of the scanner; a call of token_stream_recover when the grammar cannot use the newest one. Out: tokens
 * for the grammar, with SYNC and missing brackets put in after a fault. Refuses more than PARSE_MAX_NESTING open
 * brackets.
 *
 * Recovery relies on how files are laid out: a statement begins on a line of its own. The search skips tokens until
 * one begins such a line and fits the innermost block, closes the block, or begins a layer. bison then pops its stack
 * up to the rule `error SYNC` of that block and goes on as if the faulty statement had been complete. */
#include "parse/tokens.h"

#include <string.h>

#include "parse/scanner.h"
#include "tfm.tab.h"

typedef struct Token {
  int kind;
  TFM_YYSTYPE value;
  SrcSpan span;
} Token;

/* What may stand in a pair of braces. */
typedef enum BlockKind { BLOCK_TOP, BLOCK_MEMBERS, BLOCK_STATEMENTS, BLOCK_SETTINGS, BLOCK_ENTRIES } BlockKind;

typedef struct OpenBracket {
  int kind;        /* the opening token */
  BlockKind block; /* of braces */
  bool is_header;  /* ( after the name of a layer or function */
  SrcSpan span;
} OpenBracket;

struct TokenStream {
  void *scanner;
  bool is_at_end;  /* the scanner has nothing more */
  int first_token; /* 0 once it is given */
  OpenBracket open[PARSE_MAX_NESTING];
  unsigned n_open;
  BlockKind next_block; /* of the next opening brace */
  bool header_is_next;
  Token newest;
  SrcSpan before[2]; /* of the tokens before it */
  OpenBracket closed; /* what `newest` closed, if it did */
  bool newest_opened, newest_closed;
  /* What comes before the next token of the scanner. */
  bool sync_is_next, kept_is_next;
  bool header_end_is_missing; /* ) */
  bool body_is_missing;       /* { } */
  unsigned n_missing_braces;
  Token kept;
  SrcSpan resumed; /* where reading went on after the last fault */
};

TokenStream *token_stream_new(Arena *arena, void *scanner, int first_token) {
  TokenStream *stream = ARENA_NEW(arena, TokenStream);
  stream->scanner = scanner;
  stream->first_token = first_token;
  return stream;
}

// ---- brackets ----

/* Only for closing tokens. */
static int opening_of(int closing) {
  return closing == TOK_RPAREN ? TOK_LPAREN : closing == TOK_RBRACKET ? TOK_LBRACKET : TOK_LBRACE;
}

static bool is_opening(int kind) { return kind == TOK_LPAREN || kind == TOK_LBRACKET || kind == TOK_LBRACE; }
static bool is_closing(int kind) { return kind == TOK_RPAREN || kind == TOK_RBRACKET || kind == TOK_RBRACE; }

/* What the innermost braces hold; round and square brackets within them do not count. */
static BlockKind block_of(const TokenStream *stream) {
  for (unsigned i = stream->n_open; i > 0; i--)
    if (stream->open[i - 1].kind == TOK_LBRACE) return stream->open[i - 1].block;
  return BLOCK_TOP;
}

static bool is_in_braces(const TokenStream *stream) {
  return stream->n_open == 0 || stream->open[stream->n_open - 1].kind == TOK_LBRACE;
}

/* The head of a construct tells what its braces will hold; those of `if`, `else` and `for` hold what stands around
 * them. */
static void note_head(TokenStream *stream, int kind) {
  if (!is_in_braces(stream)) return;
  if (kind == TOK_LAYER || kind == TOK_MODEL || kind == TOK_FN || kind == TOK_FORWARD) stream->header_is_next = true;
  if (kind == TOK_LAYER || kind == TOK_MODEL)
    stream->next_block = BLOCK_MEMBERS;
  else if (kind == TOK_FN || kind == TOK_FORWARD)
    stream->next_block = BLOCK_STATEMENTS;
  else if (kind == TOK_GENERATE || kind == TOK_TRAIN || kind == TOK_ADAPT)
    stream->next_block = BLOCK_SETTINGS;
  else if (kind == TOK_CHECKPOINT)
    stream->next_block = BLOCK_ENTRIES;
  else if (kind == TOK_IF || kind == TOK_ELSE || kind == TOK_FOR)
    stream->next_block = block_of(stream);
}

/* Keeps the stack of open brackets in step with the token; false if it nests too deep. A closing bracket that does
 * not match is left to the grammar, which reports it. */
static bool count_brackets(TokenStream *stream, const Token *token) {
  stream->newest_opened = stream->newest_closed = false;
  if (is_opening(token->kind)) {
    if (stream->n_open == PARSE_MAX_NESTING) return false;
    bool is_header = stream->header_is_next && token->kind == TOK_LPAREN;
    stream->open[stream->n_open++] = (OpenBracket){token->kind, stream->next_block, is_header, token->span};
    stream->newest_opened = true;
    stream->header_is_next = false;
  } else if (is_closing(token->kind) && stream->n_open > 0 &&
             stream->open[stream->n_open - 1].kind == opening_of(token->kind)) {
    stream->closed = stream->open[--stream->n_open];
    stream->newest_closed = true;
  } else {
    note_head(stream, token->kind);
  }
  return true;
}

/* Restores the stack to what it was before the newest token: the grammar refused the token, so it opened or closed
 * nothing. */
static void uncount_newest(TokenStream *stream) {
  if (stream->newest_opened) stream->n_open--;
  if (stream->newest_closed) stream->open[stream->n_open++] = stream->closed;
  stream->newest_opened = stream->newest_closed = false;
}

SrcSpan token_stream_open_bracket(const Parser *parser) {
  const TokenStream *stream = parser->tokens;
  if (stream->newest_closed) return stream->closed.span;
  unsigned n = stream->n_open - (stream->newest_opened ? 1 : 0);
  return n > 0 ? stream->open[n - 1].span : NO_SPAN;
}

SrcSpan token_stream_before(const Parser *parser, int i) { return parser->tokens->before[i]; }

// ---- tokens ----

static Token end_of_text(const Parser *parser) {
  return (Token){.kind = TOK_YYEOF, .span = {parser->source, parser->source->size, parser->source->size}};
}

/* The sign after a token, across line ends; NUL at the end of the text. */
static char next_mark(const Source *source, uint32_t offset) {
  while (offset < source->size && strchr(" \t\f\r\n", source->text[offset])) offset++;
  return offset < source->size ? source->text[offset] : '\0';
}

/* Three words are keywords only where they begin something: `checkpoint` at the top of a file, the others in its block.
 * They stay names elsewhere, also as parameters that an entry sets: a keyword is followed by no `=`. */
static int word_of_checkpoint(const TokenStream *stream, const Token *token) {
  const char *word = token->value.text;
  const SrcSpan span = token->span;
  BlockKind block = block_of(stream);
  const char mark = next_mark(span.source, span.end);
  if (block == BLOCK_TOP && mark && strcmp(word, "checkpoint") == 0) return TOK_CHECKPOINT;
  if (block != BLOCK_ENTRIES || mark == '=') return TOK_NAME;
  return strcmp(word, "expect") == 0 ? TOK_EXPECT : strcmp(word, "ignore") == 0 ? TOK_IGNORE : TOK_NAME;
}

static bool is_first_on_line(const Source *source, uint32_t offset);

/* Whether a value must follow the token. */
static bool leaves_open(int before) {
  static const int kinds[] = {TOK_ASSIGN, TOK_ARROW, TOK_LPAREN, TOK_LBRACKET, TOK_COMMA, TOK_RETURN, TOK_IF,
                              TOK_THEN,   TOK_ELSE,  TOK_NOT,    TOK_AND,      TOK_OR,    TOK_PLUS,   TOK_MINUS,
                              TOK_STAR,   TOK_SLASH, TOK_DSLASH, TOK_PERCENT,  TOK_AT,    TOK_POWER,  TOK_EQ,
                              TOK_NE,     TOK_LT,    TOK_GT,     TOK_LE,       TOK_GE,    TOK_COLON,  TOK_IN};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (before == kinds[i]) return true;
  return false;
}

/* `forward` begins a member, except where the word before it leaves something open: there it is the function. On a
 * line of its own among members it begins one all the same, so that a line that breaks off is found where it does. */
static bool is_called(const TokenStream *stream, const Token *forward) {
  const bool in_header = stream->n_open && stream->open[stream->n_open - 1].is_header;
  const bool among_members = block_of(stream) == BLOCK_MEMBERS && is_in_braces(stream);
  if (in_header || (among_members && is_first_on_line(forward->span.source, forward->span.begin))) return false;
  return leaves_open(stream->newest.kind);
}

/* `adapt` is a keyword only among members, before a list, and where nothing waits for a value. */
static bool adapts(const TokenStream *stream, const Token *token) {
  const char *word = token->value.text, mark = next_mark(token->span.source, token->span.end);
  return block_of(stream) == BLOCK_MEMBERS && (mark == '[' || mark == '"') && stream->newest.kind != TOK_DOT &&
         !leaves_open(stream->newest.kind) && strcmp(word, "adapt") == 0;
}

static Token scan(Parser *parser) {
  TokenStream *stream = parser->tokens;
  Token token = end_of_text(parser);
  if (!stream->is_at_end) token.kind = scanner_next(parser, stream->scanner, &token.value, &token.span);
  if (token.kind == TOK_YYEOF) stream->is_at_end = true;
  if (token.kind == TOK_NAME && is_in_braces(stream)) token.kind = word_of_checkpoint(stream, &token);
  if (token.kind == TOK_NAME && is_in_braces(stream) && adapts(stream, &token)) token.kind = TOK_ADAPT;
  if (token.kind == TOK_FORWARD && is_called(stream, &token)) token.kind = TOK_FORWARD_CALLED;
  return token;
}

/* The next token that the text lacks, in the order in which the grammar needs them: the start token, SYNC, the end of
 * a header, its empty body, closing braces. 0 if nothing is missing. */
static int take_missing(TokenStream *stream) {
  if (stream->first_token) {
    int first = stream->first_token;
    stream->first_token = 0;
    return first;
  }
  if (stream->sync_is_next) {
    stream->sync_is_next = false;
    return TOK_SYNC;
  }
  if (stream->header_end_is_missing) {
    stream->header_end_is_missing = false;
    return TOK_RPAREN;
  }
  if (stream->body_is_missing) {
    stream->body_is_missing = false;
    stream->n_missing_braces++;
    return TOK_LBRACE;
  }
  if (!stream->n_missing_braces) return 0;
  stream->n_missing_braces--;
  return TOK_RBRACE;
}

/* Missing tokens are empty spans at the place where reading goes on, so nodes made of them point somewhere sensible.
 */
static Token take(Parser *parser) {
  TokenStream *stream = parser->tokens;
  SrcSpan here = stream->kept_is_next ? stream->kept.span : (SrcSpan){parser->source, 0, 0};
  if (parser->is_stopped) return end_of_text(parser);
  int missing = take_missing(stream);
  if (missing) return (Token){.kind = missing, .span = {here.source, here.begin, here.begin}};
  if (!stream->kept_is_next) return scan(parser);
  stream->kept_is_next = false;
  return stream->kept;
}

/* The scanner function that bison calls. A token in error never reaches the grammar as such: recovery is planned
 * first, and bison's own error handling then finds SYNC. */
int tfm_yylex(TFM_YYSTYPE *value, SrcSpan *span, Parser *parser) {
  TokenStream *stream = parser->tokens;
  stream->before[1] = stream->before[0];
  stream->before[0] = stream->newest.span;
  stream->newest = take(parser);
  if (!count_brackets(stream, &stream->newest)) {
    parser_stop(parser, stream->newest.span, DIAG_NESTING, "nested too deep: more than %d brackets are open",
                PARSE_MAX_NESTING);
    stream->newest.kind = TOK_YYEOF;
  }
  *value = stream->newest.value;
  *span = stream->newest.span;
  if (stream->newest.kind == TOK_TFM_YYerror) token_stream_recover(parser);
  return stream->newest.kind;
}

// ---- recovery ----

/* Whether only blanks precede the byte on its line. Each run of blanks is looked at once for all tokens, so a search
 * takes linear time. */
static bool is_first_on_line(const Source *source, uint32_t offset) {
  while (offset > 0 && strchr(" \t\f", source->text[offset - 1])) offset--;
  bool is_after_mark = offset == 3 && memcmp(source->text, "\xef\xbb\xbf", 3) == 0;
  return offset == 0 || is_after_mark || strchr("\r\n", source->text[offset - 1]);
}

/* Column of what stands first on the line of a byte. */
static uint32_t indent_of(Parser *parser, uint32_t offset) {
  SrcPlace place = source_place(parser->source, offset);
  uint32_t length, blanks = 0;
  const char *line = source_line(parser->source, place.line, &length);
  while (blanks < length && strchr(" \t\f", line[blanks])) blanks++;
  return blanks + 1;
}

static uint32_t column_of(Parser *parser, uint32_t offset) {
  return source_place(parser->source, offset).column;
}

/* Does the line before end with a comma, so that this one goes on with its list? */
static bool goes_on_with_list(const Source *source, uint32_t offset) {
  while (offset > 0 && strchr(" \t\f\r\n", source->text[offset - 1])) offset--;
  return offset > 0 && source->text[offset - 1] == ',';
}

typedef struct Search {
  BlockKind block;   /* the innermost braces around the fault */
  bool is_in_round;  /* the fault lies in ( or [ */
  bool is_in_header; /* the outermost of these is the ( of a layer or function */
  uint32_t indent;   /* first column of the line where it opens */
  unsigned n_round;  /* ( within a header that are open */
  unsigned n_deeper; /* braces opened since */
} Search;

#define IN(block) (1u << (block))

/* The blocks in which a token can begin a line of its own. What is a member's alone also ends the other blocks. */
static unsigned blocks_begun_by(int kind) {
  static const struct {
    int kind;
    unsigned blocks;
  } rows[] = {
      {TOK_NAME, IN(BLOCK_MEMBERS) | IN(BLOCK_STATEMENTS) | IN(BLOCK_SETTINGS) | IN(BLOCK_ENTRIES)},
      {TOK_IF, IN(BLOCK_MEMBERS) | IN(BLOCK_STATEMENTS)},
      {TOK_REQUIRE, IN(BLOCK_MEMBERS) | IN(BLOCK_STATEMENTS) | IN(BLOCK_ENTRIES)},
      {TOK_EXPECT, IN(BLOCK_ENTRIES)},
      {TOK_IGNORE, IN(BLOCK_ENTRIES)},
      {TOK_RETURN, IN(BLOCK_STATEMENTS)},
      {TOK_FOR, IN(BLOCK_STATEMENTS)},
      {TOK_WEIGHT, IN(BLOCK_MEMBERS)},
      {TOK_FN, IN(BLOCK_TOP) | IN(BLOCK_MEMBERS) | IN(BLOCK_STATEMENTS) | IN(BLOCK_SETTINGS)},
      {TOK_FORWARD, IN(BLOCK_MEMBERS) | IN(BLOCK_STATEMENTS) | IN(BLOCK_SETTINGS)},
      {TOK_GENERATE, IN(BLOCK_MEMBERS) | IN(BLOCK_STATEMENTS) | IN(BLOCK_SETTINGS)},
      {TOK_TRAIN, IN(BLOCK_MEMBERS)},
      {TOK_ADAPT, IN(BLOCK_MEMBERS)},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].kind == kind) return rows[i].blocks;
  return 0;
}

static bool begins_file_item(int kind) {
  return kind == TOK_LAYER || kind == TOK_MODEL || kind == TOK_INCLUDE || kind == TOK_CHECKPOINT;
}

/* Does a line begin with this token, and can it begin what stands in the block? */
static bool begins_item(Parser *parser, const Search *search, const Token *token) {
  if (!is_first_on_line(parser->source, token->span.begin)) return false;
  if (begins_file_item(token->kind)) return true;
  if (search->n_deeper > 0 || !(blocks_begun_by(token->kind) & IN(search->block))) return false;
  /* In brackets these may go on with an expression. */
  if (token->kind == TOK_IF || token->kind == TOK_FOR || token->kind == TOK_WEIGHT || token->kind == TOK_TRAIN)
    return !search->is_in_round;
  if (token->kind != TOK_NAME) return true;
  if (goes_on_with_list(parser->source, token->span.begin)) return false;
  char mark = next_mark(parser->source, token->span.end);
  if (search->is_in_round) return mark == '=' && column_of(parser, token->span.begin) <= search->indent;
  return mark == '=' || (mark == ',' && search->block == BLOCK_STATEMENTS);
}

/* Does the header end with this token, or before it? */
static bool ends_header(Search *search, const Token *token) {
  if (!search->is_in_header || search->n_deeper > 0) return false;
  if (token->kind == TOK_LBRACE) return true;
  if (token->kind == TOK_LPAREN) search->n_round++;
  if (token->kind != TOK_RPAREN) return false;
  return search->n_round-- == 0;
}

/* Can reading go on with this token? */
static bool is_place_to_go_on(Parser *parser, Search *search, const Token *token) {
  if (token->kind == TOK_YYEOF || ends_header(search, token)) return true;
  if (token->kind == TOK_LBRACE) search->n_deeper++;
  if (token->kind == TOK_RBRACE) {
    /* Among round brackets that are closed after it, a brace is a slip. */
    char mark = next_mark(parser->source, token->span.end);
    if (search->is_in_round && mark && strchr(")],", mark)) return false;
    if (search->n_deeper == 0) return search->block != BLOCK_TOP;
    search->n_deeper--;
    return false;
  }
  return begins_item(parser, search, token);
}

/* Drops the round and square brackets that the fault leaves open, since no statement can begin inside them. The loop
 * ends at the innermost braces or at the top of the file. */
static Search start_search(Parser *parser) {
  TokenStream *stream = parser->tokens;
  Search search = {0};
  while (!is_in_braces(stream)) {
    const OpenBracket *open = &stream->open[--stream->n_open];
    search.is_in_round = true;
    search.is_in_header = open->is_header;
    if (open->kind == TOK_LPAREN && !open->is_header) search.n_round++;
  }
  if (search.is_in_round) search.indent = indent_of(parser, stream->open[stream->n_open].span.begin);
  search.block = block_of(stream);
  return search;
}

/* How many braces must be closed so that `token` can stand next. */
static unsigned braces_before(const TokenStream *stream, const Token *token) {
  unsigned n = stream->n_open;
  if (token->kind == TOK_YYEOF || begins_file_item(token->kind)) return n;
  if (token->kind != TOK_FN && token->kind != TOK_FORWARD && token->kind != TOK_GENERATE) return 0;
  while (n > 0 && stream->open[n - 1].block != BLOCK_MEMBERS) n--;
  return stream->n_open - n;
}

/* Decides what must be given before `token` so that it can stand next. A header that broke off gets its closing
 * bracket, and an empty body if the token is none of its own. */
static void plan_missing(TokenStream *stream, const Search *search, const Token *token) {
  stream->sync_is_next = stream->kept_is_next = true;
  stream->kept = *token;
  stream->resumed = token->span;
  stream->n_missing_braces = 0;
  bool is_header_end = token->kind == TOK_RPAREN || token->kind == TOK_LBRACE;
  if (!is_header_end) stream->n_missing_braces = braces_before(stream, token);
  stream->header_end_is_missing = search->is_in_header && token->kind != TOK_RPAREN;
  stream->body_is_missing = search->is_in_header && !is_header_end;
  if (search->is_in_header) stream->n_open++; /* its ( is still there */
}

/* Plans how to go on after a fault at the newest token. Every call either moves beyond the place where the last one
 * resumed or stops the parser, so recovery always ends. */
void token_stream_recover(Parser *parser) {
  TokenStream *stream = parser->tokens;
  if (parser->is_stopped) return;
  uncount_newest(stream);
  Search search = start_search(parser);
  parser->is_skipping = true;
  Token token = stream->newest;
  /* Reading went on here already, and did not get further: never twice at one place. */
  bool is_used_up = stream->resumed.source && token.span.begin <= stream->resumed.begin;
  if (is_used_up && stream->is_at_end) parser->is_stopped = true;
  if (is_used_up || token.kind == TOK_TFM_YYerror) token = scan(parser);
  while (!is_place_to_go_on(parser, &search, &token)) token = scan(parser);
  parser->is_skipping = false;
  plan_missing(stream, &search, &token);
}
