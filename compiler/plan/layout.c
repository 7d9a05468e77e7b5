/* In: views and shapes, as polynomials. Out: views of the same memory, or false. See layout.h. */
#include "plan/layout.h"

#include "base/check.h"

// ---- sizes ----

/* Strides and dims of 0 and 1 are compared all the time, so they are interned once. */
SizeMath size_math(SizeTable *table) {
  return (SizeMath){.table = table, .zero = size_const(table, 0), .one = size_const(table, 1)};
}

/* After an overflow arithmetic goes on with 0: the plan is refused at the end, whatever was computed meanwhile. */
static const Size *checked(SizeMath *math, const Size *size) {
  if (size) return size;
  math->overflowed = true;
  return math->zero;
}

const Size *math_const(SizeMath *math, int64_t value) { return size_const(math->table, value); }
const Size *math_add(SizeMath *math, const Size *a, const Size *b) {
  return checked(math, size_add(math->table, a, b));
}
const Size *math_mul(SizeMath *math, const Size *a, const Size *b) {
  return checked(math, size_mul(math->table, a, b));
}

const Size *math_product(SizeMath *math, uint32_t n, const Size *const *sizes) {
  const Size *product = math->one;
  for (uint32_t i = 0; i < n; i++) product = math_mul(math, product, sizes[i]);
  return product;
}

// ---- views ----

/* An axis of 1 has stride 0, so that two layouts which differ only there are equal. */
View view_rows(SizeMath *math, DType dtype, uint32_t rank, const Size *const *dims, const Size *row,
               const Size **elements) {
  View view = {.space = TFM_SPACE_BUFFER, .dtype = dtype, .rank = rank, .offset = math->zero};
  const Size *stride = math->one;
  for (uint32_t i = rank; i-- > 0;) {
    view.dims[i] = dims[i];
    view.strides[i] = size_equals(dims[i], 1) ? math->zero : stride;
    stride = row && i == rank - 1 ? row : math_mul(math, stride, dims[i]);
  }
  if (elements) *elements = stride;
  return view;
}

View view_slice(SizeMath *math, const View *view, const Size *const *starts, const Size *const *dims) {
  View result = *view;
  for (uint32_t i = 0; i < view->rank; i++) {
    result.offset = math_add(math, result.offset, math_mul(math, starts[i], view->strides[i]));
    result.dims[i] = dims[i];
    if (size_equals(dims[i], 1)) result.strides[i] = math->zero;
  }
  return result;
}

View view_permute(const View *view, const uint8_t *axes) {
  View result = *view;
  for (uint32_t i = 0; i < view->rank; i++) {
    result.dims[i] = view->dims[axes[i]];
    result.strides[i] = view->strides[axes[i]];
  }
  return result;
}

/* A producer uses it: it wants the layout whose permutation is the one that its user asked for. */
View view_unpermute(const View *view, const uint8_t *axes) {
  View result = *view;
  for (uint32_t i = 0; i < view->rank; i++) {
    result.dims[axes[i]] = view->dims[i];
    result.strides[axes[i]] = view->strides[i];
  }
  return result;
}

View view_drop(SizeMath *math, const View *view, uint32_t axis) {
  View result = *view;
  result.dims[axis] = math->one;
  result.strides[axis] = math->zero;
  return result;
}

// ---- reshape ----

/* Returns the end of the axes [0, n) without the axes of 1 at their end; those take no part in a reshape. */
static uint32_t skip_ones(const Size *const *dims, uint32_t n) {
  while (n > 0 && size_equals(dims[n - 1], 1)) n--;
  return n;
}

/* Takes the axes [begin, end) of `view` as one: sets `stride` to that of its last axis, if the strides of all others
 * follow from it. Axes of 1 have no say. */
static bool merged_stride(SizeMath *math, const View *view, uint32_t begin, uint32_t end, const Size **stride) {
  *stride = NULL;
  const Size *next = NULL;
  for (uint32_t i = end; i-- > begin;) {
    if (size_equals(view->dims[i], 1)) continue;
    if (!*stride) *stride = view->strides[i];
    else if (view->strides[i] != next) return false;
    next = math_mul(math, view->strides[i], view->dims[i]);
  }
  return *stride != NULL;
}

/* Axes of the view and of its new shape. */
typedef struct Axes {
  uint32_t old, now;
} Axes;

/* Finds the shortest pieces of the old and the new axes, counted from the end, whose sizes have the same product:
 * [begin->old, end.old) and [begin->now, end.now). A reshape is a view exactly if the old axes of each such piece have
 * one stride in common, because the order of elements within a piece is then arithmetic. */
static bool match_piece(SizeMath *math, const View *view, const Size *const *dims, Axes end, Axes *begin) {
  const Size *olds[MAX_RANK];
  const Size *product = math->one;
  for (uint32_t i = end.old; i-- > 0;) olds[i] = product = math_mul(math, product, view->dims[i]);
  product = math->one;
  for (uint32_t j = end.now; j-- > 0;) {
    product = math_mul(math, product, dims[j]);
    if (size_equals(dims[j], 1)) continue;
    for (uint32_t i = end.old; i-- > 0;) {
      if (olds[i] != product) continue;
      *begin = (Axes){i, j};
      return true;
    }
  }
  return false;
}

bool view_reshape(SizeMath *math, const View *view, uint32_t rank, const Size *const *dims, View *result) {
  View reshaped = *view;
  reshaped.rank = rank;
  for (uint32_t i = 0; i < rank; i++) {
    reshaped.dims[i] = dims[i];
    reshaped.strides[i] = math->zero;
    if (size_equals(dims[i], 0)) { /* no elements: any strides do */
      View empty = view_rows(math, view->dtype, rank, dims, NULL, NULL);
      empty.space = view->space;
      empty.index = view->index;
      *result = empty;
      return true;
    }
  }
  Axes end = {skip_ones(view->dims, view->rank), skip_ones(dims, rank)};
  while (end.old > 0 && end.now > 0) {
    Axes begin;
    const Size *stride;
    if (!match_piece(math, view, dims, end, &begin)) return false;
    if (!merged_stride(math, view, begin.old, end.old, &stride)) return false;
    for (uint32_t j = end.now; j-- > begin.now;) {
      if (size_equals(dims[j], 1)) continue;
      reshaped.strides[j] = stride;
      stride = math_mul(math, stride, dims[j]);
    }
    end = (Axes){skip_ones(view->dims, begin.old), skip_ones(dims, begin.now)};
  }
  if (end.old || end.now) return false;
  *result = reshaped;
  return true;
}

// ---- questions ----

bool view_collapse(SizeMath *math, const View *view, const Size **rows, const Size **stride) {
  CHECK(view->rank > 0, "a value of rank 0 has no rows");
  uint32_t leading = view->rank - 1;
  *rows = math_product(math, leading, view->dims);
  if (size_equals(*rows, 1)) {
    *stride = math->zero;
    return true;
  }
  return merged_stride(math, view, 0, leading, stride);
}

/* Stride 1 along the last axis, which vectors need; a single column is contiguous whatever its stride. */
bool view_has_contiguous_columns(const View *view) {
  return view->rank == 0 || size_equals(view->dims[view->rank - 1], 1) ||
         size_equals(view->strides[view->rank - 1], 1);
}

/* Whether both name the same elements of the same memory: then a copy from one to the other is none. */
bool view_equal(const View *a, const View *b) {
  if (a->space != b->space || a->index != b->index || a->dtype != b->dtype || a->rank != b->rank ||
      a->offset != b->offset)
    return false;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i] || a->strides[i] != b->strides[i]) return false;
  return true;
}
