/* In: where a and b lie; the sums of a tile in registers, c in memory. Out: addresses of what a tile reads; code that
 * begins with what c holds or adds it to the sums, and that stores them: whole rows, or those columns of them that
 * exist, under masks or by way of the stack. See tile.h. Refuses nothing. */
#include "codegen/vector.h"
#include "kernels/tile.h"

// ---- a and b ----

LLVMValueRef tile_offset_in_a(Tile *t, LLVMValueRef a, int64_t row, int64_t step) {
  const int64_t step_bytes = tile_is_integer(t) && !tile_takes_bytes(t) ? 8 : 4;
  const int64_t steps = t->spec->a_step ? t->spec->a_step * step : step;
  return emit_offset(t->e, a, emit_i64(t->e, row * t->spec->a_stride * 4 + steps * step_bytes));
}

int64_t tile_offset_in_b(const Tile *t, int64_t row, int64_t column) {
  if (t->spec->b_form == TFM_FORM_BF16) return (row / 2 * t->spec->b_stride + column) * 4;
  return (row * t->spec->b_stride + column) * (t->spec->b_form == TFM_FORM_F16 ? 2 : 4);
}

LLVMValueRef tile_splat_bits(Tile *t, uint32_t bits) {
  return emit_splat(t->e, LLVMConstInt(t->e->i32, bits, false), t->lanes);
}

LLVMValueRef tile_load_words(Tile *t, LLVMValueRef b, unsigned u, unsigned j) {
  LLVMValueRef at = emit_offset(t->e, b, emit_i64(t->e, tile_offset_in_b(t, u, tile_first_column(t) + j * t->lanes)));
  return emit_load(t->e, LLVMVectorType(t->e->i32, t->lanes), at, 4);
}

// ---- c ----

static LLVMValueRef float_offset(Tile *t, LLVMValueRef pointer, int64_t floats) {
  return emit_offset(t->e, pointer, emit_i64(t->e, floats * 4));
}

/* The distance of the rows of c is an argument: results lie in buffers of many widths, and c is touched only twice. */
static LLVMValueRef row_of_c(Tile *t, unsigned row) {
  LLVMValueRef distance = emit_mul(t->e, t->args[ARG_C_STRIDE], emit_i64(t->e, 4 * (int64_t)row));
  return emit_offset(t->e, t->args[ARG_C], distance);
}

static LLVMValueRef vector_of(Tile *t, unsigned row, unsigned j, bool on_stack) {
  LLVMValueRef start = on_stack ? float_offset(t, t->stack, (int64_t)row * t->spec->width) : row_of_c(t, row);
  return float_offset(t, start, tile_first_column(t) + j * t->lanes);
}

static LLVMValueRef has_all_columns(Tile *t) {
  return emit_icmp(t->e, LLVMIntSGE, t->args[ARG_COLUMNS], emit_i64(t->e, tile_end_column(t)));
}

/* Copies the columns that exist, from c to the stack or back. */
static void copy_part(Tile *t, bool to_stack) {
  Emitter *e = t->e;
  LLVMValueRef four = emit_i64(e, 4), end = emit_least(e, t->args[ARG_COLUMNS], emit_i64(e, tile_end_column(t)));
  Loop rows = loop_begin(e, emit_i64(e, 0), emit_i64(e, t->spec->rows), 1);
  LLVMValueRef c_distance = emit_mul(e, rows.index, t->args[ARG_C_STRIDE]);
  LLVMValueRef s_distance = emit_mul(e, rows.index, emit_i64(e, t->spec->width));
  Loop columns = loop_begin(e, emit_i64(e, tile_first_column(t)), end, 1);
  LLVMValueRef c = emit_offset(e, t->args[ARG_C], emit_mul(e, emit_add(e, c_distance, columns.index), four));
  LLVMValueRef s = emit_offset(e, t->stack, emit_mul(e, emit_add(e, s_distance, columns.index), four));
  emit_store(e, emit_load(e, e->f32, to_stack ? c : s, 4), to_stack ? s : c, 4);
  loop_end(e, &columns);
  loop_end(e, &rows);
}

typedef enum Memory { WHOLE, MASKED, STAGED } Memory;

static Memory memory_of_part(const Tile *t) { return target_masks(t->e->target, sizeof(float)) ? MASKED : STAGED; }
bool tile_is_staged(const Tile *t) { return memory_of_part(t) == STAGED; }

/* Where there are registers for masks, c may be touched under one whether or not it is cut: half the code. It costs
 * products of 128 x 768 x 768 up to 4 % of their time, so only tiles of gradients do so, whose chains are longer. */
static bool is_masked(const Tile *t) {
  return t->spec->goes_on && !t->spec->has_all_columns && memory_of_part(t) == MASKED && t->lanes == LANES;
}

