/* INT4: rows of a weight in groups of 32: numbers from -8 to 7, times a whole number of the group from -15 to 15, times
 * the scale of the row. Their product with the first two is a row of whole numbers from -120 to 120 like any other.
 * tfm/abi/form_int4.h draws a panel.
 *
 * In: rows that are finite, of whole groups. Out: a panel; of a row its numbers and those of its groups. Every
 * operation is one of IEEE 754, rounded by itself, in the order written, so that all machines give the same bits
 * (docs/weights.md). Refuses nothing: rows of other lengths have the form of 8 bits. See form.h. */
#include "tfm/abi/form_int4.h"

#include <math.h>

#include "forms/form.h"
#include "forms/rotate.h"
#include "forms/whole_rows.h"

enum { LEAST_NUMBER = -8, MOST_NUMBER = 7, MOST_STEP = 15 };

/* The step that gives the number farthest from 0, the first of such, the value -8. */
static float greatest_step(const float *group) {
  float greatest = group[0];
  for (int i = 1; i < TFM_GROUP; i++)
    if (fabsf(group[i]) > fabsf(greatest)) greatest = group[i];
  return greatest / LEAST_NUMBER;
}

/* f[i] is the whole number of -8 to 7 nearest to x[i] / step. Returns the sum of the squares of what is lost. Adding
 * and subtracting 1.5 2^23 rounds to the nearest whole number: quotients are small. */
static double round_group(const float *x, float step, float *f) {
  const float whole = 0x1.8p23f;
  double lost = 0;
  for (int i = 0; i < TFM_GROUP; i++) {
    float number = (x[i] / step + whole) - whole;
    number = number < LEAST_NUMBER ? LEAST_NUMBER : number;
    f[i] = number > MOST_NUMBER ? MOST_NUMBER : number;
  }
  for (int i = 0; i < TFM_GROUP; i++) {
    const double apart = (double)x[i] - (double)f[i] * (double)step;
    lost += apart * apart;
  }
  return lost;
}

/* The number of the group and what is left of x in its steps: of the five nearest, the one that loses least. */
static int choose_step(const float *x, float greatest, float scale, float *f) {
  static const int8_t offsets[] = {0, -1, 1, -2, 2};
  const int base = (int)rintf(fabsf(greatest) / scale);
  float tried[TFM_GROUP];
  double least = INFINITY;
  int best = 0;
  for (int i = 0; i < 5; i++) {
    int number = base + offsets[i] < 1 ? 1 : base + offsets[i];
    number = number > MOST_STEP ? MOST_STEP : number;
    if (signbit(greatest)) number = -number;
    const double lost = round_group(x, (float)number * scale, tried);
    if (!(lost < least)) continue;
    least = lost;
    best = number;
    for (int j = 0; j < TFM_GROUP; j++) f[j] = tried[j];
  }
  return best;
}

float int4_round(const float *x, int64_t k, int8_t *q, int8_t *steps) {
  float greatest = 0, f[TFM_GROUP];
  for (int64_t i = 0; i < k; i += TFM_GROUP) {
    const float step = fabsf(greatest_step(x + i));
    if (step > greatest) greatest = step;
  }
  const float scale = greatest / MOST_STEP;
  const int is_empty = scale < WHOLE_LEAST;
  for (int64_t i = 0; i < k; i += TFM_GROUP) {
    const int number = is_empty ? 0 : choose_step(x + i, greatest_step(x + i), scale, f);
    if (steps) steps[i / TFM_GROUP] = (int8_t)number;
    for (int j = 0; j < TFM_GROUP; j++) q[i + j] = (int8_t)(is_empty ? 0 : (int)f[j] * (steps ? 1 : number));
  }
  return is_empty ? 0 : scale;
}

void form_pack_int4(const FormPart *part) {
  int8_t *q = form_numbers_of(part), *steps = q + part->all_k;
  for (int64_t c = 0; c < part->columns; c++) {
    float *row = form_row_of(part, c);
    rotate_weight(row, part->all_k);
    form_put_scale(part, TFM_FORM_INT4, c, int4_round(row, part->all_k, q, steps));
    for (int64_t i = 0; i < part->all_k; i += i % 4 == 3 ? 5 : 1) {
      char *block = part->panel + tfm_int4_block(part->width, part->lane + c, i);
      block[i / TFM_GROUP % TFM_GROUPS] = (char)steps[i / TFM_GROUP];
      block[tfm_int4_in_block(part->width, i)] = (char)(uint8_t)(q[i] + 8 + (q[i + 4] + 8) * 16);
    }
  }
}

void form_round_int4(float *row, int64_t k, void *work) {
  rotate_weight(row, k);
  form_rotate_back(work, int4_round(row, k, work, NULL), k, row);
}
