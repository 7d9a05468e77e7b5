/* In: specs of row kernels. Out: their frame: arguments, addresses of rows, walks; and the pointwise kernels, which are
 * nothing else. */
#include "kernels/row.h"

#include <stddef.h>

#include "base/check.h"
#include "kernels/emit.h"

// ---- arguments ----

static LLVMValueRef argument(RowKernel *k, LLVMTypeRef type, size_t offset) {
  return emit_load(k->e, type, emit_offset(k->e, k->args, emit_i64(k->e, (int64_t)offset)), 8);
}

static size_t operand_offset(uint32_t i) {
  return offsetof(tfm_row_args, operands) + i * sizeof(tfm_row_operand);
}

static LLVMValueRef coordinate(RowKernel *k, uint32_t axis) {
  CHECK(axis < TFM_MAX_RANK, "an index along axis %u", axis);
  return argument(k, k->e->i64, offsetof(tfm_row_args, coordinates) + axis * sizeof(int64_t));
}


static bool varies(const void *context, const Expr *leaf) {
  const KernelSpec *spec = context;
  if (leaf->kind == EXPR_INDEX) return leaf->axis == 0;
  uint32_t i = leaf->kind == EXPR_ACC ? 0 : leaf->input;
  CHECK(i < spec->n_operands, "an expression over operand %u of %u", i, spec->n_operands);
  return spec->operands[i].access != COLUMN_BROADCAST;
}

RowKernel row_kernel_begin(Emitter *e, const KernelSpec *spec, const char *name) {
  RowKernel k = {.e = e, .spec = spec, .program = expr_program(e->arena, spec->expr, varies, spec)};
  LLVMValueRef function = emit_function(e, name, e->nothing, 1, &e->pointer);
  emit_parameter_noalias(e, 0);
  emit_parameter_readonly(e, 0);
  k.args = LLVMGetParam(function, 0);
  k.rows = argument(&k, e->i64, offsetof(tfm_row_args, rows));
  k.columns = argument(&k, e->i64, offsetof(tfm_row_args, columns));
  if (expr_divides(&k.program)) {
    k.fault = emit_stack(e, e->i32, 4);
    emit_store(e, emit_i32(e, 0), k.fault, 4);
  }
  return k;
}

/* Faults are written only if there are any: threads share the word. */
void row_kernel_end(RowKernel *k) {
  Emitter *e = k->e;
  if (k->fault) {
    LLVMValueRef fault = emit_load(e, e->i32, k->fault, 4);
    If any = if_begin(e, emit_icmp(e, LLVMIntNE, fault, emit_i32(e, 0)));
    LLVMValueRef word = argument(k, e->pointer, offsetof(tfm_row_args, faults));
    emit_store(e, LLVMBuildOr(e->builder, emit_load(e, e->i32, word, 4), fault, ""), word, 4);
    if_end(e, &any);
  }
  LLVMBuildRetVoid(e->builder);
}

// ---- rows ----

static LLVMValueRef row_pointer(RowKernel *k, uint32_t i) {
  Emitter *e = k->e;
  size_t at = operand_offset(i);
  LLVMValueRef base = argument(k, e->pointer, at + offsetof(tfm_row_operand, base));
  LLVMValueRef stride = argument(k, e->i64, at + offsetof(tfm_row_operand, row_stride));
  LLVMValueRef number = k->row;
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
    size_t stride = operand_offset(i) + offsetof(tfm_row_operand, column_stride);
    k->strides[i] = k->spec->operands[i].access == COLUMN_STRIDED ? argument(k, e->i64, stride) : NULL;
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

// ---- walks along the columns ----

unsigned row_unroll(const RowKernel *k) {
  const TargetInfo *target = k->e->target;
  return expr_is_long(&k->program) ? target->long_row_unroll : target->row_unroll;
}

typedef struct Walk {
  void (*body)(RowKernel *k, void *context, LLVMValueRef *state);
  void *context;
  unsigned n_state;
  LLVMValueRef *state;
} Walk;

/* Turns from `begin` as long as the last column of a turn is within `end`. */
static LLVMValueRef walk_part(RowKernel *k, Walk *walk, LLVMValueRef begin, LLVMValueRef end, unsigned vectors,
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

void row_walk(RowKernel *k, unsigned unroll, void (*body)(RowKernel *k, void *context, LLVMValueRef *state),
              void *context, unsigned n_state, LLVMValueRef *state) {
  Emitter *e = k->e;
  Walk walk = {body, context, n_state, state};
  LLVMValueRef end = emit_sub(e, k->columns, emit_i64(e, (int64_t)unroll * LANES - 1));
  LLVMValueRef column = walk_part(k, &walk, emit_i64(e, 0), end, unroll, false);
  walk_part(k, &walk, column, k->columns, 1, true);
}

// ---- pointwise ----

static void pointwise_body(RowKernel *k, void *context, LLVMValueRef *state) {
  (void)context, (void)state;
  row_store(k, row_values(k));
}

static void emit_pointwise(RowKernel *k) {
  Loop rows = loop_begin(k->e, emit_i64(k->e, 0), k->rows, 1);
  row_begin(k, rows.index);
  row_walk(k, row_unroll(k), pointwise_body, NULL, 0, NULL);
  loop_end(k->e, &rows);
}

void emit_ROW(Emitter *e, const KernelSpec *spec, const char *name) {
  RowKernel k = row_kernel_begin(e, spec, name);
  switch (spec->reduction) {
    case OP_POINTWISE: emit_pointwise(&k); break;
    case OP_SOFTMAX:
    case OP_LOG_SOFTMAX: emit_row_softmax(&k); break;
    case OP_LAYER_NORM:
    case OP_RMS_NORM: emit_row_norm(&k); break;
    default: emit_row_reduction(&k);
  }
  row_kernel_end(&k);
}
