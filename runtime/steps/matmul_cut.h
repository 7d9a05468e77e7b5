/* Matmul: how a product of two activations is cut into units, blocks of k and chains.
 *
 * In: a step and the sizes of a run. Out: its operands, the cut, and how much scratch a unit needs. Threads divide
 * results, never k. Refuses nothing; sizes that cannot be counted give -1 bytes. */
#ifndef TFM_RUNTIME_MATMUL_CUT_H
#define TFM_RUNTIME_MATMUL_CUT_H

#include "steps/live_runs.h"
#include "steps/epilogue.h"

typedef struct Matmul {
  const tfm_matmul_step *step;
  const Operand *x, *y, *c;
  tfm_pack_kernel pack;
  int64_t items, rows, columns, k;
  int64_t strips, panels, groups, panels_per_group, strip_units;
  int64_t packed_k; /* of a panel: all, or a block of k after the other */
  int64_t k_block;  /* of a tile: a block, or all of a k that is a little longer, if no strip is packed */
  int64_t chain;    /* steps of k that are one chain */
  bool y_stays, is_sideways, is_direct, by_blocks, goes_on; /* sideways: rows of x lie side by side, and stay */
  LiveRows live; /* of all items: rows, or steps if there are live_steps */
  Epilogue epilogue;
} Matmul;

/* Strips are cut only where items and groups are too few for the threads, because every unit packs its panels again. */
Matmul matmul_of(const tfm_context *context, const tfm_step *step, int32_t threads);
/* The first element of batch item `item`. */
char *matmul_item(const tfm_context *context, const tfm_matmul_step *step, const Operand *operand, int64_t item);
/* What programs of gradients point to, so that libraries without them do not have it (one_row.c). */
struct tfm_gradient_sums {
  void (*one_row)(const Walker *walker, const Matmul *m); /* all of a TFM_DIRECT_ONE_ROW that is the thread's */
};
/* Floats of the results of a strip, or of a unit, for chains whose sums wait. */
int64_t matmul_waiting_floats(const Matmul *m);
/* Floats of the results of a chain of a strip, where the step adds them up. */
int64_t matmul_chain_floats(const Matmul *m);

#endif
