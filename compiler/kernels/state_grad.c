/* STATE_GRAD: what the operands of a stretch of steps of linear attention get (tfm_state_grad_kernel), but q.
 *
 * In: the columns of a block, whether the state fades, by one factor or by one for each of its rows, and what a step
 * takes out before it writes; the states before the steps, what each wrote, and what y gets, of STATE_KEPT. Out: a
 * function. What the state behind a step gets is walked down each column, for what was written gets, then, beside the
 * state before the step, along each row, for what k and decay get. It does not fit a cache of the first level, so it is
 * walked once for each step: along the rows of step t, and down the columns for the step before, of which a row takes
 * part when it is done with step t. Sums along rows are in 16 lanes and the tree of kernels/reducer.h. Refuses
 * nothing. */
#include "kernels/state_grad.h"

#include <string.h>

#include "kernels/kernel_tuning.h"

enum { N_SUMS = 3, ROWS_TOGETHER = STATE_ROWS_TOGETHER };

typedef struct Back { /* a walk: along the rows of a step, and down the columns for the one before; NULL: not that */
  LLVMValueRef before;                      /* the state before the step, or before the one before it */
  LLVMValueRef written;                     /* a line */
  LLVMValueRef next_written, next_decay;    /* of the step before, if `before` is the state before that */
  LLVMValueRef k, decay, dk, ddecay;
  LLVMValueRef next_k, next_q, next_given;
} Back;

typedef struct RowNumbers { /* in every lane */
  LLVMValueRef key, minus_key, decay, next_key, next_query, next_decay;
} RowNumbers;

typedef struct Along { /* sums along a row, in lanes */
  LLVMValueRef k, taken, decay;
} Along;

// ---- what both kernels of a gradient take ----

GradKernel grad_kernel(Emitter *e, const KernelSpec *spec, KernelFamily family, const char *name) {
  LLVMValueRef function = emit_kernel(e, family, name);
  emit_parameter_noalias(e, 0), emit_parameter_readonly(e, 0);
  GradKernel s = {.e = e, .spec = spec, .args = LLVMGetParam(function, 0), .vectors = spec->width / LANES};
  e->n_vectors = s.vectors;
  s.n = GRAD_ARG(&s, n, i64), s.row = GRAD_ARG(&s, row, i64);
  s.blocks = LLVMBuildSDiv(e->builder, s.row, grad_block_bytes(&s), "");
  return s;
}

LLVMValueRef grad_vector(GradKernel *s, LLVMValueRef base, LLVMValueRef at) {
  return emit_load(s->e, lanes_type(s->e->f32), emit_offset(s->e, base, at), 64);
}

void grad_store_vector(GradKernel *s, LLVMValueRef base, LLVMValueRef at, LLVMValueRef x) {
  emit_store(s->e, x, emit_offset(s->e, base, at), 64);
}

LLVMValueRef grad_vector_at(GradKernel *s, LLVMValueRef at, unsigned i) {
  return emit_add(s->e, at, emit_i64(s->e, (int64_t)(i * LANES * sizeof(float))));
}

LLVMValueRef grad_block_bytes(GradKernel *s) {
  return emit_i64(s->e, (int64_t)(s->vectors * LANES * sizeof(float)));
}

ColumnBlock grad_block(GradKernel *s, LLVMValueRef number) {
  Emitter *e = s->e;
  ColumnBlock block = {.at = emit_mul(e, number, grad_block_bytes(s))};
  LLVMValueRef left = emit_sub(e, GRAD_ARG(s, columns, i64), emit_mul(e, number, emit_i64(e, s->vectors * LANES)));
  left = LLVMBuildTrunc(e->builder, left, e->i32, "");
  for (unsigned i = 0; i < s->vectors; i++) {
    LLVMValueRef of = LLVMBuildSub(e->builder, left, emit_i32(e, i * LANES), "");
    block.masks[i] = emit_icmp(e, LLVMIntSLT, emit_ramp(e, LANES), emit_splat(e, of, LANES));
  }
  return block;
}

Lanes grad_columns(GradKernel *s, LLVMValueRef base, const ColumnBlock *block) {
  Lanes x;
  for (unsigned i = 0; i < s->vectors; i++)
    x.v[i] = emit_load_masked(s->e, lanes_type(s->e->f32), emit_offset(s->e, base, grad_vector_at(s, block->at, i)),
                              block->masks[i], 4);
  return x;
}

