/* In: the form of b, where a and b are. Out: code that adds steps along k to c, and that scales sums of whole numbers.
 * See tile.h.
 *
 * Numbers of 16 bits are widened as they are loaded. Whole numbers are four k a step, bytes at once where the target
 * has an instruction for it (dot_bytes), else words, or pairs of bytes (in_pairs): their sums fit 16 bits, for rows are
 * split, and what was left over is added at last (abi/kernels.h). Sums of whole numbers have no order, so all give the
 * same. */
#include "kernels/tile.h"

#include <string.h>

#include "codegen/vector.h"

// ---- the steps along k ----

/* An exact tile skips the addition where a is 0: 0 * NaN and 0 * inf are NaN, but a probability of 0 must contribute
 * 0. With a finite b both ways give the same bits, except for the sign of a zero sum. */
static LLVMValueRef step(Tile *t, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c, LLVMValueRef counts) {
  LLVMValueRef sum = emit_fma(t->e, a, b, c);
  return counts ? emit_select(t->e, counts, sum, c) : sum;
}

/* A bf16 is the upper half of its f32: the lower one of the pair is moved up, or cut off. */
static LLVMValueRef widen_bf16(Tile *t, LLVMValueRef pairs, bool is_upper) {
  LLVMBuilderRef builder = t->e->builder;
  LLVMValueRef bits = is_upper ? LLVMBuildAnd(builder, pairs, tile_splat_bits(t, 0xffff0000u), "")
                               : LLVMBuildShl(builder, pairs, tile_splat_bits(t, 16), "");
  return LLVMBuildBitCast(builder, bits, t->vector, "");
}

LLVMValueRef tile_load_b(Tile *t, LLVMValueRef b, unsigned u, unsigned j) {
  Emitter *e = t->e;
  LLVMValueRef pointer = emit_offset(e, b, emit_i64(e, tile_offset_in_b(t, u, tile_first_column(t) + j * t->lanes)));
  if (t->spec->b_form == TFM_FORM_F32 || tile_is_integer(t)) return emit_load(e, t->vector, pointer, 4);
  if (t->spec->b_form == TFM_FORM_BF16)
    return widen_bf16(t, emit_load(e, LLVMVectorType(e->i32, t->lanes), pointer, 4), u % 2 == 0);
  return emit_widened_f16(e, emit_load(e, LLVMVectorType(e->i16, t->lanes), pointer, 2), t->lanes);
}

/* Where vector j of the columns, which may be those of two panels, lies; *of_panel: its number there. */
static LLVMValueRef panel_of_vector(const Tile *t, Position at, unsigned j, unsigned *of_panel) {
  const unsigned vectors = tile_has_two_panels(t) ? t->n / 2 : t->n;
  *of_panel = j % vectors;
  return j < vectors ? at.b : at.next;
}

static LLVMValueRef load_column(Tile *t, Position at, unsigned u, unsigned j) {
  unsigned of_panel;
  LLVMValueRef b = panel_of_vector(t, at, j, &of_panel);
  return tile_load_b(t, b, u, of_panel);
}

// ---- whole numbers ----

static LLVMValueRef in_words(Tile *t, LLVMValueRef x) {
  return LLVMBuildBitCast(t->e->builder, x, LLVMVectorType(t->e->i16, 2 * t->lanes), "");
}

/* Words of the even bytes of b, or of the odd ones. */
static LLVMValueRef words_of(Tile *t, LLVMValueRef b, bool odd) {
  LLVMBuilderRef builder = t->e->builder;
  if (t->spec->b_is_signed) {
    LLVMTypeRef words = LLVMVectorType(t->e->i16, 2 * t->lanes);
    LLVMValueRef eight = LLVMBuildBitCast(builder, tile_splat_bits(t, 0x00080008), words, "");
    b = LLVMBuildBitCast(builder, b, words, "");
    return LLVMBuildAShr(builder, odd ? b : LLVMBuildShl(builder, b, eight, ""), eight, "");
  }
  if (odd) return LLVMBuildLShr(builder, in_words(t, b), in_words(t, tile_splat_bits(t, 0x00080008)), "");
  return in_words(t, LLVMBuildAnd(builder, b, tile_splat_bits(t, 0x00ff00ff), ""));
}

static LLVMValueRef splat_of_a(Tile *t, LLVMValueRef a, unsigned row, unsigned step, int64_t more) {
  LLVMValueRef at = emit_offset(t->e, tile_offset_in_a(t, a, row, step), emit_i64(t->e, more));
  return emit_splat(t->e, emit_load(t->e, t->e->i32, at, 4), t->lanes);
}

