/* PACK: packed[k][width] = source[k * k_stride + column * column_stride]; columns from `columns` on are 0.
 *
 * In: a strided matrix, of f32 or of 16 bits, which are widened. Out: a panel that tiles read as b, or as a for the
 * left operand. Where k is contiguous in the source, as in keys, squares as wide as a vector are transposed in
 * registers. Elsewhere a line of the panel is a line of the source, copied as vectors where columns are contiguous,
 * under masks where there are fewer. Whatever is left is copied number by number. The zeros let tiles compute whole
 * vectors; what they give is never stored. Refuses nothing.
 */
#include "base/check.h"
#include "codegen/emitter.h"
#include "codegen/vector.h"
#include "kernels/emit.h"

enum { MAX_VECTORS = 16 };
enum { ARG_SOURCE, ARG_K_STRIDE, ARG_COLUMN_STRIDE, ARG_K, ARG_COLUMNS, ARG_PACKED, N_ARGS };

typedef struct Pack {
  Emitter *e;
  tfm_form form; /* of the source */
  int64_t bytes; /* of a number of it */
  int64_t width;
  unsigned lanes;
  LLVMTypeRef vector;
  LLVMValueRef args[N_ARGS];
} Pack;

static LLVMValueRef source(Pack *p, LLVMValueRef k, LLVMValueRef column) {
  Emitter *e = p->e;
  LLVMValueRef at = emit_add(e, emit_mul(e, k, p->args[ARG_K_STRIDE]),
                             emit_mul(e, column, p->args[ARG_COLUMN_STRIDE]));
  return emit_offset(e, p->args[ARG_SOURCE], emit_mul(e, at, emit_i64(e, p->bytes)));
}

static LLVMValueRef packed(Pack *p, LLVMValueRef k, LLVMValueRef column) {
  Emitter *e = p->e;
  LLVMValueRef at = emit_add(e, emit_mul(e, k, emit_i64(e, p->width)), column);
  return emit_offset(e, p->args[ARG_PACKED], emit_mul(e, at, emit_i64(e, 4)));
}

static LLVMTypeRef source_type(const Pack *p, unsigned n) {
  if (p->form != TFM_FORM_F32) return LLVMVectorType(p->e->i16, n);
  return n == 1 ? p->e->f32 : LLVMVectorType(p->e->f32, n);
}

static LLVMValueRef widened(Pack *p, LLVMValueRef numbers, unsigned n) {
  switch (p->form) {
    case TFM_FORM_BF16: return emit_widened_bf16(p->e, numbers, n);
    case TFM_FORM_F16: return emit_widened_f16(p->e, numbers, n);
    default: return numbers;
  }
}

static LLVMValueRef load(Pack *p, LLVMValueRef from, unsigned n) {
  return widened(p, emit_load(p->e, source_type(p, n), from, (unsigned)p->bytes), n);
}

static LLVMValueRef plus(Pack *p, LLVMValueRef value, unsigned more) {
  return more ? emit_add(p->e, value, emit_i64(p->e, more)) : value;
}

/* Copies the numbers [k, k_end) x [column, column_end) one by one. */
static void copy_scalars(Pack *p, LLVMValueRef k, LLVMValueRef k_end, LLVMValueRef column, LLVMValueRef column_end) {
  Emitter *e = p->e;
  Loop ks = loop_begin(e, k, k_end, 1);
  Loop columns = loop_begin(e, column, column_end, 1);
  emit_store(e, load(p, source(p, ks.index, columns.index), 1), packed(p, ks.index, columns.index), 4);
  loop_end(e, &columns);
  loop_end(e, &ks);
}

/* Writes zeros behind the columns: in lines [k, K) up to the next whole vector, in all lines from there on. */
static void zero_columns(Pack *p, LLVMValueRef k) {
  Emitter *e = p->e;
  LLVMValueRef columns = p->args[ARG_COLUMNS], more = emit_add(e, columns, emit_i64(e, p->lanes - 1));
  LLVMValueRef whole = LLVMBuildAnd(e->builder, more, emit_i64(e, -(int64_t)p->lanes), "");
  Loop ks = loop_begin(e, k, p->args[ARG_K], 1);
  Loop numbers = loop_begin(e, columns, whole, 1);
  emit_store(e, emit_f32(e, 0), packed(p, ks.index, numbers.index), 4);
  loop_end(e, &numbers);
  loop_end(e, &ks);
  Loop vectors = loop_begin(e, whole, emit_i64(e, p->width), p->lanes);
  Loop lines = loop_begin(e, emit_i64(e, 0), p->args[ARG_K], 1);
  emit_store(e, LLVMConstNull(p->vector), packed(p, lines.index, vectors.index), 4);
  loop_end(e, &lines);
  loop_end(e, &vectors);
}

// ---- transposing ----

/* Transposes one square: `lanes` columns of the source, contiguous along k, become `lanes` lines of the panel. Columns
 * that do not exist are read from `zeros`, so that nothing beyond the source is touched. */
static void transpose_square(Pack *p, LLVMValueRef k, LLVMValueRef column, LLVMValueRef zeros) {
  Emitter *e = p->e;
  LLVMValueRef r[LANES], from = source(p, k, column), left = emit_sub(e, p->args[ARG_COLUMNS], column);
  LLVMValueRef distance = emit_mul(e, p->args[ARG_COLUMN_STRIDE], emit_i64(e, p->bytes));
  for (unsigned i = 0; i < p->lanes; i++) {
    LLVMValueRef exists = emit_icmp(e, LLVMIntSGT, left, emit_i64(e, i));
    r[i] = load(p, emit_select(e, exists, from, zeros), p->lanes);
    from = emit_offset(e, from, distance);
  }
  emit_transposed(e, p->lanes, r);
  for (unsigned i = 0; i < p->lanes; i++) emit_store(e, r[i], packed(p, plus(p, k, i), column), 4);
}

