/* Cost: every number by which plan guesses how long something takes, or chooses a layout because of time.
 *
 * In: what a step computes. Out: `tfm_step.work`, in nanoseconds of one core, as a polynomial of the run-time sizes;
 * the distance of rows. The runtime uses the estimates only to decide how many threads a run and a step are worth
 * (NS_WORTH_A_THREAD), so an error of a factor of two costs little. No estimate and no threshold here can change a bit
 * of a result: they choose who computes and where it lies, never the order of additions. What the runtime is tuned with
 * is in tfm/abi/tuning_x86.def. Refuses nothing; an estimate that overflows saturates. Private to plan/. */
#ifndef TFM_PLAN_COST_H
#define TFM_PLAN_COST_H

#include "plan/nest.h"

tfm_size cost_rows(Planner *p, const Nest *nest);
tfm_size cost_gemm(Planner *p, const Nest *nest, const Size *rows, int64_t n, int64_t k);
tfm_size cost_quantize(Planner *p, const Size *rows, int64_t k);
tfm_size cost_matmul(Planner *p, const Nest *nest, const Size *k);
/* h: the width of a query and of a key. e: the width of a value. */
tfm_size cost_attention(Planner *p, const Nest *nest, int64_t h, int64_t e);
tfm_size cost_table(Planner *p, const Size *elements);
tfm_size cost_along(Planner *p, tfm_along what, const Size *elements);
tfm_size cost_ids(Planner *p, const Size *elements);
tfm_size cost_append(Planner *p, const Size *elements);

enum { COST_LINE = 16 }; /* floats of space between rows that plan lays out itself: a line of the cache */

/* Returns the distance of rows of n floats in memory that plan lays out itself. */
int64_t cost_row_stride(int64_t n);
/* Whether rows at this distance can be read where they lie. `is_callers`: the memory belongs to the caller, so its
 * layout is not ours to choose. */
bool cost_may_stay(int64_t stride, bool is_callers);
/* Products that read their factors where they lie. With rows side by side a square costs 64 shuffles (AVX-512), as much
 * as the FMAs of a tile of 16 columns for the same numbers, so it is for fewer columns, and not for so few rows or
 * steps that most of a square is empty. A kernel for a static number of rows has its results in so many registers. */
enum {
  COST_MOST_DIRECT_COLUMNS = 4,
  COST_LEAST_DIRECT_ROWS = 8,
  COST_LEAST_DIRECT_K = 16,
  COST_MOST_DIRECT_ROWS = 8,
  COST_MOST_PANELS_IN_PLACE = 4
};

/* Whether rows of so few columns should be made longer by merging an axis into them. */
bool cost_columns_are_short(int64_t columns);

#endif
