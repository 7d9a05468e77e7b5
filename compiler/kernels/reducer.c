/* In: states and what they take in. Out: the steps and the tree of each reduction. See reducer.h. */
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

/* The square is not rounded before it is added (where there is FMA). */
static void square_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  (void)index;
  state[0] = emit_fma(e, x, x, state[0]);
}

static void add_both(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other) {
  add(e, &state[0], &other[0]);
  add(e, &state[1], &other[1]);
}

static void moments_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  square_step(e, &state[0], x, index);
  add(e, &state[1], &x);
}

/* x if it is beyond the state, which takes one instruction. NaN does not count, and of 0 and -0 the first stays. */
static LLVMValueRef number_beyond(Emitter *e, LLVMRealPredicate predicate, LLVMValueRef state, LLVMValueRef x) {
  return choose(e, compare(e, predicate, x, state), x, state);
}

/* x if it is beyond the state or NaN. A NaN in the state is never beyond anything, so it stays. */
static void extreme(Emitter *e, LLVMRealPredicate predicate, LLVMValueRef *state, LLVMValueRef x) {
  LLVMValueRef none = compare(e, LLVMRealUNO, x, x);
  state[0] = choose(e, none, x, number_beyond(e, predicate, state[0], x));
}

static void max(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other) {
  extreme(e, LLVMRealOGT, state, other[0]);
}

static void max_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  (void)index;
  extreme(e, LLVMRealOGT, state, x);
}

static void max_number_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x) {
  state[0] = number_beyond(e, LLVMRealOGT, state[0], x);
}

static void min(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other) {
  extreme(e, LLVMRealOLT, state, other[0]);
}

static void min_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  (void)index;
  extreme(e, LLVMRealOLT, state, x);
}

static void min_number_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x) {
  state[0] = number_beyond(e, LLVMRealOLT, state[0], x);
}

/* For softmax: a NaN is ignored here, because exp(NaN - maximum) makes the sum, and with it the row, NaN anyway. */
static void number_max(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other) {
  state[0] = number_beyond(e, LLVMRealOGT, state[0], other[0]);
}

static void number_max_step(Emitter *e, LLVMValueRef *state, LLVMValueRef x, LLVMValueRef index) {
  (void)index;
  number_max(e, state, &x);
}

/* Takes the other one if it is greater, or equal with a lower index. NaN counts as greatest, and all NaN are equal, as
 * in PyTorch. The index decides ties, so the order in which lanes are combined does not. */
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

const Reducer reducer_sum = {1, true, 0, add_step, add, NULL, false};
const Reducer reducer_squares = {1, true, 0, square_step, add, NULL, false};
const Reducer reducer_moments = {2, true, 0, moments_step, add_both, NULL, false};
const Reducer reducer_max = {1, false, -__builtin_inf(), max_step, max, max_number_step, false};
const Reducer reducer_min = {1, false, __builtin_inf(), min_step, min, min_number_step, false};
const Reducer reducer_number_max = {1, false, -__builtin_inf(), number_max_step, number_max, NULL, true};
const Reducer reducer_argmax = {2, false, -__builtin_inf(), argmax_step, argmax, NULL, false};

LLVMTypeRef reducer_type(Emitter *e, const Reducer *reducer, unsigned i) {
  return lanes_type(i == 0 || reducer->is_sum ? e->f32 : e->i32);
}

void reducer_begin(Emitter *e, const Reducer *reducer, LLVMValueRef *state) {
  state[0] = emit_splat(e, emit_f32(e, reducer->identity), LANES);
  if (reducer->n_state > 1) state[1] = reducer->is_sum ? state[0] : emit_splat(e, emit_i32(e, INT32_MAX), LANES);
}

/* Half of a vector of 2 n lanes, from lane `first` on; a scalar for n = 1. The shuffles take ever shorter vectors, so
 * that no instruction works on lanes whose sum is not needed. */
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

/* Of the pieces of `piece` numbers that two vectors have, the first or the second of each pair: those of `a` before
 * those of `b`, or, of pieces of less than a quarter, in each quarter. */
static LLVMValueRef halves_of(Emitter *e, LLVMValueRef a, LLVMValueRef b, unsigned piece, bool second) {
  const unsigned group = piece < LANES / 4 ? LANES / 4 : LANES, half = group / 2;
  LLVMValueRef places[LANES];
  for (unsigned i = 0; i < LANES; i++) {
    const unsigned of = i % half, from = i % group < half ? 0 : LANES;
    places[i] = emit_i32(e, (int32_t)(from + i / group * group + of / piece * 2 * piece + of % piece + second * piece));
  }
  return LLVMBuildShuffleVector(e->builder, a, b, LLVMConstVector(places, LANES), "");
}

/* Two vectors of sums become one, of half as many lanes each; from one level of the trees to the next. */
LLVMValueRef reducer_sums(Emitter *e, LLVMValueRef lanes[LANES]) {
  for (unsigned n = LANES / 2; n > 0; n /= 2)
    for (unsigned i = 0; i < n; i++)
      lanes[i] = LLVMBuildFAdd(e->builder, halves_of(e, lanes[2 * i], lanes[2 * i + 1], n, false),
                               halves_of(e, lanes[2 * i], lanes[2 * i + 1], n, true), "");
  return lanes[0];
}
