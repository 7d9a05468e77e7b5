/* Values of the program's polynomials for given run-time sizes. Only what depends on a size that changed is evaluated anew:
 * a step of decoding differs from the one before in the number of earlier positions. */
#include "context.h"
#include "fp_mode.h"

static bool term_value(const tfm_term *term, const int64_t *symbols, int64_t *value) {
  int64_t product = term->coefficient;
  for (unsigned i = 0; i < term->degree; i++)
    if (__builtin_mul_overflow(product, symbols[term->symbols[i]], &product)) return false;
  *value = product;
  return true;
}

static bool polynomial_value(const tfm_program *program, uint32_t index, const int64_t *symbols, int64_t *value) {
  const tfm_polynomial *polynomial = &program->polynomials[index];
  int64_t sum = 0;
  for (uint32_t i = 0; i < polynomial->n_terms; i++) {
    int64_t term;
    if (!term_value(&program->terms[polynomial->first_term + i], symbols, &term)) return false;
    if (__builtin_add_overflow(sum, term, &sum)) return false;
  }
  *value = sum;
  return true;
}

uint64_t sizes_changed(const tfm_context *context, const int64_t *symbols) {
  uint64_t changed = 0;
  for (uint32_t i = 0; i < context->program->n_symbols; i++)
    if (symbols[i] != context->symbols[i]) changed |= symbol_bit(i);
  return changed;
}

/* Symbols that a polynomial is made of. */
static uint64_t symbols_of(const tfm_program *program, uint32_t index) {
  const tfm_polynomial *polynomial = &program->polynomials[index];
  uint64_t symbols = 0;
  for (uint32_t i = 0; i < polynomial->n_terms; i++) {
    const tfm_term *term = &program->terms[polynomial->first_term + i];
    for (unsigned k = 0; k < term->degree; k++) symbols |= symbol_bit(term->symbols[k]);
  }
  return symbols;
}

void sizes_find_symbols(tfm_context *context) {
  for (uint32_t i = 0; i < context->program->n_polynomials; i++)
    context->value_symbols[i] = symbols_of(context->program, i);
}

bool sizes_evaluate(tfm_context *context, uint64_t changed) {
  context->operands_stale |= changed;
  if (context->values_stale) changed = ALL_SYMBOLS;
  context->values_stale = true;
  uint64_t fp_mode = fp_mode_enter();
  uint32_t i = 0;
  for (; i < context->program->n_polynomials; i++) {
    if (changed != ALL_SYMBOLS && !(context->value_symbols[i] & changed)) continue;
    if (!polynomial_value(context->program, i, context->symbols, &context->values[i])) break;
    context->values_f32[i] = (float)context->values[i];
    context->values_i32[i] = (int32_t)(uint32_t)context->values[i];
  }
  fp_mode_leave(fp_mode);
  context->values_stale = i < context->program->n_polynomials;
  return !context->values_stale;
}
