/* Size: a polynomial of run-time sizes with integer coefficients, such as `2*batch*time + 1`. A size that is divided by
 * a number and rounded down, `(time + 1)//2`, stands in polynomials as an unknown of its own: a floor.
 *
 * A constant is a Size too. The sizes of one SizeTable are interned, so two are equal exactly if their pointers are:
 * passes compare shapes by comparing pointers. */
#ifndef TFM_GRAPH_SIZE_H
#define TFM_GRAPH_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "base/strbuf.h"

/* The degree is enough for the number of elements of a tensor all of whose axes are run-time sizes (MAX_RANK). */
enum {
  SIZE_MAX_SYMBOLS = 64,
  SIZE_MAX_FLOORS = 192, /* so that the index of any unknown fits into 8 bits */
  SIZE_MAX_DEGREE = 8,
  SIZE_MAX_TERMS = 256,
  SIZE_MAX_NESTING = 16,  /* floors in numerators of floors */
  SIZE_MAX_FACTORS = 1024 /* in a numerator, with those of the floors in it: bounds what a size costs */
};

typedef struct SizeTerm {
  int64_t coefficient;              /* never 0 */
  uint8_t degree;                   /* how many symbols */
  uint8_t symbols[SIZE_MAX_DEGREE]; /* indexes, ascending; repeated for powers. SIZE_MAX_SYMBOLS + i: floor i */
} SizeTerm;

typedef struct Size {
  const struct SizeTable *table;
  uint32_t n_terms; /* 0: the size is 0. Terms are in one fixed order */
  SizeTerm terms[];
} Size;

/* An unknown: the numerator over the divisor, rounded down. The numerator has no negative coefficient and cannot be
 * simplified (see size_floor_div), so equal floors are one, and a floor is never negative. */
typedef struct SizeFloor {
  const Size *numerator; /* floors in it have lower indexes */
  int64_t divisor;       /* 2 or more */
  uint32_t nesting, factors;
} SizeFloor;

typedef struct SizeTable {
  Arena *arena;
  Map sizes;
  const char *symbols[SIZE_MAX_SYMBOLS]; /* names of the run-time sizes, in order of declaration */
  SizeFloor floors[SIZE_MAX_FLOORS];     /* in order of their first use */
  uint32_t n_symbols, n_floors;
} SizeTable;

/* The floor that a factor of a term stands for; NULL: it is a symbol. */
static inline const SizeFloor *size_floor_of(const SizeTable *table, uint8_t factor) {
  return factor < SIZE_MAX_SYMBOLS ? NULL : &table->floors[factor - SIZE_MAX_SYMBOLS];
}

SizeTable *size_table_new(Arena *arena);
const Size *size_const(SizeTable *table, int64_t value);
/* Declares the symbol if it is new. NULL if there are SIZE_MAX_SYMBOLS already. */
const Size *size_symbol(SizeTable *table, const char *name);

/* NULL on overflow of a coefficient, of the degree or of the number of terms. */
const Size *size_add(SizeTable *table, const Size *a, const Size *b);
const Size *size_sub(SizeTable *table, const Size *a, const Size *b);
const Size *size_mul(SizeTable *table, const Size *a, const Size *b);
const Size *sizes_product(SizeTable *table, uint32_t n, const Size *const *sizes);
/* The exact quotient; NULL if there is none, or if b is 0. */
const Size *size_div(SizeTable *table, const Size *a, const Size *b);
/* The quotient by a number greater than 0, rounded down, in the normal form that docs/language.md defines: of
 * 2*time + 1 by 2 it is time. NULL on overflow, with SIZE_MAX_FLOORS already, or with floors nested too deep. */
const Size *size_floor_div(SizeTable *table, const Size *a, int64_t divisor);

bool size_is_const(const Size *size, int64_t *value); /* `value` may be NULL */
bool size_equals(const Size *size, int64_t value);
/* Whether the symbol with this index occurs, also in floors. */
bool size_involves(const Size *size, uint32_t symbol);
/* The index of the symbol, if the size is one symbol and nothing more; else -1. */
int32_t size_symbol_of(const Size *size);
/* The value for given values of the symbols; false on overflow. */
bool size_value(const Size *size, const int64_t *symbols, int64_t *value);
/* The size with a number in place of a symbol; NULL on overflow. */
const Size *size_with(SizeTable *table, const Size *size, uint32_t symbol, int64_t number);
/* The size with the sizes of[symbol], all of the table `to`, in place of its symbols; NULL on overflow, and if of[] has
 * NULL for a symbol that occurs. */
const Size *size_substitute(SizeTable *to, const Size *size, const Size *const *of);
/* Whether the two can be the same number in some run: not if they differ by a constant other than 0. */
bool size_may_equal(SizeTable *table, const Size *a, const Size *b);
/* The same polynomial in another table, which must know the same symbols under the same indexes. NULL if the table has
 * no room for its floors. */
const Size *size_copy(SizeTable *table, const Size *size);

/* "2*batch*time + 1", "2*((time + 1)//2)" */
void size_print(StrBuf *out, const SizeTable *table, const Size *size);
/* Reads what size_print wrote (and any sum of products, with brackets, of declared sizes and integers; `//` needs a
 * number greater than 0 on its right) from *text, which is moved past it. NULL if there is none, if it overflows, or
 * if it names a size that was not declared. */
const Size *size_read(SizeTable *table, const char **text);

#endif
