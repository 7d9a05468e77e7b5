/* From a nest to what runs: the spec of its kernel, its operands, its dims, its step. Private to plan/. */
#ifndef TFM_PLAN_NEST_STEP_H
#define TFM_PLAN_NEST_STEP_H

#include "plan/nest.h"

/* The spec of a row kernel; a caller that reduces calls nest_reduces, too. */
KernelSpec nest_spec(const Nest *nest);
/* The spec reduces lines of `length`, which lie as `reduce` says. */
void nest_reduces(KernelSpec *spec, OpKind reduction, uint8_t reduce, const Size *length);
/* The spec of a pointwise step, after its axes were put in the order that suits the operands. */
KernelSpec nest_pointwise(Planner *p, Nest *nest);
/* Adds the operands of the step that is about to be added; returns the number of the first. */
uint32_t nest_operands(Planner *p, const Nest *nest);
tfm_operand nest_operand(Planner *p, const Nest *nest, const NestOperand *operand);
void nest_dims(Planner *p, const Nest *nest, tfm_size *dims);
void plan_row_step(Planner *p, Nest *nest, const KernelSpec *spec, const char *operation);

#endif
