/* QUANTIZE: rows of f32 as rows of whole numbers, which tiles of form INT8 read (tfm/abi/kernels.h).
 *
 * In: rows and room for them; the number of columns is a constant of the code. Out: the numbers, the sum that tiles
 * begin with, the scale. Each operation is one of forms/rotate.h and forms/whole_rows.h, rounded by itself, so all
 * targets give the same bits. Refuses nothing: a row that is not finite gets zeros and the scale NaN.
 *
 *   rotate:  up to 16 numbers a distance apart are taken together, as vectors of neighbours; the stages are sums and
 *            differences of registers, and the greatest magnitude is found on the way, among bits: those of infinity
 *            and NaN are greater than all others
 *   round:   x factor + 1.5 2^23 has the nearest whole number in its low bits
 *   split:   for tiles that multiply pairs of bytes (abi/kernels.h), numbers whose sum is too large leave a rest, which
 *            is listed behind the row: one pair in fifty where numbers are about normal
 *
 * For panels of form INT4 each group of TFM_GROUP numbers has its own sum before it, or, for pairs, its own two. Of
 * mixed forms each group is rounded by itself (quantize_groups.c). */
#include "kernels/quantize_rows.h"

#include "codegen/vector.h"
#include "forms/rotate.h"
#include "forms/whole_rows.h"
#include "kernels/emit.h"
#include "tfm/abi/kernels.h"

enum { MOST_POINTS = 1 << ROTATE_STAGES };

static LLVMTypeRef wide(LLVMTypeRef element, unsigned n) { return n == 1 ? element : LLVMVectorType(element, n); }

// ---- rotation ----

/* The first stage within a vector: to each half the other is added, from the upper one it is taken. */
static LLVMValueRef rotate_halves(Quantize *q, LLVMValueRef x) {
  LLVMBuilderRef b = q->e->builder;
  LLVMValueRef order[LANES], signs[LANES];
  for (unsigned i = 0; i < q->width; i++) {
    order[i] = emit_i32(q->e, (int32_t)(i ^ q->width / 2));
    signs[i] = emit_i32(q->e, i < q->width / 2 ? 0 : INT32_MIN);
  }
  LLVMValueRef other = LLVMBuildShuffleVector(b, x, x, LLVMConstVector(order, q->width), "");
  LLVMValueRef bits = LLVMBuildXor(b, LLVMBuildBitCast(b, x, q->bits, ""), LLVMConstVector(signs, q->width), "");
  return LLVMBuildFAdd(b, other, LLVMBuildBitCast(b, bits, q->floats, ""), "");
}

static void rotate_points(Quantize *q, LLVMValueRef *x, unsigned n) {
  LLVMBuilderRef b = q->e->builder;
  for (unsigned i = 0; q->is_paired && i < n; i++) x[i] = rotate_halves(q, x[i]);
  for (unsigned apart = 1; apart < n; apart *= 2)
    for (unsigned i = 0; i < n; i++) {
      if (i & apart) continue;
      LLVMValueRef sum = LLVMBuildFAdd(b, x[i], x[i + apart], "");
      x[i + apart] = LLVMBuildFSub(b, x[i], x[i + apart], "");
      x[i] = sum;
    }
}

/* The first of the points of turn `t`: turns go through the neighbours, then through the periods. */
static LLVMValueRef first_point(Quantize *q, LLVMValueRef t) {
  Emitter *e = q->e;
  LLVMValueRef neighbour = LLVMBuildAnd(e->builder, t, emit_i64(e, q->distance - 1), "");
  LLVMValueRef before = emit_mul(e, emit_sub(e, t, neighbour), emit_i64(e, q->points));
  return emit_add(e, before, neighbour);
}

/* Fills `work` and returns the bits of the greatest magnitude, i32. */
static LLVMValueRef emit_rotation(Quantize *q) {
  Emitter *e = q->e;
  const unsigned halves = q->is_paired ? 2 : 1, n = q->points / halves;
  Loop loop = loop_begin(e, emit_i64(e, 0), emit_i64(e, q->k / q->points), q->width / halves);
  LLVMValueRef greatest = loop_carry(e, &loop, LLVMConstNull(q->bits)), x[MOST_POINTS];
  LLVMValueRef first = first_point(q, loop.index);
  for (unsigned i = 0; i < n; i++) {
    LLVMValueRef at = emit_add(e, first, emit_i64(e, i * q->distance * halves));
    x[i] = emit_load(e, q->floats, quantize_float_at(q, q->args[ARG_X], at), 4);
  }
  rotate_points(q, x, n);
  for (unsigned i = 0; i < n; i++) {
    LLVMValueRef at = emit_add(e, first, emit_i64(e, i * q->distance * halves));
    emit_store(e, x[i], quantize_float_at(q, q->args[ARG_WORK], at), 4);
    greatest = emit_intrinsic(e, "llvm.smax", q->bits, 2, (LLVMValueRef[]){greatest, quantize_magnitude(q, x[i])});
  }
  loop_next(&loop, 0, greatest);
  loop_end(e, &loop);
  if (q->width == 1) return loop.results[0];
  return emit_intrinsic(e, "llvm.vector.reduce.smax", q->bits, 1, &loop.results[0]);
}

