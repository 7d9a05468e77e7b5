/* tfm/abi/kernels.h: what generated code looks like from outside. C99. A part of tfm/abi/program.h.
 *
 * Kernels are functions for inner blocks. Plan decides which a program needs, compiler/kernels makes them, the runtime
 * calls them with addresses that it has checked. Their limits are part of what both sides rely on: a change of any
 * raises TFM_PROGRAM_VERSION. */
#ifndef TFM_KERNELS_H
#define TFM_KERNELS_H

#include <stdint.h>

#include "tfm/abi/forms.h"
#include "tfm/abi/slot.h"
#include "tfm/abi/state_kernels.h"

enum {
  TFM_MAX_RANK = 8,
  TFM_MAX_TILE_ROWS = 16,
  TFM_MAX_OPERANDS = 32,
  TFM_KEY_BLOCK = 512, /* keys per block of attention, counted from key 0: part of the definition of the bits */
  TFM_STRIP_STRIDE = TFM_KEY_BLOCK + 16, /* floats between rows of a strip of scores, and of a packed left operand: no
                                            multiple of a page of memory, so that rows do not share cache sets */
  TFM_STRIP_SCALES = TFM_KEY_BLOCK, /* behind the scores of the first row of a strip: where the scales of values are,
                                       a const float *, for a softmax kernel of whole numbers */
  TFM_STRIP_GREATEST = TFM_KEY_BLOCK + 4, /* of each row: the bits of the greatest weight that it leaves */
  TFM_NARROW_PANEL = 16, /* columns of a panel that is no wider than a vector of AVX-512, or two of AVX2 */
  TFM_CHAIN = 16384, /* steps of k, or keys, in one sum; the sums are added in a tree: part of the definition too */
  TFM_COUNTED_CHAIN = 256, /* steps of k, without those that are zero, of the chains of a gradient: the same */
  TFM_ROW_CHAIN = 768, /* elements of a row or column that are summed in f32; these sums are added in f64: part of the
                          definition too, and 48 additions for each of 16 lanes, which lose 7.5e-7 at most */
  TFM_K_BLOCK = 768, /* steps of k of a call of a tile in a gemm, at most; of rows of bytes WHOLE_K_BLOCK, and
                         all where a tile takes whole panels */
  TFM_PREFETCH_LINES = 12, /* lines of 64 bytes that a tile prefetches a turn of k (forms.def), at most */
  TFM_CACHE_PAGE = 16,     /* positions of a row in one page of the caches */
  TFM_WHOLE_HEAD = 512     /* columns of a head that is in caches of form INT8, at most: rooms for it are on stacks */
};

typedef struct tfm_row_operand {
  TFM_SLOT(char *base);
  int64_t row_stride, column_stride; /* bytes */
} tfm_row_operand;

typedef struct tfm_row_args {
  int64_t rows, columns;
  int64_t coordinates[TFM_MAX_RANK]; /* of the first element of the block: [0] column, [1] row, [2] ... outer axes */
  TFM_SLOT(int32_t *faults); /* kernels set bits of tfm_fault atomically, as other threads do */
  tfm_row_operand operands[TFM_MAX_OPERANDS]; /* [0] is the result */
} tfm_row_args;

enum tfm_fault { TFM_FAULT_DIVISION = 1 };

/* A block of rows x columns: pointwise, or a reduction along its columns or its rows. Operands may have any
 * alignment. */
typedef void (*tfm_row_kernel)(const tfm_row_args *args);

/* Of INT4: steps of k that share a number, and how many of these numbers lie together (forms.def has them too). */
enum { TFM_GROUP = 32, TFM_GROUPS = 4 };
enum { TFM_MIXED_MORE = 16 }; /* by how much tiles make numbers of mixed forms too large, so that they have no sign */

