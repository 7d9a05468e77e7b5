/* WEIGH: rows of a strip of attention as rows of whole numbers, which tiles of form INT8 read (tfm/abi/kernels.h).
 *
 * In: weights of a softmax, none of them negative, and a scale for each column, by which it is multiplied first, unless
 * the softmax has done so. Out: the numbers and the scale of each row. Each operation is one of forms/whole_rows.h,
 * rounded by itself, so all targets give the same bits; where tiles multiply signed bytes alone (dot_is_signed),
 * numbers are 128 too small. Refuses nothing: a row that is not finite gets zeros and the scale NaN. */
#include <math.h>

#include "kernels/quantize_rows.h"

#include "codegen/vector.h"
#include "forms/whole_rows.h"
#include "kernels/emit.h"

enum { WEIGH_STRIP, WEIGH_ROWS, WEIGH_COLUMNS, WEIGH_SCALES, WEIGH_NUMBERS, N_WEIGH_ARGS };

typedef struct Weigh {
  Quantize q; /* of one row: args[ARG_WORK] is the row of the strip */
  LLVMValueRef scales, columns;
} Weigh;

LLVMValueRef emit_weighed(Emitter *e, LLVMValueRef x, LLVMValueRef scale) {
  LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(x)), bits = LLVMBuildBitCast(e->builder, x, lanes_type(e->i32), "");
  LLVMValueRef none = emit_icmp(e, LLVMIntEQ, bits, LLVMConstNull(lanes_type(e->i32)));
  return emit_select(e, none, zero, LLVMBuildFMul(e->builder, x, scale, ""));
}

/* Multiplies the row by the scales, in place, and returns the bits of the greatest product. None is negative. */
static LLVMValueRef emit_products(Weigh *w) {
  Quantize *q = &w->q;
  Emitter *e = q->e;
  Loop loop = loop_begin(e, emit_i64(e, 0), w->columns, LANES);
  LLVMValueRef greatest = loop_carry(e, &loop, LLVMConstNull(q->bits));
  LLVMValueRef x = emit_load(e, q->floats, quantize_float_at(q, q->args[ARG_WORK], loop.index), 4);
  LLVMValueRef scale = emit_load(e, q->floats, quantize_float_at(q, w->scales, loop.index), 4);
  x = emit_weighed(e, x, scale);
  emit_store(e, x, quantize_float_at(q, q->args[ARG_WORK], loop.index), 4);
  loop_next(&loop, 0, emit_intrinsic(e, "llvm.smax", q->bits, 2, (LLVMValueRef[]){greatest, quantize_magnitude(q, x)}));
  loop_end(e, &loop);
  return emit_intrinsic(e, "llvm.vector.reduce.smax", q->bits, 1, &loop.results[0]);
}

/* With the factor 0 all numbers are 0, whatever is in the row. */
static void emit_weights(Weigh *w, LLVMValueRef factor, LLVMValueRef none) {
  Quantize *q = &w->q;
  Emitter *e = q->e;
  LLVMValueRef keep = emit_splat(e, emit_select(e, none, emit_i32(e, 0), emit_i32(e, 255)), LANES);
  Loop loop = loop_begin(e, emit_i64(e, 0), w->columns, LANES);
  LLVMValueRef x = emit_load(e, q->floats, quantize_float_at(q, q->args[ARG_WORK], loop.index), 4);
  LLVMValueRef whole = LLVMBuildAnd(e->builder, quantize_round_lanes(q, factor, x), keep, "");
  if (e->target->dot_is_signed) whole = LLVMBuildXor(e->builder, whole, emit_splat(e, emit_i32(e, 128), LANES), "");
  emit_store(e, quantize_narrowed(q, whole), quantize_number_at(q, loop.index), 1);
  loop_end(e, &loop);
}

/* Of products that the softmax has made. */
static LLVMValueRef load_greatest(Weigh *w) {
  Emitter *e = w->q.e;
  LLVMValueRef at = emit_offset(e, w->q.args[ARG_WORK], emit_i64(e, TFM_STRIP_GREATEST * 4));
  return LLVMBuildAnd(e->builder, emit_load(e, e->i32, at, 4), emit_i32(e, INT32_MAX), "");
}

static void emit_row_of_weights(Weigh *w, bool is_weighed) {
  Quantize *q = &w->q;
  Emitter *e = q->e;
  LLVMBuilderRef b = e->builder;
  LLVMValueRef bits = is_weighed ? load_greatest(w) : emit_products(w);
  LLVMValueRef finite = emit_icmp(e, LLVMIntSLT, bits, emit_i32(e, INFINITE_BITS));
  LLVMValueRef large = emit_icmp(e, LLVMIntSGE, bits, emit_i32(e, LEAST_BITS));
  LLVMValueRef none = LLVMBuildNot(b, LLVMBuildAnd(b, finite, large, ""), ""), zero = emit_f32(e, 0);
  LLVMValueRef greatest = LLVMBuildBitCast(b, bits, e->f32, ""), most = emit_f32(e, WHOLE_MOST_WEIGHT);
  emit_weights(w, emit_select(e, none, zero, LLVMBuildFDiv(b, most, greatest, "")), none);
  LLVMValueRef scale = emit_select(e, none, zero, LLVMBuildFDiv(b, greatest, most, ""));
  scale = emit_select(e, finite, scale, emit_f32(e, (double)NAN));
  LLVMValueRef end = LLVMBuildAnd(b, emit_add(e, w->columns, emit_i64(e, 3)), emit_i64(e, -4), "");
  emit_store(e, scale, quantize_number_at(q, end), 4);
}

void emit_WEIGH(Emitter *e, const KernelSpec *spec, const char *name) {
  LLVMValueRef function = emit_kernel(e, KERNEL_WEIGH, name);
  Weigh w = {.q = {.e = e, .width = LANES, .floats = lanes_type(e->f32), .bits = lanes_type(e->i32)}};
  w.q.bytes = e->target->dot_bytes ? 1 : 2;
  w.columns = LLVMGetParam(function, WEIGH_COLUMNS);
  w.scales = LLVMGetParam(function, WEIGH_SCALES);
  emit_parameter_noalias(e, WEIGH_STRIP), emit_parameter_noalias(e, WEIGH_NUMBERS);
  const int64_t distance = tfm_whole_row_floats((uint8_t)w.q.bytes, TFM_KEY_BLOCK) * (int64_t)sizeof(float);
  Loop rows = loop_begin(e, emit_i64(e, 0), LLVMGetParam(function, WEIGH_ROWS), 1);
  LLVMValueRef of_strip = emit_mul(e, rows.index, emit_i64(e, TFM_STRIP_STRIDE * (int64_t)sizeof(float)));
  w.q.args[ARG_WORK] = emit_offset(e, LLVMGetParam(function, WEIGH_STRIP), of_strip);
  LLVMValueRef of_numbers = emit_mul(e, rows.index, emit_i64(e, distance));
  w.q.args[ARG_NUMBERS] = emit_offset(e, LLVMGetParam(function, WEIGH_NUMBERS), of_numbers);
  emit_row_of_weights(&w, spec->is_weighed);
  loop_end(e, &rows);
  LLVMBuildRetVoid(e->builder);
}