/* The same for a short row that is not rotated: nothing goes through memory. */
static LLVMValueRef emit_held(Quantize *q) {
  Emitter *e = q->e;
  LLVMValueRef greatest = NULL;
  for (unsigned i = 0; i < q->n_held; i++) {
    LLVMValueRef from = quantize_float_at(q, q->args[ARG_X], emit_i64(e, (int64_t)i * LANES));
    q->held[i] = emit_load(e, q->floats, from, 4);
    LLVMValueRef bits = quantize_magnitude(q, q->held[i]);
    greatest = i ? emit_intrinsic(e, "llvm.smax", q->bits, 2, (LLVMValueRef[]){greatest, bits}) : bits;
  }
  return emit_intrinsic(e, "llvm.vector.reduce.smax", q->bits, 1, &greatest);
}

// ---- rounding ----

static LLVMValueRef worked(Quantize *q, LLVMValueRef index) {
  return emit_load(q->e, lanes_type(q->e->f32), quantize_float_at(q, q->args[ARG_WORK], index), 4);
}

static void emit_held_rounding(Quantize *q, LLVMValueRef factor) {
  Emitter *e = q->e;
  LLVMValueRef sums = LLVMConstNull(lanes_type(e->i32));
  for (unsigned i = 0; i < q->n_held; i++) {
    LLVMValueRef to = quantize_number_at(q, emit_i64(e, (int64_t)i * LANES));
    sums = emit_add(e, sums, quantize_rounded(q, factor, q->held[i], to));
  }
  quantize_store_start(q, sums, q->padded, q->args[ARG_NUMBERS]);
}

static void emit_rounding(Quantize *q, LLVMValueRef factor) {
  Emitter *e = q->e;
  Loop loop = loop_begin(e, emit_i64(e, 0), emit_i64(e, q->padded), LANES);
  LLVMValueRef sums = loop_carry(e, &loop, LLVMConstNull(lanes_type(e->i32)));
  LLVMValueRef whole = quantize_rounded(q, factor, worked(q, loop.index), quantize_number_at(q, loop.index));
  loop_next(&loop, 0, emit_add(e, sums, whole));
  loop_end(e, &loop);
  quantize_store_start(q, loop.results[0], q->padded, q->args[ARG_NUMBERS]);
}

// ---- pairs whose sum is too large ----

/* From the first number to where the scale stands, in whole vectors. */
static int64_t row_bytes(const Quantize *q) {
  if (!q->is_grouped) return (q->k + 3) / 4 * 4 * q->bytes;
  return tfm_row_bytes(TFM_FORM_INT4, (uint8_t)q->bytes, q->k) - (int64_t)sizeof(int32_t);
}

static void store_n_rests(Quantize *q, LLVMValueRef n) {
  LLVMValueRef at = emit_offset(q->e, q->args[ARG_NUMBERS], emit_i64(q->e, row_bytes(q) + (int64_t)sizeof(float)));
  emit_store(q->e, LLVMBuildTrunc(q->e->builder, n, q->e->i32, ""), at, 1);
}

/* By how much sums of pairs are beyond -128 .. 128, in each pair's first byte. A byte of a weight is at most 255, so
 * 128 255 fits a word, and a pair whose numbers have different signs always does. */
static LLVMValueRef rests_of(Quantize *q, LLVMValueRef bytes) {
  Emitter *e = q->e;
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef type = LLVMVectorType(e->i16, LANES / 2);
#define WORDS(value) emit_splat(e, LLVMConstInt(e->i16, (unsigned long long)(value), true), LANES / 2)
  LLVMValueRef words = LLVMBuildBitCast(b, bytes, type, "");
  LLVMValueRef first = LLVMBuildAShr(b, LLVMBuildShl(b, words, WORDS(8), ""), WORDS(8), "");
  LLVMValueRef sum = emit_add(e, first, LLVMBuildAShr(b, words, WORDS(8), ""));
  LLVMValueRef most = emit_intrinsic(e, "llvm.smin", type, 2, (LLVMValueRef[]){sum, WORDS(128)});
  LLVMValueRef within = emit_intrinsic(e, "llvm.smax", type, 2, (LLVMValueRef[]){most, WORDS(-128)});
  LLVMValueRef rests = LLVMBuildAnd(b, emit_sub(e, sum, within), WORDS(255), "");
#undef WORDS
  return LLVMBuildBitCast(b, rests, lanes_type(e->i8), "");
}

