/* Pointwise row kernels against plain C: every operation by type, every access of operands, tails of columns, and the
 * rules of NaN, wrapping and division. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "../support/kernel_bench.h"

enum { MAX_ROWS = 3, MAX_COLUMNS = 120, STRIDE = 3, ROW = MAX_COLUMNS * STRIDE + 8 };

typedef union Value {
  float f;
  int32_t i;
  bool b;
} Value;

typedef struct Operation {
  OpKind op;
  DType in, out;
  uint32_t n_args;
  Value (*reference)(const Value *args);
} Operation;

// ---- references ----

#define REAL(name, expression)                  \
  static Value name(const Value *args) {        \
    double x = args[0].f, y = args[1].f;        \
    (void)x, (void)y;                           \
    return (Value){.f = (float)(expression)};   \
  }
REAL(r_neg, -x)
REAL(r_exp, exp(x))
REAL(r_log, log(x))
REAL(r_sqrt, sqrt(x))
REAL(r_rsqrt, 1 / sqrt(x))
REAL(r_abs, fabs(x))
REAL(r_sin, sin(x))
REAL(r_cos, cos(x))
REAL(r_tanh, tanh(x))
REAL(r_sigmoid, 1 / (1 + exp(-x)))
REAL(r_erf, erf(x))
REAL(r_relu, x < 0 ? 0 : x)
REAL(r_silu, x / (1 + exp(-x)))
REAL(r_gelu, x / 2 * (1 + erf(x / sqrt(2))))
REAL(r_gelu_tanh, x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))))
REAL(r_quick_gelu, x / (1 + exp(-1.702 * x)))
REAL(r_add, x + y)
REAL(r_sub, x - y)
REAL(r_mul, x *y)
REAL(r_div, x / y)
REAL(r_max, isnan(x) || isnan(y) ? NAN : x > y ? x : y)
REAL(r_min, isnan(x) || isnan(y) ? NAN : x < y ? x : y)

#define WHOLE(name, expression)                                  \
  static Value name(const Value *args) {                         \
    int64_t x = args[0].i, y = args[1].i;                        \
    (void)x, (void)y;                                            \
    return (Value){.i = (int32_t)(uint32_t)(uint64_t)(expression)}; \
  }
static int64_t floor_div(int64_t x, int64_t y) { return x / y - (x % y != 0 && (x % y < 0) != (y < 0)); }
WHOLE(i_neg, -x)
WHOLE(i_add, x + y)
WHOLE(i_sub, x - y)
WHOLE(i_mul, x *y)
WHOLE(i_max, x > y ? x : y)
WHOLE(i_min, x < y ? x : y)
WHOLE(i_div, y == 0 ? x : floor_div(x, y))
WHOLE(i_mod, y == 0 ? 0 : x - floor_div(x, y) * y)

#define COMPARE(name, operator)                                                                       \
  static Value f##name(const Value *args) { return (Value){.b = args[0].f operator args[1].f}; }      \
  static Value w##name(const Value *args) { return (Value){.b = args[0].i operator args[1].i}; }
COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(lt, <)
COMPARE(gt, >)
COMPARE(le, <=)
COMPARE(ge, >=)

static Value b_not(const Value *args) { return (Value){.b = !args[0].b}; }
static Value b_and(const Value *args) { return (Value){.b = args[0].b && args[1].b}; }
static Value b_or(const Value *args) { return (Value){.b = args[0].b || args[1].b}; }
static Value f_from_f(const Value *args) { return args[0]; }
static Value f_from_i(const Value *args) { return (Value){.f = (float)args[0].i}; }
static Value f_from_b(const Value *args) { return (Value){.f = args[0].b}; }
static Value i_from_f(const Value *args) {
  float x = args[0].f;
  return (Value){.i = x > -0x1p31f && x < 0x1p31f ? (int32_t)x : INT32_MIN};
}
static Value i_from_b(const Value *args) { return (Value){.i = args[0].b}; }

#define F DTYPE_F32
#define I DTYPE_I32
#define B DTYPE_BOOL
static const Operation operations[] = {
    {OP_NEG, F, F, 1, r_neg},          {OP_EXP, F, F, 1, r_exp},           {OP_LOG, F, F, 1, r_log},
    {OP_SQRT, F, F, 1, r_sqrt},        {OP_RSQRT, F, F, 1, r_rsqrt},       {OP_ABS, F, F, 1, r_abs},
    {OP_SIN, F, F, 1, r_sin},          {OP_COS, F, F, 1, r_cos},           {OP_TANH, F, F, 1, r_tanh},
    {OP_SIGMOID, F, F, 1, r_sigmoid},  {OP_ERF, F, F, 1, r_erf},           {OP_RELU, F, F, 1, r_relu},
    {OP_SILU, F, F, 1, r_silu},        {OP_GELU, F, F, 1, r_gelu},         {OP_GELU_TANH, F, F, 1, r_gelu_tanh},
    {OP_QUICK_GELU, F, F, 1, r_quick_gelu}, {OP_ADD, F, F, 2, r_add},      {OP_SUB, F, F, 2, r_sub},
    {OP_MUL, F, F, 2, r_mul},          {OP_DIV, F, F, 2, r_div},           {OP_MAXIMUM, F, F, 2, r_max},
    {OP_MINIMUM, F, F, 2, r_min},      {OP_NEG, I, I, 1, i_neg},           {OP_ADD, I, I, 2, i_add},
    {OP_SUB, I, I, 2, i_sub},          {OP_MUL, I, I, 2, i_mul},           {OP_MAXIMUM, I, I, 2, i_max},
    {OP_MINIMUM, I, I, 2, i_min},      {OP_FLOORDIV, I, I, 2, i_div},      {OP_FLOORMOD, I, I, 2, i_mod},
    {OP_EQ, F, B, 2, feq},             {OP_NE, F, B, 2, fne},              {OP_LT, F, B, 2, flt},
    {OP_GT, F, B, 2, fgt},             {OP_LE, F, B, 2, fle},              {OP_GE, F, B, 2, fge},
    {OP_EQ, I, B, 2, weq},             {OP_NE, I, B, 2, wne},              {OP_LT, I, B, 2, wlt},
    {OP_GT, I, B, 2, wgt},             {OP_LE, I, B, 2, wle},              {OP_GE, I, B, 2, wge},
    {OP_NOT, B, B, 1, b_not},          {OP_AND, B, B, 2, b_and},           {OP_OR, B, B, 2, b_or},
    {OP_TO_F32, F, F, 1, f_from_f},    {OP_TO_F32, I, F, 1, f_from_i},     {OP_TO_F32, B, F, 1, f_from_b},
    {OP_TO_I32, F, I, 1, i_from_f},    {OP_TO_I32, B, I, 1, i_from_b},
};
enum { N_OPERATIONS = sizeof operations / sizeof *operations };

// ---- memory of operands ----

static const ColumnAccess accesses[][3] = { /* result, first, second operand */
    {COLUMN_CONTIGUOUS, COLUMN_CONTIGUOUS, COLUMN_CONTIGUOUS},
    {COLUMN_CONTIGUOUS, COLUMN_CONTIGUOUS, COLUMN_BROADCAST},
    {COLUMN_CONTIGUOUS, COLUMN_STRIDED, COLUMN_CONTIGUOUS},
    {COLUMN_STRIDED, COLUMN_BROADCAST, COLUMN_STRIDED},
};
enum { N_ACCESSES = sizeof accesses / sizeof *accesses };