Lanes grad_beta(GradKernel *s, LLVMValueRef t, const ColumnBlock *block) {
  if (s->spec->beta == TFM_BETA_EACH) return grad_columns(s, GRAD_STEP(s, beta, t), block);
  return lanes_splat(s->e, emit_load(s->e, s->e->f32, GRAD_STEP(s, beta, t), 4));
}

Lanes grad_line(GradKernel *s, LLVMValueRef line, const ColumnBlock *block) {
  Lanes x;
  for (unsigned i = 0; i < s->vectors; i++) x.v[i] = grad_vector(s, line, grad_vector_at(s, block->at, i));
  return x;
}

void grad_store_line(GradKernel *s, LLVMValueRef line, Lanes x, const ColumnBlock *block) {
  for (unsigned i = 0; i < s->vectors; i++) grad_store_vector(s, line, grad_vector_at(s, block->at, i), x.v[i]);
}

LLVMValueRef grad_number(GradKernel *s, LLVMValueRef base, LLVMValueRef i) {
  LLVMValueRef at = emit_offset(s->e, base, emit_mul(s->e, i, emit_i64(s->e, sizeof(float))));
  return emit_splat(s->e, emit_load(s->e, s->e->f32, at, 4), LANES);
}

LLVMValueRef grad_decay(GradKernel *s, LLVMValueRef decay, LLVMValueRef i) {
  return grad_number(s, decay, s->spec->fades_by_rows ? i : emit_i64(s->e, 0));
}

/* Many rows at once since a tree is a long chain for few numbers. */
LLVMValueRef grad_trees(GradKernel *s, LLVMValueRef sums) {
  LLVMValueRef lanes[LANES];
  for (unsigned i = 0; i < LANES; i++) { /* reducer_sums turns a square of them */
    LLVMValueRef at = emit_i64(s->e, (int64_t)((i % 4 * 4 + i / 4) * LANES * sizeof(float)));
    lanes[i] = grad_vector(s, sums, at);
  }
  return reducer_sums(s->e, lanes);
}

/* Which of the rows that go together there are. */
static LLVMValueRef row_mask(GradKernel *s, LLVMValueRef n) {
  LLVMValueRef count = LLVMBuildTrunc(s->e->builder, n, s->e->i32, "");
  return emit_icmp(s->e, LLVMIntSLT, emit_ramp(s->e, ROWS_TOGETHER), emit_splat(s->e, count, ROWS_TOGETHER));
}

void grad_store_numbers(GradKernel *s, LLVMValueRef base, LLVMValueRef i, LLVMValueRef n, LLVMValueRef numbers) {
  LLVMValueRef at = emit_offset(s->e, base, emit_mul(s->e, i, emit_i64(s->e, sizeof(float))));
  emit_store_masked(s->e, numbers, at, row_mask(s, n), 4);
}

static void fetch_number(GradKernel *s, LLVMValueRef base, LLVMValueRef i) {
  emit_prefetch(s->e, emit_offset(s->e, base, emit_mul(s->e, i, emit_i64(s->e, sizeof(float)))), 3);
}

/* Numbers that do not begin with a line end in one more. */
void grad_fetch(GradKernel *s, LLVMValueRef base, LLVMValueRef numbers) {
  Emitter *e = s->e;
  Loop lines = loop_begin(e, emit_i64(e, 0), numbers, e->target->cache_line / (int64_t)sizeof(float));
  fetch_number(s, base, lines.index);
  loop_end(e, &lines);
  fetch_number(s, base, emit_sub(e, numbers, emit_i64(e, 1)));
}

// ---- the columns of a step ----

static void store_columns(GradKernel *s, LLVMValueRef base, Lanes x, const ColumnBlock *block) {
  for (unsigned i = 0; i < s->vectors; i++)
    emit_store_masked(s->e, x.v[i], emit_offset(s->e, base, grad_vector_at(s, block->at, i)), block->masks[i], 4);
}

/* What is written gets nothing yet. */
static void clear_gets(GradKernel *s) {
  Loop blocks = loop_begin(s->e, emit_i64(s->e, 0), s->blocks, 1);
  const ColumnBlock block = grad_block(s, blocks.index);
  grad_store_line(s, s->gets, lanes_splat(s->e, emit_f32(s->e, 0)), &block);
  loop_end(s->e, &blocks);
}

