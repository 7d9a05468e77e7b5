/* QUANTIZE for mixed forms: rows in groups of 32, each rounded by itself, as it is.
 *
 * In: a row of whole groups. Out: code that makes the numbers of each group, and before them their sum and their scale
 * (tfm/abi/kernels.h). Four groups are made together, so that a division serves all of them; what is left, one by one.
 * Refuses nothing: a group that is not finite gets the scale NaN. See quantize_rows.h. */
#include "codegen/vector.h"
#include "forms/whole_rows.h"
#include "kernels/quantize_rows.h"
#include "tfm/abi/form_mxfp4a8.h"

enum { VECTORS = TFM_GROUP / LANES };

typedef struct Groups {
  unsigned n;                                /* GROUPS_TOGETHER or 1 */
  LLVMValueRef x[GROUPS_TOGETHER][VECTORS];
  LLVMValueRef factors[GROUPS_TOGETHER], scales[GROUPS_TOGETHER];
} Groups;

static LLVMTypeRef vector_of(LLVMTypeRef element, unsigned n) { return n == 1 ? element : LLVMVectorType(element, n); }

static LLVMValueRef greater(Quantize *q, LLVMValueRef a, LLVMValueRef b) {
  return emit_intrinsic(q->e, "llvm.smax", LLVMTypeOf(a), 2, (LLVMValueRef[]){a, b});
}

/* Lanes of a and then of b, those that are listed. */
static LLVMValueRef lanes_of(Quantize *q, LLVMValueRef a, LLVMValueRef b, const uint8_t *list, unsigned n) {
  LLVMValueRef places[LANES];
  for (unsigned i = 0; i < n; i++) places[i] = emit_i32(q->e, list[i]);
  return LLVMBuildShuffleVector(q->e->builder, a, b, LLVMConstVector(places, n), "");
}

/* Of 16 lanes four, each the greatest of four. */
static LLVMValueRef greatest_four(Quantize *q, LLVMValueRef x) {
  static const uint8_t first[] = {0, 1, 2, 3, 4, 5, 6, 7}, second[] = {8, 9, 10, 11, 12, 13, 14, 15};
  x = greater(q, lanes_of(q, x, x, first, 8), lanes_of(q, x, x, second, 8));
  return greater(q, lanes_of(q, x, x, first, 4), lanes_of(q, x, x, first + 4, 4));
}

/* Of four times four lanes, the greatest of each four in a lane. */
static LLVMValueRef greatest_of_each(Quantize *q, LLVMValueRef *of) {
  static const uint8_t even[] = {0, 4, 1, 5}, odd[] = {2, 6, 3, 7}, low[] = {0, 1, 4, 5}, high[] = {2, 3, 6, 7};
  LLVMValueRef pairs[2];
  for (unsigned i = 0; i < 2; i++, of += 2)
    pairs[i] = greater(q, lanes_of(q, of[0], of[1], even, 4), lanes_of(q, of[0], of[1], odd, 4));
  return greater(q, lanes_of(q, pairs[0], pairs[1], low, 4), lanes_of(q, pairs[0], pairs[1], high, 4));
}

/* Bits of the greatest magnitude of each group, a lane each. */
static LLVMValueRef load_groups(Quantize *q, Groups *groups, LLVMValueRef index) {
  Emitter *e = q->e;
  LLVMValueRef greatest[GROUPS_TOGETHER];
  for (unsigned g = 0; g < groups->n; g++)
    for (unsigned i = 0; i < VECTORS; i++) {
      LLVMValueRef at = emit_add(e, index, emit_i64(e, g * TFM_GROUP + i * LANES));
      LLVMValueRef *x = &groups->x[g][i];
      *x = emit_load(e, LLVMVectorType(e->f32, LANES), quantize_float_at(q, q->args[ARG_X], at), 4);
      greatest[g] = i ? greater(q, greatest[g], quantize_magnitude(q, *x)) : quantize_magnitude(q, *x);
    }
  if (groups->n == 1)
    return emit_intrinsic(e, "llvm.vector.reduce.smax", LLVMTypeOf(greatest[0]), 1, greatest);
  for (unsigned g = 0; g < GROUPS_TOGETHER; g++) greatest[g] = greatest_four(q, greatest[g]);
  return greatest_of_each(q, greatest);
}

