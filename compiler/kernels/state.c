/* STATE: the steps of a block of columns of a state (tfm_state_kernel).
 *
 * In: the columns of a block, what the walk leaves, whether the state fades, and what a step takes out before it
 * writes. Out: a function. The state is walked once for each step: the walk that writes step t and reads it by the
 * query also fades the state for step t + 1 and reads it by its key. Order and rounding of every element are those of
 * one step after the other. Refuses nothing. */
#include <stddef.h>

#include "codegen/vector.h"
#include "kernels/emit.h"
#include "kernels/kernel_tuning.h"

enum { MOST_VECTORS = TFM_STATE_COLUMNS / LANES, LINE = LANES * sizeof(float) };

typedef struct StateKernel {
  Emitter *e;
  const KernelSpec *spec;
  LLVMValueRef args, state, n;
  unsigned vectors; /* of a block */
  LLVMValueRef masks[MOST_VECTORS]; /* of the columns that there are */
} StateKernel;

typedef struct Rows { /* of a state in memory; base NULL: nowhere */
  LLVMValueRef base, bytes; /* from row to row */
  unsigned align;
  bool is_far; /* written past the caches */
} Rows;

typedef struct Written { /* a step that a walk writes; NULL: it does not fade, gives nothing */
  LLVMValueRef fade, k, q;
  Lanes u;
} Written;

enum { MOST_SUMS = STATE_STEPS + 1 };

typedef struct Walk { /* over the rows of the state; what a walk does not do is NULL */
  Rows from, to;
  unsigned n_written;
  Written written[STATE_STEPS];
  Rows kept;                  /* where it is left behind these steps */
  LLVMValueRef k_read, decay; /* of the step that reads next */
  const Rows *soon;           /* what is written by the next walk, if that is the last one; `from` is as far away */
} Walk;

#define ARG(kernel, member, type) \
  emit_load((kernel)->e, (kernel)->e->type, emit_offset((kernel)->e, (kernel)->args, \
            emit_i64((kernel)->e, (int64_t)offsetof(tfm_state_args, member))), 8)

static LLVMValueRef at_step(StateKernel *s, LLVMValueRef base, LLVMValueRef step_bytes, LLVMValueRef t) {
  return emit_offset(s->e, base, emit_mul(s->e, step_bytes, t));
}

static LLVMValueRef vector_at(StateKernel *s, LLVMValueRef base, unsigned i) {
  return emit_offset(s->e, base, emit_i64(s->e, (int64_t)(i * LANES * sizeof(float))));
}

static Lanes load_columns(StateKernel *s, LLVMValueRef base) {
  Lanes x;
  for (unsigned i = 0; i < s->vectors; i++)
    x.v[i] = emit_load_masked(s->e, lanes_type(s->e->f32), vector_at(s, base, i), s->masks[i], 4);
  return x;
}

static void store_columns(StateKernel *s, LLVMValueRef base, Lanes x) {
  for (unsigned i = 0; i < s->vectors; i++)
    emit_store_masked(s->e, x.v[i], vector_at(s, base, i), s->masks[i], 4);
}

/* The number that row i takes, in all lanes. */
static Lanes number_of_row(StateKernel *s, LLVMValueRef base, LLVMValueRef i) {
  LLVMValueRef at = emit_offset(s->e, base, emit_mul(s->e, i, emit_i64(s->e, sizeof(float))));
  return lanes_splat(s->e, emit_load(s->e, s->e->f32, at, 4));
}

/* Factors of the rows; one that all take is loaded before the walk. NULL: nothing. */
typedef struct Factors {
  LLVMValueRef base;
  Lanes all;
} Factors;

static Factors factors_at(StateKernel *s, LLVMValueRef base) {
  Factors factors = {.base = base};
  if (base && !s->spec->fades_by_rows) factors.all = lanes_splat(s->e, emit_load(s->e, s->e->f32, base, 4));
  return factors;
}

static Lanes faded(StateKernel *s, const Factors *factors, LLVMValueRef i, Lanes row) {
  if (!factors->base) return row;
  Lanes factor = s->spec->fades_by_rows ? number_of_row(s, factors->base, i) : factors->all;
  return lanes_mul(s->e, factor, row);
}

