/* What a run of a plan takes, found out by the runtime's own planner of memory.
 *
 * In: a plan without code, values of its run-time sizes in the order of program.symbols, threads. Out: numbers; a
 * function here fails the test if the runtime refuses the sizes. */
#ifndef TFM_TESTS_WORKSPACE_H
#define TFM_TESTS_WORKSPACE_H

#include "plan/plan.h"

typedef struct Workspace {
  int64_t measured, used; /* bytes: what the runtime says beforehand, and what a bound context has */
  int64_t buffers;        /* of both, the buffers; the rest is scratch of the threads */
  int64_t *offsets;       /* of each buffer, malloc'd */
} Workspace;

Workspace workspace_of(const Plan *plan, const int64_t *symbols, int threads);
int64_t plan_evaluate(const Plan *plan, tfm_size size, const int64_t *symbols); /* saturates */

#endif