static LLVMValueRef all(Quantize *q, const Groups *groups, LLVMValueRef value) {
  return groups->n == 1 ? value : emit_splat(q->e, value, groups->n);
}

/* Where no number of a group is worth it the factor is 0; where one is not finite whatever the numbers are is
 * multiplied by NaN. */
static void find_scales(Quantize *q, Groups *groups, LLVMValueRef bits) {
  Emitter *e = q->e;
  LLVMBuilderRef b = e->builder;
  LLVMValueRef none = all(q, groups, emit_f32(e, 0)), nan = all(q, groups, emit_f32(e, (double)NAN));
  LLVMValueRef finite = emit_icmp(e, LLVMIntSLT, bits, all(q, groups, emit_i32(e, INFINITE_BITS)));
  LLVMValueRef large = emit_icmp(e, LLVMIntSGE, bits, all(q, groups, emit_i32(e, LEAST_BITS)));
  large = LLVMBuildAnd(b, finite, large, "");
  LLVMValueRef most = LLVMBuildBitCast(b, bits, vector_of(e->f32, groups->n), "");
  LLVMValueRef factor = LLVMBuildFDiv(b, all(q, groups, emit_f32(e, WHOLE_MOST)), most, "");
  LLVMValueRef scale = LLVMBuildFDiv(b, most, all(q, groups, emit_f32(e, TFM_MXFP4A8_TOP)), "");
  factor = emit_select(e, large, factor, none);
  scale = emit_select(e, finite, emit_select(e, large, scale, none), nan);
  for (unsigned g = 0; g < groups->n; g++) {
    groups->factors[g] = groups->n == 1 ? factor : LLVMBuildExtractElement(b, factor, emit_i32(e, (int32_t)g), "");
    groups->scales[g] = groups->n == 1 ? scale : LLVMBuildExtractElement(b, scale, emit_i32(e, (int32_t)g), "");
  }
}

/* Returns where the numbers of the next group are. */
static LLVMValueRef store_group(Quantize *q, const Groups *groups, unsigned g, LLVMValueRef to) {
  Emitter *e = q->e;
  LLVMValueRef sums = NULL;
  for (unsigned i = 0; i < VECTORS; i++) {
    LLVMValueRef place = emit_offset(e, to, emit_i64(e, i * LANES * q->bytes));
    LLVMValueRef whole = quantize_rounded(q, groups->factors[g], groups->x[g][i], place);
    sums = i ? emit_add(e, sums, whole) : whole;
  }
  quantize_store_group_start(q, sums, to);
  emit_store(e, groups->scales[g], emit_offset(e, to, emit_i64(e, -2 * (int64_t)sizeof(float))), 4);
  return emit_offset(e, to, emit_i64(e, tfm_row_bytes(TFM_FORM_MXFP4A8, (uint8_t)q->bytes, TFM_GROUP)));
}

/* Groups from `begin` on, n at a time. */
static LLVMValueRef emit_groups_of(Quantize *q, unsigned n, int64_t begin, int64_t end, LLVMValueRef to) {
  Emitter *e = q->e;
  Groups groups = {.n = n};
  Loop loop = loop_begin(e, emit_i64(e, begin), emit_i64(e, end), n * TFM_GROUP);
  LLVMValueRef at = loop_carry(e, &loop, to);
  find_scales(q, &groups, load_groups(q, &groups, loop.index));
  for (unsigned g = 0; g < n; g++) at = store_group(q, &groups, g, at);
  loop_next(&loop, 0, at);
  loop_end(e, &loop);
  return loop.results[0];
}

void quantize_groups(Quantize *q) {
  const int64_t whole = q->k / (GROUPS_TOGETHER * TFM_GROUP) * (GROUPS_TOGETHER * TFM_GROUP);
  LLVMValueRef to = q->args[ARG_NUMBERS];
  if (whole) to = emit_groups_of(q, GROUPS_TOGETHER, 0, whole, to);
  if (whole < q->k) emit_groups_of(q, 1, whole, q->k, to);
}
