/* INT8: rows of a weight as whole numbers from -127 to 127 times a scale, after they were rotated.
 * tfm/abi/form_int8.h draws a panel.
 *
 * In: rows that are finite. Out: a panel. Rows of any length have this form, those of form INT4 too whose length is not
 * one of whole groups. Refuses nothing. See form.h. */
#include "forms/form.h"
#include "forms/rotate.h"
#include "forms/whole_rows.h"
#include "tfm/abi/form_int8.h"

void form_pack_int8(const FormPart *part) {
  const int64_t k = part->all_k;
  int8_t *q = form_numbers_of(part);
  for (int64_t c = 0; c < part->columns; c++) {
    float *row = form_row_of(part, c);
    rotate_weight(row, k);
    form_put_scale(part, TFM_FORM_INT8, c, whole_round(row, k, q));
    for (int64_t i = 0; i < (k + 3) / 4 * 4; i++)
      part->panel[tfm_int8_at(part->width, part->lane + c, i)] = (char)(uint8_t)((i < k ? q[i] : 0) + 128);
  }
}

void form_round_int8(float *row, int64_t k, void *work) {
  rotate_weight(row, k);
  form_rotate_back(work, whole_round(row, k, work), k, row);
}
