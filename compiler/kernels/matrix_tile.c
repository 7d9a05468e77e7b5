/* TILE of bytes, on tile registers (TargetInfo.matrix): c[rows x width] (+)= a[rows x k] b[k x width], b of form INT8.
 *
 * In and out: as of tile.c, which makes these kernels for other instruction sets and the other forms; sums of whole
 * numbers have no order, so both give the same bits. One register holds the rows of a, 64 k of each; one as many k of
 * 16 columns of b, as the panel has them; one for each 16 columns adds up c:
 *
 *   sums:   64 k a turn, in registers, then to the stack
 *   rows:   one after the other: what the sum begins with, the sums, the steps of k that no turn took, scales, c
 *
 * The caller has set all registers up whole (abi/tiles.h): setting them up takes longer than a short tile does. Fewer
 * than 16 rows of a are read with another setup, because what lies behind them may not be ours to read. Refuses
 * nothing. */
#include "base/check.h"
#include "codegen/emitter.h"
#include "codegen/vector.h"
#include "kernels/emit.h"
#include "kernels/matrix_tile.h"
#include "tfm/abi/tiles.h"

/* The arguments of a tfm_tile_kernel. */
enum { ARG_A, ARG_B, ARG_C, ARG_C_STRIDE, ARG_K, ARG_ACCUMULATE, ARG_COLUMNS, ARG_NEXT, ARG_NEXT_LINES, N_ARGS };

enum { MOST_SUMS = 4, TILE_A = 4, TILE_B = 5, N_TILES_B = 3, TILE_BYTES = 64, TURN = 64 /* k */, B_ROWS = 16 };

typedef struct Matrix {
  Emitter *e;
  const KernelSpec *spec;
  unsigned n; /* registers of sums: 16 columns each */
  LLVMTypeRef numbers, floats;
  LLVMValueRef args[N_ARGS], masks[MOST_SUMS];
  LLVMValueRef stack; /* [rows][width] sums */
  LLVMValueRef whole, steps; /* k of whole turns; steps of four k */
} Matrix;

static int64_t a_distance(const Matrix *m) { return m->spec->a_stride * (int64_t)sizeof(float); }
static int64_t b_distance(const Matrix *m) { return m->spec->b_stride * (int64_t)sizeof(float); } /* of four k */

static LLVMValueRef tile_number(Matrix *m, unsigned i) { return LLVMConstInt(m->e->i8, i, false); }

static void call(Matrix *m, const char *name, unsigned n, LLVMValueRef *arguments) {
  emit_intrinsic(m->e, name, NULL, n, arguments);
}

// ---- the tile registers ----

/* Sums and a have `rows` rows. */
static void emit_setup(Matrix *m, uint8_t rows) {
  union {
    tfm_tile_setup setup;
    uint8_t bytes[TILE_BYTES];
  } all = {.setup = {.palette = 1}};
  LLVMValueRef bytes[TILE_BYTES];
  for (unsigned i = 0; i < TILE_B + N_TILES_B; i++) {
    all.setup.bytes[i] = TILE_BYTES;
    all.setup.rows[i] = i < TILE_B ? rows : B_ROWS;
  }
  for (unsigned i = 0; i < TILE_BYTES; i++) bytes[i] = LLVMConstInt(m->e->i8, all.bytes[i], false);
  LLVMValueRef at = emit_stack(m->e, LLVMVectorType(m->e->i8, TILE_BYTES), TILE_BYTES);
  emit_store(m->e, LLVMConstVector(bytes, TILE_BYTES), at, TILE_BYTES);
  call(m, m->e->target->matrix.setup, 1, &at);
}

static void emit_load_tile(Matrix *m, unsigned tile, LLVMValueRef from, int64_t distance) {
  call(m, m->e->target->matrix.load, 3, (LLVMValueRef[]){tile_number(m, tile), from, emit_i64(m->e, distance)});
}

/* The lines of `next` that four calls of 16 k would fetch. */
static void emit_prefetches(Matrix *m, LLVMValueRef k) {
  Emitter *e = m->e;
  const int64_t line = e->target->cache_line;
  LLVMValueRef each = emit_mul(e, m->args[ARG_NEXT_LINES], emit_i64(e, line * 4 / TURN));
  LLVMValueRef next = emit_offset(e, m->args[ARG_NEXT], emit_mul(e, k, each));
  Loop lines = loop_begin(e, emit_i64(e, 0), m->args[ARG_NEXT_LINES], 1);
  LLVMValueRef at = emit_offset(e, next, emit_mul(e, lines.index, emit_i64(e, 4 * line)));
  for (unsigned i = 0; i < 4; i++) emit_prefetch(e, emit_offset(e, at, emit_i64(e, i * line)), 2);
  loop_end(e, &lines);
}

