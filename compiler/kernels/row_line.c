/* In: passes over lines. Out: loops in the direction of the spec, with the accumulators of reducer.h: one vector of 16
 * lanes along a row; along columns 16 vectors on the stack, one per row modulo 16. */
#include "kernels/row_line.h"

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

static void pass_along_row(RowKernel *k, Pass *pass, LLVMValueRef *state) {
  const Reducer *reducer = pass->reducer;
  if (reducer) reducer_begin(k->e, reducer, state);
  row_walk(k, row_unroll(k), row_body, pass, reducer ? reducer->n_state : 0, state);
  if (!reducer) return;
  reducer_tree(k->e, reducer, state);
  for (unsigned i = 0; i < reducer->n_state; i++) state[i] = emit_splat(k->e, state[i], LANES);
}

// ---- along columns ----

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

Lanes row_first_value(RowKernel *k, const Lanes *values) {
  (void)values;
  Lanes x = row_values(k);
  if (!is_operand(k)) row_store(k, x);
  return x;
}

Lanes row_value_again(RowKernel *k) { return is_operand(k) ? row_values(k) : row_load(k, 0); }
