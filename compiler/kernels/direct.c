/* DIRECT: c = x y for each of many items, both factors read where they lie.
 *
 * In: a tfm_direct_args. Out: every element one chain of FMAs with k ascending from 0, or the sum of chains of
 * spec->chain steps, as in a tile. Packing pays when a number is used often; here a number is used a few times, so that
 * reading it is the work. Three forms:
 *
 *   columns  the columns of y are the lanes of one vector, under a mask, and c has a vector for each of a few rows. The
 *            numbers of x are broadcast. For small matrices, and for few columns of any number of rows
 *   lines    the same of one row of x and any number of columns: a few lines of y after the other, added to sums that
 *            wait in a cache
 *   rows     the rows of x are the lanes: quarters of x, contiguous along k, are transposed in registers, and the
 *            numbers of y are broadcast, one for each of `width` columns. For one column or a few and many rows
 *
 * Rows beyond the last are the last one again: they compute the same number for the same place. Refuses nothing. */
#include "base/check.h"
#include "codegen/emitter.h"
#include "codegen/vector.h"
#include "kernels/emit.h"
#include "kernels/kernel_tuning.h"

enum { MAX_ROWS = 8, FEW_ROWS = 4, MAX_COLUMNS = 4, QUARTER = 4 };

/* The members of tfm_direct_args, in their order; all have eight bytes. */
enum { X, Y, C, ITEMS, ROWS, COLUMNS, K, X_ITEM, X_ROW, X_STEP, Y_ITEM, Y_STEP, Y_COLUMN, C_ITEM, C_ROW, N_MEMBERS };
_Static_assert(sizeof(tfm_direct_args) == N_MEMBERS * sizeof(int64_t), "a member that is not read here");

typedef struct Direct {
  Emitter *e;
  const KernelSpec *spec;
  unsigned lanes;
  LLVMTypeRef vector;
  LLVMValueRef args[N_MEMBERS]; /* distances in bytes; x, y and c are those of the item */
  LLVMValueRef mask;            /* columns that exist */
  LLVMValueRef stack;           /* of the form rows: [width][lanes] of c; of lines: their sums */
} Direct;

static LLVMValueRef row_at(Direct *d, int base, LLVMValueRef row, int distance) {
  return emit_offset(d->e, d->args[base], emit_mul(d->e, row, d->args[distance]));
}

/* Row `more` behind `row`, or the last one. */
static LLVMValueRef row_or_last(Direct *d, LLVMValueRef row, unsigned more) {
  Emitter *e = d->e;
  LLVMValueRef last = emit_sub(e, d->args[ROWS], emit_i64(e, 1));
  return emit_least(e, emit_add(e, row, emit_i64(e, more)), last);
}

// ---- chains ----

/* The loop over the chains of some sums: [begin, end) are the steps of one, y and `along` its first ones. If the spec
 * has but one chain, there is no loop. */
typedef struct Chains {
  Loop loop;
  LLVMValueRef begin, end, y, along;
  LLVMValueRef before[MAX_ROWS]; /* the sums of the chains before */
} Chains;

static Chains all_chains(Direct *d) {
  LLVMValueRef zero = emit_i64(d->e, 0);
  Chains c = {.begin = zero, .end = d->args[K], .y = d->args[Y], .along = zero};
  for (unsigned i = 0; i < MAX_ROWS; i++) c.before[i] = LLVMConstNull(d->vector);
  return c;
}

/* Of the chains from c->begin on, to c->end. */
static void chains_begin(Direct *d, Chains *c, unsigned n) {
  Emitter *e = d->e;
  if (!d->spec->chain) return;
  c->loop = loop_begin(e, c->begin, c->end, d->spec->chain);
  c->begin = c->loop.index;
  c->y = loop_carry(e, &c->loop, c->y);
  c->along = loop_carry(e, &c->loop, c->along);
  for (unsigned i = 0; i < n; i++) c->before[i] = loop_carry(e, &c->loop, c->before[i]);
  c->end = emit_least(e, d->args[K], emit_add(e, c->begin, emit_i64(e, d->spec->chain)));
}

