/* TILE: c[rows x width] (+)= a[rows x k] b[k x width], all of c in registers.
 *
 * In: rows, width, the distances of the rows of a and b and of the steps of a, and the form of b, all constants of the
 * code. Out: a tfm_tile_kernel. Numbers of 16 bits are widened as they are loaded, which is exact, and other floats are
 * f32; of INT8 and INT4 c is i32 until it is scaled (tile_step.c), of mixed forms f32 from group to group. Every
 * element is one chain of FMAs with k ascending from 0, or from what c holds, or a sum of such chains of spec->chain
 * steps, whatever the tile: the bits do not depend on which tile of the target computes an element. Refuses nothing; a
 * shape that does not fit in registers is an error of target/x86.def (tiles_stay_in_registers in test_codegen.c).
 *
 *   start:  c from memory if `accumulate`, else 0; with chains always 0, and from here on once for each chain
 *   steps:  four k per turn (or as many as the target says), of bf16 whole pairs (tile_step.c). B is loaded as vectors,
 *           a as broadcast scalars. B is prefetched into L1 some steps ahead (unless it is a page of values, behind
 *           which something else lies), and `next` into L2: one line per step of k, the same one again where fewer are
 *           asked for, more before the turn where more are (with AVX2 `next` into L1, and B of a few rows not at all;
 *           nothing where a row takes all columns of a panel).
 *           Where the rows of a lie side by side, a is too, and `next` a row per turn
 *   rest:   k % 4, one per turn; of bf16 a pair, then the half of one
 *   groups: instead of both, of INT4, MXFP4 and mixed forms: a group of 32 k per turn, its sums and then these times
 *           its number
 *   finish: with chains, what c holds is added, unless it is the first. Whole rows are stored, or (unless
 *           has_all_columns) `columns` of them under masks, by way of the stack where the target has none
 *           (tile_memory.c)
 *
 * Four steps per turn hide the loop's own instructions behind the FMAs; a block of k is 768 long (TFM_K_BLOCK), so
 * that what a panel has of it stays in L2 while tiles go by (bench/notes.md). */
#include "base/check.h"
#include "codegen/emitter.h"
#include "codegen/vector.h"
#include "kernels/emit.h"
#include "kernels/matrix_tile.h"
#include "kernels/tile.h"

_Static_assert(TFM_PREFETCH_LINES % TILE_TURN == 0, "lines that are fetched together");

/* Rows of a lie side by side: then `next` are the results of the next tile, whose rows are asked for one in a turn. */
static bool is_sideways(const KernelSpec *spec) { return spec->a_step > 1; }

/* A vector is half a line of the cache: AVX2. */
static bool has_half_lines(const Tile *t) { return t->lanes == LANES / 2; }

// ---- turns ----

/* A few rows of half lines: there are as many fetches as half of the additions, and each takes a place from those that
 * go to memory; the CPU reads ahead by itself. In f32 it does so for any rows, which then have a load a step less. */
static bool leaves_own_lines(const Tile *t) {
  const KernelSpec *spec = t->spec;
  return has_half_lines(t) && spec->rows > 1 && (spec->rows <= TILE_FEW_ROWS || spec->b_form == TFM_FORM_F32);
}

/* Rows of b follow one another, so that what is fetched beyond the last one is read next. */
static bool lies_in_a_panel(const KernelSpec *spec) { return spec->b_stride < 2 * spec->width; }

/* How far ahead of step u a tile fetches its own lines, in steps. */
static unsigned steps_ahead(const Tile *t) {
  if (!t->e->target->fetches_lines || !lies_in_a_panel(t->spec)) return TILE_AHEAD;
  return t->spec->b_form == TFM_FORM_BF16 || t->spec->b_form == TFM_FORM_F16 ? 2 * TILE_LINES_AHEAD : TILE_LINES_AHEAD;
}

/* A prefetch of an address beyond the panel does no harm. What is read next comes to L1 too where lines are halved:
 * those that were fetched to L2 alone are read more slowly there. Of bytes a turn of halved lines is too short for its
 * own fetches, and groups compute too long between two lines. */
