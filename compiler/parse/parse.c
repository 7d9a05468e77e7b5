/* The entry of the parser, and the message for a token that cannot stand where it does.
 *
 * In: a source, which goes through scanner, token stream and grammar; a token with the tokens that the grammar expected
 * in its place. Out: a tree, or messages that say what was found, what was expected and, where it helps, which bracket
 * is still open. Refuses files over PARSE_MAX_SIZE. */
#include "parse/parse.h"

#include <ctype.h>
#include <string.h>

#include "parse/scanner.h"
#include "parse/tokens.h"
#include "tfm.tab.h"

// ---- syntax errors ----

enum { LISTED = 6 }; /* the longest list of what was expected that still helps */

/* Tokens that a reader thinks of as one thing. A group is named if its mark, a token that only this group has, is
 * expected; it then covers its members. */
typedef struct Group {
  int mark;
  const char *text;
  int members[24];
} Group;

static const char operator_text[] = "an operator";

static const Group groups[] = {
    {TOK_NUMBER,
     "an expression",
     {TOK_NAME, TOK_NUMBER, TOK_STRING, TOK_WEIGHT, TOK_NONE, TOK_TRUE, TOK_FALSE, TOK_LPAREN, TOK_LBRACKET, TOK_MINUS,
      TOK_NOT, TOK_IF, TOK_FORWARD_CALLED, TOK_TRAIN}},
    {TOK_PLUS, operator_text, {TOK_LPAREN, TOK_LBRACKET, TOK_DOT, TOK_PLUS,  TOK_MINUS, TOK_STAR, TOK_SLASH,
                               TOK_DSLASH, TOK_PERCENT,  TOK_AT,  TOK_POWER, TOK_EQ,    TOK_NE,   TOK_LT,
                               TOK_GT,     TOK_LE,       TOK_GE,  TOK_IN,    TOK_AND,   TOK_OR,
                               TOK_ARROW}},
    {TOK_RETURN, "a statement", {TOK_NAME, TOK_RETURN, TOK_REQUIRE, TOK_IF, TOK_FOR}},
    {TOK_EXPECT, "an entry", {TOK_NAME, TOK_EXPECT, TOK_REQUIRE, TOK_IGNORE}},
    {TOK_GENERATE,
     "a member",
     {TOK_NAME, TOK_WEIGHT, TOK_REQUIRE, TOK_IF, TOK_FN, TOK_FORWARD, TOK_GENERATE, TOK_TRAIN, TOK_ADAPT}},
};

static bool contains(const int *tokens, int n, int token) {
  for (int i = 0; i < n; i++)
    if (tokens[i] == token) return true;
  return false;
}

/* A token that is spelled with letters. Names, numbers and strings have display names of letters too, hence the
 * exceptions. */
/* An operator that binds less tightly than a product, so that it cannot follow the target of a pipe. */
static bool is_operator(int token) {
  return token == TOK_PLUS || token == TOK_MINUS || token == TOK_AND || token == TOK_OR || token == TOK_IN ||
         (token >= TOK_EQ && token <= TOK_GE);
}

static bool is_keyword(int token) {
  return token != TOK_NAME && token != TOK_NUMBER && token != TOK_STRING && token != TOK_YYEOF &&
         isalpha((unsigned char)token_name(token)[0]);
}

// ---- what was expected ----

static void add_token(StrBuf *out, int token) {
  if (token == TOK_NAME)
    strbuf_add(out, "a name");
  else if (token == TOK_STRING)
    strbuf_add(out, "a string");
  else if (token == TOK_YYEOF)
    strbuf_add(out, "the end of the text");
  else
    strbuf_printf(out, "'%s'", token_name(token));
}

/* Adds ", expected a, b or c"; nothing if the list would be long, because a long list helps nobody. */
static void add_expected(StrBuf *out, Arena *arena, const int *expected, int n) {
  const size_t n_groups = sizeof groups / sizeof *groups;
  VEC(const char *) texts = {0};
  bool is_covered[TOK_GE + 1] = {false};
  for (size_t g = 0; g < n_groups; g++) {
    if (!contains(expected, n, groups[g].mark)) continue;
    vec_push(arena, &texts, groups[g].text);
    for (const int *member = groups[g].members; *member; member++) is_covered[*member] = true;
  }
  for (int i = 0; i < n; i++) {
    if (is_covered[expected[i]] || expected[i] == TOK_SYNC) continue;
    StrBuf text = strbuf_new(arena);
    add_token(&text, expected[i]);
    vec_push(arena, &texts, text.text);
  }
  /* An operator can stand after any expression, and is seldom what is missing. */
  if (texts.n > 1 && strcmp(texts.items[0], operator_text) == 0) {
    texts.items++;
    texts.n--;
  }
  if (texts.n > LISTED) return;
  for (size_t i = 0; i < texts.n; i++)
    strbuf_printf(out, "%s%s", i == 0 ? ", expected " : i + 1 == texts.n ? " or " : ", ", texts.items[i]);
}

// ---- what was found ----

