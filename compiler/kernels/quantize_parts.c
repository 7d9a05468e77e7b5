/* In: a QUANTIZE or WEIGH kernel that is being emitted. Out: where its rows lie; code that rounds lanes of a row, that
 * stores whole numbers as tiles take them, and what tiles add up from. See quantize_rows.h. Refuses nothing. */
#include "codegen/vector.h"
#include "kernels/quantize_rows.h"
#include "tfm/abi/kernels.h"

enum { ROUNDING_BITS = 0x4b400000 };
static const double ROUNDING = 12582912; /* 1.5 2^23 */

LLVMValueRef quantize_float_at(Quantize *q, LLVMValueRef base, LLVMValueRef index) {
  return emit_offset(q->e, base, emit_mul(q->e, index, emit_i64(q->e, sizeof(float))));
}

LLVMValueRef quantize_magnitude(Quantize *q, LLVMValueRef x) {
  LLVMValueRef mask = LLVMConstInt(q->e->i32, 0x7fffffff, false);
  LLVMValueRef bits = LLVMBuildBitCast(q->e->builder, x, q->bits, "");
  return LLVMBuildAnd(q->e->builder, bits, q->width == 1 ? mask : emit_splat(q->e, mask, q->width), "");
}

/* Words stand as tiles take them apart: the even ones of four, then the odd ones. */
LLVMValueRef quantize_narrowed(Quantize *q, LLVMValueRef bits) {
  Emitter *e = q->e;
  LLVMValueRef narrow = LLVMBuildTrunc(e->builder, bits, lanes_type(q->bytes == 1 ? e->i8 : e->i16), "");
  if (q->bytes == 1) return narrow;
  LLVMValueRef order[LANES];
  for (unsigned i = 0; i < LANES; i++) order[i] = emit_i32(e, (i & ~3u) | (i & 1) << 1 | (i >> 1 & 1));
  return LLVMBuildShuffleVector(e->builder, narrow, narrow, LLVMConstVector(order, LANES), "");
}

LLVMValueRef quantize_number_at(Quantize *q, LLVMValueRef index) {
  return emit_offset(q->e, q->args[ARG_NUMBERS], emit_mul(q->e, index, emit_i64(q->e, q->bytes)));
}

LLVMValueRef quantize_round_lanes(Quantize *q, LLVMValueRef factor, LLVMValueRef x) {
  Emitter *e = q->e;
  LLVMValueRef factors = emit_splat(e, factor, LANES), rounding = emit_splat(e, emit_f32(e, ROUNDING), LANES);
  x = LLVMBuildFAdd(e->builder, LLVMBuildFMul(e->builder, x, factors, ""), rounding, "");
  return LLVMBuildBitCast(e->builder, x, lanes_type(e->i32), "");
}

LLVMValueRef quantize_rounded(Quantize *q, LLVMValueRef factor, LLVMValueRef x, LLVMValueRef to) {
  LLVMValueRef whole = quantize_round_lanes(q, factor, x);
  emit_store(q->e, quantize_narrowed(q, whole), to, 1);
  return whole;
}

/* Of n numbers whose lanes were added. */
static LLVMValueRef sum_of(Quantize *q, LLVMValueRef lanes, int64_t n) {
  Emitter *e = q->e;
  LLVMValueRef sum = emit_intrinsic(e, "llvm.vector.reduce.add", lanes_type(e->i32), 1, &lanes);
  return emit_sub(e, sum, emit_i32(e, (int32_t)((uint32_t)n * (uint32_t)ROUNDING_BITS)));
}

/* Twice the same of the half of a group that even, or odd, pairs of numbers are. */
static LLVMValueRef sum_of_pairs(Quantize *q, LLVMValueRef lanes, unsigned odd) {
  Emitter *e = q->e;
  LLVMValueRef places[LANES / 2];
  for (unsigned i = 0; i < LANES / 2; i++) places[i] = emit_i32(e, i / 2 * 4 + i % 2 + odd * 2);
  LLVMValueRef half = LLVMBuildShuffleVector(e->builder, lanes, lanes, LLVMConstVector(places, LANES / 2), "");
  LLVMValueRef sum = emit_intrinsic(e, "llvm.vector.reduce.add", LLVMTypeOf(half), 1, &half);
  return emit_sub(e, sum, emit_i32(e, (int32_t)(TFM_GROUP / 2 * (uint32_t)ROUNDING_BITS)));
}

/* By how much weights are stored too large. */
static int too_large(const Quantize *q) { return q->is_mixed ? TFM_MIXED_MORE : q->is_grouped ? 8 : 128; }

/* What tiles add up from, which makes them what they are. */
static void store_start(Quantize *q, LLVMValueRef sum, LLVMValueRef numbers) {
  Emitter *e = q->e;
  if (!q->has_start) return;
  LLVMValueRef start = emit_mul(e, sum, emit_i32(e, -too_large(q)));
  emit_store(e, start, emit_offset(e, numbers, emit_i64(e, -(int64_t)sizeof(int32_t))), 1);
}

static void store_starts_of_pairs(Quantize *q, LLVMValueRef lanes, LLVMValueRef numbers) {
  Emitter *e = q->e;
  LLVMValueRef even = emit_mul(e, sum_of_pairs(q, lanes, 0), emit_i32(e, -too_large(q)));
  LLVMValueRef odd = emit_mul(e, sum_of_pairs(q, lanes, 1), emit_i32(e, -too_large(q) * (1 << 16)));
  LLVMValueRef both = LLVMBuildOr(e->builder, LLVMBuildAnd(e->builder, even, emit_i32(e, 0xffff), ""), odd, "");
  emit_store(e, both, emit_offset(e, numbers, emit_i64(e, -(int64_t)sizeof(int32_t))), 1);
}

void quantize_store_start(Quantize *q, LLVMValueRef lanes, int64_t n, LLVMValueRef numbers) {
  store_start(q, lanes ? sum_of(q, lanes, n) : emit_i32(q->e, 0), numbers);
}

void quantize_store_group_start(Quantize *q, LLVMValueRef sums, LLVMValueRef numbers) {
  if (q->in_pairs) store_starts_of_pairs(q, sums, numbers);
  else store_start(q, sum_of(q, sums, TFM_GROUP), numbers);
}
