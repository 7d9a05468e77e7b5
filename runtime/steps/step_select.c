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
void select_greatest(const Line *line, char *scratch) {
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
void select_places(const Line *line) {
  char *to = line->c;
  for (int wanted = 1; wanted >= 0; wanted--)
    for (int32_t i = 0; i < line->n; i++)
      if (is_true(line, i) == wanted) {
        memcpy(to, &i, sizeof i);
        to += line->c_stride;
      }
}

void select_before(const Line *line) {
  int32_t n = 0;
  for (int64_t i = 0; i < line->n; i++) {
    memcpy(line->c + i * line->c_stride, &n, sizeof n);
    n += is_true(line, i);
  }
}

// ---- picked elements ----

void select_taken(const Line *line) {
  for (int64_t i = 0; i < line->count; i++) {
    const char *from = line->x + i32_at(line->y + i * line->y_stride) * line->x_stride;
    memcpy(line->c + i * line->c_stride, from, (size_t)line->bytes);
  }
}