/* Which lanes of vector j are columns of c. */
static LLVMValueRef mask_of(Tile *t, unsigned j) {
  Emitter *e = t->e;
  LLVMValueRef left = emit_sub(e, t->args[ARG_COLUMNS], emit_i64(e, tile_first_column(t) + j * t->lanes));
  LLVMValueRef count = emit_splat(e, LLVMBuildTrunc(e->builder, left, e->i32, ""), t->lanes);
  return emit_icmp(e, LLVMIntSLT, emit_ramp(e, t->lanes), count);
}

/* WHOLE: all columns exist. MASKED: only those that do are touched. STAGED: from the copy on the stack. */
static void load_rows(Tile *t, LLVMValueRef *values, Memory memory) {
  Emitter *e = t->e;
  for (unsigned j = 0; j < t->n; j++) {
    LLVMValueRef mask = memory == MASKED ? mask_of(t, j) : NULL;
    for (unsigned i = 0; i < t->spec->rows; i++) {
      LLVMValueRef pointer = vector_of(t, i, j, memory == STAGED);
      values[i * t->n + j] = mask ? emit_load_masked(e, t->vector, pointer, mask, 4)
                                  : emit_load(e, t->vector, pointer, 4);
    }
  }
}

static void store_rows(Tile *t, Memory memory) {
  Emitter *e = t->e;
  for (unsigned j = 0; j < t->n; j++) {
    LLVMValueRef mask = memory == MASKED ? mask_of(t, j) : NULL;
    for (unsigned i = 0; i < t->spec->rows; i++) {
      LLVMValueRef pointer = vector_of(t, i, j, memory == STAGED), value = t->c[i * t->n + j];
      if (mask) emit_store_masked(e, value, pointer, mask, 4);
      else emit_store(e, value, pointer, 4);
    }
  }
}

/* Loads what exists of c, all of it or a part, and adds the registers of c to it if it is a sum. Returns the block that
 * this ends in. */
static LLVMBasicBlockRef load_c(Tile *t, LLVMBasicBlockRef block, LLVMBasicBlockRef then, Memory memory, bool is_sum,
                                LLVMValueRef *values) {
  emit_at(t->e, block);
  if (memory == STAGED) copy_part(t, true);
  load_rows(t, values, memory);
  for (unsigned i = 0; i < t->spec->rows * t->n && is_sum; i++)
    values[i] = LLVMBuildFAdd(t->e->builder, values[i], t->c[i], "");
  LLVMBasicBlockRef end = LLVMGetInsertBlock(t->e->builder);
  emit_jump(t->e, then);
  return end;
}

/* The registers of c become what c holds if `adds`, else `without`; with is_sum they are added to what it holds. The
 * three ways meet in phis, one per register; the blocks of IR are laid out as they should run. */
void tile_take_up_c(Tile *t, LLVMValueRef adds, LLVMValueRef *without, bool is_sum) {
  Emitter *e = t->e;
  const bool may_be_cut = !t->spec->has_all_columns && !is_masked(t);
  LLVMValueRef whole[MAX_VECTORS], part[MAX_VECTORS];
  LLVMBasicBlockRef blocks[3] = {LLVMGetInsertBlock(e->builder)};
  LLVMBasicBlockRef added = emit_block(e, "accumulate"), full = emit_block(e, "load");
  LLVMBasicBlockRef cut = may_be_cut ? emit_block(e, "load_part") : full, start = emit_block(e, "start");
  emit_branch(e, adds, added, start);
  emit_at(e, added);
  if (may_be_cut) emit_branch(e, has_all_columns(t), full, cut);
  else emit_jump(e, full);
  blocks[1] = load_c(t, full, start, is_masked(t) ? MASKED : WHOLE, is_sum, whole);
  if (may_be_cut) blocks[2] = load_c(t, cut, start, memory_of_part(t), is_sum, part);
  emit_at(e, start);
  for (unsigned i = 0; i < t->spec->rows * t->n; i++) {
    t->c[i] = LLVMBuildPhi(e->builder, t->vector, "");
    LLVMAddIncoming(t->c[i], (LLVMValueRef[]){without[i], whole[i], part[i]}, blocks, may_be_cut ? 3 : 2);
  }
}

void emit_tile_finish(Tile *t) {
  Emitter *e = t->e;
  if (t->spec->has_all_columns || is_masked(t)) {
    store_rows(t, is_masked(t) ? MASKED : WHOLE);
    return;
  }
  LLVMBasicBlockRef full = emit_block(e, "store"), cut = emit_block(e, "store_part"), done = emit_block(e, "done");
  emit_branch(e, has_all_columns(t), full, cut);
  emit_at(e, full);
  store_rows(t, WHOLE);
  emit_jump(e, done);
  emit_at(e, cut);
  store_rows(t, memory_of_part(t));
  if (memory_of_part(t) == STAGED) copy_part(t, false);
  emit_jump(e, done);
  emit_at(e, done);
}
