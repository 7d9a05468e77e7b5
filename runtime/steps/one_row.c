/* A gradient of one row, x[k] y[k, columns]: the sum of a bias or of a norm's weight over all rows of a batch, or the
 * weight of a layer with one output.
 *
 * In: the product, cut by matmul_cut.c. Out: sums in f64, in the order of k, rounded once. A product of two numbers of
 * f32 is exact in f64, and steps that are zero or left out change no sum. So the bits depend on neither threads nor
 * padding nor instruction sets, and a sum of equal numbers loses nothing that shows. Threads share columns.
 *
 * In a step of training with several parts a sum goes on from run to run: until the last one the output holds the upper
 * half of its 64 bits, and its rest (RunState.rests) the lower half. Refuses nothing. */
#include <string.h>

#include "machine/tuning.h"
#include "machine/wide.h"
#include "steps/one_row.h"

enum {
  ROWS = 4, /* for which sums are loaded and stored once */
  LINE = ALIGNMENT / sizeof(float) /* columns: threads share no cache line */
};

typedef struct OneRow { /* columns of y, from step 0 on, and what belongs to them */
  const char *x, *y;
  float *c, *rest;
  int64_t x_step, y_step, columns;
  _Alignas(ALIGNMENT) double sums[ONE_ROW_COLUMNS]; /* a vector of them is a line */
} OneRow;

static double f64_at(const char *x) {
  float number;
  memcpy(&number, x, sizeof number);
  return (double)number;
}

/* add_rows_2, _4 and _8: so many columns together. */
#define TOGETHER 2
#include "steps/row_sums.h"
#if MOST_WIDE >= 8
#define TOGETHER 4
#include "steps/row_sums.h"
#define TOGETHER 8
#include "steps/row_sums.h"
#endif

typedef int64_t (*RowsAdder)(OneRow *row, int64_t k, int64_t end);

/* What the kernels may use, this may use too. */
static RowsAdder adder_for(uint32_t features) {
#if MOST_WIDE >= 8
  const int32_t bytes = machine_vector_bytes(features);
  if (bytes >= 64) return add_rows_8;
  if (bytes >= 32) return add_rows_4;
#endif
  (void)features;
  return add_rows_2;
}

static void add_row(OneRow *row, int64_t k) {
  const double x = f64_at(row->x + k * row->x_step);
  const char *y = row->y + k * row->y_step;
  for (int64_t j = 0; j < row->columns; j++) row->sums[j] += x * f64_at(y + j * (int64_t)sizeof(float));
}

static void take_up(OneRow *row, bool goes_on) {
  memset(row->sums, 0, (size_t)row->columns * sizeof *row->sums);
  for (int64_t j = 0; goes_on && j < row->columns; j++) {
    uint32_t halves[2];
    memcpy(halves, row->c + j, sizeof *halves);
    memcpy(halves + 1, row->rest + j, sizeof *halves);
    memcpy(row->sums + j, &(uint64_t){(uint64_t)halves[0] << 32 | halves[1]}, sizeof *row->sums);
  }
}

static void leave(OneRow *row, bool waits) {
  for (int64_t j = 0; j < row->columns; j++) {
    uint64_t bits;
    memcpy(&bits, row->sums + j, sizeof bits);
    const uint32_t upper = (uint32_t)(bits >> 32), lower = (uint32_t)bits;
    if (!waits) {
      row->c[j] = (float)row->sums[j];
      continue;
    }
    memcpy(row->c + j, &upper, sizeof upper);
    memcpy(row->rest + j, &lower, sizeof lower);
  }
}

float *gradient_rest(const tfm_context *context, const tfm_operand *operand, const float *c) {
  if (!context->run.rests || operand->space != TFM_SPACE_OUTPUT) return NULL;
  const float *output = context->run.callers[context->program->n_inputs + operand->index];
  return (float *)context->run.rests[operand->index] + (c - output);
}

static void run_columns(const Walker *walker, const Matmul *m, int64_t item, int64_t column, int64_t columns) {
  const tfm_context *context = walker->context;
  const int row = m->step->rank - 2, last = m->step->rank - 1;
  OneRow of = {.x = matmul_item(context, m, m->x, item),
               .y = matmul_item(context, m, m->y, item) + column * (int64_t)sizeof(float),
               .c = (float *)(void *)matmul_item(context, m, m->c, item) + column,
               .x_step = m->x->strides[last], .y_step = m->y->strides[row], .columns = columns};
  of.rest = gradient_rest(context, &m->step->c, of.c);
  LiveRows steps = m->live;
  if (steps.mask && m->step->live_steps != TFM_STEPS_SHARED) steps.mask += item * m->k;
  const bool goes_on = m->goes_on && of.rest, may_go_on = m->step->in_order == TFM_ORDER_GOES_ON && of.rest;
  const RowsAdder add_rows = adder_for(context->program->features);
  take_up(&of, goes_on);
  int64_t first = 0, n = m->k;
  for (int64_t at = 0; at < m->k; at = first + n) {
    if (steps.mask && (n = live_run(&steps, true, at, m->k, &first)) == 0) break;
    for (int64_t k = add_rows(&of, first, first + n); k < first + n; k++) add_row(&of, k);
  }
  leave(&of, may_go_on && context->run.waits);
}

void gradient_of_one_row(const Walker *walker, const Matmul *m) {
  const int64_t lines = ceil_div(m->columns, LINE), first = lines * walker->thread / walker->threads * LINE;
  const int64_t end = least_of(m->columns, lines * (walker->thread + 1) / walker->threads * LINE);
  for (int64_t item = 0; item < m->items; item++)
    for (int64_t column = first; column < end; column += ONE_ROW_COLUMNS)
      run_columns(walker, m, item, column, least_of(ONE_ROW_COLUMNS, end - column));
}