static void emit_prefetches(Tile *t, Position at, unsigned u, unsigned line_of_turn) {
  const int64_t line = t->e->target->cache_line / (t->spec->b_form == TFM_FORM_F16 ? 2 : 4);
  const bool by_cpu = t->spec->b_is_page || tile_is_grouped(t) || leaves_own_lines(t) ||
                      (tile_is_integer(t) && !t->e->target->fetches_lines);
  const bool is_fetched = by_cpu || (t->spec->b_form == TFM_FORM_BF16 && u % 2); /* in time; with its pair */
  for (int64_t column = tile_first_column(t); column < tile_end_column(t) && !is_fetched; column += line)
    emit_prefetch(t->e, emit_offset(t->e, at.b, emit_i64(t->e, tile_offset_in_b(t, u + steps_ahead(t), column))), 3);
  if (t->first) return;
  const int64_t of_row = u * t->e->target->cache_line;
  LLVMValueRef next = is_sideways(t->spec) ? at.next : emit_offset(t->e, at.next, t->next_offset[line_of_turn]);
  if (!is_sideways(t->spec)) emit_prefetch(t->e, next, has_half_lines(t) ? 3 : 2);
  else emit_prefetch(t->e, tile_offset_in_a(t, at.a, 0, u + TILE_AHEAD), 3);
  if (is_sideways(t->spec) && of_row < t->spec->width * 4)
    emit_prefetch(t->e, emit_offset(t->e, at.next, emit_i64(t->e, of_row)), 3);
}

/* From turn to turn; where a is read sideways, from row to row of the results. */
static LLVMValueRef advance_of_next(Tile *t, LLVMValueRef k) {
  Emitter *e = t->e;
  if (!is_sideways(t->spec)) return t->next_advance;
  if (t->chain_begin) k = emit_add(e, k, t->chain_begin);
  LLVMValueRef goes_on = emit_icmp(e, LLVMIntSLT, k, emit_i64(e, TILE_TURN * (t->spec->rows - 1)));
  return emit_select(e, goes_on, emit_mul(e, t->args[ARG_C_STRIDE], emit_i64(e, 4)), emit_i64(e, 0));
}

/* The offsets of the lines that a turn fetches: line u, or the last one that is asked for. */
static void prepare_prefetches(Tile *t) {
  Emitter *e = t->e;
  LLVMValueRef line = emit_i64(e, e->target->cache_line), lines = t->args[ARG_NEXT_LINES];
  LLVMValueRef none = emit_icmp(e, LLVMIntEQ, lines, emit_i64(e, 0));
  LLVMValueRef last = emit_select(e, none, emit_i64(e, 0), emit_sub(e, lines, emit_i64(e, 1)));
  for (unsigned u = 0; u < TILE_TURN; u++) t->next_offset[u] = emit_mul(e, emit_least(e, emit_i64(e, u), last), line);
  t->next_advance = emit_mul(e, lines, line);
}

/* Tiles of attention read few lines in all, so fetching ahead of them gains nothing. */
static bool asks_for_more(const KernelSpec *of) { return !of->exact_zero && !of->b_is_page && !is_sideways(of); }

/* The lines that one per step of k leaves out. The runtime asks for them where few rows use the weights, because then
 * reading the weights takes all of the time. Elsewhere the lines are near already, and fetching them again would cost
 * some. */
static void emit_more_prefetches(Tile *t, LLVMValueRef next) {
  Emitter *e = t->e;
  LLVMBasicBlockRef done = emit_block(e, "fetched");
  for (unsigned first = TILE_TURN; first < TFM_PREFETCH_LINES; first += TILE_TURN) {
    LLVMBasicBlockRef more = emit_block(e, "fetch");
    emit_branch(e, emit_icmp(e, LLVMIntSGT, t->args[ARG_NEXT_LINES], emit_i64(e, first)), more, done);
    emit_at(e, more);
    for (unsigned i = first; i < first + TILE_TURN; i++)
      emit_prefetch(e, emit_offset(e, next, emit_i64(e, i * e->target->cache_line)), 2);
  }
  emit_jump(e, done);
  emit_at(e, done);
}

static unsigned sums_of_chain(const Tile *t) { return t->spec->rows * t->n; }
/* What a loop over k carries beside its places. */
static unsigned n_carried(const Tile *t) { return t->side * sums_of_chain(t) + (tile_sums_values(t) ? t->n : 0); }
/* Lines of a whole panel follow one another: the CPU reads them ahead by itself, and faster than it is asked to
 * (bench/notes.md). */
static bool fetches_ahead(const Tile *t) { return !t->e->target->lacks_prefetch && !t->spec->has_whole_panel; }

static unsigned steps_of_turn(const Tile *t) {
  const unsigned usual = t->e->target->tile_turn ? t->e->target->tile_turn : TILE_TURN;
  return usual > t->side ? usual / t->side : 1;
}

