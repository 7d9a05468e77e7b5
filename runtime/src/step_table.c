/* Tables of sines and cosines: sinusoid and the angles of rotary, in double, rounded to f32 at the end. */
#include <math.h>
#include <string.h>

#include "steps.h"

/* Angles per position: the columns that hold a sine (of an odd d, one more than cosines). */
static int64_t angles_of(const tfm_table_step *table) { return table->rotary ? table->d / 2 : (table->d + 1) / 2; }

int64_t table_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  return angles_of(&context->program->tables[step->index]) * (int64_t)sizeof(double);
}

static void fill_rates(const tfm_table_step *table, double *rates) {
  double logarithm = log(table->base);
  for (int64_t i = 0; i < angles_of(table); i++) rates[i] = exp(-2.0 * (double)i / (double)table->d * logarithm);
}

static void fill_row(const tfm_table_step *table, const double *rates, double position, char *row) {
  int64_t angles = angles_of(table);
  for (int64_t i = 0; i < angles; i++) {
    float sine = (float)sin(position * rates[i]), cosine = (float)cos(position * rates[i]);
    int64_t sine_column = table->rotary ? angles + i : table->interleaved ? 2 * i : i;
    int64_t cosine_column = table->rotary ? i : table->interleaved ? 2 * i + 1 : angles + i;
    memcpy(row + sine_column * 4, &sine, 4);
    if (cosine_column < table->d) memcpy(row + cosine_column * 4, &cosine, 4);
  }
}

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
  int64_t rows = 1;
  for (int axis = 0; axis < table->rank; axis++) rows *= value_of(context, table->dims[axis]);
  double *rates = (double *)walker->scratch;
  fill_rates(table, rates);
  int64_t end = rows * (walker->thread + 1) / walker->threads;
  for (int64_t row = rows * walker->thread / walker->threads; row < end; row++) {
    int64_t rest = row, from = 0, to = 0;
    for (int axis = table->rank - 1; axis >= 0; axis--) {
      int64_t dim = value_of(context, table->dims[axis]), coordinate = rest % dim;
      from += coordinate * positions->strides[axis];
      to += coordinate * c->strides[axis];
      rest /= dim;
    }
    double position = position_at(operand_address(context, positions) + from, table->positions.dtype);
    fill_row(table, rates, position, operand_address(context, c) + to);
  }
}
