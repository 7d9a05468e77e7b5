/* BF16: the upper halves of f32. tfm/abi/form_bf16.h draws a panel, in which two steps of k of a column lie together.
 *
 * In: rows of a weight. Out: a panel; the nearest numbers, of two that are equally near the even one, which are the
 * numbers themselves where the weight was rounded before. Refuses nothing. See form.h. */
#include <string.h>

#include "tfm/abi/half.h"
#include "forms/form.h"
#include "tfm/abi/form_bf16.h"

void form_pack_bf16(const FormPart *part) {
  const float *line = part->data;
  for (int64_t i = 0; i < part->k; i++, line += part->k_stride)
    for (int64_t c = 0; c < part->columns; c++) {
      const uint16_t half = f32_to_bf16(line[c * part->row_stride]);
      memcpy(part->panel + tfm_bf16_at(part->width, part->lane + c, part->first_k + i), &half, sizeof half);
    }
}

void form_round_bf16(float *row, int64_t k, void *work) {
  (void)work;
  for (int64_t i = 0; i < k; i++) row[i] = bf16_to_f32(f32_to_bf16(row[i]));
}
