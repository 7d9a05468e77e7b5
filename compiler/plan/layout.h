/* Layout: where the elements of a value lie: a base, an offset and a stride per axis, all polynomials of the run-time
 * sizes.
 *
 * In: views, and what graph views do to them (slice, permute, reshape). Out: views of the same memory. Sizes are
 * interned, so equal polynomials are equal pointers, and the functions here compare pointers. Two polynomials that
 * differ but are equal for every value that a check allows count as different: then a copy is made, which is slower
 * but right. Refused (false): what strides cannot express; the planner then makes a copy. */
#ifndef TFM_PLAN_LAYOUT_H
#define TFM_PLAN_LAYOUT_H

#include "graph/graph.h"
#include "tfm/abi/program.h"

/* Arithmetic on sizes that remembers an overflow instead of returning NULL, so that callers check once, at the end. */
typedef struct SizeMath {
  SizeTable *table;
  const Size *zero, *one;
  bool overflowed;
} SizeMath;

SizeMath size_math(SizeTable *table);
const Size *math_const(SizeMath *math, int64_t value);
const Size *math_add(SizeMath *math, const Size *a, const Size *b);
const Size *math_mul(SizeMath *math, const Size *a, const Size *b);
const Size *math_product(SizeMath *math, uint32_t n, const Size *const *sizes);

typedef struct View {
  uint8_t space; /* tfm_space; not TFM_SPACE_SIZE */
  DType dtype;
  uint8_t form;   /* tfm_form of a table's elements in memory; else 0, as dtype says */
  uint32_t index; /* of the input, output, weight or buffer */
  uint32_t rank;
  const Size *dims[MAX_RANK];
  const Size *offset;
  const Size *strides[MAX_RANK]; /* elements; 0 along axes of 1 */
} View;

/* Row-major at offset 0. `row` is the distance between rows of the last axis; NULL: no gap. `elements` (may be NULL)
 * gets how many elements the memory has. */
View view_rows(SizeMath *math, DType dtype, uint32_t rank, const Size *const *dims, const Size *row,
               const Size **elements);
View view_slice(SizeMath *math, const View *view, const Size *const *starts, const Size *const *dims);
View view_permute(const View *view, const uint8_t *axes);
View view_unpermute(const View *view, const uint8_t *axes); /* the view whose view_permute is this one */
/* False if the elements in row-major order have no strides in the new shape. */
bool view_reshape(SizeMath *math, const View *view, uint32_t rank, const Size *const *dims, View *result);
/* The view with axis `axis` replaced by an axis of 1. */
View view_drop(SizeMath *math, const View *view, uint32_t axis);

/* Takes all axes but the last as one: how many rows there are and how far apart. False if they have no common
 * stride. */
bool view_collapse(SizeMath *math, const View *view, const Size **rows, const Size **stride);
/* Whether elements along the last axis are neighbours (or there is only one). */
bool view_has_contiguous_columns(const View *view);
bool view_equal(const View *a, const View *b);

#endif
