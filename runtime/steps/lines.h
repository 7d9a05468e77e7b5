/* Lines: what steps along the last axis do to one line of a tensor, or to some that lie side by side. */
#ifndef TFM_RUNTIME_LINES_H
#define TFM_RUNTIME_LINES_H

#include <string.h>

#include "steps/items.h"
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

/* What becomes of a line, or of `width` that lie side by side. */
typedef void LineWork(const Line *line, const tfm_along_step *along, char *scratch, int width);

/* Threads share the lines of the step. */
void along_lines(Walker *walker, const tfm_step *step, LineWork *work);

/* The strides and lengths of the step's lines; the first elements of the one where item `number` is. */
Line line_of(const tfm_context *context, const tfm_step *step);
void line_place(const Walker *walker, const tfm_step *step, const Items *items, int64_t number, Line *line);

#endif
