/* In: vectors of f32. Out: the functions of math.h as straight code: all lanes take the same instructions, so a lane
 * gives the same whatever its neighbours hold. Only log branches, to more instructions of the same results.
 *
 * The coefficients are minimax fits of our own (relative error of the result, rounded to f32 from the lowest on). They
 * are part of the bits of every model: whoever changes one changes results. */
#include "codegen/math.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

Lanes math_polynomial(Emitter *e, Lanes x, const float *c, size_t n) {
  Lanes sum = lanes_number(e, c[n - 1]);
  for (size_t i = n - 1; i-- > 0;) sum = lanes_fma(e, sum, x, lanes_number(e, c[i]));
  return sum;
}
#define POLYNOMIAL(e, x, array) math_polynomial((e), (x), (array), COUNT(array))

/* Returns the larger of x and a number; NaN stays, because comparisons with it are false. */
static Lanes at_least(Emitter *e, Lanes x, double number) {
  Lanes bound = lanes_number(e, number);
  return lanes_select(e, lanes_compare(e, LLVMRealOLT, x, bound), bound, x);
}

static Lanes at_most(Emitter *e, Lanes x, double number) {
  Lanes bound = lanes_number(e, number);
  return lanes_select(e, lanes_compare(e, LLVMRealOGT, x, bound), bound, x);
}

// ---- exp ----

/* ln 2 in two pieces (Cody and Waite). The first has few enough bits that n * ln2_high is exact, so the reduction
 * loses nothing where x and n ln 2 nearly cancel. */
static const double ln2_high = 0x1.62e4p-1, ln2_low = 0x1.7f7d1cp-20; /* n * ln2_high is exact */
static const double log2_e = 0x1.715476p+0;

/* x = n ln 2 + r with |r| <= ln 2 / 2; returns e^r, by a polynomial of degree 6. */
static Lanes exp_reduced(Emitter *e, Lanes x, Lanes *n, Lanes *whole) {
  static const float c[] = {0x1p0f,         0x1p0f,         0x1.fffffcp-2f, 0x1.55548cp-3f,
                            0x1.555858p-5f, 0x1.123de0p-7f, 0x1.6ac744p-10f};
  *n = lanes_round(e, x, log2_e, whole);
  Lanes r = lanes_fma(e, *n, lanes_number(e, -ln2_high), x);
  r = lanes_fma(e, *n, lanes_number(e, -ln2_low), r);
  return POLYNOMIAL(e, r, c);
}

/* Bounded to -104, below which the result is 0 even as a denormal, and 89, above which it is infinite: so n stays
 * within what lanes_scale takes. */
Lanes math_exp(Emitter *e, Lanes x) {
  Lanes n, whole;
  Lanes p = exp_reduced(e, at_most(e, at_least(e, x, -104), 89), &n, &whole);
  return lanes_scale(e, p, n, whole);
}

/* The bound keeps every result at 2^-126 or more, so that no product is denormal: on many CPUs that would cost a
 * hundred cycles. What comes out for smaller x is not looked at: the select replaces it. */
static Lanes exp_above(Emitter *e, Lanes x, double least) {
  Lanes n, whole;
  Lanes p = exp_reduced(e, x, &n, &whole);
  Lanes below = lanes_compare(e, LLVMRealOLT, x, lanes_number(e, least));
  return lanes_select(e, below, lanes_number(e, 0), lanes_scale_normal(e, p, n, whole));
}

Lanes math_exp_nonpositive(Emitter *e, Lanes x) { return exp_above(e, x, -87.25); }

Lanes math_exp_dropping(Emitter *e, Lanes x) { return exp_above(e, x, -0x1.154244p+6); /* -100 ln 2 */ }

// ---- log ----

/* x = m 2^n with m in [sqrt 1/2, sqrt 2); log x = n ln 2 + log m, of normal x times 2^less. Subtracting the bits of
 * sqrt 1/2 first makes the exponent field of the difference n. */
