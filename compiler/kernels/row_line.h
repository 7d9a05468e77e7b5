/* Lines: reductions of row kernels in either direction with one description.
 *
 * A line is what is reduced: a row (reduce 1), whose elements are the lanes of vectors, or a column (reduce 2), 16 of
 * which lie side by side in the lanes. A pass visits all elements of the line (or lines) that the builder stands in;
 * what it yields is a vector either way: 16 times the number of the row, or the numbers of 16 columns. */
#ifndef TFM_KERNELS_ROW_LINE_H
#define TFM_KERNELS_ROW_LINE_H

#include "kernels/reducer.h"
#include "kernels/row.h"

/* Calls `body` once for each line of the block (16 at a time in direction 2). */
void row_lines(RowKernel *k, void (*body)(RowKernel *k));
/* How many elements a line has, as f32 in all lanes. */
LLVMValueRef row_line_length(RowKernel *k);

/* The elements of a pass at the place of the walk, to be reduced (ignored if nothing is reduced). */
typedef Lanes (*RowElement)(RowKernel *k, const Lanes *values);

/* Visits the line; `values` is handed to `element`. `reducer` may be NULL; else `state` gets its values in all lanes. */
void row_pass(RowKernel *k, const Reducer *reducer, RowElement element, const Lanes *values, LLVMValueRef *state);

/* Elements for passes: the expression; in the first pass of several (kept in the result's row unless it is only an
 * operand, to be computed again), and in the passes that follow. */
Lanes row_first_value(RowKernel *k, const Lanes *values);
Lanes row_value_again(RowKernel *k);

#endif