/* What v gets for what a block writes; what beta gets is added to `sum`, or stored. What keys read lies in dv. */
static void emit_columns_of(GradKernel *s, LLVMValueRef t, const ColumnBlock *block, LLVMValueRef *sum) {
  Emitter *e = s->e;
  Lanes gets = grad_line(s, s->gets, block), taken = gets;
  if (s->spec->beta != TFM_BETA_NONE) {
    Lanes beta = grad_beta(s, t, block), reads = grad_columns(s, GRAD_STEP(s, dv, t), block);
    Lanes of_beta = lanes_mul(e, gets, lanes_sub(e, grad_columns(s, GRAD_STEP(s, v, t), block), reads));
    taken = lanes_mul(e, beta, gets);
    if (s->spec->beta == TFM_BETA_EACH) store_columns(s, GRAD_STEP(s, dbeta, t), of_beta, block);
    else for (unsigned i = 0; i < s->vectors; i++) *sum = LLVMBuildFAdd(e->builder, *sum, of_beta.v[i], "");
    grad_store_line(s, s->taken, taken, block);
  }
  store_columns(s, GRAD_STEP(s, dv, t), taken, block);
}

static void emit_columns(GradKernel *s, LLVMValueRef t) {
  Emitter *e = s->e;
  Loop blocks = loop_begin(e, emit_i64(e, 0), s->blocks, 1);
  LLVMValueRef sum = loop_carry(e, &blocks, LLVMConstNull(lanes_type(e->f32)));
  const ColumnBlock block = grad_block(s, blocks.index);
  emit_columns_of(s, t, &block, &sum);
  loop_next(&blocks, 0, sum);
  loop_end(e, &blocks);
  if (s->spec->beta != TFM_BETA_ONE) return;
  reducer_tree(e, &reducer_sum, &blocks.results[0]);
  emit_store(e, blocks.results[0], GRAD_STEP(s, dbeta, t), 4);
}

// ---- a walk over the rows ----

static RowNumbers numbers_of(GradKernel *s, const Back *walk, LLVMValueRef i) {
  RowNumbers of = {0};
  if (walk->k) of.key = grad_number(s, walk->k, i), of.minus_key = LLVMBuildFNeg(s->e->builder, of.key, "");
  if (walk->decay) of.decay = grad_decay(s, walk->decay, i);
  if (walk->next_k) of.next_key = grad_number(s, walk->next_k, i), of.next_query = grad_number(s, walk->next_q, i);
  if (walk->next_decay) of.next_decay = grad_decay(s, walk->next_decay, i);
  return of;
}

typedef struct LineVectors { /* of the columns of a vector */
  LLVMValueRef written, taken, next_given, next_written, gets;
} LineVectors;

static LineVectors line_vectors(GradKernel *s, const Back *walk, LLVMValueRef at) {
  LineVectors of = {0};
  if (walk->k) of.written = grad_vector(s, walk->written, at);
  if (walk->k && s->spec->beta != TFM_BETA_NONE) of.taken = grad_vector(s, s->taken, at);
  if (walk->next_k) of.next_given = grad_vector(s, walk->next_given, at), of.gets = grad_vector(s, s->gets, at);
  if (walk->next_written) of.next_written = grad_vector(s, walk->next_written, at);
  return of;
}

/* A vector along a row: adds to the sums. What the state behind the step gets, `state`, becomes what that before it
 * gets. */
