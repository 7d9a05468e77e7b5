/* TILE: c[rows x width] (+)= a[rows x k] b[k x width], all of c in registers.
 *
 * In: rows, width, the distances of the rows of a and b and of the steps of a, and the form of b, all constants of the
 * code. Out: a tfm_tile_kernel. Numbers of 16 bits are widened as they are loaded, which is exact, and everything else
 * is f32. Every element is one chain of FMAs with k ascending from 0, or from what c holds, whatever the tile: the bits
 * do not depend on which tile of the target computes an element. Refuses nothing; a shape that does not fit in
 * registers is an error of targets.def and is checked.
 *
 *   start:  c from memory if `accumulate`, else 0
 *   steps:  four k per turn, of bf16 whole pairs. B is loaded as vectors, a as broadcast scalars. B is prefetched into
 * L1 eight steps ahead (unless it is a page of a cache, behind which something else lies), and `next` into L2: one line
 *           per step of k, the same one again where fewer are asked for, more before the turn where more are
 *   rest:   k % 4, one per turn; of bf16 a pair, then the half of one
 *   groups: instead of both, of INT4: a group of 32 k per turn, its sum and then that times its number
 *   finish: whole rows, or (unless is_whole) `columns` of them under masks, where there are none by way of the stack
 *
 * Four steps per turn hide the loop's own instructions behind the FMAs; a block of k is 768 long (TFM_K_BLOCK), so
 * that the piece of a panel that tiles take turns on stays in L2 (docs/performance.md). */
#include "base/check.h"
#include "codegen/emitter.h"
#include "codegen/vector.h"
#include "kernels/emit.h"
#include "kernels/matrix_tile.h"

enum { MAX_VECTORS = 32, UNROLL = 4, AHEAD = 8 };
_Static_assert(TFM_PREFETCH_LINES % UNROLL == 0, "lines that are fetched together");

enum { ARG_A, ARG_B, ARG_C, ARG_C_STRIDE, ARG_K, ARG_ACCUMULATE, ARG_COLUMNS, ARG_NEXT, ARG_NEXT_LINES, N_ARGS };

typedef struct Tile {
  Emitter *e;
  const KernelSpec *spec;
  unsigned lanes;    /* floats of a vector */
  unsigned first, n; /* the vectors of a row that are computed together */
  LLVMTypeRef vector; /* of c: f32, or i32 while whole numbers are added */
  LLVMValueRef args[N_ARGS];
  LLVMValueRef steps;                             /* along k: of form INT8 four k each */
  LLVMValueRef next_offset[UNROLL], next_advance; /* of the lines that are prefetched from `next` on */
  LLVMValueRef stack;          /* rows x width, where there are no masks */
  LLVMValueRef c[MAX_VECTORS]; /* row by row */
} Tile;

static int64_t first_column(const Tile *t) { return (int64_t)t->first * t->lanes; }
static int64_t end_column(const Tile *t) { return (int64_t)(t->first + t->n) * t->lanes; }

static LLVMValueRef float_offset(Tile *t, LLVMValueRef pointer, int64_t floats) {
  return emit_offset(t->e, pointer, emit_i64(t->e, floats * 4));
}

/* Rows of a lie side by side: then `next` are the results of the next tile, whose rows are asked for one in a turn. */
static bool is_sideways(const KernelSpec *spec) { return spec->a_step > 1; }
static bool is_whole_numbers(const Tile *t) { return t->spec->b_form >= TFM_FORM_INT8; }
static bool is_grouped(const Tile *t) { return t->spec->b_form == TFM_FORM_INT4; }

/* The bytes from `a` to what row `row` has for step `step`. */
static LLVMValueRef offset_in_a(Tile *t, LLVMValueRef a, int64_t row, int64_t step) {
  const int64_t step_bytes = is_whole_numbers(t) && !t->e->target->dot_bytes ? 8 : 4;
  const int64_t steps = t->spec->a_step ? t->spec->a_step * step : step;
  return emit_offset(t->e, a, emit_i64(t->e, row * t->spec->a_stride * 4 + steps * step_bytes));
}

// ---- the steps along k ----

/* An exact tile skips the addition where a is 0: 0 * NaN and 0 * inf are NaN, but a probability of 0 must contribute
 * 0. With a finite b both ways give the same bits, except for the sign of a zero sum. */
static LLVMValueRef step(Tile *t, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c, LLVMValueRef counts) {
  LLVMValueRef sum = emit_fma(t->e, a, b, c);
  return counts ? emit_select(t->e, counts, sum, c) : sum;
}

