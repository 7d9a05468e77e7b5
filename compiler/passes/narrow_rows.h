/* NarrowRows: which axis of its operands an axis of an operation's result is made of.
 *
 * In: a primitive operation and an axis of its result. Out: for each operand the axis whose elements alone make the
 * elements there, -1 where the operand is used whole or broadcasts. Nothing is allocated. live_rows.c asks too. */
#ifndef TFM_PASSES_NARROW_ROWS_H
#define TFM_PASSES_NARROW_ROWS_H

#include "passes/grow.h"

/* False: elements along the axis are not made apart from each other, or the axis is one of columns. The caller gives
 * `axes` room for one number for each input. */
bool narrow_axes(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes);

#endif