static size_t bytes_of(DType dtype) { return dtype == B ? 1 : 4; }

static tfm_row_operand place(void *memory, DType dtype, ColumnAccess access) {
  int64_t bytes = (int64_t)bytes_of(dtype);
  int64_t stride = access == COLUMN_BROADCAST ? 0 : access == COLUMN_CONTIGUOUS ? bytes : bytes * STRIDE;
  return (tfm_row_operand){memory, ROW * bytes, stride};
}

static Value value_at(const tfm_row_operand *operand, DType dtype, int64_t row, int64_t column) {
  const char *at = operand->base + row * operand->row_stride + column * operand->column_stride;
  Value value = {.i = 0};
  if (dtype == B) value.b = *at != 0;
  else memcpy(&value, at, sizeof value);
  return value;
}

static void fill(void *memory, DType dtype, bool second, uint64_t *seed) {
  static const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e30f, -3e9f, 2147483648.0f, 0.5f};
  static const int32_t whole[] = {INT32_MIN, INT32_MAX, -1, 0, 1, 7, -7};
  for (int i = 0; i < MAX_ROWS * ROW; i++) {
    uint32_t pick = random_bits(seed) >> 8;
    Value value = {.f = random_float(seed) * 8};
    if (dtype == F && pick % 5 == 0) value.f = special[pick / 5 % 9];
    if (dtype == I) value.i = pick % 3 ? (int32_t)random_bits(seed) >> (pick % 29) : whole[pick / 3 % 7];
    if (dtype == I && second && value.i == 0) value.i = 3; /* divisors; zeros have a test of their own */
    if (dtype == B) ((uint8_t *)memory)[i] = pick & 1;
    else memcpy((char *)memory + i * 4, &value, 4);
  }
}