static void emit_turn(Matrix *m, LLVMValueRef k) {
  Emitter *e = m->e;
  emit_prefetches(m, k);
  LLVMValueRef b = emit_offset(e, m->args[ARG_B], emit_mul(e, k, emit_i64(e, m->spec->b_stride)));
  emit_load_tile(m, TILE_A, emit_offset(e, m->args[ARG_A], k), a_distance(m));
  for (unsigned j = 0; j < m->n; j++) {
    const unsigned to = TILE_B + j % N_TILES_B;
    emit_load_tile(m, to, emit_offset(e, b, emit_i64(e, j * TILE_BYTES)), b_distance(m));
    /* signed bytes of a, unsigned ones of b */
    LLVMValueRef tiles[] = {tile_number(m, j), tile_number(m, TILE_A), tile_number(m, to)};
    call(m, m->e->target->matrix.dot, 3, tiles);
  }
}

static void emit_sums(Matrix *m) {
  Emitter *e = m->e;
  if (m->spec->rows < B_ROWS) emit_setup(m, m->spec->rows);
  for (unsigned j = 0; j < m->n; j++) call(m, m->e->target->matrix.zero, 1, (LLVMValueRef[]){tile_number(m, j)});
  Loop turns = loop_begin(e, emit_i64(e, 0), m->whole, TURN);
  emit_turn(m, turns.index);
  loop_end(e, &turns);
  for (unsigned j = 0; j < m->n; j++)
    call(m, m->e->target->matrix.store, 3,
         (LLVMValueRef[]){tile_number(m, j), emit_offset(e, m->stack, emit_i64(e, j * TILE_BYTES)),
                          emit_i64(e, m->spec->width * (int64_t)sizeof(int32_t))});
  if (m->spec->rows < B_ROWS) emit_setup(m, B_ROWS);
}

// ---- rows ----

typedef struct Row {
  LLVMValueRef a, c, c_bytes; /* c_bytes: from the first row of c */
  LLVMValueRef sums[MOST_SUMS];
} Row;

static LLVMValueRef vector_at(Matrix *m, LLVMValueRef row, unsigned j) {
  return emit_offset(m->e, row, emit_i64(m->e, j * TILE_BYTES));
}

/* What is in c, or what takes off that weights are stored 128 too large. */
static void emit_begin(Matrix *m, Row *row) {
  Emitter *e = m->e;
  LLVMValueRef adds = LLVMBuildAnd(e->builder, m->args[ARG_ACCUMULATE], emit_i64(e, 1), "");
  LLVMBasicBlockRef before = emit_block(e, "load"), none = emit_block(e, "head"), done = emit_block(e, "begun");
  LLVMValueRef given[MOST_SUMS];
  emit_branch(e, emit_icmp(e, LLVMIntNE, adds, emit_i64(e, 0)), before, none);
  emit_at(e, before);
  for (unsigned j = 0; j < m->n; j++)
    given[j] = emit_load_masked(e, m->numbers, vector_at(m, row->c, j), m->masks[j], 4);
  emit_jump(e, done);
  emit_at(e, none);
  LLVMValueRef head = emit_load(e, e->i32, emit_offset(e, row->a, emit_i64(e, -(int64_t)sizeof(int32_t))), 4);
  head = emit_splat(e, head, LANES);
  emit_jump(e, done);
  emit_at(e, done);
  for (unsigned j = 0; j < m->n; j++) {
    LLVMValueRef begin = LLVMBuildPhi(e->builder, m->numbers, "");
    LLVMAddIncoming(begin, (LLVMValueRef[]){given[j], head}, (LLVMBasicBlockRef[]){before, none}, 2);
    row->sums[j] = begin;
  }
}

/* The steps of four k behind the last whole turn. */
static void emit_rest(Matrix *m, Row *row) {
  Emitter *e = m->e;
  Loop rest = loop_begin(e, LLVMBuildLShr(e->builder, m->whole, emit_i64(e, 2), ""), m->steps, 1);
  for (unsigned j = 0; j < m->n; j++) row->sums[j] = loop_carry(e, &rest, row->sums[j]);
  LLVMValueRef x = emit_load(e, e->i32, emit_offset(e, row->a, emit_mul(e, rest.index, emit_i64(e, 4))), 4);
  LLVMValueRef b = emit_offset(e, m->args[ARG_B], emit_mul(e, rest.index, emit_i64(e, b_distance(m))));
  for (unsigned j = 0; j < m->n; j++) {
    LLVMValueRef factors[] = {row->sums[j], emit_load(e, m->numbers, vector_at(m, b, j), 4), emit_splat(e, x, LANES)};
    loop_next(&rest, j, emit_intrinsic(e, e->target->dot_bytes, NULL, 3, factors));
  }
  loop_end(e, &rest);
  for (unsigned j = 0; j < m->n; j++) row->sums[j] = rest.results[j];
}

