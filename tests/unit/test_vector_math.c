/* Our functions against libm in double: a million points each, errors in units of the last place, special values; the
 * bits of AVX2 and AVX-512 are the same. */
#include "../support/kernel_bench.h"

enum { BATCH = 1 << 16, BATCHES = 16 };

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }
/* The product form cancels for negative x. */
static double gelu(double x) { return x * 0.5 * erfc(-x * 0.70710678118654752440); }
static double gelu_tanh(double x) { return x * sigmoid(1.5957691216057307117 * (x + 0.044715 * x * x * x)); }
static double quick_gelu(double x) { return x * sigmoid(1.702 * x); }
static double rsqrt(double x) { return 1 / sqrt(x); }

typedef struct Function {
  const char *name;
  OpKind op;
  double (*reference)(double);
  double from, to;  /* range of the points */
  double ulp;       /* bound of the error in units of the last place, */
  double absolute;  /* or, if not 0, absolute */
} Function;

static const Function functions[] = {
    {"exp", OP_EXP, exp, -104, 89, 2, 0},
    {"exp small", OP_EXP, exp, -1e-3, 1e-3, 1, 0},
    {"log", OP_LOG, log, 0, 3e38, 2, 0},
    {"log near 1", OP_LOG, log, 0.5, 2, 2, 0},
    {"log denormal", OP_LOG, log, 0, 1e-37, 2, 0},
    {"sqrt", OP_SQRT, sqrt, 0, 1e6, 0.5, 0},
    {"rsqrt", OP_RSQRT, rsqrt, 0, 1e6, 1.5, 0},
    {"sin", OP_SIN, sin, -10, 10, 2, 0},
    {"sin far", OP_SIN, sin, -1e5, 1e5, 2, 0},
    {"sin farther", OP_SIN, sin, -1e9, 1e9, 2, 0},
    {"sin farthest", OP_SIN, sin, -3.4e38, 3.4e38, 2, 0},
    {"cos", OP_COS, cos, -10, 10, 2, 0},
    {"cos far", OP_COS, cos, -1e5, 1e5, 2, 0},
    {"cos farther", OP_COS, cos, -1e9, 1e9, 2, 0},
    {"cos farthest", OP_COS, cos, -3.4e38, 3.4e38, 2, 0},
    {"tanh", OP_TANH, tanh, -10, 10, 2, 0},
    {"tanh small", OP_TANH, tanh, -0.7, 0.7, 2, 0},
    {"sigmoid", OP_SIGMOID, sigmoid, -87, 103, 2.5, 0},
    {"erf", OP_ERF, erf, -4.5, 4.5, 2, 0},
    {"erf small", OP_ERF, erf, -1e-2, 1e-2, 2, 0},
    {"silu", OP_SILU, silu, -80, 80, 3, 0},
    {"gelu", OP_GELU, gelu, -10, 10, 0, 5e-7},
    {"gelu_tanh", OP_GELU_TANH, gelu_tanh, -10, 10, 0, 5.5e-7},
    {"quick_gelu", OP_QUICK_GELU, quick_gelu, -10, 10, 0, 1e-6},
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

static double last_place(double y) {
  float near = (float)fabs(y);
  if (near < 0x1p-126f) return 0x1p-149;
  if (isinf(near)) return 0x1p104;
  return (double)nextafterf(near, INFINITY) - (double)near;
}

static KernelBench compile(const char *target) {
  KernelBench bench = kernel_bench_new(target);
  for (size_t i = 0; i < N_FUNCTIONS; i++) {
    KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = 2};
    spec.expr = expr_op(bench.arena, functions[i].op, DTYPE_F32, expr_input(bench.arena, DTYPE_F32, 1), NULL, NULL);
    kernel_add(&bench, spec);
  }
  kernels_compile(&bench);
  return bench;
}

static void run(const KernelBench *bench, size_t kernel, float *x, float *y, int64_t n) {
  tfm_row_args args = {.rows = 1, .columns = n};
  args.operands[0] = (tfm_row_operand){(char *)y, 0, 4};
  args.operands[1] = (tfm_row_operand){(char *)x, 0, 4};
  ((tfm_row_kernel)(uintptr_t)kernel_get(bench, kernel))(&args);
}

