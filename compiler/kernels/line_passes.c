/* In: passes of a reduction. Out: loops along rows, each of which is a line; columns are in column_passes.c. See
 * line_passes.h. Refuses nothing. */
#include "kernels/line_passes.h"

// ---- lines ----

/* The accumulators are one vector of 16 lanes along a row. Along columns they are 16 rows of numbers on the stack, for
 * the rows modulo 16: each column then has the 16 lanes that a row of the same numbers would have. */

bool line_is_operand(const RowKernel *k) { return k->program.n == 1; }

/* reduce 2: the reduced axis is the rows, so columns are reduced side by side. */
static LLVMValueRef line_length(const RowKernel *k) { return line_is_column(k) ? k->rows : k->columns; }

LLVMValueRef row_line_length(RowKernel *k) {
  return emit_splat(k->e, LLVMBuildSIToFP(k->e->builder, line_length(k), k->e->f32, ""), LANES);
}

LLVMValueRef row_line_is_long(RowKernel *k) {
  return emit_icmp(k->e, LLVMIntSGT, line_length(k), emit_i64(k->e, TFM_ROW_CHAIN));
}

bool line_is_last(const LinePass *pass) { return !pass->reducer || pass->yields == LINE_RESULT; }

unsigned line_numbers(const LinePass *passes) {
  unsigned n = 2; /* what most have */
  for (; !line_is_last(passes); passes++) {
    if (passes->yields >= n) n = passes->yields + 1;
    if (passes->second && passes->yields_second >= n) n = passes->yields_second + 1;
  }
  return n;
}

// ---- chains ----

/* A sum of f32 that goes on loses digits with each number that is much smaller than it. So each TFM_ROW_CHAIN elements
 * of a line, counted from its first, are a chain: 16 lanes and their tree, as if they were the line. What the chains
 * give is added in f64, which loses nothing worth mention, and rounded once. A line of one chain has the bits of that
 * chain, and chains of zeros add nothing. */

bool line_has_chains(const RowKernel *k, const Reducer *reducer) { return k->has_chains && reducer->is_sum; }

/* The chain's sums as they are added. */
LLVMValueRef line_add_chain(Emitter *e, LLVMValueRef total, LLVMValueRef chain) {
  return LLVMBuildFAdd(e->builder, total, LLVMBuildFPExt(e->builder, chain, LLVMTypeOf(total), ""), "");
}

// ---- along a row ----

typedef struct RowPass {
  const LinePass *pass;
  const Lanes *values;
} RowPass;

/* The vectors of a turn are combined before the state takes them in, so that turns wait for one step only. */
static void step_in_pairs(Emitter *e, const Reducer *reducer, LLVMValueRef *state, Lanes x) {
  for (unsigned apart = 1; apart < e->n_vectors; apart *= 2)
    for (unsigned v = 0; v + apart < e->n_vectors; v += 2 * apart) reducer->combine(e, &x.v[v], &x.v[v + apart]);
  reducer->combine(e, state, &x.v[0]);
}

/* Elements beyond the columns are computed but must not count, so under a mask the state of those lanes stays as it
 * was. Adding a neutral element instead would turn -0 into 0 and could not hide a NaN. */
static void row_body(RowKernel *k, void *context, LLVMValueRef *state) {
  const RowPass *row = context;
  const Reducer *reducer = row->pass->reducer;
  Emitter *e = k->e;
  Lanes x = row->pass->element(k, row->values);
  if (!reducer) return;
  if (reducer->in_any_order && k->has_chains && !k->mask) {
    step_in_pairs(e, reducer, state, x);
    return;
  }
  LLVMValueRef first = emit_splat(e, LLVMBuildTrunc(e->builder, k->column, e->i32, ""), LANES);
  for (unsigned v = 0; v < e->n_vectors; v++) {
    LLVMValueRef before[REDUCER_MAX_STATE] = {state[0], reducer->n_state > 1 ? state[1] : NULL};
    LLVMValueRef start = emit_add(e, first, emit_splat(e, emit_i32(e, v * LANES), LANES));
    reducer->step(e, state, x.v[v], emit_add(e, start, emit_ramp(e, LANES)));
    for (unsigned i = 0; k->mask && i < reducer->n_state; i++) state[i] = emit_select(e, k->mask, state[i], before[i]);
  }
}

/* Vectors of a turn are added one after the other and not in parallel, because each lane must take its elements in
 * ascending order; unrolling still hides the latency of computing them. */
static void reduce_row(RowKernel *k, RowPass *row, LLVMValueRef *state) {
  const Reducer *reducer = row->pass->reducer;
  reducer_begin(k->e, reducer, state);
  row_walk(k, row_unroll(k), (RowWalk){row_body, row, reducer->n_state, state});
  reducer_tree(k->e, reducer, state);
}