static Lanes log_normal(Emitter *e, Lanes x, const Lanes *less) {
  static const float c[] = {0x1.555548p-2f, -0x1.000070p-2f, 0x1.99a542p-3f,  -0x1.552f10p-3f, 0x1.2302f8p-3f,
                            -0x1.00ff0ep-3f, 0x1.f04542p-4f, -0x1.bf2912p-4f, 0x1.b09e5ap-5f};
  const uint32_t root_half = 0x3f3504f3;
  Lanes bits = lanes_binary(e, LLVMBuildSub, lanes_as_i32(e, x), lanes_bits(e, root_half));
  Lanes n = lanes_convert(e, LLVMSIToFP, lanes_binary(e, LLVMBuildAShr, bits, lanes_bits(e, 23)), e->f32);
  if (less) n = lanes_sub(e, n, *less);
  bits = lanes_binary(e, LLVMBuildAnd, bits, lanes_bits(e, 0x007fffff));
  Lanes m = lanes_as_f32(e, lanes_binary(e, LLVMBuildAdd, bits, lanes_bits(e, root_half)));
  Lanes f = lanes_sub(e, m, lanes_number(e, 1)), square = lanes_mul(e, f, f);
  Lanes tail = lanes_mul(e, lanes_mul(e, POLYNOMIAL(e, f, c), f), square);
  tail = lanes_fma(e, n, lanes_number(e, ln2_low), tail);
  tail = lanes_fma(e, square, lanes_number(e, -0.5), tail);
  return lanes_fma(e, n, lanes_number(e, ln2_high), lanes_add(e, f, tail));
}

/* Denormal x are scaled by 2^23, which n gives back. */
static Lanes log_any(Emitter *e, Lanes x) {
  Lanes tiny = lanes_compare(e, LLVMRealOLT, x, lanes_number(e, 0x1p-126));
  Lanes normal = lanes_select(e, tiny, lanes_mul(e, x, lanes_number(e, 0x1p23)), x);
  Lanes less = lanes_select(e, tiny, lanes_number(e, 23), lanes_number(e, 0));
  Lanes result = log_normal(e, normal, &less);
  Lanes infinity = lanes_number(e, (double)__builtin_inff()), zero = lanes_number(e, 0);
  result = lanes_select(e, lanes_compare(e, LLVMRealOEQ, x, infinity), infinity, result);
  result = lanes_select(e, lanes_compare(e, LLVMRealOEQ, x, zero), lanes_neg(e, infinity), result);
  Lanes outside = lanes_compare(e, LLVMRealULT, x, zero); /* below 0, or NaN */
  return lanes_select(e, outside, lanes_number(e, (double)__builtin_nanf("")), result);
}

/* Most vectors hold positive normal numbers, of which nothing must be set right: those of other bits take more
 * instructions. Both ways give the same of a normal number. */
Lanes math_log(Emitter *e, Lanes x) {
  const uint32_t least = 0x00800000, infinity = 0x7f800000;
  Lanes above = lanes_binary(e, LLVMBuildSub, lanes_as_i32(e, x), lanes_bits(e, least));
  Lanes rare = lanes_icompare(e, LLVMIntUGE, above, lanes_bits(e, infinity - least));
  Lanes result = log_normal(e, x, NULL);
  RareLanes branch = lanes_rare_begin(e, rare);
  Lanes any = log_any(e, x);
  lanes_rare_end(e, &branch);
  return lanes_rare_meet(e, &branch, result, any);
}

// ---- rsqrt ----

/* The square root keeps the divider busy, so the reciprocal is computed without it. Of a positive normal x the root
 * lies within what lanes_reciprocal takes; vectors with other x divide. So does a single vector, of which a kernel has
 * few. */
