/* In: sizes of the graph. Out: polynomials of the program, each once; 0 is the constant 0, 1 the constant 1. */
#include <string.h>

#include "base/checked_size.h"
#include "plan/planner.h"

enum { MAX_DEGREE = (int)sizeof((tfm_term){0}.symbols) };

/* The polynomial with these terms: one that exists, or a new one. */
static tfm_size intern(Planner *p, uint32_t n, const tfm_term *terms) {
  MapEntry *entry = map_find(&p->polynomials, terms, n * sizeof *terms);
  if (entry) return (tfm_size)(uintptr_t)entry->value;
  uint32_t first = (uint32_t)p->terms.n;
  tfm_size index = (tfm_size)p->polynomial_list.n;
  for (uint32_t i = 0; i < n; i++) vec_push(p->arena, &p->terms, terms[i]);
  vec_push(p->arena, &p->polynomial_list, (tfm_polynomial){first, n});
  map_put_n(&p->polynomials, terms, n * sizeof *terms, (void *)(uintptr_t)index);
  return index;
}

static int64_t scaled(int64_t coefficient, int64_t numerator, int64_t denominator) {
  int64_t value;
  if (!checked_mul(coefficient, numerator, &value)) return coefficient > 0 ? INT64_MAX : INT64_MIN;
  return value / denominator + (value % denominator > 0);
}

tfm_size plan_scaled(Planner *p, const Size *size, int64_t numerator, int64_t denominator) {
  tfm_term *terms = ARENA_ARRAY(p->arena, tfm_term, size->n_terms ? size->n_terms : 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < size->n_terms; i++) {
    const SizeTerm *term = &size->terms[i];
    if (term->degree > MAX_DEGREE) {
      p->math.overflowed = true;
      return 0;
    }
    tfm_term scaled_term = {.coefficient = scaled(term->coefficient, numerator, denominator), .degree = term->degree};
    memcpy(scaled_term.symbols, term->symbols, term->degree);
    if (scaled_term.coefficient) terms[n++] = scaled_term;
  }
  return intern(p, n, terms);
}

tfm_size plan_size(Planner *p, const Size *size) { return plan_scaled(p, size, 1, 1); }
