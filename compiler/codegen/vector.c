/* In: bundles of vectors. Out: one instruction per vector, those of a bundle next to each other. See vector.h. */
#include "codegen/vector.h"

#include <stdio.h>

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

/* `n` floats of a vector, from number `first` on, or, of vectors put behind each other, all of both. */
static LLVMValueRef floats_of(Emitter *e, LLVMValueRef vector, LLVMValueRef other, unsigned first, unsigned n) {
  LLVMValueRef places[LANES];
  for (unsigned i = 0; i < n; i++) places[i] = emit_i32(e, (int32_t)(first + i));
  return LLVMBuildShuffleVector(e->builder, vector, other, LLVMConstVector(places, n), "");
}

/* By an instruction that takes one register: four floats, or two doubles. A scalar becomes a register of them. */
static LLVMValueRef emit_fma_by_registers(Emitter *e, LLVMValueRef factors[3]) {
  LLVMTypeRef type = LLVMTypeOf(factors[0]);
  const bool is_scalar = LLVMGetTypeKind(type) != LLVMVectorTypeKind;
  const unsigned width = (is_scalar ? type : LLVMGetElementType(type)) == e->f32 ? 4 : 2;
  const unsigned n = is_scalar ? width : LLVMGetVectorSize(type);
  LLVMValueRef parts[LANES];
  CHECK(n % width == 0 && n <= LANES && (n & (n - 1)) == 0, "a vector of %u", n);
  for (unsigned i = 0; i < n / width; i++) {
    LLVMValueRef some[3];
    for (unsigned k = 0; k < 3; k++)
      some[k] = is_scalar    ? emit_splat(e, factors[k], width)
                : n == width ? factors[k]
                             : floats_of(e, factors[k], LLVMGetPoison(type), width * i, width);
    parts[i] = emit_intrinsic(e, e->target->fma_of_register, LLVMTypeOf(some[0]), 3, some);
  }
  for (unsigned count = n / width, each = width; count > 1; count /= 2, each *= 2)
    for (unsigned i = 0; i < count / 2; i++) parts[i] = floats_of(e, parts[2 * i], parts[2 * i + 1], 0, 2 * each);
  return is_scalar ? LLVMBuildExtractElement(e->builder, parts[0], emit_i32(e, 0), "") : parts[0];
}

