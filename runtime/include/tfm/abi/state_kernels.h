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
 * A kernel of one step reads `in` twice and no `state`. Of a gradient a kernel passes: it computes states again and
 * reads no q. Without beta it leaves `out`. With beta it leaves what the key of each step reads, `reads_step` bytes
 * apart, and the state behind each stretch of `stretch` steps but the last, `kept_step` bytes apart from `kept` on, in
 * rows of `kept_row` bytes. */
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
  int64_t n, steps, stretch, columns;
  int64_t q_step, k_step, v_step, decay_step, beta_step, y_step;
} tfm_state_args;
typedef void (*tfm_state_kernel)(const tfm_state_args *args);

/* What the operands of a stretch of steps get, with the operands of a tfm_state_args for them and g, what their
 * results get; distances between steps in bytes. A first kernel keeps, from the first step to the last: the state
 * before the first step is `first`, those before later even steps t go `t * before_step` bytes behind `before`;
 * [n][row] with rows of whole blocks of columns, as `state`; what each step writes, u, and g go into lines of `row`
 * bytes; dq sums what the state behind the step holds times g. A second one goes from the last step to the first:
 * `state` is in, what the state behind the last step gets from later ones; out, what the one before the first gets. f
 * is decay S, r what the key reads of it. With beta dv holds r before the kernels, until it is what v gets. Each
 * column j, rows i ascending: state = fma(q[i], g[j], state); x = fma(k[i], state, x) from 0. dv = x, or beta x, and
 * dbeta = x (v - r). Each row i, columns ascending: dk sums state times u, less what f times dv sums; then state =
 * fma(-k[i], dv, state), ddecay sums state times the state before, and state = decay state. Sums along columns are
 * fma in 16 lanes, column j in lane j mod 16, added as a tree; of one decay, those of rows are added in order.
 * Operands and results of a step are neighbours. `sums`, of TFM_STATE_SUMS numbers a step, and `lines`, of `row`
 * bytes, are scratch; these and states are aligned to 64 bytes. steps is not 0. */
enum { TFM_STATE_LINES = 2, TFM_STATE_SUMS = 256, TFM_STATE_APART = 2 };
typedef struct tfm_state_grad_args {
  const char *q, *k, *v, *decay, *beta, *g;
  const char *first;
  char *before, *written, *given;
  float *state, *sums, *lines;
  char *dq, *dk, *dv, *ddecay, *dbeta;
  int64_t n, steps, columns, row; /* row: bytes from row to row of the states */
  int64_t q_step, k_step, v_step, decay_step, beta_step, g_step, before_step, written_step, given_step;
  int64_t dq_step, dk_step, dv_step, ddecay_step, dbeta_step;
} tfm_state_grad_args;
typedef void (*tfm_state_grad_kernel)(const tfm_state_grad_args *args);

#endif
