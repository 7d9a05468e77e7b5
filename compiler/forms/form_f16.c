/* F16: numbers of 16 bits of IEEE 754 (binary16).
 *
 *   panel of 3 columns      k 0   w00 w10 w20        2 bytes each: w[column][k]
 *                           k 1   w01 w11 w21
 *                           ...
 *
 * In: rows of a weight. Out: a panel; the nearest numbers, of two that are equally near the even one, which are the
 * numbers themselves where the weight was rounded before. Refuses nothing: what is too large is refused before
 * (form_refuses). See form.h. */
#include <string.h>

#include "tfm/abi/half.h"
#include "forms/form.h"

void form_pack_f16(const FormPart *part) {
  const float *line = part->data;
  for (int64_t i = 0; i < part->k; i++, line += part->k_stride) {
    char *to = part->panel + ((part->first_k + i) * part->width + part->lane) * 2;
    for (int64_t c = 0; c < part->columns; c++) {
      const uint16_t half = f32_to_f16(line[c * part->row_stride]);
      memcpy(to + 2 * c, &half, sizeof half);
    }
  }
}

void form_round_f16(float *row, int64_t k, void *work) {
  (void)work;
  for (int64_t i = 0; i < k; i++) row[i] = f16_to_f32(f32_to_f16(row[i]));
}
