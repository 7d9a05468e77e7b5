/* What the files of TILE share: a tile that is being emitted, and its steps along k.
 *
 * A panel of b has its columns side by side, in the form that the spec names; rows of a and of c are as far apart as
 * the spec or the argument says. Vectors [first, first + n) of every row are computed together: the functions here add
 * to c[row * n + vector] of these. Refuses nothing: emit_TILE has checked the spec. */
#ifndef TFM_KERNELS_TILE_H
#define TFM_KERNELS_TILE_H

#include "codegen/emitter.h"
#include "kernels/kernel_tuning.h"
#include "plan/kernel_spec.h"

enum { MAX_VECTORS = 32 };

enum { ARG_A, ARG_B, ARG_C, ARG_C_STRIDE, ARG_K, ARG_ACCUMULATE, ARG_COLUMNS, ARG_NEXT, ARG_NEXT_LINES, N_ARGS };

typedef struct Tile {
  Emitter *e;
  const KernelSpec *spec;
  unsigned lanes;    /* floats of a vector */
  unsigned first, n; /* the vectors of a row that are computed together */
  LLVMTypeRef vector; /* of c: f32, or i32 while whole numbers are added */
  LLVMValueRef args[N_ARGS];
  LLVMValueRef steps;                             /* along k, of the chain: of form INT8 four k each */
  LLVMValueRef chain_begin;                       /* the first k of the chain in this call; NULL: there is but one */
  unsigned side;      /* chains that are computed side by side */
  LLVMValueRef apart; /* steps of k from one of these to the next; 0 where one is left, which is computed twice then */
  LLVMValueRef next_offset[TILE_TURN], next_advance; /* of the lines that are prefetched from `next` on */
  LLVMValueRef stack;          /* rows x width, where there are no masks */
  LLVMValueRef held[TFM_MAX_TILE_ROWS]; /* the bytes of each row for a turn, where a vector holds them; else NULL */
  LLVMValueRef more[MAX_VECTORS]; /* of Q4..A8, for each vector */
  LLVMValueRef sums[MAX_VECTORS], *c; /* row by row, chain after chain, then sums of values (tile_sums_values);
                                         c: of the chain that is added to */
} Tile;

static inline int64_t tile_first_column(const Tile *t) { return (int64_t)t->first * t->lanes; }
static inline int64_t tile_end_column(const Tile *t) { return (int64_t)(t->first + t->n) * t->lanes; }
/* The columns are those of two panels. */
static inline bool tile_has_two_panels(const Tile *t) {
  return t->spec->has_whole_panel && t->spec->width > t->spec->b_stride;
}
/* a has whole numbers; b has such, with scales behind, or is mixed. */
static inline bool tile_is_integer(const Tile *t) { return tfm_form_has_whole_rows(t->spec->b_form); }
/* c is f32, as its bits, and of a group a and b are whole numbers. */
static inline bool tile_is_mixed(const Tile *t) { return tfm_form_is_mixed(t->spec->b_form); }
/* A number of a is a byte; else, of whole numbers, a word. */
static inline bool tile_takes_bytes(const Tile *t) { return t->e->target->dot_bytes || t->spec->in_pairs; }
/* Whether rows, whose bytes are unsigned, come 128 too small because dot_bytes takes signed ones, as values are: then
 * they lack 128 times the sums of values. */
static inline bool tile_sums_values(const Tile *t) {
  return tile_is_integer(t) && t->spec->b_is_signed && t->e->target->dot_bytes && t->e->target->dot_is_signed;
}
/* In groups of 32 k, each with a number or a power of two, or of more with a word. */
static inline bool tile_is_grouped(const Tile *t) { return tfm_form_has_groups(t->spec->b_form); }
static inline bool tile_has_words(const Tile *t) { return tfm_form_has_words(t->spec->b_form); }