/* The sums of the chains before and of one more. The first chain's are taken as they are, because 0 + -0 is 0. */
static LLVMValueRef with_chain(Direct *d, LLVMValueRef begin, LLVMValueRef before, LLVMValueRef sums) {
  LLVMValueRef is_first = emit_icmp(d->e, LLVMIntEQ, begin, emit_i64(d->e, 0));
  return emit_select(d->e, is_first, sums, LLVMBuildFAdd(d->e->builder, before, sums, ""));
}

/* sums: of the last chain; then of all. */
static void chains_end(Direct *d, Chains *c, LLVMValueRef *sums, unsigned n) {
  if (!d->spec->chain) return;
  loop_next(&c->loop, 0, c->y);
  loop_next(&c->loop, 1, c->along);
  for (unsigned i = 0; i < n; i++) loop_next(&c->loop, 2 + i, with_chain(d, c->begin, c->before[i], sums[i]));
  loop_end(d->e, &c->loop);
  for (unsigned i = 0; i < n; i++) sums[i] = c->loop.results[2 + i];
}

// ---- columns side by side ----

/* `n` rows from `first` on, all of which exist unless `is_cut`. */
static void emit_few_rows(Direct *d, LLVMValueRef first, unsigned n, bool is_cut) {
  Emitter *e = d->e;
  LLVMValueRef x[MAX_ROWS], c[MAX_ROWS], sums[MAX_ROWS];
  for (unsigned i = 0; i < n; i++) {
    LLVMValueRef row = is_cut ? row_or_last(d, first, i) : emit_add(e, first, emit_i64(e, i));
    x[i] = row_at(d, X, row, X_ROW);
    c[i] = row_at(d, C, row, C_ROW);
  }
  Chains chains = all_chains(d);
  chains_begin(d, &chains, n);
  Loop ks = loop_begin(e, chains.begin, chains.end, 1);
  LLVMValueRef y = loop_carry(e, &ks, chains.y), along = loop_carry(e, &ks, chains.along);
  for (unsigned i = 0; i < n; i++) sums[i] = loop_carry(e, &ks, LLVMConstNull(d->vector));
  LLVMValueRef line = emit_load_masked(e, d->vector, y, d->mask, 4);
  emit_prefetch(e, emit_offset(e, y, emit_i64(e, LINE_AHEAD)), 3);
  for (unsigned i = 0; i < n; i++) {
    LLVMValueRef number = emit_load(e, e->f32, emit_offset(e, x[i], along), 4);
    loop_next(&ks, 2 + i, emit_fma(e, emit_splat(e, number, d->lanes), line, sums[i]));
  }
  loop_next(&ks, 0, emit_offset(e, y, d->args[Y_STEP]));
  loop_next(&ks, 1, emit_add(e, along, d->args[X_STEP]));
  loop_end(e, &ks);
  chains.y = ks.results[0], chains.along = ks.results[1];
  for (unsigned i = 0; i < n; i++) sums[i] = ks.results[2 + i];
  chains_end(d, &chains, sums, n);
  for (unsigned i = 0; i < n; i++) emit_store_masked(e, sums[i], c[i], d->mask, 4);
}

static void emit_columns_side_by_side(Direct *d) {
  Emitter *e = d->e;
  LLVMValueRef zero = emit_i64(e, 0);
  if (d->spec->rows) {
    emit_few_rows(d, zero, d->spec->rows, false);
    return;
  }
  LLVMValueRef whole = LLVMBuildAnd(e->builder, d->args[ROWS], emit_i64(e, -MAX_ROWS), "");
  Loop many = loop_begin(e, zero, whole, MAX_ROWS);
  emit_few_rows(d, many.index, MAX_ROWS, false);
  loop_end(e, &many);
  Loop few = loop_begin(e, whole, d->args[ROWS], FEW_ROWS);
  emit_few_rows(d, few.index, FEW_ROWS, true);
  loop_end(e, &few);
}

