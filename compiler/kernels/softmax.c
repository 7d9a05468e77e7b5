/* SOFTMAX and FINITE: what attention does to its scores and values beside products.
 *
 * SOFTMAX works in place on one block of keys of a strip of scores. In: rows x columns scores, and for every row the
 * maximum and the sum of the blocks before. Out: exp(score - new maximum), with zeros in the columns up to the next
 * multiple of 16, which the tiles of p v read; the new maximum and sum; the factor for what the row has accumulated so
 * far. NaN and +inf make the sum NaN, and with it the row. A block of -inf changes nothing: that is why skipping
 * masked blocks is exact.
 *
 * Weighed, for values in whole numbers, it leaves each power times the scale of its value, and behind the strip's
 * columns the greatest of them for WEIGH: both take no pass of their own.
 * In steps of training powers below 2^-100 are 0 (drops_small).
 *
 * FINITE tells whether all numbers of a matrix are finite. In: a matrix. Out: 1 or 0. If the values of attention are
 * finite, a probability of 0 contributes exactly 0 and plain tiles may be used; if not, exact tiles look at every
 * probability.
 *
 * Neither refuses anything. */
#include "codegen/emitter.h"
#include "codegen/math.h"
#include "codegen/vector.h"
#include "kernels/emit.h"
#include "kernels/reducer.h"

enum { ARG_STRIP, ARG_ROWS, ARG_COLUMNS, ARG_MAXIMUM, ARG_SUM, ARG_SCALE, N_ARGS };

typedef struct Strip {
  Emitter *e;
  LLVMValueRef args[N_ARGS];
  LLVMValueRef row;    /* its first score */
  LLVMValueRef column; /* of the vectors at hand */
  bool cut;            /* whether the last of them may reach beyond the columns */
  LLVMValueRef scales; /* of values; NULL: powers stay as they are */
  bool drops_small;
  LLVMValueRef before, maximum, sum, scale; /* on the stack, one number per row of the strip */
} Strip;

static LLVMValueRef pointer_to(Emitter *e, LLVMValueRef base, LLVMValueRef index, int64_t more) {
  return emit_offset(e, base, emit_mul(e, emit_add(e, index, emit_i64(e, more)), emit_i64(e, 4)));
}

/* The scores of the vectors at hand; -inf beyond the columns, whose power is 0. The strip has room for whole vectors
 * (TFM_STRIP_STRIDE), so loads need no mask. */
static Lanes load_scores(Strip *s) {
  Emitter *e = s->e;
  Lanes x = {{NULL}};
  for (unsigned v = 0; v < e->n_vectors; v++)
    x.v[v] = emit_load(e, lanes_type(e->f32), pointer_to(e, s->row, s->column, (int64_t)v * LANES), 4);
  if (!s->cut) return x;
  LLVMValueRef left = LLVMBuildTrunc(e->builder, emit_sub(e, s->args[ARG_COLUMNS], s->column), e->i32, "");
  LLVMValueRef inside = emit_icmp(e, LLVMIntSLT, emit_ramp(e, LANES), emit_splat(e, left, LANES));
  return lanes_select(e, lanes_same(inside), x, lanes_number(e, -__builtin_inf()));
}

static void store_scores(Strip *s, Lanes x) {
  for (unsigned v = 0; v < s->e->n_vectors; v++)
    emit_store(s->e, x.v[v], pointer_to(s->e, s->row, s->column, (int64_t)v * LANES), 4);
}

/* What a pass over a row gathers: maximum or sum, and of weighed powers the bits of the greatest. */
enum { GATHERED, GREATEST, MOST_GATHERED };

typedef void (*Visit)(Strip *s, LLVMValueRef *state, Lanes shift);

