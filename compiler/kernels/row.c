/* In: a spec, and at run time a tfm_row_args: the number of rows and columns, and for each operand its base and
 * strides. Out: the frame that row.h describes. */
#include "kernels/row.h"

#include <stddef.h>

#include "base/check.h"
#include "kernels/emit.h"

// ---- arguments ----

static LLVMValueRef argument(RowKernel *k, LLVMTypeRef type, size_t offset) {
  return emit_load(k->e, type, emit_offset(k->e, k->args, emit_i64(k->e, (int64_t)offset)), 8);
}

/* Arguments are read by offsetof, so the struct in tfm/abi/program.h is their only description. */
static size_t operand_offset(uint32_t i) {
  return offsetof(tfm_row_args, operands) + i * sizeof(tfm_row_operand);
}

static LLVMValueRef coordinate(RowKernel *k, uint32_t axis) {
  CHECK(axis < TFM_MAX_RANK, "an index along axis %u", axis);
  return argument(k, k->e->i64, offsetof(tfm_row_args, coordinates) + axis * sizeof(int64_t));
}

/* Whether a leaf differs from column to column; what does not is computed once per row. Axis 0 of an index is the
 * columns. */
static bool varies(const void *context, const Expr *leaf) {
  const KernelSpec *spec = context;
  if (leaf->kind == EXPR_INDEX) return leaf->axis == 0;
  uint32_t i = leaf->kind == EXPR_ACC ? 0 : leaf->input;
  CHECK(i < spec->n_operands, "an expression over operand %u of %u", i, spec->n_operands);
  return spec->operands[i].access != COLUMN_BROADCAST;
}

/* The arguments are read-only and aliased by nothing, so LLVM may keep them in registers across stores of results. */
RowKernel row_kernel_begin(Emitter *e, const KernelSpec *spec, const char *name) {
  RowKernel k = {.e = e, .spec = spec, .program = expr_program(e->arena, spec->expr, varies, spec)};
  LLVMValueRef function = emit_kernel(e, KERNEL_ROW, name);
  emit_parameter_noalias(e, 0);
  emit_parameter_readonly(e, 0);
  k.args = LLVMGetParam(function, 0);
  k.rows = argument(&k, e->i64, offsetof(tfm_row_args, rows));
  k.columns = argument(&k, e->i64, offsetof(tfm_row_args, columns));
  k.first = emit_i64(e, 0);
  k.has_chains = spec->lines != LINES_SHORT;
  if (expr_divides(&k.program)) {
    k.fault = emit_stack(e, e->i32, 4);
    emit_store(e, emit_i32(e, 0), k.fault, 4);
  }
  return k;
}

/* The word of faults is shared by all threads, so it is written only if there is a fault, and then atomically: a plain
 * load and store would lose the cancellation, or the fault of another kernel, that comes in between. */
void row_kernel_end(RowKernel *k) {
  Emitter *e = k->e;
  if (k->fault) {
    LLVMValueRef fault = emit_load(e, e->i32, k->fault, 4);
    If any = if_begin(e, emit_icmp(e, LLVMIntNE, fault, emit_i32(e, 0)));
    LLVMValueRef word = argument(k, e->pointer, offsetof(tfm_row_args, faults));
    LLVMBuildAtomicRMW(e->builder, LLVMAtomicRMWBinOpOr, word, fault, LLVMAtomicOrderingMonotonic, false);
    if_end(e, &any);
  }
  LLVMBuildRetVoid(e->builder);
}

// ---- rows ----

static bool is_strided(const RowOperandSpec *operand) {
  return operand->access == COLUMN_STRIDED || operand->access == COLUMN_TRANSPOSED;
}

/* The first element of operand `i` in this row. In a table the number of the row is an id, which the runtime has
 * checked against the table's size. */
static LLVMValueRef row_pointer(RowKernel *k, uint32_t i) {
  Emitter *e = k->e;
  size_t at = operand_offset(i);
  LLVMValueRef base = argument(k, e->pointer, at + offsetof(tfm_row_operand, base));
  LLVMValueRef stride = argument(k, e->i64, at + offsetof(tfm_row_operand, row_stride));
  LLVMValueRef number = k->row;
  if (k->spec->operands[i].access == COLUMN_LOOKED_UP) return base;
  if (k->spec->operands[i].gathered) {
    LLVMValueRef id = emit_load(e, e->i32, row_pointer(k, k->spec->operands[i].gathered), 4);
    number = LLVMBuildSExt(e->builder, id, e->i64, "");
  }
  return emit_offset(e, base, emit_mul(e, number, stride));
}

