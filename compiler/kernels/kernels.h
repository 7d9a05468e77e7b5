/* Kernels: from KernelSpec to LLVM IR, one function per spec.
 *
 * In: a module and a spec. Out: a function in it, with no call of anything outside the module. Refuses nothing: a spec
 * that plan can make is a spec that can be emitted. No fast-math flags; FMA only where it is written. */
#ifndef TFM_KERNELS_KERNELS_H
#define TFM_KERNELS_KERNELS_H

#include <llvm-c/Core.h>

#include "plan/plan.h"

/* All kernels of a plan in one new module of `context`. */
LLVMModuleRef kernels_module(LLVMContextRef context, const Plan *plan);

#endif
