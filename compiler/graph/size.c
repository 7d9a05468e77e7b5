/* In: polynomials of one table. Out: their sums, products, quotients and values, interned: terms are ordered by falling
 * degree, then by symbols, and equal ones are merged, so equal polynomials are the same bytes. Refused: what overflows,
 * and what would take too long to write out. Sizes belong to the table's arena and are never freed or changed. */
#include "graph/size.h"

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
  size->table = table;
  size->n_terms = n;
  if (n) memcpy(size->terms, terms, n * sizeof(SizeTerm));
  map_put_n(&table->sizes, key, length, size);
  return size;
}

const Size *size_const(SizeTable *table, int64_t value) {
  SizeTerm term = {.coefficient = value};
  return intern(table, &term, value != 0);
}

/* A symbol or a floor, alone. */
static const Size *unknown(SizeTable *table, uint32_t index) {
  SizeTerm term = {.coefficient = 1, .degree = 1, .symbols = {(uint8_t)index}};
  return intern(table, &term, 1);
}

/* Tables are small, so a search by name is enough. */
const Size *size_symbol(SizeTable *table, const char *name) {
  uint32_t index = 0;
  while (index < table->n_symbols && strcmp(table->symbols[index], name) != 0) index++;
  if (index == table->n_symbols) {
    if (index == SIZE_MAX_SYMBOLS) return NULL;
    table->symbols[table->n_symbols++] = arena_strdup(table->arena, name);
  }
  return unknown(table, index);
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

const Size *sizes_product(SizeTable *table, uint32_t n, const Size *const *sizes) {
  const Size *product = size_const(table, 1);
  for (uint32_t i = 0; i < n && product; i++) product = size_mul(table, product, sizes[i]);
  return product;
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

// ---- rounded down ----

/* How deep floors are nested in the numerator, and how many factors it has when they are written out. */
static SizeFloor measured(const SizeTable *table, const Size *numerator, int64_t divisor) {
  SizeFloor floor = {.numerator = numerator, .divisor = divisor, .nesting = 1};
  for (uint32_t i = 0; i < numerator->n_terms; i++) {
    for (uint8_t j = 0; j < numerator->terms[i].degree; j++) {
      const SizeFloor *inner = size_floor_of(table, numerator->terms[i].symbols[j]);
      floor.factors += inner ? inner->factors : 1;
      if (inner && inner->nesting >= floor.nesting) floor.nesting = inner->nesting + 1;
    }
  }
  return floor;
}

/* The unknown numerator // divisor. Without the limits a size of a few floors, each made of the one before twice, could
 * take longer to print or to evaluate than anybody waits. */
static const Size *floor_unknown(SizeTable *table, const Size *numerator, int64_t divisor) {
  uint32_t i = 0;
  while (i < table->n_floors && (table->floors[i].numerator != numerator || table->floors[i].divisor != divisor)) i++;
  if (i == table->n_floors) {
    SizeFloor floor = measured(table, numerator, divisor);
    if (i == SIZE_MAX_FLOORS || floor.nesting > SIZE_MAX_NESTING || floor.factors > SIZE_MAX_FACTORS) return NULL;
    table->floors[table->n_floors++] = floor;
  }
  return unknown(table, SIZE_MAX_SYMBOLS + i);
}

/* Splits a into quotient * divisor + rest, where every coefficient of the rest lies in [0, divisor). */
static void split(SizeTable *table, const Size *a, int64_t divisor, const Size **quotient, const Size **rest) {
  SizeTerm of_quotient[SIZE_MAX_TERMS], of_rest[SIZE_MAX_TERMS];
  uint32_t n_quotient = 0, n_rest = 0;
  for (uint32_t i = 0; i < a->n_terms; i++) {
    SizeTerm whole = a->terms[i], left = a->terms[i];
    whole.coefficient = floor_divided(whole.coefficient, divisor);
    left.coefficient %= divisor;
    if (left.coefficient < 0) left.coefficient += divisor;
    if (whole.coefficient) of_quotient[n_quotient++] = whole;
    if (left.coefficient) of_rest[n_rest++] = left;
  }
  *quotient = intern(table, of_quotient, n_quotient);
  *rest = intern(table, of_rest, n_rest);
}

/* Divides the rest and *divisor by what the divisor and all coefficients but the constant have in common; the constant
 * is rounded down: floor((g p + c) / (g k)) = floor((p + floor(c / g)) / k). */
static const Size *reduced(SizeTable *table, const Size *rest, int64_t *divisor) {
  int64_t common = *divisor;
  for (uint32_t i = 0; i < rest->n_terms && rest->terms[i].degree; i++) {
    for (int64_t x = rest->terms[i].coefficient; x;) {
      int64_t left = common % x;
      common = x;
      x = left;
    }
  }
  SizeTerm terms[SIZE_MAX_TERMS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < rest->n_terms; i++) {
    terms[n] = rest->terms[i];
    terms[n].coefficient /= common;
    n += terms[n].coefficient != 0;
  }
  *divisor /= common;
  return intern(table, terms, n);
}

/* The floor that the size is but for a constant, which is put into *constant; else NULL. */
static const SizeFloor *floor_and_constant(const SizeTable *table, const Size *size, int64_t *constant) {
  const SizeTerm *first = size->terms;
  if (size->n_terms > 2 || first->degree != 1 || first->coefficient != 1) return NULL;
  if (size->n_terms == 2 && first[1].degree) return NULL;
  *constant = size->n_terms == 2 ? first[1].coefficient : 0;
  return size_floor_of(table, first->symbols[0]);
}

/* A floor of a floor is one floor: floor((floor(s / j) + c) / k) = floor((s + c j) / (j k)). It is divided again, since
 * the constant may have become larger than the divisor; each time the nesting falls, so it ends. */
const Size *size_floor_div(SizeTable *table, const Size *a, int64_t divisor) {
  const Size *quotient, *rest;
  split(table, a, divisor, &quotient, &rest);
  if (size_is_const(rest, NULL)) return quotient;
  rest = reduced(table, rest, &divisor);
  int64_t constant, product;
  const SizeFloor *inner = floor_and_constant(table, rest, &constant);
  const Size *floor;
  if (inner) {
    if (!checked_mul(constant, inner->divisor, &product)) return NULL;
    const Size *over = size_add(table, inner->numerator, size_const(table, product));
    if (!over || !checked_mul(divisor, inner->divisor, &product)) return NULL;
    floor = size_floor_div(table, over, product);
  } else {
    floor = floor_unknown(table, rest, divisor);
  }
  return floor ? size_add(table, quotient, floor) : NULL;
}

// ---- questions and values ----

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
      const SizeFloor *floor = size_floor_of(size->table, size->terms[i].symbols[j]);
      if (floor ? size_involves(floor->numerator, symbol) : size->terms[i].symbols[j] == symbol) return true;
    }
  }
  return false;
}