/* What a loop carries: how far along k it is, and c. */
static Position begin_turns(Tile *t, Loop *loop, Position from) {
  Position at = {.a = loop_carry(t->e, loop, from.a), .b = loop_carry(t->e, loop, from.b)};
  at.next = loop_carry(t->e, loop, from.next);
  for (unsigned i = 0; i < n_carried(t); i++) t->sums[i] = loop_carry(t->e, loop, t->sums[i]);
  return at;
}

static Position end_turns(Tile *t, Loop *loop) {
  const unsigned n_c = n_carried(t);
  for (unsigned i = 0; i < n_c; i++) loop_next(loop, 3 + i, t->sums[i]);
  loop_end(t->e, loop);
  for (unsigned i = 0; i < n_c; i++) t->sums[i] = loop->results[3 + i];
  return (Position){loop->results[0], loop->results[1], loop->results[2]};
}

/* The same place of the chain that is `chains` behind. */
static Position beside(Tile *t, Position at, unsigned chains) {
  if (chains == 0) return at;
  const int64_t of_b = tile_offset_in_b(t, t->spec->chain, 0) / t->spec->chain;
  at.a = emit_offset(t->e, at.a, emit_mul(t->e, t->apart, emit_i64(t->e, chains * sizeof(float))));
  at.b = emit_offset(t->e, at.b, emit_mul(t->e, t->apart, emit_i64(t->e, chains * of_b)));
  return at;
}

/* One step of k of each chain. */
static void emit_steps_beside(Tile *t, Position at, unsigned u, bool fetches) {
  for (unsigned chain = 0; chain < t->side; chain++) {
    const Position of = beside(t, at, chain);
    if (fetches) emit_prefetches(t, of, u, chain * steps_of_turn(t) + u);
    t->c = t->sums + chain * sums_of_chain(t);
    emit_tile_step(t, of, u);
  }
  t->c = t->sums;
}

/* All steps of a turn, pairs of bf16 together. */
static void emit_turn_of_panel(Tile *t, Position at, unsigned unroll) {
  const unsigned together = t->spec->b_form == TFM_FORM_BF16 && unroll > 1 ? 2 : 1;
  for (unsigned u = 0; u < unroll; u += together) emit_wide_steps(t, at, u, together);
}

static Position emit_steps(Tile *t, LLVMValueRef begin, LLVMValueRef end, unsigned unroll, Position from) {
  Emitter *e = t->e;
  Loop loop = loop_begin(e, begin, end, unroll);
  Position at = begin_turns(t, &loop, from);
  const bool is_turn = unroll == steps_of_turn(t), fetches = is_turn && fetches_ahead(t);
  /* Before the steps, so that these stay one block. */
  if (fetches && t->first == 0 && asks_for_more(t->spec)) emit_more_prefetches(t, at.next);
  if (is_turn) tile_hold_rows(t, at.a, 0);
  if (t->spec->has_whole_panel && !tile_is_integer(t)) emit_turn_of_panel(t, at, unroll);
  else for (unsigned u = 0; u < unroll; u++) emit_steps_beside(t, at, u, fetches);
  tile_drop_rows(t);
  loop_next(&loop, 0, tile_offset_in_a(t, at.a, 0, unroll));
  loop_next(&loop, 1, emit_offset(e, at.b, emit_i64(e, tile_offset_in_b(t, unroll, 0))));
  if (tile_has_two_panels(t))
    loop_next(&loop, 2, emit_offset(e, at.next, emit_i64(e, tile_offset_in_b(t, unroll, 0))));
  else if (fetches) loop_next(&loop, 2, emit_offset(e, at.next, advance_of_next(t, loop.index)));
  return end_turns(t, &loop);
}

/* Of whole numbers a group has its sum beside it, and where it is mixed its scale too. */
static LLVMValueRef behind_group(Tile *t, LLVMValueRef a) {
  if (!tile_is_integer(t)) return tile_offset_in_a(t, a, 0, TFM_GROUP);
  return emit_offset(t->e, a, emit_i64(t->e, tfm_row_bytes(t->spec->b_form, tile_takes_bytes(t) ? 1 : 2, TFM_GROUP)));
}

/* What makes numbers of a group; of Q4 they are made in emit_tile_group_q4. */
static LLVMValueRef factor_of(Tile *t, LLVMValueRef number, unsigned j) {
  if (!tile_has_words(t)) return (tile_is_integer(t) && !tile_is_mixed(t) ? tile_factors : tile_powers)(t, number);
  if (!tile_is_mixed(t)) return number;
  t->more[j] = tile_q4_more(t, number);
  return tile_q4_factor(t, number);
}