/* Lists the fours that have rests from entry n on: all are written, the next over one that has none. Returns how many
 * there are then. */
static LLVMValueRef list_rests(Quantize *q, LLVMValueRef rests, LLVMValueRef index, LLVMValueRef n) {
  Emitter *e = q->e;
  LLVMBuilderRef b = e->builder;
  LLVMValueRef fours = LLVMBuildBitCast(b, rests, LLVMVectorType(e->i32, LANES / 4), "");
  LLVMValueRef list = emit_offset(e, q->args[ARG_NUMBERS], emit_i64(e, row_bytes(q) + TFM_RESTS_AT));
  LLVMValueRef first = LLVMBuildTrunc(b, LLVMBuildLShr(b, index, emit_i64(e, 2), ""), e->i32, "");
  for (unsigned i = 0; i < LANES / 4; i++) {
    LLVMValueRef four = LLVMBuildExtractElement(b, fours, emit_i32(e, i), "");
    LLVMValueRef at = emit_offset(e, list, emit_mul(e, n, emit_i64(e, 8)));
    emit_store(e, emit_add(e, first, emit_i32(e, i)), at, 1);
    emit_store(e, four, emit_offset(e, at, emit_i64(e, 4)), 1);
    n = emit_add(e, n, LLVMBuildZExt(b, emit_icmp(e, LLVMIntNE, four, emit_i32(e, 0)), e->i64, ""));
  }
  return n;
}

/* The same if any has. */
static LLVMValueRef list_any_rests(Quantize *q, LLVMValueRef rests, LLVMValueRef index, LLVMValueRef n) {
  Emitter *e = q->e;
  LLVMBasicBlockRef from[] = {LLVMGetInsertBlock(e->builder), emit_block(e, "rests")}, after = emit_block(e, "listed");
  LLVMTypeRef all = LLVMIntTypeInContext(e->context, LANES * 8);
  LLVMValueRef any = LLVMBuildBitCast(e->builder, rests, all, "");
  emit_branch(e, emit_icmp(e, LLVMIntNE, any, LLVMConstNull(all)), from[1], after);
  emit_at(e, from[1]);
  LLVMValueRef ways[] = {n, list_rests(q, rests, index, n)};
  emit_jump(e, after);
  emit_at(e, after);
  LLVMValueRef phi = LLVMBuildPhi(e->builder, e->i64, "");
  LLVMAddIncoming(phi, ways, from, 2);
  return phi;
}

static void emit_split_rounding(Quantize *q, LLVMValueRef factor) {
  Emitter *e = q->e;
  Loop loop = loop_begin(e, emit_i64(e, 0), emit_i64(e, q->padded), LANES);
  LLVMValueRef sums = loop_carry(e, &loop, LLVMConstNull(lanes_type(e->i32)));
  LLVMValueRef n = loop_carry(e, &loop, emit_i64(e, 0));
  LLVMValueRef whole = quantize_round_lanes(q, factor, worked(q, loop.index)), bytes = quantize_narrowed(q, whole);
  LLVMValueRef rests = rests_of(q, bytes);
  emit_store(e, emit_sub(e, bytes, rests), quantize_number_at(q, loop.index), 1);
  loop_next(&loop, 0, emit_add(e, sums, whole));
  loop_next(&loop, 1, list_any_rests(q, rests, loop.index, n));
  loop_end(e, &loop);
  quantize_store_start(q, loop.results[0], q->padded, q->args[ARG_NUMBERS]);
  store_n_rests(q, loop.results[1]);
}

// ---- rows ----

static void emit_groups(Quantize *q, LLVMValueRef factor) {
  Emitter *e = q->e;
  Loop loop = loop_begin(e, emit_i64(e, 0), emit_i64(e, q->k), TFM_GROUP);
  LLVMValueRef to = loop_carry(e, &loop, q->args[ARG_NUMBERS]), sums = LLVMConstNull(lanes_type(e->i32));
  for (int64_t i = 0; i < TFM_GROUP; i += LANES) {
    LLVMValueRef index = emit_add(e, loop.index, emit_i64(e, i));
    LLVMValueRef place = emit_offset(e, to, emit_i64(e, i * q->bytes));
    sums = emit_add(e, sums, quantize_rounded(q, factor, worked(q, index), place));
  }
  quantize_store_group_start(q, sums, to);
  loop_next(&loop, 0,
            emit_offset(e, to, emit_i64(e, tfm_row_bytes(TFM_FORM_INT4, (uint8_t)q->bytes, TFM_GROUP))));
  loop_end(e, &loop);
}

