/* tfm/abi/state_kernels.h: kernels of states (linear attention), and of what their operands get from gradients. C99. A
 * part of tfm/abi/program.h.
 *
 * In: rows of operands, a state. Out: results, the state behind them; for gradients what the operands get. Their
 * definition is part of the bits: a change raises TFM_PROGRAM_VERSION. Refuse nothing. */
#ifndef TFM_STATE_KERNELS_H
#define TFM_STATE_KERNELS_H

#include <stdint.h>

#include "tfm/abi/slot.h"

/* The columns of a state that one call of a kernel takes, at most; a program says how many (tfm_state_step.block, and
 * .one_block of the kernel for a single step). No bit depends on it. */
enum { TFM_STATE_COLUMNS = 128 };

/* Of what a step writes: values; beta (v - what the key reads), with one beta for all columns, or one for each. */
typedef enum tfm_beta { TFM_BETA_NONE, TFM_BETA_ONE, TFM_BETA_EACH } tfm_beta;

/* A block of columns of a state S[n][block]: `in` before the first step, `out` behind the last one, `state` (aligned to
 * 64 bytes) between them; whole blocks are read and written, and the three may be the same memory. Step t, column j,
 * rows i ascending: S[i][j] = decay[i] S[i][j], one rounded product; r = fma(k[i], S[i][j], r) from r = 0; u = v[j], or
 * beta (v[j] - r), a difference and a product; S[i][j] = fma(k[i], u, S[i][j]); y[j] = fma(q[i], S[i][j], y) from 0. So
 * the bits depend on nothing but the numbers. Distances are in bytes; columns of q, k, v, y, and of a decay and a beta
 * for each are neighbours. Where the kernel does not fade, or has no beta, these are not read. n and steps are not 0.
 * A kernel of one step reads `in` twice and no `state`. Of a gradient two kernels compute states again: one that passes
 * leaves `out` alone and reads no q; one that keeps leaves the states before step 1 and later ones, `kept_step` bytes
 * apart from `kept` on, in rows of `kept_row` bytes, and, with beta, what the key of each step reads, `reads_step`
 * bytes apart, and no more. */
typedef struct tfm_state_args {
  TFM_SLOT(const char *q);
  TFM_SLOT(const char *k);
  TFM_SLOT(const char *v);
  TFM_SLOT(const char *decay);
  TFM_SLOT(const char *beta);
  TFM_SLOT(const char *in);
  TFM_SLOT(char *y);
  TFM_SLOT(char *out);
  TFM_SLOT(float *state);
  TFM_SLOT(char *kept);
  TFM_SLOT(char *reads);
  int64_t kept_row, kept_step, reads_step;
  int64_t in_row, out_row; /* between rows of `in`, of `out`; 0 for a row that is all rows of `in` */
  int64_t n, steps, columns;
  int64_t q_step, k_step, v_step, decay_step, beta_step, y_step;
} tfm_state_args;
typedef void (*tfm_state_kernel)(const tfm_state_args *args);

/* What the operands of one step get, with the operands of a tfm_state_args for this step and g, what its result gets.
 * `before` is the state before the step, [n][row] with rows of whole blocks of columns, and so is `state`: in, what the
 * state behind the step gets from later ones; out, what the one before it gets. f is decay S, r what the key reads of
 * it (`reads`, with beta) and u what is written, as in the step. Each column j, rows i ascending: state = fma(q[i],
 * g[j], state); x = fma(k[i], state, x) from 0. dv = x, or beta x, and dbeta = x (v - r). Each row i, columns
 * ascending: dq sums what the state behind the step holds times g, dk state times u, less what f times dv sums; then
 * state = fma(-k[i], dv, state), ddecay sums state times `before`, and state = decay state. Sums along columns are fma
 * in 16 lanes, column j in lane j mod 16, added as a tree; of one decay, those of rows are added in order. Operands and
 * results are neighbours. Three `lines` of `row` bytes are scratch; these, before and state are aligned to 64 bytes. */
typedef struct tfm_state_grad_args {
  const char *q, *k, *v, *decay, *beta, *g;
  const float *before, *reads;
  float *state, *lines;
  char *dq, *dk, *dv, *ddecay, *dbeta;
  int64_t n, columns, row; /* bytes from row to row of the states */
} tfm_state_grad_args;
typedef void (*tfm_state_grad_kernel)(const tfm_state_grad_args *args);

#endif
