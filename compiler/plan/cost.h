/* Cost: every number by which plan guesses how long something takes. Those that choose a layout are in cost_layout.h.
 *
 * In: what a step computes. Out: `tfm_step.work`, in nanoseconds of one core, as a polynomial of the run-time sizes.
 * The runtime uses the estimates only to decide how many threads a run and a step are worth (NS_WORTH_A_THREAD), so an
 * error of a factor of two costs little. No estimate here can change a bit of a result: they choose who computes, never
 * the order of additions. What the runtime is tuned with is in tfm/abi/tuning_x86.def. Refuses nothing; an estimate
 * that overflows saturates. Private to plan/. */
#ifndef TFM_PLAN_COST_H
#define TFM_PLAN_COST_H

#include "plan/cost_layout.h"
#include "plan/nest.h"

tfm_size cost_rows(Planner *p, const Nest *nest);
tfm_size cost_gemm(Planner *p, const Nest *nest, const Size *rows, int64_t n, int64_t k);
tfm_size cost_quantize(Planner *p, const Size *rows, int64_t k);
tfm_size cost_matmul(Planner *p, const Nest *nest, const Size *k);
/* h: the width of a query and of a key. e: the width of a value. */
tfm_size cost_attention(Planner *p, const Nest *nest, int64_t h, int64_t e);
tfm_size cost_table(Planner *p, const Size *elements);
tfm_size cost_along(Planner *p, tfm_along what, const Size *elements);
tfm_size cost_state(Planner *p, const Size *elements, int64_t n); /* of the result; n: rows of the state */
tfm_size cost_ids(Planner *p, const Size *elements);
tfm_size cost_append(Planner *p, const Size *elements);

#endif