static void reduce_chains_of_row(RowKernel *k, RowPass *row, LLVMValueRef *state) {
  Emitter *e = k->e;
  const unsigned n_state = row->pass->reducer->n_state;
  LLVMValueRef all = k->columns, first = k->first;
  Loop chains = loop_begin(e, first, all, TFM_ROW_CHAIN);
  LLVMValueRef totals[REDUCER_MAX_STATE];
  for (unsigned i = 0; i < n_state; i++) totals[i] = loop_carry(e, &chains, LLVMConstReal(e->f64, 0));
  k->first = chains.index;
  k->columns = emit_least(e, all, emit_add(e, chains.index, emit_i64(e, TFM_ROW_CHAIN)));
  reduce_row(k, row, state);
  for (unsigned i = 0; i < n_state; i++) loop_next(&chains, i, line_add_chain(e, totals[i], state[i]));
  loop_end(e, &chains);
  for (unsigned i = 0; i < n_state; i++) state[i] = LLVMBuildFPTrunc(e->builder, chains.results[i], e->f32, "");
  k->columns = all, k->first = first;
}

/* The numbers that a pass yields, from what was reduced. */
static void finish_pass(RowKernel *k, const LinePass *pass, LLVMValueRef *state, Lanes *values) {
  const Reducer *reducer = pass->reducer;
  for (unsigned i = 0; i < reducer->n_state; i++) state[i] = emit_splat(k->e, state[i], LANES);
  LLVMValueRef number = pass->number(k, state);
  if (pass->yields != LINE_RESULT) values[pass->yields] = lanes_same(number);
  else row_store_scalar(k, LLVMBuildExtractElement(k->e->builder, number, emit_i32(k->e, 0), ""));
  if (pass->second) values[pass->yields_second] = lanes_same(pass->second(k, state, number));
}

void row_pass(RowKernel *k, const LinePass *pass, Lanes *values) {
  const Reducer *reducer = pass->reducer;
  RowPass row = {pass, values};
  LLVMValueRef state[REDUCER_MAX_STATE];
  if (!reducer) {
    row_walk(k, row_unroll(k), (RowWalk){.body = row_body, .context = &row});
    return;
  }
  if (line_has_chains(k, reducer)) reduce_chains_of_row(k, &row, state);
  else reduce_row(k, &row, state);
  finish_pass(k, pass, state, values);
}

// ---- two rows side by side ----

typedef struct RowPair {
  RowKernel *other; /* the frame of the second row */
  RowPass rows[2];
} RowPair;

static void pair_body(RowKernel *k, void *context, LLVMValueRef *state) {
  RowPair *pair = context;
  RowKernel *other = pair->other;
  other->column = k->column, other->count = k->count, other->mask = k->mask;
  row_body(k, &pair->rows[0], state);
  row_body(other, &pair->rows[1], state + pair->rows[0].pass->reducer->n_state);
}

void row_pass_pair(RowKernel *k, RowKernel *other, const LinePass *pass, Lanes *values, Lanes *other_values) {
  const Reducer *reducer = pass->reducer;
  RowPair pair = {other, {{pass, values}, {pass, other_values}}};
  LLVMValueRef state[2 * REDUCER_MAX_STATE];
  reducer_begin(k->e, reducer, state);
  reducer_begin(k->e, reducer, state + reducer->n_state);
  row_walk(k, row_unroll(k), (RowWalk){pair_body, &pair, 2 * reducer->n_state, state});
  reducer_tree(k->e, reducer, state);
  reducer_tree(k->e, reducer, state + reducer->n_state);
  finish_pass(k, pass, state, values);
  finish_pass(other, pass, state + reducer->n_state, other_values);
}

void row_lines(RowKernel *k, const LinePass *passes) {
  Lanes values[LINE_NUMBERS];
  Loop rows = loop_begin(k->e, emit_i64(k->e, 0), k->rows, 1);
  row_begin(k, rows.index);
  do row_pass(k, passes, values);
  while (!line_is_last(passes++));
  loop_end(k->e, &rows);
}

// ---- values for several passes ----

/* An expression that is a mere operand is read again in later passes; anything else is stored in the result's row, so
 * that it is computed once. */
Lanes row_first_value(RowKernel *k, const Lanes *values) {
  (void)values;
  Lanes x = row_values(k);
  if (!line_is_operand(k)) row_store(k, x);
  return x;
}

Lanes row_value_again(RowKernel *k) { return line_is_operand(k) ? row_values(k) : row_load(k, 0); }
