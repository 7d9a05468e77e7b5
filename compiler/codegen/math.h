/* Math: the functions of the language on bundles of vectors, in code of our own, so that a number does not depend on a
 * library, on the instruction set (with FMA) or on its position in a vector.
 *
 * In: any f32, infinities and NaN included (NaN gives NaN). Out: errors in units of the last place of the result:
 *   exp, log, erf below 1; sin, cos, tanh below 1.5; sigmoid 2.5, silu 3; gelu, gelu_tanh, quick_gelu 1e-6 absolute
 *   below |x| = 10.
 * tests/unit/test_vector_math.c measures them. sqrt and division are exact to half a unit already. Refuses nothing. */
#ifndef TFM_CODEGEN_MATH_H
#define TFM_CODEGEN_MATH_H

#include "codegen/vector.h"

/* c[0] + c[1] x + ... by Horner's rule. */
Lanes math_polynomial(Emitter *e, Lanes x, const float *c, size_t n);

Lanes math_exp(Emitter *e, Lanes x);
/* exp of x <= 0, and 0 for x < -87.25, where results come near the denormal numbers. For softmax, sigmoid, erf. */
Lanes math_exp_nonpositive(Emitter *e, Lanes x);
/* The same, and 0 where the result is below 2^-100, for steps of training: products with it are 0 or normal. */
Lanes math_exp_dropping(Emitter *e, Lanes x);
Lanes math_log(Emitter *e, Lanes x);
Lanes math_rsqrt(Emitter *e, Lanes x); /* 1 / sqrt(x), each rounded */
Lanes math_erf(Emitter *e, Lanes x);
Lanes math_tanh(Emitter *e, Lanes x);
Lanes math_sigmoid(Emitter *e, Lanes x); /* 0 for x < -87.25 */
Lanes math_silu(Emitter *e, Lanes x);
Lanes math_gelu(Emitter *e, Lanes x);
Lanes math_gelu_tanh(Emitter *e, Lanes x);
Lanes math_quick_gelu(Emitter *e, Lanes x);
Lanes math_sin(Emitter *e, Lanes x); /* however large x is */
Lanes math_cos(Emitter *e, Lanes x);

#endif