/* Visits the row: several vectors at once, then one by one, of which the last is cut. */
static void visit_row(Strip *s, unsigned unroll, Visit visit, LLVMValueRef *state, unsigned n_state, Lanes shift) {
  Emitter *e = s->e;
  LLVMValueRef column = emit_i64(e, 0);
  for (unsigned part = 0; part < 2; part++) {
    unsigned n = part == 0 ? unroll : 1;
    LLVMValueRef end = emit_sub(e, s->args[ARG_COLUMNS], emit_i64(e, part == 0 ? (int64_t)n * LANES - 1 : 0));
    Loop loop = loop_begin(e, column, end, (int64_t)n * LANES);
    for (unsigned i = 0; i < n_state; i++) state[i] = loop_carry(e, &loop, state[i]);
    e->n_vectors = n;
    s->column = loop.index;
    s->cut = part == 1;
    visit(s, state, shift);
    for (unsigned i = 0; i < n_state; i++) loop_next(&loop, i, state[i]);
    loop_end(e, &loop);
    for (unsigned i = 0; i < n_state; i++) state[i] = loop.results[i];
    column = loop.last;
  }
  e->n_vectors = 1;
}

static void visit_maximum(Strip *s, LLVMValueRef *state, Lanes shift) {
  (void)shift;
  Lanes x = load_scores(s);
  for (unsigned v = 0; v < s->e->n_vectors; v++) reducer_number_max.step(s->e, state, x.v[v], NULL);
}

static Lanes power_of(const Strip *s, Lanes x) {
  return (s->drops_small ? math_exp_dropping : math_exp_nonpositive)(s->e, x);
}

static void visit_power(Strip *s, LLVMValueRef *state, Lanes shift) {
  Lanes x = power_of(s, lanes_sub(s->e, load_scores(s), shift));
  store_scores(s, x);
  for (unsigned v = 0; v < s->e->n_vectors; v++) reducer_sum.step(s->e, state, x.v[v], NULL);
}

/* Products are not negative, so the greatest has the greatest bits, and those of NaN are greater, whatever its sign. */
static void visit_weighed_power(Strip *s, LLVMValueRef *state, Lanes shift) {
  Emitter *e = s->e;
  LLVMTypeRef vector = lanes_type(e->f32), whole = lanes_type(e->i32);
  Lanes x = power_of(s, lanes_sub(e, load_scores(s), shift)), y = x;
  for (unsigned v = 0; v < e->n_vectors; v++) {
    LLVMValueRef scale = emit_load(e, vector, pointer_to(e, s->scales, s->column, (int64_t)v * LANES), 4);
    y.v[v] = emit_weighed(e, x.v[v], scale);
    LLVMValueRef bits = LLVMBuildBitCast(e->builder, y.v[v], whole, "");
    state[GREATEST] = emit_intrinsic(e, "llvm.umax", whole, 2, (LLVMValueRef[]){state[GREATEST], bits});
  }
  store_scores(s, y);
  for (unsigned v = 0; v < e->n_vectors; v++) reducer_sum.step(e, &state[GATHERED], x.v[v], NULL);
}

static LLVMValueRef reduce_row(Strip *s, const Reducer *reducer, Visit visit, Lanes shift) {
  Emitter *e = s->e;
  LLVMValueRef state[MOST_GATHERED] = {NULL, LLVMConstNull(lanes_type(e->i32))};
  const bool is_weighed = visit == visit_weighed_power;
  reducer_begin(e, reducer, state);
  visit_row(s, e->target->softmax_unroll, visit, state, is_weighed ? 2 : 1, shift);
  reducer_tree(e, reducer, state);
  if (is_weighed) {
    LLVMValueRef bits = emit_intrinsic(e, "llvm.vector.reduce.umax", lanes_type(e->i32), 1, &state[GREATEST]);
    emit_store(e, bits, emit_offset(e, s->row, emit_i64(e, TFM_STRIP_GREATEST * 4)), 4);
  }
  return state[GATHERED];
}

static LLVMValueRef row_of(Strip *s, LLVMValueRef row) {
  return pointer_to(s->e, s->args[ARG_STRIP], emit_mul(s->e, row, emit_i64(s->e, TFM_STRIP_STRIDE)), 0);
}

static LLVMValueRef load_number(Emitter *e, LLVMValueRef numbers, LLVMValueRef row) {
  return emit_load(e, e->f32, pointer_to(e, numbers, row, 0), 4);
}

