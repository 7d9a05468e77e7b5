/* Values of the program's polynomials for given run-time sizes. */
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

bool sizes_evaluate(tfm_context *context) {
  for (uint32_t i = 0; i < context->program->n_polynomials; i++)
    if (!polynomial_value(context->program, i, context->symbols, &context->values[i])) return false;
  uint64_t fp_mode = fp_mode_enter();
  for (uint32_t i = 0; i < context->program->n_polynomials; i++) {
    context->values_f32[i] = (float)context->values[i];
    context->values_i32[i] = (int32_t)(uint32_t)context->values[i];
  }
  fp_mode_leave(fp_mode);
  return true;
}
