/* Decoding: the plans of a model in its incremental form, and what the runtime's decoder must know of the two. */
#ifndef TFM_PLAN_DECODING_H
#define TFM_PLAN_DECODING_H

#include "incremental/incremental.h"
#include "plan/plan.h"

typedef struct DecodingPlan {
  Plan *encoder; /* NULL: nothing is computed before the first token */
  Plan *step;
  tfm_decoding decoding; /* `source` and `step` are the plans' programs, whose kernels are NULL */
} DecodingPlan;

/* The graphs must have gone through the passes. NULL after an error. */
DecodingPlan *plan_decoding(Arena *arena, Diag *diag, const Incremental *incremental, const TargetInfo *target);

#endif
