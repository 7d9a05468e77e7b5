/* STATE_GRAD: what the operands of one step of linear attention get (tfm_state_grad_kernel).
 *
 * In: whether the state fades, by one factor or by one for each of its rows, and what a step takes out before it
 * writes. Out: a function. The state before the step and what the state behind it gets are walked twice: down each
 * column for what the key reads and what was written gets, then along each row for what q, k and decay get. Sums along
 * rows are in 16 lanes and the tree of kernels/reducer.h. Refuses nothing. */
#include <stddef.h>

#include "kernels/emit.h"
#include "kernels/reducer.h"

enum { GRAD_VECTORS = TFM_STATE_COLUMNS / LANES, BLOCK_BYTES = TFM_STATE_COLUMNS * sizeof(float) };

typedef struct GradKernel {
  Emitter *e;
  const KernelSpec *spec;
  LLVMValueRef args, n, row, blocks;
  LLVMValueRef before, state;        /* [n] rows of `row` bytes */
  LLVMValueRef written, taken, given; /* lines of `row` bytes: what is written, what v gets, what y gets */
} GradKernel;

typedef struct Along { /* sums along a row */
  LLVMValueRef q, k, taken, decay;
} Along;

#define ARG(kernel, member, type) \
  emit_load((kernel)->e, (kernel)->e->type, emit_offset((kernel)->e, (kernel)->args, \
            emit_i64((kernel)->e, (int64_t)offsetof(tfm_state_grad_args, member))), 8)

static LLVMValueRef part_at(GradKernel *s, LLVMValueRef base, unsigned i) {
  return emit_offset(s->e, base, emit_i64(s->e, (int64_t)(i * LANES * sizeof(float))));
}

static Lanes load_block(GradKernel *s, LLVMValueRef base) {
  Lanes x;
  for (unsigned i = 0; i < GRAD_VECTORS; i++) x.v[i] = emit_load(s->e, lanes_type(s->e->f32), part_at(s, base, i), 64);
  return x;
}

static void store_block(GradKernel *s, LLVMValueRef base, Lanes x) {
  for (unsigned i = 0; i < GRAD_VECTORS; i++) emit_store(s->e, x.v[i], part_at(s, base, i), 64);
}

/* Columns of the caller's memory, of which the last block may have fewer. */
static Lanes load_columns(GradKernel *s, LLVMValueRef base, const LLVMValueRef *masks) {
  Lanes x;
  for (unsigned i = 0; i < GRAD_VECTORS; i++)
    x.v[i] = emit_load_masked(s->e, lanes_type(s->e->f32), part_at(s, base, i), masks[i], 4);
  return x;
}

static void store_columns(GradKernel *s, LLVMValueRef base, Lanes x, const LLVMValueRef *masks) {
  for (unsigned i = 0; i < GRAD_VECTORS; i++) emit_store_masked(s->e, x.v[i], part_at(s, base, i), masks[i], 4);
}

/* The number that row i takes, in all lanes. */
static Lanes number_of_row(GradKernel *s, LLVMValueRef base, LLVMValueRef row_bytes, LLVMValueRef i) {
  LLVMValueRef at = emit_offset(s->e, base, emit_mul(s->e, row_bytes, i));
  return lanes_splat(s->e, emit_load(s->e, s->e->f32, at, 4));
}

static Lanes decay_of_row(GradKernel *s, LLVMValueRef i) {
  return number_of_row(s, ARG(s, decay, pointer), ARG(s, decay_row, i64), i);
}

static LLVMValueRef at_row(GradKernel *s, LLVMValueRef base, LLVMValueRef i, LLVMValueRef columns) {
  return emit_offset(s->e, emit_offset(s->e, base, emit_mul(s->e, s->row, i)), columns);
}

// ---- down the columns ----