/* The bytes from b to column `column` of its row `row`; of bf16, to the pair that the row is in. */
static int64_t offset_in_b(const Tile *t, int64_t row, int64_t column) {
  if (t->spec->b_form == TFM_FORM_BF16) return (row / 2 * t->spec->b_stride + column) * 4;
  return (row * t->spec->b_stride + column) * (t->spec->b_form == TFM_FORM_F16 ? 2 : 4);
}

static LLVMValueRef splat_bits(Tile *t, uint32_t bits) {
  return emit_splat(t->e, LLVMConstInt(t->e->i32, bits, false), t->lanes);
}

/* A bf16 is the upper half of its f32: the lower one of the pair is moved up, or cut off. */
static LLVMValueRef widen_bf16(Tile *t, LLVMValueRef pairs, bool is_upper) {
  LLVMBuilderRef builder = t->e->builder;
  LLVMValueRef bits = is_upper ? LLVMBuildAnd(builder, pairs, splat_bits(t, 0xffff0000u), "")
                               : LLVMBuildShl(builder, pairs, splat_bits(t, 16), "");
  return LLVMBuildBitCast(builder, bits, t->vector, "");
}

static LLVMValueRef load_b(Tile *t, LLVMValueRef b, unsigned u, unsigned j) {
  Emitter *e = t->e;
  LLVMValueRef pointer = emit_offset(e, b, emit_i64(e, offset_in_b(t, u, first_column(t) + j * t->lanes)));
  if (t->spec->b_form == TFM_FORM_F32 || is_whole_numbers(t)) return emit_load(e, t->vector, pointer, 4);
  if (t->spec->b_form == TFM_FORM_BF16)
    return widen_bf16(t, emit_load(e, LLVMVectorType(e->i32, t->lanes), pointer, 4), u % 2 == 0);
  return emit_widened_f16(e, emit_load(e, LLVMVectorType(e->i16, t->lanes), pointer, 2), t->lanes);
}

// ---- whole numbers ----

/* Words of the even bytes of b, or of the odd ones. */
static LLVMValueRef words_of(Tile *t, LLVMValueRef b, bool odd) {
  LLVMBuilderRef builder = t->e->builder;
  if (t->spec->b_is_signed) {
    LLVMTypeRef words = LLVMVectorType(t->e->i16, 2 * t->lanes);
    LLVMValueRef eight = LLVMBuildBitCast(builder, splat_bits(t, 0x00080008), words, "");
    b = LLVMBuildBitCast(builder, b, words, "");
    return LLVMBuildAShr(builder, odd ? b : LLVMBuildShl(builder, b, eight, ""), eight, "");
  }
  if (odd) b = LLVMBuildLShr(builder, b, splat_bits(t, 8), "");
  b = LLVMBuildAnd(builder, b, splat_bits(t, 0x00ff00ff), "");
  return LLVMBuildBitCast(builder, b, LLVMVectorType(t->e->i16, 2 * t->lanes), "");
}

static LLVMValueRef splat_of_a(Tile *t, LLVMValueRef a, unsigned row, unsigned step, int64_t more) {
  LLVMValueRef at = emit_offset(t->e, offset_in_a(t, a, row, step), emit_i64(t->e, more));
  return emit_splat(t->e, emit_load(t->e, t->e->i32, at, 4), t->lanes);
}

/* Four k of a row: bytes at once where there is an instruction for it, else words. The two products of words are added
 * first, so that what a turn adds to c has one order. */
static void emit_whole_row(Tile *t, LLVMValueRef a, const LLVMValueRef *even, const LLVMValueRef *odd, unsigned i,
                           unsigned u) {
  Emitter *e = t->e;
  const TargetInfo *target = e->target;
  LLVMTypeRef words = LLVMVectorType(e->i16, 2 * t->lanes);
  LLVMValueRef x = splat_of_a(t, a, i, u, 0), y = NULL;
  if (!target->dot_bytes) {
    x = LLVMBuildBitCast(e->builder, x, words, "");
    y = LLVMBuildBitCast(e->builder, splat_of_a(t, a, i, u, sizeof(int32_t)), words, "");
  }
  for (unsigned j = 0; j < t->n; j++) {
    LLVMValueRef *c = &t->c[i * t->n + j];
    if (target->dot_bytes) { /* unsigned bytes, then signed ones */
      const bool turned = t->spec->b_is_signed;
      LLVMValueRef factors[] = {*c, turned ? x : even[j], turned ? even[j] : x};
      *c = emit_intrinsic(e, target->dot_bytes, NULL, 3, factors);
      continue;
    }
    LLVMValueRef first = emit_intrinsic(e, target->dot_words, NULL, 2, (LLVMValueRef[]){x, even[j]});
    LLVMValueRef second = emit_intrinsic(e, target->dot_words, NULL, 2, (LLVMValueRef[]){y, odd[j]});
    *c = emit_add(e, *c, emit_add(e, first, second));
  }
}