static void store_number(Emitter *e, LLVMValueRef number, LLVMValueRef numbers, LLVMValueRef row) {
  emit_store(e, number, pointer_to(e, numbers, row, 0), 4);
}

// ---- the passes: maxima of all rows, then powers of all rows, then the states of all rows in one vector ----

static void emit_maximum(Strip *s, LLVMValueRef row) {
  Emitter *e = s->e;
  LLVMValueRef before = load_number(e, s->args[ARG_MAXIMUM], row);
  s->row = row_of(s, row);
  LLVMValueRef maximum = reduce_row(s, &reducer_number_max, visit_maximum, (Lanes){{NULL}});
  reducer_number_max.combine(e, &maximum, &before);
  store_number(e, before, s->before, row);
  store_number(e, maximum, s->maximum, row);
}

/* A row whose maximum is -inf has no key so far. Its shift is 0, since -inf - -inf would be NaN where the weight must
 * be 0. */
static void emit_powers(Strip *s, LLVMValueRef row) {
  Emitter *e = s->e;
  LLVMValueRef maximum = load_number(e, s->maximum, row), least = emit_f32(e, -__builtin_inf());
  LLVMValueRef none = LLVMBuildFCmp(e->builder, LLVMRealOEQ, maximum, least, "");
  LLVMValueRef shift = emit_select(e, none, emit_f32(e, 0), maximum);
  s->row = row_of(s, row);
  Visit visit = s->scales ? visit_weighed_power : visit_power;
  store_number(e, reduce_row(s, &reducer_sum, visit, lanes_splat(e, shift)), s->sum, row);
}

/* exp(before - maximum): what the rows have accumulated so far is multiplied by it. 1 where the two are equal, which
 * both being -inf is too. */
static void emit_scales(Strip *s) {
  Emitter *e = s->e;
  LLVMTypeRef vector = lanes_type(e->f32);
  Lanes before = lanes_same(emit_load(e, vector, s->before, 64));
  Lanes maximum = lanes_same(emit_load(e, vector, s->maximum, 64));
  Lanes same = lanes_compare(e, LLVMRealOEQ, before, maximum);
  Lanes power = power_of(s, lanes_sub(e, before, maximum));
  emit_store(e, lanes_select(e, same, lanes_number(e, 1), power).v[0], s->scale, 64);
}

static void emit_state(Strip *s, LLVMValueRef row) {
  Emitter *e = s->e;
  LLVMValueRef scale = load_number(e, s->scale, row), before = load_number(e, s->args[ARG_SUM], row);
  store_number(e, load_number(e, s->maximum, row), s->args[ARG_MAXIMUM], row);
  store_number(e, emit_fma(e, before, scale, load_number(e, s->sum, row)), s->args[ARG_SUM], row);
  store_number(e, scale, s->args[ARG_SCALE], row);
}

static void for_rows(Strip *s, void (*body)(Strip *s, LLVMValueRef row)) {
  Loop rows = loop_begin(s->e, emit_i64(s->e, 0), s->args[ARG_ROWS], 1);
  body(s, rows.index);
  loop_end(s->e, &rows);
}

/* Memory for a number per row, zeroes. */
static LLVMValueRef numbers_of_rows(Emitter *e) {
  _Static_assert((int)TFM_MAX_TILE_ROWS <= (int)LANES, "the rows of a strip fit into one vector");
  LLVMValueRef numbers = emit_stack(e, lanes_type(e->f32), 64);
  emit_store(e, LLVMConstNull(lanes_type(e->f32)), numbers, 64);
  return numbers;
}

