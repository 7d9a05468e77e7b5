/* Reductions, softmax and norms in row kernels: plain C with the same lanes and tree gives the same bits for sums, both
 * directions agree bit by bit, the rest is compared with double. */
#include "../support/kernel_bench.h"

enum { MAX = 600 };

static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
static const OpKind plain[] = {OP_SUM, OP_MEAN, OP_MAX, OP_MIN, OP_ARGMAX};
static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 48, 49, 100, 333, 600};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

typedef struct Block { /* of a reduction along columns, rows x columns, or its transpose */
  int64_t rows, columns;
  float x[8][MAX], y[8][MAX];
  int32_t index[8];
  float result[8];
} Block;

static float sum_in_lanes(const float *x, int64_t n) {
  float lanes[16] = {0};
  for (int64_t i = 0; i < n; i++) lanes[i % 16] += x[i];
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
  return lanes[0];
}

static KernelSpec spec_of(Arena *arena, OpKind op, uint8_t reduce, bool long_expr) {
  KernelSpec spec = {.family = KERNEL_ROW, .reduction = op, .reduce = reduce, .n_operands = 2, .eps = 1e-5};
  if (op == OP_ARGMAX) spec.operands[0].dtype = DTYPE_I32;
  bool row_result = op == OP_SOFTMAX || op == OP_LOG_SOFTMAX || op == OP_LAYER_NORM || op == OP_RMS_NORM;
  if (!row_result && reduce == 1) spec.operands[0].access = COLUMN_BROADCAST;
  Expr *x = expr_input(arena, DTYPE_F32, 1);
  spec.expr = long_expr ? expr_op(arena, OP_NEG, DTYPE_F32, expr_op(arena, OP_NEG, DTYPE_F32, x, NULL, NULL), NULL, NULL)
                        : x;
  return spec;
}

/* Runs along the columns of b->x. */
static void run(KernelBench *bench, size_t kernel, Block *b, void *result, int64_t row_stride) {
  tfm_row_args args = {.rows = b->rows, .columns = b->columns};
  args.operands[0] = (tfm_row_operand){result, row_stride, 4};
  args.operands[1] = (tfm_row_operand){(char *)b->x, sizeof b->x[0], 4};
  ((tfm_row_kernel)(uintptr_t)kernel_get(bench, kernel))(&args);
}

/* The same numbers in another order of memory: rows become columns. */
static void run_transposed(KernelBench *bench, size_t kernel, Block *b, void *result, bool rows) {
  static float x[MAX][8], y[MAX][8];
  for (int64_t r = 0; r < b->rows; r++)
    for (int64_t c = 0; c < b->columns; c++) x[c][r] = b->x[r][c];
  tfm_row_args args = {.rows = b->columns, .columns = b->rows};
  args.operands[0] = rows ? (tfm_row_operand){(char *)y, sizeof y[0], 4} : (tfm_row_operand){result, 0, 4};
  args.operands[1] = (tfm_row_operand){(char *)x, sizeof x[0], 4};
  ((tfm_row_kernel)(uintptr_t)kernel_get(bench, kernel))(&args);
  if (!rows) return;
  for (int64_t r = 0; r < b->rows; r++)
    for (int64_t c = 0; c < b->columns; c++) ((float(*)[MAX])result)[r][c] = y[c][r];
}

static void fill(Block *b, int64_t rows, int64_t columns, uint64_t *seed) {
  b->rows = rows, b->columns = columns;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) b->x[r][c] = random_float(seed) * 10;
}

static void set_special(Block *b) {
  int64_t n = b->columns;
  b->x[1][n - 1] = NAN;
  b->x[2][n / 2] = INFINITY;
  for (int64_t c = 0; c < n; c++) b->x[3][c] = -INFINITY;
  for (int64_t c = 0; c < n; c++) b->x[4][c] = 2;
}

// ---- one number per line ----

static int32_t argmax(const float *x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 0; i < n; i++)
    if (x[i] > x[best] || (isnan(x[i]) && !isnan(x[best]))) best = i;
  return (int32_t)best;
}

static float expected(OpKind op, const float *x, int64_t n) {
  float best = x[argmax(x, n)];
  if (op == OP_SUM) return sum_in_lanes(x, n);
  if (op == OP_MEAN) return sum_in_lanes(x, n) / (float)n;
  if (op == OP_MAX || isnan(best)) return best;
  for (int64_t i = 0; i < n; i++)
    if (x[i] < best) best = x[i];
  return best;
}

