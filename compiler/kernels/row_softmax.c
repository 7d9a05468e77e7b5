/* SOFTMAX LOG_SOFTMAX: in: lines of the expression. Out: the same shape. Three passes: the maximum (the values are left
 * in the result), the sum of exp(x - maximum), the result. A line of -inf gives zeros (log: NaN); a NaN or +inf in a
 * line makes it NaN. */
#include "codegen/math.h"
#include "kernels/row_line.h"

enum { MAXIMUM, FACTOR }; /* the values handed to passes; FACTOR: 1 / sum, or log sum */

static Lanes power(RowKernel *k, const Lanes *values) {
  Lanes x = math_exp_nonpositive(k->e, lanes_sub(k->e, row_value_again(k), values[MAXIMUM]));
  row_store(k, x);
  return x;
}

static Lanes scaled(RowKernel *k, const Lanes *values) {
  Lanes x = lanes_mul(k->e, row_load(k, 0), values[FACTOR]);
  row_store(k, x);
  return x;
}

static Lanes log_power(RowKernel *k, const Lanes *values) {
  return math_exp_nonpositive(k->e, lanes_sub(k->e, row_value_again(k), values[MAXIMUM]));
}

static Lanes shifted(RowKernel *k, const Lanes *values) {
  Lanes x = lanes_sub(k->e, lanes_sub(k->e, row_value_again(k), values[MAXIMUM]), values[FACTOR]);
  row_store(k, x);
  return x;
}

/* -inf is no shift: its line would be NaN instead of exp(-inf) = 0. */
static Lanes finite_shift(Emitter *e, Lanes maximum) {
  Lanes least = lanes_number(e, -__builtin_inf());
  Lanes is_least = lanes_compare(e, LLVMRealOEQ, maximum, least);
  return lanes_same(lanes_select(e, is_least, lanes_number(e, 0), maximum).v[0]);
}

static Lanes reciprocal_or_zero(Emitter *e, Lanes sum) {
  Lanes zero = lanes_number(e, 0);
  Lanes none = lanes_compare(e, LLVMRealOEQ, sum, zero);
  return lanes_same(lanes_select(e, none, zero, lanes_div(e, lanes_number(e, 1), sum)).v[0]);
}

static void softmax_line(RowKernel *k) {
  Emitter *e = k->e;
  LLVMValueRef state[REDUCER_MAX_STATE];
  row_pass(k, &reducer_number_max, row_first_value, NULL, state);
  Lanes values[2] = {[MAXIMUM] = finite_shift(e, lanes_same(state[0]))};
  row_pass(k, &reducer_sum, power, values, state);
  values[FACTOR] = reciprocal_or_zero(e, lanes_same(state[0]));
  row_pass(k, NULL, scaled, values, NULL);
}

static void log_softmax_line(RowKernel *k) {
  LLVMValueRef state[REDUCER_MAX_STATE];
  row_pass(k, &reducer_number_max, row_first_value, NULL, state);
  Lanes values[2] = {[MAXIMUM] = lanes_same(state[0])};
  row_pass(k, &reducer_sum, log_power, values, state);
  values[FACTOR] = lanes_same(math_log(k->e, lanes_same(state[0])).v[0]);
  row_pass(k, NULL, shifted, values, NULL);
}

void emit_row_softmax(RowKernel *k) {
  row_lines(k, k->spec->reduction == OP_SOFTMAX ? softmax_line : log_softmax_line);
}
