/* Kernels: from KernelSpec to LLVM IR, one function per spec.
 *
 * In: the kernels of a plan. Out: a module with a function for each, which calls nothing outside the module. The
 * caller owns the module. Refuses nothing: every spec that plan can make can be emitted. There are no fast-math flags,
 * and products are fused with additions only where the code says so: the bits of a result are part of what is
 * specified (docs/decisions/0002-bits.md). */
#ifndef TFM_KERNELS_KERNEL_MODULE_H
#define TFM_KERNELS_KERNEL_MODULE_H

#include <llvm-c/Core.h>

#include "plan/plan.h"

/* The type of a kernel's function, for its definition and for the modules that only take its address: on machines whose
 * linkers know types (WebAssembly) the two must be one. */
LLVMTypeRef kernel_function_type(LLVMContextRef context, KernelFamily family);

/* Emits all kernels of a plan into one new module of `context`. */
LLVMModuleRef kernels_module(LLVMContextRef context, const Plan *plan);

#endif
