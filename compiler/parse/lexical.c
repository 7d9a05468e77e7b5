/* What the scanner finds, as values: names, numbers, strings, and characters that mean nothing.
 *
 * In: the bytes of one token. Out: the token for the grammar, or 0 if the text is to be skipped. Refuses names,
 * numbers and strings over their limits, numbers out of range, malformed UTF-8, control characters and direction
 * controls. A faulty token still has a value, so that the grammar goes on and one fault gives one message. */
#include "parse/parser.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/strbuf.h"
#include "diag/source.h"
#include "tfm.tab.h"

static Ast *number_node(Parser *parser, SrcSpan span, double value) {
  Ast *node = node_new(parser, AST_NUMBER, span, NULL, NO_CHILDREN);
  node->number = value;
  return node;
}

static unsigned length_of(SrcSpan span) { return span.end - span.begin; }

// ---- names ----

/* A name over the limit is cut, not dropped: the rest of the line still parses. */
int lexical_name(Parser *parser, const char *text, SrcSpan span, const char **name) {
  unsigned length = length_of(span);
  if (length > PARSE_MAX_NAME) {
    parser_error(parser, span, DIAG_TOO_LONG, "a name of %u bytes; at most %d are allowed", length, PARSE_MAX_NAME);
    length = PARSE_MAX_NAME;
  }
  *name = map_intern(parser->names, text, length);
  return TOK_NAME;
}

// ---- numbers ----

/* An integer is exact: false if it does not fit in 64 bits. */
static bool read_integer(const char *text, int64_t *value) {
  uint64_t sum = 0;
  for (; *text; text++) {
    uint64_t digit = (uint64_t)(*text - '0');
    if (sum > ((uint64_t)INT64_MAX - digit) / 10) return false;
    sum = sum * 10 + digit;
  }
  *value = (int64_t)sum;
  return true;
}

/* Whether every digit before the exponent is 0: such a number is 0 by right, others become 0 only by underflow. */
static bool is_zero(const char *text) {
  char after_zeros = text[strspn(text, "0.")];
  return after_zeros == '\0' || after_zeros == 'e' || after_zeros == 'E';
}

/* Integers are exact, everything with a point or an exponent is a double. What a double cannot hold is refused:
 * silent infinities and zeros in a model are mistakes. */
int lexical_number(Parser *parser, const char *text, SrcSpan span, Ast **number) {
  Ast *node = *number = number_node(parser, span, 0);
  if (length_of(span) > PARSE_MAX_NUMBER) {
    parser_error(parser, span, DIAG_TOO_LONG, "a number of %u bytes; at most %d are allowed", length_of(span),
                 PARSE_MAX_NUMBER);
    return TOK_NUMBER;
  }
  node->is_integer = !strpbrk(text, ".eE");
  if (node->is_integer) {
    if (!read_integer(text, &node->integer))
      parser_error(parser, span, DIAG_LITERAL, "%s is out of range, the largest integer is %lld", text,
                   (long long)INT64_MAX);
    node->number = (double)node->integer;
    return TOK_NUMBER;
  }
  node->number = number_read(text);
  if (isinf(node->number))
    parser_error(parser, span, DIAG_LITERAL, "%s is too large for a double", text);
  else if (node->number == 0 && !is_zero(text))
    parser_error(parser, span, DIAG_LITERAL, "%s is too small for a double", text);
  return TOK_NUMBER;
}

int lexical_infinity(Parser *parser, SrcSpan span, Ast **number) {
  *number = number_node(parser, span, INFINITY);
  return TOK_NUMBER;
}

/* Text that begins like a number and is none. The hint covers the spellings that are legal in other languages. */
int lexical_malformed_number(Parser *parser, const char *text, SrcSpan span, Ast **number) {
  *number = number_node(parser, span, 0);
  unsigned length = length_of(span);
  const char *hint = text[0] == '.'                                ? "; a digit must precede the point"
                     : text[length - 1] == '.'                     ? "; a digit must follow the point"
                     : text[0] == '0' && strchr("xXbBoO", text[1]) ? "; numbers are decimal"
                                                                   : "";
  parser_error(parser, span, DIAG_LITERAL, "'%.40s%s' is not a number%s", text, length > 40 ? "..." : "", hint);
  return TOK_NUMBER;
}

// ---- strings ----

/* The character that `c` stands for after a backslash, 0 if for none. */
static char escaped(char c) { return c == 'n' ? '\n' : c == '"' || c == '\\' ? c : '\0'; }

/* The copy is never longer than the text. flex has made sure that a backslash does not end the string, so text[++i]
 * is inside it. */