static LLVMValueRef emit_along(GradKernel *s, const RowNumbers *of, const LineVectors *lines, LLVMValueRef before,
                               LLVMValueRef state, Along *sums) {
  Emitter *e = s->e;
  LLVMValueRef left = state;
  sums->k = emit_fma(e, state, lines->written, sums->k);
  if (lines->taken) {
    LLVMValueRef faded = of->decay ? LLVMBuildFMul(e->builder, of->decay, before, "") : before;
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

/* The state before the step, of what the walk has in memory. */
static LLVMValueRef state_before(GradKernel *s, const RowNumbers *of, const LineVectors *lines, LLVMValueRef kept) {
  if (!lines->next_written) return kept;
  LLVMValueRef faded = of->next_decay ? LLVMBuildFMul(s->e->builder, of->next_decay, kept, "") : kept;
  return emit_fma(s->e, of->next_key, lines->next_written, faded);
}

/* A vector of each row, `at` bytes from its beginning. Down the columns the step before is added to what the state
 * gets, and to what its key reads of that. */
static void emit_part(GradKernel *s, const Back *walk, Turn *turn, LLVMValueRef at) {
  LineVectors lines = line_vectors(s, walk, at);
  for (unsigned i = 0; i < turn->n; i++) {
    const RowNumbers *of = &turn->numbers[i];
    LLVMValueRef place = emit_add(s->e, turn->rows[i], at), state = grad_vector(s, s->state, place);
    if (walk->k) {
      LLVMValueRef before = state_before(s, of, &lines, grad_vector(s, walk->before, place));
      state = emit_along(s, of, &lines, before, state, &turn->sums[i]);
    }
    if (walk->next_k) {
      state = emit_fma(s->e, of->next_query, lines.next_given, state);
      lines.gets = emit_fma(s->e, of->next_key, state, lines.gets);
    }
    grad_store_vector(s, s->state, place, state);
  }
  if (walk->next_k) grad_store_vector(s, s->gets, at, lines.gets);
}

/* Of Along: what is taken out, and factors, may not be there. */
static bool takes_sum(const GradKernel *s, unsigned sum) {
  return sum == 0 || (sum == 1 ? s->spec->beta != TFM_BETA_NONE : s->spec->fades);
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
    LLVMValueRef *const own[N_SUMS] = {&sums->k, &sums->taken, &sums->decay};
    memcpy(all + r * N_SUMS, own, sizeof own);
  }
  Loop blocks = loop_begin(e, emit_i64(e, 0), s->blocks, 1);
  for (unsigned j = 0; j < n * N_SUMS; j++) *all[j] = loop_carry(e, &blocks, LLVMConstNull(lanes_type(e->f32)));
  LLVMValueRef block = emit_mul(e, blocks.index, grad_block_bytes(s));
  for (unsigned j = 0; j < s->vectors; j++) emit_part(s, walk, &turn, grad_vector_at(s, block, j));
  for (unsigned j = 0; j < n * N_SUMS; j++) loop_next(&blocks, j, *all[j]);
  loop_end(e, &blocks);
  for (unsigned j = 0; j < n * N_SUMS; j++) *all[j] = blocks.results[j];
  return turn;
}

/* Sums of as many rows lie together. */
static LLVMValueRef sums_at(GradKernel *s, unsigned sum) {
  return emit_offset(s->e, s->sums, emit_i64(s->e, (int64_t)(sum * ROWS_TOGETHER * LANES * sizeof(float))));
}

static void keep_sums(GradKernel *s, LLVMValueRef row, const Along *sums) {
  const LLVMValueRef all[N_SUMS] = {sums->k, sums->taken, sums->decay};
  LLVMValueRef at = emit_mul(s->e, row, emit_i64(s->e, LANES * sizeof(float)));
  for (unsigned j = 0; j < N_SUMS; j++)
    if (takes_sum(s, j)) grad_store_vector(s, sums_at(s, j), at, all[j]);
}

/* Adds the lanes of the sums of `n` rows from row i on: gives what k gets, and what the factors of rows get. Returns
 * what factors get. */
static LLVMValueRef emit_sums(GradKernel *s, const Back *walk, LLVMValueRef i, LLVMValueRef n) {
  LLVMValueRef of[N_SUMS] = {NULL};
  for (unsigned j = 0; j < N_SUMS; j++)
    if (takes_sum(s, j)) of[j] = grad_trees(s, sums_at(s, j));
  if (of[1]) of[0] = LLVMBuildFSub(s->e->builder, of[0], of[1], "");
  grad_store_numbers(s, walk->dk, i, n, of[0]);
  if (s->spec->fades_by_rows) grad_store_numbers(s, walk->ddecay, i, n, of[2]);
  return of[2];
}

/* The factors of rows are one: adds what those of `n` rows get, in order; -0, which changes no sum, for the others. */
static LLVMValueRef add_in_order(GradKernel *s, LLVMValueRef sum, LLVMValueRef numbers, LLVMValueRef n) {
  Emitter *e = s->e;
  numbers = emit_select(e, row_mask(s, n), numbers, emit_splat(e, emit_f32(e, -0.0), ROWS_TOGETHER));
  for (unsigned j = 0; j < ROWS_TOGETHER; j++) {
    LLVMValueRef number = LLVMBuildExtractElement(e->builder, numbers, emit_i32(e, j), "");
    sum = LLVMBuildFAdd(e->builder, sum, number, "");
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

static void place_step(GradKernel *s, LLVMValueRef t, LLVMValueRef before, Back *walk) {
  walk->before = before, walk->written = GRAD_STEP(s, written, t);
  walk->k = GRAD_STEP(s, k, t), walk->dk = GRAD_STEP(s, dk, t);
  if (s->spec->fades) walk->decay = GRAD_STEP(s, decay, t), walk->ddecay = GRAD_STEP(s, ddecay, t);
}

static LLVMValueRef state_at(GradKernel *s, LLVMValueRef t) {
  LLVMValueRef is_first = emit_icmp(s->e, LLVMIntEQ, t, emit_i64(s->e, 0));
  return emit_select(s->e, is_first, GRAD_ARG(s, first, pointer), GRAD_STEP(s, before, t));
}

static void place_next(GradKernel *s, LLVMValueRef t, Back *walk) {
  clear_gets(s);
  walk->next_given = GRAD_STEP(s, given, t), walk->next_k = GRAD_STEP(s, k, t), walk->next_q = GRAD_STEP(s, q, t);
}

/* What the next walk takes: operands of neighbouring steps lie far apart, so the processor does not foresee them. */
static void fetch_step(GradKernel *s, LLVMValueRef t) {
  LLVMValueRef columns = GRAD_ARG(s, columns, i64);
  grad_fetch(s, GRAD_STEP(s, q, t), s->n), grad_fetch(s, GRAD_STEP(s, k, t), s->n);
  grad_fetch(s, GRAD_STEP(s, dk, t), s->n), grad_fetch(s, GRAD_STEP(s, dv, t), columns);
  if (s->spec->beta != TFM_BETA_NONE) grad_fetch(s, GRAD_STEP(s, v, t), columns);
  if (s->spec->beta == TFM_BETA_EACH) grad_fetch(s, GRAD_STEP(s, beta, t), columns);
  if (s->spec->beta == TFM_BETA_EACH) grad_fetch(s, GRAD_STEP(s, dbeta, t), columns);
  if (s->spec->fades_by_rows) grad_fetch(s, GRAD_STEP(s, decay, t), s->n), grad_fetch(s, GRAD_STEP(s, ddecay, t), s->n);
}

/* Along the rows of step t and down the columns of the one before. States are kept before even steps alone. */
static void emit_both(GradKernel *s, LLVMValueRef t, LLVMValueRef next, bool is_odd) {
  Back walk = {0};
  place_step(s, t, state_at(s, is_odd ? next : t), &walk);
  place_next(s, next, &walk);
  if (is_odd) walk.next_written = GRAD_STEP(s, written, next);
  if (is_odd && s->spec->fades) walk.next_decay = GRAD_STEP(s, decay, next);
  emit_walk(s, &walk);
}

/* From the last step to the first: down the columns of the last one, then along rows and down columns, then along the
 * rows of the first one. */
static void emit_stretch(GradKernel *s) {
  Emitter *e = s->e;
  LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1), last = emit_sub(e, GRAD_ARG(s, steps, i64), one);
  Back begins = {0}, ends = {0};
  place_next(s, last, &begins);
  emit_walk(s, &begins);
  emit_columns(s, last);
  Loop steps = loop_begin(e, zero, last, 1);
  LLVMValueRef t = emit_sub(e, last, steps.index), next = emit_sub(e, t, one);
  LLVMValueRef is_odd = emit_icmp(e, LLVMIntNE, LLVMBuildAnd(e->builder, t, one, ""), zero);
  LLVMBasicBlockRef odd = emit_block(e, "odd"), even = emit_block(e, "even"), done = emit_block(e, "done");
  fetch_step(s, emit_sub(e, next, one));
  emit_branch(e, is_odd, odd, even);
  emit_at(e, odd), emit_both(s, t, next, true), emit_jump(e, done);
  emit_at(e, even), emit_both(s, t, next, false), emit_jump(e, done);
  emit_at(e, done), emit_columns(s, next);
  loop_end(e, &steps);
  place_step(s, zero, GRAD_ARG(s, first, pointer), &ends);
  emit_walk(s, &ends);
}

void emit_STATE_GRAD(Emitter *e, const KernelSpec *spec, const char *name) {
  GradKernel s = grad_kernel(e, spec, KERNEL_STATE_GRAD, name);
  s.state = GRAD_ARG(&s, state, pointer);
  s.taken = GRAD_ARG(&s, lines, pointer), s.gets = emit_offset(e, s.taken, s.row);
  s.sums = emit_stack(e, LLVMArrayType2(lanes_type(e->f32), N_SUMS * ROWS_TOGETHER), 64);
  emit_stretch(&s);
  LLVMBuildRetVoid(e->builder);
}
