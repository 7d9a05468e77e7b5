/* LibraryPlans: what a library does for one instruction set, as programs that share their packed weights.
 *
 * In: plans of one model. Out: the same as a list, their kernels, the hash of how their weights are packed. */
#ifndef TFM_AOT_LIBRARY_PLANS_H
#define TFM_AOT_LIBRARY_PLANS_H

#include "plan/decoding.h"

typedef struct LibraryPlans {
  Plan *forward;
  const DecodingPlan *decoding; /* NULL: the model writes nothing, or all of forward runs for each token */
} LibraryPlans;

typedef struct PlanList {
  Plan *plans[3];
  uint32_t n;
} PlanList;

/* In the order of their packed weights: a step of decoding reads little else than weights, so its own come first. */
PlanList library_plan_list(const LibraryPlans *plans);
/* All kernels, as those of one plan. */
Plan library_kernels(Arena *arena, const LibraryPlans *plans);
/* Hash of how the weights are packed: equal exactly for libraries that can share a .tfmw file. */
void library_layout(Arena *arena, const LibraryPlans *plans, uint8_t layout[16]);

#endif
