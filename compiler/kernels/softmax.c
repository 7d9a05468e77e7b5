/* SOFTMAX: one block of keys of the softmax of attention, in place on a strip of scores.
 *
 * In: rows x columns scores, and per row the maximum and sum of the blocks before. Out: exp(score - new maximum), the
 * columns up to the next multiple of 16 as 0; the new maximum and sum; the factor for what the row has gathered so
 * far. NaN and +inf make the sum NaN, and with it the row. A block of -inf changes nothing. */
#include "codegen/loops.h"
#include "codegen/math.h"
#include "kernels/emit.h"
#include "kernels/reducer.h"

enum { ARG_STRIP, ARG_ROWS, ARG_COLUMNS, ARG_MAXIMUM, ARG_SUM, ARG_SCALE, N_ARGS };

typedef struct Strip {
  Emitter *e;
  LLVMValueRef args[N_ARGS];
  LLVMValueRef row;    /* its first score */
  LLVMValueRef column; /* of the vectors at hand */
  bool cut;            /* whether the last of them may reach beyond the columns */
} Strip;

static LLVMValueRef pointer_to(Emitter *e, LLVMValueRef base, LLVMValueRef index, int64_t more) {
  return emit_offset(e, base, emit_mul(e, emit_add(e, index, emit_i64(e, more)), emit_i64(e, 4)));
}

/* The scores of the vectors at hand; -inf beyond the columns. */
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

/* Visits the row: several vectors at once, then one by one, the last of which is cut. */
static LLVMValueRef visit_row(Strip *s, unsigned unroll, LLVMValueRef (*visit)(Strip *s, LLVMValueRef state, Lanes shift),
                              LLVMValueRef state, Lanes shift) {
  Emitter *e = s->e;
  LLVMValueRef column = emit_i64(e, 0);
  for (unsigned part = 0; part < 2; part++) {
    unsigned n = part == 0 ? unroll : 1;
    LLVMValueRef end = emit_sub(e, s->args[ARG_COLUMNS], emit_i64(e, part == 0 ? (int64_t)n * LANES - 1 : 0));
    Loop loop = loop_begin(e, column, end, (int64_t)n * LANES);
    state = loop_carry(e, &loop, state);
    e->n_vectors = n;
    s->column = loop.index;
    s->cut = part == 1;
    loop_next(&loop, 0, visit(s, state, shift));
    loop_end(e, &loop);
    state = loop.results[0];
    column = loop.last;
  }
  e->n_vectors = 1;
  return state;
}

static LLVMValueRef visit_maximum(Strip *s, LLVMValueRef state, Lanes shift) {
  (void)shift;
  Lanes x = load_scores(s);
  for (unsigned v = 0; v < s->e->n_vectors; v++) reducer_number_max.step(s->e, &state, x.v[v], NULL);
  return state;
}

static LLVMValueRef visit_power(Strip *s, LLVMValueRef state, Lanes shift) {
  Lanes x = math_exp_nonpositive(s->e, lanes_sub(s->e, load_scores(s), shift));
  store_scores(s, x);
  for (unsigned v = 0; v < s->e->n_vectors; v++) reducer_sum.step(s->e, &state, x.v[v], NULL);
  return state;
}

static LLVMValueRef reduce_row(Strip *s, const Reducer *reducer,
                               LLVMValueRef (*visit)(Strip *s, LLVMValueRef state, Lanes shift), Lanes shift) {
  LLVMValueRef state;
  unsigned unroll = s->e->target->vector_floats == LANES ? 4 : s->e->target->vector_floats * 2 == LANES ? 2 : 1;
  reducer_begin(s->e, reducer, &state);
  state = visit_row(s, unroll, visit, state, shift);
  reducer_tree(s->e, reducer, &state);
  return state;
}

/* exp(old - new), 1 where they are equal (both may be -inf). */
static LLVMValueRef scale_of(Emitter *e, LLVMValueRef before, LLVMValueRef maximum) {
  LLVMValueRef same = LLVMBuildFCmp(e->builder, LLVMRealOEQ, before, maximum, "");
  LLVMValueRef difference = LLVMBuildFSub(e->builder, before, maximum, "");
  LLVMValueRef power = math_exp_nonpositive(e, lanes_splat(e, difference)).v[0];
  power = LLVMBuildExtractElement(e->builder, power, emit_i32(e, 0), "");
  return emit_select(e, same, emit_f32(e, 1), power);
}

static void emit_row(Strip *s, LLVMValueRef row) {
  Emitter *e = s->e;
  LLVMValueRef least = emit_f32(e, -__builtin_inf());
  s->row = pointer_to(e, s->args[ARG_STRIP], emit_mul(e, row, emit_i64(e, TFM_STRIP_STRIDE)), 0);
  LLVMValueRef maximum_place = pointer_to(e, s->args[ARG_MAXIMUM], row, 0);
  LLVMValueRef sum_place = pointer_to(e, s->args[ARG_SUM], row, 0);
  LLVMValueRef before = emit_load(e, e->f32, maximum_place, 4);
  LLVMValueRef maximum = reduce_row(s, &reducer_number_max, visit_maximum, (Lanes){{NULL}});
  reducer_number_max.combine(e, &maximum, &before);
  LLVMValueRef none = LLVMBuildFCmp(e->builder, LLVMRealOEQ, maximum, least, "");
  LLVMValueRef shift = emit_select(e, none, emit_f32(e, 0), maximum);
  LLVMValueRef sum = reduce_row(s, &reducer_sum, visit_power, lanes_splat(e, shift));
  LLVMValueRef scale = scale_of(e, before, maximum);
  LLVMValueRef sum_before = emit_load(e, e->f32, sum_place, 4);
  emit_store(e, maximum, maximum_place, 4);
  emit_store(e, emit_fma(e, sum_before, scale, sum), sum_place, 4);
  emit_store(e, scale, pointer_to(e, s->args[ARG_SCALE], row, 0), 4);
}

void emit_SOFTMAX(Emitter *e, const KernelSpec *spec, const char *name) {
  (void)spec;
  LLVMTypeRef types[N_ARGS] = {e->pointer, e->i64, e->i64, e->pointer, e->pointer, e->pointer};
  Strip s = {.e = e};
  LLVMValueRef function = emit_function(e, name, e->nothing, N_ARGS, types);
  for (unsigned i = 0; i < N_ARGS; i++) s.args[i] = LLVMGetParam(function, i);
  emit_parameter_noalias(e, ARG_STRIP), emit_parameter_noalias(e, ARG_MAXIMUM);
  emit_parameter_noalias(e, ARG_SUM), emit_parameter_noalias(e, ARG_SCALE);
  Loop rows = loop_begin(e, emit_i64(e, 0), s.args[ARG_ROWS], 1);
  emit_row(&s, rows.index);
  loop_end(e, &rows);
  LLVMBuildRetVoid(e->builder);
}
