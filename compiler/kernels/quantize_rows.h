/* What the kernels that make whole numbers of rows share: QUANTIZE (quantize_rows.c, quantize_groups.c) and
 * WEIGH (weigh_rows.c); the functions are in quantize_parts.c. Private to kernels. */
#ifndef TFM_KERNELS_QUANTIZE_ROWS_H
#define TFM_KERNELS_QUANTIZE_ROWS_H

#include "codegen/emitter.h"
#include "kernels/kernel_tuning.h"

/* Bits of magnitudes: from the first on they are not finite, and below the second a row becomes zeros, 2^-100. */
enum { INFINITE_BITS = 0x7f800000, LEAST_BITS = 0x0d800000 };
enum { ARG_X, ARG_X_STRIDE, ARG_ROWS, ARG_WORK, ARG_NUMBERS, ARG_STRIDE, N_ARGS };

typedef struct Quantize {
  Emitter *e;
  int64_t k, padded; /* columns; rounded up to whole vectors of LANES */
  unsigned bytes;    /* of a number */
  bool is_grouped, is_mixed, has_start, in_pairs;
  unsigned points;   /* numbers that are rotated together, `distance` apart */
  int64_t distance;
  bool is_paired;           /* a vector holds two points, one in each half */
  unsigned width;           /* lanes that are rotated side by side */
  LLVMTypeRef floats, bits; /* of `width` lanes */
  LLVMValueRef args[N_ARGS]; /* the row's own X and NUMBERS */
  unsigned n_held;
  LLVMValueRef held[ROW_HELD];
} Quantize;

/* The address of an f32, and of the number in args[ARG_NUMBERS], by their index. */
LLVMValueRef quantize_float_at(Quantize *q, LLVMValueRef base, LLVMValueRef index);
LLVMValueRef quantize_number_at(Quantize *q, LLVMValueRef index);
/* The bits of |x|, which are ordered as it is. */
LLVMValueRef quantize_magnitude(Quantize *q, LLVMValueRef x);
/* LANES numbers x * factor, rounded, in the low bits. */
LLVMValueRef quantize_round_lanes(Quantize *q, LLVMValueRef factor, LLVMValueRef x);
/* The same, and they are stored. */
LLVMValueRef quantize_rounded(Quantize *q, LLVMValueRef factor, LLVMValueRef x, LLVMValueRef to);
/* What tiles begin with, before the numbers: of n of them, whose sums by lanes these are (NULL: all are 0); the same of
 * a group. */
void quantize_store_start(Quantize *q, LLVMValueRef lanes, int64_t n, LLVMValueRef numbers);
void quantize_store_group_start(Quantize *q, LLVMValueRef sums, LLVMValueRef numbers);
/* A row of a mixed form (quantize_groups.c). */
void quantize_groups(Quantize *q);
/* Such numbers as bytes or words, as they lie in memory. */
LLVMValueRef quantize_narrowed(Quantize *q, LLVMValueRef bits);

#endif