static void add_found(StrBuf *out, const Parser *parser, int token, SrcSpan span) {
  int length = (int)(span.end - span.begin < 40 ? span.end - span.begin : 40);
  if (token == TOK_YYEOF)
    strbuf_add(out, "the text ends here");
  else if (token == TOK_NAME)
    strbuf_printf(out, "unexpected name '%.*s'", length, parser->source->text + span.begin);
  else if (token == TOK_NUMBER)
    strbuf_printf(out, "unexpected number %.*s", length, parser->source->text + span.begin);
  else if (token == TOK_STRING)
    strbuf_add(out, "unexpected string");
  else
    strbuf_printf(out, "unexpected '%s'", token_name(token));
}

/* A keyword where the writer meant a name: what follows it could only follow a name. */
static bool is_meant_as_name(const Parser *parser, int token, SrcSpan span, const int *expected, int n) {
  if (!is_keyword(token) || !contains(expected, n, TOK_NAME)) return false;
  const char *after = parser->source->text + span.end; /* ends with a NUL */
  after += strspn(after, " \t");
  if (*after == '(') return !contains(expected, n, TOK_NUMBER);
  return *after && strchr("=:,)", *after);
}

/* Whether the token follows this sign, with nothing but blanks between. */
static bool is_after(const Parser *parser, SrcSpan span, char sign) {
  const char *text = parser->source->text;
  size_t i = span.begin;
  while (i > 0 && (text[i - 1] == ' ' || text[i - 1] == '\t')) i--;
  return i > 0 && text[i - 1] == sign;
}

/* "+=" and its like, of which the first sign is the token. */
static bool is_assigning(const Parser *parser, SrcSpan span) {
  const char *text = parser->source->text; /* ends with a NUL */
  const char *behind = text + span.end;
  return span.end > span.begin && strchr("+-*/@", text[span.begin]) && behind[0] == '=' && behind[1] != '=';
}

/* Inner functions; results without `return`; commas in a `generate` block, which alone expects a name or its end; a
 * shape without its type; "+=". False if it is none of these. */
static bool add_hint_of_python(StrBuf *out, const Parser *parser, int token, SrcSpan span, const int *expected, int n) {
  if (token == TOK_FN && contains(expected, n, TOK_RETURN))
    strbuf_add(out, "; a function stands beside 'forward', not within it");
  else if (token == TOK_COMMA && contains(expected, n, TOK_GENERATE))
    strbuf_add(out, "; several results are written '{ return a, b }'");
  else if (token == TOK_COMMA && contains(expected, n, TOK_RBRACE) && !contains(expected, n, TOK_RETURN))
    strbuf_add(out, "; settings stand side by side without commas, as in '{ eos = 2  pad = 0 }'");
  else if (is_assigning(parser, span) && contains(expected, n, TOK_ASSIGN))
    strbuf_add(out, "; write x = x + y: a name may be given a value again");
  else if (token == TOK_LBRACKET && contains(expected, n, TOK_NAME) && is_after(parser, span, ':'))
    strbuf_add(out, "; a type begins with f32, i32 or bool");
  else
    return false;
  return true;
}

/* What the writer probably meant. Each hint is tied to the state of the grammar (the expected tokens), so it cannot
 * appear where it would be wrong. False if there is none. */
static bool add_hint(StrBuf *out, const Parser *parser, int token, SrcSpan span, const int *expected, int n) {
  bool is_comparison = token == TOK_EQ || token == TOK_NE || (token >= TOK_LT && token <= TOK_GE);
  if (is_meant_as_name(parser, token, span, expected, n))
    strbuf_printf(out, "; '%s' is a keyword and cannot be a name", token_name(token));
  else if (token == TOK_ASSIGN && (contains(expected, n, TOK_LBRACE) || contains(expected, n, TOK_THEN)) &&
           contains(expected, n, TOK_EQ))
    strbuf_add(out, "; a comparison is written '=='");
  else if (is_comparison && contains(expected, n, TOK_AND))
    strbuf_add(out, "; comparisons do not chain, write 'a < b and b < c'");
  else if (is_operator(token) && contains(expected, n, TOK_ARROW) && !contains(expected, n, TOK_PLUS))
    strbuf_add(out, "; a pipe needs brackets here, write '(x -> f) + y'");
  else if (token == TOK_MINUS && contains(expected, n, TOK_NUMBER))
    strbuf_add(out, "; a second '-' needs brackets, write '-(-x)'");
  else
    return add_hint_of_python(out, parser, token, span, expected, n);
  return true;
}

/* Words and habits of other languages, and what is written here instead. */
static const struct OtherLanguage {
  const char *word, *instead;
} other_languages[] = {
    {"def", "a function is 'fn name(x) = ...'"},
    {"lambda", "give a function a name: fn name(x) = ..."},
    {"class", "a layer is 'layer Name(config) { ... }'"},
    {"elif", "write 'else if'"},
    {"while", "a loop is 'for i in n', with n known when compiling"},
    {"import", "files are included: include \"file.tfm\""},
};

/* Whether `//` stands on the line of the token, before it or as the token itself. */
static bool is_after_slashes(const Parser *parser, SrcSpan span) {
  const char *text = parser->source->text;
  for (uint32_t i = span.end; span.source && i >= 2 && text[i - 1] != '\n' && text[i - 1] != '\r'; i--)
    if (text[i - 1] == '/' && text[i - 2] == '/') return true;
  return false;
}

