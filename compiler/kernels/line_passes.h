/* Line passes: reductions over the lines of a row kernel, in one pass or several.
 *
 * In: the lines of a row kernel and what each pass computes. Out: loops over them as vector code. Sums of more than
 * TFM_ROW_CHAIN elements are chains of so many, counted from the first of the line, whose results are added in f64; so
 * the bits depend neither on the direction of the reduction nor on the target (docs/decisions/0002-bits.md). Refuses
 * nothing; stacks that a pass needs are in the frame of the function. */
#ifndef TFM_KERNELS_LINE_PASSES_H
#define TFM_KERNELS_LINE_PASSES_H

#include "kernels/reducer.h"
#include "kernels/row.h"

/* A line is what is reduced: a row (reduce 1), whose elements are the lanes of vectors, or a column (reduce 2), whose
 * neighbours lie side by side in the lanes. A reduction is a few passes over the elements of a line; each yields a
 * number for the passes that follow, or stores results. */

/* The elements of a pass at the place of the walk, to be reduced (ignored if nothing is reduced); `values` are the
 * numbers of the passes before. */
typedef Lanes (*RowElement)(RowKernel *k, const Lanes *values);

enum { LINE_NUMBERS = 5, LINE_RESULT = LINE_NUMBERS };

typedef struct LinePass {
  const Reducer *reducer; /* NULL: the element has stored the results; the last pass */
  RowElement element;
  unsigned yields; /* which of `values`; LINE_RESULT: the result of the line, and the last pass */
  LLVMValueRef (*number)(RowKernel *k, const LLVMValueRef *state); /* from what was reduced; a vector, as the state */
  /* A second one, from what was reduced and the first; NULL: there is none. */
  LLVMValueRef (*second)(RowKernel *k, const LLVMValueRef *state, LLVMValueRef first);
  unsigned yields_second;
} LinePass;

/* How many of `values` the passes need at most. */
unsigned line_numbers(const LinePass *passes);

/* Whether the lines of the kernel are columns. */
static inline bool line_is_column(const RowKernel *k) { return k->spec->reduce == 2; }
/* All passes over all lines of the block, where these are rows, and where they are columns (column_passes.c). */
void row_lines(RowKernel *k, const LinePass *passes);
void column_lines(RowKernel *k, const LinePass *passes);
/* One pass over the row (reduce 1) that the builder stands in; its number goes to `values`, in all lanes. */
void row_pass(RowKernel *k, const LinePass *pass, Lanes *values);
/* One pass, of a reducer without chains, over that row and the one of `other`, a copy of the frame, side by side. The
 * bits are those of each row alone. */
void row_pass_pair(RowKernel *k, RowKernel *other, const LinePass *pass, Lanes *values, Lanes *other_values);
/* How many elements a line has, as f32 in all lanes. */
LLVMValueRef row_line_length(RowKernel *k);
/* Whether those are more than one chain, as i1. */
LLVMValueRef row_line_is_long(RowKernel *k);

/* Elements of reductions that need several passes. The first one computes the expression and leaves its value in the
 * result's row, unless it is a mere operand, which is read again; the passes that follow use row_value_again. */
Lanes row_first_value(RowKernel *k, const Lanes *values);
Lanes row_value_again(RowKernel *k);

// ---- for both directions ----

/* Whether the expression is a mere operand, which is read again in later passes instead of being kept. */
bool line_is_operand(const RowKernel *k);
bool line_is_last(const LinePass *pass);
/* Whether the reducer sums chains of a line. */
bool line_has_chains(const RowKernel *k, const Reducer *reducer);
/* A total in f64 with the sum of one more chain. */
LLVMValueRef line_add_chain(Emitter *e, LLVMValueRef total, LLVMValueRef chain);

#endif
