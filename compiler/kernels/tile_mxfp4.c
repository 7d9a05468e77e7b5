/* In: a group of a panel in MXFP4 (tfm/abi/form_mxfp4.h), and the steps of k of a that it is multiplied with. Out: code
 * that adds their products to c. See tile.h.
 *
 * A word has eight numbers of a column. Where the target looks up 16 lanes by lowest bits, a shift and a look-up make
 * f32 of one; else its bits become the exponent and the upper bit of the mantissa of one. The power of the group is
 * multiplied with sums, not with numbers, which is a sixteenth of the work. For rows of 8 bits a number becomes a byte
 * by a look-up of bytes, or by a few sums. Refuses nothing. */
#include "codegen/vector.h"
#include "kernels/tile.h"
#include "tfm/abi/form_mxfp4a8.h"

/* All 16 numbers of 4 bits, one a lane. */
static LLVMValueRef all_numbers(Tile *t) {
  LLVMValueRef numbers[LANES];
  for (int code = 0; code < LANES; code++) numbers[code] = emit_f32(t->e, (double)tfm_mxfp4_number(code));
  return LLVMConstVector(numbers, LANES);
}

/* From 1 on a code, moved up to the mantissa, is an f32 whose exponent is 126 too small. */
static LLVMValueRef number_of_bits(Tile *t, LLVMValueRef code) {
  LLVMBuilderRef builder = t->e->builder;
  LLVMValueRef sign = LLVMBuildAnd(builder, code, tile_splat_bits(t, 8), "");
  sign = LLVMBuildShl(builder, sign, tile_splat_bits(t, 28), "");
  LLVMValueRef magnitude = LLVMBuildAnd(builder, code, tile_splat_bits(t, 7), "");
  LLVMValueRef one = LLVMBuildICmp(builder, LLVMIntEQ, magnitude, tile_splat_bits(t, 1), "");
  LLVMValueRef none = LLVMBuildICmp(builder, LLVMIntEQ, magnitude, tile_splat_bits(t, 0), "");
  LLVMValueRef bits = LLVMBuildAdd(builder, LLVMBuildShl(builder, magnitude, tile_splat_bits(t, 22), ""),
                                   tile_splat_bits(t, 126u << 23), "");
  bits = LLVMBuildSelect(builder, one, tile_splat_bits(t, 0x3f000000), bits, ""); /* 0.5 */
  bits = LLVMBuildSelect(builder, none, tile_splat_bits(t, 0), bits, "");
  return LLVMBuildBitCast(builder, LLVMBuildOr(builder, bits, sign, ""), t->vector, "");
}

static LLVMValueRef number_in(Tile *t, LLVMValueRef word, unsigned place) {
  if (place) word = LLVMBuildLShr(t->e->builder, word, tile_splat_bits(t, 4 * place), "");
  if (!t->e->target->look_up || t->lanes != LANES) return number_of_bits(t, word);
  return emit_intrinsic(t->e, t->e->target->look_up, NULL, 2, (LLVMValueRef[]){all_numbers(t), word});
}

/* sums += x times the numbers of step u. */
static void add_step(Tile *t, LLVMValueRef a, const LLVMValueRef *words, unsigned u, LLVMValueRef *sums) {
  LLVMValueRef numbers[MAX_VECTORS];
  for (unsigned j = 0; j < t->n; j++) numbers[j] = number_in(t, words[j], u % 8);
  for (unsigned i = 0; i < t->spec->rows; i++) {
    LLVMValueRef x = emit_load(t->e, t->e->f32, tile_offset_in_a(t, a, i, u), 4);
    x = emit_splat(t->e, x, t->lanes);
    for (unsigned j = 0; j < t->n; j++) sums[i * t->n + j] = emit_fma(t->e, x, numbers[j], sums[i * t->n + j]);
  }
}

/* Of four bytes for each lane all are `value`. */
static LLVMValueRef all_bytes(Tile *t, unsigned value) {
  LLVMTypeRef bytes = LLVMVectorType(t->e->i8, 4 * t->lanes);
  return LLVMBuildBitCast(t->e->builder, tile_splat_bits(t, 0x01010101u * value), bytes, "");
}