static void check_plain(KernelBench *bench, size_t kernel, OpKind op, Block *b, bool transposed) {
  float values[8];
  int32_t indexes[8];
  void *result = op == OP_ARGMAX ? (void *)indexes : values;
  if (transposed) run_transposed(bench, kernel, b, result, false);
  else run(bench, kernel, b, result, 4);
  for (int64_t r = 0; r < b->rows; r++) {
    const char *name = bench->plan.target->name;
    if (op == OP_ARGMAX) {
      cr_assert(indexes[r] == argmax(b->x[r], b->columns), "%s argmax %d of %d: %d, not %d", name, (int)r,
                (int)b->columns, indexes[r], argmax(b->x[r], b->columns));
    } else {
      float want = expected(op, b->x[r], b->columns);
      cr_assert(same_float(values[r], want), "%s %d (transposed %d) row %d of %d: %a, not %a", name, op, transposed,
                (int)r, (int)b->columns, (double)values[r], (double)want);
    }
  }
}

Test(reductions, one_number) {
  static Block b;
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = kernel_bench_new(names[t]);
    for (size_t i = 0; i < 5; i++)
      for (uint8_t reduce = 1; reduce <= 2; reduce++) kernel_add(&bench, spec_of(bench.arena, plain[i], reduce, true));
    kernels_compile(&bench);
    uint64_t seed = 5;
    for (size_t n = 0; n < 2 * N_LENGTHS; n++) {
      fill(&b, 8, lengths[n / 2], &seed);
      if (n % 2) set_special(&b);
      for (size_t i = 0; i < 10; i++) check_plain(&bench, i, plain[i / 2], &b, i % 2 == 1);
    }
    kernel_bench_free(&bench);
  }
}

// ---- a line of numbers per line ----

static void softmax(const float *x, int64_t n, double *y, bool logarithm) {
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++)
    if (isnan(x[i]) || x[i] > most) most = x[i];
  for (int64_t i = 0; i < n; i++) sum += exp(x[i] - most);
  for (int64_t i = 0; i < n; i++) y[i] = logarithm ? x[i] - most - log(sum) : exp(x[i] - most) / sum;
  if (!logarithm && most == -INFINITY)
    for (int64_t i = 0; i < n; i++) y[i] = 0;
}

static void normal(const float *x, int64_t n, double *y, bool rms) {
  double mean = 0, squares = 0;
  for (int64_t i = 0; i < n; i++) mean += rms ? 0 : x[i] / (double)n;
  for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean) / (double)n;
  for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) / sqrt(squares + 1e-5);
}

static void reference(OpKind op, const float *x, int64_t n, double *y) {
  if (op == OP_SOFTMAX || op == OP_LOG_SOFTMAX) softmax(x, n, y, op == OP_LOG_SOFTMAX);
  else normal(x, n, y, op == OP_RMS_NORM);
}

static void check_rows(KernelBench *bench, OpKind op, const Block *b, const float (*y)[MAX]) {
  double want[MAX];
  for (int64_t r = 0; r < b->rows; r++) {
    reference(op, b->x[r], b->columns, want);
    for (int64_t c = 0; c < b->columns; c++) {
      bool same = (isnan(y[r][c]) && isnan(want[c])) || (double)y[r][c] == want[c];
      bool near = fabs((double)y[r][c] - want[c]) <= 2e-6 * (1 + fabs(want[c]));
      cr_assert(same || near, "%s %d row %d of %d [%d]: %g, not %g", bench->plan.target->name, op, (int)r,
                (int)b->columns, (int)c, (double)y[r][c], want[c]);
    }
  }
}

/* FNV-1a of the bits, all NaN the same. */
static void add_bits(uint64_t *hash, const float (*y)[MAX], const Block *b) {
  for (int64_t r = 0; r < b->rows; r++)
    for (int64_t c = 0; c < b->columns; c++) {
      uint32_t bits = 0x7fc00000;
      if (!isnan(y[r][c])) memcpy(&bits, &y[r][c], sizeof bits);
      *hash = (*hash ^ bits) * 0x100000001b3u;
    }
}

