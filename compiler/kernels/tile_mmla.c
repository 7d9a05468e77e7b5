/* TILE of bytes by products of two rows and two columns, 8 k each (TargetInfo.matrix without registers of its own): as
 * of tile.c, b of form INT8, all columns of a panel.
 *
 * In and out: as of tile.c; sums of whole numbers have no order, so both give the same bits. The product takes 8 k of a
 * row together, and a panel has 4 of a column together:
 *
 *   pieces:   MMLA_PIECE k, as if each were a call. Rows are joined in pairs once for all columns, on the stack: 8 k of
 *             the first one, then 8 of the second one. The last of an odd number is joined with itself
 *     passes: 8 columns. Sums of squares in registers, 16 k a turn, of which two lines of the panel are joined alike
 *       rest: the squares become rows, and what no turn took follows four k a step; then as tile.c
 *
 * Refuses nothing. */
#include "base/check.h"
#include "codegen/vector.h"
#include "kernels/tile.h"

enum { COLUMNS = 8 /* of a pass */, VECTOR = 16 /* bytes */, TURN = 16 /* k */, STEPS = TURN / 4 };
enum { MOST_PAIRS = TFM_MAX_TILE_ROWS / 2, SQUARES = COLUMNS / 2 /* of a pair of rows */ };

typedef struct Mmla {
  Tile *t;
  LLVMValueRef args[N_ARGS]; /* of the kernel; t->args: of a pass */
  unsigned pairs;
  LLVMValueRef joined; /* [turn][pair][2] vectors */
  LLVMValueRef begin;  /* the first k of the piece */
  LLVMValueRef turns;  /* of the piece, whole ones */
} Mmla;

/* Halves of x and y, lower or upper, with numbers of both in turn. */
static LLVMValueRef zipped(Tile *t, LLVMValueRef x, LLVMValueRef y, unsigned lanes, bool is_upper) {
  LLVMValueRef places[LANES];
  const unsigned first = is_upper ? lanes / 2 : 0;
  for (unsigned i = 0; i < lanes; i++) places[i] = emit_i32(t->e, (int32_t)(first + i / 2 + i % 2 * lanes));
  return LLVMBuildShuffleVector(t->e->builder, x, y, LLVMConstVector(places, lanes), "");
}

/* Numbers in even places of x and then of y, or in odd ones. */
static LLVMValueRef unzipped(Tile *t, LLVMValueRef x, LLVMValueRef y, bool is_odd) {
  LLVMValueRef places[LANES];
  for (unsigned i = 0; i < t->lanes; i++) places[i] = emit_i32(t->e, (int32_t)(2 * i + is_odd));
  return LLVMBuildShuffleVector(t->e->builder, x, y, LLVMConstVector(places, t->lanes), "");
}

// ---- rows ----

static void join_rows(Mmla *m) {
  Tile *t = m->t;
  Emitter *e = t->e;
  LLVMTypeRef halves = LLVMVectorType(e->i64, 2);
  Loop turns = loop_begin(e, emit_i64(e, 0), m->turns, 1);
  LLVMValueRef a = emit_offset(e, t->args[ARG_A], emit_mul(e, turns.index, emit_i64(e, TURN)));
  LLVMValueRef to = emit_offset(e, m->joined, emit_mul(e, turns.index, emit_i64(e, 2 * m->pairs * VECTOR)));
  for (unsigned pair = 0; pair < m->pairs; pair++) {
    const bool is_whole = 2 * pair + 1 < t->spec->rows;
    LLVMValueRef x = emit_load(e, halves, tile_offset_in_a(t, a, 2 * pair, 0), 4);
    LLVMValueRef y = is_whole ? emit_load(e, halves, tile_offset_in_a(t, a, 2 * pair + 1, 0), 4) : x;
    for (unsigned half = 0; half < 2; half++)
      emit_store(e, zipped(t, x, y, 2, half), emit_offset(e, to, emit_i64(e, (2 * pair + half) * VECTOR)), VECTOR);
  }
  loop_end(e, &turns);
}

// ---- a pass ----

/* Of the lines that a turn asks for (ARG_NEXT_LINES), each pass asks for its share. */
static void fetch_next(Mmla *m, LLVMValueRef pass, LLVMValueRef next) {
  Emitter *e = m->t->e;
  const unsigned passes = m->t->spec->width / COLUMNS, share = (TFM_PREFETCH_LINES + passes - 1) / passes;
  LLVMValueRef lines = m->args[ARG_NEXT_LINES], none = emit_icmp(e, LLVMIntEQ, lines, emit_i64(e, 0));
  LLVMValueRef last = emit_select(e, none, lines, emit_sub(e, lines, emit_i64(e, 1)));
  LLVMValueRef first = emit_mul(e, pass, emit_i64(e, share));
  for (unsigned i = 0; i < share; i++) {
    LLVMValueRef line = emit_least(e, emit_add(e, first, emit_i64(e, i)), last);
    emit_prefetch(e, emit_offset(e, next, emit_mul(e, line, emit_i64(e, e->target->cache_line))), 2);
  }
}