static Lanes leaf(void *context, const Expr *expr);

void row_begin(RowKernel *k, LLVMValueRef row) {
  Emitter *e = k->e;
  k->row = row;
  for (uint32_t i = 0; i < k->spec->n_operands; i++) {
    k->pointers[i] = row_pointer(k, i);
    const bool is_looked_up = k->spec->operands[i].access == COLUMN_LOOKED_UP;
    size_t stride = is_looked_up ? offsetof(tfm_row_operand, row_stride) : offsetof(tfm_row_operand, column_stride);
    const bool has_stride = is_looked_up || is_strided(&k->spec->operands[i]);
    k->strides[i] = has_stride ? argument(k, e->i64, operand_offset(i) + stride) : NULL;
  }
  ExprEmitter emitter = {.e = e, .program = &k->program, .leaf = leaf, .context = k, .fault = k->fault};
  emit_expr_per_row(&emitter);
}

static Lanes emit_index(RowKernel *k, uint32_t axis) {
  Emitter *e = k->e;
  LLVMValueRef first = coordinate(k, axis);
  if (axis == 0) first = emit_add(e, first, k->column);
  if (axis == 1) first = emit_add(e, first, k->row);
  Lanes same = lanes_splat(e, LLVMBuildTrunc(e->builder, first, e->i32, ""));
  if (axis != 0) return same;
  Lanes offsets;
  for (uint32_t i = 0; i < LANES_MAX_VECTORS; i++)
    offsets.v[i] = emit_add(e, emit_ramp(e, LANES), emit_splat(e, emit_i32(e, i * LANES), LANES));
  return lanes_binary(e, LLVMBuildAdd, same, offsets);
}

static Lanes leaf(void *context, const Expr *expr) {
  RowKernel *k = context;
  switch (expr->kind) {
    case EXPR_ACC: return row_load(k, 0);
    case EXPR_INPUT:
    case EXPR_GATHER: return row_load(k, expr->input);
    case EXPR_INDEX: return emit_index(k, expr->axis);
    default: UNREACHABLE("an expression of a kernel with a leaf of kind %d", expr->kind);
  }
}

Lanes row_values(RowKernel *k) {
  LLVMValueRef use[LANES_MAX_VECTORS] = {k->mask};
  ExprEmitter emitter = {.e = k->e,
                         .program = &k->program,
                         .leaf = leaf,
                         .context = k,
                         .fault = k->fault,
                         .use = k->mask ? use : NULL};
  return emit_expr(&emitter);
}

// ---- loads and stores ----

/* Contiguous columns are vectors in memory, the last ones under a mask. Everything else (columns with a stride; the
 * last columns of types that the target cannot mask) goes element by element through the stack. */

static LLVMTypeRef memory_type(const RowKernel *k, DType dtype) {
  switch (dtype) {
    case DTYPE_F32: return k->e->f32;
    case DTYPE_I32: return k->e->i32;
    case DTYPE_BOOL: return k->e->i8;
    default: UNREACHABLE("an operand of type %d", dtype);
  }
}

static unsigned bytes_of(DType dtype) { return dtype == DTYPE_BOOL ? 1 : 4; }

/* A table may have fewer bits, which are widened as they are loaded. */
static bool is_narrow(const RowOperandSpec *operand) { return operand->form != TFM_FORM_F32; }

static LLVMTypeRef element_type(const RowKernel *k, const RowOperandSpec *operand) {
  return is_narrow(operand) ? k->e->i16 : memory_type(k, operand->dtype);
}

static unsigned element_bytes(const RowOperandSpec *operand) {
  return is_narrow(operand) ? (unsigned)tfm_form_element_bytes(operand->form) : bytes_of(operand->dtype);
}

/* A mask that the target does not have would become a branch per lane. */
static bool is_staged(const RowKernel *k, const RowOperandSpec *operand) {
  return is_strided(operand) || (k->count && !target_masks(k->e->target, element_bytes(operand)));
}

/* All operands share one stage, 16 elements. What it holds beyond the elements in use reaches no result. */
static LLVMValueRef stage_of(RowKernel *k) {
  if (!k->stage) k->stage = emit_stack(k->e, lanes_type(k->e->i32), 16);
  return k->stage;
}

