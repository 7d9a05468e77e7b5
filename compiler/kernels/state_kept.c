/* STATE_KEPT: the states before the steps of a stretch of linear attention, and what its queries get
 * (tfm_state_grad_kernel).
 *
 * In: the columns of a block, whether the state fades, by one factor or by one for each of its rows, and what a step
 * takes out before it writes. Out: a function. What the key of each step reads is known, so rows of the state do not
 * wait for each other: a row stays in registers for all steps, and is only stored. Behind each step it is multiplied by
 * what y gets. What steps write, and what y gets, goes into lines, which STATE_GRAD takes too. Order and rounding of
 * every element are those of one step after the other. Refuses nothing. */
#include "kernels/kernel_tuning.h"
#include "kernels/state_grad.h"

/* What step t writes, and what y gets, in lines. */
static void emit_lines_of(GradKernel *s, LLVMValueRef t) {
  Emitter *e = s->e;
  Loop blocks = loop_begin(e, emit_i64(e, 0), s->blocks, 1);
  const ColumnBlock block = grad_block(s, blocks.index);
  Lanes written = grad_columns(s, GRAD_STEP(s, v, t), &block);
  if (s->spec->beta != TFM_BETA_NONE) {
    Lanes reads = grad_columns(s, GRAD_STEP(s, dv, t), &block);
    written = lanes_mul(e, grad_beta(s, t, &block), lanes_sub(e, written, reads));
  }
  grad_store_line(s, GRAD_STEP(s, written, t), written, &block);
  grad_store_line(s, GRAD_STEP(s, given, t), grad_columns(s, GRAD_STEP(s, g, t), &block), &block);
  loop_end(e, &blocks);
}

static void emit_lines(GradKernel *s) {
  Emitter *e = s->e;
  Loop steps = loop_begin(e, emit_i64(e, 0), GRAD_ARG(s, steps, i64), 1);
  grad_fetch(s, GRAD_STEP(s, k, steps.index), s->n), grad_fetch(s, GRAD_STEP(s, dq, steps.index), s->n);
  if (s->spec->fades_by_rows) grad_fetch(s, GRAD_STEP(s, decay, steps.index), s->n);
  emit_lines_of(s, steps.index);
  loop_end(e, &steps);
}

typedef struct KeptRows { /* a block of neighbouring rows */
  unsigned n;
  LLVMValueRef first, in_group; /* of all rows, of those whose sums go through their trees together */
  LLVMValueRef goes_on;         /* sums of the blocks before it go on, in all lanes */
  ColumnBlock block, places[STATE_GRAD_ROWS]; /* of a line, of a state */
  Lanes state[STATE_GRAD_ROWS];
} KeptRows;

/* Sums of a step for the rows of a group. */
static LLVMValueRef sums_of(GradKernel *s, LLVMValueRef t) {
  const int64_t bytes = (int64_t)(STATE_ROWS_TOGETHER * LANES * sizeof(float));
  return emit_offset(s->e, s->sums, emit_mul(s->e, t, emit_i64(s->e, bytes)));
}

/* Writes step t, and reads it for what its query gets. */
static void emit_row_step(GradKernel *s, LLVMValueRef t, KeptRows *rows) {
  Emitter *e = s->e;
  Lanes written = grad_line(s, GRAD_STEP(s, written, t), &rows->block), given;
  LLVMValueRef at = emit_offset(e, sums_of(s, t), emit_mul(e, rows->in_group, emit_i64(e, LANES * sizeof(float))));
  for (unsigned r = 0; r < rows->n; r++) {
    LLVMValueRef i = emit_add(e, rows->first, emit_i64(e, r));
    Lanes key = lanes_same(grad_number(s, GRAD_STEP(s, k, t), i)), *state = &rows->state[r];
    if (s->spec->fades) *state = lanes_mul(e, lanes_same(grad_decay(s, GRAD_STEP(s, decay, t), i)), *state);
    *state = lanes_fma(e, key, written, *state);
  }
  given = grad_line(s, GRAD_STEP(s, given, t), &rows->block);
  for (unsigned r = 0; r < rows->n; r++) {
    LLVMValueRef own = emit_offset(e, at, emit_i64(e, (int64_t)(r * LANES * sizeof(float))));
    LLVMValueRef sum = emit_load_masked(e, lanes_type(e->f32), own, rows->goes_on, 64);
    for (unsigned j = 0; j < s->vectors; j++) sum = emit_fma(e, rows->state[r].v[j], given.v[j], sum);
    emit_store(e, sum, own, 64);
  }
}

/* Rows go through steps from `first` on, `stored` of them at once if they are stored behind these, as the state before
 * the next step; returns the first step that is left. */