/* From 5 on a code is less than twice its magnitude: 5, 6 and 7 stand for 6, 8 and 12. */
static LLVMValueRef bytes_by_sums(Tile *t, LLVMValueRef codes) {
  LLVMBuilderRef b = t->e->builder;
  LLVMValueRef magnitude = LLVMBuildAnd(b, codes, all_bytes(t, 7), "");
  LLVMValueRef most[] = {magnitude, all_bytes(t, 4)};
  LLVMValueRef more = LLVMBuildSub(b, emit_intrinsic(t->e, "llvm.umax", LLVMTypeOf(codes), 2, most), most[1], "");
  LLVMValueRef is_greatest = LLVMBuildICmp(b, LLVMIntEQ, magnitude, all_bytes(t, 7), "");
  LLVMValueRef twice = LLVMBuildAdd(b, magnitude, LLVMBuildSelect(b, is_greatest, all_bytes(t, 5), more, ""), "");
  LLVMValueRef is_negative = LLVMBuildICmp(b, LLVMIntUGT, codes, all_bytes(t, 7), "");
  LLVMValueRef below = LLVMBuildSub(b, all_bytes(t, TFM_MIXED_MORE), twice, "");
  LLVMValueRef above = LLVMBuildAdd(b, twice, all_bytes(t, TFM_MIXED_MORE), "");
  return LLVMBuildSelect(b, is_negative, below, above, "");
}

LLVMValueRef tile_mxfp4_bytes(Tile *t, LLVMValueRef codes) {
  Emitter *e = t->e;
  LLVMValueRef table[4 * LANES]; /* a look-up takes a table of 16 bytes for each 16 of a register */
  codes = LLVMBuildBitCast(e->builder, codes, LLVMVectorType(e->i8, 4 * t->lanes), "");
  for (unsigned i = 0; i < 4 * t->lanes; i++) {
    const int twice = (int)(2 * tfm_mxfp4_number((int)(i % 16)));
    table[i] = LLVMConstInt(e->i8, (unsigned)(TFM_MIXED_MORE + twice), false);
  }
  LLVMValueRef both[] = {LLVMConstVector(table, 4 * t->lanes), codes};
  const char *looks_up = e->target->look_up_bytes;
  LLVMValueRef bytes = looks_up ? emit_intrinsic(e, looks_up, NULL, 2, both) : bytes_by_sums(t, codes);
  return LLVMBuildBitCast(e->builder, bytes, t->vector, "");
}

/* A byte is the exponent of an f32, but for 0: 2^-127 has a mantissa only. */
LLVMValueRef tile_powers(Tile *t, LLVMValueRef bytes) {
  LLVMBuilderRef builder = t->e->builder;
  LLVMValueRef byte = LLVMBuildAnd(builder, bytes, tile_splat_bits(t, 0xff), "");
  LLVMValueRef least = LLVMBuildICmp(builder, LLVMIntEQ, byte, tile_splat_bits(t, 0), "");
  LLVMValueRef power = LLVMBuildShl(builder, byte, tile_splat_bits(t, 23), "");
  power = LLVMBuildSelect(builder, least, tile_splat_bits(t, 1u << 22), power, "");
  return LLVMBuildBitCast(builder, power, LLVMVectorType(t->e->f32, t->lanes), "");
}

void emit_tile_group_mxfp4(Tile *t, LLVMValueRef a, LLVMValueRef b, const LLVMValueRef *factors) {
  const unsigned n_c = t->spec->rows * t->n;
  LLVMValueRef sums[MAX_VECTORS], words[MAX_VECTORS];
  for (unsigned begin = 0; begin < TFM_GROUP; begin += TFM_MXFP4_CHAIN) {
    for (unsigned i = 0; i < n_c; i++) sums[i] = LLVMConstNull(t->vector);
    for (unsigned u = begin; u < begin + TFM_MXFP4_CHAIN; u++) {
      for (unsigned j = 0; j < t->n && u % 8 == 0; j++) words[j] = tile_load_words(t, b, u / 8, j);
      add_step(t, a, words, u, sums);
    }
    for (unsigned i = 0; i < n_c; i++) t->c[i] = emit_fma(t->e, sums[i], factors[i % t->n], t->c[i]);
  }
}