/* Rows of the state in scratch, which are aligned. */
static Rows scratch_rows(StateKernel *s) {
  return (Rows){
      .base = s->state, .bytes = emit_i64(s->e, (int64_t)(s->vectors * LANES * sizeof(float))), .align = LINE};
}

static void store_row(StateKernel *s, const Rows *rows, LLVMValueRef i, Lanes row) {
  if (!rows->base) return;
  LLVMValueRef at = emit_offset(s->e, rows->base, emit_mul(s->e, i, rows->bytes));
  for (unsigned j = 0; j < s->vectors; j++) {
    if (rows->is_far) emit_store_past_caches(s->e, row.v[j], vector_at(s, at, j), rows->align);
    else emit_store(s->e, row.v[j], vector_at(s, at, j), rows->align);
  }
}

/* Rows of a state lie further apart than a block is wide, over many pages, so the processor does not foresee them. A
 * walk of one step ends at memory as far away as that where it began. */
static void ask_for_row(StateKernel *s, const Rows *rows, LLVMValueRef i, int64_t ahead) {
  Emitter *e = s->e;
  LLVMValueRef row = emit_offset(e, rows->base, emit_mul(e, emit_add(e, i, emit_i64(e, ahead)), rows->bytes));
  for (unsigned at = 0; at < s->vectors * LANES * sizeof(float); at += e->target->cache_line)
    emit_prefetch(e, emit_offset(e, row, emit_i64(e, at)), 3);
}

static Lanes load_row(StateKernel *s, const Walk *walk, LLVMValueRef i) {
  Lanes row;
  LLVMValueRef at = emit_offset(s->e, walk->from.base, emit_mul(s->e, i, walk->from.bytes));
  if (walk->soon) ask_for_row(s, &walk->from, i, STATE_AHEAD);
  if (walk->soon && !walk->soon->is_far) ask_for_row(s, walk->soon, i, 0);
  for (unsigned j = 0; j < s->vectors; j++)
    row.v[j] = emit_load(s->e, lanes_type(s->e->f32), vector_at(s, at, j), walk->from.align);
  return row;
}

/* A row of the walk, from what `from` holds; `sums`: what queries read so far, then what the next key reads. */
static void emit_row_of(StateKernel *s, const Walk *walk, LLVMValueRef i, const Factors *fades, Lanes *sums) {
  Emitter *e = s->e;
  Lanes row = load_row(s, walk, i), *all[MOST_SUMS + 1] = {&row}; /* before stores: those of a row go out together */
  unsigned n = 1;
  for (unsigned w = 0; w < walk->n_written; w++) {
    const Written *of = &walk->written[w];
    row = lanes_fma(e, number_of_row(s, of->k, i), of->u, faded(s, &fades[w], i, row));
    if (!of->q) continue;
    sums[w] = lanes_fma(e, number_of_row(s, of->q, i), row, sums[w]);
    all[n++] = &sums[w];
  }
  store_row(s, &walk->kept, i, row);
  row = faded(s, &fades[walk->n_written], i, row);
  if (walk->k_read) {
    sums[walk->n_written] = lanes_fma(e, number_of_row(s, walk->k_read, i), row, sums[walk->n_written]);
    all[n++] = &sums[walk->n_written];
  }
  if (walk->to.base && s->spec->part != STATE_GIVES_ONE) lanes_await(e, all, n);
  store_row(s, &walk->to, i, row);
}

