/* In: vectors of f32. Out: sin and cos of math.h, of angles of any size.
 *
 * Straight code serves angles below 2^20. Larger ones, infinities and NaN are rare, and reducing them takes a loop over
 * the lanes, so it is branched to where any lane needs it; a lane gives the same whatever its neighbours hold. The
 * coefficients are part of the bits of every model (math.c). */
#include "codegen/math.h"

static const uint32_t far_bits = 0x49800000; /* 2^20 */

static Lanes wide(Emitter *e, double number) { return lanes_splat(e, LLVMConstReal(e->f64, number)); }

// ---- near angles ----

/* The lower halves of 64-bit lanes: one shuffle, where a truncation becomes several. */
static Lanes lower_halves(Emitter *e, Lanes a) {
  Lanes r = {{NULL}};
  LLVMValueRef even[LANES];
  for (unsigned i = 0; i < LANES; i++) even[i] = emit_i32(e, 2 * i);
  for (unsigned i = 0; i < e->n_vectors; i++) {
    LLVMValueRef halves = LLVMBuildBitCast(e->builder, a.v[i], LLVMVectorType(e->i32, 2 * LANES), "");
    LLVMValueRef nothing = LLVMGetPoison(LLVMTypeOf(halves));
    r.v[i] = LLVMBuildShuffleVector(e->builder, halves, nothing, LLVMConstVector(even, LANES), "");
  }
  return r;
}

/* x = q pi/2 + r with |r| <= pi/4, in double with pi/2 in three pieces. Products of the first two with q < 2^20 are
 * exact, and the third is so small that r is the same f32 with and without FMA, for each of these x (all were tried).
 * Beyond them q and r have no meaning. */
static Lanes reduce_near(Emitter *e, Lanes x, Lanes *quadrant) {
  Lanes angle = lanes_convert(e, LLVMFPExt, x, e->f64), magic = wide(e, 0x1.8p52);
  Lanes shifted = lanes_fma(e, angle, wide(e, 0x1.45f306dc9c883p-1), magic);
  Lanes q = lanes_sub(e, shifted, magic);
  *quadrant = lower_halves(e, shifted);
  Lanes r = lanes_fma(e, q, wide(e, -0x1.921fb544p+0), angle);
  r = lanes_fma(e, q, wide(e, -0x1.0b4611a6p-34), r);
  r = lanes_fma(e, q, wide(e, -0x1.3198a2e037074p-69), r);
  return lanes_convert(e, LLVMFPTrunc, r, e->f32);
}

// ---- far angles (Payne and Hanek) ----

/* 2/pi, for eight exponents of x each, from 2^17 on: the bits above are left out, because their products with x are
 * multiples of four quadrants. The first two pieces have 29 bits, so that products with the 24 bits of x are exact; the
 * third has 53, which leaves an error of 2^-78. No f32 is nearer than 2^-31 to a multiple of pi/2. */
enum { PIECES = 3, EXPONENTS_SHIFT = 26, FIRST_EXPONENTS = 0x48000000 >> EXPONENTS_SHIFT };
static const double two_over_pi[][PIECES] = {
    {0x1.45f3000000000p-1, 0x1.b727220000000p-23, 0x1.529fc2757d1f4p-52},
    {0x1.45f306d000000p-1, 0x1.9391054000000p-30, 0x1.4fe13abe8fa9ap-59},
    {0x1.f306dc9000000p-9, 0x1.91054a7000000p-38, 0x1.e13abe8fa9a6ep-67},
    {0x1.06dc9c8000000p-17, 0x1.054a7f0000000p-46, 0x1.3abe8fa9a6ee0p-75},
    {0x1.b939104000000p-26, 0x1.4a7f09d000000p-54, 0x1.7d1f534ddc0dap-84},
    {0x1.391054a000000p-34, 0x1.fc2757c000000p-64, 0x1.1f534ddc0db62p-92},
    {0x1.1054a7e000000p-42, 0x1.09d5f47000000p-70, 0x1.a9a6ee06db14ap-99},
    {0x1.529fc20000000p-52, 0x1.d5f47d4000000p-78, 0x1.a6ee06db14accp-107},
    {0x1.4fe13a8000000p-59, 0x1.f47d4d3000000p-86, 0x1.dc0db6295993cp-116},
    {0x1.f84eafa000000p-65, 0x1.f534ddc000000p-96, 0x1.b6c52b3278840p-129},
    {0x1.3abe8f8000000p-75, 0x1.4d37703000000p-102, 0x1.b6295993c4390p-132},
    {0x1.5f47d4c000000p-82, 0x1.377036d000000p-110, 0x1.14acc9e21c820p-139},
    {0x1.a3ea69b000000p-89, 0x1.7036d8a000000p-118, 0x1.5993c439041fep-148},
    {0x1.ea69bb8000000p-97, 0x1.b6c52b0000000p-129, 0x1.93c439041fe50p-156},
};

