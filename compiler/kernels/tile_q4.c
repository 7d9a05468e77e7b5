/* In: 32 steps of a group of a panel in Q4 (tfm/abi/form_q4.h), its word, and the steps of k of a that it is
 * multiplied with. Out: code that adds their products to c. See tile.h.
 *
 * With v = d s, the whole number times the scale, v + 2^r v less 2^r v is v rounded to 24 - r bits. d s + 2^r d s is
 * one product, of d and s + 2^r s, which has at most 24 bits; the other is exact, and so is the difference. So it is
 * two operations, an FMA the second, and where there is none its product is exact all the same. That a sum with the
 * largest power would round the same way, also of two equally near numbers: v has at most 16 bits, so 2^r v is an even
 * multiple of the last bit of the sum. For rows of 8 bits numbers are bytes, and the word says what is added to these
 * and what their sum is multiplied with. Refuses nothing. */
#include "tfm/abi/form_q4.h"

#include "codegen/vector.h"
#include "kernels/tile.h"

typedef struct Numbers {
  LLVMValueRef start;        /* -z */
  LLVMValueRef both, larger; /* s + 2^r s, and -2^r s */
} Numbers;

static LLVMTypeRef floats_of(Tile *t) { return LLVMVectorType(t->e->f32, t->lanes); }

static LLVMValueRef scale_of(Tile *t, LLVMValueRef word) {
  LLVMValueRef bits = LLVMBuildAnd(t->e->builder, word, tile_splat_bits(t, TFM_Q4_SCALE), "");
  return LLVMBuildBitCast(t->e->builder, bits, floats_of(t), "");
}

/* -2^r: r becomes an exponent. */
static LLVMValueRef power_of(Tile *t, LLVMValueRef word) {
  LLVMBuilderRef b = t->e->builder;
  LLVMValueRef r = LLVMBuildShl(b, word, tile_splat_bits(t, 23 - TFM_Q4_SHIFT), "");
  r = LLVMBuildAnd(b, r, tile_splat_bits(t, 31u << 23), "");
  LLVMValueRef bits = emit_add(t->e, r, tile_splat_bits(t, 0x80000000u + (127u << 23)));
  return LLVMBuildBitCast(b, bits, floats_of(t), "");
}

static Numbers numbers_of(Tile *t, LLVMValueRef word) {
  LLVMBuilderRef b = t->e->builder;
  LLVMValueRef more = LLVMBuildAnd(b, word, tile_splat_bits(t, TFM_Q4_ZEROS), ""), scale = scale_of(t, word);
  Numbers numbers = {.larger = LLVMBuildFMul(b, scale, power_of(t, word), "")};
  numbers.start = LLVMBuildSIToFP(b, emit_sub(t->e, more, tile_splat_bits(t, TFM_Q4_ZERO)), floats_of(t), "");
  numbers.both = LLVMBuildFSub(b, scale, numbers.larger, "");
  return numbers;
}

/* Number `step` of the eight of a line, as f32 from 0 to 15: a look-up goes by the lowest bits. */
static LLVMValueRef code_of(Tile *t, LLVMValueRef line, unsigned step) {
  Emitter *e = t->e;
  const unsigned place = step % 4 * 8 + step / 4 * 4;
  LLVMValueRef all[LANES];
  if (place) line = LLVMBuildLShr(e->builder, line, tile_splat_bits(t, place), "");
  if (!e->target->look_up || t->lanes != LANES) {
    LLVMValueRef code = LLVMBuildAnd(e->builder, line, tile_splat_bits(t, 15), "");
    return LLVMBuildSIToFP(e->builder, code, floats_of(t), "");
  }
  for (int code = 0; code < LANES; code++) all[code] = emit_f32(e, code);
  return emit_intrinsic(e, e->target->look_up, NULL, 2, (LLVMValueRef[]){LLVMConstVector(all, LANES), line});
}

static LLVMValueRef number_of(Tile *t, const Numbers *numbers, LLVMValueRef code) {
  LLVMValueRef steps = LLVMBuildFAdd(t->e->builder, code, numbers->start, "");
  return emit_fma(t->e, steps, numbers->larger, LLVMBuildFMul(t->e->builder, steps, numbers->both, ""));
}

void emit_tile_group_q4(Tile *t, LLVMValueRef a, LLVMValueRef b, const LLVMValueRef *words) {
  Numbers numbers[MAX_VECTORS];
  LLVMValueRef line[MAX_VECTORS];
  for (unsigned j = 0; j < t->n; j++) numbers[j] = numbers_of(t, words[j]);
  for (unsigned u = 0; u < TFM_GROUP; u++) {
    LLVMValueRef w[MAX_VECTORS];
    for (unsigned j = 0; j < t->n; j++) {
      if (u % 8 == 0) line[j] = tile_load_words(t, b, u / 8, j);
      w[j] = number_of(t, &numbers[j], code_of(t, line[j], u % 8));
    }
    for (unsigned i = 0; i < t->spec->rows; i++) {
      LLVMValueRef x = emit_splat(t->e, emit_load(t->e, t->e->f32, tile_offset_in_a(t, a, i, u), 4), t->lanes);
      for (unsigned j = 0; j < t->n; j++) t->c[i * t->n + j] = emit_fma(t->e, x, w[j], t->c[i * t->n + j]);
    }
  }
}

LLVMValueRef tile_q4_more(Tile *t, LLVMValueRef word) {
  LLVMBuilderRef b = t->e->builder;
  LLVMValueRef more = LLVMBuildAnd(b, word, tile_splat_bits(t, TFM_Q4_ZEROS), "");
  return LLVMBuildMul(b, more, tile_splat_bits(t, 0x01010101u), "");
}

LLVMValueRef tile_q4_factor(Tile *t, LLVMValueRef word) {
  LLVMValueRef scale = scale_of(t, word);
  return LLVMBuildFAdd(t->e->builder, scale, scale, "");
}
