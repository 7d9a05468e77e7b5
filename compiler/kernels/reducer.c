/* In: reducers and lines. Out: loops and trees. See reducer.h. */
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

/* For softmax: a NaN is ignored here, because exp(NaN - maximum) makes the sum, and with it the row, NaN anyway. */
static void number_max(Emitter *e, LLVMValueRef *state, const LLVMValueRef *other) {
  state[0] = choose(e, compare(e, LLVMRealOGT, other[0], state[0]), other[0], state[0]);
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

// ---- passes along lines ----

/* The accumulators are one vector of 16 lanes along a row. Along columns they are 16 vectors on the stack, one per row
 * modulo 16: each column then has the 16 lanes that a row of the same numbers would have. */

/* reduce 2: the reduced axis is the rows, so 16 columns are reduced side by side. */
static bool is_along_rows(const RowKernel *k) { return k->spec->reduce == 2; }

typedef struct LineBody {
  void (*body)(RowKernel *k);
} LineBody;

static void columns_body(RowKernel *k, void *context, LLVMValueRef *state) {
  (void)state;
  ((const LineBody *)context)->body(k);
}

void row_lines(RowKernel *k, void (*body)(RowKernel *k)) {
  if (is_along_rows(k)) {
    row_walk(k, 1, columns_body, &(LineBody){body}, 0, NULL);
    return;
  }
  Loop rows = loop_begin(k->e, emit_i64(k->e, 0), k->rows, 1);
  row_begin(k, rows.index);
  body(k);
  loop_end(k->e, &rows);
}

LLVMValueRef row_line_length(RowKernel *k) {
  LLVMValueRef length = is_along_rows(k) ? k->rows : k->columns;
  return emit_splat(k->e, LLVMBuildSIToFP(k->e->builder, length, k->e->f32, ""), LANES);
}

typedef struct Pass {
  const Reducer *reducer;
  RowElement element;
  const Lanes *values;
} Pass;

// ---- along a row ----

/* Elements beyond the columns are computed but must not count, so under a mask the state of those lanes stays as it
 * was. Adding a neutral element instead would turn -0 into 0 and could not hide a NaN. */
static void row_body(RowKernel *k, void *context, LLVMValueRef *state) {
  const Pass *pass = context;
  Emitter *e = k->e;
  Lanes x = pass->element(k, pass->values);
  if (!pass->reducer) return;
  LLVMValueRef first = emit_splat(e, LLVMBuildTrunc(e->builder, k->column, e->i32, ""), LANES);
  for (unsigned v = 0; v < e->n_vectors; v++) {
    LLVMValueRef before[REDUCER_MAX_STATE] = {state[0], pass->reducer->n_state > 1 ? state[1] : NULL};
    LLVMValueRef start = emit_add(e, first, emit_splat(e, emit_i32(e, v * LANES), LANES));
    pass->reducer->step(e, state, x.v[v], emit_add(e, start, emit_ramp(e, LANES)));
    for (unsigned i = 0; k->mask && i < pass->reducer->n_state; i++)
      state[i] = emit_select(e, k->mask, state[i], before[i]);
  }
}

/* Vectors of a turn are added one after the other and not in parallel, because each lane must take its elements in
 * ascending order; unrolling still hides the latency of computing them. */
static void pass_along_row(RowKernel *k, Pass *pass, LLVMValueRef *state) {
  const Reducer *reducer = pass->reducer;
  if (reducer) reducer_begin(k->e, reducer, state);
  row_walk(k, row_unroll(k), row_body, pass, reducer ? reducer->n_state : 0, state);
  if (!reducer) return;
  reducer_tree(k->e, reducer, state);
  for (unsigned i = 0; i < reducer->n_state; i++) state[i] = emit_splat(k->e, state[i], LANES);
}

// ---- along columns ----

/* Stacks hold 16 vectors, one for each lane that a row of the same numbers would have. */
static LLVMValueRef slot(Emitter *e, LLVMValueRef stack, LLVMValueRef lane) {
  return emit_offset(e, stack, emit_mul(e, lane, emit_i64(e, LANES * 4)));
}

static void load_state(Emitter *e, const Reducer *reducer, LLVMValueRef *stacks, LLVMValueRef lane,
                       LLVMValueRef *state) {
  for (unsigned i = 0; i < reducer->n_state; i++)
    state[i] = emit_load(e, reducer_type(e, i), slot(e, stacks[i], lane), 64);
}

static void store_state(Emitter *e, const Reducer *reducer, LLVMValueRef *stacks, LLVMValueRef lane,
                        LLVMValueRef *state) {
  for (unsigned i = 0; i < reducer->n_state; i++) emit_store(e, state[i], slot(e, stacks[i], lane), 64);
}

static void begin_stacks(Emitter *e, const Reducer *reducer, LLVMValueRef *stacks) {
  LLVMValueRef state[REDUCER_MAX_STATE];
  for (unsigned i = 0; i < reducer->n_state; i++)
    stacks[i] = emit_stack(e, LLVMArrayType2(reducer_type(e, i), LANES), 64);
  Loop lanes = loop_begin(e, emit_i64(e, 0), emit_i64(e, LANES), 1);
  reducer_begin(e, reducer, state);
  store_state(e, reducer, stacks, lanes.index, state);
  loop_end(e, &lanes);
}

static void combine_stacks(Emitter *e, const Reducer *reducer, LLVMValueRef *stacks, LLVMValueRef *state) {
  for (int64_t n = LANES / 2; n > 0; n /= 2) {
    LLVMValueRef upper[REDUCER_MAX_STATE];
    Loop lanes = loop_begin(e, emit_i64(e, 0), emit_i64(e, n), 1);
    load_state(e, reducer, stacks, lanes.index, state);
    load_state(e, reducer, stacks, emit_add(e, lanes.index, emit_i64(e, n)), upper);
    reducer->combine(e, state, upper);
    store_state(e, reducer, stacks, lanes.index, state);
    loop_end(e, &lanes);
  }
  load_state(e, reducer, stacks, emit_i64(e, 0), state);
}

/* Row i goes to vector i mod 16, as element i of a row goes to lane i mod 16. */
static void pass_along_columns(RowKernel *k, Pass *pass, LLVMValueRef *state) {
  Emitter *e = k->e;
  LLVMValueRef stacks[REDUCER_MAX_STATE];
  if (pass->reducer) begin_stacks(e, pass->reducer, stacks);
  Loop rows = loop_begin(e, emit_i64(e, 0), k->rows, 1);
  row_begin(k, rows.index);
  Lanes x = pass->element(k, pass->values);
  if (pass->reducer) {
    LLVMValueRef lane = LLVMBuildAnd(e->builder, rows.index, emit_i64(e, LANES - 1), "");
    LLVMValueRef index = emit_splat(e, LLVMBuildTrunc(e->builder, rows.index, e->i32, ""), LANES);
    load_state(e, pass->reducer, stacks, lane, state);
    pass->reducer->step(e, state, x.v[0], index);
    store_state(e, pass->reducer, stacks, lane, state);
  }
  loop_end(e, &rows);
  if (pass->reducer) combine_stacks(e, pass->reducer, stacks, state);
}

void row_pass(RowKernel *k, const Reducer *reducer, RowElement element, const Lanes *values, LLVMValueRef *state) {
  Pass pass = {reducer, element, values};
  if (is_along_rows(k)) pass_along_columns(k, &pass, state);
  else pass_along_row(k, &pass, state);
}

// ---- values for several passes ----

static bool is_operand(const RowKernel *k) { return k->program.n == 1; }

/* An expression that is a mere operand is read again in later passes; anything else is stored in the result's row, so
 * that it is computed once. */
Lanes row_first_value(RowKernel *k, const Lanes *values) {
  (void)values;
  Lanes x = row_values(k);
  if (!is_operand(k)) row_store(k, x);
  return x;
}

Lanes row_value_again(RowKernel *k) { return is_operand(k) ? row_values(k) : row_load(k, 0); }
