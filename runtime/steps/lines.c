/* Steps that the runtime computes itself, line by line along the last axis: powers, and, in files of their own, running
 * sums and reductions of i32 (step_scan.c), the greatest elements, where the true ones stand, elements picked by ids
 * (step_select.c), rows of packed tables, rows that are added to others (step_lookup.c). Each kind has a driver, so a
 * library has those that it needs.
 *
 * In: operands resolved to bytes. Out: the result. Threads share lines, and a line is walked from its first element to
 * its last by one of them, so no number depends on how many there are. Ids were checked by the step before. Nothing is
 * refused. */
#include "steps/lines.h"

#include "tfm/abi/double_functions.h"

Line line_of(const tfm_context *context, const tfm_step *step) {
  const tfm_along_step *along = &context->program->alongs[step->index];
  const struct along_operands *operands = &operands_of(context, step)->along;
  const int last = along->rank - 1;
  return (Line){.x_stride = operands->x.strides[last], .y_stride = operands->y.strides[last],
                .c_stride = operands->c.strides[last], .n = value_of(context, along->n),
                .count = value_of(context, along->dims[last]), .bytes = operands->c.bytes};
}

void line_place(const Walker *walker, const tfm_step *step, const Items *items, int64_t number, Line *line) {
  const tfm_context *context = walker->context;
  const struct along_operands *operands = &operands_of(context, step)->along;
  int64_t at[TFM_MAX_RANK];
  items_coordinates(items, number, at);
  line->x = element_address(context, &operands->x, items_distance(items, operands->x.strides, at));
  line->y = element_address(context, &operands->y, items_distance(items, operands->y.strides, at));
  line->c = element_address(context, &operands->c, items_distance(items, operands->c.strides, at));
}

/* How many of the lines from number `first` to `end` are walked together. */
static int lines_beside(const tfm_context *context, const tfm_step *step, int64_t first, int64_t end) {
  const tfm_along_step *along = &context->program->alongs[step->index];
  const struct along_operands *operands = &operands_of(context, step)->along;
  int beside = along->rank - 2;
  bool is_sum = along->what == TFM_ALONG_CUMSUM || along->what == TFM_ALONG_TRIANGLE;
  if (!is_sum || along->x.dtype != TFM_F32 || beside < 0) return 1;
  if (operands->x.strides[beside] != sizeof(float) || operands->c.strides[beside] != sizeof(float)) return 1;
  int64_t columns = value_of(context, along->dims[beside]);
  return least_of(columns - first % columns, end - first) >= BESIDE ? BESIDE : 1;
}

void along_lines(Walker *walker, const tfm_step *step, LineWork *work) {
  const tfm_context *context = walker->context;
  const tfm_along_step *along = &context->program->alongs[step->index];
  const Items items = items_of(context, along->dims, along->rank - 1);
  Line line = line_of(context, step);
  int64_t lines = line.count ? items_count(&items) : 0;
  int64_t end = lines * (walker->thread + 1) / walker->threads;
  int width;
  for (int64_t i = lines * walker->thread / walker->threads; i < end; i += width) {
    width = lines_beside(context, step, i, end);
    line_place(walker, step, &items, i, &line);
    work(&line, along, walker->scratch, width);
  }
}

static void raise_line(const Line *line, const tfm_along_step *along, char *scratch, int width) {
  (void)along, (void)scratch, (void)width;
  for (int64_t i = 0; i < line->count; i++) {
    float result = float_pow(f32_at(line->x + i * line->x_stride), f32_at(line->y + i * line->y_stride));
    memcpy(line->c + i * line->c_stride, &result, sizeof result);
  }
}

void step_power(Walker *walker, const tfm_step *step) { along_lines(walker, step, raise_line); }