static void emit_group(Tile *t, Position at, const LLVMValueRef *factors) {
  if (tile_is_integer(t)) emit_tile_group(t, at.a, at.b, factors);
  else (tile_has_words(t) ? emit_tile_group_q4 : emit_tile_group_mxfp4)(t, at.a, at.b, factors);
}

/* How many times 32 steps of k have what makes numbers of them in one line of b: as many as bytes of a lane, or what a
 * word is for. */
static unsigned groups_of_line(const Tile *t) {
  return tile_has_words(t) ? tfm_form_row_of(t->spec->b_form)->group / TFM_GROUP : TFM_GROUPS;
}

/* Those of a line, or what is left of them. */
static Position emit_groups_together(Tile *t, LLVMValueRef n, Position from) {
  Emitter *e = t->e;
  const unsigned n_c = t->spec->rows * t->n;
  LLVMValueRef numbers[MAX_VECTORS], factors[MAX_VECTORS];
  for (unsigned j = 0; j < t->n; j++) numbers[j] = tile_load_words(t, from.b, 0, j);
  from.b = emit_offset(e, from.b, emit_i64(e, tile_offset_in_b(t, 1, 0)));
  Loop loop = loop_begin(e, emit_i64(e, 0), n, 1);
  Position at = begin_turns(t, &loop, from);
  for (unsigned j = 0; j < t->n && !tile_has_words(t); j++) numbers[j] = loop_carry(e, &loop, numbers[j]);
  if (t->first == 0 && fetches_ahead(t)) emit_more_prefetches(t, at.next);
  for (unsigned u = 0; u < TILE_TURN && fetches_ahead(t); u++) emit_prefetches(t, at, u, u);
  for (unsigned j = 0; j < t->n; j++) factors[j] = factor_of(t, numbers[j], j);
  emit_group(t, at, factors);
  loop_next(&loop, 0, behind_group(t, at.a));
  loop_next(&loop, 1, emit_offset(e, at.b, emit_i64(e, tile_offset_in_b(t, TFM_GROUP / 8, 0))));
  loop_next(&loop, 2, emit_offset(e, at.next, t->next_advance));
  for (unsigned j = 0; j < t->n && !tile_has_words(t); j++)
    loop_next(&loop, 3 + n_c + j, LLVMBuildLShr(e->builder, numbers[j], tile_splat_bits(t, 8), ""));
  return end_turns(t, &loop);
}

/* Behind the last group of whole numbers `a` has come 4 bytes beyond the scale. */
static Position emit_all_groups(Tile *t, Position from) {
  Emitter *e = t->e;
  LLVMValueRef k = tile_is_integer(t) ? t->args[ARG_K] : t->steps;
  LLVMValueRef groups = LLVMBuildLShr(e->builder, k, emit_i64(e, 5), "");
  Loop loop = loop_begin(e, emit_i64(e, 0), groups, groups_of_line(t));
  Position at = begin_turns(t, &loop, from);
  LLVMValueRef n = emit_least(e, emit_i64(e, groups_of_line(t)), emit_sub(e, groups, loop.index));
  at = emit_groups_together(t, n, at);
  loop_next(&loop, 0, at.a);
  loop_next(&loop, 1, at.b);
  loop_next(&loop, 2, at.next);
  at = end_turns(t, &loop);
  if (tile_is_integer(t)) at.a = emit_offset(e, at.a, emit_i64(e, -(int64_t)sizeof(float)));
  return at;
}

static Position emit_all_steps(Tile *t, Position position) {
  Emitter *e = t->e;
  const unsigned together = tile_is_integer(t) ? 1 : tfm_form_row_of(t->spec->b_form)->together;
  const unsigned usual = steps_of_turn(t), turn = together > usual ? together : usual;
  LLVMValueRef whole = LLVMBuildAnd(e->builder, t->steps, emit_i64(e, -(int64_t)turn), "");
  if (tile_is_grouped(t)) return emit_all_groups(t, position);
  position = emit_steps(t, emit_i64(e, 0), whole, turn, position);
  if (together >= TILE_TURN) return position;
  if (together > 1 && together < turn) {
    LLVMValueRef pairs = LLVMBuildAnd(e->builder, t->steps, emit_i64(e, -(int64_t)together), "");
    position = emit_steps(t, whole, pairs, together, position);
    whole = pairs;
  }
  return turn == 1 ? position : emit_steps(t, whole, t->steps, 1, position);
}

