/* LAYER_NORM RMS_NORM: in: lines of the expression, w and b by column if there are any. Out: the same shape.
 *
 * layer norm: (x - mean) / sqrt(mean of (x - mean)^2 + eps) * w + b, the mean first, so nothing cancels.
 * rms norm:   x / sqrt(mean of x^2 + eps) * w */
#include "kernels/row_line.h"

enum { MEAN, FACTOR };

static Lanes centred(RowKernel *k, const Lanes *values) {
  return lanes_sub(k->e, row_value_again(k), values[MEAN]);
}

static Lanes finish(RowKernel *k, Lanes x, const Lanes *values) {
  Emitter *e = k->e;
  x = lanes_mul(e, x, values[FACTOR]);
  const KernelSpec *spec = k->spec;
  if (spec->weight && spec->bias) x = lanes_fma(e, x, row_load(k, spec->weight), row_load(k, spec->bias));
  else if (spec->weight) x = lanes_mul(e, x, row_load(k, spec->weight));
  else if (spec->bias) x = lanes_add(e, x, row_load(k, spec->bias));
  row_store(k, x);
  return x;
}

static Lanes normal(RowKernel *k, const Lanes *values) { return finish(k, centred(k, values), values); }

static Lanes rms_normal(RowKernel *k, const Lanes *values) { return finish(k, row_value_again(k), values); }

static Lanes mean(RowKernel *k, LLVMValueRef sum) {
  return lanes_same(LLVMBuildFDiv(k->e->builder, sum, row_line_length(k), ""));
}

static Lanes factor(RowKernel *k, LLVMValueRef squares) {
  Emitter *e = k->e;
  Lanes variance = lanes_add(e, mean(k, squares), lanes_number(e, k->spec->eps));
  return lanes_same(lanes_div(e, lanes_number(e, 1), lanes_sqrt(e, variance)).v[0]);
}

// ---- the passes ----

typedef struct NormPass {
  const Reducer *reducer; /* NULL: the pass stores results */
  RowElement element;
  unsigned yields; /* MEAN or FACTOR, from what is reduced */
} NormPass;

enum { MAX_PASSES = 3 };

static const NormPass layer_norm[MAX_PASSES] = {
    {&reducer_sum, row_first_value, MEAN}, {&reducer_squares, centred, FACTOR}, {NULL, normal, 0}};
static const NormPass rms_norm[MAX_PASSES] = {{&reducer_squares, row_first_value, FACTOR}, {NULL, rms_normal, 0}};

static const NormPass *passes_of(const RowKernel *k) {
  return k->spec->reduction == OP_LAYER_NORM ? layer_norm : rms_norm;
}

static void run_pass(RowKernel *k, const NormPass *pass, Lanes *values) {
  LLVMValueRef state[REDUCER_MAX_STATE];
  row_pass(k, pass->reducer, pass->element, values, state);
  if (!pass->reducer) return;
  values[pass->yields] = pass->yields == MEAN ? mean(k, state[0]) : factor(k, state[0]);
}

static void norm_line(RowKernel *k) {
  Lanes values[2];
  const NormPass *pass = passes_of(k);
  do run_pass(k, pass, values);
  while (pass++->reducer);
}

// ---- rows, some at a time ----

enum { ROWS = 4 }; /* each pass over one is a chain of additions: they hide each other's latencies, and stay in the cache */

typedef struct NormRows {
  LLVMValueRef first, end;
  LLVMValueRef numbers[2]; /* on the stack: MEAN and FACTOR of each row, in all lanes */
} NormRows;

static LLVMValueRef place_of(RowKernel *k, const NormRows *rows, unsigned number) {
  LLVMValueRef row = emit_sub(k->e, k->row, rows->first);
  return emit_offset(k->e, rows->numbers[number], emit_mul(k->e, row, emit_i64(k->e, LANES * 4)));
}

static void run_pass_on_rows(RowKernel *k, const NormPass *passes, unsigned n, const NormRows *rows) {
  Emitter *e = k->e;
  Lanes values[2];
  Loop loop = loop_begin(e, rows->first, rows->end, 1);
  row_begin(k, loop.index);
  for (unsigned i = 0; i < n; i++) {
    LLVMValueRef place = place_of(k, rows, passes[i].yields);
    values[passes[i].yields] = lanes_same(emit_load(e, lanes_type(e->f32), place, 64));
  }
  run_pass(k, &passes[n], values);
  if (passes[n].reducer) emit_store(e, values[passes[n].yields].v[0], place_of(k, rows, passes[n].yields), 64);
  loop_end(e, &loop);
}

static void norm_rows(RowKernel *k) {
  Emitter *e = k->e;
  const NormPass *passes = passes_of(k);
  NormRows rows;
  for (unsigned i = 0; i < 2; i++) rows.numbers[i] = emit_stack(e, LLVMArrayType2(lanes_type(e->f32), ROWS), 64);
  Loop blocks = loop_begin(e, emit_i64(e, 0), k->rows, ROWS);
  rows.first = blocks.index;
  rows.end = emit_least(e, emit_add(e, blocks.index, emit_i64(e, ROWS)), k->rows);
  unsigned n = 0;
  do run_pass_on_rows(k, passes, n, &rows);
  while (passes[n++].reducer);
  loop_end(e, &blocks);
}

void emit_row_norm(RowKernel *k) {
  if (k->spec->reduce == 2) row_lines(k, norm_line);
  else norm_rows(k);
}
