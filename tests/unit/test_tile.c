/* Tiles against chains of fmaf (or of rounded products) in plain C: equal bits, for all rows, lengths and tails. */
#include "../support/kernel_bench.h"

enum { MAX_K = 768, PAD = 5 };

typedef struct Case {
  KernelSpec spec;
  size_t kernel;
} Case;

static void fill(float *x, size_t n, uint64_t *seed) {
  for (size_t i = 0; i < n; i++) x[i] = random_float(seed);
}

static float reference(const Case *c, bool fma, const float *a, const float *b, float start, int64_t k, int i, int j) {
  float sum = start;
  for (int64_t at = 0; at < k; at++) {
    float x = a[i * c->spec.a_stride + at], y = b[at * c->spec.b_stride + j];
    if (c->spec.exact_zero && x == 0) y = 0;
    volatile float product = x * y;
    sum = fma ? fmaf(x, y, sum) : sum + product;
  }
  return sum;
}

static void check(KernelBench *bench, const Case *c, const float *a, const float *b, int64_t k, int64_t columns,
                  bool accumulate) {
  static float out[16 * 80], before[16 * 80];
  int64_t stride = c->spec.width + PAD;
  uint64_t seed = 99;
  fill(before, 16 * 80, &seed);
  memcpy(out, before, sizeof out);
  tfm_tile_kernel kernel = (tfm_tile_kernel)(uintptr_t)kernel_get(bench, c->kernel);
  kernel(a, b, out, stride, k, accumulate, columns, (const float *)(uintptr_t)64, k % 5);
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < stride; j++) {
      bool inside = i < c->spec.rows && j < columns;
      float want = before[i * stride + j];
      if (inside) want = reference(c, bench->plan.target->has_fma, a, b, accumulate ? want : 0, k, i, j);
      cr_assert(same_float(out[i * stride + j], want), "%s %ux%u k %d columns %d accumulate %d: [%d][%d] %a, not %a",
                bench->plan.target->name, c->spec.rows, c->spec.width, (int)k, (int)columns, accumulate, i, j,
                (double)out[i * stride + j], (double)want);
    }
}

static void check_case(KernelBench *bench, const Case *c) {
  static const int64_t lengths[] = {0, 1, 3, 4, 5, 17, MAX_K};
  size_t n_a = (size_t)(16 * c->spec.a_stride + MAX_K), n_b = (size_t)(c->spec.b_stride * (MAX_K + 16) + 80);
  float *a = malloc(n_a * sizeof *a), *b = malloc(n_b * sizeof *b);
  uint64_t seed = 7;
  fill(a, n_a, &seed);
  fill(b, n_b, &seed);
  if (c->spec.exact_zero)
    for (int i = 0; i < c->spec.rows; i++) { /* a weight of 0 against NaN and infinity */
      a[i * c->spec.a_stride + 2] = i % 2 ? 0.0f : -0.0f;
      for (int j = 0; j < c->spec.width; j++) b[2 * c->spec.b_stride + j] = j % 2 ? NAN : INFINITY;
    }
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    int64_t width = c->spec.width, cuts[] = {width, 1, width / 2 + 1, width - 1};
    for (int accumulate = 0; accumulate < 2; accumulate++)
      for (int cut = 0; cut < (lengths[i] == MAX_K ? 2 : 4); cut++)
        check(bench, c, a, b, lengths[i], cuts[cut], accumulate);
  }
  free(a);
  free(b);
}

static void add(KernelBench *bench, Case *cases, size_t *n, TileShape shape, int64_t b_stride, bool exact_zero) {
  for (int rows = 1; rows <= shape.rows; rows++) {
    KernelSpec spec = {.family = KERNEL_TILE,
                       .rows = (uint8_t)rows,
                       .width = shape.width,
                       .a_stride = MAX_K + 3,
                       .b_stride = b_stride,
                       .exact_zero = exact_zero};
    cases[*n] = (Case){spec, kernel_add(bench, spec)};
    ++*n;
  }
}

static void check_target(const char *name) {
  if (!host_runs(name)) return;
  KernelBench bench = kernel_bench_new(name);
  Case cases[200];
  size_t n = 0;
  const TargetInfo *target = bench.plan.target;
  for (int i = 0; i < 3; i++)
    if (target->gemm_tiles[i].rows) add(&bench, cases, &n, target->gemm_tiles[i], target->gemm_tiles[i].width, false);
  for (int i = 0; i < 3; i++)
    if (target->attention_value_widths[i]) {
      TileShape shape = {target->attention_keys.rows, (uint8_t)target->attention_value_widths[i]};
      add(&bench, cases, &n, shape, shape.width + 7, false);
      add(&bench, cases, &n, shape, shape.width + 7, true);
    }
  kernels_compile(&bench);
  for (size_t i = 0; i < n; i++) check_case(&bench, &cases[i]);
  kernel_bench_free(&bench);
}

Test(tile, baseline) { check_target("x86-64"); }
Test(tile, avx2) { check_target("x86-64-v3"); }
Test(tile, avx512) { check_target("x86-64-v4"); }