Test(reductions, rows) {
  static Block b;
  static float again[8][MAX];
  uint64_t hashes[3] = {0};
  static const OpKind ops[] = {OP_SOFTMAX, OP_LOG_SOFTMAX, OP_LAYER_NORM, OP_RMS_NORM};
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = kernel_bench_new(names[t]);
    for (size_t i = 0; i < 4; i++)
      for (int kind = 0; kind < 3; kind++) /* an operand; an expression; the same along rows */
        kernel_add(&bench, spec_of(bench.arena, ops[i], kind == 2 ? 2 : 1, kind > 0));
    kernels_compile(&bench);
    uint64_t seed = 5;
    for (size_t n = 0; n < 2 * N_LENGTHS; n++) {
      fill(&b, 8, lengths[n / 2], &seed);
      if (n % 2) set_special(&b);
      for (size_t i = 0; i < 12; i++) {
        if (i % 3 == 2) run_transposed(&bench, i, &b, again, true);
        else run(&bench, i, &b, i % 3 == 0 ? b.y : again, sizeof b.y[0]);
        if (i % 3 == 0) check_rows(&bench, ops[i / 3], &b, (const float(*)[MAX])b.y);
        if (i % 3 == 0) add_bits(&hashes[t], (const float(*)[MAX])b.y, &b);
        for (int64_t r = 0; r < b.rows && i % 3; r++)
          for (int64_t c = 0; c < b.columns; c++) cr_assert(same_float(b.y[r][c], again[r][c]), "%s %d [%d][%d] of %d",
                                                            names[t], (int)i, (int)r, (int)c, (int)b.columns);
      }
    }
    kernel_bench_free(&bench);
  }
  if (host_runs("x86-64-v4")) cr_assert(hashes[1] == hashes[2], "AVX-512 has other bits than AVX2");
}

/* Any number of columns side by side gives the bits of rows: fewer rows than lanes and more, none, as many as go
 * together at the beginning and once more, a piece of columns and more, odd strides; nothing is written beyond the
 * columns. */
enum { MOST_ROWS = 145 };


static void check_columns(KernelBench *bench, size_t pair, OpKind op, int64_t rows, int64_t columns, const float *x) {
  enum { STRIDE = 601 };
  static float along_rows[MOST_ROWS * STRIDE + 1], along_columns[MOST_ROWS * STRIDE + 1];
  bool writes_rows = pair >= 5;
  memset(along_rows, 0x55, sizeof along_rows);
  memset(along_columns, 0x55, sizeof along_columns);
  tfm_row_args args = {.rows = columns, .columns = rows};
  args.operands[0] = (tfm_row_operand){(char *)(along_rows + 1), 4, writes_rows ? STRIDE * 4 : 0};
  args.operands[1] = (tfm_row_operand){(char *)(x + 1), 4, STRIDE * 4};
  ((tfm_row_kernel)(uintptr_t)kernel_get(bench, 2 * pair))(&args);
  args = (tfm_row_args){.rows = rows, .columns = columns};
  args.operands[0] = (tfm_row_operand){(char *)(along_columns + 1), writes_rows ? STRIDE * 4 : 0, 4};
  args.operands[1] = (tfm_row_operand){(char *)(x + 1), STRIDE * 4, 4};
  ((tfm_row_kernel)(uintptr_t)kernel_get(bench, 2 * pair + 1))(&args);
  for (int64_t i = 0; i < MOST_ROWS * STRIDE + 1; i++)
    cr_assert(same_float(along_rows[i], along_columns[i]), "%s %d of %d x %d, number %d: %a, not %a",
              bench->plan.target->name, op, (int)rows, (int)columns, (int)i, (double)along_columns[i],
              (double)along_rows[i]);
}

