/* F32: numbers as they are.
 *
 *   panel of 3 columns      k 0   w00 w10 w20        4 bytes each: w[column][k]
 *                           k 1   w01 w11 w21
 *                           ...
 *
 * In: rows of a weight, or of one that is transposed. Out: a panel; most weights of most models take this way, so both
 * orders of the rows go along lines of the cache. Refuses nothing. See form.h. */
#include "forms/form.h"

/* A row becomes a column of a panel, so the writes of a row are `width` floats apart. Rows are taken in parts of 16
 * numbers, one cache line of reading; the 16 lines of the panel that they are written to stay in L1 until the part of
 * the last row has filled them. */
enum { ROW_PART = 16 };

static void fill_by_rows(const FormPart *part, float *to) {
  for (int64_t begin = 0; begin < part->k; begin += ROW_PART) {
    const int64_t end = begin + ROW_PART < part->k ? begin + ROW_PART : part->k;
    for (int64_t c = 0; c < part->columns; c++) {
      const float *from = part->data + c * part->row_stride;
      float *column = to + c;
      for (int64_t i = begin; i < end; i++) column[i * part->width] = from[i * part->k_stride];
    }
  }
}

/* Of a transposed matrix, whole lines of the panel are neighbours in the file too. */
static void fill_by_lines(const FormPart *part, float *to) {
  const float *from = part->data;
  for (int64_t i = 0; i < part->k; i++, from += part->k_stride, to += part->width)
    for (int64_t c = 0; c < part->columns; c++) to[c] = from[c * part->row_stride];
}

void form_pack_f32(const FormPart *part) {
  float *to = (float *)(void *)part->panel + part->first_k * part->width + part->lane;
  (part->k_stride > part->row_stride ? fill_by_lines : fill_by_rows)(part, to);
}

void form_round_f32(float *row, int64_t k, void *work) { (void)row, (void)k, (void)work; }
