/* Tables of sines and cosines: sinusoid (Vaswani et al., Attention is all you need, 2017) and the angles of rotary (Su
 * et al., RoFormer, 2021), computed in double and rounded to f32 at the end, so that large positions keep their
 * fraction.
 *
 * In: positions. Out: a row of the table for each; threads share rows. Refuses nothing. */
#include <math.h>
#include <string.h>

#include "machine/wide.h"
#include "steps/items.h"
#include "steps/walker.h"
#include "tfm/abi/double_functions.h"

/* Angles per position: the columns that hold a sine (of an odd d, one more than cosines). */
static int64_t angles_of(const tfm_table_step *table) { return table->rotary ? table->d / 2 : (table->d + 1) / 2; }

enum { MOST_TOGETHER = 8 }; /* angles */

int64_t table_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  return round_up(angles_of(&context->program->tables[step->index]), MOST_TOGETHER) * (int64_t)sizeof(double);
}

/* rates[i] = base^(-2 i / d), the angle per position; 0 behind the last. */
static void fill_rates(const tfm_table_step *table, double *rates) {
  double logarithm = double_log(table->base);
  int64_t angles = angles_of(table), i = 0;
  for (; i < angles; i++) rates[i] = double_exp(-2.0 * (double)i / (double)table->d * logarithm);
  for (; i % MOST_TOGETHER; i++) rates[i] = 0;
}

/* table_fill_2, _4 and _8: the columns of one position for so many angles together. */
#define TOGETHER 2
#include "steps/sines.h"
#define TOGETHER 4
#include "steps/sines.h"
#define TOGETHER 8
#include "steps/sines.h"

/* What the kernels may use, this may use too: plan_drivers in the compiler chooses alike. */
static tfm_row_filler *filler_of(const tfm_program *program) {
  const int32_t bytes = machine_vector_bytes(program->features);
  return bytes >= 64 ? program->drivers->fill_8 : bytes >= 32 ? program->drivers->fill_4 : program->drivers->fill_2;
}

/* Both types are exact in double. */
static double position_at(const char *address, uint8_t dtype) {
  float number;
  int32_t integer;
  memcpy(&number, address, 4);
  memcpy(&integer, address, 4);
  return dtype == TFM_F32 ? (double)number : (double)integer;
}

void step_table(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  const tfm_table_step *table = &context->program->tables[step->index];
  const struct table_operands *operands = &operands_of(context, step)->table;
  const Operand *positions = &operands->positions, *c = &operands->c;
  const Items items = items_of(context, table->dims, table->rank);
  const int64_t rows = items_count(&items);
  double *rates = (double *)walker->scratch;
  fill_rates(table, rates);
  tfm_row_filler *const fill = filler_of(context->program);
  int64_t end = rows * (walker->thread + 1) / walker->threads;
  for (int64_t row = rows * walker->thread / walker->threads; row < end; row++) {
    const double position = position_at(items_address(context, &items, positions, row), table->positions.dtype);
    fill(table, rates, position, items_address(context, &items, c, row));
  }
}
