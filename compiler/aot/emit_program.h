/* The constants of a tfm_program in a module: the arrays as they stand in the plan, kernels as external functions. */
#ifndef TFM_AOT_EMIT_PROGRAM_H
#define TFM_AOT_EMIT_PROGRAM_H

#include <llvm-c/Core.h>

#include "plan/plan.h"

/* A private constant tfm_program. Kernels are referred to as `name` + suffix. */
LLVMValueRef emit_program(Arena *arena, LLVMModuleRef module, const Plan *plan, const char *suffix);

#endif
