/* abi/double_functions.h: functions of a double whose bits no machine changes: libm's depend on its version and on
 * whether the CPU has FMA. For the runtime, the interpreter and what the compiler computes itself.
 *
 * In: any double. Out: at most 1 ulp from the exact value, as Annex F of C17 says at its edges (signs of zero,
 * infinities, NaN); errno and the exceptions of the environment are not promised. Assumes round to nearest. */
#ifndef TFM_ABI_DOUBLE_FUNCTIONS_H
#define TFM_ABI_DOUBLE_FUNCTIONS_H

double double_exp(double x);
double double_log(double x);
double double_pow(double x, double y);
double double_tanh(double x);
double double_sin(double x);
double double_cos(double x);
/* The float nearest to x^y (one in 2^28 or so may be the other neighbour). */
float float_pow(float x, float y);

#endif