static LLVMValueRef emit_steps(GradKernel *s, KeptRows *rows, LLVMValueRef first, LLVMValueRef end, unsigned stored) {
  Emitter *e = s->e;
  const unsigned n = s->vectors, all = rows->n * n;
  Loop steps = loop_begin(e, first, emit_sub(e, end, emit_i64(e, stored)), stored ? stored : 1);
  for (unsigned j = 0; j < all; j++) rows->state[j / n].v[j % n] = loop_carry(e, &steps, rows->state[j / n].v[j % n]);
  emit_row_step(s, steps.index, rows);
  for (unsigned i = 1; i < stored; i++) emit_row_step(s, emit_add(e, steps.index, emit_i64(e, i)), rows);
  LLVMValueRef next = GRAD_STEP(s, before, emit_add(e, steps.index, emit_i64(e, stored)));
  for (unsigned r = 0; r < rows->n && stored; r++) grad_store_line(s, next, rows->state[r], &rows->places[r]);
  for (unsigned j = 0; j < all; j++) loop_next(&steps, j, rows->state[j / n].v[j % n]);
  loop_end(e, &steps);
  for (unsigned j = 0; j < all; j++) rows->state[j / n].v[j % n] = steps.results[j];
  return steps.last;
}

/* Through all steps: the states before every TFM_STATE_APART'th of them are stored. */
static void emit_rows(GradKernel *s, KeptRows *rows) {
  LLVMValueRef end = GRAD_ARG(s, steps, i64), first = GRAD_ARG(s, first, pointer);
  for (unsigned r = 0; r < rows->n; r++) rows->state[r] = grad_line(s, first, &rows->places[r]);
  LLVMValueRef rest = emit_steps(s, rows, emit_i64(s->e, 0), end, TFM_STATE_APART);
  emit_steps(s, rows, rest, end, 0);
}

/* Rows [first, end) of a group that begins with row i, `n` of them in a turn; returns the first that is left. */
static LLVMValueRef emit_turns(GradKernel *s, KeptRows rows, LLVMValueRef i, LLVMValueRef first, LLVMValueRef end) {
  Emitter *e = s->e;
  Loop turns = loop_begin(e, first, emit_sub(e, end, emit_i64(e, rows.n - 1)), rows.n);
  rows.in_group = turns.index, rows.first = emit_add(e, i, turns.index);
  for (unsigned r = 0; r < rows.n; r++) {
    LLVMValueRef row = emit_mul(e, s->row, emit_add(e, rows.first, emit_i64(e, r)));
    rows.places[r].at = emit_add(e, row, rows.block.at);
  }
  emit_rows(s, &rows);
  loop_end(e, &turns);
  return turns.last;
}

/* Rows from row i on whose sums go through their trees together: block by block, then what queries get. */
static void emit_group(GradKernel *s, LLVMValueRef i, LLVMValueRef n) {
  Emitter *e = s->e;
  LLVMValueRef zero = emit_i64(e, 0);
  const unsigned most = e->target->vector_floats == LANES ? STATE_GRAD_ROWS : 1;
  Loop blocks = loop_begin(e, zero, s->blocks, 1);
  KeptRows rows = {.n = most, .block = {.at = emit_mul(e, blocks.index, grad_block_bytes(s))}};
  rows.goes_on = emit_splat(e, emit_icmp(e, LLVMIntNE, blocks.index, zero), LANES);
  LLVMValueRef left = emit_turns(s, rows, i, zero, n);
  rows.n = 1;
  if (most > 1) emit_turns(s, rows, i, left, n);
  loop_end(e, &blocks);
  Loop steps = loop_begin(e, zero, GRAD_ARG(s, steps, i64), 1);
  grad_store_numbers(s, GRAD_STEP(s, dq, steps.index), i, n, grad_trees(s, sums_of(s, steps.index)));
  loop_end(e, &steps);
}

void emit_STATE_KEPT(Emitter *e, const KernelSpec *spec, const char *name) {
  GradKernel s = grad_kernel(e, spec, KERNEL_STATE_KEPT, name);
  s.sums = GRAD_ARG(&s, sums, pointer);
  emit_lines(&s);
  Loop groups = loop_begin(e, emit_i64(e, 0), s.n, STATE_ROWS_TOGETHER);
  LLVMValueRef n = emit_least(e, emit_sub(e, s.n, groups.index), emit_i64(e, STATE_ROWS_TOGETHER));
  emit_group(&s, groups.index, n);
  loop_end(e, &groups);
  LLVMBuildRetVoid(e->builder);
}