Test(reductions, columns_have_the_bits_of_rows) {
  static const OpKind ops[] = {OP_SUM,     OP_MEAN,        OP_MAX,        OP_MIN,     OP_ARGMAX,
                               OP_SOFTMAX, OP_LOG_SOFTMAX, OP_LAYER_NORM, OP_RMS_NORM};
  static const int64_t row_counts[] = {0, 1, 3, 15, 16, 17, 40, 63, 64, 65, 128, 145};
  static const int64_t column_counts[] = {1, 16, 49, 383, 384, 385, 600};
  static float x[MOST_ROWS * 601 + 1];
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = kernel_bench_new(names[t]);
    for (size_t i = 0; i < 9; i++)
      for (uint8_t reduce = 1; reduce <= 2; reduce++) {
        KernelSpec spec = spec_of(bench.arena, ops[i], reduce, i % 2 && ops[i] != OP_MIN);
        if (reduce == 1) spec.operands[1].access = COLUMN_STRIDED;
        if (reduce == 1 && i >= 5) spec.operands[0].access = COLUMN_STRIDED;
        kernel_add(&bench, spec);
      }
    kernels_compile(&bench);
    uint64_t seed = 8;
    for (int of_zeros = 0; of_zeros < 2; of_zeros++) { /* of which there are two kinds: the first of a lane counts */
      for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        const bool is_special = random_bits(&seed) % (of_zeros ? 9973 : 97) == 0;
        const float number = of_zeros ? random_bits(&seed) % 2 ? -0.0f : 0.0f : random_float(&seed) * 10;
        x[i] = !is_special ? number : random_bits(&seed) % 2 ? NAN : -INFINITY;
      }
      for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++)
        for (size_t c = 0; c < 7; c++)
          for (size_t i = 0; i < 9; i++) check_columns(&bench, i, ops[i], row_counts[r], column_counts[c], x);
    }
    kernel_bench_free(&bench);
  }
}

/* With w and b, in place. */
Test(reductions, layer_norm_in_place) {
  static Block b;
  static float w[MAX], bias[MAX], x[8][MAX];
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = kernel_bench_new(names[t]);
    KernelSpec spec = spec_of(bench.arena, OP_LAYER_NORM, 1, false);
    spec.n_operands = 4, spec.weight = 2, spec.bias = 3;
    kernel_add(&bench, spec);
    kernels_compile(&bench);
    uint64_t seed = 6;
    fill(&b, 8, 77, &seed);
    memcpy(x, b.x, sizeof x);
    for (int i = 0; i < MAX; i++) w[i] = random_float(&seed), bias[i] = random_float(&seed);
    tfm_row_args args = {.rows = 8, .columns = 77};
    for (int i = 0; i < 2; i++) args.operands[i] = (tfm_row_operand){(char *)b.x, sizeof b.x[0], 4};
    args.operands[2] = (tfm_row_operand){(char *)w, 0, 4};
    args.operands[3] = (tfm_row_operand){(char *)bias, 0, 4};
    ((tfm_row_kernel)(uintptr_t)kernel_get(&bench, 0))(&args);
    for (int r = 0; r < 8; r++) {
      double want[MAX];
      normal(x[r], 77, want, false);
      for (int c = 0; c < 77; c++)
        cr_assert(fabs((double)b.x[r][c] - (want[c] * (double)w[c] + (double)bias[c])) < 2e-6, "[%d][%d]", r, c);
    }
    kernel_bench_free(&bench);
  }
}

/* A row that is read beside what is normalised: its own sum is no operand of the vector. */
Test(reductions, strided_and_broadcast) {
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = kernel_bench_new(names[t]);
    KernelSpec spec = spec_of(bench.arena, OP_SUM, 1, false);
    spec.n_operands = 3;
    spec.operands[1].access = COLUMN_STRIDED;
    spec.operands[2].access = COLUMN_BROADCAST;
    spec.expr = expr_op(bench.arena, OP_MUL, DTYPE_F32, expr_input(bench.arena, DTYPE_F32, 1),
                        expr_input(bench.arena, DTYPE_F32, 2), NULL);
    kernel_add(&bench, spec);
    kernels_compile(&bench);
    float x[3][100], factor[3] = {1, 2, 4}, sums[3];
    for (int i = 0; i < 300; i++) x[i / 100][i % 100] = (float)(i % 7);
    tfm_row_args args = {.rows = 3, .columns = 50};
    args.operands[0] = (tfm_row_operand){(char *)sums, 4, 0};
    args.operands[1] = (tfm_row_operand){(char *)x, sizeof x[0], 8};
    args.operands[2] = (tfm_row_operand){(char *)factor, 4, 0};
    ((tfm_row_kernel)(uintptr_t)kernel_get(&bench, 0))(&args);
    for (int r = 0; r < 3; r++) {
      float want = 0;
      for (int c = 0; c < 50; c++) want += x[r][c * 2] * factor[r];
      cr_assert(sums[r] == want, "%g, not %g", (double)sums[r], (double)want);
    }
    kernel_bench_free(&bench);
  }
}