/* Words, each the sum of two products: `weights` are unsigned bytes, x has signed ones. */
static LLVMValueRef sums_of_pairs(Tile *t, LLVMValueRef weights, LLVMValueRef x) {
  LLVMTypeRef bytes = LLVMVectorType(t->e->i8, 4 * t->lanes);
  LLVMValueRef factors[] = {LLVMBuildBitCast(t->e->builder, weights, bytes, ""),
                            LLVMBuildBitCast(t->e->builder, x, bytes, "")};
  return emit_intrinsic(t->e, t->e->target->dot_pairs, NULL, 2, factors);
}

/* The sums of the products of two neighbouring words each, in 32 bits: an instruction, or its parts. */
static LLVMValueRef dot_words(Tile *t, LLVMValueRef x, LLVMValueRef w) {
  LLVMBuilderRef builder = t->e->builder;
  const char *name = t->e->target->dot_words;
  if (name) return emit_intrinsic(t->e, name, NULL, 2, (LLVMValueRef[]){x, w});
  LLVMTypeRef wide = LLVMVectorType(t->e->i32, 2 * t->lanes);
  LLVMValueRef products =
      LLVMBuildMul(builder, LLVMBuildSExt(builder, x, wide, ""), LLVMBuildSExt(builder, w, wide, ""), "");
  LLVMValueRef places[2][LANES], sums[2];
  for (unsigned i = 0; i < t->lanes; i++)
    for (unsigned k = 0; k < 2; k++) places[k][i] = emit_i32(t->e, (int32_t)(2 * i + k));
  for (unsigned k = 0; k < 2; k++)
    sums[k] = LLVMBuildShuffleVector(builder, products, LLVMGetUndef(wide), LLVMConstVector(places[k], t->lanes), "");
  return emit_add(t->e, sums[0], sums[1]);
}

/* c + the sums of two words each, as c - their products with -1: LLVM adds several sums up before it adds them to c,
 * and there are no registers for these. */
static LLVMValueRef add_words(Tile *t, LLVMValueRef c, LLVMValueRef words) {
  LLVMValueRef factors[] = {words, in_words(t, tile_splat_bits(t, UINT32_MAX))};
  return emit_sub(t->e, c, dot_words(t, factors[0], factors[1]));
}

/* Four k of all rows, in pairs of bytes. */
static void emit_pairs(Tile *t, Position at, unsigned u) {
  LLVMValueRef line[MAX_VECTORS];
  for (unsigned j = 0; j < t->n; j++) line[j] = load_column(t, at, u, j);
  for (unsigned i = 0; i < t->spec->rows; i++) {
    LLVMValueRef x = splat_of_a(t, at.a, i, u, 0);
    for (unsigned j = 0; j < t->n; j++) {
      LLVMValueRef *c = &t->c[i * t->n + j];
      *c = add_words(t, *c, sums_of_pairs(t, line[j], x));
    }
  }
}

/* The rests of a row, which are listed behind its scale: `end` has come to the scales. Rows that were left out
 * are computed too where results are consumed (runtime/steps/step_gemm.c), for nobody: whatever lies where their list
 * would be, only the row and the panel are read. */
static void emit_rests(Tile *t, Position end, unsigned row) {
  Emitter *e = t->e;
  LLVMValueRef *c = &t->c[row * t->n], at = tile_offset_in_a(t, end.a, row, 0);
  const int64_t fours = (t->spec->k + 3) / 4, bytes = tile_offset_in_b(t, 1, 0);
  LLVMValueRef n = emit_load(e, e->i32, emit_offset(e, at, emit_i64(e, sizeof(float))), 4);
  n = emit_least(e, LLVMBuildZExt(e->builder, n, e->i64, ""), emit_i64(e, fours));
  Loop loop = loop_begin(e, emit_i64(e, 0), n, 1);
  for (unsigned j = 0; j < t->n; j++) c[j] = loop_carry(e, &loop, c[j]);
  LLVMValueRef entry = emit_add(e, emit_mul(e, loop.index, emit_i64(e, 8)), emit_i64(e, TFM_RESTS_AT));
  entry = emit_offset(e, at, entry);
  LLVMValueRef step = LLVMBuildZExt(e->builder, emit_load(e, e->i32, entry, 4), e->i64, "");
  LLVMValueRef rests = emit_load(e, e->i32, emit_offset(e, entry, emit_i64(e, sizeof(int32_t))), 4);
  LLVMValueRef from_end = emit_sub(e, emit_least(e, step, emit_i64(e, fours - 1)), emit_i64(e, fours));
  from_end = emit_mul(e, from_end, emit_i64(e, bytes));
  const Position of_step = {.b = emit_offset(e, end.b, from_end), .next = emit_offset(e, end.next, from_end)};
  for (unsigned j = 0; j < t->n; j++) {
    LLVMValueRef sums = sums_of_pairs(t, load_column(t, of_step, 0, j), emit_splat(e, rests, t->lanes));
    loop_next(&loop, j, add_words(t, c[j], sums));
  }
  loop_end(e, &loop);
  for (unsigned j = 0; j < t->n; j++) c[j] = loop.results[j];
}