/* After the last call for c: the sums, times the scale of the row, times that of the column. */
static void emit_scales(Matrix *m, Row *row) {
  Emitter *e = m->e;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(e->builder), scale = emit_block(e, "scale"),
                    done = emit_block(e, "scaled");
  LLVMValueRef more = LLVMBuildAnd(e->builder, m->args[ARG_ACCUMULATE], emit_i64(e, 2), "");
  emit_branch(e, emit_icmp(e, LLVMIntEQ, more, emit_i64(e, 0)), scale, done);
  emit_at(e, scale);
  LLVMValueRef behind = emit_mul(e, m->steps, emit_i64(e, 4)), scaled[MOST_SUMS];
  LLVMValueRef of_row = emit_splat(e, emit_load(e, e->f32, emit_offset(e, row->a, behind), 4), LANES);
  LLVMValueRef scales = emit_offset(e, m->args[ARG_B], emit_mul(e, m->steps, emit_i64(e, b_distance(m))));
  for (unsigned j = 0; j < m->n; j++) {
    LLVMValueRef y = LLVMBuildSIToFP(e->builder, row->sums[j], m->floats, "");
    y = LLVMBuildFMul(e->builder, y, of_row, "");
    y = LLVMBuildFMul(e->builder, y, emit_load(e, m->floats, vector_at(m, scales, j), 4), "");
    scaled[j] = LLVMBuildBitCast(e->builder, y, m->numbers, "");
  }
  emit_jump(e, done);
  emit_at(e, done);
  for (unsigned j = 0; j < m->n; j++) {
    LLVMValueRef both = LLVMBuildPhi(e->builder, m->numbers, "");
    LLVMAddIncoming(both, (LLVMValueRef[]){row->sums[j], scaled[j]}, (LLVMBasicBlockRef[]){from, scale}, 2);
    row->sums[j] = both;
  }
}

static void emit_rows(Matrix *m) {
  Emitter *e = m->e;
  Loop rows = loop_begin(e, emit_i64(e, 0), emit_i64(e, m->spec->rows), 1);
  LLVMValueRef distance = emit_mul(e, m->args[ARG_C_STRIDE], emit_i64(e, sizeof(float)));
  Row row = {.a = emit_offset(e, m->args[ARG_A], emit_mul(e, rows.index, emit_i64(e, a_distance(m)))),
             .c = emit_offset(e, m->args[ARG_C], emit_mul(e, rows.index, distance))};
  LLVMValueRef sums = emit_mul(e, rows.index, emit_i64(e, m->spec->width * (int64_t)sizeof(int32_t)));
  sums = emit_offset(e, m->stack, sums);
  emit_begin(m, &row);
  for (unsigned j = 0; j < m->n; j++)
    row.sums[j] = emit_add(e, row.sums[j], emit_load(e, m->numbers, vector_at(m, sums, j), TILE_BYTES));
  emit_rest(m, &row);
  emit_scales(m, &row);
  for (unsigned j = 0; j < m->n; j++) emit_store_masked(e, row.sums[j], vector_at(m, row.c, j), m->masks[j], 4);
  loop_end(e, &rows);
}

void emit_matrix_tile(Emitter *e, const KernelSpec *spec, const char *name) {
  Matrix m = {.e = e, .spec = spec, .n = spec->width / LANES};
  CHECK(spec->rows > 0 && spec->rows <= B_ROWS && m.n > 0 && m.n <= MOST_SUMS && m.n * LANES == spec->width,
        "a tile of %u x %u in tile registers", spec->rows, spec->width);
  m.numbers = LLVMVectorType(e->i32, LANES);
  m.floats = LLVMVectorType(e->f32, LANES);
  LLVMValueRef function = emit_kernel(e, KERNEL_TILE, name);
  for (unsigned i = 0; i < N_ARGS; i++) m.args[i] = LLVMGetParam(function, i);
  emit_parameter_noalias(e, ARG_A), emit_parameter_readonly(e, ARG_A);
  emit_parameter_noalias(e, ARG_B), emit_parameter_readonly(e, ARG_B);
  emit_parameter_noalias(e, ARG_C);
  m.stack = emit_stack(e, LLVMArrayType2(e->i32, (uint64_t)spec->rows * spec->width), TILE_BYTES);
  m.whole = LLVMBuildAnd(e->builder, m.args[ARG_K], emit_i64(e, -TURN), "");
  m.steps = LLVMBuildLShr(e->builder, emit_add(e, m.args[ARG_K], emit_i64(e, 3)), emit_i64(e, 2), "");
  for (unsigned j = 0; j < m.n; j++) {
    LLVMValueRef left = emit_sub(e, m.args[ARG_COLUMNS], emit_i64(e, (int64_t)j * LANES));
    LLVMValueRef count = emit_splat(e, LLVMBuildTrunc(e->builder, left, e->i32, ""), LANES);
    m.masks[j] = emit_icmp(e, LLVMIntSLT, emit_ramp(e, LANES), count);
  }
  emit_sums(&m);
  emit_rows(&m);
  LLVMBuildRetVoid(e->builder);
}
