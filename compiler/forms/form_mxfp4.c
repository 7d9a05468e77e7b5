/* MXFP4: groups of 32 numbers as numbers of 4 bits times a power of two. tfm/abi/form_mxfp4.h draws a panel.
 *
 * In: rows that are finite, of whole groups. Out: a panel, or what it stands for. The power is the one of the greatest
 * magnitude less that of 6, the greatest number of 4 bits, as the standard proposes, and at least 2^-127; each number
 * is the nearest, of two that are equally near the one whose mantissa is even, and 6 where it is greater. So a group
 * that is in MXFP4 already is what it was, whatever its power is. Refuses nothing. See form.h. */
#include "tfm/abi/form_mxfp4.h"

#include <string.h>

#include "forms/form.h"

enum { MOST_EXPONENT = 2 }; /* of 6 */

int mxfp4_power(const float *x) {
  float greatest = 0;
  for (int i = 0; i < TFM_GROUP; i++)
    if (fabsf(x[i]) > greatest) greatest = fabsf(x[i]);
  if (greatest == 0) return 0;
  const int power = ilogbf(greatest) - MOST_EXPONENT + TFM_MXFP4_BIAS;
  return power < 0 ? 0 : power;
}

uint32_t mxfp4_code(float x, int power) {
  const float a = ldexpf(fabsf(x), TFM_MXFP4_BIAS - power);
  const int magnitude = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5);
  return (uint32_t)(magnitude | (signbit(x) ? 8 : 0));
}

void form_pack_mxfp4(const FormPart *part) {
  for (int64_t c = 0; c < part->columns; c++) {
    const float *row = form_row_of(part, c);
    for (int64_t i = 0; i < part->all_k; i += TFM_GROUP) {
      char *block = part->panel + tfm_mxfp4_block(part->width, part->lane + c, i);
      const int power = mxfp4_power(row + i), group = (int)(i / TFM_GROUP % TFM_GROUPS);
      if (group == 0) memset(block, 0, TFM_GROUPS);
      block[group] = (char)(uint8_t)power;
      for (int64_t j = i; j < i + TFM_GROUP; j += 2) {
        const uint32_t pair = mxfp4_code(row[j], power) | mxfp4_code(row[j + 1], power) << 4;
        block[tfm_mxfp4_in_block(part->width, j)] = (char)(uint8_t)pair;
      }
    }
  }
}

void form_round_mxfp4(float *row, int64_t k, void *work) {
  (void)work;
  for (int64_t i = 0; i + TFM_GROUP <= k; i += TFM_GROUP) {
    const int power = mxfp4_power(row + i);
    for (int j = 0; j < TFM_GROUP; j++)
      row[i + j] = ldexpf(tfm_mxfp4_number((int)mxfp4_code(row[i + j], power)), power - TFM_MXFP4_BIAS);
  }
}
