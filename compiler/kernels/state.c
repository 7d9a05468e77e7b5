/* STATE: the steps of a block of columns of a state (tfm_state_kernel).
 *
 * In: whether it fades, and what a step takes out before it writes. Out: a function. The state is walked once for each
 * step: with what a step takes out, the walk that writes step t and reads it by the query also fades the state for step
 * t + 1 and reads it by its key. Order and rounding of every element are those of one step after the other. Refuses
 * nothing. */
#include <stddef.h>

#include "codegen/vector.h"
#include "kernels/emit.h"

enum { STATE_VECTORS = TFM_STATE_COLUMNS / LANES };

typedef struct StateKernel {
  Emitter *e;
  const KernelSpec *spec;
  LLVMValueRef args, state, n, q_row, k_row, decay_row;
  LLVMValueRef masks[STATE_VECTORS]; /* of the columns that there are */
} StateKernel;

typedef struct Rows { /* of a state in memory */
  LLVMValueRef base, bytes; /* from row to row */
  unsigned align;
} Rows;

typedef struct Walk { /* over the rows of the state; what a walk does not do is NULL, and u is not read */
  Rows from, to;
  LLVMValueRef q, k_write; /* of the step that writes */
  Lanes u;
  LLVMValueRef k_read, decay; /* of the step that reads next */
} Walk;

#define ARG(kernel, member, type) \
  emit_load((kernel)->e, (kernel)->e->type, emit_offset((kernel)->e, (kernel)->args, \
            emit_i64((kernel)->e, (int64_t)offsetof(tfm_state_args, member))), 8)

static LLVMValueRef at_step(StateKernel *s, LLVMValueRef base, LLVMValueRef step_bytes, LLVMValueRef t) {
  return emit_offset(s->e, base, emit_mul(s->e, step_bytes, t));
}

static LLVMValueRef vector_at(StateKernel *s, LLVMValueRef base, unsigned i) {
  return emit_offset(s->e, base, emit_i64(s->e, (int64_t)(i * LANES * sizeof(float))));
}

static Lanes load_columns(StateKernel *s, LLVMValueRef base) {
  Lanes x;
  for (unsigned i = 0; i < STATE_VECTORS; i++)
    x.v[i] = emit_load_masked(s->e, lanes_type(s->e->f32), vector_at(s, base, i), s->masks[i], 4);
  return x;
}

static void store_columns(StateKernel *s, LLVMValueRef base, Lanes x) {
  for (unsigned i = 0; i < STATE_VECTORS; i++)
    emit_store_masked(s->e, x.v[i], vector_at(s, base, i), s->masks[i], 4);
}

/* The number that row i takes, in all lanes. */
static Lanes number_of_row(StateKernel *s, LLVMValueRef base, LLVMValueRef row_bytes, LLVMValueRef i) {
  LLVMValueRef at = emit_offset(s->e, base, emit_mul(s->e, row_bytes, i));
  return lanes_splat(s->e, emit_load(s->e, s->e->f32, at, 4));
}

/* Rows of the state in scratch, which are aligned. */
static Rows scratch_rows(StateKernel *s) {
  return (Rows){s->state, emit_i64(s->e, TFM_STATE_COLUMNS * sizeof(float)), 64};
}

/* Walks the rows; gives what the query reads in `y` and what the next key reads in `r`. */
static void emit_walk(StateKernel *s, const Walk *walk, Lanes *y, Lanes *r) {
  Emitter *e = s->e;
  Loop rows = loop_begin(e, emit_i64(e, 0), s->n, 1);
  Lanes row, sums[2];
  for (unsigned i = 0; i < 2 * STATE_VECTORS; i++)
    sums[i / STATE_VECTORS].v[i % STATE_VECTORS] = loop_carry(e, &rows, LLVMConstNull(lanes_type(e->f32)));
  LLVMValueRef at = emit_offset(e, walk->from.base, emit_mul(e, rows.index, walk->from.bytes));
  LLVMValueRef to = emit_offset(e, walk->to.base, emit_mul(e, rows.index, walk->to.bytes));
  for (unsigned i = 0; i < STATE_VECTORS; i++)
    row.v[i] = emit_load(e, lanes_type(e->f32), vector_at(s, at, i), walk->from.align);
  if (walk->q) {
    row = lanes_fma(e, number_of_row(s, walk->k_write, s->k_row, rows.index), walk->u, row);
    sums[0] = lanes_fma(e, number_of_row(s, walk->q, s->q_row, rows.index), row, sums[0]);
  }
  if (walk->decay) row = lanes_mul(e, number_of_row(s, walk->decay, s->decay_row, rows.index), row);
  if (walk->k_read) sums[1] = lanes_fma(e, number_of_row(s, walk->k_read, s->k_row, rows.index), row, sums[1]);
  for (unsigned i = 0; i < STATE_VECTORS; i++) emit_store(e, row.v[i], vector_at(s, to, i), walk->to.align);
  for (unsigned i = 0; i < 2 * STATE_VECTORS; i++)
    loop_next(&rows, i, sums[i / STATE_VECTORS].v[i % STATE_VECTORS]);
  loop_end(e, &rows);
  for (unsigned i = 0; i < STATE_VECTORS; i++) y->v[i] = rows.results[i], r->v[i] = rows.results[STATE_VECTORS + i];
}

