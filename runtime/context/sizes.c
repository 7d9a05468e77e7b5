/* Sizes: the values of the program's polynomials.
 *
 * In: the run-time sizes. Out: the values of all polynomials, and the scalars made of them. Refused: a value beyond
 * int64_t. A polynomial is evaluated again only if a size that it depends on has changed, because one step of decoding
 * differs from the next in a single size: the number of earlier positions. */
#include "context/binding.h"

#include <string.h>

#include "machine/fp_mode.h"

/* A floor divides a polynomial before those that it is in, so that one has its value already. */
static int64_t symbol_value(const tfm_context *context, uint8_t symbol) {
  if (symbol < TFM_FIRST_FLOOR) return context->binding.symbols[symbol];
  const tfm_floor *floor = &context->program->floors[symbol - TFM_FIRST_FLOOR];
  return context->binding.values[floor->numerator] / floor->divisor;
}

/* False: the value lies beyond int64_t. */
static bool term_value(const tfm_context *context, const tfm_term *term, int64_t *value) {
  int64_t product = term->coefficient;
  for (unsigned i = 0; i < term->degree; i++)
    if (__builtin_mul_overflow(product, symbol_value(context, term->symbols[i]), &product)) return false;
  *value = product;
  return true;
}

/* False: the value lies beyond int64_t, at whichever term that shows. */
static bool polynomial_value(const tfm_context *context, uint32_t index, int64_t *value) {
  const tfm_polynomial *polynomial = &context->program->polynomials[index];
  int64_t sum = 0;
  for (uint32_t i = 0; i < polynomial->n_terms; i++) {
    int64_t term;
    if (!term_value(context, &context->program->terms[polynomial->first_term + i], &term)) return false;
    if (__builtin_add_overflow(sum, term, &sum)) return false;
  }
  *value = sum;
  return true;
}

uint64_t sizes_changed(const tfm_context *context, const int64_t *symbols) {
  uint64_t changed = 0;
  for (uint32_t i = 0; i < context->program->n_symbols; i++)
    if (symbols[i] != context->binding.symbols[i]) changed |= symbol_bit(i);
  return changed;
}

/* Symbols that a polynomial is made of; those of a floor are its numerator's, which were found before. */
static uint64_t value_symbols_of(const tfm_context *context, uint32_t index) {
  const tfm_polynomial *polynomial = &context->program->polynomials[index];
  uint64_t symbols = 0;
  for (uint32_t i = 0; i < polynomial->n_terms; i++) {
    const tfm_term *term = &context->program->terms[polynomial->first_term + i];
    for (unsigned k = 0; k < term->degree; k++) {
      const uint8_t symbol = term->symbols[k];
      symbols |= symbol < TFM_FIRST_FLOOR
                     ? symbol_bit(symbol)
                     : context->binding.value_symbols[context->program->floors[symbol - TFM_FIRST_FLOOR].numerator];
    }
  }
  return symbols;
}

void sizes_find_symbols(tfm_context *context) {
  for (uint32_t i = 0; i < context->program->n_polynomials; i++)
    context->binding.value_symbols[i] = value_symbols_of(context, i);
}

/* values_stale is set first and cleared last, so that a failure in between makes the next call evaluate everything, and
 * resolve all operands: sizes may have been set since they were.
 * The mode of floating-point numbers decides how a large value is rounded to f32, so it is the runtime's own. */
bool sizes_evaluate(tfm_context *context, uint64_t changed) {
  if (context->binding.values_stale) changed = ALL_SYMBOLS;
  context->run.operands_stale |= changed;
  context->binding.values_stale = true;
  uint64_t fp_mode = fp_mode_enter();
  uint32_t i = 0;
  for (; i < context->program->n_polynomials; i++) {
    if (changed != ALL_SYMBOLS && !(context->binding.value_symbols[i] & changed)) continue;
    if (!polynomial_value(context, i, &context->binding.values[i])) break;
    context->binding.values_f32[i] = (float)context->binding.values[i];
    context->binding.values_i32[i] = (int32_t)(uint32_t)context->binding.values[i];
  }
  fp_mode_leave(fp_mode);
  context->binding.values_stale = i < context->program->n_polynomials;
  return !context->binding.values_stale;
}