// ---- one row, all columns ----

/* A chain of some columns: its sums wait in sums[] on the stack, so that lines are read a few at a time from one end to
 * the other, as they lie. One whole column of y after the other would touch a page for every step. */
typedef struct Lines {
  LLVMValueRef first, end;        /* columns */
  LLVMValueRef sums;              /* of the columns from first on */
  unsigned n;                     /* lines that are added together */
  LLVMValueRef numbers[MAX_ROWS]; /* of x, in all lanes */
  LLVMValueRef y[MAX_ROWS];       /* lines */
  LLVMValueRef begin;             /* the chain's first step */
} Lines;

typedef void ColumnsWork(Direct *d, const Lines *l, LLVMValueRef column, LLVMValueRef mask);

/* mask: NULL if all lanes of the vector exist. */
static void for_columns(Direct *d, const Lines *l, ColumnsWork *work) {
  Emitter *e = d->e;
  LLVMValueRef whole = emit_sub(e, l->end, emit_i64(e, d->lanes - 1));
  Loop vectors = loop_begin(e, l->first, whole, d->lanes);
  work(d, l, vectors.index, NULL);
  loop_end(e, &vectors);
  Loop rest = loop_begin(e, vectors.last, l->end, d->lanes);
  LLVMValueRef left = LLVMBuildTrunc(e->builder, emit_sub(e, l->end, rest.index), e->i32, "");
  work(d, l, rest.index, emit_icmp(e, LLVMIntSLT, emit_ramp(e, d->lanes), emit_splat(e, left, d->lanes)));
  loop_end(e, &rest);
}

static LLVMValueRef column_at(Direct *d, LLVMValueRef base, LLVMValueRef column) {
  return emit_offset(d->e, base, emit_mul(d->e, column, emit_i64(d->e, sizeof(float))));
}

static LLVMValueRef load_columns(Direct *d, LLVMValueRef at, LLVMValueRef mask) {
  return mask ? emit_load_masked(d->e, d->vector, at, mask, 4) : emit_load(d->e, d->vector, at, 4);
}

static LLVMValueRef sums_at(Direct *d, const Lines *l, LLVMValueRef column) {
  return column_at(d, l->sums, emit_sub(d->e, column, l->first));
}

static void clear_columns(Direct *d, const Lines *l, LLVMValueRef column, LLVMValueRef mask) {
  (void)mask; /* there is room for a whole vector */
  emit_store(d->e, LLVMConstNull(d->vector), sums_at(d, l, column), 4);
}

static void add_columns(Direct *d, const Lines *l, LLVMValueRef column, LLVMValueRef mask) {
  LLVMValueRef at = sums_at(d, l, column), sum = emit_load(d->e, d->vector, at, 4);
  for (unsigned i = 0; i < l->n; i++)
    sum = emit_fma(d->e, l->numbers[i], load_columns(d, column_at(d, l->y[i], column), mask), sum);
  emit_store(d->e, sum, at, 4);
}

static void finish_columns(Direct *d, const Lines *l, LLVMValueRef column, LLVMValueRef mask) {
  Emitter *e = d->e;
  LLVMValueRef c = column_at(d, d->args[C], column), sum = emit_load(e, d->vector, sums_at(d, l, column), 4);
  if (d->spec->chain) sum = with_chain(d, l->begin, load_columns(d, c, mask), sum);
  if (mask) emit_store_masked(e, sum, c, mask, 4);
  else emit_store(e, sum, c, 4);
}

/* Steps [begin, end), as many lines together as l->n says. */
static LLVMValueRef add_lines(Direct *d, Lines *l, LLVMValueRef begin, LLVMValueRef end) {
  Emitter *e = d->e;
  Loop ks = loop_begin(e, begin, end, l->n);
  for (unsigned i = 0; i < l->n; i++) {
    LLVMValueRef step = emit_add(e, ks.index, emit_i64(e, i));
    LLVMValueRef x = emit_offset(e, d->args[X], emit_mul(e, step, d->args[X_STEP]));
    l->numbers[i] = emit_splat(e, emit_load(e, e->f32, x, 4), d->lanes);
    l->y[i] = emit_offset(e, d->args[Y], emit_mul(e, step, d->args[Y_STEP]));
  }
  for_columns(d, l, add_columns);
  loop_end(e, &ks);
  return ks.last;
}

