/* Matmul: how a product of two activations is cut into units, blocks of k and chains.
 *
 * In: a step and the sizes of a run. Out: its operands, the cut, and how much scratch a unit needs. Threads divide
 * results, never k. Refuses nothing; sizes that cannot be counted give -1 bytes. */
#ifndef TFM_RUNTIME_MATMUL_CUT_H
#define TFM_RUNTIME_MATMUL_CUT_H

#include "steps/live_runs.h"
#include "steps/epilogue.h"
#include "steps/items.h"

/* A chain of a gradient: steps of k, some of which may be left out or zero. */
typedef struct CountedChain {
  int64_t start, end;
  bool is_complete; /* else it goes on in the next run, or k ends */
} CountedChain;

typedef struct CountedChains { /* those that a run has a part of */
  const CountedChain *items;
  int64_t n;
  int64_t before, after; /* steps that were counted, from the first run on, before this one and with it */
} CountedChains;

typedef struct Matmul {
  const tfm_matmul_step *step;
  const Operand *x, *y, *c;
  tfm_pack_kernel pack;
  Items batch; /* what its items are */
  int64_t items, rows, columns, k;
  int64_t strips, panels, groups, panels_per_group, strip_units;
  int64_t packed_k; /* of a panel: all, or a block of k after the other */
  int64_t k_block;  /* of a tile: a block, or all of a k that is a little longer, if no strip is packed */
  int64_t chain;    /* steps of k that are one chain */
  bool y_stays, is_sideways, is_direct, by_blocks, goes_on; /* sideways: rows of x lie side by side, and stay */
  LiveRows live; /* of all items: rows, or steps if there are live_steps */
  Epilogue epilogue;
  CountedChains counted; /* of a gradient; no items and no steps if it has none */
  const struct GradientSums *sums; /* of a gradient (matmul_tiles.h); else NULL */
} Matmul;

typedef struct MatmulUnit { /* what a thread does at a time: a range of strips and a group of panels of an item */
  const Walker *walker;
  const Matmul *m;
  const char *x, *y;
  char *c;
  const char *next_x, *next_y; /* of the next item, if factors are read where they lie; NULL: nothing is fetched */
  int64_t item, first_panel, end_panel, end_row;
  float *panels, *strip, *waiting, *chain; /* chain: results of one, if the step adds them up */
  LiveRows rows, steps; /* of the item; no mask: all */
} MatmulUnit;

/* Strips are cut only where items and groups are too few for the threads, because every unit packs its panels again. */
Matmul matmul_of(const tfm_context *context, const tfm_step *step, int32_t threads);
/* The first element of batch item `item`. */
char *matmul_item(const tfm_context *context, const Matmul *m, const Operand *operand, int64_t item);
/* The first column of the results of a unit, and how many they are. */
static inline int64_t matmul_column(const MatmulUnit *unit) { return unit->first_panel * unit->m->step->width; }
static inline int64_t matmul_columns(const MatmulUnit *unit) {
  return least_of(unit->m->columns, unit->end_panel * unit->m->step->width) - matmul_column(unit);
}
/* Bytes of scratch that `count` keeps, at its beginning. */
int64_t matmul_counted_bytes(const Matmul *m);
/* Floats of the results of a strip, or of a unit, for chains whose sums wait. */
int64_t matmul_waiting_floats(const Matmul *m);
/* Floats of the results of a chain of a strip, where the step adds them up. */
int64_t matmul_chain_floats(const Matmul *m);

#endif