/* The table as a constant of the module: once in a module, whatever the number of kernels that use it. */
static LLVMValueRef table_of(Emitter *e) {
  enum { N = sizeof two_over_pi / sizeof **two_over_pi };
  static const char name[] = "two_over_pi";
  LLVMValueRef known = LLVMGetNamedGlobal(e->module, name), numbers[N];
  if (known) return known;
  for (int i = 0; i < N; i++) numbers[i] = LLVMConstReal(e->f64, two_over_pi[i / PIECES][i % PIECES]);
  LLVMValueRef table = LLVMAddGlobal(e->module, LLVMArrayType2(e->f64, N), name);
  LLVMSetInitializer(table, LLVMConstArray2(e->f64, numbers, N));
  LLVMSetGlobalConstant(table, 1);
  LLVMSetLinkage(table, LLVMPrivateLinkage);
  LLVMSetAlignment(table, 8);
  return table;
}

/* x less the nearest integer, whose lowest bits are added to *quadrant. */
static LLVMValueRef fraction(Emitter *e, LLVMValueRef x, LLVMValueRef *quadrant) {
  LLVMValueRef magic = LLVMConstReal(e->f64, 0x1.8p52), shifted = LLVMBuildFAdd(e->builder, x, magic, "");
  LLVMValueRef bits = LLVMBuildBitCast(e->builder, shifted, e->i64, "");
  *quadrant = emit_add(e, *quadrant, LLVMBuildTrunc(e->builder, bits, e->i32, ""));
  return LLVMBuildFSub(e->builder, x, LLVMBuildFSub(e->builder, shifted, magic, ""), "");
}

/* One angle of at least 2^17. Every sum before the last is exact: integers are taken off before anything is lost. Of
 * what is no number: NaN, in the first quadrant. */
static LLVMValueRef reduce_one(Emitter *e, LLVMValueRef x, LLVMValueRef *quadrant) {
  LLVMBuilderRef b = e->builder;
  LLVMValueRef magnitude = LLVMBuildAnd(b, LLVMBuildBitCast(b, x, e->i32, ""), emit_i32(e, 0x7fffffff), "");
  LLVMValueRef group = LLVMBuildLShr(b, magnitude, emit_i32(e, EXPONENTS_SHIFT), "");
  LLVMValueRef row = LLVMBuildSub(b, LLVMBuildZExt(b, group, e->i64, ""), emit_i64(e, FIRST_EXPONENTS), "");
  row = emit_select(e, emit_icmp(e, LLVMIntSLT, row, emit_i64(e, 0)), emit_i64(e, 0), row);
  LLVMValueRef pieces = emit_offset(e, table_of(e), emit_mul(e, row, emit_i64(e, sizeof *two_over_pi)));
  LLVMValueRef angle = LLVMBuildFPExt(b, x, e->f64, ""), product[PIECES];
  for (int i = 0; i < PIECES; i++) {
    LLVMValueRef piece = emit_load(e, e->f64, emit_offset(e, pieces, emit_i64(e, i * (int64_t)sizeof(double))), 8);
    product[i] = LLVMBuildFMul(b, angle, piece, "");
  }
  *quadrant = emit_i32(e, 0);
  LLVMValueRef sum = LLVMBuildFAdd(b, fraction(e, product[0], quadrant), fraction(e, product[1], quadrant), "");
  sum = LLVMBuildFAdd(b, fraction(e, sum, quadrant), product[2], "");
  LLVMValueRef r = LLVMBuildFMul(b, sum, LLVMConstReal(e->f64, 0x1.921fb54442d18p+0), "");
  r = LLVMBuildFPTrunc(b, r, e->f32, "");
  LLVMValueRef is_number = emit_icmp(e, LLVMIntSLT, magnitude, emit_i32(e, 0x7f800000));
  *quadrant = emit_select(e, is_number, *quadrant, emit_i32(e, 0));
  return emit_select(e, is_number, r, emit_f32(e, (double)__builtin_nanf("")));
}