Lanes math_rsqrt(Emitter *e, Lanes x) {
  const uint32_t least = 0x00800000, infinity = 0x7f800000;
  Lanes one = lanes_number(e, 1), root = lanes_sqrt(e, x);
  if (!e->target->reciprocal || e->n_vectors == 1) return lanes_div(e, one, root);
  Lanes above = lanes_binary(e, LLVMBuildSub, lanes_as_i32(e, x), lanes_bits(e, least));
  Lanes rare = lanes_icompare(e, LLVMIntUGE, above, lanes_bits(e, infinity - least));
  Lanes result = lanes_reciprocal(e, root);
  RareLanes branch = lanes_rare_begin(e, rare);
  Lanes divided = lanes_div(e, one, root);
  lanes_rare_end(e, &branch);
  return lanes_rare_meet(e, &branch, result, divided);
}

// ---- erf, tanh ----

/* Near 0: x + x p(x^2). Else 1 - exp(-(|x| + |x| q(|x|))). Beyond 3.95 erf is 1 in f32, and the bound keeps q where it
 * was fitted. */
Lanes math_erf(Emitter *e, Lanes x) {
  static const float near[] = {0x1.06eba8p-3f,  -0x1.812740p-2f,  0x1.ce2d62p-4f, -0x1.b800d6p-6f,
                               0x1.5446f6p-8f, -0x1.a5eb02p-11f, 0x1.4ef872p-14f};
  static const float far[] = {0x1.0772d8p-3f, 0x1.4538b6p-1f,   0x1.b2d358p-4f, -0x1.843468p-6f,
                              0x1.d92fa4p-9f, -0x1.4a1810p-12f, 0x1.5de57ap-17f};
  Lanes a = lanes_abs(e, x), square = lanes_mul(e, a, a), bounded = at_most(e, a, 3.95);
  Lanes small = lanes_fma(e, POLYNOMIAL(e, square, near), a, a);
  Lanes exponent = lanes_fma(e, POLYNOMIAL(e, bounded, far), bounded, bounded);
  Lanes large = lanes_sub(e, lanes_number(e, 1), math_exp_nonpositive(e, lanes_neg(e, exponent)));
  Lanes is_far = lanes_compare(e, LLVMRealOGT, a, lanes_number(e, 0.921875));
  return lanes_with_sign(e, lanes_select(e, is_far, large, small), x);
}

/* exp(2 a) + 1 for a in [0, 20], with the bits of exp_reduced: it works on r / 2, and the coefficients make up for the
 * powers of two. The number that rounds holds the bias of exponents too, so that a shift gives 2^n, by which the
 * product is exact. No 2 a / ln 2 lies halfway between integers. */
static Lanes exp_double_plus_one(Emitter *e, Lanes a) {
  static const float c[] = {0x1p0f,         0x1p1f,         0x1.fffffcp+0f, 0x1.55548cp+0f,
                            0x1.555858p-1f, 0x1.123de0p-2f, 0x1.6ac744p-4f};
  Lanes magic = lanes_number(e, 0x1.8p23 + 127), one = lanes_number(e, 1);
  Lanes shifted = lanes_fma(e, a, lanes_number(e, 2 * log2_e), magic);
  Lanes power = lanes_as_f32(e, lanes_binary(e, LLVMBuildShl, lanes_as_i32(e, shifted), lanes_bits(e, 23)));
  Lanes n = lanes_sub(e, shifted, magic);
  Lanes half = lanes_fma(e, n, lanes_number(e, -ln2_high / 2), a);
  half = lanes_fma(e, n, lanes_number(e, -ln2_low / 2), half);
  return lanes_fma(e, POLYNOMIAL(e, half, c), power, one);
}

/* Near 0: x + x^3 p(x^2), because 1 - 2 / (exp(2 |x|) + 1), which is used elsewhere, would cancel there. |x| is
 * bounded by 20: far beyond that of the result being 1, and below overflow. The square decides where 0.625 ends, whose
 * own is exact; that of NaN chooses the formula that keeps it. */
