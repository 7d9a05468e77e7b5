/* Rows that ids choose: looked up in a table that is kept as the panels of a product, in fewer bits; or added to rows.
 *
 * In: ids that were checked, the table; rows. Out: a row in f32, as the form defines it; sums. Refuses nothing. */
#include <string.h>

#include "steps/lines.h"
#include "tfm/abi/form_bf16.h"
#include "tfm/abi/form_int4.h"
#include "tfm/abi/form_int8.h"

// ---- rows of packed tables ----

/* Four numbers, as a vector of the compiler. */
typedef float Four __attribute__((vector_size(16)));

static Four four_at(const float *from) {
  Four four;
  memcpy(&four, from, sizeof four);
  return four;
}

static void put_four(float *to, Four four) { memcpy(to, &four, sizeof four); }

/* Sums and differences of numbers 1/16, 1/8, 1/4 and 1/2 of a period apart, the greatest power of two in k: two stages
 * of four neighbours at a time, of numbers that are 0, 1, 2 and 3 distances further. */
static int64_t rotate_fours(float *row, int64_t k, int64_t distance) {
  for (; distance % 4 == 0 && 4 * distance <= (k & -k); distance *= 4)
    for (int64_t begin = 0; begin < k; begin += 4 * distance)
      for (float *at = row + begin; at < row + begin + distance; at += 4) {
        const Four a = four_at(at), b = four_at(at + distance);
        const Four c = four_at(at + 2 * distance), d = four_at(at + 3 * distance);
        const Four ab = a + b, cd = c + d, a_b = a - b, c_d = c - d;
        put_four(at, ab + cd);
        put_four(at + distance, a_b + c_d);
        put_four(at + 2 * distance, ab - cd);
        put_four(at + 3 * distance, a_b - c_d);
      }
  return distance;
}

static void rotate(float *row, int64_t k) {
  const int64_t period = k & -k;
  for (int64_t distance = rotate_fours(row, k, period / 16 ? period / 16 : 1); distance < period; distance *= 2)
    for (int64_t begin = 0; begin < k; begin += 2 * distance)
      for (int64_t i = begin; i < begin + distance; i++) {
        const float a = row[i], b = row[i + distance];
        row[i] = a + b;
        row[i + distance] = a - b;
      }
}

static void look_up_row(const Line *line, const tfm_along_step *along, char *scratch, int together) {
  (void)scratch, (void)together;
  const int64_t k = line->n, width = along->panel, id = i32_at(line->y), lane = id % width;
  const char *panel = line->x + id / width * width * tfm_column_bytes(along->form, k);
  float *row = (float *)(void *)line->c, scale;
  if (along->form == TFM_FORM_BF16) {
    tfm_bf16_unpack(panel, width, lane, k, row);
    return;
  }
  memcpy(&scale, panel + width * tfm_form_bytes(along->form, k) + lane * (int64_t)sizeof scale, sizeof scale);
  (along->form == TFM_FORM_INT8 ? tfm_int8_unpack : tfm_int4_unpack)(panel, width, lane, k, scale, row);
  rotate(row, k);
}

void step_look_up(Walker *walker, const tfm_step *step) { along_lines(walker, step, look_up_row); }

// ---- rows that are added ----

/* Threads share columns, each of which gets its numbers in the order of the rows. The axis before the last is that of
 * columns, which are neighbours; the last one is that of the rows of c. */
static void scatter_rows(const Walker *walker, const tfm_along_step *along, const Line *line) {
  const int64_t columns = value_of(walker->context, along->dims[0]), blocks = ceil_div(columns, BESIDE);
  const int64_t first = blocks * walker->thread / walker->threads * BESIDE;
  const int64_t n = least_of(columns, blocks * (walker->thread + 1) / walker->threads * BESIDE) - first;
  char *c = line->c + first * (int64_t)sizeof(float);
  const char *x = line->x + first * (int64_t)sizeof(float);
  if (n <= 0) return;
  const bool begins = along->accumulate == TFM_ACCUMULATE_ANEW ||
                      (along->accumulate == TFM_ACCUMULATE_GOES_ON && !walker->context->run.goes_on);
  for (int64_t row = 0; begins && row < line->count; row++)
    memset(c + row * line->c_stride, 0, (size_t)n * sizeof(float));
  for (int64_t i = 0; i < line->n; i++) {
    float *restrict to = (float *)(void *)(c + i32_at(line->y + i * line->y_stride) * line->c_stride);
    const float *restrict from = (const float *)(const void *)(x + i * line->x_stride);
    for (int64_t j = 0; j < n; j++) to[j] += from[j];
  }
}

void step_scatter(Walker *walker, const tfm_step *step) {
  Line line = line_of(walker->context, step);
  line_place(walker, step, &(Items){0}, 0, &line);
  scatter_rows(walker, &walker->context->program->alongs[step->index], &line);
}
