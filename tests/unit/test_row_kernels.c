/* Pointwise row kernels against plain C: every operation by type, every access of operands, tails of columns, and the
 * rules of NaN, wrapping and division. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "../support/kernel_bench.h"
#include "tfm/abi/half.h"
#include "graph/eval/eval_run.h"

enum { MAX_ROWS = 3, MAX_COLUMNS = 120, STRIDE = 3, ROW = MAX_COLUMNS * STRIDE + 8 };

typedef union Value {
  float f;
  int32_t i;
  bool b;
} Value;

#define F DTYPE_F32
#define I DTYPE_I32
#define B DTYPE_BOOL

/* An operation on operands of one type, as ops.def has it. What it should give is asked of the reference interpreter,
 * which shares no code with the kernels, so a new row of ops.def is tested without a line here. */
typedef struct Operation {
  OpKind op;
  DType in, out;
  uint32_t n_args;
} Operation;

enum { MAX_OPERATIONS = N_OPS * N_DTYPES };

/* Every unary and binary operation with every type that it takes; index_and_where has the selection. Returns how many
 * there are. */
static size_t list_operations(Operation *operations) {
  size_t n = 0;
  for (OpKind op = 0; op < N_OPS; op++) {
    if (!op_is_pointwise(op) || op_table[op].category == CATEGORY_TERNARY) continue;
    for (DType in = 0; in < N_DTYPES; in++)
      if (op_takes(op, in)) operations[n++] = (Operation){op, in, op_gives(op, in, in), (uint32_t)op_table[op].most};
  }
  return n;
}

static Value reference(const Operation *o, const Value *args) {
  const RowOperand operands[] = {{&args[0], 0}, {&args[1], 0}};
  Value result = {.i = 0};
  cr_assert(eval_row(o->op, o->in, operands, 1, &result), "%s divided by zero", op_table[o->op].name);
  return result;
}

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
      Value got = value_at(&args.operands[0], o->out, r, c), want = reference(o, in);
      cr_assert(agrees(got, want, o->out), "%s: %s of type %d, access %d %d %d, [%d][%d]: of %g %g (%d %d): %g (%d), not %g (%d)",
                bench->plan.target->name, op_table[o->op].name, o->in, access[0], access[1], access[2], (int)r, (int)c,
                (double)in[0].f, (double)in[1].f, in[0].i, in[1].i, (double)got.f, got.i, (double)want.f, want.i);
    }
  size_t bytes = bytes_of(o->out), end = (size_t)(columns - 1) * (size_t)args.operands[0].column_stride + bytes;
  for (size_t i = 0; i < 8; i++) cr_assert(memory[0][end + i] == 0x55, "columns beyond the last were written");
}