/* Walks the rows; gives what the query of each step reads, then what the next key reads. */
static void emit_walk(StateKernel *s, const Walk *walk, Lanes *sums) {
  Emitter *e = s->e;
  const unsigned n_sums = walk->n_written + 1, n = n_sums * s->vectors;
  Factors fades[MOST_SUMS];
  for (unsigned w = 0; w < walk->n_written; w++) fades[w] = factors_at(s, walk->written[w].fade);
  fades[walk->n_written] = factors_at(s, walk->decay);
  Loop rows = loop_begin(e, emit_i64(e, 0), s->n, 1);
  for (unsigned j = 0; j < n; j++)
    sums[j / s->vectors].v[j % s->vectors] = loop_carry(e, &rows, LLVMConstNull(lanes_type(e->f32)));
  emit_row_of(s, walk, rows.index, fades, sums);
  for (unsigned j = 0; j < n; j++) loop_next(&rows, j, sums[j / s->vectors].v[j % s->vectors]);
  loop_end(e, &rows);
  for (unsigned j = 0; j < n; j++) sums[j / s->vectors].v[j % s->vectors] = rows.results[j];
}

/* What a step writes; `r`: what its key reads. */
static Lanes emit_written(StateKernel *s, LLVMValueRef t, Lanes r) {
  Lanes v = load_columns(s, at_step(s, ARG(s, v, pointer), ARG(s, v_step, i64), t));
  if (s->spec->beta == TFM_BETA_NONE) return v;
  LLVMValueRef at = at_step(s, ARG(s, beta, pointer), ARG(s, beta_step, i64), t);
  Lanes beta = s->spec->beta == TFM_BETA_EACH ? load_columns(s, at)
                                              : lanes_splat(s->e, emit_load(s->e, s->e->f32, at, 4));
  return lanes_mul(s->e, beta, lanes_sub(s->e, v, r));
}

static LLVMValueRef k_at(StateKernel *s, LLVMValueRef t) {
  return at_step(s, ARG(s, k, pointer), ARG(s, k_step, i64), t);
}

static LLVMValueRef decay_at(StateKernel *s, LLVMValueRef t) {
  return s->spec->fades ? at_step(s, ARG(s, decay, pointer), ARG(s, decay_step, i64), t) : NULL;
}

static LLVMValueRef read_at(StateKernel *s, LLVMValueRef t) {
  return s->spec->beta == TFM_BETA_NONE ? NULL : k_at(s, t);
}

// ---- what the next walk takes ----

static void fetch_number(StateKernel *s, LLVMValueRef base, LLVMValueRef i) {
  emit_prefetch(s->e, emit_offset(s->e, base, emit_mul(s->e, i, emit_i64(s->e, sizeof(float)))), 3);
}

/* Steps of an operand lie further apart than they are long, so the processor does not foresee them. Where they do not
 * begin with a line, they end in one more. */
static void fetch_numbers(StateKernel *s, LLVMValueRef base) {
  Emitter *e = s->e;
  Loop lines = loop_begin(e, emit_i64(e, 0), s->n, e->target->cache_line / (int64_t)sizeof(float));
  fetch_number(s, base, lines.index);
  loop_end(e, &lines);
  fetch_number(s, base, emit_sub(e, s->n, emit_i64(e, 1)));
}

static void fetch_columns(StateKernel *s, LLVMValueRef base) {
  const unsigned columns = s->vectors * LANES, of_line = s->e->target->cache_line / sizeof(float);
  for (unsigned i = 0; i < columns; i += of_line) fetch_number(s, base, emit_i64(s->e, i));
  fetch_number(s, base, emit_i64(s->e, columns - 1));
}

/* What step t reads by, and what it writes and gives. */
static void fetch_key(StateKernel *s, LLVMValueRef t) {
  fetch_numbers(s, k_at(s, t));
  if (s->spec->fades_by_rows) fetch_numbers(s, decay_at(s, t));
}

static void fetch_rest(StateKernel *s, LLVMValueRef t) {
  fetch_columns(s, at_step(s, ARG(s, v, pointer), ARG(s, v_step, i64), t));
  if (s->spec->beta == TFM_BETA_EACH) fetch_columns(s, at_step(s, ARG(s, beta, pointer), ARG(s, beta_step, i64), t));
  if (s->spec->part == STATE_PASSES && s->spec->beta != TFM_BETA_NONE)
    fetch_columns(s, at_step(s, ARG(s, reads, pointer), ARG(s, reads_step, i64), t));
  if (s->spec->part != STATE_GIVES) return;
  fetch_numbers(s, at_step(s, ARG(s, q, pointer), ARG(s, q_step, i64), t));
  fetch_columns(s, at_step(s, ARG(s, y, pointer), ARG(s, y_step, i64), t));
}

