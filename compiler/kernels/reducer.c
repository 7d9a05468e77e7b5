/* In: states. Out: the steps of each reduction as vector code. */
#include "kernels/reducer.h"

static LLVMValueRef choose(Emitter *e, LLVMValueRef condition, LLVMValueRef yes, LLVMValueRef no) {
  return emit_select(e, condition, yes, no);
}

static LLVMValueRef compare(Emitter *e, LLVMRealPredicate predicate, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFCmp(e->builder, predicate, a, b, "");
}

static void add(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other) {
  state[0] = LLVMBuildFAdd(e->builder, state[0], other[0], "");
}

static void add_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  (void)index;
  add(e, state, &x);
}

static void square_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  (void)index;
  state[0] = emit_fma(e, x, x, state[0]);
}

/* x if it is beyond the state or NaN. A NaN in the state is never beyond anything, so it stays. */
static void extreme(Emitter *e, LLVMRealPredicate predicate, LLVMValueRef *state, LLVMValueRef x) {
  LLVMValueRef beyond = compare(e, predicate, x, state[0]), none = compare(e, LLVMRealUNO, x, x);
  state[0] = choose(e, LLVMBuildOr(e->builder, beyond, none, ""), x, state[0]);
}

static void max(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other) {
  extreme(e, LLVMRealOGT, state, other[0]);
}

static void max_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  (void)index;
  extreme(e, LLVMRealOGT, state, x);
}

static void min(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other) {
  extreme(e, LLVMRealOLT, state, other[0]);
}

static void min_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  (void)index;
  extreme(e, LLVMRealOLT, state, x);
}

static void number_max(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other) {
  state[0] = choose(e, compare(e, LLVMRealOGT, other[0], state[0]), other[0], state[0]);
}

static void number_max_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  (void)index;
  number_max(e, state, &x);
}

/* The other one if it is greater, or equal with a lower index; all NaN are equal. */
static void argmax(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other) {
  LLVMBuilderRef b = e->builder;
  LLVMValueRef has_nan = compare(e, LLVMRealUNO, state[0], state[0]);
  LLVMValueRef is_nan = compare(e, LLVMRealUNO, other[0], other[0]);
  LLVMValueRef greater = LLVMBuildOr(b, compare(e, LLVMRealOGT, other[0], state[0]),
                                     LLVMBuildAnd(b, is_nan, LLVMBuildNot(b, has_nan, ""), ""), "");
  LLVMValueRef equal = LLVMBuildOr(b, compare(e, LLVMRealOEQ, other[0], state[0]),
                                   LLVMBuildAnd(b, is_nan, has_nan, ""), "");
  LLVMValueRef lower = LLVMBuildAnd(b, equal, emit_icmp(e, LLVMIntSLT, other[1], state[1]), "");
  LLVMValueRef better = LLVMBuildOr(b, greater, lower, "");
  state[0] = choose(e, better, other[0], state[0]);
  state[1] = choose(e, better, other[1], state[1]);
}

static void argmax_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  argmax(e, state, (LLVMValueRef[]){x, index});
}

const Reducer reducer_sum = {1, 0, add_step, add};
const Reducer reducer_squares = {1, 0, square_step, add};
const Reducer reducer_max = {1, -__builtin_inf(), max_step, max};
const Reducer reducer_min = {1, __builtin_inf(), min_step, min};
const Reducer reducer_number_max = {1, -__builtin_inf(), number_max_step, number_max};
const Reducer reducer_argmax = {2, -__builtin_inf(), argmax_step, argmax};

LLVMTypeRef reducer_type(Emitter *e, unsigned i) { return lanes_type(i == 0 ? e->f32 : e->i32); }

void reducer_begin(Emitter *e, const Reducer *reducer, LLVMValueRef *state) {
  state[0] = emit_splat(e, emit_f32(e, reducer->identity), LANES);
  if (reducer->n_state > 1) state[1] = emit_splat(e, emit_i32(e, INT32_MAX), LANES);
}

/* Half of a vector of 2 n lanes, from lane `first` on; a scalar for n = 1. */
static LLVMValueRef half(Emitter *e, LLVMValueRef vector, unsigned first, unsigned n) {
  if (n == 1) return LLVMBuildExtractElement(e->builder, vector, emit_i32(e, first), "");
  LLVMValueRef lanes[LANES];
  for (unsigned i = 0; i < n; i++) lanes[i] = emit_i32(e, first + i);
  LLVMValueRef poison = LLVMGetPoison(LLVMTypeOf(vector));
  return LLVMBuildShuffleVector(e->builder, vector, poison, LLVMConstVector(lanes, n), "");
}

void reducer_tree(Emitter *e, const Reducer *reducer, LLVMValueRef *state) {
  for (unsigned n = LANES / 2; n > 0; n /= 2) {
    LLVMValueRef upper[REDUCER_MAX_STATE];
    for (unsigned i = 0; i < reducer->n_state; i++) {
      upper[i] = half(e, state[i], n, n);
      state[i] = half(e, state[i], 0, n);
    }
    reducer->combine(e, state, upper);
  }
}