int lexical_string(Parser *parser, const char *text, SrcSpan span, const char **value) {
  unsigned length = length_of(span) - 2, n = 0;
  char *copy = arena_alloc(parser->arena, length + 1);
  for (unsigned i = 1; i <= length; i++) {
    if (text[i] != '\\') {
      copy[n++] = text[i];
      continue;
    }
    char c = escaped(text[++i]);
    SrcSpan here = {span.source, span.begin + i - 1, span.begin + i + 1};
    if (!c)
      parser_error(parser, here, DIAG_LITERAL, "unknown escape; there are \\n, \\\" and \\\\");
    else
      copy[n++] = c;
  }
  if (n > PARSE_MAX_STRING)
    parser_error(parser, span, DIAG_TOO_LONG, "a string of %u bytes; at most %d are allowed", n, PARSE_MAX_STRING);
  *value = copy;
  return TOK_STRING;
}

/* The quote is marked rather than the line: it is what has to be found. The note tells where the string must have
 * ended. */
int lexical_unterminated_string(Parser *parser, SrcSpan span, const char **value) {
  SrcSpan quote = {span.source, span.begin, span.begin + 1}, end = {span.source, span.end, span.end};
  parser_error(parser, quote, DIAG_LITERAL, "the string that begins here is not closed");
  if (!parser->is_skipping) diag_note(parser->diag, end, "the closing '\"' must stand here at the latest");
  *value = "";
  return TOK_STRING;
}

int lexical_single_quotes(Parser *parser, SrcSpan span, const char **value) {
  parser_error(parser, span, DIAG_LITERAL, "strings are written in double quotes: \"...\"");
  *value = "";
  return TOK_STRING;
}

// ---- what is no token ----

typedef struct Hint {
  const char *text, *instead;
} Hint;

/* Signs of other languages and of word processors, and what is written here instead. */
static const Hint hints[] = {
    {";", "statements need no end mark"},
    {"&&", "write 'and'"},
    {"||", "write 'or'"},
    {"!", "write 'not'"},
    {"^", "a power is x ** y"},
    {"&", "write 'and'"},
    {"|", "write 'or'"},
    {"~", "write 'not'"},
    {"\xe2\x88\x92", "write '-'"},
    {"\xe2\x86\x92", "write '->'"},
    {"\xe2\x80\x9c", "texts stand in straight quotes: \"...\""},
};

/* A `;` is skipped after its message, since nothing else is wrong with the line; other signs make the parser look for
 * the next statement. */
int lexical_unexpected(Parser *parser, const char *text, SrcSpan span) {
  const char *instead = NULL;
  for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
    if (strcmp(text, hints[i].text) == 0) instead = hints[i].instead;
  parser_error(parser, span, DIAG_ENCODING, "unexpected character '%s'%s%s", text, instead ? "; " : "",
               instead ? instead : "");
  return text[0] == ';' ? 0 : TOK_TFM_YYerror;
}

/* Runs over the whole text before the scanner does, so that flex sees neither NUL nor malformed UTF-8. Stops at the
 * first fault: the file is probably binary or in another encoding. */
bool lexical_check_bytes(Parser *parser) {
  const Source *source = parser->source;
  const char *text = source->text;
  for (uint32_t i = parser->scan_offset; i < source->size;) {
    unsigned char byte = (unsigned char)text[i];
    if ((byte >= 0x20 && byte < 0x7f) || byte == '\n') { /* nearly all of a text */
      i++;
      continue;
    }
    uint32_t character = byte;
    unsigned length = byte < 0x80 ? 1 : utf8_decode(text + i, source->size - i, &character);
    SrcSpan here = {parser->source, i, i + (length ? length : 1)};
    if (!length)
      parser_error(parser, here, DIAG_ENCODING, "byte %u (0x%02x) is not UTF-8; %s", i, byte,
                   memchr(text, 0, source->size) ? "this is hardly a text file, and a model is one"
                                                 : "save the file as UTF-8");
    else if (character == 0)
      parser_error(parser, here, DIAG_ENCODING, "byte %u is NUL; this is hardly a text file", i);
    else if ((character < 0x20 && !strchr("\t\n\f\r", (int)character)) || (character >= 0x7f && character < 0xa0))
      parser_error(parser, here, DIAG_ENCODING, "a control character (0x%02x) at byte %u; remove it",
                   character, i);
    else if (utf8_is_bidi_control(character))
      parser_error(
          parser, here, DIAG_ENCODING,
          "U+%04X at byte %u changes the direction of what follows, so the text would not read as it is written; "
          "remove it",
          character, i);
    else {
      i += length;
      continue;
    }
    return false;
  }
  return true;
}
