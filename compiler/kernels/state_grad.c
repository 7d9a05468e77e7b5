/* STATE_GRAD: what the operands of one step of linear attention get (tfm_state_grad_kernel).
 *
 * In: the columns of a block, whether the state fades, by one factor or by one for each of its rows, and what a step
 * takes out before it writes. Out: a function. What the state behind the step gets is walked twice: down each column
 * for what was written gets, then, beside the state before the step, along each row for what q, k and decay get. Sums
 * along rows are in 16 lanes and the tree of kernels/reducer.h. Refuses nothing. */
#include <stddef.h>

#include "kernels/emit.h"
#include "kernels/reducer.h"

enum { MOST_VECTORS = TFM_STATE_COLUMNS / LANES };

typedef struct GradKernel {
  Emitter *e;
  const KernelSpec *spec;
  unsigned vectors; /* of a block */
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

static LLVMValueRef block_bytes(GradKernel *s) {
  return emit_i64(s->e, (int64_t)(s->vectors * LANES * sizeof(float)));
}

static LLVMValueRef part_at(GradKernel *s, LLVMValueRef base, unsigned i) {
  return emit_offset(s->e, base, emit_i64(s->e, (int64_t)(i * LANES * sizeof(float))));
}

static Lanes load_block(GradKernel *s, LLVMValueRef base) {
  Lanes x;
  for (unsigned i = 0; i < s->vectors; i++) x.v[i] = emit_load(s->e, lanes_type(s->e->f32), part_at(s, base, i), 64);
  return x;
}

static void store_block(GradKernel *s, LLVMValueRef base, Lanes x) {
  for (unsigned i = 0; i < s->vectors; i++) emit_store(s->e, x.v[i], part_at(s, base, i), 64);
}

/* Columns of the caller's memory, of which the last block may have fewer. */
static Lanes load_columns(GradKernel *s, LLVMValueRef base, const LLVMValueRef *masks) {
  Lanes x;
  for (unsigned i = 0; i < s->vectors; i++)
    x.v[i] = emit_load_masked(s->e, lanes_type(s->e->f32), part_at(s, base, i), masks[i], 4);
  return x;
}

static void store_columns(GradKernel *s, LLVMValueRef base, Lanes x, const LLVMValueRef *masks) {
  for (unsigned i = 0; i < s->vectors; i++) emit_store_masked(s->e, x.v[i], part_at(s, base, i), masks[i], 4);
}

/* The number that row i takes, in all lanes. */
static Lanes number_of_row(GradKernel *s, LLVMValueRef base, LLVMValueRef i) {
  LLVMValueRef at = emit_offset(s->e, base, emit_mul(s->e, i, emit_i64(s->e, sizeof(float))));
  return lanes_splat(s->e, emit_load(s->e, s->e->f32, at, 4));
}

static Lanes decay_of_row(GradKernel *s, LLVMValueRef i) {
  return number_of_row(s, ARG(s, decay, pointer), s->spec->fades_by_rows ? i : emit_i64(s->e, 0));
}

static LLVMValueRef at_row(GradKernel *s, LLVMValueRef base, LLVMValueRef i, LLVMValueRef columns) {
  return emit_offset(s->e, emit_offset(s->e, base, emit_mul(s->e, s->row, i)), columns);
}

// ---- down the columns ----

/* Down a block of columns: adds this step to what the state gets, and gives what its key reads of that. */
static Lanes emit_down(GradKernel *s, LLVMValueRef columns, Lanes g) {
  Emitter *e = s->e;
  Loop rows = loop_begin(e, emit_i64(e, 0), s->n, 1);
  Lanes gets;
  for (unsigned i = 0; i < s->vectors; i++) gets.v[i] = loop_carry(e, &rows, LLVMConstNull(lanes_type(e->f32)));
  Lanes key = number_of_row(s, ARG(s, k, pointer), rows.index);
  Lanes query = number_of_row(s, ARG(s, q, pointer), rows.index);
  LLVMValueRef at = at_row(s, s->state, rows.index, columns);
  Lanes state = lanes_fma(e, query, g, load_block(s, at));
  store_block(s, at, state);
  gets = lanes_fma(e, key, state, gets);
  for (unsigned i = 0; i < s->vectors; i++) loop_next(&rows, i, gets.v[i]);
  loop_end(e, &rows);
  for (unsigned i = 0; i < s->vectors; i++) gets.v[i] = rows.results[i];
  return gets;
}

/* What a block writes and v gets for it, into lines; what beta gets is added to `sum`, or stored. */
static void emit_columns_of(GradKernel *s, LLVMValueRef block, LLVMValueRef *sum) {
  Emitter *e = s->e;
  LLVMValueRef columns = emit_mul(e, block, block_bytes(s)), masks[MOST_VECTORS];
  LLVMValueRef left = emit_sub(e, ARG(s, columns, i64), emit_mul(e, block, emit_i64(e, s->vectors * LANES)));
  left = LLVMBuildTrunc(e->builder, left, e->i32, "");
  for (unsigned i = 0; i < s->vectors; i++) {
    LLVMValueRef of = LLVMBuildSub(e->builder, left, emit_i32(e, i * LANES), "");
    masks[i] = emit_icmp(e, LLVMIntSLT, emit_ramp(e, LANES), emit_splat(e, of, LANES));
  }
  Lanes g = load_columns(s, emit_offset(e, ARG(s, g, pointer), columns), masks);
  Lanes v = load_columns(s, emit_offset(e, ARG(s, v, pointer), columns), masks), written = v;
  Lanes gets = emit_down(s, columns, g), taken = gets;
  if (s->spec->beta != TFM_BETA_NONE) {
    LLVMValueRef at = ARG(s, beta, pointer);
    const bool is_each = s->spec->beta == TFM_BETA_EACH;
    Lanes beta = is_each ? load_columns(s, emit_offset(e, at, columns), masks)
                         : lanes_splat(e, emit_load(e, e->f32, at, 4));
    Lanes reads = load_block(s, emit_offset(e, ARG(s, reads, pointer), columns));
    Lanes rest = lanes_sub(e, v, reads), of_beta = lanes_mul(e, gets, rest);
    written = lanes_mul(e, beta, rest);
    taken = lanes_mul(e, beta, gets);
    if (is_each) store_columns(s, emit_offset(e, ARG(s, dbeta, pointer), columns), of_beta, masks);
    for (unsigned i = 0; i < s->vectors && !is_each; i++) *sum = LLVMBuildFAdd(e->builder, *sum, of_beta.v[i], "");
  }
  store_columns(s, emit_offset(e, ARG(s, dv, pointer), columns), taken, masks);
  store_block(s, emit_offset(e, s->written, columns), written);
  store_block(s, emit_offset(e, s->taken, columns), taken);
  store_block(s, emit_offset(e, s->given, columns), g);
}

static void emit_columns(GradKernel *s) {
  Emitter *e = s->e;
  Loop blocks = loop_begin(e, emit_i64(e, 0), s->blocks, 1);
  LLVMValueRef sum = loop_carry(e, &blocks, LLVMConstNull(lanes_type(e->f32)));
  emit_columns_of(s, blocks.index, &sum);
  loop_next(&blocks, 0, sum);
  loop_end(e, &blocks);
  if (s->spec->beta != TFM_BETA_ONE) return;
  reducer_tree(e, &reducer_sum, &blocks.results[0]);
  emit_store(e, blocks.results[0], ARG(s, dbeta, pointer), 4);
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
  for (unsigned j = 0; j < s->vectors; j++) {
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
  Lanes key = number_of_row(s, ARG(s, k, pointer), i);
  Loop blocks = loop_begin(e, emit_i64(e, 0), s->blocks, 1);
  Along sums;
  LLVMValueRef *const all[] = {&sums.q, &sums.k, &sums.taken, &sums.decay};
  for (unsigned j = 0; j < 4; j++) *all[j] = loop_carry(e, &blocks, zeros);
  emit_part_of_row(s, i, emit_mul(e, blocks.index, block_bytes(s)), key, &sums);
  for (unsigned j = 0; j < 4; j++) loop_next(&blocks, j, *all[j]);
  loop_end(e, &blocks);
  LLVMValueRef all_sums[] = {blocks.results[0], blocks.results[1], blocks.results[2], blocks.results[3]};
  reducer_four_sums(e, all_sums);
  LLVMValueRef of_k = all_sums[1];
  if (s->spec->beta != TFM_BETA_NONE) of_k = LLVMBuildFSub(e->builder, of_k, all_sums[2], "");
  store_number(s, ARG(s, dq, pointer), i, all_sums[0]);
  store_number(s, ARG(s, dk, pointer), i, of_k);
  return s->spec->fades ? all_sums[3] : NULL;
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
  GradKernel s = {.e = e, .spec = spec, .args = LLVMGetParam(function, 0), .vectors = spec->width / LANES};
  e->n_vectors = s.vectors;
  s.n = ARG(&s, n, i64), s.row = ARG(&s, row, i64);
  s.blocks = LLVMBuildSDiv(e->builder, s.row, block_bytes(&s), "");
  s.before = ARG(&s, before, pointer), s.state = ARG(&s, state, pointer);
  s.written = ARG(&s, lines, pointer);
  s.taken = emit_offset(e, s.written, s.row), s.given = emit_offset(e, s.taken, s.row);
  emit_columns(&s);
  emit_rows(&s);
  LLVMBuildRetVoid(e->builder);
}
