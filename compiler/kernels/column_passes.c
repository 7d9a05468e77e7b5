/* In: passes of a reduction whose lines are columns. Out: loops over rows that reduce many columns side by side, with
 * the bits that rows of the same numbers have. See line_passes.h. Refuses nothing. */
#include "kernels/line_passes.h"

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
  RowKernel rows[COLUMN_ROWS];              /* which stand in them */
} Columns;

/* Of vector `v` of the walk, in line `lane` of the array. */
static LLVMValueRef slot(RowKernel *k, const Columns *columns, LLVMValueRef array, LLVMValueRef lane, unsigned v) {
  Emitter *e = k->e;
  LLVMValueRef column = emit_add(e, emit_sub(e, k->column, k->first), emit_i64(e, (int64_t)v * LANES));
  LLVMValueRef at = emit_add(e, emit_mul(e, lane, emit_i64(e, columns->together)), column);
  return emit_offset(e, array, emit_mul(e, at, emit_i64(e, 4)));
}

/* Over the columns of the arrays alone, which have room for whole vectors. */
static void walk_arrays(RowKernel *k, Columns *columns, void (*body)(RowKernel *, void *, LLVMValueRef *)) {
  row_walk_beyond(k, (RowWalk){.body = body, .context = columns});
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
      found = LLVMBuildOr(e->builder, found, LLVMBuildFCmp(e->builder, LLVMRealUNO, x[r].v[v], x[r + 1].v[v], ""), "");
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
  const bool by_numbers = reducer->number_step && columns->n_rows == COLUMN_ROWS;
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
  Lanes values[LINE_NUMBERS], x[COLUMN_ROWS];
  LLVMValueRef index[COLUMN_ROWS];
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
  row_walk(k, row_unroll(k), (RowWalk){.body = column_body, .context = columns});
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

/* Lanes `first` to `end`, counted from `before`, get nothing. */
static void fill_lanes(RowKernel *k, Columns *columns, LLVMValueRef before, LLVMValueRef first, LLVMValueRef end) {
  Loop lanes = loop_begin(k->e, first, end, 1);
  columns->lane = emit_sub(k->e, lanes.index, before);
  walk_arrays(k, columns, fill_body);
  loop_end(k->e, &lanes);
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
  if (line_is_operand(k)) {
    LLVMValueRef all = emit_add(e, begin, emit_i64(e, COLUMN_ROWS * LANES));
    together = pass_rows(k, columns, begin, emit_least(e, end, all), COLUMN_ROWS);
  }
  LLVMValueRef lanes_end = emit_add(e, begin, emit_i64(e, LANES)), few = emit_least(e, end, lanes_end);
  LLVMValueRef begun = emit_select(e, emit_icmp(e, LLVMIntUGT, together, few), together, few);
  pass_rows(k, columns, together, begun, 1);
  columns->is_first = false;
  fill_lanes(k, columns, begin, begun, lanes_end);
  return begun;
}

/* The rows from `begin`, the first of a chain, to `end` into the 16 lanes. */
static void reduce_rows(RowKernel *k, Columns *columns, LLVMValueRef begin, LLVMValueRef end) {
  LLVMValueRef row = begin_lanes(k, columns, begin, end);
  if (line_is_operand(k)) row = pass_rows(k, columns, row, end, COLUMN_ROWS);
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
    emit_store(k->e, line_add_chain(k->e, total, state[i]), place, 64);
  }
}

static void total_body(RowKernel *k, void *context, LLVMValueRef *unused) {
  (void)unused;
  const Columns *columns = context;
  Emitter *e = k->e;
  LLVMValueRef state[REDUCER_MAX_STATE];
  for (unsigned i = 0; i < columns->pass->reducer->n_state; i++) {
    LLVMValueRef total = emit_load(e, lanes_type(e->f64), total_slot(k, columns, i), 64);
    state[i] = LLVMBuildFPTrunc(e->builder, total, lanes_type(e->f32), "");
  }
  store_state(k, columns, 0, state);
}

/* Lane 0 gets the total, which is never -0, and the others nothing: so the numbers come from lanes here, too. */
static void totals_to_lanes(RowKernel *k, Columns *columns) {
  LLVMValueRef zero = emit_i64(k->e, 0);
  columns->lane = zero;
  walk_arrays(k, columns, total_body);
  fill_lanes(k, columns, zero, emit_i64(k->e, 1), emit_i64(k->e, LANES));
}

/* Where all rows are one chain, its lanes are left as they are. */
static void reduce_chains_of_rows(RowKernel *k, Columns *columns) {
  Emitter *e = k->e;
  LLVMValueRef zero = emit_i64(e, 0), is_long = row_line_is_long(k);
  If first = if_begin(e, is_long);
  walk_arrays(k, columns, clear_totals);
  if_end(e, &first);
  LLVMValueRef none = emit_icmp(e, LLVMIntEQ, k->rows, zero);
  Loop chains = loop_begin(e, zero, emit_select(e, none, emit_i64(e, 1), k->rows), TFM_ROW_CHAIN);
  LLVMValueRef end = emit_add(e, chains.index, emit_i64(e, TFM_ROW_CHAIN));
  reduce_rows(k, columns, chains.index, emit_least(e, k->rows, end));
  If each = if_begin(e, is_long);
  walk_arrays(k, columns, add_to_totals);
  if_end(e, &each);
  loop_end(e, &chains);
  If last = if_begin(e, is_long);
  totals_to_lanes(k, columns);
  if_end(e, &last);
}

static void pass_along_columns(RowKernel *k, Columns *columns) {
  LLVMValueRef zero = emit_i64(k->e, 0);
  if (!columns->pass->reducer) {
    pass_rows(k, columns, zero, k->rows, 1);
    return;
  }
  if (line_has_chains(k, columns->pass->reducer)) reduce_chains_of_rows(k, columns);
  else reduce_rows(k, columns, zero, k->rows);
  row_begin(k, zero);
  row_walk(k, 1, (RowWalk){.body = number_body, .context = columns});
}

/* Of all passes. */
static unsigned most_state(const LinePass *passes) {
  unsigned most = passes->reducer->n_state;
  while (!line_is_last(passes++))
    if (passes->reducer && passes->reducer->n_state > most) most = passes->reducer->n_state;
  return most;
}

/* Reducers of two numbers (argmax) take half as many columns together: their sums take as much of the stack. */
void column_lines(RowKernel *k, const LinePass *passes) {
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
  while (!line_is_last(columns.pass++));
  loop_end(e, &pieces);
}