static bool agrees(Value got, Value want, DType dtype) {
  if (dtype == B) return got.b == want.b;
  if (dtype == I) return got.i == want.i;
  if (got.f == want.f || (isnan(got.f) && isnan(want.f))) return true;
  return fabs((double)got.f - (double)want.f) <= 1e-6 + 1e-6 * fabs((double)want.f);
}

/* -inf times the sigmoid's 0 is NaN in PyTorch too. */
static bool is_gelu_of_least(const Operation *o, Value x) {
  return (o->op == OP_SILU || o->op == OP_GELU || o->op == OP_GELU_TANH || o->op == OP_QUICK_GELU) &&
         x.f == -INFINITY;
}

static char memory[4][MAX_ROWS * ROW * 4];

static void check(KernelBench *bench, size_t kernel, const Operation *o, const ColumnAccess *access, int64_t rows,
                  int64_t columns) {
  int32_t faults = 0;
  tfm_row_args args = {.rows = rows, .columns = columns, .faults = &faults};
  for (uint32_t i = 0; i <= o->n_args; i++) args.operands[i] = place(memory[i], i ? o->in : o->out, access[i]);
  memset(memory[0], 0x55, sizeof memory[0]);
  ((tfm_row_kernel)(uintptr_t)kernel_get(bench, kernel))(&args);
  cr_assert(faults == 0);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) {
      Value in[2] = {value_at(&args.operands[1], o->in, r, c), {.i = 0}};
      if (o->n_args > 1) in[1] = value_at(&args.operands[2], o->in, r, c);
      Value got = value_at(&args.operands[0], o->out, r, c), want = o->reference(in);
      if (is_gelu_of_least(o, in[0])) continue;
      if ((o->op == OP_SIN || o->op == OP_COS) && fabsf(in[0].f) > 1e6f) continue;
      cr_assert(agrees(got, want, o->out), "%s operation %d of type %d, access %d %d %d, [%d][%d]: of %g %g (%d %d): %g (%d), not %g (%d)",
                bench->plan.target->name, o->op, o->in, access[0], access[1], access[2], (int)r, (int)c,
                (double)in[0].f, (double)in[1].f, in[0].i, in[1].i, (double)got.f, got.i, (double)want.f, want.i);
    }
  size_t bytes = bytes_of(o->out), end = (size_t)(columns - 1) * (size_t)args.operands[0].column_stride + bytes;
  for (size_t i = 0; i < 8; i++) cr_assert(memory[0][end + i] == 0x55, "columns beyond the last were written");
}

static void check_operations(const char *target) {
  static const int64_t widths[] = {1, 15, 16, 17, 33, 48, 64, 111};
  if (!host_runs(target)) return;
  KernelBench bench = kernel_bench_new(target);
  for (size_t i = 0; i < N_OPERATIONS; i++)
    for (size_t a = 0; a < N_ACCESSES; a++) {
      const Operation *o = &operations[i];
      KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = (uint8_t)(o->n_args + 1)};
      for (uint32_t k = 0; k <= o->n_args; k++)
        spec.operands[k] = (RowOperandSpec){.dtype = k ? o->in : o->out, .access = accesses[a][k]};
      Expr *second = o->n_args > 1 ? expr_input(bench.arena, o->in, 2) : NULL;
      spec.expr = expr_op(bench.arena, o->op, o->out, expr_input(bench.arena, o->in, 1), second, NULL);
      kernel_add(&bench, spec);
    }
  kernels_compile(&bench);
  uint64_t seed = 1;
  for (size_t i = 0; i < N_OPERATIONS; i++) {
    for (int k = 1; k <= 2; k++) fill(memory[k], operations[i].in, k == 2, &seed);
    for (size_t a = 0; a < N_ACCESSES; a++)
      for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        check(&bench, i * N_ACCESSES + a, &operations[i], accesses[a], w % MAX_ROWS + 1, widths[w]);
  }
  kernel_bench_free(&bench);
}

