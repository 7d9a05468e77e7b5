/* Lines: what steps along the last axis (step_along.c) do to one line of a tensor, or to some that lie side by side. */
#ifndef TFM_RUNTIME_LINES_H
#define TFM_RUNTIME_LINES_H

#include <string.h>

#include "steps/walker.h"

/* Lines that lie side by side are walked together, so that what lies between their elements is read once. */
enum { BESIDE = 16 };

typedef struct Line { /* addresses of the first elements, and bytes between elements */
  const char *x, *y;
  char *c;
  int64_t x_stride, y_stride, c_stride;
  int64_t n, count; /* elements of x, of c */
  int64_t bytes;    /* of an element of c */
} Line;

static inline float f32_at(const char *address) {
  float number;
  memcpy(&number, address, sizeof number);
  return number;
}

static inline int32_t i32_at(const char *address) {
  int32_t number;
  memcpy(&number, address, sizeof number);
  return number;
}

// ---- step_scan.c: running sums of one line, or of BESIDE of them; of a product with a triangle of ones ----

void scan_f32(const Line *line, bool is_product, int width);
void scan_i32(const Line *line);
void power_of_line(const Line *line);
void scan_to_one(const Line *line, tfm_along what);

// ---- step_select.c ----

void select_greatest(const Line *line, char *scratch); /* the places of the greatest elements, as topk */
void select_places(const Line *line);                  /* of the true elements, then of the others */
void select_before(const Line *line);                  /* how many true elements stand before each */
void select_taken(const Line *line);                   /* the elements that ids pick */

// ---- step_lookup.c ----

void look_up_row(const Line *line, const tfm_along_step *along); /* a row of a packed table */
/* Rows that are added to rows of c; all lines of the step. */
void scatter_rows(const Walker *walker, const tfm_along_step *along, const Line *line);

#endif