/* What the writer of another language means; NULL if nothing looks like one. */
static const char *hint_of_other_language(const Parser *parser, int token, SrcSpan span) {
  SrcSpan near[] = {span, token_stream_before(parser, 0), token_stream_before(parser, 1)};
  if (is_after_slashes(parser, near[0]) || is_after_slashes(parser, near[1])) return "a comment begins with '#'";
  for (size_t k = 0; k < sizeof near / sizeof *near; k++) {
    for (size_t i = 0; near[k].source && i < sizeof other_languages / sizeof *other_languages; i++) {
      const char *word = other_languages[i].word;
      size_t n = near[k].end - near[k].begin;
      if (n == strlen(word) && memcmp(parser->source->text + near[k].begin, word, n) == 0)
        return other_languages[i].instead;
    }
  }
  bool is_choice = token == TOK_IF || token == TOK_ELSE;
  return is_choice ? "a choice between two values is 'if condition then a else b'" : NULL;
}

/* Notes a bracket that is still open, where it tells more than the token: if it opened on an earlier line, or if
 * another kind of bracket closes. A brace is open around every statement, so it is noted only where the token could
 * not stand in any block. */
static void note_open_bracket(Parser *parser, int token, SrcSpan span) {
  SrcSpan open = token_stream_open_bracket(parser);
  if (!open.source) return;
  char bracket = parser->source->text[open.begin];
  bool is_brace = bracket == '{';
  bool ends_file_item =
      token == TOK_YYEOF || token == TOK_LAYER || token == TOK_MODEL || token == TOK_INCLUDE || token == TOK_CHECKPOINT;
  bool ends_statements = token == TOK_FN || token == TOK_FORWARD || token == TOK_GENERATE || ends_file_item;
  bool closes_other = (token == TOK_RPAREN && bracket != '(') || (token == TOK_RBRACKET && bracket != '[') ||
                      (token == TOK_RBRACE && !is_brace);
  bool is_on_other_line = source_place(parser->source, open.begin).line !=
                          source_place(parser->source, span.begin).line;
  if (is_brace ? ends_statements : closes_other || ends_file_item || is_on_other_line)
    diag_note(parser->diag, open, "this '%c' is still open", bracket);
}

/* Whether the newest message is about this place: a word that is wrong in itself (a malformed number) needs no syntax
 * error on top. */
static bool is_reported(const Parser *parser, SrcSpan span) {
  if (!parser->diag->messages.n) return false;
  SrcSpan newest = parser->diag->messages.items[parser->diag->messages.n - 1].span;
  return newest.source == span.source && newest.begin == span.begin;
}

void syntax_error_report(Parser *parser, int token, SrcSpan span, const int *expected, int n_expected) {
  if (parser->is_stopped || parser->is_skipping || is_reported(parser, span)) return;
  StrBuf text = strbuf_new(parser->arena);
  add_found(&text, parser, token, span);
  add_expected(&text, parser->arena, expected, n_expected);
  const char *other = hint_of_other_language(parser, token, span);
  if (!add_hint(&text, parser, token, span, expected, n_expected) && other) strbuf_printf(&text, "; %s", other);
  parser_error(parser, span, DIAG_SYNTAX, "%s", text.text);
  note_open_bracket(parser, token, span);
}

// ---- entry ----

/* Errors are counted rather than flagged, since scanner, grammar and recovery all report; a tree with a fault in it
 * is not handed out. */
static Ast *parse(Arena *arena, Map *names, Diag *diag, Source *source, int first_token) {
  Parser parser = {.arena = arena, .names = names, .diag = diag, .source = source};
  if (source->size > PARSE_MAX_SIZE) {
    diag_error_at(diag, source->path, DIAG_TOO_LONG, "%u bytes; a file may have at most 16 MiB", source->size);
    return NULL;
  }
  if (source->size >= 3 && memcmp(source->text, "\xef\xbb\xbf", 3) == 0) parser.scan_offset = 3;
  if (!lexical_check_bytes(&parser)) return NULL;
  parser.tokens = token_stream_new(arena, scanner_new(&parser), first_token);
  return tfm_yyparse(&parser) == 0 ? parser.result : NULL;
}

static Ast *parse_without_faults(Arena *arena, Map *names, Diag *diag, Source *source, int first_token) {
  int n_errors = diag->n_errors;
  Ast *tree = parse(arena, names, diag, source, first_token);
  return diag->n_errors == n_errors ? tree : NULL;
}

Ast *parse_file(Arena *arena, Map *names, Diag *diag, Source *source) {
  return parse_without_faults(arena, names, diag, source, TOK_START_FILE);
}

Ast *parse_file_with_faults(Arena *arena, Map *names, Diag *diag, Source *source) {
  return parse(arena, names, diag, source, TOK_START_FILE);
}

Ast *parse_expression(Arena *arena, Map *names, Diag *diag, Source *source) {
  return parse_without_faults(arena, names, diag, source, TOK_START_EXPRESSION);
}
