/* In: polynomials of one table. Out: their sums, products and values, interned: terms are ordered by falling degree,
 * then by symbols, and equal ones are merged, so equal polynomials are the same bytes. Refused: what overflows. Sizes
 * belong to the table's arena and are never freed or changed. */
#include "graph/size.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/checked_size.h"

enum { TERM_KEY_BYTES = sizeof(int64_t) + 1 + SIZE_MAX_DEGREE };

SizeTable *size_table_new(Arena *arena) {
  SizeTable *table = ARENA_NEW(arena, SizeTable);
  table->arena = arena;
  table->sizes = map_new(arena);
  return table;
}

/* The order of two terms: negative if `a` stands first, 0 if they have the same symbols. */
static int term_order(const SizeTerm *a, const SizeTerm *b) {
  if (a->degree != b->degree) return a->degree > b->degree ? -1 : 1;
  return a->degree ? memcmp(a->symbols, b->symbols, a->degree) : 0;
}

/* The terms must be in order, no two with the same symbols and none with a coefficient of 0: then equal polynomials
 * have equal keys, whatever they were made from. */
static const Size *intern(SizeTable *table, const SizeTerm *terms, uint32_t n) {
  unsigned char key[SIZE_MAX_TERMS * TERM_KEY_BYTES];
  key[0] = 0; /* the size 0 has the empty key */
  for (uint32_t i = 0; i < n; i++) {
    unsigned char *place = key + (size_t)i * TERM_KEY_BYTES;
    memset(place, 0, TERM_KEY_BYTES);
    memcpy(place, &terms[i].coefficient, sizeof terms[i].coefficient);
    place[sizeof(int64_t)] = terms[i].degree;
    memcpy(place + sizeof(int64_t) + 1, terms[i].symbols, terms[i].degree);
  }
  size_t length = (size_t)n * TERM_KEY_BYTES;
  MapEntry *entry = map_find(&table->sizes, key, length);
  if (entry) return entry->value;
  Size *size = arena_alloc(table->arena, sizeof(Size) + n * sizeof(SizeTerm));
  size->n_terms = n;
  if (n) memcpy(size->terms, terms, n * sizeof(SizeTerm));
  map_put_n(&table->sizes, key, length, size);
  return size;
}

const Size *size_const(SizeTable *table, int64_t value) {
  SizeTerm term = {.coefficient = value};
  return intern(table, &term, value != 0);
}

/* Tables are small, so a search by name is enough. */
const Size *size_symbol(SizeTable *table, const char *name) {
  uint32_t index = 0;
  while (index < table->n_symbols && strcmp(table->symbols[index], name) != 0) index++;
  if (index == table->n_symbols) {
    if (index == SIZE_MAX_SYMBOLS) return NULL;
    table->symbols[table->n_symbols++] = arena_strdup(table->arena, name);
  }
  SizeTerm term = {.coefficient = 1, .degree = 1, .symbols = {(uint8_t)index}};
  return intern(table, &term, 1);
}

/* a + factor * b: two ordered lists merged, so the result is in order too. */
static const Size *merge(SizeTable *table, const Size *a, const Size *b, int64_t factor) {
  SizeTerm terms[SIZE_MAX_TERMS];
  uint32_t n = 0, i = 0, j = 0;
  while (i < a->n_terms || j < b->n_terms) {
    int order = i == a->n_terms ? 1 : j == b->n_terms ? -1 : term_order(&a->terms[i], &b->terms[j]);
    SizeTerm term = order <= 0 ? a->terms[i++] : b->terms[j];
    if (order >= 0) {
      int64_t scaled;
      if (!checked_mul(b->terms[j++].coefficient, factor, &scaled)) return NULL;
      if (order > 0) term.coefficient = scaled;
      else if (!checked_add(term.coefficient, scaled, &term.coefficient)) return NULL;
    }
    if (!term.coefficient) continue;
    if (n == SIZE_MAX_TERMS) return NULL;
    terms[n++] = term;
  }
  return intern(table, terms, n);
}

const Size *size_add(SizeTable *table, const Size *a, const Size *b) { return merge(table, a, b, 1); }