/* Address of column k->column + 16 * vector. */
static LLVMValueRef vector_pointer(RowKernel *k, uint32_t i, unsigned vector) {
  Emitter *e = k->e;
  const RowOperandSpec *operand = &k->spec->operands[i];
  LLVMValueRef column = vector ? emit_add(e, k->column, emit_i64(e, (int64_t)vector * LANES)) : k->column;
  LLVMValueRef stride = is_strided(operand) ? k->strides[i] : emit_i64(e, element_bytes(operand));
  return emit_offset(e, k->pointers[i], emit_mul(e, column, stride));
}

/* Copies the elements in use between memory and the stage, one by one. */
static void copy_staged(RowKernel *k, uint32_t i, LLVMValueRef pointer, bool load) {
  Emitter *e = k->e;
  const RowOperandSpec *operand = &k->spec->operands[i];
  LLVMTypeRef type = element_type(k, operand);
  unsigned bytes = element_bytes(operand);
  LLVMValueRef stride = is_strided(operand) ? k->strides[i] : emit_i64(e, bytes);
  Loop loop = loop_begin(e, emit_i64(e, 0), k->count ? k->count : emit_i64(e, LANES), 1);
  LLVMValueRef memory = emit_offset(e, pointer, emit_mul(e, loop.index, stride));
  LLVMValueRef stage = emit_offset(e, stage_of(k), emit_mul(e, loop.index, emit_i64(e, bytes)));
  emit_store(e, emit_load(e, type, load ? memory : stage, bytes), load ? stage : memory, bytes);
  loop_end(e, &loop);
}

static LLVMValueRef load_vector(RowKernel *k, uint32_t i, unsigned vector) {
  const RowOperandSpec *operand = &k->spec->operands[i];
  LLVMTypeRef type = lanes_type(element_type(k, operand));
  unsigned bytes = element_bytes(operand);
  if (k->squares[i]) {
    LLVMValueRef row = emit_mul(k->e, k->square_row, emit_i64(k->e, LANES * 4));
    return emit_load(k->e, type, emit_offset(k->e, k->squares[i], row), 64);
  }
  LLVMValueRef pointer = vector_pointer(k, i, vector);
  if (is_staged(k, operand)) {
    copy_staged(k, i, pointer, true);
    return emit_load(k->e, type, stage_of(k), 16);
  }
  return k->mask ? emit_load_masked(k->e, type, pointer, k->mask, bytes) : emit_load(k->e, type, pointer, bytes);
}

/* Elements of a table of one column, one for each lane. Lanes that are not in use take the first. */
static LLVMValueRef look_up(RowKernel *k, uint32_t i, unsigned vector) {
  Emitter *e = k->e;
  const RowOperandSpec *operand = &k->spec->operands[i];
  LLVMTypeRef type = element_type(k, operand);
  LLVMValueRef ids = load_vector(k, operand->gathered, vector), found = LLVMGetUndef(lanes_type(type));
  if (k->mask) ids = emit_select(e, k->mask, ids, LLVMConstNull(lanes_type(e->i32)));
  for (unsigned lane = 0; lane < LANES; lane++) {
    LLVMValueRef id = LLVMBuildExtractElement(e->builder, ids, emit_i32(e, (int32_t)lane), "");
    LLVMValueRef bytes = emit_mul(e, LLVMBuildSExt(e->builder, id, e->i64, ""), k->strides[i]);
    LLVMValueRef at = emit_offset(e, k->pointers[i], bytes);
    LLVMValueRef element = emit_load(e, type, at, element_bytes(operand));
    found = LLVMBuildInsertElement(e->builder, found, element, emit_i32(e, (int32_t)lane), "");
  }
  return found;
}

/* A bool is a byte in memory and i1 in a register; any byte but 0 is true. */
Lanes row_load(RowKernel *k, uint32_t i) {
  Emitter *e = k->e;
  const RowOperandSpec *operand = &k->spec->operands[i];
  LLVMTypeRef type = element_type(k, operand);
  Lanes lanes;
  if (operand->access == COLUMN_BROADCAST) {
    lanes = lanes_splat(e, emit_load(e, type, k->pointers[i], element_bytes(operand)));
  } else {
    lanes = lanes_same(NULL);
    const bool is_looked_up = operand->access == COLUMN_LOOKED_UP;
    for (unsigned v = 0; v < e->n_vectors; v++) lanes.v[v] = (is_looked_up ? look_up : load_vector)(k, i, v);
  }
  for (unsigned v = 0; v < e->n_vectors && is_narrow(operand); v++)
    lanes.v[v] = (operand->form == TFM_FORM_BF16 ? emit_widened_bf16 : emit_widened_f16)(e, lanes.v[v], LANES);
  if (operand->dtype != DTYPE_BOOL) return lanes;
  Lanes zero = lanes_same(LLVMConstNull(lanes_type(e->i8)));
  return lanes_icompare(e, LLVMIntNE, lanes, zero);
}