static void emit_zeros(Quantize *q) {
  Emitter *e = q->e;
  Loop loop = loop_begin(e, emit_i64(e, 0), emit_i64(e, row_bytes(q)), LANES);
  emit_store(e, LLVMConstNull(lanes_type(e->i8)), emit_offset(e, q->args[ARG_NUMBERS], loop.index), 1);
  loop_end(e, &loop);
  quantize_store_start(q, NULL, 0, q->args[ARG_NUMBERS]);
  if (q->in_pairs && !q->is_grouped) store_n_rests(q, emit_i64(e, 0));
}

/* The numbers behind the last column are written before the scale, which may stand among them. */
static void store_scale(Quantize *q, LLVMValueRef scale) {
  emit_store(q->e, scale, emit_offset(q->e, q->args[ARG_NUMBERS], emit_i64(q->e, row_bytes(q))), 4);
}

static void emit_body(Quantize *q) {
  Emitter *e = q->e;
  LLVMBuilderRef b = e->builder;
  for (int64_t i = q->k; i < q->padded; i++)
    emit_store(e, emit_f32(e, 0), quantize_float_at(q, q->args[ARG_WORK], emit_i64(e, i)), 4);
  LLVMValueRef bits = (q->n_held ? emit_held : emit_rotation)(q);
  LLVMValueRef finite = emit_icmp(e, LLVMIntSLT, bits, emit_i32(e, INFINITE_BITS));
  LLVMValueRef large = emit_icmp(e, LLVMIntSGE, bits, emit_i32(e, LEAST_BITS));
  LLVMBasicBlockRef ordinary = emit_block(e, "ordinary"), empty = emit_block(e, "empty"), done = emit_block(e, "done");
  emit_branch(e, LLVMBuildAnd(b, finite, large, ""), ordinary, empty);
  emit_at(e, ordinary);
  LLVMValueRef greatest = LLVMBuildBitCast(b, bits, e->f32, ""), most = emit_f32(e, WHOLE_MOST);
  (q->is_grouped ? emit_groups
   : q->in_pairs ? emit_split_rounding
   : q->n_held   ? emit_held_rounding
                 : emit_rounding)(q, LLVMBuildFDiv(b, most, greatest, ""));
  store_scale(q, LLVMBuildFDiv(b, greatest, most, ""));
  emit_jump(e, done);
  emit_at(e, empty);
  emit_zeros(q);
  store_scale(q, emit_select(e, finite, emit_f32(e, 0), emit_f32(e, (double)NAN)));
  emit_jump(e, done);
  emit_at(e, done);
}

void emit_QUANTIZE(Emitter *e, const KernelSpec *spec, const char *name) {
  const int64_t period = rotate_period(spec->k);
  Quantize q = {.e = e, .k = spec->k, .padded = (spec->k + LANES - 1) / LANES * LANES};
  q.bytes = e->target->dot_bytes || spec->as_bytes || spec->in_pairs ? 1 : 2;
  q.in_pairs = spec->in_pairs;
  q.points = !spec->is_rotated ? 1 : period < MOST_POINTS ? (unsigned)period : MOST_POINTS;
  q.is_grouped = spec->is_grouped;
  q.is_mixed = spec->is_mixed;
  q.has_start = !spec->as_bytes;
  q.distance = period / q.points;
  q.width = q.distance < e->target->vector_floats ? (unsigned)q.distance : e->target->vector_floats;
  if (!spec->is_rotated && !spec->is_mixed && !spec->in_pairs && spec->k % LANES == 0 && spec->k <= ROW_HELD * LANES) {
    q.n_held = (unsigned)(spec->k / LANES);
    q.width = LANES;
  }
  if (spec->is_mixed) q.width = LANES;
  q.is_paired = q.points == MOST_POINTS && 2 * q.distance == e->target->vector_floats;
  if (q.is_paired) q.width *= 2;
  q.floats = wide(e->f32, q.width);
  q.bits = wide(e->i32, q.width);
  LLVMValueRef function = emit_kernel(e, KERNEL_QUANTIZE, name);
  for (unsigned i = 0; i < N_ARGS; i++) q.args[i] = LLVMGetParam(function, i);
  emit_parameter_noalias(e, ARG_X), emit_parameter_readonly(e, ARG_X);
  emit_parameter_noalias(e, ARG_WORK);
  emit_parameter_noalias(e, ARG_NUMBERS);
  LLVMValueRef x = q.args[ARG_X], numbers = q.args[ARG_NUMBERS];
  Loop rows = loop_begin(e, emit_i64(e, 0), q.args[ARG_ROWS], 1);
  q.args[ARG_X] = emit_offset(e, x, emit_mul(e, rows.index, q.args[ARG_X_STRIDE]));
  q.args[ARG_NUMBERS] = emit_offset(e, numbers, emit_mul(e, rows.index, q.args[ARG_STRIDE]));
  (q.is_mixed ? quantize_groups : emit_body)(&q);
  loop_end(e, &rows);
  LLVMBuildRetVoid(e->builder);
}