/* Columns block by block, of each the chains one after the other; one of no steps at all gives zeroes. */
static void emit_lines(Direct *d) {
  Emitter *e = d->e;
  LLVMValueRef zero = emit_i64(e, 0), one = emit_i64(e, 1), k = d->args[K];
  Loop blocks = loop_begin(e, zero, d->args[COLUMNS], LINE_COLUMNS);
  Lines l = {.first = blocks.index, .sums = d->stack, .begin = zero};
  l.end = emit_least(e, d->args[COLUMNS], emit_add(e, l.first, emit_i64(e, LINE_COLUMNS)));
  LLVMValueRef end = k, steps = emit_select(e, emit_icmp(e, LLVMIntSLT, k, one), one, k);
  Loop chains;
  if (d->spec->chain) {
    chains = loop_begin(e, zero, steps, d->spec->chain);
    l.begin = chains.index;
    end = emit_least(e, k, emit_add(e, l.begin, emit_i64(e, d->spec->chain)));
  }
  for_columns(d, &l, clear_columns);
  static const unsigned together[] = {MAX_ROWS, 3, 1}; /* what is left of eight takes at most three turns */
  LLVMValueRef next = l.begin;
  for (size_t i = 0; i < sizeof together / sizeof *together; i++) {
    l.n = together[i];
    next = add_lines(d, &l, next, emit_sub(e, end, emit_i64(e, l.n - 1)));
  }
  for_columns(d, &l, finish_columns);
  if (d->spec->chain) loop_end(e, &chains);
  loop_end(e, &blocks);
}

// ---- rows side by side ----

typedef struct RowGroup { /* as many rows as there are lanes */
  LLVMValueRef first;
  LLVMValueRef x[LANES];
  LLVMValueRef y; /* of the step */
  LLVMValueRef sums[MAX_COLUMNS];
} RowGroup;

/* sums += numbers of x, one for each row, times those of y at step `y`. */
static void add_step(Direct *d, RowGroup *g, LLVMValueRef numbers, LLVMValueRef y) {
  Emitter *e = d->e;
  for (unsigned j = 0; j < d->spec->width; j++) {
    LLVMValueRef at = j ? emit_offset(e, y, emit_mul(e, d->args[Y_COLUMN], emit_i64(e, j))) : y;
    g->sums[j] = emit_fma(e, numbers, emit_splat(e, emit_load(e, e->f32, at, 4), d->lanes), g->sums[j]);
  }
}

/* Numbers [0, 4) from `along` on of all rows, as four vectors with a lane for each row. A vector is put together from
 * quarters as they are loaded, row i + 4 q in quarter q, so that only what lies within quarters changes places in
 * registers: whole lines would take twice as many shuffles. */
static void load_four(Direct *d, RowGroup *g, LLVMValueRef along, LLVMValueRef *r) {
  Emitter *e = d->e;
  LLVMTypeRef quarter = LLVMVectorType(e->f32, 4);
  for (unsigned i = 0; i < 4; i++) {
    LLVMValueRef quarters[LANES / 4];
    for (unsigned q = 0; q < d->lanes / 4; q++)
      quarters[q] = emit_load(e, quarter, emit_offset(e, g->x[i + 4 * q], along), 4);
    r[i] = emit_joined(e, d->lanes, quarters, d->lanes / 4);
  }
  emit_transposed_quarters(e, d->lanes, r);
}

/* Rows so long that those of the next group leave the nearest caches before they are read fetch their own next lines
 * (AVX2, which has half the rows, and smaller caches). */