static void store(RowKernel *k, uint32_t i, Lanes values) {
  Emitter *e = k->e;
  const RowOperandSpec *operand = &k->spec->operands[i];
  unsigned bytes = bytes_of(operand->dtype);
  if (operand->dtype == DTYPE_BOOL) values = lanes_convert(e, LLVMZExt, values, e->i8);
  for (unsigned v = 0; v < e->n_vectors; v++) {
    LLVMValueRef pointer = vector_pointer(k, i, v);
    if (is_staged(k, operand)) {
      emit_store(e, values.v[v], stage_of(k), 16);
      copy_staged(k, i, pointer, false);
    } else if (k->mask) {
      emit_store_masked(e, values.v[v], pointer, k->mask, bytes);
    } else {
      emit_store(e, values.v[v], pointer, bytes);
    }
  }
}

void row_store(RowKernel *k, Lanes values) { store(k, 0, values); }

void row_store_second(RowKernel *k, Lanes values) { store(k, k->spec->second, values); }

void row_store_scalar(RowKernel *k, LLVMValueRef value) {
  emit_store(k->e, value, k->pointers[0], bytes_of(k->spec->operands[0].dtype));
}

// ---- walks along the columns ----

/* Several vectors at once hide the latency of one behind the others; long expressions would run out of registers
 * (target/x86.def says how many suit a target). */
unsigned row_unroll(const RowKernel *k) {
  const TargetInfo *target = k->e->target;
  return expr_is_long(&k->program) ? target->long_row_unroll : target->row_unroll;
}

/* Emits turns from `begin` as long as the last column of a turn is before `end`. With `masked`, a turn may reach
 * beyond the columns, and mask and count say which lanes are in use. */
static LLVMValueRef walk_part(RowKernel *k, const RowWalk *walk, LLVMValueRef begin, LLVMValueRef end, unsigned vectors,
                              bool masked) {
  Emitter *e = k->e;
  Loop loop = loop_begin(e, begin, end, (int64_t)vectors * LANES);
  for (unsigned i = 0; i < walk->n_state; i++) walk->state[i] = loop_carry(e, &loop, walk->state[i]);
  e->n_vectors = vectors;
  k->column = loop.index;
  if (masked) {
    k->count = emit_least(e, emit_sub(e, k->columns, loop.index), emit_i64(e, LANES));
    LLVMValueRef count = emit_splat(e, LLVMBuildTrunc(e->builder, k->count, e->i32, ""), LANES);
    k->mask = emit_icmp(e, LLVMIntULT, emit_ramp(e, LANES), count);
  }
  walk->body(k, walk->context, walk->state);
  for (unsigned i = 0; i < walk->n_state; i++) loop_next(&loop, i, walk->state[i]);
  loop_end(e, &loop);
  for (unsigned i = 0; i < walk->n_state; i++) walk->state[i] = loop.results[i];
  k->count = k->mask = NULL;
  e->n_vectors = 1;
  return loop.last;
}

/* Whole turns first, then one vector at a time under a mask. The order of columns is the same in both, so the number
 * of vectors does not show in a reduction. */
void row_walk(RowKernel *k, unsigned unroll, RowWalk walk) {
  Emitter *e = k->e;
  LLVMValueRef end = emit_sub(e, k->columns, emit_i64(e, (int64_t)unroll * LANES - 1));
  LLVMValueRef column = walk_part(k, &walk, k->first, end, unroll, false);
  walk_part(k, &walk, column, k->columns, 1, true);
}

void row_walk_beyond(RowKernel *k, RowWalk walk) { walk_part(k, &walk, k->first, k->columns, 1, false); }

// ---- squares ----

/* An operand whose neighbours in memory are rows is read in squares, which are transposed on their way to the stack.
 * SQUARES_TOGETHER along both axes go together. */

typedef struct Square {
  LLVMValueRef row, column; /* its first ones */
  LLVMValueRef rows;        /* in use */
} Square;

