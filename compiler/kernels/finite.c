/* FINITE: whether all of rows x columns floats are finite. In: a matrix. Out: 1 or 0. All numbers are looked at: the
 * answer is nearly always 1. x - x is 0 for finite x, else NaN, and a sum keeps NaN. */
#include "codegen/emitter.h"
#include "codegen/vector.h"
#include "kernels/emit.h"

enum { ARG_X, ARG_ROW_STRIDE, ARG_ROWS, ARG_COLUMNS, N_ARGS };

static LLVMValueRef element(Emitter *e, LLVMValueRef row, LLVMValueRef column) {
  return emit_offset(e, row, emit_mul(e, column, emit_i64(e, 4)));
}

static LLVMValueRef gather_difference(Emitter *e, LLVMTypeRef type, LLVMValueRef pointer, LLVMValueRef sum) {
  LLVMValueRef x = emit_load(e, type, pointer, 4);
  return LLVMBuildFAdd(e->builder, sum, LLVMBuildFSub(e->builder, x, x, ""), "");
}

static LLVMValueRef is_zero(Emitter *e, LLVMValueRef sum) {
  return LLVMBuildFCmp(e->builder, LLVMRealOEQ, sum, LLVMConstNull(LLVMTypeOf(sum)), "");
}

void emit_FINITE(Emitter *e, const KernelSpec *spec, const char *name) {
  (void)spec;
  LLVMTypeRef types[N_ARGS] = {e->pointer, e->i64, e->i64, e->i64}, vector = lanes_type(e->f32);
  LLVMValueRef function = emit_function(e, name, e->i32, N_ARGS, types), args[N_ARGS];
  emit_parameter_readonly(e, ARG_X);
  for (unsigned i = 0; i < N_ARGS; i++) args[i] = LLVMGetParam(function, i);
  Loop rows = loop_begin(e, emit_i64(e, 0), args[ARG_ROWS], 1);
  LLVMValueRef vectors = loop_carry(e, &rows, LLVMConstNull(vector));
  LLVMValueRef scalars = loop_carry(e, &rows, LLVMConstNull(e->f32));
  LLVMValueRef row = element(e, args[ARG_X], emit_mul(e, rows.index, args[ARG_ROW_STRIDE]));
  LLVMValueRef end = emit_sub(e, args[ARG_COLUMNS], emit_i64(e, LANES - 1));
  Loop whole = loop_begin(e, emit_i64(e, 0), end, LANES);
  LLVMValueRef sum = loop_carry(e, &whole, vectors);
  loop_next(&whole, 0, gather_difference(e, vector, element(e, row, whole.index), sum));
  loop_end(e, &whole);
  Loop rest = loop_begin(e, whole.last, args[ARG_COLUMNS], 1);
  sum = loop_carry(e, &rest, scalars);
  loop_next(&rest, 0, gather_difference(e, e->f32, element(e, row, rest.index), sum));
  loop_end(e, &rest);
  loop_next(&rows, 0, whole.results[0]);
  loop_next(&rows, 1, rest.results[0]);
  loop_end(e, &rows);
  LLVMValueRef zeros = LLVMBuildBitCast(e->builder, is_zero(e, rows.results[0]), e->i16, "");
  LLVMValueRef all = emit_icmp(e, LLVMIntEQ, zeros, LLVMConstAllOnes(e->i16));
  all = LLVMBuildAnd(e->builder, all, is_zero(e, rows.results[1]), "");
  LLVMBuildRet(e->builder, LLVMBuildZExt(e->builder, all, e->i32, ""));
}