static void points(const Function *f, int batch, float *x) {
  for (int i = 0; i < BATCH; i++) {
    double at = ((double)i * BATCHES + batch) / ((double)BATCH * BATCHES);
    x[i] = (float)(f->from + (f->to - f->from) * at);
  }
}

static void check_function(const KernelBench *bench, size_t kernel, double slack) {
  static float x[BATCH], y[BATCH];
  const Function *f = &functions[kernel];
  double worst = 0, worst_at = 0;
  for (int batch = 0; batch < BATCHES; batch++) {
    points(f, batch, x);
    run(bench, kernel, x, y, BATCH);
    for (int i = 0; i < BATCH; i++) {
      double want = f->reference(x[i]), unit = f->absolute != 0 ? 1 : last_place(want);
      double error = isinf((float)want) && y[i] == (float)want ? 0 : fabs((double)y[i] - want) / unit;
      if (!(error <= worst)) worst = error, worst_at = x[i];
    }
  }
  if (getenv("TFM_TEST_VERBOSE")) printf("%-10s %-14s %g at %g\n", bench->plan.target->name, f->name, worst, worst_at);
  double bound = f->absolute != 0 ? f->absolute : f->ulp;
  cr_expect(worst <= bound * slack, "%s %s: error %g at %.9g, bound %g", bench->plan.target->name, f->name, worst,
            worst_at, bound);
}

static void check_special(const KernelBench *bench) {
  float x[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, -1e-45f, 3.4e38f, -3.4e38f, -1.0f, 1.0f, 200.0f, -200.0f};
  enum { N = sizeof x / sizeof *x };
  float y[N];
  for (size_t k = 0; k < N_FUNCTIONS; k++) {
    if (functions[k].reference == gelu || functions[k].op == OP_SIN || functions[k].op == OP_COS) continue;
    run(bench, k, x, y, N);
    for (int i = 0; i < N; i++) {
      float want = (float)functions[k].reference(x[i]);
      bool near = fabs((double)y[i] - (double)want) <= 1e-6 * fabs((double)want) + 1e-36;
      bool silu_like = isinf(x[i]) && isnan(y[i]) && x[i] < 0;
      cr_expect(same_float(y[i], want) || near || silu_like, "%s %s(%g) is %g, not %g", bench->plan.target->name,
                functions[k].name, (double)x[i], (double)y[i], (double)want);
    }
  }
}

/* A number gives the same whatever stands beside it: what few numbers need must not show in the others. */
static void check_neighbours(const KernelBench *bench) {
  enum { N = 48 };
  const float others[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, -1.0f, 3e38f, 1.5f};
  float x[N], y[N], alone;
  for (size_t k = 0; k < N_FUNCTIONS; k++)
    for (int i = 0; i < 1000; i++) {
      float number = (float)(functions[k].from + (functions[k].to - functions[k].from) * (i + 0.5) / 1000);
      for (int lane = 0; lane < N; lane++) x[lane] = i % 3 ? number : others[(lane + i) % 9];
      x[i % N] = number;
      run(bench, k, &number, &alone, 1);
      run(bench, k, x, y, N);
      cr_assert(same_float(y[i % N], alone), "%s %s(%a)", bench->plan.target->name, functions[k].name, (double)number);
    }
}