static void fetch_own_lines(Direct *d, const RowGroup *g, LLVMValueRef along) {
  Emitter *e = d->e;
  LLVMValueRef ahead = emit_add(e, along, emit_i64(e, ROWS_AHEAD));
  for (unsigned i = 0; i < d->lanes; i++) emit_prefetch(e, emit_offset(e, g->x[i], ahead), 3);
}

/* Rows are too many streams for the CPU to fetch ahead. Those of the next group lie behind those of this one, so they
 * come in the order of memory, each line once: n turns, the first of which is `step`, fetch what n turns read. Of rows
 * with something between them nothing is fetched: their own lines, which are here. Several columns leave time enough to
 * have them come to the second-level cache alone, which is faster where rows fill sets of the first. */
static void fetch_ahead(Direct *d, const RowGroup *g, LLVMValueRef step, unsigned n) {
  Emitter *e = d->e;
  LLVMValueRef along = emit_mul(e, step, emit_i64(e, sizeof(float))), lanes = emit_i64(e, d->lanes);
  LLVMValueRef bytes = emit_mul(e, d->args[K], emit_i64(e, sizeof(float)));
  LLVMValueRef ahead = emit_mul(e, emit_add(e, bytes, along), lanes);
  LLVMValueRef is_next = emit_icmp(e, LLVMIntEQ, bytes, d->args[X_ROW]);
  LLVMValueRef at = emit_offset(e, g->x[0], emit_select(e, is_next, ahead, along));
  const unsigned locality = d->spec->width == 1 ? 3 : 2;
  If is_short;
  if (d->lanes == LANES / 2) {
    LLVMValueRef is_long = emit_icmp(e, LLVMIntSGE, d->args[K], emit_i64(e, ROWS_LONG));
    If own = if_begin(e, is_long);
    fetch_own_lines(d, g, along);
    if_end(e, &own);
    is_short = if_begin(e, LLVMBuildNot(e->builder, is_long, ""));
  }
  for (unsigned line = 0; line < n * d->lanes / 4; line++)
    emit_prefetch(e, emit_offset(e, at, emit_i64(e, 64 * (int64_t)line)), locality);
  if (d->lanes == LANES / 2) if_end(e, &is_short);
}

/* A turn: four steps, as few as a square of quarters has, so that no row's address waits on the stack. */
static void add_turn(Direct *d, RowGroup *g, LLVMValueRef along) {
  LLVMValueRef r[QUARTER];
  load_four(d, g, along, r);
  for (unsigned i = 0; i < QUARTER; i++) {
    add_step(d, g, r[i], g->y);
    g->y = emit_offset(d->e, g->y, d->args[Y_STEP]);
  }
}

static void add_single(Direct *d, RowGroup *g, LLVMValueRef along) {
  Emitter *e = d->e;
  LLVMValueRef numbers = LLVMGetUndef(d->vector);
  for (unsigned i = 0; i < d->lanes; i++) {
    LLVMValueRef number = emit_load(e, e->f32, emit_offset(e, g->x[i], along), 4);
    numbers = LLVMBuildInsertElement(e->builder, numbers, number, emit_i32(e, i), "");
  }
  add_step(d, g, numbers, g->y);
  g->y = emit_offset(e, g->y, d->args[Y_STEP]);
}

static void emit_group_steps(Direct *d, RowGroup *g, LLVMValueRef begin, LLVMValueRef end, unsigned together) {
  Emitter *e = d->e;
  Loop ks = loop_begin(e, begin, end, together);
  g->y = loop_carry(e, &ks, g->y);
  for (unsigned j = 0; j < d->spec->width; j++) g->sums[j] = loop_carry(e, &ks, g->sums[j]);
  LLVMValueRef along = emit_mul(e, ks.index, emit_i64(e, 4));
  if (together > 1) fetch_ahead(d, g, ks.index, 1);
  (together > 1 ? add_turn : add_single)(d, g, along);
  loop_next(&ks, 0, g->y);
  for (unsigned j = 0; j < d->spec->width; j++) loop_next(&ks, 1 + j, g->sums[j]);
  loop_end(e, &ks);
  g->y = ks.results[0];
  for (unsigned j = 0; j < d->spec->width; j++) g->sums[j] = ks.results[1 + j];
}

