/* Decoding: the plans of a model in its incremental form, and what the runtime's decoder must know of the two
 * programs.
 *
 * In: the graphs of the encoder program and of the step program, after the passes. Out: two plans and a tfm_decoding,
 * which names sizes, inputs and outputs of the programs by their numbers. Everything lives in the arena. Refuses only
 * what plan_graph refuses: that the two graphs fit together is an invariant of incremental/ and is checked. */
#ifndef TFM_PLAN_DECODING_H
#define TFM_PLAN_DECODING_H

#include "incremental/incremental.h"
#include "plan/plan.h"

typedef struct DecodingPlan {
  Plan *encoder; /* NULL: nothing is computed before the first token */
  Plan *step;
  tfm_decoding decoding; /* `encoder` and `step` are the plans' programs, whose kernels are NULL */
} DecodingPlan;

/* The graphs must have gone through the passes. NULL after an error. */
DecodingPlan *plan_decoding(Arena *arena, Diag *diag, const Incremental *incremental, const TargetInfo *target);

#endif