/* A row of whole numbers p, what tiles read as a; `a` points to p0:
 *
 *   for INT8   TFM_ROW_HEAD floats ........ start | p0 p1 p2 p3 | p4 p5 p6 p7 | ... 0 | scale
 *   for INT4   .............. start of k 0 .. 31  | p0 ... p31  | start of k 32 .. 63 | p32 ... p63 | ... | scale
 *   mixed      ...... scale | start of k 0 .. 31  | p0 ... p31  | scale | start of k 32 .. 63 | p32 ... p63 | ...
 *
 * start, an i32, is -128 times the sum of all p, for INT4 -8 and for mixed forms -16 times that of its group: what
 * weights are stored too large by is taken off with it. Behind the last p are zeros up to a multiple of four; the
 * scale is an f32. With a_bytes 1 a number is a byte, with 2 it is two, and four stand in the order 0 2 1 3. Rows are
 * tfm_row_floats apart: no multiple of a page of memory.
 *
 * Where tiles multiply bytes in pairs (k 0 and 1, 2 and 3, ...), whose sums must fit 16 bits, a number is a byte, and
 * with groups a start is two words, for the pairs of even number and the others. For INT8, of a pair whose sum is
 * beyond -128 .. 128 the first number is less by the rest, and rows are tfm_split_row_floats apart:
 *
 *   ... | scale | n | ... | four, rests | four, rests | ...
 *
 * n, an i32, says how many fours of numbers have rests. From TFM_RESTS_AT bytes behind the numbers on each of these
 * takes 8 bytes: which four it is, i32, and the rests of its numbers (the 2nd and 4th are 0). */
enum { TFM_ROW_HEAD = 16, TFM_RESTS_AT = 16 };

static inline int64_t tfm_row_bytes(uint8_t form, uint8_t a_bytes, int64_t k) { /* of k numbers of a, f32 too */
  return k * a_bytes + (form == TFM_FORM_INT4 ? k / TFM_GROUP * 4 : tfm_form_is_mixed(form) ? k / TFM_GROUP * 8 : 0);
}

static inline int64_t tfm_row_floats(uint8_t form, uint8_t a_bytes, int64_t k) {
  const int64_t numbers = tfm_row_bytes(form, a_bytes, (k + 3) / 4 * 4) / 4; /* in floats */
  return TFM_ROW_HEAD + (numbers + 1 + 15) / 16 * 16;
}

/* With room for the rests, and for one more: an entry is written before it is known to be one. */
static inline int64_t tfm_split_row_floats(int64_t k) {
  const int64_t fours = (k + 3) / 4;
  return TFM_ROW_HEAD + (fours + TFM_RESTS_AT / 4 + 2 * (fours + 1) + 15) / 16 * 16;
}

static inline int64_t tfm_whole_row_floats(uint8_t a_bytes, int64_t k) { /* of form INT8 */
  return tfm_row_floats(TFM_FORM_INT8, a_bytes, k);
}

/* What the columns of a head take in a page of a cache, in floats; h is their number. Of form INT8, keys lie as a panel
 * of TFM_CACHE_PAGE columns, [ceil(h / 4)][TFM_CACHE_PAGE][4] bytes, 128 too large, and then the scales; values as
 * [TFM_CACHE_PAGE / 4][tfm_value_columns(h)][4] bytes, and then the scales. */
static inline int64_t tfm_value_columns(int64_t h) { return (h + 7) / 8 * 8; }
static inline int64_t tfm_head_floats(uint8_t form, int is_keys, int64_t h) {
  if (form != TFM_FORM_INT8) return TFM_CACHE_PAGE * h;
  return TFM_CACHE_PAGE * ((is_keys ? (h + 3) / 4 : tfm_value_columns(h) / 4) + 1);
}

/* Writes the rows of whole numbers for `rows` rows x[k], of which `numbers` is the first of the first; strides are in
 * bytes. k, the bytes of a number and whether x is rotated before are part of the kernel; one whose numbers are bytes
 * whatever tiles take (keys and values) writes no sum before them. work: room for k floats, rounded up to 16, aligned
 * to 64 bytes. */
typedef void (*tfm_quantize_kernel)(const float *x, int64_t x_stride, int64_t rows, float *work, void *numbers,
                                    int64_t stride);

/* The same for weights of a block of keys, `rows` of a strip, whose rows are as a softmax kernel leaves them: each
 * weight times the scale of its value, 0 times anything being 0, is rounded to 0 to 255, and is 128 less where tiles
 * multiply signed bytes alone. The strip is overwritten. Rows of whole numbers are those of TFM_KEY_BLOCK numbers; a
 * scale stands behind the first `columns` of them, rounded up to four. scales: readable up to a multiple of 16. */
