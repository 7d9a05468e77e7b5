/* Plan: what is executed: steps over buffers, kernels by specification, weights by recipe.
 *
 * In: a fused graph (passes) and a TargetInfo. Out: a Plan whose `program` is complete but for the addresses of the
 * kernels, the list of kernels to generate, and for each packed weight the recipe that makes it. Everything lives in
 * the arena, and the plan refers to the graph, which must live as long. Refused: what the runtime has no room for,
 * reported (DIAG_LIMIT) at the node's span. */
#ifndef TFM_PLAN_PLAN_H
#define TFM_PLAN_PLAN_H

#include "draw/drawing.h"
#include "plan/planned.h"

/* Returns NULL after an error: a limit of the runtime, reported at the node's place. Renumbers the nodes of the
 * graph. */
Plan *plan_graph(Arena *arena, Diag *diag, Graph *graph, const TargetInfo *target);
/* A bit for each number of tfm_driver_number. */
typedef uint64_t DriverSet;
static inline DriverSet driver_bit(tfm_driver_number driver) { return UINT64_C(1) << driver; }
/* The drivers that the program needs. This alone chooses what of the
 * runtime a library is linked with, and what a program in memory may call. */
DriverSet plan_drivers(const Plan *plan);
void plan_print(StrBuf *out, const Plan *plan); /* for `dump --stage=plan` */
/* Calls `visit` for each operand of the step, masks of rows included. */
typedef void OperandVisit(void *context, const tfm_operand *operand, bool is_written);
void plan_visit_operands(const Plan *plan, const tfm_step *step, OperandVisit *visit, void *context);
Drawing *drawing_of_plan(const Plan *plan); /* the steps that run, with what is packed for them */
void plan_print_size(StrBuf *out, const Plan *plan, tfm_size size); /* "128*batch*time" */

#endif
