/* Reducer: how numbers are combined to one, in 16 virtual lanes and one fixed tree.
 *
 * Element i belongs to lane i mod 16; a lane takes its elements in ascending order; the lanes are combined as
 * l[i] with l[i + 8], then + 4, + 2, + 1. So the bits depend neither on the direction of the reduction nor on the
 * vectors of the target. A state is one or two values (vectors of any length, or scalars). */
#ifndef TFM_KERNELS_REDUCER_H
#define TFM_KERNELS_REDUCER_H

#include "codegen/vector.h"

enum { REDUCER_MAX_STATE = 2 };

typedef struct Reducer {
  unsigned n_state;
  double identity; /* of the first value; the second begins as the largest i32 */
  /* `state` takes in x, whose numbers in the line are `index` (i32). */
  void (*step)(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index);
  void (*combine)(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other);
} Reducer;

extern const Reducer reducer_sum;     /* x + y */
extern const Reducer reducer_squares; /* x^2 + y^2, each square within an FMA */
extern const Reducer reducer_max, reducer_min; /* NaN if any is */
extern const Reducer reducer_number_max; /* NaN is passed over */
extern const Reducer reducer_argmax;  /* value, index: the lowest of equal ones; NaN counts as greatest */

LLVMTypeRef reducer_type(Emitter *e, unsigned i); /* of value i of a state in 16 lanes */
void reducer_begin(Emitter *e, const Reducer *reducer, LLVMValueRef *state);
/* The 16 lanes of the state combined; the result are scalars. */
void reducer_tree(Emitter *e, const Reducer *reducer, LLVMValueRef *state);

#endif