typedef void (*tfm_weigh_kernel)(float *strip, int64_t rows, int64_t columns, const float *scales, void *numbers);

/* c[rows x columns] (+)= a[rows x k] b[k x width]; rows, width and the strides of a and b are part of the kernel. k may
 * be cut into several calls, and no cut changes a bit. Each element is a sum of chains of FMAs, k ascending, of which
 * the kernel has one kind:
 *
 *   one chain      any number of steps: from c with `accumulate`, else from 0. k may be cut anywhere
 *   short chains   TFM_SHORT_CHAIN steps, each from 0 and added to those before it, with `accumulate` to c. k may be
 *                  cut between chains
 *   chains go on   TFM_COUNTED_CHAIN steps, for gradients: with TFM_ACCUMULATE the first one begins with c, with
 *                  TFM_ADD it is added to c
 *   whole numbers  b of form INT8 or INT4: a is a row of whole numbers, and sums have no order. c holds them, i32,
 *                  until a call without TFM_MORE_FOLLOW has scaled them. Of INT4 all calls but the last take whole
 *                  TFM_GROUPS groups. Values of attention are signed bytes without scales of their own, times rows of
 *                  unsigned numbers
 *   mixed          b of a mixed form, a a row of whole numbers with a scale for each group: c holds f32, to which each
 *                  group adds its sum times both scales, and with which the next call goes on. Cut as INT4
 *
 * The runtime begins anew, in a tree of sums, after every TFM_CHAIN steps. columns <= width: how many columns of c are
 * stored. next: this tile's part of the memory that is read next; it prefetches next_lines (0 to TFM_PREFETCH_LINES)
 * lines of it in a turn of k (forms.def). Any address will do. Where the rows of a lie side by side, next is where the
 * next tile's results are, whose rows are c_stride apart as well. */
enum { TFM_ACCUMULATE = 1, TFM_ADD = 2, TFM_MORE_FOLLOW = 2 }; /* bits of `accumulate`: c counts; and as above */
typedef void (*tfm_tile_kernel)(const float *a, const void *b, float *c, int64_t c_stride, int64_t k,
                                int64_t accumulate, int64_t columns, const void *next, int64_t next_lines);

/* c[rows x columns] = x[rows x k] y[k x columns] for each of `items` products, at any distances (bytes): of items,
 * rows, steps of k and columns; columns of c are neighbours. Chains as in a tile. A kernel of columns side by
 * side takes y whose columns are neighbours, and no more of them than a vector has floats; one of rows side by side
 * takes x whose steps of k are neighbours, and its own number of columns. rows is not 0. */
typedef struct tfm_direct_args {
  TFM_SLOT(const char *x);
  TFM_SLOT(const char *y);
  TFM_SLOT(char *c);
  int64_t items, rows, columns, k;
  int64_t x_item, x_row, x_step, y_item, y_step, y_column, c_item, c_row;
} tfm_direct_args;
typedef void (*tfm_direct_kernel)(const tfm_direct_args *args);

/* packed[k][width] = source[k * k_stride + column * column_stride]; columns from `columns` on are zero. The source is
 * in the form of the kernel. */
typedef void (*tfm_pack_kernel)(const void *source, int64_t k_stride, int64_t column_stride, int64_t k,
                                int64_t columns, float *packed);

/* The online softmax of one block of keys, in place on a strip of scores (row stride TFM_STRIP_STRIDE floats). The
 * state of each row, maximum[r] and sum[r], is carried from block to block and starts as -inf and 0. scale[r] gets the
 * factor by which the row's result so far must be multiplied. A block of -inf leaves the state as it is (scale 1).
 * Columns from `columns` to the next multiple of 16 are written as 0. One of attention in whole numbers without caches
 * or weights as an output leaves weights times the scales of their values instead, and finds and leaves more behind the
 * scores (TFM_STRIP_SCALES); the weigh kernel beside it rounds them. */
typedef void (*tfm_softmax_kernel)(float *strip, int64_t rows, int64_t columns, float *maximum, float *sum,
                                   float *scale);

/* 1 if all of rows x columns floats are finite, else 0. */
typedef int32_t (*tfm_finite_kernel)(const float *x, int64_t row_stride, int64_t rows, int64_t columns);

#endif