/* Vector j of row u of b (tile_step.c): f32, or whole numbers as they lie. */
LLVMValueRef tile_load_b(Tile *t, LLVMValueRef b, unsigned u, unsigned j);
/* Loads what the steps of a turn from `u` on take of each row; tile_drop_rows ends that. */
void tile_hold_rows(Tile *t, LLVMValueRef a, unsigned u);
void tile_drop_rows(Tile *t);

/* Weights are stored 128 too large, those of a group 8: what each row, or group of it, begins with takes that off. */
LLVMValueRef tile_row_start(Tile *t, LLVMValueRef a, unsigned row);

typedef struct Position { /* how far along k the pointers have come */
  LLVMValueRef a, b, next;
} Position;

/* c += a[., k] b[k, .] for the k that `at` points to, `u` steps further. */
void emit_tile_step(Tile *t, Position at, unsigned u);
/* The same for 1 or 2 steps, column after column: a whole panel has its sums in so many registers that no line of b
 * fits beside them, but a vector of it and the elements of each row do. Of numbers that are not whole. */
void emit_wide_steps(Tile *t, Position at, unsigned u, unsigned steps);
/* c += the sums of a group, times its numbers; of a mixed form `factors` are its powers. */
void emit_tile_group(Tile *t, LLVMValueRef a, LLVMValueRef b, const LLVMValueRef *factors);
/* c += sums of x times numbers of MXFP4, times the powers of the group (tile_mxfp4.c). */
void emit_tile_group_mxfp4(Tile *t, LLVMValueRef a, LLVMValueRef b, const LLVMValueRef *factors);
/* Of MXFP4A8: four numbers of 4 bits, a byte each, as bytes that are TFM_MIXED_MORE more than twice them. */
LLVMValueRef tile_mxfp4_bytes(Tile *t, LLVMValueRef codes);
/* The powers of the next group as f32. */
LLVMValueRef tile_powers(Tile *t, LLVMValueRef bytes);
/* c += x times numbers of Q4, 32 steps; `words` are those of the group (tile_q4.c). */
void emit_tile_group_q4(Tile *t, LLVMValueRef a, LLVMValueRef b, const LLVMValueRef *words);
/* Of Q4..A8, from such a word: what is added to the bytes of the group, as t->more, and twice its scale. */
LLVMValueRef tile_q4_more(Tile *t, LLVMValueRef word);
LLVMValueRef tile_q4_factor(Tile *t, LLVMValueRef word);
/* The numbers of the next group as factors. */
LLVMValueRef tile_factors(Tile *t, LLVMValueRef numbers);
/* All of a kernel whose arguments and steps are set (tile_mmla.c). */
void emit_tile_mmla(Tile *t);
/* 128 times the sums of values, to all rows. */
void emit_tile_values(Tile *t);
/* After the last call for c, but of mixed forms: sums, times the scale of the row, times that of the column, times the
 * factor, as bits in c. `end` has come to the scales. */
void emit_tile_scaling(Tile *t, Position end);

// ---- memory (tile_memory.c) ----

/* The address of what row `row` of `a` has for step `step`. */
LLVMValueRef tile_offset_in_a(Tile *t, LLVMValueRef a, int64_t row, int64_t step);
/* The bytes from b to column `column` of its row `row`; of bf16, to the pair that the row is in. */
int64_t tile_offset_in_b(const Tile *t, int64_t row, int64_t column);
/* Vector j of row u of b, as whole numbers of 32 bits that lie there. */
LLVMValueRef tile_load_words(Tile *t, LLVMValueRef b, unsigned u, unsigned j);
LLVMValueRef tile_splat_bits(Tile *t, uint32_t bits);

/* The registers of c become what c holds if `adds`, else `without`; with is_sum they are added to what it holds. */
void tile_take_up_c(Tile *t, LLVMValueRef adds, LLVMValueRef *without, bool is_sum);
void emit_tile_finish(Tile *t);
/* Rows that are cut go by way of t->stack, which the caller makes. */
bool tile_is_staged(const Tile *t);

#endif
