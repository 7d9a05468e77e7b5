/* abi/gradient_steps.h: the steps that only programs of gradients have. C99. A part of abi/program.h, which includes
 * it. */
#ifndef TFM_GRADIENT_STEPS_H
#define TFM_GRADIENT_STEPS_H

#include "tfm/abi/operand.h"

/* Of a product: steps of k that are not live are left out of all sums, and what x and y hold there is not looked at.
 * The mask is over k alone, or over batch axes and k. */
typedef enum tfm_live_steps { TFM_STEPS_ALL, TFM_STEPS_SHARED, TFM_STEPS_OF_ITEM } tfm_live_steps;

typedef enum tfm_order { /* of the steps of k of a gradient: chains of TFM_COUNTED_CHAIN that are not zero */
  TFM_ORDER_NONE,
  TFM_ORDER_ONE_RUN,
  TFM_ORDER_GOES_ON /* in a run that goes on, from the last step of the one before */
} tfm_order;

/* Attention in a step of training, over batch axes dims[0..rank-2); dims[rank-2] is t (queries), dims[rank-1] is s
 * (keys). Strides as in tfm_attention_step: q, g, c: batch axes, t; k, v, dk, dv: batch axes, s; the columns of all are
 * contiguous. is_forward: c = kept(softmax(score(q kT))) v, g is q, dk and dv are c. Else c, dk and dv are what
 * q, k and v get if that gets g.
 * score: a pointwise row kernel in place on a strip, as an attention's score, with the operands [first_operand + 1, +
 * n_operands - 1). kept, sum_products and through have these too, and then TFM_GRAD_OPERANDS more, which are the
 * runtime's. With `kept`, probabilities in strips are not yet divided: p is operand TFM_GRAD_P times TFM_GRAD_SCALE. */
typedef enum tfm_grad_operand {
  TFM_GRAD_P,     /* a strip of probabilities */
  TFM_GRAD_X,     /* a strip of g vT */
  TFM_GRAD_SCALE, /* one number a row: 1 / the sum of the powers of its scores */
  TFM_GRAD_SUM,   /* one number a row: what sum_products gave */
  TFM_GRAD_OPERANDS
} tfm_grad_operand;

enum { TFM_NARROW_TILES = TFM_MAX_TILE_ROWS / 2 }; /* other tiles of scores have no more rows */

typedef struct tfm_attention_grad_step {
  uint32_t qk_tiles[TFM_MAX_TILE_ROWS + 1]; /* a = q in place, b = packed keys */
  uint32_t gv_tiles[TFM_MAX_TILE_ROWS + 1]; /* a = g in place, b = packed values */
  uint32_t q_tiles[TFM_MAX_TILE_ROWS + 1];  /* a = a strip, b = rows of k, packed h_width wide, or of v, e_width */
  uint32_t k_tiles[TFM_MAX_TILE_ROWS + 1];  /* a = a strip, read transposed, b = rows of q, likewise */
  uint32_t v_tiles[TFM_MAX_TILE_ROWS + 1];  /* a = a strip, read transposed, b = rows of g, packed e_width wide */
  uint32_t pack_columns, pack_h, pack_e;    /* keys and values as columns; rows of k and q; of g, is_forward: of v */
  uint32_t score, softmax, scale_rows;      /* score TFM_NONE: nothing is done */
  uint32_t kept;         /* row kernel: what is kept of p; TFM_NONE: all of it */
  uint32_t sum_products; /* row kernel, one result a row: the sum of p times what is kept of x */
  uint32_t through;      /* row kernel: what q kT gets */
  uint32_t pack_narrow;
  uint8_t tile_rows, key_width, h_width, e_width, rank, n_operands;
  uint8_t causal, padding, padding_true; /* as in tfm_attention_step */
  /* For up to narrow_width keys in all (0: there are none), `rows` from 1 to narrow_rows: qk_tiles and gv_tiles
   * [TFM_NARROW_TILES + rows]. */
  uint8_t narrow_rows, narrow_width, is_forward;
  tfm_size causal_offset;
  int64_t h, e;
  tfm_operand q, k, v, g, c, dk, dv;
  uint32_t first_operand;
  tfm_size dims[TFM_MAX_RANK];
  uint32_t live; /* tfm_live_rows of queries: the others get and give nothing */
} tfm_attention_grad_step;

/* What the operands of a linear attention get. Operands, rank and dims are those of a tfm_state_step without initial
 * and last; g is what its result gets. Results have the items and steps of g and neighbours as columns; c is what q
 * gets. ddecay and dbeta are dv where there is no decay, no beta. */
typedef struct tfm_state_grad_step {
  uint32_t passes;         /* tfm_state_kernel: computes states again */
  uint32_t keeps, through; /* tfm_state_grad_kernel: the states before each step; what operands get */
  uint8_t rank, has_decay, decay_by_rows, beta; /* tfm_beta */
  uint8_t block, wide; /* columns that `passes` takes; that `keeps` and `through` take, a multiple of block */
  int64_t n;
  tfm_operand q, k, v, decay, beta_values, g, c, dk, dv, ddecay, dbeta;
  tfm_size dims[TFM_MAX_RANK];
} tfm_state_grad_step;

#endif
