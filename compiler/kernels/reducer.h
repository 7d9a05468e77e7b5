/* Reducer: how numbers are combined to one, in 16 virtual lanes and one fixed tree, and passes over lines with it.
 *
 * In: states, and the lines of a row kernel. Out: the steps of a reduction as vector code. Element i belongs to lane i
 * mod 16; a lane takes its elements in ascending order; the lanes are combined as l[i] with l[i + 8], then + 4, + 2, +
 * 1. Sums do so for each TFM_ROW_CHAIN elements of a line, counted from its first, and the results are added in f64.
 * So the bits depend neither on the direction of the reduction nor on the length of the target's vectors
 * (docs/decisions/0002-bits.md), and 16 lanes are what the longest vector has. Refuses nothing; stacks that a pass
 * needs are in the frame of the function. */
#ifndef TFM_KERNELS_REDUCER_H
#define TFM_KERNELS_REDUCER_H

#include "codegen/vector.h"
#include "kernels/row.h"

enum { REDUCER_MAX_STATE = 2 };

/* A state is one or two values: vectors of any length, or scalars. */
typedef struct Reducer {
  unsigned n_state;
  bool is_sum;     /* all values of the state are sums of f32, which begin as 0; else the second value is an i32 */
  double identity; /* of the first value; a second one that is no sum begins as the largest i32 */
  /* `state` takes in x, whose numbers in the line are `index` (i32). */
  void (*step)(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index);
  void (*combine)(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other);
  /* The step where x is no NaN, which takes less; NULL: there is no such step. */
  void (*number_step)(Emitter *e, LLVMValueRef *state, LLVMValueRef x);
  bool in_any_order; /* its result does not depend on the order of the steps */
} Reducer;

extern const Reducer reducer_sum;     /* x + y */
extern const Reducer reducer_squares; /* x^2 + y^2, each square within an FMA */
extern const Reducer reducer_moments; /* squares, and beside them x + y */
extern const Reducer reducer_max, reducer_min; /* NaN if any is */
extern const Reducer reducer_number_max; /* NaN is ignored */
extern const Reducer reducer_argmax;  /* value, index: the lowest of equal ones; NaN counts as greatest */

LLVMTypeRef reducer_type(Emitter *e, const Reducer *reducer, unsigned i); /* of value i of a state in 16 lanes */
void reducer_begin(Emitter *e, const Reducer *reducer, LLVMValueRef *state);
/* Combines the 16 lanes of the state; the results are scalars. */
void reducer_tree(Emitter *e, const Reducer *reducer, LLVMValueRef *state);

// ---- passes along lines ----

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

/* All passes over all lines of the block. */
void row_lines(RowKernel *k, const LinePass *passes);
/* One pass over the row (reduce 1) that the builder stands in; its number goes to `values`, in all lanes. */
void row_pass(RowKernel *k, const LinePass *pass, Lanes *values);
/* How many elements a line has, as f32 in all lanes. */
LLVMValueRef row_line_length(RowKernel *k);
/* Whether those are more than one chain, as i1. */
LLVMValueRef row_line_is_long(RowKernel *k);

/* Elements of reductions that need several passes. The first one computes the expression and leaves its value in the
 * result's row, unless it is a mere operand, which is read again; the passes that follow use row_value_again. */
Lanes row_first_value(RowKernel *k, const Lanes *values);
Lanes row_value_again(RowKernel *k);

#endif