/* A chain of one column waits for its own multiply-adds most of the time, so two chains of the rows go side by side as
 * long as there are two: those of `chains` from its begin on. Of what is left, chains gets the begin. */
static void emit_pairs_of_chains(Direct *d, RowGroup *g, Chains *chains) {
  Emitter *e = d->e;
  const int64_t chain = d->spec->chain;
  Loop pairs = loop_begin(e, chains->begin, emit_sub(e, d->args[K], emit_i64(e, 2 * chain - 1)), 2 * chain);
  RowGroup first = *g, second = *g;
  first.y = loop_carry(e, &pairs, chains->y);
  LLVMValueRef before = loop_carry(e, &pairs, chains->before[0]), distance = emit_i64(e, 4 * chain);
  second.y = emit_offset(e, first.y, emit_mul(e, d->args[Y_STEP], emit_i64(e, chain)));
  Loop ks = loop_begin(e, pairs.index, emit_add(e, pairs.index, emit_i64(e, chain)), QUARTER);
  first.y = loop_carry(e, &ks, first.y), second.y = loop_carry(e, &ks, second.y);
  first.sums[0] = second.sums[0] = LLVMConstNull(d->vector);
  first.sums[0] = loop_carry(e, &ks, first.sums[0]), second.sums[0] = loop_carry(e, &ks, second.sums[0]);
  LLVMValueRef along = emit_mul(e, ks.index, emit_i64(e, 4));
  fetch_ahead(d, g, emit_sub(e, emit_add(e, ks.index, ks.index), pairs.index), 2);
  add_turn(d, &first, along);
  add_turn(d, &second, emit_add(e, along, distance));
  LLVMValueRef next[] = {first.y, second.y, first.sums[0], second.sums[0]};
  for (unsigned i = 0; i < 4; i++) loop_next(&ks, i, next[i]);
  loop_end(e, &ks);
  before = with_chain(d, pairs.index, before, ks.results[2]);
  loop_next(&pairs, 0, ks.results[1]);
  loop_next(&pairs, 1, LLVMBuildFAdd(e->builder, before, ks.results[3], ""));
  loop_end(e, &pairs);
  chains->begin = pairs.last, chains->y = pairs.results[0], chains->before[0] = pairs.results[1];
}

/* A whole group of one column whose results are neighbours is a vector of c; else numbers go one by one. */
static void store_group(Direct *d, RowGroup *g) {
  Emitter *e = d->e;
  const unsigned columns = d->spec->width;
  LLVMValueRef left = emit_sub(e, d->args[ROWS], g->first), lanes = emit_i64(e, d->lanes), four = emit_i64(e, 4);
  LLVMValueRef is_vector = LLVMConstNull(e->i1), c = row_at(d, C, g->first, C_ROW);
  if (columns == 1) {
    is_vector = LLVMBuildAnd(e->builder, emit_icmp(e, LLVMIntSGE, left, lanes),
                             emit_icmp(e, LLVMIntEQ, d->args[C_ROW], four), "");
    If vector = if_begin(e, is_vector);
    emit_store(e, g->sums[0], c, 4);
    if_end(e, &vector);
  }
  If numbers = if_begin(e, LLVMBuildNot(e->builder, is_vector, ""));
  for (unsigned j = 0; j < columns; j++)
    emit_store(e, g->sums[j], emit_offset(e, d->stack, emit_i64(e, 4 * (int64_t)j * d->lanes)), 4);
  Loop rows = loop_begin(e, emit_i64(e, 0), emit_least(e, left, lanes), 1);
  LLVMValueRef to = emit_offset(e, c, emit_mul(e, rows.index, d->args[C_ROW]));
  LLVMValueRef from = emit_offset(e, d->stack, emit_mul(e, rows.index, four));
  for (unsigned j = 0; j < columns; j++) {
    LLVMValueRef number = emit_load(e, e->f32, emit_offset(e, from, emit_i64(e, 4 * (int64_t)j * d->lanes)), 4);
    emit_store(e, number, emit_offset(e, to, emit_i64(e, 4 * (int64_t)j)), 4);
  }
  loop_end(e, &rows);
  if_end(e, &numbers);
}