static void emit_whole_step(Tile *t, LLVMValueRef a, LLVMValueRef b, unsigned u) {
  LLVMValueRef even[MAX_VECTORS], odd[MAX_VECTORS];
  for (unsigned j = 0; j < t->n; j++) {
    LLVMValueRef line = load_b(t, b, u, j);
    even[j] = t->e->target->dot_bytes ? line : words_of(t, line, false);
    odd[j] = t->e->target->dot_bytes ? NULL : words_of(t, line, true);
  }
  for (unsigned i = 0; i < t->spec->rows; i++) emit_whole_row(t, a, even, odd, i, u);
}

/* Weights are stored 128 too large, those of a group 8: each row or group begins with what takes that off again. */
static LLVMValueRef start_of_row(Tile *t, LLVMValueRef a, unsigned row) {
  return splat_of_a(t, a, row, 0, -(int64_t)sizeof(int32_t));
}

/* Four numbers of each column, 8 too large: the lower or the upper halves of a line. */
static LLVMValueRef numbers_of_4(Tile *t, LLVMValueRef line, bool is_upper) {
  LLVMBuilderRef builder = t->e->builder;
  if (is_upper) line = LLVMBuildLShr(builder, line, splat_bits(t, 4), "");
  return LLVMBuildAnd(builder, line, splat_bits(t, 0x0f0f0f0f), "");
}

/* c += the sums of a group, times its numbers. Sums fit 16 bits, 32 8 127, so one instruction multiplies their lower
 * words by the numbers and their upper ones by 0. */
static void emit_group(Tile *t, LLVMValueRef a, LLVMValueRef b, const LLVMValueRef *factors) {
  Emitter *e = t->e;
  const unsigned n_c = t->spec->rows * t->n;
  LLVMValueRef before[MAX_VECTORS], even[MAX_VECTORS], odd[MAX_VECTORS];
  LLVMTypeRef words = LLVMVectorType(e->i16, 2 * t->lanes);
  for (unsigned i = 0; i < n_c; i++) {
    before[i] = t->c[i];
    t->c[i] = i % t->n ? t->c[i - 1] : start_of_row(t, a, i / t->n);
  }
  for (unsigned u = 0; u < TFM_GROUP / 4; u++) {
    for (unsigned j = 0; j < t->n; j++) {
      LLVMValueRef line = numbers_of_4(t, load_b(t, b, u / 2, j), u % 2);
      even[j] = t->e->target->dot_bytes ? line : words_of(t, line, false);
      odd[j] = t->e->target->dot_bytes ? NULL : words_of(t, line, true);
    }
    for (unsigned i = 0; i < t->spec->rows; i++) emit_whole_row(t, a, even, odd, i, u);
  }
  for (unsigned i = 0; i < n_c; i++) {
    LLVMValueRef sums = LLVMBuildBitCast(e->builder, t->c[i], words, "");
    LLVMValueRef product = emit_intrinsic(e, e->target->dot_words, NULL, 2, (LLVMValueRef[]){sums, factors[i % t->n]});
    t->c[i] = emit_add(e, before[i], product);
  }
}

/* The numbers of the next group in the lower words, 0 in the upper ones. */
static LLVMValueRef factors_of(Tile *t, LLVMValueRef numbers) {
  LLVMBuilderRef b = t->e->builder;
  LLVMValueRef number = LLVMBuildAShr(b, LLVMBuildShl(b, numbers, splat_bits(t, 24), ""), splat_bits(t, 24), "");
  number = LLVMBuildAnd(b, number, splat_bits(t, 0xffff), "");
  return LLVMBuildBitCast(b, number, LLVMVectorType(t->e->i16, 2 * t->lanes), "");
}

/* After the last call for c: sums, times the scale of the row, times that of the column, times the factor, as bits in
 * c. `a` and `b` have come to the scales. */
