/* What files of forms share whose rows have a scale: the row of a weight, where its numbers go, where its scale does.
 *
 * In: a part of a panel, a row. Out: the row in work memory; the scale behind the panel's last k; what a row of whole
 * numbers stands for. Refuses nothing. See form.h. */
#include <string.h>

#include "forms/form.h"
#include "forms/rotate.h"

float *form_row_of(const FormPart *part, int64_t c) {
  float *row = part->work;
  for (int64_t i = 0; i < part->all_k; i++) row[i] = part->data[c * part->row_stride + i * part->k_stride];
  return row;
}

int8_t *form_numbers_of(const FormPart *part) { return (int8_t *)((float *)part->work + part->all_k + 1); }

void form_put_scale(const FormPart *part, unsigned form, int64_t c, float scale) {
  char *scales = part->panel + part->width * tfm_form_bytes(form, part->all_k);
  memcpy(scales + (part->lane + c) * (int64_t)sizeof scale, &scale, sizeof scale);
}

void form_rotate_back(const int8_t *q, float scale, int64_t k, float *row) {
  for (int64_t i = 0; i < k; i++) row[i] = q[i] * scale;
  rotate_row(row, k);
}
