/* In: bundles of vectors. Out: one instruction per vector, those of a bundle next to each other. See vector.h. */
#include "codegen/vector.h"

#include "base/check.h"

LLVMTypeRef lanes_type(LLVMTypeRef element) { return LLVMVectorType(element, LANES); }

/* A constant stays one: LLVM then folds it into instructions or loads it with the code. Other scalars are inserted and
 * shuffled, which becomes one broadcast. */
LLVMValueRef emit_splat(Emitter *e, LLVMValueRef scalar, unsigned n) {
  if (LLVMIsConstant(scalar)) {
    LLVMValueRef items[LANES];
    CHECK(n <= LANES, "a vector of %u", n);
    for (unsigned i = 0; i < n; i++) items[i] = scalar;
    return LLVMConstVector(items, n);
  }
  LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), n);
  LLVMValueRef first = LLVMBuildInsertElement(e->builder, LLVMGetPoison(type), scalar, emit_i32(e, 0), "");
  return LLVMBuildShuffleVector(e->builder, first, LLVMGetPoison(type), LLVMConstNull(LLVMVectorType(e->i32, n)), "");
}

LLVMValueRef emit_ramp(Emitter *e, unsigned n) {
  LLVMValueRef items[LANES];
  CHECK(n <= LANES, "a vector of %u", n);
  for (unsigned i = 0; i < n; i++) items[i] = emit_i32(e, i);
  return LLVMConstVector(items, n);
}

LLVMValueRef emit_fma(Emitter *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
  if (!e->target->has_fma) return LLVMBuildFAdd(e->builder, LLVMBuildFMul(e->builder, a, b, ""), c, "");
  return emit_intrinsic(e, "llvm.fma", LLVMTypeOf(a), 3, (LLVMValueRef[]){a, b, c});
}

// ---- bundles ----

/* Fills all vectors of the bundle, those in use and those not, so that the result is right for every n_vectors. */
Lanes lanes_same(LLVMValueRef vector) {
  Lanes lanes;
  for (unsigned i = 0; i < LANES_MAX_VECTORS; i++) lanes.v[i] = vector;
  return lanes;
}

Lanes lanes_splat(Emitter *e, LLVMValueRef scalar) { return lanes_same(emit_splat(e, scalar, LANES)); }
Lanes lanes_number(Emitter *e, double number) { return lanes_splat(e, emit_f32(e, number)); }
Lanes lanes_bits(Emitter *e, uint32_t bits) { return lanes_splat(e, emit_i32(e, (int32_t)bits)); }

Lanes lanes_unary(Emitter *e, BuildUnary build, Lanes a) {
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++) r.v[i] = build(e->builder, a.v[i], "");
  return r;
}

Lanes lanes_binary(Emitter *e, BuildBinary build, Lanes a, Lanes b) {
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++) r.v[i] = build(e->builder, a.v[i], b.v[i], "");
  return r;
}

Lanes lanes_intrinsic(Emitter *e, const char *name, Lanes a) {
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++) r.v[i] = emit_intrinsic(e, name, LLVMTypeOf(a.v[i]), 1, &a.v[i]);
  return r;
}

Lanes lanes_add(Emitter *e, Lanes a, Lanes b) { return lanes_binary(e, LLVMBuildFAdd, a, b); }
Lanes lanes_sub(Emitter *e, Lanes a, Lanes b) { return lanes_binary(e, LLVMBuildFSub, a, b); }
Lanes lanes_mul(Emitter *e, Lanes a, Lanes b) { return lanes_binary(e, LLVMBuildFMul, a, b); }
Lanes lanes_div(Emitter *e, Lanes a, Lanes b) { return lanes_binary(e, LLVMBuildFDiv, a, b); }
Lanes lanes_neg(Emitter *e, Lanes a) { return lanes_unary(e, LLVMBuildFNeg, a); }
Lanes lanes_abs(Emitter *e, Lanes a) { return lanes_intrinsic(e, "llvm.fabs", a); }
Lanes lanes_sqrt(Emitter *e, Lanes a) { return lanes_intrinsic(e, "llvm.sqrt", a); }

Lanes lanes_fma(Emitter *e, Lanes a, Lanes b, Lanes c) {
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++) r.v[i] = emit_fma(e, a.v[i], b.v[i], c.v[i]);
  return r;
}

