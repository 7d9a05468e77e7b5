/* In: an operand and the vectors a walk has come to. Out: loads and stores of them, whatever lies between columns.
 *
 * Contiguous columns are vectors in memory, the last ones under a mask. Everything else (strides; the last columns of
 * types that the target cannot mask) passes element by element through the stack. */
#include "base/check.h"
#include "kernels/row.h"

static LLVMTypeRef memory_type(const RowKernel *k, DType dtype) {
  switch (dtype) {
    case DTYPE_F32: return k->e->f32;
    case DTYPE_I32: return k->e->i32;
    case DTYPE_BOOL: return k->e->i8;
    default: UNREACHABLE("an operand of type %d", dtype);
  }
}

static unsigned bytes_of(DType dtype) { return dtype == DTYPE_BOOL ? 1 : 4; }

/* A mask that the target does not have would become a branch per lane. */
static bool is_staged(const RowKernel *k, const RowOperandSpec *operand) {
  return operand->access == COLUMN_STRIDED || (k->count && !target_masks(k->e->target, bytes_of(operand->dtype)));
}

/* One place for all operands. What it holds beyond the elements in use reaches no result. */
static LLVMValueRef stage_of(RowKernel *k) {
  if (!k->stage) k->stage = emit_stack(k->e, lanes_type(k->e->i32), 16);
  return k->stage;
}

/* Address of column k->column + 16 * vector. */
static LLVMValueRef vector_pointer(RowKernel *k, uint32_t i, unsigned vector) {
  Emitter *e = k->e;
  const RowOperandSpec *operand = &k->spec->operands[i];
  LLVMValueRef column = vector ? emit_add(e, k->column, emit_i64(e, (int64_t)vector * LANES)) : k->column;
  LLVMValueRef stride = operand->access == COLUMN_STRIDED ? k->strides[i] : emit_i64(e, bytes_of(operand->dtype));
  return emit_offset(e, k->pointers[i], emit_mul(e, column, stride));
}

/* Copies the elements in use between memory and the stage. */
static void copy_staged(RowKernel *k, uint32_t i, LLVMValueRef pointer, bool load) {
  Emitter *e = k->e;
  const RowOperandSpec *operand = &k->spec->operands[i];
  LLVMTypeRef type = memory_type(k, operand->dtype);
  unsigned bytes = bytes_of(operand->dtype);
  LLVMValueRef stride = operand->access == COLUMN_STRIDED ? k->strides[i] : emit_i64(e, bytes);
  Loop loop = loop_begin(e, emit_i64(e, 0), k->count ? k->count : emit_i64(e, LANES), 1);
  LLVMValueRef memory = emit_offset(e, pointer, emit_mul(e, loop.index, stride));
  LLVMValueRef stage = emit_offset(e, stage_of(k), emit_mul(e, loop.index, emit_i64(e, bytes)));
  emit_store(e, emit_load(e, type, load ? memory : stage, bytes), load ? stage : memory, bytes);
  loop_end(e, &loop);
}

static LLVMValueRef load_vector(RowKernel *k, uint32_t i, unsigned vector) {
  const RowOperandSpec *operand = &k->spec->operands[i];
  LLVMTypeRef type = lanes_type(memory_type(k, operand->dtype));
  unsigned bytes = bytes_of(operand->dtype);
  LLVMValueRef pointer = vector_pointer(k, i, vector);
  if (is_staged(k, operand)) {
    copy_staged(k, i, pointer, true);
    return emit_load(k->e, type, stage_of(k), 16);
  }
  return k->mask ? emit_load_masked(k->e, type, pointer, k->mask, bytes) : emit_load(k->e, type, pointer, bytes);
}

Lanes row_load(RowKernel *k, uint32_t i) {
  Emitter *e = k->e;
  const RowOperandSpec *operand = &k->spec->operands[i];
  LLVMTypeRef type = memory_type(k, operand->dtype);
  Lanes lanes;
  if (operand->access == COLUMN_BROADCAST) {
    lanes = lanes_splat(e, emit_load(e, type, k->pointers[i], bytes_of(operand->dtype)));
  } else {
    lanes = lanes_same(NULL);
    for (unsigned v = 0; v < e->n_vectors; v++) lanes.v[v] = load_vector(k, i, v);
  }
  if (operand->dtype != DTYPE_BOOL) return lanes;
  Lanes zero = lanes_same(LLVMConstNull(lanes_type(e->i8)));
  return lanes_icompare(e, LLVMIntNE, lanes, zero);
}

void row_store(RowKernel *k, Lanes values) {
  Emitter *e = k->e;
  const RowOperandSpec *operand = &k->spec->operands[0];
  unsigned bytes = bytes_of(operand->dtype);
  if (operand->dtype == DTYPE_BOOL) values = lanes_convert(e, LLVMZExt, values, e->i8);
  for (unsigned v = 0; v < e->n_vectors; v++) {
    LLVMValueRef pointer = vector_pointer(k, 0, v);
    if (is_staged(k, operand)) {
      emit_store(e, values.v[v], stage_of(k), 16);
      copy_staged(k, 0, pointer, false);
    } else if (k->mask) {
      emit_store_masked(e, values.v[v], pointer, k->mask, bytes);
    } else {
      emit_store(e, values.v[v], pointer, bytes);
    }
  }
}

void row_store_scalar(RowKernel *k, LLVMValueRef value) {
  emit_store(k->e, value, k->pointers[0], bytes_of(k->spec->operands[0].dtype));
}
