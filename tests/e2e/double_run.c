/* usage: double_run hash N | double_run ulps N (with -DQUAD and libquadmath)
 *
 * The own functions of a double, compiled for any machine (test_double_bits.py). hash: for each a hash over its results of N
 * arguments. ulps: for each how far its results of N arguments of each kind are from the exact ones, at most, by functions of
 * 113 bits. As a WebAssembly module: double_hash alone. */
#include "double_arguments.h"
#include "tfm/abi/double_functions.h"

typedef struct Kind {
  const char *name;
  double (*function)(double);
  double (*argument)(void);
} Kind;

static const Kind kinds[] = {
    {"exp", double_exp, of_exp},      {"exp", double_exp, near_0},       {"exp", double_exp, any},
    {"log", double_log, above_0},     {"log", double_log, near_1},       {"sin", double_sin, of_a_turn},
    {"sin", double_sin, of_positions}, {"sin", double_sin, near_quarters}, {"sin", double_sin, near_0},
    {"sin", double_sin, any},         {"cos", double_cos, of_a_turn},    {"cos", double_cos, of_positions},
    {"cos", double_cos, near_quarters}, {"cos", double_cos, any},        {"tanh", double_tanh, of_tanh},
    {"tanh", double_tanh, near_0},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, POW = N_KINDS, FLOAT_POW, N_ALL };

/* Of the results of kind `which`, one of N_ALL, for n arguments. */
__attribute__((visibility("default"))) uint64_t double_hash(uint32_t which, uint64_t n) {
  begin_hash();
  state = 88172645463325252 + which;
  for (uint64_t i = 0; i < n; i++) {
    double x, y;
    float base, exponent;
    if (which < N_KINDS) count(kinds[which].function(kinds[which].argument()));
    if (which == POW) of_pow(i, &x, &y), count(double_pow(x, y));
    if (which == FLOAT_POW) of_float_pow(i, &base, &exponent), count((double)float_pow(base, exponent));
  }
  return hash;
}

#ifndef __wasm__
#include <stdio.h>
#include <stdlib.h>

static const char *name_of(uint32_t which) {
  return which == POW ? "pow" : which == FLOAT_POW ? "float_pow" : kinds[which].name;
}
#endif

#ifdef QUAD
#include <quadmath.h>

/* In ulps of the double nearest to `right`; what is beyond the range, or NaN, must be so in both. */
static double distance(double result, __float128 right, int digits, int least) {
  const double nearest = digits == 24 ? (double)(float)right : (double)right;
  if (isnan(result) || isnan(nearest)) return isnan(result) && isnan(nearest) ? 0 : INFINITY;
  if (isinf(result) || isinf(nearest)) return result == nearest || isinf(nearest) ? 0 : INFINITY;
  int exponent;
  frexp(nearest, &exponent);
  const int of_ulp = exponent - digits < least || nearest == 0 ? least : exponent - digits;
  return (double)(fabsq((__float128)result - right) / ldexpq(1, of_ulp));
}

static __float128 right_of(uint32_t which, double x) {
  static __float128 (*const functions[])(__float128) = {expq, logq, sinq, cosq, tanhq};
  static const char *const names[] = {"exp", "log", "sin", "cos", "tanh"};
  size_t f = 0;
  while (strcmp(names[f], kinds[which].name) != 0) f++;
  return functions[f]((__float128)x);
}

static double one_distance(uint32_t which, uint64_t i) {
  if (which == FLOAT_POW) {
    float x, y;
    of_float_pow(i, &x, &y);
    return distance((double)float_pow(x, y), powq((__float128)x, (__float128)y), 24, -149);
  }
  double x, y;
  if (which == POW) {
    of_pow(i, &x, &y);
    return distance(double_pow(x, y), powq((__float128)x, (__float128)y), 53, -1074);
  }
  x = kinds[which].argument();
  return distance(kinds[which].function(x), right_of(which, x), 53, -1074);
}

static void print_ulps(uint64_t n) {
  for (uint32_t which = 0; which < N_ALL; which++) {
    double most = 0;
    state = 88172645463325252 + which;
    for (uint64_t i = 0; i < n; i++) {
      const double d = one_distance(which, i);
      if (d > most) most = d;
    }
    printf("%s %.4f\n", name_of(which), most);
    fflush(stdout);
  }
}
#endif

#ifndef __wasm__
int main(int argc, char **argv) {
  const uint64_t n = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
  if (n && strcmp(argv[1], "hash") == 0) {
    for (uint32_t which = 0; which < N_ALL; which++)
      printf("%s %016llx\n", name_of(which), (unsigned long long)double_hash(which, n));
    return 0;
  }
#ifdef QUAD
  if (n && strcmp(argv[1], "ulps") == 0) {
    print_ulps(n);
    return 0;
  }
#endif
  fputs("usage: double_run hash N | ulps N\n", stderr);
  return 2;
}
#endif
