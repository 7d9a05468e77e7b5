/* STATE_GRAD: what the operands of a stretch of steps of linear attention get (tfm_state_grad_kernel).
 *
 * In: the columns of a block, whether the state fades, by one factor or by one for each of its rows, and what a step
 * takes out before it writes. Out: a function. What the state behind a step gets is walked down each column, for what
 * was written gets, then, beside the state before the step, along each row, for what q, k and decay get. It does not
 * fit a cache of the first level, so it is walked once for each step: along the rows of step t, and down the columns
 * for the step before, of which a row takes part when it is done with step t. Sums along rows are in 16 lanes and the
 * tree of kernels/reducer.h. Refuses nothing. */
#include <stddef.h>
#include <string.h>

#include "kernels/emit.h"
#include "kernels/kernel_tuning.h"
#include "kernels/reducer.h"

enum { MOST_VECTORS = TFM_STATE_COLUMNS / LANES, N_SUMS = 4, ROWS_TOGETHER = LANES / N_SUMS };

typedef struct GradKernel {
  Emitter *e;
  const KernelSpec *spec;
  unsigned vectors; /* of a block */
  LLVMValueRef args, n, row, blocks;
  LLVMValueRef state; /* [n] rows of `row` bytes: what the state gets */
  LLVMValueRef sums;  /* [ROWS_TOGETHER][N_SUMS] vectors on the stack */
  LLVMValueRef written, taken, gets; /* lines of `row` bytes: what is written, what v gets, what the written gets */
} GradKernel;

typedef struct Back { /* a walk: along the rows of a step, and down the columns for the one before; NULL: not that */
  LLVMValueRef before;                      /* the state before the step */
  LLVMValueRef k, decay, dq, dk, ddecay;
  LLVMValueRef given;                       /* a line: what y gets in the step */
  LLVMValueRef next_k, next_q, next_given;
} Back;

typedef struct RowNumbers { /* in every lane */
  LLVMValueRef key, minus_key, decay, next_key, next_query;
} RowNumbers;

typedef struct Along { /* sums along a row, in lanes */
  LLVMValueRef q, k, taken, decay;
} Along;

#define ARG(kernel, member, type) \
  emit_load((kernel)->e, (kernel)->e->type, emit_offset((kernel)->e, (kernel)->args, \
            emit_i64((kernel)->e, (int64_t)offsetof(tfm_state_grad_args, member))), 8)
