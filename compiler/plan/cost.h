/* Cost: every number by which plan guesses how long something takes, or chooses a layout because of time.
 *
 * In: what a step computes. Out: `tfm_step.work`, in nanoseconds of one core, as a polynomial of the run-time sizes;
 * lengths of rows. The runtime uses the estimates only to decide how many threads a run and a step are worth (runtime:
 * NS_WORTH_A_THREAD), so an error of a factor of two costs little. No estimate and no threshold here can change a bit
 * of a result. Private to plan/. */
#ifndef TFM_PLAN_COST_H
#define TFM_PLAN_COST_H

#include "plan/nest.h"

tfm_size cost_rows(Planner *p, const Nest *nest);
tfm_size cost_gemm(Planner *p, const Nest *nest, const Size *rows, int64_t n, int64_t k);
tfm_size cost_matmul(Planner *p, const Nest *nest, const Size *k);
/* h: the width of a query and a key, e: the width of a value. */
tfm_size cost_attention(Planner *p, const Nest *nest, int64_t h, int64_t e);
tfm_size cost_table(Planner *p, const Size *elements);
tfm_size cost_ids(Planner *p, const Size *elements);
tfm_size cost_append(Planner *p, const Size *elements);

enum { COST_LINE = 16 }; /* floats of space between rows that plan lays out itself: a line of the cache */

/* The distance of such rows of n floats. */
int64_t cost_row_stride(int64_t n);
/* Whether rows at this distance can be read where they lie; `is_callers`: in memory of the caller. */
bool cost_may_stay(int64_t stride, bool is_callers);
/* Whether columns are so short that a row of them should be made longer by merging an axis into it. */
bool cost_columns_are_short(int64_t columns);

#endif