static void check_operations(const char *target) {
  static const int64_t widths[] = {1, 15, 16, 17, 33, 48, 64, 111};
  if (!host_runs(target)) return;
  KernelBench bench = kernel_bench_new(target);
  Operation operations[MAX_OPERATIONS];
  const size_t n_operations = list_operations(operations);
  for (size_t i = 0; i < n_operations; i++)
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
  for (size_t i = 0; i < n_operations; i++) {
    for (int k = 1; k <= 2; k++) fill(memory[k], operations[i].in, k == 2, &seed);
    for (size_t a = 0; a < N_ACCESSES; a++)
      for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        check(&bench, i * N_ACCESSES + a, &operations[i], accesses[a], w % MAX_ROWS + 1, widths[w]);
  }
  kernel_bench_free(&bench);
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

/* y = x^T * 2 + z^T (i32) + w + row, for squares and what is left of them, at any alignment. */
static void check_transposed(KernelBench *bench, int64_t rows, int64_t columns, int64_t shift) {
  enum { MOST = 140, DISTANCE = 147, N = MOST * DISTANCE + 8 };
  static float x[N], w[N], y[N];
  static int32_t z[N];
  for (int i = 0; i < N; i++) x[i] = (float)(i % 1009), w[i] = (float)(i % 17), z[i] = i % 101;
  memset(y, 0x55, sizeof y);
  int32_t faults = 0;
  tfm_row_args args = {.rows = rows, .columns = columns, .coordinates = {0, 5}, .faults = &faults};
  args.operands[0] = (tfm_row_operand){(char *)(y + shift), DISTANCE * 4, 4};
  args.operands[1] = (tfm_row_operand){(char *)(x + shift), 4, DISTANCE * 4};
  args.operands[2] = (tfm_row_operand){(char *)(z + 1), 4, DISTANCE * 4};
  args.operands[3] = (tfm_row_operand){(char *)(w + 3), DISTANCE * 4, 4};
  run(bench, &args);
  for (int64_t i = 0; i < N; i++) {
    int64_t r = (i - shift) / DISTANCE, c = (i - shift) % DISTANCE;
    float want;
    memcpy(&want, "UUUU", 4); /* not written */
    if (i >= shift && r < rows && c < columns)
      want = x[shift + c * DISTANCE + r] * 2 + (float)(z[1 + c * DISTANCE + r] + r + 5) + w[3 + r * DISTANCE + c];
    if (memcmp(&y[i], &want, 4) != 0)
      cr_assert_fail("%s %d x %d [%d][%d]: %g, not %g", bench->plan.target->name, (int)rows, (int)columns, (int)r,
                     (int)c, (double)y[i], (double)want);
  }
}

Test(row_kernels, transposed_operands) {
  static const int64_t sizes[] = {0, 1, 7, 15, 16, 17, 48, 63, 64, 65, 140};
  enum { N_SIZES = sizeof sizes / sizeof *sizes };
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = kernel_bench_new(names[t]);
    Arena *a = bench.arena;
    KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = 4};
    spec.operands[1] = (RowOperandSpec){.dtype = F, .access = COLUMN_TRANSPOSED};
    spec.operands[2] = (RowOperandSpec){.dtype = I, .access = COLUMN_TRANSPOSED};
    spec.operands[3] = (RowOperandSpec){.dtype = F, .access = COLUMN_CONTIGUOUS};
    Expr *twice = expr_op(a, OP_MUL, F, expr_input(a, F, 1), expr_number(a, 2), NULL);
    Expr *row =
        expr_op(a, OP_TO_F32, F, expr_op(a, OP_ADD, I, expr_input(a, I, 2), expr_index(a, 1), NULL), NULL, NULL);
    Expr *rest = expr_op(a, OP_ADD, F, row, expr_input(a, F, 3), NULL);
    spec.expr = expr_op(a, OP_ADD, F, twice, rest, NULL);
    kernel_add(&bench, spec);
    kernels_compile(&bench);
    for (size_t r = 0; r < N_SIZES; r++)
      for (size_t c = 0; c < N_SIZES; c++) check_transposed(&bench, sizes[r], sizes[c], (int64_t)(r + c) % 4);
    kernel_bench_free(&bench);
  }
}

/* relu(table[ids] + x * x), x shared, with a table of this form; as f32 it is `table`. */
static void check_gather(const char *name, tfm_form form, float table[10][20], const void *kept) {
  KernelBench bench = kernel_bench_new(name);
  Arena *a = bench.arena;
  KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = 4};
  spec.operands[1] = (RowOperandSpec){.dtype = F, .gathered = 2, .form = (uint8_t)form};
  spec.operands[2] = (RowOperandSpec){.dtype = I, .access = COLUMN_BROADCAST};
  Expr *x = expr_input(a, F, 3);
  Expr *sum = expr_op(a, OP_ADD, F, expr_gather(a, F, 1, 2), expr_op(a, OP_MUL, F, x, x, NULL), NULL);
  spec.expr = expr_op(a, OP_RELU, F, sum, NULL, NULL);
  kernel_add(&bench, spec);
  kernels_compile(&bench);
  float out[4][20], in[4][20];
  int32_t ids[4] = {9, 0, 3, 3};
  uint64_t seed = 3;
  for (int i = 0; i < 80; i++) in[i / 20][i % 20] = random_float(&seed);
  const int64_t bytes = form == TFM_FORM_F32 ? 4 : 2;
  tfm_row_args args = {.rows = 4, .columns = 20};
  args.operands[0] = (tfm_row_operand){(char *)out, 80, 4};
  args.operands[1] = (tfm_row_operand){(char *)kept, 20 * bytes, bytes};
  args.operands[2] = (tfm_row_operand){(char *)ids, 4, 0};
  args.operands[3] = (tfm_row_operand){(char *)in, 80, 4};
  run(&bench, &args);
  for (int r = 0; r < 4; r++)
    for (int c = 0; c < 20; c++) {
      float square = in[r][c] * in[r][c], want = table[ids[r]][c] + square;
      cr_assert(out[r][c] == (want > 0 ? want : 0), "%s form %d [%d][%d]", name, form, r, c);
    }
  kernel_bench_free(&bench);
}

