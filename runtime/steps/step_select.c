/* Elements of a line that are selected: the greatest, the true ones, those that ids pick.
 *
 * In: a line, and ids that were checked. Out: places of elements, counts, or the elements. Refuses nothing; NaN counts
 * as greater than any number. */
#include <math.h>

#include "steps/lines.h"

// ---- the greatest elements ----

static bool is_greater(float a, float b) { return isnan(a) ? !isnan(b) : a > b; }

/* Elements come in the order of their indices, so one that is as great as another stands behind it. The greatest so far
 * are kept in order; a new one moves the smaller ones down. */
static void select_greatest(const Line *line, char *scratch) {
  float *values = (float *)scratch;
  int32_t *ids = (int32_t *)(scratch + line->count * (int64_t)sizeof *values);
  int64_t kept = 0;
  for (int64_t i = 0; i < line->n; i++) {
    float number = f32_at(line->x + i * line->x_stride);
    if (kept == line->count && !is_greater(number, values[kept - 1])) continue;
    int64_t low = 0, high = kept; /* the first that the new one is greater than lies in [low, high] */
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      if (is_greater(number, values[middle])) high = middle;
      else low = middle + 1;
    }
    if (kept < line->count) kept++;
    memmove(values + low + 1, values + low, (size_t)(kept - low - 1) * sizeof *values);
    memmove(ids + low + 1, ids + low, (size_t)(kept - low - 1) * sizeof *ids);
    values[low] = number;
    ids[low] = (int32_t)i;
  }
  for (int64_t i = 0; i < line->count; i++) memcpy(line->c + i * line->c_stride, &ids[i], sizeof *ids);
}

// ---- true elements ----

static bool is_true(const Line *line, int64_t i) { return line->x[i * line->x_stride] != 0; }

/* Of the true elements, then of the others. */
static void select_places(const Line *line) {
  char *to = line->c;
  for (int wanted = 1; wanted >= 0; wanted--)
    for (int32_t i = 0; i < line->n; i++)
      if (is_true(line, i) == wanted) {
        memcpy(to, &i, sizeof i);
        to += line->c_stride;
      }
}

static void select_before(const Line *line) {
  int32_t n = 0;
  for (int64_t i = 0; i < line->n; i++) {
    memcpy(line->c + i * line->c_stride, &n, sizeof n);
    n += is_true(line, i);
  }
}

// ---- picked elements ----

static void select_taken(const Line *line) {
  for (int64_t i = 0; i < line->count; i++) {
    const char *from = line->x + i32_at(line->y + i * line->y_stride) * line->x_stride;
    memcpy(line->c + i * line->c_stride, from, (size_t)line->bytes);
  }
}

/* Whether one id picks a whole row: elements that are neighbours in x and in c. */
static bool takes_rows(const tfm_along_step *along, const struct along_operands *operands) {
  int beside = along->rank - 2;
  return along->what == TFM_ALONG_TAKE && beside >= 0 && operands->y.strides[beside] == 0 &&
         operands->x.strides[beside] == operands->c.bytes && operands->c.strides[beside] == operands->c.bytes;
}

/* The axis before the last is the row, of `line->bytes` bytes; threads share the rows. */
static void take_rows(const Walker *walker, const tfm_step *step, int axes) {
  const tfm_context *context = walker->context;
  const tfm_along_step *along = &context->program->alongs[step->index];
  const Items items = items_of(context, along->dims, axes);
  Line line = line_of(context, step);
  int64_t rows = items_count(&items) * line.count;
  int64_t first = rows * walker->thread / walker->threads, end = rows * (walker->thread + 1) / walker->threads;
  line.bytes *= value_of(context, along->dims[axes]);
  for (int64_t row = first; row < end; row++) {
    int64_t i = row % line.count;
    if (i == 0 || row == first) line_place(walker, step, &items, row / line.count, &line);
    const char *from = line.x + i32_at(line.y + i * line.y_stride) * line.x_stride;
    memcpy(line.c + i * line.c_stride, from, (size_t)line.bytes);
  }
}

// ---- the step ----

int64_t select_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  const tfm_along_step *along = &context->program->alongs[step->index];
  int64_t bytes;
  if (along->what != TFM_ALONG_TOPK) return 0;
  bool overflows = __builtin_mul_overflow(value_of(context, along->dims[along->rank - 1]), 8, &bytes);
  return overflows ? -1 : bytes;
}

static void select_of_line(const Line *line, const tfm_along_step *along, char *scratch, int width) {
  (void)width;
  if (along->what == TFM_ALONG_TOPK) select_greatest(line, scratch);
  else if (along->what == TFM_ALONG_TAKE) select_taken(line);
  else if (along->what == TFM_ALONG_PLACES) select_places(line);
  else select_before(line);
}

void step_select(Walker *walker, const tfm_step *step) {
  const tfm_along_step *along = &walker->context->program->alongs[step->index];
  if (takes_rows(along, &operands_of(walker->context, step)->along)) take_rows(walker, step, along->rank - 2);
  else along_lines(walker, step, select_of_line);
}