// ---- what steps give, and the state behind them ----

static Written written_at(StateKernel *s, LLVMValueRef t, LLVMValueRef fade, Lanes u) {
  const bool gives = s->spec->part == STATE_GIVES || s->spec->part == STATE_GIVES_ONE;
  return (Written){.fade = fade, .k = k_at(s, t), .u = u,
                   .q = gives ? at_step(s, ARG(s, q, pointer), ARG(s, q_step, i64), t) : NULL};
}

static void give(StateKernel *s, LLVMValueRef t, Lanes y) {
  if (s->spec->part == STATE_GIVES) store_columns(s, at_step(s, ARG(s, y, pointer), ARG(s, y_step, i64), t), y);
}

static Rows rows_before(StateKernel *s) {
  return (Rows){.base = ARG(s, in, pointer), .bytes = ARG(s, in_row, i64), .align = 4};
}
static Rows rows_behind(StateKernel *s) {
  return (Rows){.base = ARG(s, out, pointer), .bytes = ARG(s, out_row, i64), .align = 4};
}

/* Writes step t and gives its result; fades and reads for step `next` in the same walk, unless that is NULL. `kept`:
 * where the state behind the step goes too. A walk fetches what the one behind it takes. */
static void emit_step_to(StateKernel *s, LLVMValueRef t, LLVMValueRef next, Rows kept, Lanes *r) {
  Lanes sums[MOST_SUMS];
  const Walk walk = {.n_written = 1, .written = {written_at(s, t, NULL, emit_written(s, t, *r))}, .kept = kept,
                     .from = scratch_rows(s), .k_read = next ? k_at(s, next) : NULL,
                     .decay = next ? decay_at(s, next) : NULL, .to = next ? scratch_rows(s) : rows_behind(s)};
  if (next) fetch_key(s, emit_add(s->e, next, emit_i64(s->e, 1))), fetch_rest(s, next);
  emit_walk(s, &walk, sums);
  give(s, t, sums[0]);
  *r = sums[1];
}

static void emit_step(StateKernel *s, LLVMValueRef t, LLVMValueRef next, Lanes *r) {
  emit_step_to(s, t, next, (Rows){0}, r);
}

typedef void StepEmitter(StateKernel *s, LLVMValueRef t, LLVMValueRef next, Lanes *r);

/* Steps from `first` up to that before `last`; `step` emits one, with what its key reads. Returns that of the last. */
static Lanes emit_all_steps(StateKernel *s, LLVMValueRef first, LLVMValueRef last, Lanes r, StepEmitter *step) {
  Emitter *e = s->e;
  Loop steps = loop_begin(e, first, last, 1);
  for (unsigned i = 0; i < s->vectors; i++) r.v[i] = loop_carry(e, &steps, r.v[i]);
  step(s, steps.index, emit_add(e, steps.index, emit_i64(e, 1)), &r);
  for (unsigned i = 0; i < s->vectors; i++) loop_next(&steps, i, r.v[i]);
  loop_end(e, &steps);
  for (unsigned i = 0; i < s->vectors; i++) r.v[i] = steps.results[i];
  return r;
}

/* Before the first step the state fades and is read by its key; behind the last one neither. */
static Lanes emit_first(StateKernel *s) {
  LLVMValueRef zero = emit_i64(s->e, 0);
  Lanes r;
  const Rows behind = rows_behind(s);
  const Walk walk = {.from = rows_before(s), .to = scratch_rows(s), .k_read = k_at(s, zero),
                     .decay = decay_at(s, zero), .soon = s->spec->part == STATE_GIVES ? &behind : NULL};
  emit_walk(s, &walk, &r);
  return r;
}

static void emit_steps(StateKernel *s, LLVMValueRef last) {
  Lanes r = emit_all_steps(s, emit_i64(s->e, 0), last, emit_first(s), emit_step);
  emit_step(s, last, NULL, &r);
}