/* Returns the first k whose line is copied number by number. */
static LLVMValueRef pack_transposed(Pack *p) {
  Emitter *e = p->e;
  LLVMValueRef zero = emit_i64(e, 0), zeros = emit_stack(e, p->vector, 4 * p->lanes);
  LLVMValueRef whole = LLVMBuildAnd(e->builder, p->args[ARG_K], emit_i64(e, -(int64_t)p->lanes), "");
  emit_store(e, LLVMConstNull(p->vector), zeros, 4);
  Loop columns = loop_begin(e, zero, p->args[ARG_COLUMNS], p->lanes);
  Loop ks = loop_begin(e, zero, whole, p->lanes);
  transpose_square(p, ks.index, columns.index, zeros);
  loop_end(e, &ks);
  loop_end(e, &columns);
  copy_scalars(p, whole, p->args[ARG_K], zero, p->args[ARG_COLUMNS]);
  return whole;
}

// ---- copying lines ----

/* Lines of whole vectors, or with `masks` of lanes that exist; the others become 0. */
static void copy_lines(Pack *p, const LLVMValueRef *masks) {
  Emitter *e = p->e;
  Loop ks = loop_begin(e, emit_i64(e, 0), p->args[ARG_K], 1);
  LLVMValueRef from = source(p, ks.index, emit_i64(e, 0)), to = packed(p, ks.index, emit_i64(e, 0));
  for (int64_t column = 0; column < p->width; column += p->lanes) {
    LLVMTypeRef type = source_type(p, p->lanes);
    const unsigned bytes = (unsigned)p->bytes;
    LLVMValueRef pointer = emit_offset(e, from, emit_i64(e, column * p->bytes));
    LLVMValueRef line = masks ? emit_load_masked(e, type, pointer, masks[column / p->lanes], bytes)
                              : emit_load(e, type, pointer, bytes);
    emit_store(e, widened(p, line, p->lanes), emit_offset(e, to, emit_i64(e, column * 4)), 4);
  }
  loop_end(e, &ks);
}

static void copy_parts_of_lines(Pack *p) {
  Emitter *e = p->e;
  LLVMValueRef masks[MAX_VECTORS];
  LLVMValueRef count = emit_splat(e, LLVMBuildTrunc(e->builder, p->args[ARG_COLUMNS], e->i32, ""), p->lanes);
  for (unsigned i = 0; i < p->width / p->lanes; i++) {
    LLVMValueRef first = emit_splat(e, emit_i32(e, i * p->lanes), p->lanes);
    masks[i] = emit_icmp(e, LLVMIntSLT, emit_add(e, emit_ramp(e, p->lanes), first), count);
  }
  copy_lines(p, masks);
}

/* Whether columns are contiguous is known only at run time here, so all ways are emitted. */
static void pack_lines(Pack *p) {
  Emitter *e = p->e;
  LLVMValueRef contiguous = emit_icmp(e, LLVMIntEQ, p->args[ARG_COLUMN_STRIDE], emit_i64(e, 1));
  LLVMValueRef full = emit_icmp(e, LLVMIntEQ, p->args[ARG_COLUMNS], emit_i64(e, p->width));
  LLVMBasicBlockRef lines = emit_block(e, "lines"), other = emit_block(e, "other"), parts = emit_block(e, "parts"),
                    numbers = emit_block(e, "numbers"), done = emit_block(e, "done");
  emit_branch(e, LLVMBuildAnd(e->builder, contiguous, full, ""), lines, other);
  emit_at(e, lines);
  copy_lines(p, NULL);
  emit_jump(e, done);
  emit_at(e, other);
  const bool has_masks = target_masks(e->target, (unsigned)p->bytes);
  emit_branch(e, has_masks ? contiguous : LLVMConstNull(e->i1), parts, numbers);
  emit_at(e, parts);
  if (has_masks) copy_parts_of_lines(p);
  emit_jump(e, done);
  emit_at(e, numbers);
  copy_scalars(p, emit_i64(e, 0), p->args[ARG_K], emit_i64(e, 0), p->args[ARG_COLUMNS]);
  zero_columns(p, emit_i64(e, 0));
  emit_jump(e, done);
  emit_at(e, done);
}

void emit_PACK(Emitter *e, const KernelSpec *spec, const char *name) {
  Pack p = {.e = e, .form = (tfm_form)spec->b_form, .width = spec->width, .lanes = e->target->vector_floats};
  p.bytes = tfm_form_element_bytes(spec->b_form);
  CHECK(p.width > 0 && p.width % p.lanes == 0 && p.lanes >= 4 && p.width / p.lanes <= MAX_VECTORS,
        "a panel of %d columns", (int)p.width);
  p.vector = LLVMVectorType(e->f32, p.lanes);
  LLVMValueRef function = emit_kernel(e, KERNEL_PACK, name);
  for (unsigned i = 0; i < N_ARGS; i++) p.args[i] = LLVMGetParam(function, i);
  if (spec->pack_transposes) p.args[ARG_K_STRIDE] = emit_i64(e, 1);
  emit_parameter_noalias(e, ARG_SOURCE), emit_parameter_readonly(e, ARG_SOURCE);
  emit_parameter_noalias(e, ARG_PACKED);
  if (spec->pack_transposes) zero_columns(&p, pack_transposed(&p));
  else
    pack_lines(&p);
  LLVMBuildRetVoid(e->builder);
}