void emit_SOFTMAX(Emitter *e, const KernelSpec *spec, const char *name) {
  Strip s = {.e = e, .drops_small = spec->drops_small};
  LLVMValueRef function = emit_kernel(e, KERNEL_SOFTMAX, name);
  for (unsigned i = 0; i < N_ARGS; i++) s.args[i] = LLVMGetParam(function, i);
  emit_parameter_noalias(e, ARG_STRIP), emit_parameter_noalias(e, ARG_MAXIMUM);
  emit_parameter_noalias(e, ARG_SUM), emit_parameter_noalias(e, ARG_SCALE);
  s.before = numbers_of_rows(e), s.maximum = numbers_of_rows(e);
  s.sum = numbers_of_rows(e), s.scale = numbers_of_rows(e);
  if (spec->is_weighed)
    s.scales = emit_load(e, e->pointer, emit_offset(e, s.args[ARG_STRIP], emit_i64(e, TFM_STRIP_SCALES * 4)), 8);
  for_rows(&s, emit_maximum);
  emit_scales(&s); /* before the powers, behind which its latency hides */
  for_rows(&s, emit_powers);
  for_rows(&s, emit_state);
  LLVMBuildRetVoid(e->builder);
}

// ---- finite ----

/* x - x is 0 for finite x and NaN otherwise, and a sum keeps NaN. All numbers are read without a test between them,
 * because the answer is nearly always 1. */

enum { FINITE_X, FINITE_ROW_STRIDE, FINITE_ROWS, FINITE_COLUMNS, N_FINITE_ARGS };

static LLVMValueRef number_at(Emitter *e, LLVMValueRef row, LLVMValueRef column) {
  return emit_offset(e, row, emit_mul(e, column, emit_i64(e, 4)));
}

/* Returns sum + (x - x). */
static LLVMValueRef gather_difference(Emitter *e, LLVMTypeRef type, LLVMValueRef pointer, LLVMValueRef sum) {
  LLVMValueRef x = emit_load(e, type, pointer, 4);
  return LLVMBuildFAdd(e->builder, sum, LLVMBuildFSub(e->builder, x, x, ""), "");
}

static LLVMValueRef all_zero(Emitter *e, LLVMValueRef sum) {
  return LLVMBuildFCmp(e->builder, LLVMRealOEQ, sum, LLVMConstNull(LLVMTypeOf(sum)), "");
}

void emit_FINITE(Emitter *e, const KernelSpec *spec, const char *name) {
  (void)spec;
  LLVMTypeRef vector = lanes_type(e->f32);
  LLVMValueRef function = emit_kernel(e, KERNEL_FINITE, name), args[N_FINITE_ARGS];
  emit_parameter_readonly(e, FINITE_X);
  for (unsigned i = 0; i < N_FINITE_ARGS; i++) args[i] = LLVMGetParam(function, i);
  Loop rows = loop_begin(e, emit_i64(e, 0), args[FINITE_ROWS], 1);
  LLVMValueRef vectors = loop_carry(e, &rows, LLVMConstNull(vector));
  LLVMValueRef scalars = loop_carry(e, &rows, LLVMConstNull(e->f32));
  LLVMValueRef row = number_at(e, args[FINITE_X], emit_mul(e, rows.index, args[FINITE_ROW_STRIDE]));
  LLVMValueRef end = emit_sub(e, args[FINITE_COLUMNS], emit_i64(e, LANES - 1));
  Loop whole = loop_begin(e, emit_i64(e, 0), end, LANES);
  LLVMValueRef sum = loop_carry(e, &whole, vectors);
  loop_next(&whole, 0, gather_difference(e, vector, number_at(e, row, whole.index), sum));
  loop_end(e, &whole);
  Loop rest = loop_begin(e, whole.last, args[FINITE_COLUMNS], 1);
  sum = loop_carry(e, &rest, scalars);
  loop_next(&rest, 0, gather_difference(e, e->f32, number_at(e, row, rest.index), sum));
  loop_end(e, &rest);
  loop_next(&rows, 0, whole.results[0]);
  loop_next(&rows, 1, rest.results[0]);
  loop_end(e, &rows);
  LLVMValueRef zeros = LLVMBuildBitCast(e->builder, all_zero(e, rows.results[0]), e->i16, "");
  LLVMValueRef all = emit_icmp(e, LLVMIntEQ, zeros, LLVMConstAllOnes(e->i16));
  all = LLVMBuildAnd(e->builder, all, all_zero(e, rows.results[1]), "");
  LLVMBuildRet(e->builder, LLVMBuildZExt(e->builder, all, e->i32, ""));
}