/* All lanes, one by one, by way of the stack. */
static Lanes reduce_far(Emitter *e, Lanes x, Lanes *quadrant) {
  const unsigned vector_bytes = LANES * sizeof(float), n = e->n_vectors * LANES;
  LLVMValueRef angles = emit_stack(e, LLVMArrayType2(e->f32, n), 64);
  LLVMValueRef quadrants = emit_stack(e, LLVMArrayType2(e->i32, n), 64);
  for (unsigned i = 0; i < e->n_vectors; i++)
    emit_store(e, x.v[i], emit_offset(e, angles, emit_i64(e, i * vector_bytes)), 64);
  Loop loop = loop_begin(e, emit_i64(e, 0), emit_i64(e, n), 1);
  LLVMValueRef offset = emit_mul(e, loop.index, emit_i64(e, sizeof(float))), at = emit_offset(e, angles, offset), q;
  emit_store(e, reduce_one(e, emit_load(e, e->f32, at, 4), &q), at, 4);
  emit_store(e, q, emit_offset(e, quadrants, offset), 4);
  loop_end(e, &loop);
  Lanes r = {{NULL}};
  for (unsigned i = 0; i < e->n_vectors; i++) {
    LLVMValueRef place = emit_i64(e, i * vector_bytes);
    r.v[i] = emit_load(e, lanes_type(e->f32), emit_offset(e, angles, place), 64);
    quadrant->v[i] = emit_load(e, lanes_type(e->i32), emit_offset(e, quadrants, place), 64);
  }
  return r;
}

// ---- either ----

static Lanes reduce_angle(Emitter *e, Lanes x, Lanes *quadrant) {
  Lanes near_quadrant, far_quadrant, near = reduce_near(e, x, &near_quadrant);
  Lanes is_far = lanes_icompare(e, LLVMIntUGE, lanes_as_i32(e, lanes_abs(e, x)), lanes_bits(e, far_bits));
  RareLanes rare = lanes_rare_begin(e, is_far);
  Lanes far = lanes_select(e, is_far, reduce_far(e, x, &far_quadrant), near);
  far_quadrant = lanes_select(e, is_far, far_quadrant, near_quadrant);
  lanes_rare_end(e, &rare);
  *quadrant = lanes_rare_meet(e, &rare, near_quadrant, far_quadrant);
  return lanes_rare_meet(e, &rare, near, far);
}

// ---- sin, cos ----

/* The sine of the reduced angle in even quadrants, the cosine in odd ones; the sign changes every two. The sum of the
 * sine loses the sign of -0, which is given back: it is that of r everywhere. */
static Lanes sine_in(Emitter *e, Lanes r, Lanes quadrant) {
  static const float odd[] = {-0x1.555556p-3f, 0x1.111174p-7f, -0x1.a05954p-13f, 0x1.7c2c4ep-19f};
  static const float even[] = {0x1.55554ap-5f, -0x1.6c0c28p-10f, 0x1.99e80cp-16f};
  Lanes square = lanes_mul(e, r, r), one = lanes_bits(e, 1), sign = lanes_bits(e, 0x80000000u);
  Lanes sine = lanes_fma(e, lanes_mul(e, math_polynomial(e, square, odd, 4), square), r, r);
  sine = lanes_binary(e, LLVMBuildOr, lanes_as_i32(e, sine), lanes_binary(e, LLVMBuildAnd, lanes_as_i32(e, r), sign));
  Lanes rest = lanes_fma(e, math_polynomial(e, square, even, 3), square, lanes_number(e, -0.5));
  Lanes cosine = lanes_fma(e, rest, square, lanes_number(e, 1));
  Lanes is_odd = lanes_icompare(e, LLVMIntNE, lanes_binary(e, LLVMBuildAnd, quadrant, one), lanes_bits(e, 0));
  Lanes turned = lanes_binary(e, LLVMBuildAnd, lanes_binary(e, LLVMBuildShl, quadrant, lanes_bits(e, 30)), sign);
  Lanes bits = lanes_select(e, is_odd, lanes_as_i32(e, cosine), sine);
  return lanes_as_f32(e, lanes_binary(e, LLVMBuildXor, bits, turned));
}

Lanes math_sin(Emitter *e, Lanes x) {
  Lanes quadrant, r = reduce_angle(e, x, &quadrant);
  return sine_in(e, r, quadrant);
}

Lanes math_cos(Emitter *e, Lanes x) {
  Lanes quadrant, r = reduce_angle(e, x, &quadrant);
  return sine_in(e, r, lanes_binary(e, LLVMBuildAdd, quadrant, lanes_bits(e, 1)));
}
