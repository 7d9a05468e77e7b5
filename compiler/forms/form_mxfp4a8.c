/* MXFP4A8: the numbers of MXFP4, for products whose rows are rounded to 8 bits in groups. tfm/abi/form_mxfp4a8.h draws
 * a panel and defines the product.
 *
 * In: rows that are finite, of whole groups; groups of x. Out: a panel, or what it stands for, which is what MXFP4
 * stands for; whole numbers of a group of x and their scale. Refuses nothing. See form.h. */
#include "tfm/abi/form_mxfp4a8.h"

#include <string.h>

#include "forms/form.h"
#include "forms/whole_rows.h"

void form_pack_mxfp4a8(const FormPart *part) {
  for (int64_t c = 0; c < part->columns; c++) {
    const float *row = form_row_of(part, c);
    for (int64_t i = 0; i < part->all_k; i += TFM_GROUP) {
      char *block = part->panel + tfm_int4_block(part->width, part->lane + c, i);
      const int power = mxfp4_power(row + i), group = (int)(i / TFM_GROUP % TFM_GROUPS);
      if (group == 0) memset(block, 0, TFM_GROUPS);
      block[group] = (char)(uint8_t)power;
      for (int64_t j = i; j < i + TFM_GROUP; j += j % 4 == 3 ? 5 : 1) {
        const uint32_t pair = mxfp4_code(row[j], power) | mxfp4_code(row[j + 4], power) << 4;
        block[tfm_int4_in_block(part->width, j)] = (char)(uint8_t)pair;
      }
    }
  }
}

float mxfp4_twice(const float *w, int8_t *twice) {
  const int power = mxfp4_power(w);
  for (int i = 0; i < TFM_GROUP; i++) twice[i] = (int8_t)(2 * tfm_mxfp4_number((int)mxfp4_code(w[i], power)));
  return ldexpf(1, power - TFM_MXFP4_BIAS);
}

void form_round_mxfp4a8(float *row, int64_t k, void *work) { form_round_mxfp4(row, k, work); }

float form_mixed_group(const float *x, int8_t *q) {
  float scale;
  const float factor = whole_factor(x, TFM_GROUP, WHOLE_MOST, &scale);
  for (int i = 0; i < TFM_GROUP; i++) q[i] = (int8_t)whole_nearest(x[i], factor);
  return scale / (TFM_MXFP4A8_TOP / WHOLE_MOST);
}
