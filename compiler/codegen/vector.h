/* Vectors: Lanes is a bundle of vectors of 16 lanes that are computed side by side, so that the latency of one is
 * hidden behind the others. e->n_vectors of them are in use.
 *
 * In: bundles of f32, i32 or bool (i1). Out: one instruction per vector of the bundle. There are 16 lanes on every
 * target: LLVM splits them where registers are shorter, so the numbers are the same everywhere. Lanes are plain values
 * of the compiler; members beyond n_vectors may be NULL. Refuses nothing. */
#ifndef TFM_CODEGEN_VECTOR_H
#define TFM_CODEGEN_VECTOR_H

#include "codegen/emitter.h"

enum { LANES = 16, LANES_MAX_VECTORS = 8 };

typedef struct Lanes {
  LLVMValueRef v[LANES_MAX_VECTORS];
} Lanes;

typedef LLVMValueRef (*BuildUnary)(LLVMBuilderRef, LLVMValueRef, const char *);
typedef LLVMValueRef (*BuildBinary)(LLVMBuilderRef, LLVMValueRef, LLVMValueRef, const char *);

LLVMTypeRef lanes_type(LLVMTypeRef element); /* <16 x element> */
/* `n` times the same scalar in a vector: constants stay constants. */
LLVMValueRef emit_splat(Emitter *e, LLVMValueRef scalar, unsigned n);
LLVMValueRef emit_ramp(Emitter *e, unsigned n); /* <n x i32> 0 1 2 ... */
/* a * b + c of vectors or scalars: one rounding where the target has FMA, else two. This is the only operation
 * whose bits
 * depend on the target, and the reason why the x86-64 baseline agrees within tolerance only. */
LLVMValueRef emit_fma(Emitter *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
/* f32 of n numbers of 16 bits, given as i16. */
LLVMValueRef emit_widened_bf16(Emitter *e, LLVMValueRef halves, unsigned n);
LLVMValueRef emit_widened_f16(Emitter *e, LLVMValueRef halves, unsigned n);
/* Transposes a square: lane i of rows[j] and lane j of rows[i] change places. `n` is 4, 8 or 16. */
void emit_transposed(Emitter *e, unsigned n, LLVMValueRef *rows);
/* Four vectors, of which each quarter of 4 lanes is a square: lane i of a quarter of r[j] and lane j of that of r[i]
 * change places. */
void emit_transposed_quarters(Emitter *e, unsigned n, LLVMValueRef *r);
/* `n_parts` vectors, a power of two, one behind the other in one of n lanes. */
LLVMValueRef emit_joined(Emitter *e, unsigned n, const LLVMValueRef *parts, unsigned n_parts);

Lanes lanes_same(LLVMValueRef vector);       /* the same vector in every place */
Lanes lanes_number(Emitter *e, double number);
Lanes lanes_bits(Emitter *e, uint32_t bits); /* i32 */
Lanes lanes_splat(Emitter *e, LLVMValueRef scalar);

Lanes lanes_unary(Emitter *e, BuildUnary build, Lanes a);
Lanes lanes_binary(Emitter *e, BuildBinary build, Lanes a, Lanes b);
Lanes lanes_intrinsic(Emitter *e, const char *name, Lanes a);

Lanes lanes_add(Emitter *e, Lanes a, Lanes b); /* f32, as sub, mul, div, fma */
Lanes lanes_sub(Emitter *e, Lanes a, Lanes b);
Lanes lanes_mul(Emitter *e, Lanes a, Lanes b);
Lanes lanes_div(Emitter *e, Lanes a, Lanes b);
Lanes lanes_fma(Emitter *e, Lanes a, Lanes b, Lanes c);
Lanes lanes_neg(Emitter *e, Lanes a);
Lanes lanes_abs(Emitter *e, Lanes a);
Lanes lanes_sqrt(Emitter *e, Lanes a);
Lanes lanes_compare(Emitter *e, LLVMRealPredicate predicate, Lanes a, Lanes b);
Lanes lanes_icompare(Emitter *e, LLVMIntPredicate predicate, Lanes a, Lanes b);
Lanes lanes_select(Emitter *e, Lanes condition, Lanes yes, Lanes no);
Lanes lanes_as_i32(Emitter *e, Lanes a); /* the same bits */
Lanes lanes_as_f32(Emitter *e, Lanes a);
Lanes lanes_with_sign(Emitter *e, Lanes a, Lanes b); /* |a| with the sign of b */
Lanes lanes_convert(Emitter *e, LLVMOpcode opcode, Lanes a, LLVMTypeRef element);
/* All vectors of `n` bundles, at most 14, are there before what is emitted behind takes one of them: LLVM would mix
 * stores of neighbours with operations that come before them. Nothing where a vector is not one register of an x86. */
void lanes_await(Emitter *e, Lanes *const *bundles, unsigned n);
/* Code for what few lanes need: between begin and end, and run only if any lane of `mask` is set. Behind its end each
 * value that it changed is met, before anything else is emitted: `usual` came in, `rare` from the code in between. */
typedef struct RareLanes {
  LLVMBasicBlockRef before, end, after;
} RareLanes;
RareLanes lanes_rare_begin(Emitter *e, Lanes mask);
void lanes_rare_end(Emitter *e, RareLanes *branch);
Lanes lanes_rare_meet(Emitter *e, const RareLanes *branch, Lanes usual, Lanes rare);
/* The integer nearest to a * factor, of less than 2^22; also as i32 in `*whole`. NaN gives NaN and any integer. */
Lanes lanes_round(Emitter *e, Lanes a, double factor, Lanes *whole);
Lanes lanes_round_product(Emitter *e, Lanes a, Lanes b, Lanes *whole); /* a * b, the same */
/* a * 2^n with one rounding, for a in [0.5, 2] and n in [-200, 200], given as f32 and as i32. */
Lanes lanes_scale(Emitter *e, Lanes a, Lanes n, Lanes whole);
/* The same for n in [-126, 127]; elsewhere any number, or NaN if a is. */
Lanes lanes_scale_normal(Emitter *e, Lanes a, Lanes n, Lanes whole);
/* The lesser of |a| and `bound`; NaN gives NaN or the bound. */
Lanes lanes_least_magnitude(Emitter *e, Lanes a, double bound);
/* 1 / a with the bits of a division, for a in [2^-126, 2^126]; elsewhere any number. */
Lanes lanes_reciprocal(Emitter *e, Lanes a);

#endif
