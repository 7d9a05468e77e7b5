/* Reducer: how numbers are combined to one, in 16 virtual lanes and one fixed tree.
 *
 * In: states. Out: the steps of a reduction as vector code. Element i belongs to lane i mod 16; a lane takes its
 * elements in ascending order; the lanes are combined as l[i] with l[i + 8], then + 4, + 2, + 1. So the bits do not
 * depend on the length of the target's vectors (docs/decisions/0002-bits.md), and 16 lanes are what the longest vector
 * has. Passes over lines, with the chains of long ones, are in line_passes.h. Refuses nothing. */
#ifndef TFM_KERNELS_REDUCER_H
#define TFM_KERNELS_REDUCER_H

#include "codegen/vector.h"

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
/* The trees of 16 sums side by side: what reducer_tree gives for lanes[4 i + j] is lane 4 j + i of the result. */
LLVMValueRef reducer_sums(Emitter *e, LLVMValueRef lanes[LANES]);

#endif