Test(row_kernels, every_pointwise_operation_is_here) {
  for (OpKind op = 0; op < N_OPS; op++) {
    bool found = !op_is_pointwise(op) || op == OP_WHERE; /* index_and_where has that one */
    for (size_t i = 0; i < N_OPERATIONS && !found; i++) found = operations[i].op == op;
    cr_assert(found, "%s has no reference here", op_table[op].name);
  }
}

Test(row_kernels, operations_baseline) { check_operations("x86-64"); }
Test(row_kernels, operations_avx2) { check_operations("x86-64-v3"); }
Test(row_kernels, operations_avx512) { check_operations("x86-64-v4"); }

// ---- leaves ----

static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4"};

static void run(KernelBench *bench, tfm_row_args *args) {
  ((tfm_row_kernel)(uintptr_t)kernel_get(bench, 0))(args);
}

Test(row_kernels, index_and_where) {
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = kernel_bench_new(names[t]);
    Arena *a = bench.arena;
    KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = 1};
    Expr *masked = expr_op(a, OP_GT, B, expr_index(a, 0), expr_index(a, 1), NULL);
    Expr *other = expr_op(a, OP_ADD, F, expr_acc(a), expr_op(a, OP_TO_F32, F, expr_index(a, 2), NULL, NULL), NULL);
    spec.expr = expr_op(a, OP_WHERE, F, masked, expr_number(a, -INFINITY), other);
    kernel_add(&bench, spec);
    kernels_compile(&bench);
    float x[3][70];
    for (int r = 0; r < 3; r++)
      for (int c = 0; c < 70; c++) x[r][c] = (float)(100 * r + c);
    tfm_row_args args = {.rows = 3, .columns = 69, .coordinates = {5, 40, 9}};
    args.operands[0] = (tfm_row_operand){(char *)x, sizeof x[0], 4};
    run(&bench, &args);
    for (int r = 0; r < 3; r++)
      for (int c = 0; c < 70; c++) {
        float want = c == 69 ? 100 * r + c : c + 5 > r + 40 ? -INFINITY : (float)(100 * r + c + 9);
        cr_assert(x[r][c] == want, "%s [%d][%d] %g, not %g", names[t], r, c, (double)x[r][c], (double)want);
      }
    kernel_bench_free(&bench);
  }
}

/* relu(table[ids] + x * x), x shared. */
Test(row_kernels, gather) {
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = kernel_bench_new(names[t]);
    Arena *a = bench.arena;
    KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = 4};
    spec.operands[1] = (RowOperandSpec){.dtype = F, .gathered = 2};
    spec.operands[2] = (RowOperandSpec){.dtype = I, .access = COLUMN_BROADCAST};
    Expr *x = expr_input(a, F, 3);
    Expr *sum = expr_op(a, OP_ADD, F, expr_gather(a, F, 1, 2), expr_op(a, OP_MUL, F, x, x, NULL), NULL);
    spec.expr = expr_op(a, OP_RELU, F, sum, NULL, NULL);
    kernel_add(&bench, spec);
    kernels_compile(&bench);
    float table[10][20], out[4][20], in[4][20];
    int32_t ids[4] = {9, 0, 3, 3};
    uint64_t seed = 3;
    for (int i = 0; i < 200; i++) table[i / 20][i % 20] = random_float(&seed);
    for (int i = 0; i < 80; i++) in[i / 20][i % 20] = random_float(&seed);
    tfm_row_args args = {.rows = 4, .columns = 20};
    args.operands[0] = (tfm_row_operand){(char *)out, 80, 4};
    args.operands[1] = (tfm_row_operand){(char *)table, 80, 4};
    args.operands[2] = (tfm_row_operand){(char *)ids, 4, 0};
    args.operands[3] = (tfm_row_operand){(char *)in, 80, 4};
    run(&bench, &args);
    for (int r = 0; r < 4; r++)
      for (int c = 0; c < 20; c++) {
        float square = in[r][c] * in[r][c], want = table[ids[r]][c] + square;
        cr_assert(out[r][c] == (want > 0 ? want : 0), "%s [%d][%d]", names[t], r, c);
      }
    kernel_bench_free(&bench);
  }
}