/* Gives i1 lanes. Ordered predicates are false for NaN, unordered ones true; callers choose which one a NaN needs. */
Lanes lanes_compare(Emitter *e, LLVMRealPredicate predicate, Lanes a, Lanes b) {
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++) r.v[i] = LLVMBuildFCmp(e->builder, predicate, a.v[i], b.v[i], "");
  return r;
}

Lanes lanes_icompare(Emitter *e, LLVMIntPredicate predicate, Lanes a, Lanes b) {
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++) r.v[i] = emit_icmp(e, predicate, a.v[i], b.v[i]);
  return r;
}

Lanes lanes_select(Emitter *e, Lanes condition, Lanes yes, Lanes no) {
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++) r.v[i] = emit_select(e, condition.v[i], yes.v[i], no.v[i]);
  return r;
}

Lanes lanes_convert(Emitter *e, LLVMOpcode opcode, Lanes a, LLVMTypeRef element) {
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++)
    r.v[i] = LLVMBuildCast(e->builder, opcode, a.v[i], lanes_type(element), "");
  return r;
}

Lanes lanes_as_i32(Emitter *e, Lanes a) { return lanes_convert(e, LLVMBitCast, a, e->i32); }
Lanes lanes_as_f32(Emitter *e, Lanes a) { return lanes_convert(e, LLVMBitCast, a, e->f32); }

/* |a| with the sign of b. */
Lanes lanes_with_sign(Emitter *e, Lanes a, Lanes b) {
  Lanes sign = lanes_binary(e, LLVMBuildAnd, lanes_as_i32(e, b), lanes_bits(e, 0x80000000u));
  Lanes magnitude = lanes_binary(e, LLVMBuildAnd, lanes_as_i32(e, a), lanes_bits(e, 0x7fffffffu));
  return lanes_as_f32(e, lanes_binary(e, LLVMBuildOr, sign, magnitude));
}

// ---- rounding, powers of two ----

/* Adding 1.5 * 2^23 leaves the integer in the low bits of the sum, rounded to nearest even, without an instruction for
 * rounding, which the baseline lacks. 0x4b400000 are the bits of 1.5 * 2^23. */
Lanes lanes_round_product(Emitter *e, Lanes a, Lanes b, Lanes *whole) {
  Lanes magic = lanes_number(e, 0x1.8p23);
  Lanes shifted = lanes_fma(e, a, b, magic);
  *whole = lanes_binary(e, LLVMBuildSub, lanes_as_i32(e, shifted), lanes_bits(e, 0x4b400000));
  return lanes_sub(e, shifted, magic);
}

Lanes lanes_round(Emitter *e, Lanes a, double factor, Lanes *whole) {
  return lanes_round_product(e, a, lanes_number(e, factor), whole);
}

/* 2^n by its bits, the biased exponent, for n in [-126, 127]. */
static Lanes power_of_two(Emitter *e, Lanes n) {
  Lanes biased = lanes_binary(e, LLVMBuildAdd, n, lanes_bits(e, 127));
  return lanes_as_f32(e, lanes_binary(e, LLVMBuildShl, biased, lanes_bits(e, 23)));
}

/* Arguments in the form that AVX-512 has: the value, the power, a vector to merge with, a mask, a rounding mode. */
static Lanes scalef(Emitter *e, Lanes a, Lanes n) {
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++) {
    LLVMValueRef all = LLVMConstAllOnes(e->i16), current_rounding = emit_i32(e, 4);
    LLVMValueRef arguments[] = {a.v[i], n.v[i], LLVMConstNull(lanes_type(e->f32)), all, current_rounding};
    r.v[i] = emit_intrinsic(e, e->target->scalef, NULL, 5, arguments);
  }
  return r;
}

/* Two multiplications: one by half of the power, which is exact because a is near 1, then one that rounds, possibly to
 * a denormal. An instruction that does both at once gives the same bits. */
Lanes lanes_scale(Emitter *e, Lanes a, Lanes n, Lanes whole) {
  if (e->target->scalef) return scalef(e, a, n);
  Lanes half = lanes_binary(e, LLVMBuildAShr, whole, lanes_bits(e, 1));
  Lanes rest = lanes_binary(e, LLVMBuildSub, whole, half);
  return lanes_mul(e, lanes_mul(e, a, power_of_two(e, half)), power_of_two(e, rest));
}

/* One multiplication where the power is normal, which callers guarantee. */
Lanes lanes_scale_normal(Emitter *e, Lanes a, Lanes n, Lanes whole) {
  return e->target->scalef ? scalef(e, a, n) : lanes_mul(e, a, power_of_two(e, whole));
}
