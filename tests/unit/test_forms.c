/* Forms of numbers (tfm/abi/forms.def): what a row becomes in a panel is what it is rounded to, in every form, column and
 * width; the columns of the table agree with each other. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tfm/abi/half.h"
#include "forms/form.h"
#include "forms/rotate.h"
#include "tfm/abi/form_bf16.h"
#include "tfm/abi/form_int4.h"
#include "tfm/abi/form_int8.h"
#include "tfm/abi/form_mxfp4.h"
#include "tfm/abi/form_mxfp4a8.h"
#include "tfm/abi/form_q4.h"

static float random_float(uint64_t *state) { /* in [-1, 1) */
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (float)(int32_t)(*state >> 32) / 2147483648.0f;
}

enum { MOST_WIDTH = 64, MOST_K = 288, ROWS = 20 };

static float scale_at(const char *panel, unsigned form, int64_t width, int64_t lane, int64_t k) {
  float scale;
  memcpy(&scale, panel + width * tfm_form_bytes(form, k) + lane * 4, sizeof scale);
  return scale;
}

/* Column `lane` of the panel, as f32. */
static void unpack(unsigned form, const char *panel, int64_t width, int64_t lane, int64_t k, float *row) {
  switch ((tfm_form)form) {
    case TFM_FORM_F32:
      for (int64_t i = 0; i < k; i++) memcpy(row + i, panel + (i * width + lane) * 4, 4);
      return;
    case TFM_FORM_BF16: tfm_bf16_unpack(panel, width, lane, k, row); return;
    case TFM_FORM_F16:
      for (int64_t i = 0; i < k; i++) {
        uint16_t half;
        memcpy(&half, panel + (i * width + lane) * 2, 2);
        row[i] = f16_to_f32(half);
      }
      return;
    case TFM_FORM_INT8: tfm_int8_unpack(panel, width, lane, k, scale_at(panel, form, width, lane, k), row); break;
    case TFM_FORM_INT4: tfm_int4_unpack(panel, width, lane, k, scale_at(panel, form, width, lane, k), row); break;
    case TFM_FORM_MXFP4: tfm_mxfp4_unpack(panel, width, lane, k, row); return;
    case TFM_FORM_MXFP4A8: tfm_mxfp4a8_unpack(panel, width, lane, k, row); return;
    case TFM_FORM_Q4G32: case TFM_FORM_Q4G64: case TFM_FORM_Q4G128:
    case TFM_FORM_Q4G32A8: case TFM_FORM_Q4G64A8: case TFM_FORM_Q4G128A8:
      tfm_q4_unpack(form, panel, width, lane, k, row);
      return;
    default: cr_assert(false, "form %u has no way back", form);
  }
  rotate_row(row, k);
}

/* Rows of a matrix, or columns of one, as a weight that is transposed has them. */
static FormPart part_of(const float *data, int64_t k, bool is_transposed) {
  return (FormPart){.data = data, .row_stride = is_transposed ? 1 : k, .k_stride = is_transposed ? ROWS : 1, .all_k = k, .k = k};
}

static void check_form(unsigned form, int64_t width, int64_t k, bool is_transposed) {
  float data[ROWS * MOST_K], row[MOST_K], got[MOST_K];
  char *panel = calloc(1, (size_t)(MOST_WIDTH * tfm_column_bytes(TFM_FORM_F32, MOST_K)));
  void *work = malloc(form_work_bytes(k));
  uint64_t seed = (uint64_t)(form * 1000 + (unsigned)width * 10 + (unsigned)k);
  for (int64_t i = 0; i < ROWS * k; i++) data[i] = random_float(&seed) * (i % 17 == 3 ? 9.0f : 1.0f);
  FormPart part = part_of(data, k, is_transposed);
  part.panel = panel, part.width = width, part.work = work;
  const int64_t columns = width < ROWS ? width : ROWS, first = columns / 3;
  for (int64_t at = 0; at < columns; at += part.columns) { /* a panel may be made of several pieces */
    part.lane = at, part.columns = at || !first ? columns - at : first;
    part.data = data + at * part.row_stride;
    form_table[form].pack(&part);
  }
  for (int64_t c = 0; c < columns; c++) {
    for (int64_t i = 0; i < k; i++) row[i] = data[c * part.row_stride + i * part.k_stride];
    form_table[form].round(row, k, work);
    unpack(form, panel, width, c, k, got);
    cr_assert(!memcmp(row, got, (size_t)k * sizeof *row), "%s, panel of %d, column %d of %d numbers%s",
              tfm_form_name((uint8_t)form), (int)width, (int)c, (int)k, is_transposed ? ", transposed" : "");
  }
  free(panel), free(work);
}

Test(forms, a_column_of_a_panel_is_the_row_as_it_was_rounded) {
  static const int64_t widths[] = {1, 8, 48, 64}, lengths[] = {1, 7, 32, 96, 128, 160, 256, 288};
  for (unsigned form = 0; form < TFM_N_FORMS; form++)
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
      for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
        for (int transposed = 0; transposed < 2 && tfm_form_of_row(form, lengths[j]) == form; transposed++)
          check_form(form, widths[i], lengths[j], transposed);
}

