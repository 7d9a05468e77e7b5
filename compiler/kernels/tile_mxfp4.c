/* In: a group of a panel in MXFP4 (tfm/abi/form_mxfp4.h), and the steps of k of a that it is multiplied with. Out: code
 * that adds their products to c. See tile.h.
 *
 * A word has eight numbers of a column. Where the target looks up 16 lanes by lowest bits, a shift and a look-up make
 * f32 of one; else its bits become the exponent and the upper bit of the mantissa of one. The power of the group is
 * multiplied with sums, not with numbers, which is a sixteenth of the work. Refuses nothing. */
#include "codegen/vector.h"
#include "kernels/tile.h"
#include "tfm/abi/form_mxfp4.h"

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

/* A byte is the exponent of an f32, but for 0: 2^-127 has a mantissa only. */
LLVMValueRef tile_powers(Tile *t, LLVMValueRef bytes) {
  LLVMBuilderRef builder = t->e->builder;
  LLVMValueRef byte = LLVMBuildAnd(builder, bytes, tile_splat_bits(t, 0xff), "");
  LLVMValueRef least = LLVMBuildICmp(builder, LLVMIntEQ, byte, tile_splat_bits(t, 0), "");
  LLVMValueRef power = LLVMBuildShl(builder, byte, tile_splat_bits(t, 23), "");
  power = LLVMBuildSelect(builder, least, tile_splat_bits(t, 1u << 22), power, "");
  return LLVMBuildBitCast(builder, power, t->vector, "");
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