/* c + the sums of the products of four neighbouring bytes each: `first` has unsigned ones unless both are signed. LLVM
 * calls the function by its types where it has forms of several lengths, and then they are bytes. */
static LLVMValueRef dot_bytes(Tile *t, LLVMValueRef c, LLVMValueRef first, LLVMValueRef second) {
  Emitter *e = t->e;
  const char *name = e->target->dot_bytes;
  LLVMValueRef factors[] = {c, first, second};
  if (!LLVMIntrinsicIsOverloaded(LLVMLookupIntrinsicID(name, strlen(name))))
    return emit_intrinsic(e, name, NULL, 3, factors);
  LLVMTypeRef bytes = LLVMVectorType(e->i8, 4 * t->lanes);
  for (int i = 1; i < 3; i++) factors[i] = LLVMBuildBitCast(e->builder, factors[i], bytes, "");
  return emit_intrinsic2(e, name, t->vector, bytes, 3, factors);
}

/* Unsigned bytes, less 128. */
static LLVMValueRef as_signed(Tile *t, LLVMValueRef bytes) {
  return LLVMBuildXor(t->e->builder, bytes, tile_splat_bits(t, 0x80808080u), "");
}

/* Line j of b for dot_bytes. Where that takes signed bytes alone, weights lose the 128 here and not in what the row
 * begins with. Of values, which are signed, numbers of rows have lost it (weigh_rows.c), and values are added. */
static LLVMValueRef line_of_bytes(Tile *t, LLVMValueRef line, unsigned j) {
  if (!t->e->target->dot_is_signed) return line;
  if (!t->spec->b_is_signed) return as_signed(t, line);
  LLVMValueRef *sum = &t->c[t->spec->rows * t->n + j];
  *sum = dot_bytes(t, *sum, tile_splat_bits(t, 0x01010101u), line);
  return line;
}

void emit_tile_values(Tile *t) {
  const LLVMValueRef *sums = &t->c[t->spec->rows * t->n];
  for (unsigned j = 0; j < t->n; j++) {
    LLVMValueRef more = LLVMBuildShl(t->e->builder, sums[j], tile_splat_bits(t, 7), "");
    for (unsigned i = 0; i < t->spec->rows; i++) t->c[i * t->n + j] = emit_add(t->e, t->c[i * t->n + j], more);
  }
}

/* Where a vector has as many words as a turn has steps, an instruction takes one of them for all its lanes: splats of
 * single words would each take the place of a product. */
void tile_hold_rows(Tile *t, LLVMValueRef a, unsigned u) {
  const unsigned rows = t->spec->rows;
  if (!tile_is_integer(t) || !t->e->target->dot_bytes || t->lanes != TILE_TURN) return;
  if (rows * t->n + rows + t->n > TILE_REGISTERS) return;
  for (unsigned i = 0; i < rows; i++) t->held[i] = emit_load(t->e, t->vector, tile_offset_in_a(t, a, i, u), 4);
}

void tile_drop_rows(Tile *t) {
  for (unsigned i = 0; i < TFM_MAX_TILE_ROWS; i++) t->held[i] = NULL;
}

/* The bytes of a row for step u, in all lanes. */
static LLVMValueRef bytes_of_row(Tile *t, LLVMValueRef a, unsigned row, unsigned u) {
  if (!t->held[row]) return splat_of_a(t, a, row, u, 0);
  LLVMValueRef places = emit_splat(t->e, emit_i32(t->e, (int32_t)(u % TILE_TURN)), t->lanes);
  return LLVMBuildShuffleVector(t->e->builder, t->held[row], LLVMGetUndef(t->vector), places, "");
}

