/* Form: what a weight becomes in each form of numbers (tfm/abi/forms.def): rows of f32 as panels, or as the f32 that
 * these stand for.
 *
 * In: rows of a weight. Out: the same in the form, whose panel is drawn in tfm/abi/form_NAME.h or here in form_NAME.c.
 * Refuses nothing: whether a form holds a number is asked before. A new form is a row of forms.def and a file. */
#ifndef TFM_FORMS_FORM_H
#define TFM_FORMS_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tfm/abi/kernels.h"

/* A part of a panel, and the rows that it is made of: row c of these becomes column lane + c. */
typedef struct FormPart {
  char *panel;
  int64_t width, all_k;   /* of the panel: its columns, and the steps of k of each */
  int64_t lane, columns;  /* which columns are filled */
  int64_t first_k, k;     /* which steps of them: all, where rows have scales */
  const float *data;      /* number [c][i] is number c row_stride + i k_stride */
  int64_t row_stride, k_stride;
  void *work; /* form_work_bytes(all_k) */
} FormPart;

typedef struct FormInfo {
  void (*pack)(const FormPart *part);
  /* A row of k numbers, in place: what it is once it was packed. */
  void (*round)(float *row, int64_t k, void *work);
} FormInfo;

extern const FormInfo form_table[TFM_N_FORMS];

#define FORM(ENUM, name, ...)                    \
  void form_pack_##name(const FormPart *part);   \
  void form_round_##name(float *row, int64_t k, void *work);
#include "tfm/abi/forms.def"

/* Room for a row of k numbers, which pack and round use while they work. */
size_t form_work_bytes(int64_t k);

/* Whether a number can be kept in the form; if not, why, as the end of a sentence. NULL: it can. */
const char *form_refuses(unsigned form, float number);

/* The row of a weight that products of whole numbers take, of INT8, or of INT4 if 32 divides k: it is rotated in place.
 * q: its numbers, those of INT4 multiplied by those of their groups. Returns the scale. */
float form_whole_row(unsigned form, float *row, int64_t k, int8_t *q);

/* A group of x as a product of a mixed form has it: its whole numbers; returns the scale of these, halved, as numbers
 * of the weight, or what they are multiplied with, are doubled. */
float form_mixed_group(const float *x, int8_t *q);
/* What that is multiplied with, of a row of the weight: TFM_GROUP whole numbers from step `at` on; returns their
 * factor. */
float form_mixed_numbers(unsigned form, const float *row, int64_t at, int8_t *numbers);

/* For the files of forms: row c of the part, in its work, and behind it room for two bytes for each of its numbers. */
float *form_row_of(const FormPart *part, int64_t c);
int8_t *form_numbers_of(const FormPart *part);
/* What a row of whole numbers and its scale stand for, rotated back. */
void form_rotate_back(const int8_t *q, float scale, int64_t k, float *row);
void form_put_scale(const FormPart *part, unsigned form, int64_t c, float scale);

/* A rotated row in groups of 32. q: numbers of 4 bits, and `steps` those of the groups; with NULL there, their
 * products. Returns the scale. */
float int4_round(const float *x, int64_t k, int8_t *q, int8_t *steps);

/* Of MXFP4, the byte of the power of a group of x, and a number of 4 bits of such a group. */
int mxfp4_power(const float *x);
uint32_t mxfp4_code(float x, int power);
/* Of MXFP4A8 a group that begins at w: twice its numbers; returns its power. */
float mxfp4_twice(const float *w, int8_t *twice);

/* Of Q4..A8 what TFM_GROUP numbers of the row from step `at` on are multiples of a scale; returns the scale. */
float q4_steps(unsigned form, const float *row, int64_t at, int8_t *steps);

#endif