int32_t size_symbol_of(const Size *size) {
  bool is_unknown = size->n_terms == 1 && size->terms[0].coefficient == 1 && size->terms[0].degree == 1;
  return is_unknown && size->terms[0].symbols[0] < SIZE_MAX_SYMBOLS ? size->terms[0].symbols[0] : -1;
}

static bool factor_value(const SizeTable *table, uint8_t factor, const int64_t *symbols, int64_t *value) {
  const SizeFloor *floor = size_floor_of(table, factor);
  if (!floor)
    *value = symbols[factor];
  else if (size_value(floor->numerator, symbols, value))
    *value = floor_divided(*value, floor->divisor);
  else
    return false;
  return true;
}

bool size_value(const Size *size, const int64_t *symbols, int64_t *value) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < size->n_terms; i++) {
    int64_t product = size->terms[i].coefficient, factor;
    for (uint8_t j = 0; j < size->terms[i].degree; j++) {
      if (!factor_value(size->table, size->terms[i].symbols[j], symbols, &factor)) return false;
      if (!checked_mul(product, factor, &product)) return false;
    }
    if (!checked_add(sum, product, &sum)) return false;
  }
  *value = sum;
  return true;
}

// ---- other sizes in place of symbols ----

static const Size *substitute_factor(SizeTable *to, const SizeTable *from, uint8_t factor, const Size *const *of) {
  const SizeFloor *floor = size_floor_of(from, factor);
  if (!floor) return of[factor];
  int64_t divisor = floor->divisor;
  const Size *numerator = size_substitute(to, floor->numerator, of);
  return numerator ? size_floor_div(to, numerator, divisor) : NULL;
}

const Size *size_substitute(SizeTable *to, const Size *size, const Size *const *of) {
  const Size *sum = size_const(to, 0);
  for (uint32_t i = 0; i < size->n_terms && sum; i++) {
    const Size *product = size_const(to, size->terms[i].coefficient);
    for (uint8_t j = 0; j < size->terms[i].degree && product; j++) {
      const Size *factor = substitute_factor(to, size->table, size->terms[i].symbols[j], of);
      product = factor ? size_mul(to, product, factor) : NULL;
    }
    sum = product ? size_add(to, sum, product) : NULL;
  }
  return sum;
}

const Size *size_with(SizeTable *table, const Size *size, uint32_t symbol, int64_t number) {
  const Size *of[SIZE_MAX_SYMBOLS];
  for (uint32_t i = 0; i < table->n_symbols; i++) of[i] = i == symbol ? size_const(table, number) : unknown(table, i);
  return size_substitute(table, size, of);
}

/* A difference that overflows is not known to be a constant, so the sizes may be equal. */
bool size_may_equal(SizeTable *table, const Size *a, const Size *b) {
  int64_t difference;
  const Size *size = size_sub(table, a, b);
  return !size || !size_is_const(size, &difference) || difference == 0;
}

/* Floors may have other indexes in the other table, so a size with one of them is made anew. */
const Size *size_copy(SizeTable *table, const Size *size) {
  if (!size) return NULL;
  bool has_floor = false;
  for (uint32_t i = 0; i < size->n_terms; i++) {
    const SizeTerm *term = &size->terms[i]; /* floors are the last of its factors */
    has_floor |= term->degree && size_floor_of(size->table, term->symbols[term->degree - 1]);
  }
  if (!has_floor) return intern(table, size->terms, size->n_terms);
  const Size *of[SIZE_MAX_SYMBOLS];
  for (uint32_t i = 0; i < size->table->n_symbols; i++) of[i] = unknown(table, i);
  return size_substitute(table, size, of);
}