/* Down a block of columns: what the key reads of the state, and of what the state gets, to which this step adds. */
static void emit_down(GradKernel *s, LLVMValueRef columns, Lanes g, Lanes *reads, Lanes *gets) {
  Emitter *e = s->e;
  Loop rows = loop_begin(e, emit_i64(e, 0), s->n, 1);
  for (unsigned i = 0; i < GRAD_VECTORS; i++) {
    reads->v[i] = loop_carry(e, &rows, LLVMConstNull(lanes_type(e->f32)));
    gets->v[i] = loop_carry(e, &rows, LLVMConstNull(lanes_type(e->f32)));
  }
  Lanes key = number_of_row(s, ARG(s, k, pointer), ARG(s, k_row, i64), rows.index);
  Lanes query = number_of_row(s, ARG(s, q, pointer), ARG(s, q_row, i64), rows.index);
  LLVMValueRef at = at_row(s, s->state, rows.index, columns);
  Lanes state = lanes_fma(e, query, g, load_block(s, at));
  store_block(s, at, state);
  *gets = lanes_fma(e, key, state, *gets);
  if (s->spec->beta != TFM_BETA_NONE) {
    Lanes faded = load_block(s, at_row(s, s->before, rows.index, columns));
    if (s->spec->fades) faded = lanes_mul(e, decay_of_row(s, rows.index), faded);
    *reads = lanes_fma(e, key, faded, *reads);
  }
  for (unsigned i = 0; i < GRAD_VECTORS; i++) {
    loop_next(&rows, 2 * i, reads->v[i]);
    loop_next(&rows, 2 * i + 1, gets->v[i]);
  }
  loop_end(e, &rows);
  for (unsigned i = 0; i < GRAD_VECTORS; i++) reads->v[i] = rows.results[2 * i], gets->v[i] = rows.results[2 * i + 1];
}

/* What a block writes and v gets for it, into lines; what beta gets is added to `sum`, or stored. */
static void emit_columns_of(GradKernel *s, LLVMValueRef block, LLVMValueRef *sum) {
  Emitter *e = s->e;
  LLVMValueRef columns = emit_mul(e, block, emit_i64(e, BLOCK_BYTES)), masks[GRAD_VECTORS];
  LLVMValueRef left = emit_sub(e, ARG(s, columns, i64), emit_mul(e, block, emit_i64(e, TFM_STATE_COLUMNS)));
  left = LLVMBuildTrunc(e->builder, left, e->i32, "");
  for (unsigned i = 0; i < GRAD_VECTORS; i++) {
    LLVMValueRef of = LLVMBuildSub(e->builder, left, emit_i32(e, i * LANES), "");
    masks[i] = emit_icmp(e, LLVMIntSLT, emit_ramp(e, LANES), emit_splat(e, of, LANES));
  }
  Lanes reads, gets, g = load_columns(s, emit_offset(e, ARG(s, g, pointer), columns), masks);
  Lanes v = load_columns(s, emit_offset(e, ARG(s, v, pointer), columns), masks), written = v;
  emit_down(s, columns, g, &reads, &gets);
  Lanes taken = gets;
  if (s->spec->beta != TFM_BETA_NONE) {
    LLVMValueRef at = ARG(s, beta, pointer);
    const bool is_each = s->spec->beta == TFM_BETA_EACH;
    Lanes beta = is_each ? load_columns(s, emit_offset(e, at, columns), masks)
                         : lanes_splat(e, emit_load(e, e->f32, at, 4));
    Lanes rest = lanes_sub(e, v, reads), of_beta = lanes_mul(e, gets, rest);
    written = lanes_mul(e, beta, rest);
    taken = lanes_mul(e, beta, gets);
    if (is_each) store_columns(s, emit_offset(e, ARG(s, dbeta, pointer), columns), of_beta, masks);
    for (unsigned i = 0; i < GRAD_VECTORS && !is_each; i++) *sum = LLVMBuildFAdd(e->builder, *sum, of_beta.v[i], "");
  }
  store_columns(s, emit_offset(e, ARG(s, dv, pointer), columns), taken, masks);
  store_block(s, emit_offset(e, s->written, columns), written);
  store_block(s, emit_offset(e, s->taken, columns), taken);
  store_block(s, emit_offset(e, s->given, columns), g);
}

static LLVMValueRef emit_tree(GradKernel *s, LLVMValueRef lanes) {
  reducer_tree(s->e, &reducer_sum, &lanes);
  return lanes;
}

static void emit_columns(GradKernel *s) {
  Emitter *e = s->e;
  Loop blocks = loop_begin(e, emit_i64(e, 0), s->blocks, 1);
  LLVMValueRef sum = loop_carry(e, &blocks, LLVMConstNull(lanes_type(e->f32)));
  emit_columns_of(s, blocks.index, &sum);
  loop_next(&blocks, 0, sum);
  loop_end(e, &blocks);
  if (s->spec->beta == TFM_BETA_ONE) emit_store(e, emit_tree(s, blocks.results[0]), ARG(s, dbeta, pointer), 4);
}

// ---- along the rows ----