// ---- start and finish ----

static void emit_start(Tile *t) {
  Emitter *e = t->e;
  LLVMValueRef begin[MAX_VECTORS], adds = t->args[ARG_ACCUMULATE];
  if (tile_is_integer(t)) adds = LLVMBuildAnd(e->builder, adds, emit_i64(e, 1), "");
  const bool starts_from_a = tile_is_integer(t) && !tile_is_grouped(t) && !t->spec->b_is_signed &&
                             !e->target->dot_is_signed; /* then weights lose their 128 themselves */
  for (unsigned i = 0; i < t->spec->rows * t->n; i++)
    begin[i] = i % t->n       ? begin[i - 1]
               : starts_from_a ? tile_row_start(t, t->args[ARG_A], i / t->n)
                               : LLVMConstNull(t->vector);
  tile_take_up_c(t, emit_icmp(e, LLVMIntNE, adds, emit_i64(e, 0)), begin, false);
  for (unsigned i = sums_of_chain(t); i < n_carried(t); i++) t->c[i] = LLVMConstNull(t->vector);
}

/* How many chains are computed side by side, half of a turn of each: a few rows have so few sums that each addition
 * would wait for the one before it. Their sums are added in the order of the chains, as they are one by one. Lines of
 * f32, or whole ones for each vector, come from far more slowly in two places than in one (bench/notes.md). */
static unsigned chains_beside(const Tile *t) {
  const KernelSpec *spec = t->spec;
  const bool may = spec->chain && !spec->goes_on && !spec->exact_zero && !spec->b_is_page && !is_sideways(spec);
  const bool is_half = spec->b_form == TFM_FORM_BF16 || spec->b_form == TFM_FORM_F16;
  return may && is_half && has_half_lines(t) && spec->rows > 1 && sums_of_chain(t) <= TILE_FEW_SUMS ? 2 : 1;
}

/* The second of two chains, if there are two left, is added after the first. */
static Position add_beside(Tile *t, Position at, LLVMValueRef are_two) {
  const unsigned n = sums_of_chain(t);
  for (unsigned i = 0; i < n; i++)
    t->c[i] = emit_select(t->e, are_two, LLVMBuildFAdd(t->e->builder, t->c[i], t->sums[n + i], ""), t->c[i]);
  return at;
}

/* Chain after chain, each from 0; its sums are added to c as soon as it ends. Without any steps c becomes 0. Where the
 * first one may go on, it begins with c if `accumulate` is 1, and is added to it if that is TFM_ADD. */
static void emit_chains(Tile *t) {
  Emitter *e = t->e;
  LLVMValueRef zero = emit_i64(e, 0), k = t->args[ARG_K], one = emit_i64(e, 1);
  LLVMValueRef end = emit_select(e, emit_icmp(e, LLVMIntSLT, k, one), one, k), sums[MAX_VECTORS];
  Loop chains = loop_begin(e, zero, end, t->spec->chain);
  Position at = {.a = loop_carry(e, &chains, t->args[ARG_A]), .b = loop_carry(e, &chains, t->args[ARG_B])};
  at.next = loop_carry(e, &chains, t->args[ARG_NEXT]);
  t->chain_begin = chains.index;
  LLVMValueRef left = emit_sub(e, k, chains.index), of_chain = emit_i64(e, t->spec->chain), are_two = NULL;
  t->steps = emit_least(e, left, of_chain);
  if (t->side > 1) {
    are_two = emit_icmp(e, LLVMIntSGE, left, emit_i64(e, 2 * (int64_t)t->spec->chain));
    t->apart = emit_select(e, are_two, of_chain, zero);
    chains.step = emit_add(e, of_chain, t->apart);
  }
  LLVMValueRef adds = t->args[ARG_ACCUMULATE];
  for (unsigned i = 0; i < t->side * sums_of_chain(t); i++) t->sums[i] = LLVMConstNull(t->vector);
  for (unsigned i = 0; i < sums_of_chain(t); i++) sums[i] = t->c[i];
  if (t->spec->goes_on) {
    LLVMValueRef goes_on = LLVMBuildAnd(e->builder, emit_icmp(e, LLVMIntEQ, adds, one),
                                        emit_icmp(e, LLVMIntEQ, chains.index, zero), "");
    tile_take_up_c(t, goes_on, sums, false);
    adds = LLVMBuildAnd(e->builder, adds, emit_i64(e, TFM_ADD), "");
  }
  at = emit_all_steps(t, at);
  for (unsigned i = 0; i < sums_of_chain(t); i++) sums[i] = t->c[i];
  adds = LLVMBuildOr(e->builder, adds, chains.index, "");
  tile_take_up_c(t, emit_icmp(e, LLVMIntNE, adds, zero), sums, true);
  if (t->side > 1) at = beside(t, add_beside(t, at, are_two), 1);
  emit_tile_finish(t);
  loop_next(&chains, 0, at.a);
  loop_next(&chains, 1, at.b);
  loop_next(&chains, 2, at.next);
  loop_end(e, &chains);
}

