/* exp, log, pow, tanh, sin and cos of doubles: at most 1 ulp from libm in long double, at the edges as libm, and one
 * hash over 900,000 results, which is that of every machine. TFM_DOUBLES: how many arguments each (10^7 takes
 * minutes). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "double_arguments.h"
#include "tfm/abi/double_functions.h"

typedef struct Case {
  const char *name;
  double (*function)(double);
  long double (*right)(long double);
  double (*argument)(void);
} Case;

static const Case cases[] = {
    {"exp", double_exp, expl, of_exp},           {"exp", double_exp, expl, near_0},
    {"exp", double_exp, expl, any},              {"log", double_log, logl, above_0},
    {"log", double_log, logl, near_1},           {"sin", double_sin, sinl, of_a_turn},
    {"sin", double_sin, sinl, of_positions},     {"sin", double_sin, sinl, near_quarters},
    {"sin", double_sin, sinl, near_0},           {"sin", double_sin, sinl, any},
    {"cos", double_cos, cosl, of_a_turn},        {"cos", double_cos, cosl, of_positions},
    {"cos", double_cos, cosl, near_quarters},    {"cos", double_cos, cosl, any},
    {"tanh", double_tanh, tanhl, of_tanh},       {"tanh", double_tanh, tanhl, near_0},
};

/* In ulps of the double nearest to `right`; results that are beyond the range, or NaN, must be so in both. */
static double distance(double result, long double right) {
  const double nearest = (double)right;
  if (isnan(result) || isnan(nearest)) return isnan(result) && isnan(nearest) ? 0 : INFINITY;
  const bool is_beyond = fabsl(right) > 0x1.fffffffffffffp1023L;
  if (isinf(result) || isinf(nearest)) return result == nearest || is_beyond ? 0 : INFINITY;
  int exponent;
  frexp(nearest, &exponent);
  const double ulp = exponent < -1021 ? 0x1p-1074 : ldexp(1, exponent - 53);
  return (double)(fabsl((long double)result - right) / (long double)ulp);
}

static int how_many(int otherwise) {
  const char *given = getenv("TFM_DOUBLES");
  return given ? atoi(given) : otherwise;
}

Test(double_functions, are_within_an_ulp) {
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    double most = 0, at = 0;
    state = 88172645463325252 + c;
    for (int i = how_many(20000); i > 0; i--) {
      const double x = cases[c].argument(), d = distance(cases[c].function(x), cases[c].right((long double)x));
      if (d > most) most = d, at = x;
    }
    cr_expect_leq(most, 1, "%s(%a): %g ulp (case %zu)", cases[c].name, at, most, c);
  }
}

Test(double_functions, powers_are_within_an_ulp) {
  double most = 0, at = 0, of = 0;
  state = 1;
  for (int i = how_many(60000); i > 0; i--) {
    double x, y;
    of_pow((uint64_t)i, &x, &y);
    const double d = distance(double_pow(x, y), powl((long double)x, (long double)y));
    if (d > most) most = d, at = x, of = y;
  }
  cr_expect_leq(most, 1, "pow(%a, %a): %g ulp", at, of, most);
}

Test(double_functions, powers_of_floats_are_the_nearest_floats) {
  state = 2;
  int other = 0;
  const int n = how_many(100000);
  for (int i = 0; i < n; i++) {
    float x, y;
    of_float_pow((uint64_t)i, &x, &y);
    const float right = (float)powl((long double)x, (long double)y), result = float_pow(x, y);
    const float ulp = nextafterf(right, INFINITY) - right;
    cr_assert(result == right || fabsf(result - right) <= ulp, "%a, %a", (double)x, (double)y);
    other += result != right;
  }
  cr_expect_leq(other, 1 + n / 10000000);
}

// ---- edges: as Annex F says, which libm follows ----

static const double edges[] = {0.0, -0.0,     1,         -1,     2,          -2,      0.5,   -0.5,  3,      -3,     2.5,
                               NAN, INFINITY, -INFINITY, 0x1p53, 0x1p53 + 2, -0x1p63, 0x1p70, 1e300, -1e300, 5e-324,
                               -5e-324};
enum { N_EDGES = sizeof edges / sizeof *edges };

static bool is_like(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return signbit(a) == signbit(b) && (a == b || fabs(a - b) <= fabs(nextafter(b, INFINITY) - b));
}

Test(double_functions, are_as_annex_f_says_at_the_edges) {
  static double (*const right[])(double) = {exp, log, sin, cos, tanh};
  static double (*const ours[])(double) = {double_exp, double_log, double_sin, double_cos, double_tanh};
  for (int i = 0; i < N_EDGES; i++) {
    for (size_t f = 0; f < 5; f++)
      cr_expect(is_like(ours[f](edges[i]), right[f](edges[i])), "function %zu of %g", f, edges[i]);
    for (int j = 0; j < N_EDGES; j++) {
      cr_expect(is_like(double_pow(edges[i], edges[j]), pow(edges[i], edges[j])), "pow(%g, %g): %g", edges[i], edges[j],
                double_pow(edges[i], edges[j]));
      const float x = (float)edges[i], y = (float)edges[j];
      cr_expect(is_like((double)float_pow(x, y), (double)powf(x, y)), "pow of floats %g, %g", (double)x, (double)y);
    }
  }
}

// ---- bits ----

Test(double_functions, have_the_same_bits_on_every_machine) {
  begin_hash();
  state = 3;
  for (int i = 0; i < 50000; i++) {
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) count(cases[c].function(cases[c].argument()));
    const double x = above_0(), y = between(-4, 4); /* one after the other: arguments of a call have no order */
    count(double_pow(x, y));
    const float base = (float)between(0, 50), exponent = (float)between(-60, 60);
    count((double)float_pow(base, exponent));
  }
  cr_expect_eq(hash, UINT64_C(0x2e814390f2e801c8), "%#llx", (unsigned long long)hash);
}