/* Angles of every size, the nearest numbers to multiples of pi/2 among them. */
static float angle(int i) {
  uint32_t bits = (uint32_t)i * 2654435761u, exponent = 120 + (uint32_t)i % 135;
  float value;
  if (i % 4 == 3) return (float)(ldexp((double)(bits | 1), i % 90 - 16) * 1.5707963267948966);
  bits = (bits & 0x807fffff) | exponent << 23;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* An angle has the same sine whether its neighbours are small or large, and it is right. */
static void check_angles_of_kernel(const KernelBench *bench, size_t k, double slack) {
  enum { NEIGHBOURS = 16 };
  static float x[BATCH], y[BATCH], alone[NEIGHBOURS], sines[NEIGHBOURS];
  float small = 0.5f, half;
  run(bench, k, &small, &half, 1);
  for (int i = 0; i < BATCH; i++) x[i] = angle(i);
  run(bench, k, x, y, BATCH);
  for (int i = 0; i < BATCH; i++) {
    double want = functions[k].reference(x[i]);
    cr_assert(fabs((double)y[i] - want) <= 2 * slack * last_place(want), "%s %s(%a) is %.9g, not %.9g",
              bench->plan.target->name, functions[k].name, (double)x[i], (double)y[i], want);
    for (int lane = 0; lane < NEIGHBOURS; lane++) alone[lane] = lane == i % NEIGHBOURS ? x[i] : small;
    run(bench, k, alone, sines, NEIGHBOURS);
    cr_assert(same_float(sines[i % NEIGHBOURS], y[i]));
    cr_assert(same_float(sines[(i + 1) % NEIGHBOURS], half));
  }
}

/* NaN of what is no number. */
static void check_angles(const KernelBench *bench, double slack) {
  float x[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
  enum { N = sizeof x / sizeof *x };
  float y[N];
  for (size_t k = 0; k < N_FUNCTIONS; k++) {
    if (functions[k].op != OP_SIN && functions[k].op != OP_COS) continue;
    run(bench, k, x, y, N);
    for (int i = 0; i < 3; i++) cr_expect(isnan(y[i]));
    for (int i = 3; i < N; i++) cr_expect(same_float(y[i], functions[k].op == OP_SIN ? x[i] : 1.0f));
    if (functions[k].to == 10) check_angles_of_kernel(bench, k, slack);
  }
}

/* The roots of [1, 4) have every mantissa: a reciprocal without a division must have the bits of one for all of them. */
static void check_reciprocals(const KernelBench *bench) {
  static float x[BATCH], y[BATCH];
  size_t k = 0;
  while (functions[k].op != OP_RSQRT) k++;
  for (uint32_t from = 0; from < 1u << 24; from += BATCH) {
    for (uint32_t i = 0; i < BATCH; i++) {
      uint32_t bits = 0x3f800000 + from + i;
      memcpy(&x[i], &bits, sizeof bits);
    }
    run(bench, k, x, y, BATCH);
    for (int i = 0; i < BATCH; i++)
      cr_assert(same_float(y[i], 1 / sqrtf(x[i])), "%s rsqrt(%a)", bench->plan.target->name, (double)x[i]);
  }
}

static void check_target(const char *name, double slack) {
  if (!host_runs(name)) return;
  KernelBench bench = compile(name);
  check_reciprocals(&bench);
  for (size_t i = 0; i < N_FUNCTIONS; i++) check_function(&bench, i, slack);
  check_special(&bench);
  check_neighbours(&bench);
  check_angles(&bench, slack);
  kernel_bench_free(&bench);
}

Test(vector_math, baseline) { check_target("x86-64", 1.5); } /* without FMA */
Test(vector_math, avx2) { check_target("x86-64-v3", 1); }
Test(vector_math, avx512) { check_target("x86-64-v4", 1); }

Test(vector_math, same_bits) {
  static float x[BATCH], a[BATCH], b[BATCH];
  if (!host_runs("x86-64-v4")) return;
  KernelBench avx2 = compile("x86-64-v3"), avx512 = compile("x86-64-v4");
  for (size_t k = 0; k < N_FUNCTIONS; k++) {
    uint64_t seed = k;
    points(&functions[k], 0, x);
    for (int i = 0; i < 4096; i++) { /* and any bits at all */
      uint32_t bits = random_bits(&seed);
      memcpy(&x[i * 16], &bits, sizeof bits);
    }
    run(&avx2, k, x, a, BATCH);
    run(&avx512, k, x, b, BATCH);
    for (int i = 0; i < BATCH; i++)
      cr_assert(same_float(a[i], b[i]), "%s(%a): %a, %a", functions[k].name, (double)x[i], (double)a[i], (double)b[i]);
  }
  kernel_bench_free(&avx2);
  kernel_bench_free(&avx512);
}