/* Four k of a row: bytes at once where there is an instruction for it, else words. The two products of words are added
 * first, so that what a turn adds to c has one order. */
static void emit_whole_row(Tile *t, LLVMValueRef a, const LLVMValueRef *even, const LLVMValueRef *odd, unsigned i,
                           unsigned u) {
  Emitter *e = t->e;
  const TargetInfo *target = e->target;
  LLVMValueRef x = NULL, y = NULL;
  if (target->dot_bytes) {
    x = bytes_of_row(t, a, i, u);
  } else {
    x = in_words(t, splat_of_a(t, a, i, u, 0));
    y = in_words(t, splat_of_a(t, a, i, u, sizeof(int32_t)));
  }
  for (unsigned j = 0; j < t->n; j++) {
    LLVMValueRef *c = &t->c[i * t->n + j];
    if (target->dot_bytes) { /* unsigned bytes, then signed ones */
      const bool is_turned = t->spec->b_is_signed && !target->dot_is_signed;
      *c = dot_bytes(t, *c, is_turned ? x : even[j], is_turned ? even[j] : x);
      continue;
    }
    LLVMValueRef first = dot_words(t, x, even[j]);
    LLVMValueRef second = dot_words(t, y, odd[j]);
    *c = emit_add(e, *c, emit_add(e, first, second));
  }
}

static void emit_whole_step(Tile *t, Position at, unsigned u) {
  LLVMValueRef even[MAX_VECTORS], odd[MAX_VECTORS];
  if (t->spec->in_pairs) {
    emit_pairs(t, at, u);
    return;
  }
  for (unsigned j = 0; j < t->n; j++) {
    LLVMValueRef line = load_column(t, at, u, j);
    even[j] = t->e->target->dot_bytes ? line_of_bytes(t, line, j) : words_of(t, line, false);
    if (!t->e->target->dot_bytes) odd[j] = words_of(t, line, true);
  }
  for (unsigned i = 0; i < t->spec->rows; i++) emit_whole_row(t, at.a, even, odd, i, u);
}

LLVMValueRef tile_row_start(Tile *t, LLVMValueRef a, unsigned row) {
  return splat_of_a(t, a, row, 0, -(int64_t)sizeof(int32_t));
}

/* Four numbers of each column of vector j, 8 too large, of a mixed form TFM_MIXED_MORE: lower or upper halves of a
 * line. None of the sums of bytes is more than a byte. */
static LLVMValueRef numbers_of_4(Tile *t, LLVMValueRef b, unsigned u, unsigned j) {
  LLVMValueRef line = tile_load_b(t, b, u / 2, j);
  LLVMBuilderRef builder = t->e->builder;
  if (u % 2) line = LLVMBuildLShr(builder, line, tile_splat_bits(t, 4), "");
  LLVMValueRef numbers = LLVMBuildAnd(builder, line, tile_splat_bits(t, 0x0f0f0f0f), "");
  if (tile_has_words(t)) return emit_add(t->e, numbers, t->more[j]);
  return tile_is_mixed(t) ? tile_mxfp4_bytes(t, numbers) : numbers;
}

/* The same with a number of a row, of which pairs of bytes are added in words: 8 pairs are at most 8 * 2 * 15 * 127,
 * and with what the words begin with 8 * 2 * 8 * 127. Of a mixed form a pair is at most 2 * 32 * 127, and all with what
 * they begin with 8 * 2 * 16 * 127, which is what remains whatever a sum on the way to it loses. */
static void add_pairs_of_4(Tile *t, LLVMValueRef a, LLVMValueRef b, unsigned u) {
  for (unsigned j = 0; j < t->n; j++) {
    LLVMValueRef line = numbers_of_4(t, b, u, j);
    for (unsigned i = 0; i < t->spec->rows; i++) {
      LLVMValueRef *c = &t->c[i * t->n + j], sums = sums_of_pairs(t, line, splat_of_a(t, a, i, u, 0));
      *c = LLVMBuildBitCast(t->e->builder, emit_add(t->e, in_words(t, *c), sums), t->vector, "");
    }
  }
}

/* before + the sums of a group, times its numbers. Sums fit 16 bits, 32 * 8 * 127, so one instruction multiplies their
 * lower words by the numbers and their upper ones by 0; those of pairs have two words. */
static LLVMValueRef add_group(Tile *t, LLVMValueRef before, LLVMValueRef sums, LLVMValueRef factors) {
  return emit_add(t->e, before, dot_words(t, in_words(t, sums), factors));
}