static void emit_rows_side_by_side(Direct *d) {
  Emitter *e = d->e;
  LLVMValueRef zero = emit_i64(e, 0);
  LLVMValueRef whole = LLVMBuildAnd(e->builder, d->args[K], emit_i64(e, -QUARTER), "");
  Loop groups = loop_begin(e, zero, d->args[ROWS], d->lanes);
  RowGroup g = {.first = groups.index};
  for (unsigned i = 0; i < d->lanes; i++) g.x[i] = row_at(d, X, row_or_last(d, groups.index, i), X_ROW);
  Chains chains = all_chains(d);
  if (d->spec->width == 1 && d->spec->chain) emit_pairs_of_chains(d, &g, &chains);
  chains_begin(d, &chains, d->spec->width);
  g.y = chains.y;
  for (unsigned j = 0; j < d->spec->width; j++) g.sums[j] = LLVMConstNull(d->vector);
  LLVMValueRef end = emit_least(e, whole, chains.end);
  emit_group_steps(d, &g, chains.begin, end, QUARTER);
  emit_group_steps(d, &g, end, chains.end, 1);
  chains.y = g.y;
  chains_end(d, &chains, g.sums, d->spec->width);
  store_group(d, &g);
  loop_end(e, &groups);
}

// ---- both ----

static void load_members(Direct *d, LLVMValueRef args) {
  Emitter *e = d->e;
  for (unsigned i = 0; i < N_MEMBERS; i++)
    d->args[i] = emit_load(e, i <= C ? e->pointer : e->i64, emit_offset(e, args, emit_i64(e, 8 * (int64_t)i)), 8);
  if (d->spec->y_is_line) d->args[Y_STEP] = emit_i64(e, sizeof(float));
}

void emit_DIRECT(Emitter *e, const KernelSpec *spec, const char *name) {
  Direct d = {.e = e, .spec = spec, .lanes = e->target->vector_floats};
  CHECK(spec->rows <= MAX_ROWS && spec->width <= MAX_COLUMNS, "a direct product of %u x %u", spec->rows, spec->width);
  d.vector = LLVMVectorType(e->f32, d.lanes);
  LLVMValueRef function = emit_kernel(e, KERNEL_DIRECT, name);
  load_members(&d, LLVMGetParam(function, 0));
  if (spec->width) {
    d.stack = emit_stack(e, LLVMArrayType2(e->f32, (uint64_t)spec->width * d.lanes), 4);
  } else if (spec->all_columns) {
    d.stack = emit_stack(e, LLVMArrayType2(e->f32, LINE_COLUMNS), 64);
  } else {
    LLVMValueRef count = emit_splat(e, LLVMBuildTrunc(e->builder, d.args[COLUMNS], e->i32, ""), d.lanes);
    d.mask = emit_icmp(e, LLVMIntSLT, emit_ramp(e, d.lanes), count);
  }
  Loop items = loop_begin(e, emit_i64(e, 0), d.args[ITEMS], 1);
  for (unsigned i = X; i <= C; i++) d.args[i] = loop_carry(e, &items, d.args[i]);
  LLVMValueRef at[] = {d.args[X], d.args[Y], d.args[C]};
  (spec->width ? emit_rows_side_by_side : spec->all_columns ? emit_lines : emit_columns_side_by_side)(&d);
  static const unsigned distances[] = {X_ITEM, Y_ITEM, C_ITEM};
  for (unsigned i = X; i <= C; i++) loop_next(&items, i, emit_offset(e, at[i], d.args[distances[i]]));
  loop_end(e, &items);
  LLVMBuildRetVoid(e->builder);
}