static void keep_reads(StateKernel *s, LLVMValueRef t, Lanes r) {
  store_columns(s, at_step(s, ARG(s, reads, pointer), ARG(s, reads_step, i64), t), r);
}

static void emit_read_step(StateKernel *s, LLVMValueRef t, LLVMValueRef next, Lanes *r) {
  keep_reads(s, t, *r);
  emit_step(s, t, next, r);
}

/* Leaves what keys read. The last step of each stretch but the last leaves its state, and the walk goes on. */
static void emit_stretches(StateKernel *s, LLVMValueRef last) {
  Emitter *e = s->e;
  LLVMValueRef one = emit_i64(e, 1), stretch = ARG(s, stretch, i64), kept_row = ARG(s, kept_row, i64);
  Lanes r = emit_first(s);
  Loop stretches = loop_begin(e, emit_i64(e, 0), LLVMBuildSDiv(e->builder, last, stretch, ""), 1);
  for (unsigned i = 0; i < s->vectors; i++) r.v[i] = loop_carry(e, &stretches, r.v[i]);
  LLVMValueRef first = emit_mul(e, stretches.index, stretch), end = emit_sub(e, emit_add(e, first, stretch), one);
  const Rows kept = {.base = at_step(s, ARG(s, kept, pointer), ARG(s, kept_step, i64), stretches.index),
                     .bytes = kept_row,
                     .align = LINE};
  r = emit_all_steps(s, first, end, r, emit_read_step);
  keep_reads(s, end, r);
  emit_step_to(s, end, emit_add(e, end, one), kept, &r);
  for (unsigned i = 0; i < s->vectors; i++) loop_next(&stretches, i, r.v[i]);
  loop_end(e, &stretches);
  for (unsigned i = 0; i < s->vectors; i++) r.v[i] = stretches.results[i];
  r = emit_all_steps(s, emit_mul(e, stretches.last, stretch), last, r, emit_read_step);
  keep_reads(s, last, r);
}

static Rows either(StateKernel *s, LLVMValueRef condition, Rows yes, Rows no) {
  return (Rows){.base = emit_select(s->e, condition, yes.base, no.base),
                .bytes = emit_select(s->e, condition, yes.bytes, no.bytes),
                .align = 4};
}

/* Writes and gives `n` steps from step t on in one walk; `end`: the first that does not exist. */
static void emit_steps_together(StateKernel *s, LLVMValueRef t, unsigned n, LLVMValueRef end) {
  Emitter *e = s->e;
  LLVMValueRef next = emit_add(e, t, emit_i64(e, n)), at[STATE_STEPS];
  Lanes sums[MOST_SUMS] = {{{NULL}}};
  Walk walk = {.n_written = n,
               .from = either(s, emit_icmp(e, LLVMIntEQ, t, emit_i64(e, 0)), rows_before(s), scratch_rows(s)),
               .to = either(s, emit_icmp(e, LLVMIntEQ, next, end), rows_behind(s), scratch_rows(s))};
  for (unsigned i = 0; i < n; i++) {
    LLVMValueRef soon = emit_add(e, next, emit_i64(e, i));
    at[i] = emit_add(e, t, emit_i64(e, i));
    walk.written[i] = written_at(s, at[i], decay_at(s, at[i]), emit_written(s, at[i], sums[0]));
    fetch_key(s, soon), fetch_rest(s, soon);
  }
  emit_walk(s, &walk, sums);
  for (unsigned i = 0; i < n; i++) give(s, at[i], sums[i]);
}

/* Without beta what a step writes does not wait for what its key reads, so a walk takes several steps. */
static void emit_unread_steps(StateKernel *s, LLVMValueRef last) {
  Emitter *e = s->e;
  const unsigned n = e->target->vector_floats == LANES ? STATE_STEPS : 1;
  LLVMValueRef end = emit_add(e, last, emit_i64(e, 1));
  Loop pairs = loop_begin(e, emit_i64(e, 0), emit_sub(e, end, emit_i64(e, n - 1)), n);
  emit_steps_together(s, pairs.index, n, end);
  loop_end(e, &pairs);
  Loop rest = loop_begin(e, pairs.last, end, 1);
  if (n > 1) emit_steps_together(s, rest.index, 1, end);
  loop_end(e, &rest);
}