Lanes math_tanh(Emitter *e, Lanes x) {
  static const float near[] = {-0x1.55552ep-2f, 0x1.110614p-3f, -0x1.b81740p-5f, 0x1.512de6p-6f, -0x1.7172ecp-8f};
  Lanes square = lanes_mul(e, x, x), one = lanes_number(e, 1);
  Lanes small = lanes_fma(e, lanes_mul(e, POLYNOMIAL(e, square, near), square), x, x);
  Lanes quotient = lanes_div(e, lanes_number(e, 2), exp_double_plus_one(e, lanes_least_magnitude(e, x, 20)));
  Lanes is_far = lanes_compare(e, LLVMRealOGT, square, lanes_number(e, 0.625 * 0.625));
  return lanes_with_sign(e, lanes_select(e, is_far, lanes_sub(e, one, quotient), small), x);
}

// ---- sigmoid and what is made from it ----

/* With z = exp(-|x|): 1 / (1 + z), or z / (1 + z) for negative x, which is accurate at both ends. */
Lanes math_sigmoid(Emitter *e, Lanes x) {
  Lanes one = lanes_number(e, 1), z = math_exp_nonpositive(e, lanes_neg(e, lanes_abs(e, x)));
  Lanes negative = lanes_compare(e, LLVMRealOLT, x, lanes_number(e, 0));
  return lanes_div(e, lanes_select(e, negative, z, one), lanes_add(e, one, z));
}

/* x times the rounded sigmoid: 3 units in the last place. */
Lanes math_silu(Emitter *e, Lanes x) { return lanes_mul(e, x, math_sigmoid(e, x)); }

/* The normal distribution left of -u for u in [0, 6] is 2^(-u p(u)) / 2. gelu is max(x, 0) minus |x| times it: 3e-8 of
 * absolute error beside the rounding of the result; exactly max(x, 0) beyond 6. The constants hold -p and 2^r / 2.
 * Of -inf it is NaN, as x/2 (1 + erf) is: the 0 of max(x, 0) is |x| times 0. */
Lanes math_gelu(Emitter *e, Lanes x) {
  static const float p[] = {-0x1.26aedap+0f,  -0x1.d63b24p-2f,  -0x1.addcd0p-5f, 0x1.ca80dcp-8f, -0x1.831014p-15f,
                            -0x1.072808p-12f, 0x1.0e80e4p-14f, -0x1.062ccap-17f, 0x1.a6a124p-22f};
  static const float power[] = {0x1p-1f,         0x1.62e42ap-2f, 0x1.ebf9c2p-4f,
                                0x1.c6b6d8p-6f, 0x1.3ce8b0p-8f, 0x1.5bda9ep-11f};
  Lanes u = lanes_abs(e, x), bounded = at_most(e, u, 6), slope = POLYNOMIAL(e, bounded, p), whole;
  Lanes n = lanes_round_product(e, bounded, slope, &whole);
  Lanes r = lanes_fma(e, bounded, slope, lanes_neg(e, n));
  Lanes beyond = lanes_compare(e, LLVMRealOGT, u, lanes_number(e, 6));
  Lanes tail = lanes_select(e, beyond, lanes_number(e, 0), lanes_scale_normal(e, POLYNOMIAL(e, r, power), n, whole));
  Lanes zero = lanes_number(e, 0), negative = lanes_compare(e, LLVMRealOLT, x, zero);
  return lanes_fma(e, lanes_neg(e, bounded), tail, lanes_select(e, negative, lanes_mul(e, u, zero), x));
}

/* x/2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3) */
Lanes math_gelu_tanh(Emitter *e, Lanes x) {
  const double factor = 2 * 0x1.9884533d43651p-1;
  Lanes square = lanes_mul(e, x, x);
  Lanes inner = lanes_fma(e, square, lanes_number(e, factor * 0.044715), lanes_number(e, factor));
  return lanes_mul(e, x, math_sigmoid(e, lanes_mul(e, x, inner)));
}

Lanes math_quick_gelu(Emitter *e, Lanes x) {
  return lanes_mul(e, x, math_sigmoid(e, lanes_mul(e, x, lanes_number(e, 1.702))));
}
