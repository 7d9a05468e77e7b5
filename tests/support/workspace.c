/* See workspace.h. A context is made of a program with no code behind its kernels, which is enough to plan memory as a
 * bind does; the steps that a bind runs are left out. */
#include "workspace.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked_size.h"
#include "context/binding.h"
#include "context/context.h"
#include "tfm/abi/drivers.h"

static int64_t symbol_value(const Plan *plan, uint8_t symbol, const int64_t *symbols) {
  if (symbol < TFM_FIRST_FLOOR) return symbols[symbol];
  const tfm_floor *floor = &plan->program.floors[symbol - TFM_FIRST_FLOOR];
  return plan_evaluate(plan, floor->numerator, symbols) / floor->divisor;
}

int64_t plan_evaluate(const Plan *plan, tfm_size size, const int64_t *symbols) {
  const tfm_polynomial *polynomial = &plan->program.polynomials[size];
  int64_t sum = 0;
  for (uint32_t i = 0; i < polynomial->n_terms; i++) {
    const tfm_term *term = &plan->program.terms[polynomial->first_term + i];
    int64_t product = term->coefficient;
    for (uint32_t j = 0; j < term->degree; j++)
      if (!checked_mul(product, symbol_value(plan, term->symbols[j], symbols), &product)) return INT64_MAX;
    if (!checked_add(sum, product, &sum)) return INT64_MAX;
  }
  return sum;
}

/* Scratch of attention over caches is a matter of its decoder. */
static int64_t scratch_of(const tfm_context *context) {
  return context->program->n_caches ? 0 : context_scratch_bytes(context);
}

Workspace workspace_of(const Plan *plan, const int64_t *symbols, int threads) {
  tfm_program program = plan->program;
  void **kernels = calloc(plan->kernels.n + 1, sizeof *kernels);
  program.kernels = kernels;
  program.drivers = &tfm_all_drivers;
  tfm_error error = {0};
  tfm_context *context;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  char *weights = aligned_alloc(64, program.weights_bytes / 64 * 64 + 64);
  cr_assert_eq(tfm_context_create(&program, weights, &options, &context, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(context_set_shapes(context, symbols, &error), TFM_OK, "%s", error.message);
  Workspace found = {.measured = program.n_caches ? memory_measure(context, 0, 1) : context_measure(context, symbols)};
  cr_assert_eq(memory_plan(context, scratch_of(context), 1, &error), TFM_OK, "%s", error.message);
  found.used = context->memory.used_bytes;
  found.buffers = context->memory.buffers_bytes;
  found.offsets = calloc(program.n_buffers + 1, sizeof *found.offsets);
  memcpy(found.offsets, context->memory.buffer_offsets, program.n_buffers * sizeof *found.offsets);
  tfm_context_destroy(context);
  free(weights);
  free(kernels);
  return found;
}