/* Computes one group of columns: all of them, or what vectors_at_once allows. */
static void emit_columns(Tile *t) {
  if (t->spec->chain) {
    emit_chains(t);
    return;
  }
  Position position = {t->args[ARG_A], t->args[ARG_B], t->args[ARG_NEXT]};
  emit_start(t);
  position = emit_all_steps(t, position);
  if (tile_sums_values(t)) emit_tile_values(t);
  if (tile_is_integer(t) && !tile_is_mixed(t)) emit_tile_scaling(t, position);
  emit_tile_finish(t);
}

/* Exact tiles need registers for the comparison, which some targets have only for one vector of columns at a time. Wide
 * tiles, which are those of values, take equal groups of as many vectors as the widest of the table has. */
static unsigned vectors_at_once(const Tile *t, unsigned all) {
  const TargetInfo *target = t->e->target;
  if (t->spec->has_whole_panel) return all;
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
  loop_next(&loop, 0, tile_offset_in_a(t, args[ARG_A], 1, 0));
  loop_next(&loop, 1, emit_offset(e, args[ARG_C], emit_mul(e, t->args[ARG_C_STRIDE], emit_i64(e, sizeof(float)))));
  loop_end(e, &loop);
  LLVMBuildRetVoid(e->builder);
}

static void begin_function(Tile *t, const char *name) {
  Emitter *e = t->e;
  LLVMValueRef function = emit_kernel(e, KERNEL_TILE, name);
  for (unsigned i = 0; i < N_ARGS; i++) t->args[i] = LLVMGetParam(function, i);
}

/* Group by group of columns. */
static void emit_all_columns(Tile *t) {
  const KernelSpec *spec = t->spec;
  const unsigned all = spec->width / t->lanes, at_once = vectors_at_once(t, all);
  const unsigned most_carried = spec->rows * at_once + (tile_sums_values(t) ? at_once : 0);
  CHECK(spec->rows > 0 && all > 0 && all * t->lanes == spec->width && most_carried < LOOP_MAX_CARRIED - 2,
        "a tile of %u x %u", spec->rows, spec->width);
  CHECK(!tile_is_grouped(t) || (spec->rows + 1) * all <= LOOP_MAX_CARRIED - 3, "a tile of many rows");
  prepare_prefetches(t);
  for (t->first = 0; t->first < all; t->first += t->n) {
    t->n = at_once < all - t->first ? at_once : all - t->first;
    t->side = chains_beside(t);
    emit_columns(t);
  }
}

void emit_TILE(Emitter *e, const KernelSpec *spec, const char *name) {
  if (spec->is_matrix && e->target->matrix.setup) {
    emit_matrix_tile(e, spec, name);
    return;
  }
  Tile t = {.e = e, .spec = spec, .lanes = e->target->vector_floats};
  t.c = t.sums;
  t.vector = LLVMVectorType(tile_is_integer(&t) ? e->i32 : e->f32, t.lanes);
  begin_function(&t, name);
  if (spec->of_one_row) {
    emit_row_by_row(&t);
    return;
  }
  t.steps = t.args[ARG_K];
  if (tile_is_integer(&t))
    t.steps = LLVMBuildLShr(e->builder, emit_add(e, t.steps, emit_i64(e, 3)), emit_i64(e, 2), "");
  emit_parameter_noalias(e, ARG_A), emit_parameter_readonly(e, ARG_A);
  emit_parameter_noalias(e, ARG_B), emit_parameter_readonly(e, ARG_B);
  emit_parameter_noalias(e, ARG_C);
  if (tile_is_staged(&t))
    t.stack = emit_stack(e, LLVMArrayType2(e->f32, (uint64_t)spec->rows * spec->width), 16);
  (spec->is_matrix ? emit_tile_mmla : emit_all_columns)(&t);
  LLVMBuildRetVoid(e->builder);
}