#define STEP_OF(kernel, member, t) \
  emit_offset((kernel)->e, ARG(kernel, member, pointer), emit_mul((kernel)->e, ARG(kernel, member##_step, i64), t))

/* A vector of a line, or of the rows of a state; `at` in bytes. */
static LLVMValueRef load_vector(GradKernel *s, LLVMValueRef base, LLVMValueRef at) {
  return emit_load(s->e, lanes_type(s->e->f32), emit_offset(s->e, base, at), 64);
}

static void store_vector(GradKernel *s, LLVMValueRef base, LLVMValueRef at, LLVMValueRef x) {
  emit_store(s->e, x, emit_offset(s->e, base, at), 64);
}

static LLVMValueRef vector_at(GradKernel *s, LLVMValueRef block, unsigned i) {
  return emit_add(s->e, block, emit_i64(s->e, (int64_t)(i * LANES * sizeof(float))));
}

static LLVMValueRef block_bytes(GradKernel *s) {
  return emit_i64(s->e, (int64_t)(s->vectors * LANES * sizeof(float)));
}

// ---- the columns of a step ----

typedef struct Block { /* of columns: where it begins, in bytes, and which of its columns there are */
  LLVMValueRef at, masks[MOST_VECTORS];
} Block;

static Block block_of(GradKernel *s, LLVMValueRef number) {
  Emitter *e = s->e;
  Block block = {.at = emit_mul(e, number, block_bytes(s))};
  LLVMValueRef left = emit_sub(e, ARG(s, columns, i64), emit_mul(e, number, emit_i64(e, s->vectors * LANES)));
  left = LLVMBuildTrunc(e->builder, left, e->i32, "");
  for (unsigned i = 0; i < s->vectors; i++) {
    LLVMValueRef of = LLVMBuildSub(e->builder, left, emit_i32(e, i * LANES), "");
    block.masks[i] = emit_icmp(e, LLVMIntSLT, emit_ramp(e, LANES), emit_splat(e, of, LANES));
  }
  return block;
}

/* Columns of the caller's memory. */
static Lanes load_columns(GradKernel *s, LLVMValueRef base, const Block *block) {
  Lanes x;
  for (unsigned i = 0; i < s->vectors; i++)
    x.v[i] = emit_load_masked(s->e, lanes_type(s->e->f32), emit_offset(s->e, base, vector_at(s, block->at, i)),
                              block->masks[i], 4);
  return x;
}

static void store_columns(GradKernel *s, LLVMValueRef base, Lanes x, const Block *block) {
  for (unsigned i = 0; i < s->vectors; i++)
    emit_store_masked(s->e, x.v[i], emit_offset(s->e, base, vector_at(s, block->at, i)), block->masks[i], 4);
}

static Lanes load_line(GradKernel *s, LLVMValueRef line, const Block *block) {
  Lanes x;
  for (unsigned i = 0; i < s->vectors; i++) x.v[i] = load_vector(s, line, vector_at(s, block->at, i));
  return x;
}

static void store_line(GradKernel *s, LLVMValueRef line, Lanes x, const Block *block) {
  for (unsigned i = 0; i < s->vectors; i++) store_vector(s, line, vector_at(s, block->at, i), x.v[i]);
}

/* What y gets in step t goes into a line; what is written gets nothing yet. */
static void emit_given(GradKernel *s, LLVMValueRef t, LLVMValueRef given) {
  Loop blocks = loop_begin(s->e, emit_i64(s->e, 0), s->blocks, 1);
  const Block block = block_of(s, blocks.index);
  store_line(s, given, load_columns(s, STEP_OF(s, g, t), &block), &block);
  store_line(s, s->gets, lanes_splat(s->e, emit_f32(s->e, 0)), &block);
  loop_end(s->e, &blocks);
}

/* What a block writes and v gets for it, into lines; what beta gets is added to `sum`, or stored. */
static void emit_columns_of(GradKernel *s, LLVMValueRef t, const Block *block, LLVMValueRef *sum) {
  Emitter *e = s->e;
  Lanes v = load_columns(s, STEP_OF(s, v, t), block), written = v, gets = load_line(s, s->gets, block), taken = gets;
  if (s->spec->beta != TFM_BETA_NONE) {
    const bool is_each = s->spec->beta == TFM_BETA_EACH;
    Lanes beta = is_each ? load_columns(s, STEP_OF(s, beta, t), block)
                         : lanes_splat(e, emit_load(e, e->f32, STEP_OF(s, beta, t), 4));
    Lanes rest = lanes_sub(e, v, load_line(s, STEP_OF(s, reads, t), block)), of_beta = lanes_mul(e, gets, rest);
    written = lanes_mul(e, beta, rest);
    taken = lanes_mul(e, beta, gets);
    if (is_each) store_columns(s, STEP_OF(s, dbeta, t), of_beta, block);
    for (unsigned i = 0; i < s->vectors && !is_each; i++) *sum = LLVMBuildFAdd(e->builder, *sum, of_beta.v[i], "");
  }
  store_columns(s, STEP_OF(s, dv, t), taken, block);
  store_line(s, s->written, written, block);
  store_line(s, s->taken, taken, block);
}

static void emit_columns(GradKernel *s, LLVMValueRef t) {
  Emitter *e = s->e;
  Loop blocks = loop_begin(e, emit_i64(e, 0), s->blocks, 1);
  LLVMValueRef sum = loop_carry(e, &blocks, LLVMConstNull(lanes_type(e->f32)));
  const Block block = block_of(s, blocks.index);
  emit_columns_of(s, t, &block, &sum);
  loop_next(&blocks, 0, sum);
  loop_end(e, &blocks);
  if (s->spec->beta != TFM_BETA_ONE) return;
  reducer_tree(e, &reducer_sum, &blocks.results[0]);
  emit_store(e, blocks.results[0], STEP_OF(s, dbeta, t), 4);
}

// ---- a walk over the rows ----

/* The number that row i takes, in every lane. */
static LLVMValueRef number_of_row(GradKernel *s, LLVMValueRef base, LLVMValueRef i) {
  LLVMValueRef at = emit_offset(s->e, base, emit_mul(s->e, i, emit_i64(s->e, sizeof(float))));
  return emit_splat(s->e, emit_load(s->e, s->e->f32, at, 4), LANES);
}

static RowNumbers numbers_of(GradKernel *s, const Back *walk, LLVMValueRef i) {
  RowNumbers of = {NULL};
  if (walk->k) of.key = number_of_row(s, walk->k, i), of.minus_key = LLVMBuildFNeg(s->e->builder, of.key, "");
  if (walk->decay) of.decay = number_of_row(s, walk->decay, s->spec->fades_by_rows ? i : emit_i64(s->e, 0));
  if (walk->next_k) of.next_key = number_of_row(s, walk->next_k, i), of.next_query = number_of_row(s, walk->next_q, i);
  return of;
}

typedef struct LineVectors { /* of the columns of a vector */
  LLVMValueRef written, taken, given, next_given, gets;
} LineVectors;

static LineVectors line_vectors(GradKernel *s, const Back *walk, LLVMValueRef at) {
  LineVectors of = {NULL};
  if (walk->k) of.written = load_vector(s, s->written, at), of.given = load_vector(s, walk->given, at);
  if (walk->k && s->spec->beta != TFM_BETA_NONE) of.taken = load_vector(s, s->taken, at);
  if (walk->next_k) of.next_given = load_vector(s, walk->next_given, at), of.gets = load_vector(s, s->gets, at);
  return of;
}

/* A vector along a row: adds to the sums. What the state behind the step gets, `state`, becomes what that before it
 * gets. */
static LLVMValueRef emit_along(GradKernel *s, const RowNumbers *of, const LineVectors *lines, LLVMValueRef before,
                               LLVMValueRef state, Along *sums) {
  Emitter *e = s->e;
  LLVMValueRef faded = of->decay ? LLVMBuildFMul(e->builder, of->decay, before, "") : before, left = state;
  LLVMValueRef behind = emit_fma(e, of->key, lines->written, faded);
  sums->q = emit_fma(e, behind, lines->given, sums->q);
  sums->k = emit_fma(e, state, lines->written, sums->k);
  if (lines->taken) {
    sums->taken = emit_fma(e, faded, lines->taken, sums->taken);
    left = emit_fma(e, of->minus_key, lines->taken, state);
  }
  if (!of->decay) return left;
  sums->decay = emit_fma(e, left, before, sums->decay);
  return LLVMBuildFMul(e->builder, of->decay, left, "");
}

typedef struct Turn { /* neighbouring rows */
  unsigned n;
  LLVMValueRef rows[STATE_GRAD_ROWS]; /* where they begin, in bytes */
  RowNumbers numbers[STATE_GRAD_ROWS];
  Along sums[STATE_GRAD_ROWS];
} Turn;

/* A vector of each row, `at` bytes from its beginning. Down the columns the step before is added to what the state
 * gets, and to what its key reads of that. */
static void emit_part(GradKernel *s, const Back *walk, Turn *turn, LLVMValueRef at) {
  LineVectors lines = line_vectors(s, walk, at);
  for (unsigned i = 0; i < turn->n; i++) {
    const RowNumbers *of = &turn->numbers[i];
    LLVMValueRef place = emit_add(s->e, turn->rows[i], at), state = load_vector(s, s->state, place);
    if (walk->k) state = emit_along(s, of, &lines, load_vector(s, walk->before, place), state, &turn->sums[i]);
    if (walk->next_k) {
      state = emit_fma(s->e, of->next_query, lines.next_given, state);
      lines.gets = emit_fma(s->e, of->next_key, state, lines.gets);
    }
    store_vector(s, s->state, place, state);
  }
  if (walk->next_k) store_vector(s, s->gets, at, lines.gets);
}

/* `n` rows from row i on, block by block. */
static Turn emit_rows(GradKernel *s, const Back *walk, unsigned n, LLVMValueRef i) {
  Emitter *e = s->e;
  Turn turn = {.n = n};
  LLVMValueRef *all[STATE_GRAD_ROWS * N_SUMS];
  for (unsigned r = 0; r < n; r++) {
    LLVMValueRef row = emit_add(e, i, emit_i64(e, r));
    Along *sums = &turn.sums[r];
    turn.numbers[r] = numbers_of(s, walk, row), turn.rows[r] = emit_mul(e, s->row, row);
    LLVMValueRef *const own[N_SUMS] = {&sums->q, &sums->k, &sums->taken, &sums->decay};
    memcpy(all + r * N_SUMS, own, sizeof own);
  }
  Loop blocks = loop_begin(e, emit_i64(e, 0), s->blocks, 1);
  for (unsigned j = 0; j < n * N_SUMS; j++) *all[j] = loop_carry(e, &blocks, LLVMConstNull(lanes_type(e->f32)));
  LLVMValueRef block = emit_mul(e, blocks.index, block_bytes(s));
  for (unsigned j = 0; j < s->vectors; j++) emit_part(s, walk, &turn, vector_at(s, block, j));
  for (unsigned j = 0; j < n * N_SUMS; j++) loop_next(&blocks, j, *all[j]);
  loop_end(e, &blocks);
  for (unsigned j = 0; j < n * N_SUMS; j++) *all[j] = blocks.results[j];
  return turn;
}

static LLVMValueRef sums_of_row(GradKernel *s, LLVMValueRef row) {
  return emit_offset(s->e, s->sums, emit_mul(s->e, row, emit_i64(s->e, N_SUMS * LANES * sizeof(float))));
}

static LLVMValueRef vector_bytes(GradKernel *s, unsigned i) {
  return emit_i64(s->e, (int64_t)(i * LANES * sizeof(float)));
}

static void keep_sums(GradKernel *s, LLVMValueRef row, const Along *sums) {
  const LLVMValueRef all[N_SUMS] = {sums->q, sums->k, sums->taken, sums->decay};
  for (unsigned j = 0; j < N_SUMS; j++) store_vector(s, sums_of_row(s, row), vector_bytes(s, j), all[j]);
}

/* Numbers of the `n` rows from row i on, of which there are ROWS_TOGETHER but at the end. */
static void store_numbers(GradKernel *s, LLVMValueRef base, LLVMValueRef i, LLVMValueRef n, LLVMValueRef numbers) {
  Emitter *e = s->e;
  LLVMValueRef count = LLVMBuildTrunc(e->builder, n, e->i32, "");
  LLVMValueRef mask = emit_icmp(e, LLVMIntSLT, emit_ramp(e, ROWS_TOGETHER), emit_splat(e, count, ROWS_TOGETHER));
  emit_store_masked(e, numbers, emit_offset(e, base, emit_mul(e, i, emit_i64(e, sizeof(float)))), mask, 4);
}

static LLVMValueRef rows_of_sum(GradKernel *s, LLVMValueRef sums, unsigned sum) {
  LLVMValueRef lanes[ROWS_TOGETHER];
  for (unsigned i = 0; i < ROWS_TOGETHER; i++) lanes[i] = emit_i32(s->e, sum * ROWS_TOGETHER + i);
  return LLVMBuildShuffleVector(s->e->builder, sums, LLVMGetPoison(LLVMTypeOf(sums)),
                                LLVMConstVector(lanes, ROWS_TOGETHER), "");
}

/* Adds the lanes of the sums of `n` rows from row i on, many rows at once since a tree is a long chain for few numbers:
 * gives what q and k get, and what the factors of rows get. Returns what factors get. */
static LLVMValueRef emit_sums(GradKernel *s, const Back *walk, LLVMValueRef i, LLVMValueRef n) {
  Emitter *e = s->e;
  LLVMValueRef lanes[LANES], of[N_SUMS];
  for (unsigned j = 0; j < LANES; j++) lanes[j] = load_vector(s, s->sums, vector_bytes(s, j));
  LLVMValueRef sums = reducer_sums(e, lanes);
  for (unsigned j = 0; j < N_SUMS; j++) of[j] = rows_of_sum(s, sums, j);
  if (s->spec->beta != TFM_BETA_NONE) of[1] = LLVMBuildFSub(e->builder, of[1], of[2], "");
  store_numbers(s, walk->dq, i, n, of[0]);
  store_numbers(s, walk->dk, i, n, of[1]);
  if (s->spec->fades_by_rows) store_numbers(s, walk->ddecay, i, n, of[3]);
  return of[3];
}

/* The factors of rows are one: adds what those of `n` rows get, in order. */
static LLVMValueRef add_in_order(GradKernel *s, LLVMValueRef sum, LLVMValueRef numbers, LLVMValueRef n) {
  Emitter *e = s->e;
  for (unsigned j = 0; j < ROWS_TOGETHER; j++) {
    LLVMValueRef number = LLVMBuildExtractElement(e->builder, numbers, emit_i32(e, j), "");
    LLVMValueRef more = LLVMBuildFAdd(e->builder, sum, number, "");
    sum = emit_select(e, emit_icmp(e, LLVMIntSLT, emit_i64(e, j), n), more, sum);
  }
  return sum;
}

/* Rows [first, end) of a group that begins with row i, `n` of them in a turn; returns the first that is left. */
static LLVMValueRef emit_turns(GradKernel *s, const Back *walk, unsigned n, LLVMValueRef i, LLVMValueRef first,
                               LLVMValueRef end) {
  Emitter *e = s->e;
  Loop turns = loop_begin(e, first, emit_sub(e, end, emit_i64(e, n - 1)), n);
  const Turn turn = emit_rows(s, walk, n, emit_add(e, i, turns.index));
  for (unsigned r = 0; r < n && walk->k; r++) keep_sums(s, emit_add(e, turns.index, emit_i64(e, r)), &turn.sums[r]);
  loop_end(e, &turns);
  return turns.last;
}

static void emit_walk(GradKernel *s, const Back *walk) {
  Emitter *e = s->e;
  const bool adds_rows = walk->ddecay && !s->spec->fades_by_rows;
  /* Sums of rows take registers; and a walk of few steps is not worth more code. */
  const bool is_frequent = walk->k && walk->next_k;
  const unsigned most = is_frequent && e->target->vector_floats == LANES ? STATE_GRAD_ROWS : 1;
  Loop groups = loop_begin(e, emit_i64(e, 0), s->n, ROWS_TOGETHER);
  LLVMValueRef sum = loop_carry(e, &groups, emit_f32(e, 0));
  LLVMValueRef n = emit_least(e, emit_sub(e, s->n, groups.index), emit_i64(e, ROWS_TOGETHER));
  LLVMValueRef left = emit_turns(s, walk, most, groups.index, emit_i64(e, 0), n);
  if (most > 1) emit_turns(s, walk, 1, groups.index, left, n);
  if (walk->k) {
    LLVMValueRef of_decay = emit_sums(s, walk, groups.index, n);
    if (adds_rows) sum = add_in_order(s, sum, of_decay, n);
  }
  loop_next(&groups, 0, sum);
  loop_end(e, &groups);
  if (adds_rows) emit_store(e, groups.results[0], walk->ddecay, 4);
}

// ---- the steps of a stretch ----

static void place_step(GradKernel *s, LLVMValueRef t, LLVMValueRef given, Back *walk) {
  walk->given = given;
  walk->k = STEP_OF(s, k, t), walk->dq = STEP_OF(s, dq, t), walk->dk = STEP_OF(s, dk, t);
  if (s->spec->fades) walk->decay = STEP_OF(s, decay, t), walk->ddecay = STEP_OF(s, ddecay, t);
}

static void place_next(GradKernel *s, LLVMValueRef t, LLVMValueRef given, Back *walk) {
  emit_given(s, t, given);
  walk->next_given = given, walk->next_k = STEP_OF(s, k, t), walk->next_q = STEP_OF(s, q, t);
}

static void fetch_number(GradKernel *s, LLVMValueRef base, LLVMValueRef i) {
  emit_prefetch(s->e, emit_offset(s->e, base, emit_mul(s->e, i, emit_i64(s->e, sizeof(float)))), 3);
}

/* Numbers that do not begin with a line end in one more. */
static void fetch(GradKernel *s, LLVMValueRef base, LLVMValueRef numbers) {
  Emitter *e = s->e;
  Loop lines = loop_begin(e, emit_i64(e, 0), numbers, e->target->cache_line / (int64_t)sizeof(float));
  fetch_number(s, base, lines.index);
  loop_end(e, &lines);
  fetch_number(s, base, emit_sub(e, numbers, emit_i64(e, 1)));
}

/* What the next walk takes: operands of neighbouring steps lie far apart, so the processor does not foresee them. */
static void fetch_step(GradKernel *s, LLVMValueRef t) {
  LLVMValueRef columns = ARG(s, columns, i64);
  fetch(s, STEP_OF(s, q, t), s->n), fetch(s, STEP_OF(s, k, t), s->n), fetch(s, STEP_OF(s, dq, t), s->n);
  fetch(s, STEP_OF(s, dk, t), s->n), fetch(s, STEP_OF(s, v, t), columns), fetch(s, STEP_OF(s, g, t), columns);
  fetch(s, STEP_OF(s, dv, t), columns);
  if (s->spec->beta == TFM_BETA_EACH) fetch(s, STEP_OF(s, beta, t), columns), fetch(s, STEP_OF(s, dbeta, t), columns);
  if (s->spec->fades_by_rows) fetch(s, STEP_OF(s, decay, t), s->n), fetch(s, STEP_OF(s, ddecay, t), s->n);
}

/* From the last step to the first: down the columns of the last one, then along rows and down columns, then along the
 * rows of the first one. Two lines take turns for what y gets. */
static void emit_stretch(GradKernel *s, LLVMValueRef given, LLVMValueRef other) {
  Emitter *e = s->e;
  LLVMValueRef zero = emit_i64(e, 0), last = emit_sub(e, ARG(s, steps, i64), emit_i64(e, 1));
  Back begins = {NULL}, ends = {.before = ARG(s, first, pointer)};
  place_next(s, last, given, &begins);
  emit_walk(s, &begins);
  emit_columns(s, last);
  Loop steps = loop_begin(e, zero, last, 1);
  LLVMValueRef now = loop_carry(e, &steps, given), soon = loop_carry(e, &steps, other);
  LLVMValueRef t = emit_sub(e, last, steps.index), next = emit_sub(e, t, emit_i64(e, 1));
  Back walk = {.before = STEP_OF(s, before, t)};
  place_step(s, t, now, &walk);
  place_next(s, next, soon, &walk);
  fetch_step(s, emit_sub(e, next, emit_i64(e, 1)));
  emit_walk(s, &walk);
  emit_columns(s, next);
  loop_next(&steps, 0, soon);
  loop_next(&steps, 1, now);
  loop_end(e, &steps);
  place_step(s, zero, steps.results[0], &ends);
  emit_walk(s, &ends);
}

void emit_STATE_GRAD(Emitter *e, const KernelSpec *spec, const char *name) {
  LLVMValueRef function = emit_kernel(e, KERNEL_STATE_GRAD, name);
  emit_parameter_readonly(e, 0);
  GradKernel s = {.e = e, .spec = spec, .args = LLVMGetParam(function, 0), .vectors = spec->width / LANES};
  e->n_vectors = s.vectors;
  s.n = ARG(&s, n, i64), s.row = ARG(&s, row, i64);
  s.blocks = LLVMBuildSDiv(e->builder, s.row, block_bytes(&s), "");
  s.state = ARG(&s, state, pointer);
  LLVMValueRef lines[TFM_STATE_LINES] = {ARG(&s, lines, pointer)};
  for (unsigned i = 1; i < TFM_STATE_LINES; i++) lines[i] = emit_offset(e, lines[i - 1], s.row);
  s.written = lines[0], s.taken = lines[1], s.gets = lines[2];
  s.sums = emit_stack(e, LLVMArrayType2(lanes_type(e->f32), LANES), 64);
  emit_stretch(&s, lines[3], lines[4]);
  LLVMBuildRetVoid(e->builder);
}
