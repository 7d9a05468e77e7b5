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

// ---- passes along lines ----

static bool is_operand(const RowKernel *k) { return k->program.n == 1; }

/* The accumulators are one vector of 16 lanes along a row. Along columns they are 16 rows of numbers on the stack, for
 * the rows modulo 16: each column then has the 16 lanes that a row of the same numbers would have. */

/* reduce 2: the reduced axis is the rows, so columns are reduced side by side. */
static bool is_along_rows(const RowKernel *k) { return k->spec->reduce == 2; }

static LLVMValueRef line_length(const RowKernel *k) { return is_along_rows(k) ? k->rows : k->columns; }

LLVMValueRef row_line_length(RowKernel *k) {
  return emit_splat(k->e, LLVMBuildSIToFP(k->e->builder, line_length(k), k->e->f32, ""), LANES);
}

LLVMValueRef row_line_is_long(RowKernel *k) {
  return emit_icmp(k->e, LLVMIntSGT, line_length(k), emit_i64(k->e, TFM_ROW_CHAIN));
}

static bool is_last(const LinePass *pass) { return !pass->reducer || pass->yields == LINE_RESULT; }

unsigned line_numbers(const LinePass *passes) {
  unsigned n = 2; /* what most have */
  for (; !is_last(passes); passes++) {
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

static bool has_chains(const RowKernel *k, const Reducer *reducer) { return k->has_chains && reducer->is_sum; }

/* The chain's sums as they are added. */
static LLVMValueRef add_chain(Emitter *e, LLVMValueRef total, LLVMValueRef chain) {
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
  row_walk(k, row_unroll(k), row_body, row, reducer->n_state, state);
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
  for (unsigned i = 0; i < n_state; i++) loop_next(&chains, i, add_chain(e, totals[i], state[i]));
  loop_end(e, &chains);
  for (unsigned i = 0; i < n_state; i++) state[i] = LLVMBuildFPTrunc(e->builder, chains.results[i], e->f32, "");
  k->columns = all, k->first = first;
}

void row_pass(RowKernel *k, const LinePass *pass, Lanes *values) {
  const Reducer *reducer = pass->reducer;
  RowPass row = {pass, values};
  LLVMValueRef state[REDUCER_MAX_STATE];
  if (!reducer) {
    row_walk(k, row_unroll(k), row_body, &row, 0, state);
    return;
  }
  if (has_chains(k, reducer)) reduce_chains_of_row(k, &row, state);
  else reduce_row(k, &row, state);
  for (unsigned i = 0; i < reducer->n_state; i++) state[i] = emit_splat(k->e, state[i], LANES);
  LLVMValueRef number = pass->number(k, state);
  if (pass->yields != LINE_RESULT) values[pass->yields] = lanes_same(number);
  else row_store_scalar(k, LLVMBuildExtractElement(k->e->builder, number, emit_i32(k->e, 0), ""));
  if (pass->second) values[pass->yields_second] = lanes_same(pass->second(k, state, number));
}

static void lines_along_rows(RowKernel *k, const LinePass *passes) {
  Lanes values[LINE_NUMBERS];
  Loop rows = loop_begin(k->e, emit_i64(k->e, 0), k->rows, 1);
  row_begin(k, rows.index);
  do row_pass(k, passes, values);
  while (!is_last(passes++));
  loop_end(k->e, &rows);
}

// ---- along columns ----

/* How many columns go together: rows are read in pieces of up to 2 KB, because memory is read ahead only while it is
 * read in one piece. 16 rows of accumulators take 32 KB of the stack, so those of two numbers (argmax) take half as
 * many columns. */
enum { COLUMNS_TOGETHER = 512 };

/* Rows of a lane that are added in one turn, so that its accumulators are loaded and stored once for all of them. */
enum { MOST_ROWS = 4 }; /* even */

typedef struct Columns { /* that go together: a pass over their rows */
  const LinePass *pass;
  unsigned together;                      /* how many */
  LLVMValueRef stacks[REDUCER_MAX_STATE]; /* [LANES][together] */
  LLVMValueRef totals[REDUCER_MAX_STATE]; /* [together] of f64: of the chains before */
  LLVMValueRef numbers[LINE_NUMBERS];     /* [together] */
  unsigned n_numbers;
  LLVMValueRef lane;                      /* of the rows, or that is filled */
  bool is_first;                          /* the row is the first one of its lane */
  unsigned n_rows;                        /* of one lane, that go together */
  RowKernel rows[MOST_ROWS];              /* which stand in them */
} Columns;

/* Of vector `v` of the walk, in line `lane` of the array. */
static LLVMValueRef slot(RowKernel *k, const Columns *columns, LLVMValueRef array, LLVMValueRef lane, unsigned v) {
  Emitter *e = k->e;
  LLVMValueRef column = emit_add(e, emit_sub(e, k->column, k->first), emit_i64(e, (int64_t)v * LANES));
  LLVMValueRef at = emit_add(e, emit_mul(e, lane, emit_i64(e, columns->together)), column);
  return emit_offset(e, array, emit_mul(e, at, emit_i64(e, 4)));
}

static void load_state(RowKernel *k, const Columns *columns, LLVMValueRef lane, unsigned v, LLVMValueRef *state) {
  for (unsigned i = 0; i < columns->pass->reducer->n_state; i++)
    state[i] = emit_load(k->e, reducer_type(k->e, columns->pass->reducer, i),
                         slot(k, columns, columns->stacks[i], lane, v), 64);
}

static void store_state(RowKernel *k, const Columns *columns, unsigned v, const LLVMValueRef *state) {
  for (unsigned i = 0; i < columns->pass->reducer->n_state; i++)
    emit_store(k->e, state[i], slot(k, columns, columns->stacks[i], columns->lane, v), 64);
}

/* The numbers that the passes before have stored. */
static void load_numbers(RowKernel *k, const Columns *columns, Lanes *values) {
  LLVMValueRef first = emit_i64(k->e, 0);
  for (unsigned i = 0; i < columns->n_numbers; i++) {
    values[i] = lanes_same(NULL);
    for (unsigned v = 0; v < k->e->n_vectors; v++)
      values[i].v[v] = emit_load(k->e, lanes_type(k->e->f32), slot(k, columns, columns->numbers[i], first, v), 64);
  }
}

/* The element of row `r` of those that go together, at the vectors of the walk. */
static Lanes element_of(RowKernel *k, Columns *columns, unsigned r, const Lanes *values) {
  RowKernel *row = &columns->rows[r];
  row->first = k->first, row->column = k->column, row->count = k->count, row->mask = k->mask;
  row->stage = k->stage;
  Lanes x = columns->pass->element(row, values);
  k->stage = row->stage;
  return x;
}

/* Whether one of the elements at the vectors of the walk is NaN. A comparison takes two rows, of which there is an even
 * number. */
static LLVMValueRef any_nan(Emitter *e, const Lanes *x, unsigned n_rows) {
  LLVMValueRef found = LLVMConstNull(lanes_type(e->i1));
  for (unsigned v = 0; v < e->n_vectors; v++)
    for (unsigned r = 0; r < n_rows; r += 2)
      found = LLVMBuildOr(e->builder, found, compare(e, LLVMRealUNO, x[r].v[v], x[r + 1].v[v]), "");
  LLVMTypeRef bits = LLVMIntTypeInContext(LLVMGetTypeContext(e->i32), LANES);
  return emit_icmp(e, LLVMIntNE, LLVMBuildBitCast(e->builder, found, bits, ""), LLVMConstNull(bits));
}

/* Takes the elements of the rows that go together into the states of the vectors of the walk, which are stored. */
static void reduce_columns(RowKernel *k, const Columns *columns, const Lanes *x, const LLVMValueRef *index) {
  Emitter *e = k->e;
  const Reducer *reducer = columns->pass->reducer;
  LLVMValueRef before[LANES_MAX_VECTORS][REDUCER_MAX_STATE];
  for (unsigned v = 0; v < e->n_vectors; v++) {
    if (columns->is_first) reducer_begin(e, reducer, before[v]);
    else load_state(k, columns, columns->lane, v, before[v]);
  }
  const bool by_numbers = reducer->number_step && columns->n_rows == MOST_ROWS;
  for (unsigned v = 0; by_numbers && v < e->n_vectors; v++) {
    LLVMValueRef state = before[v][0];
    for (unsigned r = 0; r < columns->n_rows; r++) reducer->number_step(e, &state, x[r].v[v]);
    store_state(k, columns, v, &state);
  }
  If again;
  if (by_numbers) again = if_begin(e, any_nan(e, x, columns->n_rows));
  for (unsigned v = 0; v < e->n_vectors; v++) {
    for (unsigned r = 0; r < columns->n_rows; r++) reducer->step(e, before[v], x[r].v[v], index[r]);
    store_state(k, columns, v, before[v]);
  }
  if (by_numbers) if_end(e, &again);
}

static void column_body(RowKernel *k, void *context, LLVMValueRef *unused) {
  (void)unused;
  Columns *columns = context;
  const Reducer *reducer = columns->pass->reducer;
  Emitter *e = k->e;
  Lanes values[LINE_NUMBERS], x[MOST_ROWS];
  LLVMValueRef index[MOST_ROWS];
  load_numbers(k, columns, values);
  for (unsigned r = 0; r < columns->n_rows; r++) {
    x[r] = element_of(k, columns, r, values);
    index[r] = emit_splat(e, LLVMBuildTrunc(e->builder, columns->rows[r].row, e->i32, ""), LANES);
  }
  if (reducer) reduce_columns(k, columns, x, index);
}

/* Row i goes to lane i mod 16, as element i of a row does. `n_rows` rows of a lane go together; returns the first row
 * behind the last whole group of such rows for all lanes (n_rows = 1: the last row). */
static LLVMValueRef pass_rows(RowKernel *k, Columns *columns, LLVMValueRef begin, LLVMValueRef end, unsigned n_rows) {
  Emitter *e = k->e;
  int64_t group = n_rows > 1 ? n_rows * LANES : 1, lanes_of_group = group / n_rows;
  Loop groups = loop_begin(e, begin, emit_sub(e, end, emit_i64(e, group - 1)), group);
  Loop lanes = loop_begin(e, groups.index, emit_add(e, groups.index, emit_i64(e, lanes_of_group)), 1);
  columns->lane = LLVMBuildAnd(e->builder, lanes.index, emit_i64(e, LANES - 1), "");
  columns->n_rows = n_rows;
  for (unsigned r = 0; r < n_rows; r++) {
    columns->rows[r] = *k;
    row_begin(&columns->rows[r], emit_add(e, lanes.index, emit_i64(e, r * LANES)));
  }
  row_walk(k, row_unroll(k), column_body, columns, 0, NULL);
  loop_end(e, &lanes);
  loop_end(e, &groups);
  return groups.last;
}

static void fill_body(RowKernel *k, void *context, LLVMValueRef *unused) {
  (void)unused;
  const Columns *columns = context;
  LLVMValueRef state[REDUCER_MAX_STATE];
  reducer_begin(k->e, columns->pass->reducer, state);
  store_state(k, columns, 0, state);
}

/* Combines the lanes first, first + step, first + 2 step ... in the order of reducer_tree. */
static void combine_lanes(RowKernel *k, const Columns *columns, unsigned first, unsigned step, LLVMValueRef *state) {
  if (step == LANES) {
    load_state(k, columns, emit_i64(k->e, first), 0, state);
    return;
  }
  LLVMValueRef upper[REDUCER_MAX_STATE];
  combine_lanes(k, columns, first, 2 * step, state);
  combine_lanes(k, columns, first + step, 2 * step, upper);
  columns->pass->reducer->combine(k->e, state, upper);
}

static void store_number(RowKernel *k, const Columns *columns, unsigned number, LLVMValueRef value) {
  emit_store(k->e, value, slot(k, columns, columns->numbers[number], emit_i64(k->e, 0), 0), 64);
}

static void number_body(RowKernel *k, void *context, LLVMValueRef *unused) {
  (void)unused;
  const Columns *columns = context;
  const LinePass *pass = columns->pass;
  LLVMValueRef state[REDUCER_MAX_STATE];
  combine_lanes(k, columns, 0, 1, state);
  LLVMValueRef number = pass->number(k, state);
  if (pass->yields == LINE_RESULT) row_store(k, lanes_same(number));
  else store_number(k, columns, pass->yields, number);
  if (pass->second) store_number(k, columns, pass->yields_second, pass->second(k, state, number));
}

/* The first rows begin their lanes, so that these need not be filled before; lanes without a row are. */
static LLVMValueRef begin_lanes(RowKernel *k, Columns *columns, LLVMValueRef begin, LLVMValueRef end) {
  Emitter *e = k->e;
  LLVMValueRef together = begin;
  columns->is_first = true;
  if (is_operand(k)) {
    LLVMValueRef all = emit_add(e, begin, emit_i64(e, MOST_ROWS * LANES));
    together = pass_rows(k, columns, begin, emit_least(e, end, all), MOST_ROWS);
  }
  LLVMValueRef lanes_end = emit_add(e, begin, emit_i64(e, LANES)), few = emit_least(e, end, lanes_end);
  LLVMValueRef begun = emit_select(e, emit_icmp(e, LLVMIntUGT, together, few), together, few);
  pass_rows(k, columns, together, begun, 1);
  columns->is_first = false;
  Loop lanes = loop_begin(e, begun, lanes_end, 1);
  columns->lane = emit_sub(e, lanes.index, begin);
  row_walk(k, 1, fill_body, columns, 0, NULL);
  loop_end(e, &lanes);
  return begun;
}

/* The rows from `begin`, the first of a chain, to `end` into the 16 lanes. */
static void reduce_rows(RowKernel *k, Columns *columns, LLVMValueRef begin, LLVMValueRef end) {
  LLVMValueRef row = begin_lanes(k, columns, begin, end);
  if (is_operand(k)) row = pass_rows(k, columns, row, end, MOST_ROWS);
  pass_rows(k, columns, row, end, 1);
}

// ---- chains of rows ----

static LLVMValueRef total_slot(RowKernel *k, const Columns *columns, unsigned i) {
  return emit_offset(k->e, columns->totals[i],
                     emit_mul(k->e, emit_sub(k->e, k->column, k->first), emit_i64(k->e, (int64_t)sizeof(double))));
}

static void clear_totals(RowKernel *k, void *context, LLVMValueRef *unused) {
  (void)unused;
  const Columns *columns = context;
  for (unsigned i = 0; i < columns->pass->reducer->n_state; i++)
    emit_store(k->e, LLVMConstNull(lanes_type(k->e->f64)), total_slot(k, columns, i), 64);
}

static void add_to_totals(RowKernel *k, void *context, LLVMValueRef *unused) {
  (void)unused;
  const Columns *columns = context;
  LLVMValueRef state[REDUCER_MAX_STATE];
  combine_lanes(k, columns, 0, 1, state);
  for (unsigned i = 0; i < columns->pass->reducer->n_state; i++) {
    LLVMValueRef place = total_slot(k, columns, i), total = emit_load(k->e, lanes_type(k->e->f64), place, 64);
    emit_store(k->e, add_chain(k->e, total, state[i]), place, 64);
  }
}

/* Lane 0 gets the total, which is never -0, and the others nothing: so the numbers come from lanes here, too. */
static void totals_to_lanes(RowKernel *k, void *context, LLVMValueRef *unused) {
  (void)unused;
  Columns *columns = context;
  Emitter *e = k->e;
  const Reducer *reducer = columns->pass->reducer;
  LLVMValueRef state[REDUCER_MAX_STATE];
  for (unsigned lane = 0; lane < LANES; lane++) {
    columns->lane = emit_i64(e, lane);
    reducer_begin(e, reducer, state);
    for (unsigned i = 0; lane == 0 && i < reducer->n_state; i++) {
      LLVMValueRef total = emit_load(e, lanes_type(e->f64), total_slot(k, columns, i), 64);
      state[i] = LLVMBuildFPTrunc(e->builder, total, lanes_type(e->f32), "");
    }
    store_state(k, columns, 0, state);
  }
}

/* Where all rows are one chain, its lanes are left as they are. */
static void reduce_chains_of_rows(RowKernel *k, Columns *columns) {
  Emitter *e = k->e;
  LLVMValueRef zero = emit_i64(e, 0), is_long = row_line_is_long(k);
  If first = if_begin(e, is_long);
  row_walk(k, 1, clear_totals, columns, 0, NULL);
  if_end(e, &first);
  LLVMValueRef none = emit_icmp(e, LLVMIntEQ, k->rows, zero);
  Loop chains = loop_begin(e, zero, emit_select(e, none, emit_i64(e, 1), k->rows), TFM_ROW_CHAIN);
  LLVMValueRef end = emit_add(e, chains.index, emit_i64(e, TFM_ROW_CHAIN));
  reduce_rows(k, columns, chains.index, emit_least(e, k->rows, end));
  If each = if_begin(e, is_long);
  row_walk(k, 1, add_to_totals, columns, 0, NULL);
  if_end(e, &each);
  loop_end(e, &chains);
  If last = if_begin(e, is_long);
  row_walk(k, 1, totals_to_lanes, columns, 0, NULL);
  if_end(e, &last);
}

static void pass_along_columns(RowKernel *k, Columns *columns) {
  LLVMValueRef zero = emit_i64(k->e, 0);
  if (!columns->pass->reducer) {
    pass_rows(k, columns, zero, k->rows, 1);
    return;
  }
  if (has_chains(k, columns->pass->reducer)) reduce_chains_of_rows(k, columns);
  else reduce_rows(k, columns, zero, k->rows);
  row_begin(k, zero);
  row_walk(k, 1, number_body, columns, 0, NULL);
}

/* Of all passes. */
static unsigned most_state(const LinePass *passes) {
  unsigned most = passes->reducer->n_state;
  while (!is_last(passes++))
    if (passes->reducer && passes->reducer->n_state > most) most = passes->reducer->n_state;
  return most;
}

static void lines_along_columns(RowKernel *k, const LinePass *passes) {
  Emitter *e = k->e;
  const unsigned n_state = most_state(passes), together = COLUMNS_TOGETHER / n_state;
  Columns columns = {.pass = passes, .together = together, .n_numbers = line_numbers(passes)};
  for (unsigned i = 0; i < n_state; i++) /* values of 4 bytes, whichever reducer has them */
    columns.stacks[i] = emit_stack(e, LLVMArrayType2(lanes_type(e->f32), together), 64);
  for (unsigned i = 0; i < n_state && k->has_chains; i++)
    columns.totals[i] = emit_stack(e, LLVMArrayType2(e->f64, together), 64);
  for (unsigned i = 0; i < columns.n_numbers; i++)
    columns.numbers[i] = emit_stack(e, LLVMArrayType2(e->f32, together), 64);
  LLVMValueRef all = k->columns;
  Loop pieces = loop_begin(e, emit_i64(e, 0), all, together);
  k->first = pieces.index;
  k->columns = emit_least(e, all, emit_add(e, pieces.index, emit_i64(e, together)));
  do pass_along_columns(k, &columns);
  while (!is_last(columns.pass++));
  loop_end(e, &pieces);
}

void row_lines(RowKernel *k, const LinePass *passes) {
  if (is_along_rows(k)) lines_along_columns(k, passes);
  else lines_along_rows(k, passes);
}

// ---- values for several passes ----

/* An expression that is a mere operand is read again in later passes; anything else is stored in the result's row, so
 * that it is computed once. */
Lanes row_first_value(RowKernel *k, const Lanes *values) {
  (void)values;
  Lanes x = row_values(k);
  if (!is_operand(k)) row_store(k, x);
  return x;
}

Lanes row_value_again(RowKernel *k) { return is_operand(k) ? row_values(k) : row_load(k, 0); }
