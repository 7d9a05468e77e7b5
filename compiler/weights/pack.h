/* Pack: executes weight recipes into one block of memory.
 *
 * In: a plan and a way to get weights by name. Out: program.weights_bytes bytes at `packed` (64-byte aligned, zeroed).
 * Weight-only subgraphs made of WEIGHT, row SLICE, CONCAT of rows, PERMUTE and scaling are packed directly; others are
 * evaluated by the reference interpreter first. What another plan packs to the same place is left to it. */
#ifndef TFM_WEIGHTS_PACK_H
#define TFM_WEIGHTS_PACK_H

#include "graph/eval.h"
#include "plan/plan.h"

bool pack_weights(Arena *arena, Diag *diag, const Plan *plan, WeightLookup weights, void *context, char *packed);

#endif