/* A block of a row: adds to the sums; what the state behind the step gets becomes what the one before it gets. */
static void emit_part_of_row(GradKernel *s, LLVMValueRef i, LLVMValueRef columns, Lanes key, Along *sums) {
  Emitter *e = s->e;
  const bool takes = s->spec->beta != TFM_BETA_NONE;
  LLVMValueRef at = at_row(s, s->state, i, columns);
  Lanes before = load_block(s, at_row(s, s->before, i, columns)), faded = before, decay = before;
  Lanes state = load_block(s, at), left = state;
  Lanes written = load_block(s, emit_offset(e, s->written, columns));
  Lanes taken = load_block(s, emit_offset(e, s->taken, columns));
  Lanes given = load_block(s, emit_offset(e, s->given, columns));
  if (s->spec->fades) decay = decay_of_row(s, i), faded = lanes_mul(e, decay, before);
  Lanes behind = lanes_fma(e, key, written, faded);
  if (takes) left = lanes_fma(e, lanes_neg(e, key), taken, state);
  for (unsigned j = 0; j < GRAD_VECTORS; j++) {
    sums->q = emit_fma(e, behind.v[j], given.v[j], sums->q);
    sums->k = emit_fma(e, state.v[j], written.v[j], sums->k);
    if (takes) sums->taken = emit_fma(e, faded.v[j], taken.v[j], sums->taken);
    if (s->spec->fades) sums->decay = emit_fma(e, left.v[j], before.v[j], sums->decay);
  }
  if (s->spec->fades) left = lanes_mul(e, decay, left);
  if (takes || s->spec->fades) store_block(s, at, left);
}

static void store_number(GradKernel *s, LLVMValueRef base, LLVMValueRef i, LLVMValueRef number) {
  emit_store(s->e, number, emit_offset(s->e, base, emit_mul(s->e, i, emit_i64(s->e, sizeof(float)))), 4);
}

/* Row i of the state: gives what q and k get, and what its factor gets. */
static LLVMValueRef emit_row(GradKernel *s, LLVMValueRef i) {
  Emitter *e = s->e;
  LLVMValueRef zeros = LLVMConstNull(lanes_type(e->f32));
  Lanes key = number_of_row(s, ARG(s, k, pointer), ARG(s, k_row, i64), i);
  Loop blocks = loop_begin(e, emit_i64(e, 0), s->blocks, 1);
  Along sums;
  LLVMValueRef *const all[] = {&sums.q, &sums.k, &sums.taken, &sums.decay};
  for (unsigned j = 0; j < 4; j++) *all[j] = loop_carry(e, &blocks, zeros);
  emit_part_of_row(s, i, emit_mul(e, blocks.index, emit_i64(e, BLOCK_BYTES)), key, &sums);
  for (unsigned j = 0; j < 4; j++) loop_next(&blocks, j, *all[j]);
  loop_end(e, &blocks);
  LLVMValueRef of_k = emit_tree(s, blocks.results[1]);
  if (s->spec->beta != TFM_BETA_NONE) of_k = LLVMBuildFSub(e->builder, of_k, emit_tree(s, blocks.results[2]), "");
  store_number(s, ARG(s, dq, pointer), i, emit_tree(s, blocks.results[0]));
  store_number(s, ARG(s, dk, pointer), i, of_k);
  return s->spec->fades ? emit_tree(s, blocks.results[3]) : NULL;
}

static void emit_rows(GradKernel *s) {
  Emitter *e = s->e;
  Loop rows = loop_begin(e, emit_i64(e, 0), s->n, 1);
  LLVMValueRef sum = loop_carry(e, &rows, emit_f32(e, 0)), of_decay = emit_row(s, rows.index);
  if (of_decay && s->spec->fades_by_rows) store_number(s, ARG(s, ddecay, pointer), rows.index, of_decay);
  loop_next(&rows, 0, of_decay ? LLVMBuildFAdd(e->builder, sum, of_decay, "") : sum);
  loop_end(e, &rows);
  if (s->spec->fades && !s->spec->fades_by_rows) emit_store(e, rows.results[0], ARG(s, ddecay, pointer), 4);
}

void emit_STATE_GRAD(Emitter *e, const KernelSpec *spec, const char *name) {
  LLVMValueRef function = emit_kernel(e, KERNEL_STATE_GRAD, name);
  emit_parameter_readonly(e, 0);
  GradKernel s = {.e = e, .spec = spec, .args = LLVMGetParam(function, 0)};
  e->n_vectors = GRAD_VECTORS;
  s.n = ARG(&s, n, i64), s.row = ARG(&s, row, i64);
  s.blocks = LLVMBuildSDiv(e->builder, s.row, emit_i64(e, BLOCK_BYTES), "");
  s.before = ARG(&s, before, pointer), s.state = ARG(&s, state, pointer);
  s.written = ARG(&s, lines, pointer);
  s.taken = emit_offset(e, s.written, s.row), s.given = emit_offset(e, s.taken, s.row);
  emit_columns(&s);
  emit_rows(&s);
  LLVMBuildRetVoid(e->builder);
}
