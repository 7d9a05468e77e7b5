/* In: a polynomial, or its text. Out: its text, or the polynomial. Refused: what size.h says of size_read. */
#include "graph/size.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/checked_size.h"

/* A floor beside other factors, or behind a minus, stands in brackets: 2*time//3 would be (2*time)//3. */
static void print_factor(StrBuf *out, const SizeTable *table, uint8_t factor, bool is_alone) {
  const SizeFloor *floor = size_floor_of(table, factor);
  if (!floor) {
    strbuf_add(out, table->symbols[factor]);
    return;
  }
  bool is_symbol = size_symbol_of(floor->numerator) >= 0;
  strbuf_printf(out, "%s%s", is_alone ? "" : "(", is_symbol ? "" : "(");
  size_print(out, table, floor->numerator);
  strbuf_printf(out, "%s//%" PRId64 "%s", is_symbol ? "" : ")", floor->divisor, is_alone ? "" : ")");
}

/* The sign of the first term is joined to it, that of others stands apart. INT64_MIN has no positive, so the magnitude
 * is unsigned. */
static void print_term(StrBuf *out, const SizeTable *table, const SizeTerm *term, bool first) {
  uint64_t magnitude = term->coefficient < 0 ? 0 - (uint64_t)term->coefficient : (uint64_t)term->coefficient;
  bool is_alone = term->degree == 1 && magnitude == 1 && (!first || term->coefficient > 0);
  strbuf_add(out, term->coefficient < 0 ? (first ? "-" : " - ") : first ? "" : " + ");
  if (magnitude != 1 || !term->degree) strbuf_printf(out, "%" PRIu64 "%s", magnitude, term->degree ? "*" : "");
  for (uint8_t i = 0; i < term->degree; i++) {
    if (i) strbuf_add_char(out, '*');
    print_factor(out, table, term->symbols[i], is_alone);
  }
}

void size_print(StrBuf *out, const SizeTable *table, const Size *size) {
  for (uint32_t i = 0; i < size->n_terms; i++) print_term(out, table, &size->terms[i], i == 0);
  if (!size->n_terms) strbuf_add_char(out, '0');
}

/* Brackets in what size_print wrote: two for each floor. */
enum { MAX_BRACKETS = 2 * SIZE_MAX_NESTING + 2 };

static const Size *read_sum(SizeTable *table, const char **text, int depth);

static void skip_blanks(const char **text) {
  while (**text == ' ' || **text == '\t') ++*text;
}

/* An integer, with the sign in front of its term so that the smallest int64_t can be read. */
static const Size *read_integer(SizeTable *table, const char **text, bool negative) {
  int64_t value = 0;
  for (; isdigit((unsigned char)**text); ++*text) {
    int64_t digit = **text - '0';
    if (!checked_mul(value, 10, &value) || !checked_add(value, negative ? -digit : digit, &value)) return NULL;
  }
  return size_const(table, value);
}

/* Names may have points in them ("time.past"). Only declared ones are read. */
static const Size *read_symbol(SizeTable *table, const char **text) {
  const char *begin = *text;
  while (isalnum((unsigned char)**text) || **text == '_' || **text == '.') ++*text;
  size_t length = (size_t)(*text - begin);
  for (uint32_t i = 0; i < table->n_symbols && length; i++) {
    if (strlen(table->symbols[i]) == length && memcmp(table->symbols[i], begin, length) == 0) {
      return size_symbol(table, table->symbols[i]);
    }
  }
  return NULL;
}

/* A name, a number or a sum in brackets. */
static const Size *read_factor(SizeTable *table, const char **text, bool negative, int depth) {
  skip_blanks(text);
  if (isdigit((unsigned char)**text)) return read_integer(table, text, negative);
  const Size *factor;
  if (**text != '(') {
    factor = read_symbol(table, text);
  } else {
    ++*text;
    factor = depth < MAX_BRACKETS ? read_sum(table, text, depth + 1) : NULL;
    skip_blanks(text);
    if (!factor || *(*text)++ != ')') return NULL;
  }
  return factor && negative ? size_sub(table, size_const(table, 0), factor) : factor;
}

/* The rest of `a // b`: b. */
static const Size *read_divided(SizeTable *table, const char **text, const Size *a, bool negative) {
  int64_t divisor;
  skip_blanks(text);
  const Size *zero = size_const(table, 0);
  const Size *by = isdigit((unsigned char)**text) ? read_integer(table, text, false) : NULL;
  if (negative) a = size_sub(table, zero, a); /* a - b//2 takes the quotient away, not the half of -b */
  if (!by || !a || !size_is_const(by, &divisor) || divisor < 1) return NULL;
  a = size_floor_div(table, a, divisor);
  return a && negative ? size_sub(table, zero, a) : a;
}

/* A minus goes to the first factor, so that the smallest integer can be read. In front of the first term it belongs
 * there; between two terms it belongs to the whole product, and only a `//` tells the difference. */
static const Size *read_product(SizeTable *table, const char **text, bool negative, bool is_first, int depth) {
  const Size *product = read_factor(table, text, negative, depth);
  while (product) {
    const char *rest = *text;
    skip_blanks(&rest);
    bool divides = rest[0] == '/' && rest[1] == '/';
    if (*rest != '*' && !divides) break;
    *text = rest + (divides ? 2 : 1);
    const Size *factor = divides ? NULL : read_factor(table, text, false, depth);
    if (divides)
      product = read_divided(table, text, product, negative && !is_first);
    else
      product = factor ? size_mul(table, product, factor) : NULL;
  }
  return product;
}

static const Size *read_sum(SizeTable *table, const char **text, int depth) {
  skip_blanks(text);
  bool negative = **text == '-';
  if (negative) ++*text;
  const Size *sum = read_product(table, text, negative, true, depth);
  while (sum) {
    const char *rest = *text;
    skip_blanks(&rest);
    if (*rest != '+' && *rest != '-') break;
    *text = rest + 1;
    const Size *term = read_product(table, text, *rest == '-', false, depth);
    sum = term ? size_add(table, sum, term) : NULL;
  }
  return sum;
}

const Size *size_read(SizeTable *table, const char **text) { return read_sum(table, text, 0); }
