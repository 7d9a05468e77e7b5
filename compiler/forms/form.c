/* In: forms. Out: their functions, from the rows of tfm/abi/forms.def. See form.h. */
#include "forms/form.h"

#include <math.h>

#include "tfm/abi/half.h"
#include "forms/rotate.h"
#include "forms/whole_rows.h"

const FormInfo form_table[TFM_N_FORMS] = {
#define FORM(ENUM, name, ...) {form_pack_##name, form_round_##name},
#include "tfm/abi/forms.def"
};

size_t form_work_bytes(int64_t k) { return (size_t)(k + 1) * (sizeof(float) + 2); }

const char *form_refuses(unsigned form, float number) {
  if (form == TFM_FORM_F16) return f16_holds(number) ? NULL : "is too large for f16 (65504)";
  if (tfm_form_has_words(form) && isfinite(number) && fabsf(number) >= 0x1p100f) return "is too large for its scale";
  return !tfm_form_has_scales(form) || isfinite(number) ? NULL : "has no form of 8 bits";
}

float form_mixed_numbers(unsigned form, const float *row, int64_t at, int8_t *numbers) {
  return tfm_form_has_words(form) ? 2 * q4_steps(form, row, at, numbers) : mxfp4_twice(row + at, numbers);
}

float form_whole_row(unsigned form, float *row, int64_t k, int8_t *q) {
  rotate_weight(row, k);
  return tfm_form_of_row(form, k) == TFM_FORM_INT4 ? int4_round(row, k, q, NULL) : whole_round(row, k, q);
}