/* What is rounded once stays: a weight that has the form already is not changed by it. */
Test(forms, numbers_that_stand_for_themselves_stay_as_they_are) {
  uint64_t seed = 5;
  for (unsigned form = 0; form < TFM_N_FORMS; form++) {
    float row[64], again[64];
    for (int i = 0; i < 64; i++) row[i] = random_float(&seed) * 3;
    if (tfm_form_has_scales(form)) continue;
    form_table[form].round(row, 64, NULL);
    memcpy(again, row, sizeof row);
    form_table[form].round(again, 64, NULL);
    cr_expect(!memcmp(again, row, sizeof row), "%s", tfm_form_name((uint8_t)form));
  }
}

/* A scale as a file has it, in f16 or bf16; small ones have fewer bits. */
static float scale_of_file(uint64_t *seed, bool is_bf16, int i) {
  const float scale = ldexpf(1 + fabsf(random_float(seed)), i % 5 == 4 ? (is_bf16 ? -130 : -22) : -(i % 11));
  const float of_type = is_bf16 ? bf16_to_f32(f32_to_bf16(scale)) : f16_to_f32(f32_to_f16(scale));
  return i % 7 == 6 ? -of_type : of_type;
}

/* Numbers of a file in groups of 4 bits stay what they are to the bit, whatever their scale, zero point and type: those of
 * f16 and of bf16 are rounded, those of Q4_0 are not. */
Test(forms, numbers_of_a_file_in_4_bits_stay_as_they_are) {
  static const tfm_form forms[] = {TFM_FORM_Q4G32, TFM_FORM_Q4G64, TFM_FORM_Q4G128};
  uint64_t seed = 11;
  for (int i = 0; i < 6000; i++) {
    const tfm_form form = forms[i % 3];
    const int n = tfm_form_row_of(form)->group, type = i / 3 % 3, zero = i / 9 % 17, most = i % 13 == 0 ? i / 13 % 3 : 16;
    const float scale = scale_of_file(&seed, type == 1, i / 9);
    float row[128], again[128];
    for (int j = 0; j < n; j++) {
      int q = (int)((random_float(&seed) + 1) * 8);
      if (abs(q - zero) > most) q = zero < 15 ? zero : 15; /* a few steps alone are harder to tell */
      const float exact = (float)(q - zero) * scale;
      row[j] = type == 0 ? f16_to_f32(f32_to_f16(exact)) : type == 1 ? bf16_to_f32(f32_to_bf16(exact)) : exact;
    }
    memcpy(again, row, sizeof row);
    form_table[form].round(again, n, NULL);
    for (int j = 0; j < n; j++) cr_assert_eq(again[j], row[j], "type %d zero %d scale %a: %a, not %a", type, zero,
                                             (double)scale, (double)again[j], (double)row[j]);
  }
}

/* Others become multiples of an eighth of the greatest, of as many bits as f16 has. */
Test(forms, numbers_that_are_in_no_group_are_rounded) {
  float row[32];
  for (int i = 0; i < 32; i++) row[i] = (float)(i - 13) / 1.7f;
  row[5] = 12.3f;
  form_table[TFM_FORM_Q4G32].round(row, 32, NULL);
  const float scale = f16_to_f32(f32_to_f16(12.3f / 8));
  for (int i = 0; i < 32; i++) {
    const float x = i == 5 ? 12.3f : (float)(i - 13) / 1.7f, steps = rintf(x / scale);
    cr_expect_eq(row[i], f16_to_f32(f32_to_f16((steps < -7 ? -7 : steps) * scale)), "%d", i);
  }
}

/* Four bytes in 4 for f32 and so on: the sizes that the formats had before there was a table of them. */
Test(forms, sizes_of_columns) {
  cr_expect_eq(tfm_form_bytes(TFM_FORM_F32, 7), 28);
  cr_expect_eq(tfm_form_bytes(TFM_FORM_BF16, 7), 16);
  cr_expect_eq(tfm_form_bytes(TFM_FORM_F16, 7), 14);
  cr_expect_eq(tfm_form_bytes(TFM_FORM_INT8, 7), 8);
  cr_expect_eq(tfm_form_bytes(TFM_FORM_INT4, 32), 16 + 4);
  cr_expect_eq(tfm_form_bytes(TFM_FORM_INT4, 160), 80 + 8);
  cr_expect_eq(tfm_form_bytes(TFM_FORM_MXFP4, 160), 80 + 8);
  cr_expect_eq(tfm_form_bytes(TFM_FORM_Q4G32, 160), 80 + 20);
  cr_expect_eq(tfm_form_bytes(TFM_FORM_Q4G128A8, 256), 128 + 8);
  cr_expect_eq(tfm_column_bytes(TFM_FORM_INT8, 8), 12);
  cr_expect_eq(tfm_column_bytes(TFM_FORM_BF16, 8), 16);
}

Test(forms, what_a_form_refuses) {
  cr_expect_null(form_refuses(TFM_FORM_F32, INFINITY));
  cr_expect_null(form_refuses(TFM_FORM_BF16, INFINITY));
  cr_expect_null(form_refuses(TFM_FORM_F16, 65504));
  cr_expect_not_null(form_refuses(TFM_FORM_F16, 70000));
  for (unsigned form = 0; form < TFM_N_FORMS; form++)
    cr_expect_eq(form_refuses(form, NAN) != NULL, tfm_form_has_scales(form) != 0, "%s", tfm_form_name((uint8_t)form));
}