const Size *size_sub(SizeTable *table, const Size *a, const Size *b) { return merge(table, a, b, -1); }

/* Merges the ordered symbols. False on overflow of the degree or the coefficient. */
static bool term_product(const SizeTerm *a, const SizeTerm *b, SizeTerm *product) {
  *product = (SizeTerm){0};
  if (a->degree + b->degree > SIZE_MAX_DEGREE) return false;
  for (uint8_t i = 0, j = 0; i < a->degree || j < b->degree;) {
    bool from_a = j == b->degree || (i < a->degree && a->symbols[i] <= b->symbols[j]);
    product->symbols[product->degree++] = from_a ? a->symbols[i++] : b->symbols[j++];
  }
  return checked_mul(a->coefficient, b->coefficient, &product->coefficient);
}

/* Term by term; the sum merges what is equal. */
const Size *size_mul(SizeTable *table, const Size *a, const Size *b) {
  const Size *sum = size_const(table, 0);
  for (uint32_t i = 0; i < a->n_terms && sum; i++) {
    for (uint32_t j = 0; j < b->n_terms && sum; j++) {
      SizeTerm product;
      if (!term_product(&a->terms[i], &b->terms[j], &product)) return NULL;
      sum = size_add(table, sum, intern(table, &product, 1));
    }
  }
  return sum;
}

/* False if the coefficient is not divisible, or a symbol of `b` is missing in `a`. INT64_MIN / -1 overflows. */
static bool term_quotient(const SizeTerm *a, const SizeTerm *b, SizeTerm *quotient) {
  *quotient = (SizeTerm){0};
  if (b->coefficient == -1 ? a->coefficient == INT64_MIN : a->coefficient % b->coefficient != 0) return false;
  quotient->coefficient = a->coefficient / b->coefficient;
  uint8_t j = 0;
  for (uint8_t i = 0; i < a->degree; i++) {
    if (j < b->degree && a->symbols[i] == b->symbols[j]) j++;
    else quotient->symbols[quotient->degree++] = a->symbols[i];
  }
  return j == b->degree;
}

/* Long division: every step takes the first term of the rest away, and what comes in its place stands behind it in the
 * order of terms, which products keep. So it ends. */
static const Size *divide_by_sum(SizeTable *table, const Size *a, const Size *b) {
  const Size *quotient = size_const(table, 0), *rest = a;
  while (rest && rest->n_terms) {
    SizeTerm term;
    if (!term_quotient(&rest->terms[0], &b->terms[0], &term)) return NULL;
    const Size *part = intern(table, &term, 1), *taken = size_mul(table, part, b);
    quotient = size_add(table, quotient, part);
    rest = taken ? size_sub(table, rest, taken) : NULL;
    if (!quotient) return NULL;
  }
  return rest ? quotient : NULL;
}

const Size *size_div(SizeTable *table, const Size *a, const Size *b) {
  if (b->n_terms == 0) return NULL;
  if (b->n_terms > 1) return divide_by_sum(table, a, b);
  SizeTerm terms[SIZE_MAX_TERMS];
  for (uint32_t i = 0; i < a->n_terms; i++) {
    if (!term_quotient(&a->terms[i], &b->terms[0], &terms[i])) return NULL;
  }
  return intern(table, terms, a->n_terms); /* dividing every term by the same symbols keeps their order */
}

bool size_is_const(const Size *size, int64_t *value) {
  if (size->n_terms > 1 || (size->n_terms == 1 && size->terms[0].degree > 0)) return false;
  if (value) *value = size->n_terms ? size->terms[0].coefficient : 0;
  return true;
}

bool size_equals(const Size *size, int64_t value) {
  int64_t own;
  return size_is_const(size, &own) && own == value;
}

bool size_involves(const Size *size, uint32_t symbol) {
  for (uint32_t i = 0; i < size->n_terms; i++) {
    for (uint8_t j = 0; j < size->terms[i].degree; j++) {
      if (size->terms[i].symbols[j] == symbol) return true;
    }
  }
  return false;
}

int32_t size_symbol_of(const Size *size) {
  bool is_symbol = size->n_terms == 1 && size->terms[0].coefficient == 1 && size->terms[0].degree == 1;
  return is_symbol ? size->terms[0].symbols[0] : -1;
}