/* What a step writes; `r`: what its key reads. */
static Lanes emit_written(StateKernel *s, LLVMValueRef t, Lanes r) {
  Lanes v = load_columns(s, at_step(s, ARG(s, v, pointer), ARG(s, v_step, i64), t));
  if (s->spec->beta == TFM_BETA_NONE) return v;
  LLVMValueRef at = at_step(s, ARG(s, beta, pointer), ARG(s, beta_step, i64), t);
  Lanes beta = s->spec->beta == TFM_BETA_EACH ? load_columns(s, at)
                                              : lanes_splat(s->e, emit_load(s->e, s->e->f32, at, 4));
  return lanes_mul(s->e, beta, lanes_sub(s->e, v, r));
}

static LLVMValueRef k_at(StateKernel *s, LLVMValueRef t) {
  return at_step(s, ARG(s, k, pointer), ARG(s, k_step, i64), t);
}

static LLVMValueRef decay_at(StateKernel *s, LLVMValueRef t) {
  return s->spec->fades ? at_step(s, ARG(s, decay, pointer), ARG(s, decay_step, i64), t) : NULL;
}

/* Writes step t and gives its result; fades and reads for step `next` in the same walk, unless that is NULL. */
static void emit_step(StateKernel *s, LLVMValueRef t, LLVMValueRef next, Lanes *r) {
  Lanes y;
  Walk walk = {.q = at_step(s, ARG(s, q, pointer), ARG(s, q_step, i64), t), .k_write = k_at(s, t),
               .u = emit_written(s, t, *r), .from = scratch_rows(s), .k_read = next ? k_at(s, next) : NULL,
               .decay = next ? decay_at(s, next) : NULL,
               .to = next ? scratch_rows(s) : (Rows){ARG(s, out, pointer), ARG(s, out_row, i64), 4}};
  emit_walk(s, &walk, &y, r);
  store_columns(s, at_step(s, ARG(s, y, pointer), ARG(s, y_step, i64), t), y);
}

/* Before the first step the state fades and is read by its key; behind the last one neither. */
static void emit_steps(StateKernel *s) {
  Emitter *e = s->e;
  LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1), last = emit_sub(e, ARG(s, steps, i64), one);
  Lanes r, unused;
  const Walk first = {.from = {ARG(s, in, pointer), ARG(s, in_row, i64), 4}, .to = scratch_rows(s),
                      .k_read = k_at(s, zero), .decay = decay_at(s, zero)};
  emit_walk(s, &first, &unused, &r);
  Loop steps = loop_begin(e, zero, last, 1);
  for (unsigned i = 0; i < STATE_VECTORS; i++) r.v[i] = loop_carry(e, &steps, r.v[i]);
  emit_step(s, steps.index, emit_add(e, steps.index, one), &r);
  for (unsigned i = 0; i < STATE_VECTORS; i++) loop_next(&steps, i, r.v[i]);
  loop_end(e, &steps);
  for (unsigned i = 0; i < STATE_VECTORS; i++) r.v[i] = steps.results[i];
  emit_step(s, last, NULL, &r);
}

void emit_STATE(Emitter *e, const KernelSpec *spec, const char *name) {
  LLVMValueRef function = emit_kernel(e, KERNEL_STATE, name);
  emit_parameter_readonly(e, 0);
  StateKernel s = {.e = e, .spec = spec, .args = LLVMGetParam(function, 0)};
  e->n_vectors = STATE_VECTORS;
  s.state = ARG(&s, state, pointer), s.n = ARG(&s, n, i64);
  s.q_row = ARG(&s, q_row, i64), s.k_row = ARG(&s, k_row, i64), s.decay_row = ARG(&s, decay_row, i64);
  LLVMValueRef columns = LLVMBuildTrunc(e->builder, ARG(&s, columns, i64), e->i32, "");
  for (unsigned i = 0; i < STATE_VECTORS; i++) {
    LLVMValueRef left = LLVMBuildSub(e->builder, columns, emit_i32(e, i * LANES), "");
    s.masks[i] = emit_icmp(e, LLVMIntSLT, emit_ramp(e, LANES), emit_splat(e, left, LANES));
  }
  emit_steps(&s);
  LLVMBuildRetVoid(e->builder);
}