// ---- division ----

static int32_t faults_of(KernelBench *bench, int32_t *n, int32_t *d, int32_t *q, int64_t columns) {
  int32_t faults = 0;
  tfm_row_args args = {.rows = 1, .columns = columns, .faults = &faults};
  args.operands[0] = (tfm_row_operand){(char *)q, 0, 4};
  args.operands[1] = (tfm_row_operand){(char *)n, 0, 4};
  args.operands[2] = (tfm_row_operand){(char *)d, 0, 4};
  run(bench, &args);
  return faults;
}

enum { FAULT_ROUNDS = 5000, FAULT_BITS = 30 };

typedef struct Divider {
  KernelBench *bench;
  tfm_row_args args;
  _Atomic bool stops;
} Divider;

static void *divide_by_zero(void *argument) {
  Divider *divider = argument;
  while (!atomic_load(&divider->stops)) run(divider->bench, &divider->args);
  return NULL;
}

/* A cancellation, or a fault of another thread, comes while a kernel notes its own: none may be lost. */
Test(row_kernels, faults_of_other_threads_are_kept) {
  KernelBench bench = kernel_bench_new("x86-64");
  KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = 3};
  for (int i = 0; i < 3; i++) spec.operands[i].dtype = I;
  spec.expr = expr_op(bench.arena, OP_FLOORDIV, I, expr_input(bench.arena, I, 1), expr_input(bench.arena, I, 2), NULL);
  kernel_add(&bench, spec);
  kernels_compile(&bench);
  static int32_t n[1], d[1], q[1];
  _Atomic int32_t faults = 0;
  Divider divider = {.bench = &bench, .args = {.rows = 1, .columns = 1, .faults = (int32_t *)&faults}};
  divider.args.operands[0] = (tfm_row_operand){(char *)q, 0, 4};
  divider.args.operands[1] = (tfm_row_operand){(char *)n, 0, 4};
  divider.args.operands[2] = (tfm_row_operand){(char *)d, 0, 4};
  pthread_t thread;
  cr_assert_eq(pthread_create(&thread, NULL, divide_by_zero, &divider), 0);
  int lost = 0;
  for (int round = 0; round < FAULT_ROUNDS; round++) {
    atomic_store(&faults, 0);
    while (!atomic_load(&faults)) sched_yield(); /* until the thread divides */
    for (int bit = 1; bit <= FAULT_BITS; bit++) {
      atomic_fetch_or(&faults, 1 << bit);
      for (int look = 0; look < 4; look++) lost += !(atomic_load(&faults) >> bit & 1);
    }
  }
  atomic_store(&divider.stops, true);
  pthread_join(thread, NULL);
  cr_expect_eq(lost, 0, "a fault was missing %d times", lost);
  kernel_bench_free(&bench);
}

Test(row_kernels, division) {
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = kernel_bench_new(names[t]);
    KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = 3};
    for (int i = 0; i < 3; i++) spec.operands[i].dtype = I;
    spec.expr = expr_op(bench.arena, OP_FLOORDIV, I, expr_input(bench.arena, I, 1), expr_input(bench.arena, I, 2), NULL);
    kernel_add(&bench, spec);
    kernels_compile(&bench);
    int32_t n[64], d[64], q[64];
    for (int i = 0; i < 64; i++) n[i] = INT32_MIN, d[i] = i == 50 ? 0 : -1;
    cr_assert(faults_of(&bench, n, d, q, 50) == 0, "a zero beyond the columns counts");
    for (int i = 0; i < 50; i++) cr_assert(q[i] == INT32_MIN);
    cr_assert(faults_of(&bench, n, d, q, 51) == TFM_FAULT_DIVISION);
    cr_assert(faults_of(&bench, n, d, q, 64) == TFM_FAULT_DIVISION);
    kernel_bench_free(&bench);
  }
}