/* The elements [row, row + n) x [column, column + n) of the square, of transposed operand i. Columns that do not exist
 * are the last one again. */
static void fill_square(RowKernel *k, const Square *square, uint32_t i, unsigned row, unsigned column) {
  Emitter *e = k->e;
  unsigned n = e->target->vector_floats;
  LLVMValueRef r[LANES], left = emit_splat(e, LLVMBuildTrunc(e->builder, square->rows, e->i32, ""), n);
  LLVMValueRef begin = emit_splat(e, emit_i32(e, row), n);
  LLVMValueRef mask = emit_icmp(e, LLVMIntULT, emit_add(e, emit_ramp(e, n), begin), left);
  for (unsigned j = 0; j < n; j++) {
    LLVMValueRef at = emit_i64(e, column + j);
    if (k->count) at = emit_least(e, at, emit_sub(e, k->count, emit_i64(e, 1)));
    LLVMValueRef bytes = emit_mul(e, emit_add(e, square->column, at), k->strides[i]);
    LLVMValueRef pointer = emit_offset(e, emit_offset(e, k->pointers[i], bytes), emit_i64(e, row * 4));
    r[j] = emit_load_masked(e, LLVMVectorType(memory_type(k, k->spec->operands[i].dtype), n), pointer, mask, 4);
  }
  emit_transposed(e, n, r);
  for (unsigned j = 0; j < n; j++) {
    LLVMValueRef at = emit_i64(e, ((int64_t)(row + j) * LANES + column) * 4);
    emit_store(e, r[j], emit_offset(e, k->squares[i], at), n * 4);
  }
}

static void fill_squares(RowKernel *k, const Square *square) {
  unsigned n = k->e->target->vector_floats;
  row_begin(k, square->row);
  for (uint32_t i = 1; i < k->spec->n_operands; i++)
    for (unsigned at = 0; k->squares[i] && at < LANES * LANES / n; at += n)
      fill_square(k, square, i, at / LANES * n, at % LANES);
}

typedef struct SquareWalk {
  void (*body)(RowKernel *k, void *context, LLVMValueRef *state);
  LLVMValueRef row, end; /* of the rows that go together */
} SquareWalk;

/* Down the rows at the column of the walk. */
static void squares_body(RowKernel *k, void *context, LLVMValueRef *state) {
  const SquareWalk *walk = context;
  Emitter *e = k->e;
  Loop squares = loop_begin(e, walk->row, walk->end, LANES);
  Square square = {.row = squares.index, .column = k->column};
  square.rows = emit_least(e, emit_sub(e, walk->end, squares.index), emit_i64(e, LANES));
  fill_squares(k, &square);
  Loop rows = loop_begin(e, emit_i64(e, 0), square.rows, 1);
  k->square_row = rows.index;
  row_begin(k, emit_add(e, square.row, rows.index));
  walk->body(k, NULL, state);
  loop_end(e, &rows);
  loop_end(e, &squares);
}

bool row_has_squares(const RowKernel *k) {
  bool found = false;
  for (uint32_t i = 1; i < k->spec->n_operands; i++) found |= k->spec->operands[i].access == COLUMN_TRANSPOSED;
  return found && target_masks(k->e->target, 4);
}

void row_squares(RowKernel *k, void (*body)(RowKernel *k, void *context, LLVMValueRef *state)) {
  Emitter *e = k->e;
  for (uint32_t i = 1; i < k->spec->n_operands; i++)
    if (k->spec->operands[i].access == COLUMN_TRANSPOSED)
      k->squares[i] = emit_stack(e, LLVMArrayType2(lanes_type(e->i32), LANES), 64);
  LLVMValueRef all = k->columns, together = emit_i64(e, SQUARES_TOGETHER * LANES);
  Loop rows = loop_begin(e, emit_i64(e, 0), k->rows, SQUARES_TOGETHER * LANES);
  SquareWalk walk = {body, rows.index, emit_least(e, k->rows, emit_add(e, rows.index, together))};
  Loop columns = loop_begin(e, emit_i64(e, 0), all, SQUARES_TOGETHER * LANES);
  k->first = columns.index;
  k->columns = emit_least(e, all, emit_add(e, columns.index, together));
  row_walk(k, 1, (RowWalk){.body = squares_body, .context = &walk});
  loop_end(e, &columns);
  loop_end(e, &rows);
}
