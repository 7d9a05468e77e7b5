/* SUM MEAN MAX MIN ARGMAX: one number per line. In: lines of the expression. Out: the result's element of each line. */
#include "base/check.h"
#include "kernels/row_line.h"

static const Reducer *reducer_of(OpKind reduction) {
  switch (reduction) {
    case OP_SUM:
    case OP_MEAN: return &reducer_sum;
    case OP_MAX: return &reducer_max;
    case OP_MIN: return &reducer_min;
    case OP_ARGMAX: return &reducer_argmax;
    default: UNREACHABLE("reduction %d", reduction);
  }
}

static Lanes element(RowKernel *k, const Lanes *values) {
  (void)values;
  return row_values(k);
}

/* The lowest index that any element had; 0 of a line without elements. */
static LLVMValueRef index_of(Emitter *e, LLVMValueRef index) {
  LLVMValueRef untouched = emit_splat(e, emit_i32(e, INT32_MAX), LANES), zero = emit_splat(e, emit_i32(e, 0), LANES);
  return LLVMBuildSelect(e->builder, emit_icmp(e, LLVMIntEQ, index, untouched), zero, index, "");
}

static void reduce_line(RowKernel *k) {
  Emitter *e = k->e;
  LLVMValueRef state[REDUCER_MAX_STATE];
  row_pass(k, reducer_of(k->spec->reduction), element, NULL, state);
  LLVMValueRef result = k->spec->reduction == OP_ARGMAX ? index_of(e, state[1]) : state[0];
  if (k->spec->reduction == OP_MEAN) result = LLVMBuildFDiv(e->builder, result, row_line_length(k), "");
  if (k->spec->reduce == 2) {
    row_begin(k, emit_i64(e, 0));
    row_store(k, lanes_same(result));
  } else {
    row_store_scalar(k, LLVMBuildExtractElement(e->builder, result, emit_i32(e, 0), ""));
  }
}

void emit_row_reduction(RowKernel *k) { row_lines(k, reduce_line); }