/* The same in f32: the sum, as f32, times the scale of the row's group; that times the power of the column's is added,
 * for which an FMA is as good, because the product is exact; of Q4..A8 that times twice the scale, which is not. So
 * instruction sets without fused operations give the same bits. */
static LLVMValueRef add_mixed_group(Tile *t, LLVMValueRef before, LLVMValueRef sums, LLVMValueRef scale,
                                    LLVMValueRef power) {
  LLVMBuilderRef b = t->e->builder;
  LLVMTypeRef floats = LLVMVectorType(t->e->f32, t->lanes);
  if (t->spec->in_pairs) sums = dot_words(t, in_words(t, sums), in_words(t, tile_splat_bits(t, 0x00010001)));
  LLVMValueRef scaled = LLVMBuildFMul(b, LLVMBuildSIToFP(b, sums, floats, ""), scale, "");
  before = LLVMBuildBitCast(b, before, floats, "");
  LLVMValueRef c = tile_has_words(t) ? LLVMBuildFAdd(b, before, LLVMBuildFMul(b, scaled, power, ""), "")
                                     : emit_fma(t->e, scaled, power, before);
  return LLVMBuildBitCast(b, c, t->vector, "");
}

/* The scale of a row's group, in all lanes. */
static LLVMValueRef scale_of_group(Tile *t, LLVMValueRef a, unsigned row) {
  LLVMValueRef at = emit_offset(t->e, tile_offset_in_a(t, a, row, 0), emit_i64(t->e, -2 * (int64_t)sizeof(float)));
  return emit_splat(t->e, emit_load(t->e, t->e->f32, at, 4), t->lanes);
}

void emit_tile_group(Tile *t, LLVMValueRef a, LLVMValueRef b, const LLVMValueRef *factors) {
  const unsigned n_c = t->spec->rows * t->n;
  LLVMValueRef before[MAX_VECTORS], even[MAX_VECTORS], odd[MAX_VECTORS];
  for (unsigned i = 0; i < n_c; i++) {
    before[i] = t->c[i];
    t->c[i] = i % t->n ? t->c[i - 1] : tile_row_start(t, a, i / t->n);
  }
  for (unsigned u = 0; u < TFM_GROUP / 4; u++) {
    if (t->spec->in_pairs) {
      add_pairs_of_4(t, a, b, u);
      continue;
    }
    if (u % TILE_TURN == 0) tile_hold_rows(t, a, u);
    for (unsigned j = 0; j < t->n; j++) {
      LLVMValueRef line = numbers_of_4(t, b, u, j);
      even[j] = t->e->target->dot_bytes ? line : words_of(t, line, false);
      odd[j] = t->e->target->dot_bytes ? NULL : words_of(t, line, true);
    }
    for (unsigned i = 0; i < t->spec->rows; i++) emit_whole_row(t, a, even, odd, i, u);
  }
  tile_drop_rows(t);
  for (unsigned i = 0; i < n_c; i++) {
    LLVMValueRef factor = factors[i % t->n];
    t->c[i] = tile_is_mixed(t) ? add_mixed_group(t, before[i], t->c[i], scale_of_group(t, a, i / t->n), factor)
                               : add_group(t, before[i], t->c[i], factor);
  }
}

/* The numbers of the next group in the lower words, 0 in the upper ones; for pairs in both. */
LLVMValueRef tile_factors(Tile *t, LLVMValueRef numbers) {
  LLVMBuilderRef b = t->e->builder;
  LLVMValueRef lowest = LLVMBuildShl(b, numbers, tile_splat_bits(t, 24), "");
  LLVMValueRef number = LLVMBuildAShr(b, lowest, tile_splat_bits(t, 24), "");
  number = LLVMBuildAnd(b, number, tile_splat_bits(t, 0xffff), "");
  if (t->spec->in_pairs) number = LLVMBuildOr(b, number, LLVMBuildShl(b, number, tile_splat_bits(t, 16), ""), "");
  return in_words(t, number);
}

static LLVMValueRef scale_of_column(Tile *t, Position end, unsigned j) {
  unsigned of_panel;
  LLVMValueRef scales = panel_of_vector(t, end, j, &of_panel);
  const int64_t column = tile_first_column(t) + (int64_t)of_panel * t->lanes;
  return emit_offset(t->e, scales, emit_i64(t->e, column * (int64_t)sizeof(float)));
}

