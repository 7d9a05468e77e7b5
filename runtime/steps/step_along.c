/* Steps that the runtime computes itself, line by line along the last axis: running sums, the greatest elements,
 * where the true ones stand, elements picked by ids, rows of packed tables, rows that are added to others, powers,
 * reductions of i32.
 *
 * In: operands resolved to bytes. Out: the result. Threads share lines, and a line is walked from its first element to
 * its last by one of them, so no number depends on how many there are. Ids were checked by the step before. Nothing is
 * refused. */
#include "steps/items.h"
#include "steps/lines.h"

int64_t along_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  const tfm_along_step *along = &context->program->alongs[step->index];
  int64_t bytes;
  if (along->what != TFM_ALONG_TOPK) return 0;
  bool overflows = __builtin_mul_overflow(value_of(context, along->dims[along->rank - 1]), 8, &bytes);
  return overflows ? -1 : bytes;
}

static void compute_line(const Line *line, const tfm_along_step *along, char *scratch, int width) {
  switch ((tfm_along)along->what) {
    case TFM_ALONG_CUMSUM:
    case TFM_ALONG_TRIANGLE:
      if (along->x.dtype == TFM_F32) scan_f32(line, along->what == TFM_ALONG_TRIANGLE, width);
      else scan_i32(line);
      break;
    case TFM_ALONG_TOPK: select_greatest(line, scratch); break;
    case TFM_ALONG_TAKE: select_taken(line); break;
    case TFM_ALONG_POWER: power_of_line(line); break;
    case TFM_ALONG_PLACES: select_places(line); break;
    case TFM_ALONG_BEFORE: select_before(line); break;
    case TFM_ALONG_LOOK_UP: look_up_row(line, along); break;
    case TFM_ALONG_SCATTER: break; /* not line by line */
    case TFM_ALONG_SUM:
    case TFM_ALONG_MAX:
    case TFM_ALONG_MIN: scan_to_one(line, (tfm_along)along->what); break;
  }
}

/* Puts the line's first elements where item `number` of the first axes is. */
static void place_line(const tfm_context *context, const Items *items, const struct along_operands *operands,
                       int64_t number, Line *line) {
  int64_t at[TFM_MAX_RANK];
  items_coordinates(items, number, at);
  line->x = element_address(context, &operands->x, items_distance(items, operands->x.strides, at));
  line->y = element_address(context, &operands->y, items_distance(items, operands->y.strides, at));
  line->c = element_address(context, &operands->c, items_distance(items, operands->c.strides, at));
}

/* Whether one id picks a whole row: elements that are neighbours in x and in c. */
static bool takes_rows(const tfm_along_step *along, const struct along_operands *operands) {
  int beside = along->rank - 2;
  return along->what == TFM_ALONG_TAKE && beside >= 0 && operands->y.strides[beside] == 0 &&
         operands->x.strides[beside] == operands->c.bytes && operands->c.strides[beside] == operands->c.bytes;
}

/* The axis before the last is the row, of `line->bytes` bytes; threads share the rows. */
static void take_rows(const Walker *walker, const tfm_along_step *along, const struct along_operands *operands,
                      Line *line) {
  const tfm_context *context = walker->context;
  const Items items = items_of(context, along->dims, along->rank - 2);
  int64_t rows = items_count(&items) * line->count;
  int64_t first = rows * walker->thread / walker->threads, end = rows * (walker->thread + 1) / walker->threads;
  line->bytes *= value_of(context, along->dims[items.axes]);
  for (int64_t row = first; row < end; row++) {
    int64_t i = row % line->count;
    if (i == 0 || row == first) place_line(context, &items, operands, row / line->count, line);
    const char *from = line->x + i32_at(line->y + i * line->y_stride) * line->x_stride;
    memcpy(line->c + i * line->c_stride, from, (size_t)line->bytes);
  }
}

/* How many of the lines from number `first` to `end` are walked together. */
static int lines_beside(const tfm_context *context, const tfm_along_step *along, const struct along_operands *operands,
                        int64_t first, int64_t end) {
  int beside = along->rank - 2;
  bool is_sum = along->what == TFM_ALONG_CUMSUM || along->what == TFM_ALONG_TRIANGLE;
  if (!is_sum || along->x.dtype != TFM_F32 || beside < 0) return 1;
  if (operands->x.strides[beside] != sizeof(float) || operands->c.strides[beside] != sizeof(float)) return 1;
  int64_t columns = value_of(context, along->dims[beside]);
  return least_of(columns - first % columns, end - first) >= BESIDE ? BESIDE : 1;
}

void step_along(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  const tfm_along_step *along = &context->program->alongs[step->index];
  const struct along_operands *operands = &operands_of(context, step)->along;
  int last = along->rank - 1;
  Line line = {.x_stride = operands->x.strides[last], .y_stride = operands->y.strides[last],
               .c_stride = operands->c.strides[last], .n = value_of(context, along->n),
               .count = value_of(context, along->dims[last]), .bytes = operands->c.bytes};
  if (takes_rows(along, operands)) {
    take_rows(walker, along, operands, &line);
    return;
  }
  if (along->what == TFM_ALONG_SCATTER) {
    place_line(context, &(Items){0}, operands, 0, &line);
    scatter_rows(walker, along, &line);
    return;
  }
  const Items items = items_of(context, along->dims, last);
  int64_t lines = line.count ? items_count(&items) : 0;
  int64_t end = lines * (walker->thread + 1) / walker->threads;
  int width;
  for (int64_t i = lines * walker->thread / walker->threads; i < end; i += width) {
    width = lines_beside(context, along, operands, i, end);
    place_line(context, &items, operands, i, &line);
    compute_line(&line, along, walker->scratch, width);
  }
}