static void emit_scaling(Tile *t, LLVMValueRef a, LLVMValueRef b) {
  Emitter *e = t->e;
  LLVMTypeRef floats = LLVMVectorType(e->f32, t->lanes);
  LLVMValueRef sums[MAX_VECTORS], scales[MAX_VECTORS];
  LLVMBasicBlockRef from = LLVMGetInsertBlock(e->builder), scale = emit_block(e, "scale"),
                    done = emit_block(e, "scaled");
  LLVMValueRef more = LLVMBuildAnd(e->builder, t->args[ARG_ACCUMULATE], emit_i64(e, 2), "");
  emit_branch(e, emit_icmp(e, LLVMIntEQ, more, emit_i64(e, 0)), scale, done);
  emit_at(e, scale);
  for (unsigned j = 0; j < t->n && !t->spec->b_is_signed; j++)
    scales[j] = emit_load(e, floats, emit_offset(e, b, emit_i64(e, (first_column(t) + j * t->lanes) * 4)), 4);
  for (unsigned i = 0; i < t->spec->rows; i++) {
    LLVMValueRef of_row = emit_splat(e, emit_load(e, e->f32, offset_in_a(t, a, i, 0), 4), t->lanes);
    for (unsigned j = 0; j < t->n; j++) {
      LLVMValueRef y = LLVMBuildSIToFP(e->builder, t->c[i * t->n + j], floats, "");
      y = LLVMBuildFMul(e->builder, y, of_row, "");
      if (!t->spec->b_is_signed) y = LLVMBuildFMul(e->builder, y, scales[j], "");
      if (t->spec->factor != 0)
        y = LLVMBuildFMul(e->builder, y, emit_splat(e, emit_f32(e, (double)t->spec->factor), t->lanes), "");
      sums[i * t->n + j] = LLVMBuildBitCast(e->builder, y, t->vector, "");
    }
  }
  emit_jump(e, done);
  emit_at(e, done);
  for (unsigned i = 0; i < t->spec->rows * t->n; i++) {
    LLVMValueRef phi = LLVMBuildPhi(e->builder, t->vector, "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){t->c[i], sums[i]}, (LLVMBasicBlockRef[]){from, scale}, 2);
    t->c[i] = phi;
  }
}

// ---- turns ----

/* c += a[., k] b[k, .] for the k that `a` and `b` point to, `u` steps further. */
static void emit_step(Tile *t, LLVMValueRef a, LLVMValueRef b, unsigned u) {
  Emitter *e = t->e;
  if (is_whole_numbers(t)) {
    emit_whole_step(t, a, b, u);
    return;
  }
  LLVMValueRef line[MAX_VECTORS];
  for (unsigned j = 0; j < t->n; j++) line[j] = load_b(t, b, u, j);
  for (unsigned i = 0; i < t->spec->rows; i++) {
    LLVMValueRef scalar = emit_load(e, e->f32, offset_in_a(t, a, i, u), 4);
    LLVMValueRef element = emit_splat(e, scalar, t->lanes), counts = NULL;
    if (t->spec->exact_zero)
      counts = LLVMBuildFCmp(e->builder, LLVMRealUNE, element, LLVMConstNull(t->vector), "");
    for (unsigned j = 0; j < t->n; j++)
      t->c[i * t->n + j] = step(t, element, line[j], t->c[i * t->n + j], counts);
  }
}

/* How far along k the pointers have come. */
typedef struct Position {
  LLVMValueRef a, b, next;
} Position;

/* Eight steps ahead is far enough for L2 to answer and near enough that lines stay in L1 until they are used. A
 * prefetch of an address beyond the panel does no harm. */
static void emit_prefetches(Tile *t, Position at, unsigned u) {
  const int64_t line = t->e->target->cache_line / (t->spec->b_form == TFM_FORM_F16 ? 2 : 4);
  const bool is_fetched = t->spec->b_is_page || is_whole_numbers(t) || /* the CPU does it in time */
                          (t->spec->b_form == TFM_FORM_BF16 && u % 2); /* with its pair */
  for (int64_t column = first_column(t); column < end_column(t) && !is_fetched; column += line)
    emit_prefetch(t->e, emit_offset(t->e, at.b, emit_i64(t->e, offset_in_b(t, u + AHEAD, column))), 3);
  if (t->first == 0 && !is_sideways(t->spec)) emit_prefetch(t->e, emit_offset(t->e, at.next, t->next_offset[u]), 2);
  if (t->first || !is_sideways(t->spec)) return;
  const int64_t at_line = u * t->e->target->cache_line;
  emit_prefetch(t->e, offset_in_a(t, at.a, 0, u + AHEAD), 3);
  if (at_line < t->spec->width * 4) emit_prefetch(t->e, emit_offset(t->e, at.next, emit_i64(t->e, at_line)), 3);
}

/* From turn to turn; where a is read sideways, from row to row of the results. */
static LLVMValueRef advance_of_next(Tile *t, LLVMValueRef k) {
  Emitter *e = t->e;
  if (!is_sideways(t->spec)) return t->next_advance;
  LLVMValueRef goes_on = emit_icmp(e, LLVMIntSLT, k, emit_i64(e, UNROLL * (t->spec->rows - 1)));
  return emit_select(e, goes_on, emit_mul(e, t->args[ARG_C_STRIDE], emit_i64(e, 4)), emit_i64(e, 0));
}

/* The offsets of the lines that a turn fetches: line u, or the last one that is asked for. */
static void prepare_prefetches(Tile *t) {
  Emitter *e = t->e;
  LLVMValueRef line = emit_i64(e, e->target->cache_line), lines = t->args[ARG_NEXT_LINES];
  LLVMValueRef none = emit_icmp(e, LLVMIntEQ, lines, emit_i64(e, 0));
  LLVMValueRef last = emit_select(e, none, emit_i64(e, 0), emit_sub(e, lines, emit_i64(e, 1)));
  for (unsigned u = 0; u < UNROLL; u++) t->next_offset[u] = emit_mul(e, emit_least(e, emit_i64(e, u), last), line);
  t->next_advance = emit_mul(e, lines, line);
}

/* Tiles of attention read few lines in all, so fetching ahead of them gains nothing. */
static bool asks_for_more(const KernelSpec *spec) { return !spec->exact_zero && !spec->b_is_page && spec->a_step <= 1; }

/* The lines that one per step of k leaves out. The runtime asks for them where few rows use the weights, because then
 * reading the weights takes all of the time. Elsewhere the lines are near already, and fetching them again would cost
 * some. */
static void emit_more_prefetches(Tile *t, LLVMValueRef next) {
  Emitter *e = t->e;
  LLVMBasicBlockRef done = emit_block(e, "fetched");
  for (unsigned first = UNROLL; first < TFM_PREFETCH_LINES; first += UNROLL) {
    LLVMBasicBlockRef more = emit_block(e, "fetch");
    emit_branch(e, emit_icmp(e, LLVMIntSGT, t->args[ARG_NEXT_LINES], emit_i64(e, first)), more, done);
    emit_at(e, more);
    for (unsigned i = first; i < first + UNROLL; i++)
      emit_prefetch(e, emit_offset(e, next, emit_i64(e, i * e->target->cache_line)), 2);
  }
  emit_jump(e, done);
  emit_at(e, done);
}

/* What a loop carries: how far along k it is, and c. */
static Position begin_turns(Tile *t, Loop *loop, Position from) {
  Position at = {.a = loop_carry(t->e, loop, from.a), .b = loop_carry(t->e, loop, from.b)};
  at.next = loop_carry(t->e, loop, from.next);
  for (unsigned i = 0; i < t->spec->rows * t->n; i++) t->c[i] = loop_carry(t->e, loop, t->c[i]);
  return at;
}

static Position end_turns(Tile *t, Loop *loop) {
  const unsigned n_c = t->spec->rows * t->n;
  for (unsigned i = 0; i < n_c; i++) loop_next(loop, 3 + i, t->c[i]);
  loop_end(t->e, loop);
  for (unsigned i = 0; i < n_c; i++) t->c[i] = loop->results[3 + i];
  return (Position){loop->results[0], loop->results[1], loop->results[2]};
}

static Position emit_steps(Tile *t, LLVMValueRef begin, LLVMValueRef end, unsigned unroll, Position from) {
  Emitter *e = t->e;
  Loop loop = loop_begin(e, begin, end, unroll);
  Position at = begin_turns(t, &loop, from);
  /* Before the steps, so that these stay one block. */
  if (unroll == UNROLL && t->first == 0 && asks_for_more(t->spec)) emit_more_prefetches(t, at.next);
  for (unsigned u = 0; u < unroll; u++) {
    if (unroll == UNROLL) emit_prefetches(t, at, u);
    emit_step(t, at.a, at.b, u);
  }
  loop_next(&loop, 0, offset_in_a(t, at.a, 0, unroll));
  loop_next(&loop, 1, emit_offset(e, at.b, emit_i64(e, offset_in_b(t, unroll, 0))));
  if (unroll == UNROLL) loop_next(&loop, 2, emit_offset(e, at.next, advance_of_next(t, loop.index)));
  return end_turns(t, &loop);
}

/* Groups that have their numbers in one line of b, up to TFM_GROUPS, which is as many as bytes of a lane. */
static Position emit_groups_together(Tile *t, LLVMValueRef n, Position from) {
  Emitter *e = t->e;
  const unsigned n_c = t->spec->rows * t->n;
  LLVMValueRef numbers[MAX_VECTORS], factors[MAX_VECTORS];
  for (unsigned j = 0; j < t->n; j++) numbers[j] = load_b(t, from.b, 0, j);
  from.b = emit_offset(e, from.b, emit_i64(e, offset_in_b(t, 1, 0)));
  Loop loop = loop_begin(e, emit_i64(e, 0), n, 1);
  Position at = begin_turns(t, &loop, from);
  for (unsigned j = 0; j < t->n; j++) numbers[j] = loop_carry(e, &loop, numbers[j]);
  if (t->first == 0) emit_more_prefetches(t, at.next);
  for (unsigned u = 0; u < UNROLL; u++) emit_prefetches(t, at, u);
  for (unsigned j = 0; j < t->n; j++) factors[j] = factors_of(t, numbers[j]);
  emit_group(t, at.a, at.b, factors);
  loop_next(&loop, 0, emit_offset(e, offset_in_a(t, at.a, 0, TFM_GROUP / 4), emit_i64(e, sizeof(int32_t))));
  loop_next(&loop, 1, emit_offset(e, at.b, emit_i64(e, offset_in_b(t, TFM_GROUP / 8, 0))));
  loop_next(&loop, 2, emit_offset(e, at.next, t->next_advance));
  for (unsigned j = 0; j < t->n; j++)
    loop_next(&loop, 3 + n_c + j, LLVMBuildLShr(e->builder, numbers[j], splat_bits(t, 8), ""));
  return end_turns(t, &loop);
}

/* Behind the last group `a` has come 4 bytes beyond the scale. */
static Position emit_all_groups(Tile *t, Position from) {
  Emitter *e = t->e;
  LLVMValueRef groups = LLVMBuildLShr(e->builder, t->args[ARG_K], emit_i64(e, 5), "");
  Loop loop = loop_begin(e, emit_i64(e, 0), groups, TFM_GROUPS);
  Position at = begin_turns(t, &loop, from);
  LLVMValueRef n = emit_least(e, emit_i64(e, TFM_GROUPS), emit_sub(e, groups, loop.index));
  at = emit_groups_together(t, n, at);
  loop_next(&loop, 0, at.a);
  loop_next(&loop, 1, at.b);
  loop_next(&loop, 2, at.next);
  at = end_turns(t, &loop);
  return (Position){emit_offset(e, at.a, emit_i64(e, -(int64_t)sizeof(float))), at.b, at.next};
}

static Position emit_all_steps(Tile *t, Position position) {
  Emitter *e = t->e;
  LLVMValueRef whole = LLVMBuildAnd(e->builder, t->steps, emit_i64(e, -UNROLL), "");
  if (is_grouped(t)) return emit_all_groups(t, position);
  position = emit_steps(t, emit_i64(e, 0), whole, UNROLL, position);
  if (t->spec->b_form == TFM_FORM_BF16) {
    LLVMValueRef pairs = LLVMBuildAnd(e->builder, t->args[ARG_K], emit_i64(e, -2), "");
    position = emit_steps(t, whole, pairs, 2, position);
    whole = pairs;
  }
  return emit_steps(t, whole, t->steps, 1, position);
}

// ---- start and finish ----

/* The distance of the rows of c is an argument: results lie in buffers of many widths, and c is touched only twice. */
static LLVMValueRef row_of_c(Tile *t, unsigned row) {
  LLVMValueRef distance = emit_mul(t->e, t->args[ARG_C_STRIDE], emit_i64(t->e, 4 * (int64_t)row));
  return emit_offset(t->e, t->args[ARG_C], distance);
}

static LLVMValueRef vector_of(Tile *t, unsigned row, unsigned j, bool on_stack) {
  LLVMValueRef start = on_stack ? float_offset(t, t->stack, (int64_t)row * t->spec->width) : row_of_c(t, row);
  return float_offset(t, start, first_column(t) + j * t->lanes);
}

static LLVMValueRef is_whole(Tile *t) {
  return emit_icmp(t->e, LLVMIntSGE, t->args[ARG_COLUMNS], emit_i64(t->e, end_column(t)));
}

/* Copies the columns that exist, from c to the stack or back. */
static void copy_part(Tile *t, bool to_stack) {
  Emitter *e = t->e;
  LLVMValueRef four = emit_i64(e, 4), end = emit_least(e, t->args[ARG_COLUMNS], emit_i64(e, end_column(t)));
  Loop rows = loop_begin(e, emit_i64(e, 0), emit_i64(e, t->spec->rows), 1);
  LLVMValueRef c_distance = emit_mul(e, rows.index, t->args[ARG_C_STRIDE]);
  LLVMValueRef s_distance = emit_mul(e, rows.index, emit_i64(e, t->spec->width));
  Loop columns = loop_begin(e, emit_i64(e, first_column(t)), end, 1);
  LLVMValueRef c = emit_offset(e, t->args[ARG_C], emit_mul(e, emit_add(e, c_distance, columns.index), four));
  LLVMValueRef s = emit_offset(e, t->stack, emit_mul(e, emit_add(e, s_distance, columns.index), four));
  emit_store(e, emit_load(e, e->f32, to_stack ? c : s, 4), to_stack ? s : c, 4);
  loop_end(e, &columns);
  loop_end(e, &rows);
}

typedef enum Memory { WHOLE, MASKED, STAGED } Memory;

static Memory memory_of_part(const Tile *t) { return target_masks(t->e->target, sizeof(float)) ? MASKED : STAGED; }

/* Which lanes of vector j are columns of c. */
static LLVMValueRef mask_of(Tile *t, unsigned j) {
  Emitter *e = t->e;
  LLVMValueRef left = emit_sub(e, t->args[ARG_COLUMNS], emit_i64(e, first_column(t) + j * t->lanes));
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

/* Loads the part of c that exists, where it may be a part; returns the block that this ends in. */
static LLVMBasicBlockRef load_cut_rows(Tile *t, LLVMBasicBlockRef cut, LLVMBasicBlockRef start, LLVMValueRef *part) {
  emit_at(t->e, cut);
  if (memory_of_part(t) == STAGED) copy_part(t, true);
  load_rows(t, part, memory_of_part(t));
  LLVMBasicBlockRef end = LLVMGetInsertBlock(t->e->builder);
  emit_jump(t->e, start);
  return end;
}

/* The three ways meet in phis, one per register of c; the blocks of IR are laid out as they should run. */
static void emit_start(Tile *t) {
  Emitter *e = t->e;
  const bool may_be_cut = !t->spec->is_whole;
  LLVMValueRef whole[MAX_VECTORS], part[MAX_VECTORS];
  LLVMBasicBlockRef blocks[3] = {LLVMGetInsertBlock(e->builder)};
  LLVMBasicBlockRef added = emit_block(e, "accumulate"), full = emit_block(e, "load");
  LLVMBasicBlockRef cut = may_be_cut ? emit_block(e, "load_part") : full, start = emit_block(e, "start");
  LLVMValueRef begin[TFM_MAX_TILE_ROWS], adds = t->args[ARG_ACCUMULATE];
  if (is_whole_numbers(t)) adds = LLVMBuildAnd(e->builder, adds, emit_i64(e, 1), "");
  const bool starts_from_a = is_whole_numbers(t) && !is_grouped(t) && !t->spec->b_is_signed;
  for (unsigned i = 0; i < t->spec->rows; i++)
    begin[i] = starts_from_a ? start_of_row(t, t->args[ARG_A], i) : LLVMConstNull(t->vector);
  emit_branch(e, emit_icmp(e, LLVMIntNE, adds, emit_i64(e, 0)), added, start);
  emit_at(e, added);
  if (may_be_cut) emit_branch(e, is_whole(t), full, cut);
  else emit_jump(e, full);
  emit_at(e, full);
  load_rows(t, whole, WHOLE);
  blocks[1] = full;
  emit_jump(e, start);
  if (may_be_cut) blocks[2] = load_cut_rows(t, cut, start, part);
  emit_at(e, start);
  for (unsigned i = 0; i < t->spec->rows * t->n; i++) {
    t->c[i] = LLVMBuildPhi(e->builder, t->vector, "");
    LLVMAddIncoming(t->c[i], (LLVMValueRef[]){begin[i / t->n], whole[i], part[i]}, blocks, may_be_cut ? 3 : 2);
  }
}

static void emit_finish(Tile *t) {
  Emitter *e = t->e;
  if (t->spec->is_whole) {
    store_rows(t, WHOLE);
    return;
  }
  LLVMBasicBlockRef full = emit_block(e, "store"), cut = emit_block(e, "store_part"), done = emit_block(e, "done");
  emit_branch(e, is_whole(t), full, cut);
  emit_at(e, full);
  store_rows(t, WHOLE);
  emit_jump(e, done);
  emit_at(e, cut);
  store_rows(t, memory_of_part(t));
  if (memory_of_part(t) == STAGED) copy_part(t, false);
  emit_jump(e, done);
  emit_at(e, done);
}

/* Computes one group of columns: all of them, or what vectors_at_once allows. */
static void emit_columns(Tile *t) {
  Position position = {t->args[ARG_A], t->args[ARG_B], t->args[ARG_NEXT]};
  emit_start(t);
  position = emit_all_steps(t, position);
  if (is_whole_numbers(t)) emit_scaling(t, position.a, position.b);
  emit_finish(t);
}

/* Exact tiles need registers for the comparison, which some targets have only for one vector of columns at a time. Wide
 * tiles, which are those of values, take equal groups of as many vectors as the widest of the table has. */
static unsigned vectors_at_once(const Tile *t, unsigned all) {
  const TargetInfo *target = t->e->target;
  unsigned most = target->attention_value_widths[0] / t->lanes;
  if (t->spec->exact_zero && target->exact_tile_vectors) most = target->exact_tile_vectors;
  if (all <= most) return all;
  unsigned groups = (all + most - 1) / most;
  return (all + groups - 1) / groups;
}

/* A tile that little is computed with, in a tenth of the code: the same chains, one row after the other. */
static void emit_row_by_row(Tile *t) {
  Emitter *e = t->e;
  LLVMValueRef row = LLVMGetNamedFunction(e->module, t->spec->of_one_row), args[N_ARGS];
  CHECK(row, "a tile of rows without the tile of one");
  for (unsigned i = 0; i < N_ARGS; i++) args[i] = t->args[i];
  if (t->spec->rows == 1) { /* a jump */
    LLVMSetTailCall(LLVMBuildCall2(e->builder, LLVMGlobalGetValueType(row), row, args, N_ARGS, ""), true);
    LLVMBuildRetVoid(e->builder);
    return;
  }
  Loop loop = loop_begin(e, emit_i64(e, 0), emit_i64(e, t->spec->rows), 1);
  args[ARG_A] = loop_carry(e, &loop, t->args[ARG_A]);
  args[ARG_C] = loop_carry(e, &loop, t->args[ARG_C]);
  LLVMBuildCall2(e->builder, LLVMGlobalGetValueType(row), row, args, N_ARGS, "");
  loop_next(&loop, 0, offset_in_a(t, args[ARG_A], 1, 0));
  loop_next(&loop, 1, emit_offset(e, args[ARG_C], emit_mul(e, t->args[ARG_C_STRIDE], emit_i64(e, sizeof(float)))));
  loop_end(e, &loop);
  LLVMBuildRetVoid(e->builder);
}

static void begin_function(Tile *t, const char *name) {
  Emitter *e = t->e;
  LLVMTypeRef types[N_ARGS] = {e->pointer, e->pointer, e->pointer, e->i64, e->i64, e->i64, e->i64, e->pointer, e->i64};
  LLVMValueRef function = emit_function(e, name, e->nothing, N_ARGS, types);
  for (unsigned i = 0; i < N_ARGS; i++) t->args[i] = LLVMGetParam(function, i);
}

void emit_TILE(Emitter *e, const KernelSpec *spec, const char *name) {
  if (spec->is_matrix) {
    emit_matrix_tile(e, spec, name);
    return;
  }
  Tile t = {.e = e, .spec = spec, .lanes = e->target->vector_floats};
  unsigned all = spec->width / t.lanes;
  const unsigned at_once = vectors_at_once(&t, all);
  CHECK(spec->rows > 0 && all > 0 && all * t.lanes == spec->width && spec->rows * at_once < LOOP_MAX_CARRIED - 3,
        "a tile of %u x %u", spec->rows, spec->width);
  CHECK(spec->b_form != TFM_FORM_INT4 || (spec->rows + 1) * all <= LOOP_MAX_CARRIED - 3, "a tile of many rows");
  t.vector = LLVMVectorType(is_whole_numbers(&t) ? e->i32 : e->f32, t.lanes);
  begin_function(&t, name);
  if (spec->of_one_row) {
    emit_row_by_row(&t);
    return;
  }
  t.steps = t.args[ARG_K];
  if (is_whole_numbers(&t))
    t.steps = LLVMBuildLShr(e->builder, emit_add(e, t.steps, emit_i64(e, 3)), emit_i64(e, 2), "");
  emit_parameter_noalias(e, ARG_A), emit_parameter_readonly(e, ARG_A);
  emit_parameter_noalias(e, ARG_B), emit_parameter_readonly(e, ARG_B);
  emit_parameter_noalias(e, ARG_C);
  if (memory_of_part(&t) == STAGED)
    t.stack = emit_stack(e, LLVMArrayType2(e->f32, (uint64_t)spec->rows * spec->width), 16);
  prepare_prefetches(&t);
  for (t.first = 0; t.first < all; t.first += t.n) {
    t.n = at_once < all - t.first ? at_once : all - t.first;
    emit_columns(&t);
  }
  LLVMBuildRetVoid(e->builder);
}