/* table[ids] + x of a table of one column, every second number of `table`: an id for each column. Ids behind the last
 * column are of no table. */
static void check_look_up(const char *name, tfm_form form, const float *table, const void *kept, ColumnAccess access) {
  enum { MOST = 70, GUARD = 32 };
  KernelBench bench = kernel_bench_new(name);
  Arena *a = bench.arena;
  KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = 4};
  spec.operands[1] = (RowOperandSpec){.dtype = F, .gathered = 2, .form = (uint8_t)form, .access = COLUMN_LOOKED_UP};
  spec.operands[2] = (RowOperandSpec){.dtype = I, .access = access};
  spec.expr = expr_op(a, OP_ADD, F, expr_gather(a, F, 1, 2), expr_input(a, F, 3), NULL);
  kernel_add(&bench, spec);
  kernels_compile(&bench);
  const int64_t stride = access == COLUMN_STRIDED ? 3 : 1;
  float out[2][MOST + GUARD], in[2][MOST];
  int32_t ids[2][3 * (MOST + GUARD)];
  uint64_t seed = 5;
  for (int64_t columns = 1; columns <= MOST; columns++) {
    for (int i = 0; i < 2 * 3 * (MOST + GUARD); i++) ids[i % 2][i / 2] = INT32_MAX - i;
    for (int64_t i = 0; i < 2 * columns; i++) {
      ids[i / columns][i % columns * stride] = (int32_t)((7 * i + columns) % 100);
      in[i / columns][i % columns] = random_float(&seed);
    }
    const int64_t bytes = form == TFM_FORM_F32 ? 4 : 2;
    tfm_row_args args = {.rows = 2, .columns = columns};
    args.operands[0] = (tfm_row_operand){(char *)out, sizeof out[0], 4};
    args.operands[1] = (tfm_row_operand){(char *)kept, 2 * bytes, 0};
    args.operands[2] = (tfm_row_operand){(char *)ids, sizeof ids[0], 4 * stride};
    args.operands[3] = (tfm_row_operand){(char *)in, sizeof in[0], 4};
    run(&bench, &args);
    for (int64_t i = 0; i < 2 * columns; i++) {
      const int64_t r = i / columns, c = i % columns;
      cr_assert(out[r][c] == table[2 * ids[r][c * stride]] + in[r][c], "%s form %d, %d of %d", name, form, (int)c,
                (int)columns);
    }
  }
  kernel_bench_free(&bench);
}

Test(row_kernels, gather) {
  float table[3][10][20]; /* by form */
  uint16_t halves[3][200];
  uint64_t seed = 9;
  for (int i = 0; i < 200; i++) {
    const float value = random_float(&seed) * (i % 7 ? 1 : 0x1p-16f); /* subnormal ones of f16 too */
    halves[TFM_FORM_BF16][i] = f32_to_bf16(value), halves[TFM_FORM_F16][i] = f32_to_f16(value);
    table[TFM_FORM_F32][i / 20][i % 20] = value;
    table[TFM_FORM_BF16][i / 20][i % 20] = bf16_to_f32(halves[TFM_FORM_BF16][i]);
    table[TFM_FORM_F16][i / 20][i % 20] = f16_to_f32(halves[TFM_FORM_F16][i]);
  }
  for (int t = 0; t < 3; t++)
    for (int form = TFM_FORM_F32; form <= TFM_FORM_F16 && host_runs(names[t]); form++) {
      const void *kept = form == TFM_FORM_F32 ? (void *)table[0] : halves[form];
      check_gather(names[t], (tfm_form)form, table[form], kept);
      check_look_up(names[t], (tfm_form)form, &table[form][0][0], kept, COLUMN_CONTIGUOUS);
      check_look_up(names[t], (tfm_form)form, &table[form][0][0], kept, COLUMN_STRIDED);
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

enum { FAULT_ROUNDS = 20000, FAULT_BITS = 30 };

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
    for (int bit = 1; bit <= FAULT_BITS; bit++) atomic_fetch_or(&faults, 1 << bit);
    lost += atomic_load(&faults) != (int32_t)UINT32_C(0x7fffffff); /* the kernel's bit, and all of these */
  }
  atomic_store(&divider.stops, true);
  pthread_join(thread, NULL);
  cr_expect_eq(lost, 0, "a fault was lost in %d rounds", lost);
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