static void emit_turn(Mmla *m, LLVMValueRef rows, LLVMValueRef b, LLVMValueRef *squares) {
  Tile *t = m->t;
  LLVMTypeRef bytes = LLVMVectorType(t->e->i8, VECTOR);
  for (unsigned half = 0; half < 2; half++)
    for (unsigned i = 0; i < SQUARES; i++) {
      LLVMValueRef x = tile_load_words(t, b, 2 * half, i / 2), y = tile_load_words(t, b, 2 * half + 1, i / 2);
      LLVMValueRef columns = LLVMBuildBitCast(t->e->builder, zipped(t, x, y, t->lanes, i % 2), bytes, "");
      for (unsigned pair = 0; pair < m->pairs; pair++) {
        LLVMValueRef at = emit_offset(t->e, rows, emit_i64(t->e, (2 * pair + half) * VECTOR));
        LLVMValueRef *square = &squares[pair * SQUARES + i]; /* unsigned bytes of b, signed ones of a */
        LLVMValueRef factors[] = {*square, columns, emit_load(t->e, bytes, at, VECTOR)};
        *square = emit_intrinsic2(t->e, t->e->target->matrix.dot, t->vector, bytes, 3, factors);
      }
    }
}

/* The sums of whole turns: squares of two columns by two rows. Sets b to what follows. */
static void emit_squares(Mmla *m, LLVMValueRef pass, LLVMValueRef *squares, LLVMValueRef *b) {
  Tile *t = m->t;
  Emitter *e = t->e;
  const unsigned n = m->pairs * SQUARES;
  LLVMValueRef line = emit_mul(e, m->args[ARG_NEXT_LINES], emit_i64(e, e->target->cache_line)), zero = emit_i64(e, 0);
  LLVMValueRef before = emit_mul(e, LLVMBuildLShr(e->builder, m->begin, emit_i64(e, 4), ""), line);
  LLVMValueRef ahead = emit_offset(e, m->args[ARG_NEXT], before);
  Loop turns = loop_begin(e, zero, m->turns, 1);
  LLVMValueRef rows = loop_carry(e, &turns, m->joined), at = loop_carry(e, &turns, t->args[ARG_B]);
  LLVMValueRef next = loop_carry(e, &turns, ahead);
  for (unsigned i = 0; i < n; i++) squares[i] = loop_carry(e, &turns, LLVMConstNull(t->vector));
  if (!e->target->lacks_prefetch) fetch_next(m, pass, next);
  emit_turn(m, rows, at, squares);
  loop_next(&turns, 0, emit_offset(e, rows, emit_i64(e, 2 * m->pairs * VECTOR)));
  loop_next(&turns, 1, emit_offset(e, at, emit_i64(e, tile_offset_in_b(t, STEPS, 0))));
  loop_next(&turns, 2, emit_offset(e, next, line));
  for (unsigned i = 0; i < n; i++) loop_next(&turns, 3 + i, squares[i]);
  loop_end(e, &turns);
  for (unsigned i = 0; i < n; i++) squares[i] = turns.results[3 + i];
  *b = turns.results[1];
}

static void add_squares(Mmla *m, const LLVMValueRef *squares) {
  Tile *t = m->t;
  for (unsigned row = 0; row < t->spec->rows; row++)
    for (unsigned j = 0; j < t->n; j++) {
      const LLVMValueRef *two = &squares[row / 2 * SQUARES + 2 * j];
      LLVMValueRef *c = &t->c[row * t->n + j];
      *c = emit_add(t->e, *c, unzipped(t, two[0], two[1], row % 2));
    }
}

/* What is in c, or what takes off that weights are stored 128 too large. */
static void begin_rows(Tile *t) {
  Emitter *e = t->e;
  LLVMValueRef begin[MAX_VECTORS], one = emit_i64(e, TFM_ACCUMULATE);
  LLVMValueRef adds = LLVMBuildAnd(e->builder, t->args[ARG_ACCUMULATE], one, "");
  for (unsigned i = 0; i < t->spec->rows * t->n; i++)
    begin[i] = i % t->n ? begin[i - 1] : tile_row_start(t, t->args[ARG_A], i / t->n);
  tile_take_up_c(t, emit_icmp(e, LLVMIntNE, adds, emit_i64(e, 0)), begin, false);
}