void emit_tile_scaling(Tile *t, Position end) {
  Emitter *e = t->e;
  LLVMTypeRef floats = LLVMVectorType(e->f32, t->lanes);
  LLVMValueRef sums[MAX_VECTORS], scales[MAX_VECTORS], before[MAX_VECTORS];
  LLVMBasicBlockRef from = LLVMGetInsertBlock(e->builder), scale = emit_block(e, "scale"),
                    done = emit_block(e, "scaled");
  for (unsigned i = 0; i < t->spec->rows * t->n; i++) before[i] = t->c[i];
  LLVMValueRef more = LLVMBuildAnd(e->builder, t->args[ARG_ACCUMULATE], emit_i64(e, TFM_MORE_FOLLOW), "");
  emit_branch(e, emit_icmp(e, LLVMIntEQ, more, emit_i64(e, 0)), scale, done);
  emit_at(e, scale);
  for (unsigned i = 0; i < t->spec->rows && t->spec->in_pairs && !tile_is_grouped(t); i++) emit_rests(t, end, i);
  for (unsigned j = 0; j < t->n && !t->spec->b_is_signed; j++)
    scales[j] = emit_load(e, floats, scale_of_column(t, end, j), 4);
  for (unsigned i = 0; i < t->spec->rows; i++) {
    LLVMValueRef of_row = emit_splat(e, emit_load(e, e->f32, tile_offset_in_a(t, end.a, i, 0), 4), t->lanes);
    for (unsigned j = 0; j < t->n; j++) {
      LLVMValueRef y = LLVMBuildSIToFP(e->builder, t->c[i * t->n + j], floats, "");
      y = LLVMBuildFMul(e->builder, y, of_row, "");
      if (!t->spec->b_is_signed) y = LLVMBuildFMul(e->builder, y, scales[j], "");
      if (t->spec->factor != 0)
        y = LLVMBuildFMul(e->builder, y, emit_splat(e, emit_f32(e, (double)t->spec->factor), t->lanes), "");
      sums[i * t->n + j] = LLVMBuildBitCast(e->builder, y, t->vector, "");
    }
  }
  scale = LLVMGetInsertBlock(e->builder);
  emit_jump(e, done);
  emit_at(e, done);
  for (unsigned i = 0; i < t->spec->rows * t->n; i++) {
    LLVMValueRef phi = LLVMBuildPhi(e->builder, t->vector, "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){before[i], sums[i]}, (LLVMBasicBlockRef[]){from, scale}, 2);
    t->c[i] = phi;
  }
}

// ---- a step ----

static LLVMValueRef element_of_a(Tile *t, LLVMValueRef a, unsigned row, unsigned u) {
  return emit_splat(t->e, emit_load(t->e, t->e->f32, tile_offset_in_a(t, a, row, u), 4), t->lanes);
}

void emit_wide_steps(Tile *t, Position at, unsigned u, unsigned steps) {
  LLVMValueRef elements[TFM_MAX_TILE_ROWS][2], of_b[2];
  for (unsigned i = 0; i < t->spec->rows; i++)
    for (unsigned s = 0; s < steps; s++) elements[i][s] = element_of_a(t, at.a, i, u + s);
  for (unsigned j = 0; j < t->n; j++) {
    for (unsigned s = 0; s < steps; s++) of_b[s] = load_column(t, at, u + s, j); /* of bf16 two lie together */
    for (unsigned i = 0; i < t->spec->rows; i++)
      for (unsigned s = 0; s < steps; s++)
        t->c[i * t->n + j] = emit_fma(t->e, elements[i][s], of_b[s], t->c[i * t->n + j]);
  }
}

void emit_tile_step(Tile *t, Position at, unsigned u) {
  Emitter *e = t->e;
  if (tile_is_integer(t)) {
    emit_whole_step(t, at, u);
    return;
  }
  LLVMValueRef line[MAX_VECTORS];
  for (unsigned j = 0; j < t->n; j++) line[j] = tile_load_b(t, at.b, u, j);
  for (unsigned i = 0; i < t->spec->rows; i++) {
    LLVMValueRef element = element_of_a(t, at.a, i, u), counts = NULL;
    if (t->spec->exact_zero)
      counts = LLVMBuildFCmp(e->builder, LLVMRealUNE, element, LLVMConstNull(t->vector), "");
    for (unsigned j = 0; j < t->n; j++)
      t->c[i * t->n + j] = step(t, element, line[j], t->c[i * t->n + j], counts);
  }
}