LLVMValueRef emit_fma(Emitter *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
  if (!e->target->has_fma) return LLVMBuildFAdd(e->builder, LLVMBuildFMul(e->builder, a, b, ""), c, "");
  if (e->target->fma_of_register) return emit_fma_by_registers(e, (LLVMValueRef[]){a, b, c});
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

// ---- what few lanes need ----

static LLVMValueRef any_lane(Emitter *e, Lanes mask) {
  LLVMValueRef any = mask.v[0];
  for (unsigned i = 1; i < e->n_vectors; i++) any = LLVMBuildOr(e->builder, any, mask.v[i], "");
  return emit_icmp(e, LLVMIntNE, LLVMBuildBitCast(e->builder, any, e->i16, ""), LLVMConstNull(e->i16));
}

/* An assembly of no instructions that takes and gives the values. */
void lanes_await(Emitter *e, Lanes *const *bundles, unsigned n) {
  enum { MOST = 28 }; /* operands of an assembly are 30 at most, and those that go in are the ones that come out */
  if (e->target->family != TFM_FAMILY_X86_64 || e->target->vector_floats != LANES) return;
  LLVMTypeRef types[MOST], type = lanes_type(e->f32);
  LLVMValueRef values[MOST];
  const unsigned all = n * e->n_vectors;
  CHECK(2 * all <= MOST, "%u values to wait for", all);
  char constraints[8 * MOST], *at = constraints;
  for (unsigned i = 0; i < all; i++) at += snprintf(at, 8, "=v,");
  for (unsigned i = 0; i < all; i++) at += snprintf(at, 8, "%u%s", i, i + 1 < all ? "," : "");
  for (unsigned i = 0; i < all; i++) types[i] = type, values[i] = bundles[i / e->n_vectors]->v[i % e->n_vectors];
  LLVMTypeRef both = all == 1 ? type : LLVMStructTypeInContext(e->context, types, all, false);
  LLVMTypeRef function = LLVMFunctionType(both, types, all, false);
  LLVMValueRef assembly = LLVMGetInlineAsm(function, "", 0, constraints, (size_t)(at - constraints), false, false,
                                           LLVMInlineAsmDialectATT, false);
  LLVMValueRef given = LLVMBuildCall2(e->builder, function, assembly, values, all, "");
  for (unsigned i = 0; i < all; i++)
    bundles[i / e->n_vectors]->v[i % e->n_vectors] = all == 1 ? given : LLVMBuildExtractValue(e->builder, given, i, "");
}

RareLanes lanes_rare_begin(Emitter *e, Lanes mask) {
  LLVMValueRef any = any_lane(e, mask);
  LLVMBasicBlockRef rare = emit_block(e, "rare");
  RareLanes branch = {.before = LLVMGetInsertBlock(e->builder), .after = emit_block(e, "after")};
  emit_branch(e, any, rare, branch.after);
  emit_at(e, rare);
  return branch;
}

void lanes_rare_end(Emitter *e, RareLanes *branch) {
  branch->end = LLVMGetInsertBlock(e->builder);
  emit_jump(e, branch->after);
  LLVMMoveBasicBlockAfter(branch->after, branch->end);
  emit_at(e, branch->after);
}

Lanes lanes_rare_meet(Emitter *e, const RareLanes *branch, Lanes usual, Lanes rare) {
  Lanes phis = {{NULL}};
  LLVMBasicBlockRef from[] = {branch->before, branch->end};
  for (unsigned i = 0; i < e->n_vectors; i++) {
    phis.v[i] = LLVMBuildPhi(e->builder, LLVMTypeOf(usual.v[i]), "");
    LLVMAddIncoming(phis.v[i], (LLVMValueRef[]){usual.v[i], rare.v[i]}, from, 2);
  }
  return phis;
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

// ---- magnitudes ----

Lanes lanes_least_magnitude(Emitter *e, Lanes a, double bound) {
  Lanes limit = lanes_number(e, bound), r = {{NULL}};
  if (!e->target->range) {
    Lanes size = lanes_abs(e, a);
    return lanes_select(e, lanes_compare(e, LLVMRealOGT, size, limit), limit, size);
  }
  for (unsigned i = 0; i < e->n_vectors; i++) {
    LLVMValueRef magnitude = emit_i32(e, 8 | 2), all = LLVMConstAllOnes(e->i16), current_rounding = emit_i32(e, 4);
    LLVMValueRef none = LLVMConstNull(lanes_type(e->f32));
    LLVMValueRef arguments[] = {a.v[i], limit.v[i], magnitude, none, all, current_rounding};
    r.v[i] = emit_intrinsic(e, e->target->range, NULL, 6, arguments);
  }
  return r;
}

// ---- reciprocals ----

/* a * b + c, rounded upwards. */
static Lanes fma_upwards(Emitter *e, Lanes a, Lanes b, Lanes c) {
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++) {
    LLVMValueRef upwards = emit_i32(e, 8 | 2); /* and no exceptions */
    r.v[i] = emit_intrinsic(e, e->target->rounded_fma, NULL, 4, (LLVMValueRef[]){a.v[i], b.v[i], c.v[i], upwards});
  }
  return r;
}

/* The divider takes 16 cycles a vector. Newton's step turns an estimate within 2^-14 into one within a unit in the last
 * place, and a second one, whose residue is exact, into the nearest number (P. Markstein, "Computation of elementary
 * functions on the IBM RISC System/6000 processor", 1990), but for a mantissa of ones alone, whose reciprocal lies
 * just above the middle of two numbers: there the first step must not end below, so it rounds upwards. */
Lanes lanes_reciprocal(Emitter *e, Lanes a) {
  Lanes one = lanes_number(e, 1), minus = lanes_neg(e, a), r = {{NULL}};
  if (!e->target->reciprocal) return lanes_div(e, one, a);
  for (unsigned i = 0; i < e->n_vectors; i++) {
    LLVMValueRef all = LLVMConstAllOnes(e->i16), arguments[] = {a.v[i], LLVMConstNull(lanes_type(e->f32)), all};
    r.v[i] = emit_intrinsic(e, e->target->reciprocal, NULL, 3, arguments);
  }
  Lanes error = lanes_fma(e, minus, r, one);
  r = fma_upwards(e, error, r, r);
  error = lanes_fma(e, minus, r, one);
  return lanes_fma(e, error, r, r);
}

// ---- numbers of 16 bits ----

LLVMValueRef emit_widened_bf16(Emitter *e, LLVMValueRef halves, unsigned n) {
  LLVMValueRef bits = LLVMBuildZExt(e->builder, halves, LLVMVectorType(e->i32, n), "");
  bits = LLVMBuildShl(e->builder, bits, emit_splat(e, emit_i32(e, 16), n), "");
  return LLVMBuildBitCast(e->builder, bits, LLVMVectorType(e->f32, n), "");
}

/* Without an instruction for it: the bits of exponent and mantissa, moved to their places in an f32, with another bias
 * of the exponent. A subnormal number is what such bits are beyond 2^-14, which is right where subnormal f32 count as 0
 * too. Infinity and NaN get the greatest exponent. */
static LLVMValueRef widened_by_hand(Emitter *e, LLVMValueRef halves, unsigned n) {
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef floats = LLVMVectorType(e->f32, n), words = LLVMVectorType(e->i32, n);
  LLVMValueRef bits = LLVMBuildZExt(b, halves, words, "");
  LLVMValueRef sign = LLVMBuildAnd(b, bits, emit_splat(e, emit_i32(e, 0x8000), n), "");
  LLVMValueRef rest = LLVMBuildAnd(b, bits, emit_splat(e, emit_i32(e, 0x7fff), n), "");
  sign = LLVMBuildShl(b, sign, emit_splat(e, emit_i32(e, 16), n), "");
  rest = LLVMBuildShl(b, rest, emit_splat(e, emit_i32(e, 13), n), "");
  LLVMValueRef normal = LLVMBuildAdd(b, rest, emit_splat(e, emit_i32(e, 112 << 23), n), "");
  LLVMValueRef beyond = LLVMBuildAdd(b, rest, emit_splat(e, emit_i32(e, 113 << 23), n), "");
  LLVMValueRef least_normal = emit_splat(e, LLVMConstReal(e->f32, 0x1p-14), n);
  LLVMValueRef small = LLVMBuildFSub(b, LLVMBuildBitCast(b, beyond, floats, ""), least_normal, "");
  LLVMValueRef is_small = LLVMBuildICmp(b, LLVMIntULT, rest, emit_splat(e, emit_i32(e, 1 << 23), n), "");
  LLVMValueRef number_bits = LLVMBuildSelect(b, is_small, LLVMBuildBitCast(b, small, words, ""), normal, "");
  LLVMValueRef least = emit_splat(e, emit_i32(e, 0x1f << 23), n);
  LLVMValueRef is_not_finite = LLVMBuildICmp(b, LLVMIntUGE, rest, least, "");
  LLVMValueRef greatest = LLVMBuildOr(b, number_bits, emit_splat(e, emit_i32(e, 0x7f800000), n), "");
  LLVMValueRef widened = LLVMBuildSelect(b, is_not_finite, greatest, number_bits, "");
  return LLVMBuildBitCast(b, LLVMBuildOr(b, widened, sign, ""), floats, "");
}

LLVMValueRef emit_widened_f16(Emitter *e, LLVMValueRef halves, unsigned n) {
  if (!e->target->converts_f16) return widened_by_hand(e, halves, n);
  halves = LLVMBuildBitCast(e->builder, halves, LLVMVectorType(LLVMHalfTypeInContext(e->context), n), "");
  return LLVMBuildFPExt(e->builder, halves, LLVMVectorType(e->f32, n), "");
}

// ---- squares ----

static LLVMValueRef shuffle(Emitter *e, unsigned n, LLVMValueRef a, LLVMValueRef b, const unsigned *lanes) {
  LLVMValueRef mask[LANES];
  for (unsigned i = 0; i < n; i++) mask[i] = emit_i32(e, lanes[i]);
  return LLVMBuildShuffleVector(e->builder, a, b, LLVMConstVector(mask, n), "");
}

/* Within each quarter of 4 lanes: pieces of `size` lanes from a and b in turn, from the lower or upper half. */
static LLVMValueRef unpack(Emitter *e, unsigned n, LLVMValueRef a, LLVMValueRef b, unsigned size, bool upper) {
  unsigned lanes[LANES];
  for (unsigned i = 0; i < n; i++) {
    unsigned quarter = i & ~3u, within = i & 3u;
    unsigned piece = within / size, from = quarter + (upper ? 2 : 0) + piece / 2 * size + within % size;
    lanes[i] = piece % 2 ? n + from : from;
  }
  return shuffle(e, n, a, b, lanes);
}

/* Takes the even (or odd) quarters of a, then those of b. A quarter is 4 lanes, 128 bits: what x86 shuffles move as a
 * whole. */
static LLVMValueRef every_other_quarter(Emitter *e, unsigned n, LLVMValueRef a, LLVMValueRef b, bool odd) {
  unsigned lanes[LANES], quarters = n / 4;
  for (unsigned i = 0; i < n; i++) lanes[i] = ((i / 4) * 2 + odd) % (2 * quarters) * 4 + i % 4;
  return shuffle(e, n, a, b, lanes);
}

void emit_transposed_quarters(Emitter *e, unsigned n, LLVMValueRef *r) {
  LLVMValueRef t[4];
  for (unsigned j = 0; j < 2; j++) {
    t[2 * j] = unpack(e, n, r[2 * j], r[2 * j + 1], 1, false);
    t[2 * j + 1] = unpack(e, n, r[2 * j], r[2 * j + 1], 1, true);
  }
  r[0] = unpack(e, n, t[0], t[2], 2, false);
  r[1] = unpack(e, n, t[0], t[2], 2, true);
  r[2] = unpack(e, n, t[1], t[3], 2, false);
  r[3] = unpack(e, n, t[1], t[3], 2, true);
}

/* Transposes the square of quarters. Each turn takes the even and the odd quarters of pairs, so log2(quarters) turns
 * do it. */
static void transpose_squares(Emitter *e, unsigned n, LLVMValueRef *r) {
  unsigned quarters = n / 4;
  for (unsigned i = 0; i < 4; i++) {
    LLVMValueRef q[4], t[4];
    for (unsigned j = 0; j < quarters; j++) q[j] = r[4 * j + i];
    for (unsigned turn = 1; turn < quarters; turn *= 2) {
      for (unsigned j = 0; j < quarters / 2; j++) {
        t[j] = every_other_quarter(e, n, q[2 * j], q[2 * j + 1], false);
        t[quarters / 2 + j] = every_other_quarter(e, n, q[2 * j], q[2 * j + 1], true);
      }
      for (unsigned j = 0; j < quarters; j++) q[j] = t[j];
    }
    for (unsigned j = 0; j < quarters; j++) r[4 * j + i] = q[j];
  }
}

LLVMValueRef emit_joined(Emitter *e, unsigned n, const LLVMValueRef *parts, unsigned n_parts) {
  if (n_parts == 1) return parts[0];
  LLVMValueRef lower = emit_joined(e, n / 2, parts, n_parts / 2);
  LLVMValueRef upper = emit_joined(e, n / 2, parts + n_parts / 2, n_parts / 2);
  unsigned lanes[LANES];
  for (unsigned i = 0; i < n; i++) lanes[i] = i;
  return shuffle(e, n, lower, upper, lanes);
}

void emit_transposed(Emitter *e, unsigned n, LLVMValueRef *rows) {
  for (unsigned i = 0; i < n; i += 4) emit_transposed_quarters(e, n, rows + i);
  transpose_squares(e, n, rows);
}