/* The steps of k behind whole turns. */
static void emit_rest(Mmla *m, LLVMValueRef *a, LLVMValueRef *b) {
  Tile *t = m->t;
  Emitter *e = t->e;
  const unsigned n = t->spec->rows * t->n;
  Loop rest = loop_begin(e, emit_mul(e, m->turns, emit_i64(e, STEPS)), t->steps, 1);
  LLVMValueRef at = loop_carry(e, &rest, *a), line = loop_carry(e, &rest, *b);
  for (unsigned i = 0; i < n; i++) t->c[i] = loop_carry(e, &rest, t->c[i]);
  emit_tile_step(t, (Position){.a = at, .b = line}, 0);
  loop_next(&rest, 0, tile_offset_in_a(t, at, 0, 1));
  loop_next(&rest, 1, emit_offset(e, line, emit_i64(e, tile_offset_in_b(t, 1, 0))));
  for (unsigned i = 0; i < n; i++) loop_next(&rest, 2 + i, t->c[i]);
  loop_end(e, &rest);
  for (unsigned i = 0; i < n; i++) t->c[i] = rest.results[2 + i];
  *a = rest.results[0];
  *b = rest.results[1];
}

static void emit_pass(Mmla *m, LLVMValueRef pass) {
  Tile *t = m->t;
  Emitter *e = t->e;
  LLVMValueRef squares[MOST_PAIRS * SQUARES], b;
  LLVMValueRef a = emit_offset(e, t->args[ARG_A], emit_mul(e, m->turns, emit_i64(e, TURN)));
  emit_squares(m, pass, squares, &b);
  begin_rows(t);
  add_squares(m, squares);
  emit_rest(m, &a, &b);
  emit_tile_scaling(t, (Position){.a = a, .b = b});
  emit_tile_finish(t);
}

// ---- all of it ----

/* A piece is as a call: it goes on with what c holds unless it is the first, and more follows unless it is the last. */
static void begin_piece(Mmla *m) {
  Tile *t = m->t;
  Emitter *e = t->e;
  LLVMValueRef left = emit_sub(e, m->args[ARG_K], m->begin), piece = emit_i64(e, MMLA_PIECE), zero = emit_i64(e, 0);
  LLVMValueRef is_first = emit_icmp(e, LLVMIntEQ, m->begin, zero), is_last = emit_icmp(e, LLVMIntSLE, left, piece);
  LLVMValueRef before = emit_select(e, is_first, zero, emit_i64(e, TFM_ACCUMULATE));
  LLVMValueRef after = emit_select(e, is_last, zero, emit_i64(e, TFM_MORE_FOLLOW));
  LLVMValueRef both = LLVMBuildOr(e->builder, before, after, "");
  t->args[ARG_ACCUMULATE] = LLVMBuildOr(e->builder, m->args[ARG_ACCUMULATE], both, "");
  t->args[ARG_A] = emit_offset(e, m->args[ARG_A], m->begin);
  t->steps = LLVMBuildLShr(e->builder, emit_add(e, emit_least(e, left, piece), emit_i64(e, 3)), emit_i64(e, 2), "");
  m->turns = LLVMBuildLShr(e->builder, emit_least(e, left, piece), emit_i64(e, 4), "");
  join_rows(m);
}

static void emit_passes(Mmla *m) {
  Tile *t = m->t;
  Emitter *e = t->e;
  LLVMValueRef b = emit_offset(e, m->args[ARG_B], emit_mul(e, m->begin, emit_i64(e, t->spec->b_stride)));
  Loop columns = loop_begin(e, emit_i64(e, 0), m->args[ARG_COLUMNS], COLUMNS);
  LLVMValueRef bytes = emit_mul(e, columns.index, emit_i64(e, sizeof(float)));
  t->args[ARG_B] = emit_offset(e, b, bytes);
  t->args[ARG_C] = emit_offset(e, m->args[ARG_C], bytes);
  t->args[ARG_COLUMNS] = emit_sub(e, m->args[ARG_COLUMNS], columns.index);
  emit_pass(m, LLVMBuildLShr(e->builder, columns.index, emit_i64(e, 3), ""));
  loop_end(e, &columns);
}

void emit_tile_mmla(Tile *t) {
  Emitter *e = t->e;
  Mmla m = {.t = t, .pairs = (t->spec->rows + 1u) / 2};
  CHECK(t->lanes * 4 == VECTOR && t->spec->b_form == TFM_FORM_INT8 && t->spec->width % COLUMNS == 0,
        "a tile of %u x %u in squares", t->spec->rows, t->spec->width);
  for (unsigned i = 0; i < N_ARGS; i++) m.args[i] = t->args[i];
  t->n = COLUMNS / t->lanes;
  t->side = 1;
  m.joined = emit_stack(e, LLVMArrayType2(LLVMVectorType(e->i8, VECTOR), MMLA_PIECE / TURN * 2 * m.pairs), VECTOR);
  LLVMValueRef none = emit_icmp(e, LLVMIntSLT, m.args[ARG_K], emit_i64(e, 1)); /* then c becomes zeroes */
  Loop pieces = loop_begin(e, emit_i64(e, 0), emit_select(e, none, emit_i64(e, 1), m.args[ARG_K]), MMLA_PIECE);
  m.begin = pieces.index;
  begin_piece(&m);
  emit_passes(&m);
  loop_end(e, &pieces);
}
