/* Items: the elements of some axes, counted as one, row by row.
 *
 * In: the number of an item. Out: its coordinates, or where its part of an operand begins. */
#ifndef TFM_RUNTIME_ITEMS_H
#define TFM_RUNTIME_ITEMS_H

#include "context/context.h"

typedef struct Items {
  int axes;
  int64_t dims[TFM_MAX_RANK];
} Items;

static inline Items items_of(const tfm_context *context, const tfm_size *dims, int axes) {
  Items items = {.axes = axes};
  for (int axis = 0; axis < axes; axis++) items.dims[axis] = value_of(context, dims[axis]);
  return items;
}

static inline int64_t items_count(const Items *items) {
  int64_t n = 1;
  for (int axis = 0; axis < items->axes; axis++) n *= items->dims[axis];
  return n;
}

/* Of item `number`, at[axes]. */
static inline void items_coordinates(const Items *items, int64_t number, int64_t *at) {
  for (int axis = items->axes - 1; axis > 0; axis--) {
    at[axis] = number % items->dims[axis];
    number /= items->dims[axis];
  }
  if (items->axes > 0) at[0] = number; /* no division */
}

/* How far the item at these coordinates is from the first one. */
static inline int64_t items_distance(const Items *items, const int64_t *strides, const int64_t *at) {
  int64_t distance = 0;
  for (int axis = 0; axis < items->axes; axis++) distance += at[axis] * strides[axis];
  return distance;
}

/* The same of item `number`. */
static inline int64_t items_offset(const Items *items, const int64_t *strides, int64_t number) {
  int64_t offset = 0;
  for (int axis = items->axes - 1; axis > 0; axis--) {
    offset += number % items->dims[axis] * strides[axis];
    number /= items->dims[axis];
  }
  return items->axes > 0 ? offset + number * strides[0] : 0;
}

/* The first element of item `number`. */
static inline char *items_address(const tfm_context *context, const Items *items, const Operand *operand,
                                  int64_t number) {
  return element_address(context, operand, items_offset(items, operand->strides, number));
}

#endif