/* One step takes its time for bytes: what is read once is still in a cache, so it fades a second time, and nothing is
 * written but the state behind the step. */
static void emit_one_step_to(StateKernel *s, Rows behind) {
  LLVMValueRef zero = emit_i64(s->e, 0);
  const Rows before = rows_before(s);
  Lanes r = lanes_splat(s->e, emit_f32(s->e, 0)), sums[MOST_SUMS];
  const Walk reads = {.from = before, .decay = decay_at(s, zero), .k_read = read_at(s, zero), .soon = &behind};
  if (reads.k_read) emit_walk(s, &reads, &r);
  const Walk writes = {.n_written = 1, .written = {written_at(s, zero, decay_at(s, zero), emit_written(s, zero, r))},
                       .from = before, .to = behind, .soon = reads.k_read ? NULL : &behind};
  emit_walk(s, &writes, sums);
  store_columns(s, ARG(s, y, pointer), sums[0]);
}

static unsigned vector_bytes(const StateKernel *s) { return s->e->target->vector_floats * (unsigned)sizeof(float); }

/* Whether vectors lie at multiples of their size, as stores past the caches need it. */
static LLVMValueRef are_aligned(StateKernel *s, const Rows *rows) {
  Emitter *e = s->e;
  LLVMValueRef at = LLVMBuildPtrToInt(e->builder, rows->base, e->i64, "");
  LLVMValueRef both = LLVMBuildOr(e->builder, at, rows->bytes, "");
  return emit_icmp(e, LLVMIntEQ, LLVMBuildAnd(e->builder, both, emit_i64(e, vector_bytes(s) - 1), ""), emit_i64(e, 0));
}

/* Whoever reads the state next, another thread perhaps, finds it there: hence the fence. */
static void emit_one_step(StateKernel *s) {
  Emitter *e = s->e;
  const Rows behind = rows_behind(s);
  if (!s->spec->passes_caches) {
    emit_one_step_to(s, behind);
    return;
  }
  LLVMBasicBlockRef past = emit_block(e, "past"), through = emit_block(e, "through"), done = emit_block(e, "done");
  emit_branch(e, are_aligned(s, &behind), past, through);
  emit_at(e, past);
  emit_one_step_to(s, (Rows){.base = behind.base, .bytes = behind.bytes, .align = vector_bytes(s), .is_far = true});
  LLVMBuildFence(e->builder, LLVMAtomicOrderingSequentiallyConsistent, false, "");
  emit_jump(e, done);
  emit_at(e, through);
  emit_one_step_to(s, behind);
  emit_jump(e, done);
  emit_at(e, done);
}

void emit_STATE(Emitter *e, const KernelSpec *spec, const char *name) {
  LLVMValueRef function = emit_kernel(e, KERNEL_STATE, name);
  emit_parameter_readonly(e, 0);
  StateKernel s = {.e = e, .spec = spec, .args = LLVMGetParam(function, 0), .vectors = spec->width / LANES};
  e->n_vectors = s.vectors;
  s.state = ARG(&s, state, pointer), s.n = ARG(&s, n, i64);
  LLVMValueRef columns = LLVMBuildTrunc(e->builder, ARG(&s, columns, i64), e->i32, "");
  for (unsigned i = 0; i < s.vectors; i++) {
    LLVMValueRef left = LLVMBuildSub(e->builder, columns, emit_i32(e, i * LANES), "");
    s.masks[i] = emit_icmp(e, LLVMIntSLT, emit_ramp(e, LANES), emit_splat(e, left, LANES));
  }
  LLVMValueRef last = emit_sub(e, ARG(&s, steps, i64), emit_i64(e, 1));
  if (spec->part == STATE_GIVES_ONE) emit_one_step(&s);
  else if (spec->beta == TFM_BETA_NONE) emit_unread_steps(&s, last);
  else if (spec->part == STATE_PASSES) emit_stretches(&s, last);
  else emit_steps(&s, last);
  LLVMBuildRetVoid(e->builder);
}
