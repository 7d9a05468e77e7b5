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

static LLVMValueRef mean(RowKernel *k, LLVMValueRef sum) {
  return LLVMBuildFDiv(k->e->builder, sum, row_line_length(k), "");
}

static Lanes factor(RowKernel *k, LLVMValueRef squares) {
  Emitter *e = k->e;
  Lanes variance = lanes_add(e, lanes_same(mean(k, squares)), lanes_number(e, k->spec->eps));
  return lanes_same(lanes_div(e, lanes_number(e, 1), lanes_sqrt(e, variance)).v[0]);
}

static void layer_norm_line(RowKernel *k) {
  LLVMValueRef state[REDUCER_MAX_STATE];
  row_pass(k, &reducer_sum, row_first_value, NULL, state);
  Lanes values[2] = {[MEAN] = lanes_same(mean(k, state[0]))};
  row_pass(k, &reducer_squares, centred, values, state);
  values[FACTOR] = factor(k, state[0]);
  row_pass(k, NULL, normal, values, NULL);
}

static void rms_norm_line(RowKernel *k) {
  LLVMValueRef state[REDUCER_MAX_STATE];
  row_pass(k, &reducer_squares, row_first_value, NULL, state);
  Lanes values[2] = {[FACTOR] = factor(k, state[0])};
  row_pass(k, NULL, rms_normal, values, NULL);
}

void emit_row_norm(RowKernel *k) {
  row_lines(k, k->spec->reduction == OP_LAYER_NORM ? layer_norm_line : rms_norm_line);
}