bool size_value(const Size *size, const int64_t *symbols, int64_t *value) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < size->n_terms; i++) {
    int64_t product = size->terms[i].coefficient;
    for (uint8_t j = 0; j < size->terms[i].degree; j++) {
      if (!checked_mul(product, symbols[size->terms[i].symbols[j]], &product)) return false;
    }
    if (!checked_add(sum, product, &sum)) return false;
  }
  *value = sum;
  return true;
}

/* The term with a number in place of a symbol. */
static const Size *term_with(SizeTable *table, const SizeTerm *term, uint32_t symbol, const Size *number) {
  const Size *product = size_const(table, term->coefficient);
  for (uint8_t i = 0; i < term->degree && product; i++) {
    bool is_it = term->symbols[i] == symbol;
    product = size_mul(table, product, is_it ? number : size_symbol(table, table->symbols[term->symbols[i]]));
  }
  return product;
}

const Size *size_with(SizeTable *table, const Size *size, uint32_t symbol, int64_t number) {
  const Size *sum = size_const(table, 0), *by = size_const(table, number);
  for (uint32_t i = 0; i < size->n_terms && sum; i++) {
    const Size *term = term_with(table, &size->terms[i], symbol, by);
    sum = term ? size_add(table, sum, term) : NULL;
  }
  return sum;
}

/* A difference that overflows is not known to be a constant, so the sizes may be equal. */
bool size_may_equal(SizeTable *table, const Size *a, const Size *b) {
  int64_t difference;
  const Size *size = size_sub(table, a, b);
  return !size || !size_is_const(size, &difference) || difference == 0;
}

const Size *size_copy(SizeTable *table, const Size *size) {
  return size ? intern(table, size->terms, size->n_terms) : NULL;
}

// ---- text ----

/* The sign of the first term is joined to it, that of others stands apart. INT64_MIN has no positive, so the magnitude
 * is unsigned. */
static void print_term(StrBuf *out, const SizeTable *table, const SizeTerm *term, bool first) {
  uint64_t magnitude = term->coefficient < 0 ? 0 - (uint64_t)term->coefficient : (uint64_t)term->coefficient;
  strbuf_add(out, term->coefficient < 0 ? (first ? "-" : " - ") : first ? "" : " + ");
  if (magnitude != 1 || !term->degree) strbuf_printf(out, "%" PRIu64 "%s", magnitude, term->degree ? "*" : "");
  for (uint8_t i = 0; i < term->degree; i++) {
    strbuf_printf(out, "%s%s", i ? "*" : "", table->symbols[term->symbols[i]]);
  }
}

void size_print(StrBuf *out, const SizeTable *table, const Size *size) {
  for (uint32_t i = 0; i < size->n_terms; i++) print_term(out, table, &size->terms[i], i == 0);
  if (!size->n_terms) strbuf_add_char(out, '0');
}

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

/* A sign in front belongs to the first number of the product, or to the whole if it has none. */
static const Size *read_product(SizeTable *table, const char **text, bool negative) {
  const Size *product = NULL;
  for (;;) {
    skip_blanks(text);
    bool number = isdigit((unsigned char)**text);
    bool sign = number && negative;
    const Size *factor = number ? read_integer(table, text, sign) : read_symbol(table, text);
    if (sign) negative = false;
    if (factor && product) factor = size_mul(table, product, factor);
    if (!factor) return NULL;
    product = factor;
    const char *rest = *text;
    skip_blanks(&rest);
    if (*rest != '*') break;
    *text = rest + 1;
  }
  return negative ? size_sub(table, size_const(table, 0), product) : product;
}

const Size *size_read(SizeTable *table, const char **text) {
  skip_blanks(text);
  bool negative = **text == '-';
  if (negative) ++*text;
  const Size *sum = read_product(table, text, negative);
  while (sum) {
    const char *rest = *text;
    skip_blanks(&rest);
    if (*rest != '+' && *rest != '-') break;
    *text = rest + 1;
    const Size *term = read_product(table, text, *rest == '-');
    sum = term ? size_add(table, sum, term) : NULL;
  }
  return sum;
}
