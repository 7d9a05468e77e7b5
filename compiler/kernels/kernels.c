/* In: a plan's list of kernels. Out: a module. See kernels.h. */
#include "kernels/kernels.h"

#include "kernels/emit.h"

typedef void (*EmitKernel)(Emitter *e, const KernelSpec *spec, const char *name);

/* One module for all: a list that several plans were put into may hold the same kernel twice, and its name, which is a
 * hash of the spec, says so. */
LLVMModuleRef kernels_module(LLVMContextRef context, const Plan *plan) {
  static const EmitKernel families[N_KERNEL_FAMILIES] = {
#define KERNEL(Enum, text, Type, line) [KERNEL_##Enum] = emit_##Enum,
#include "plan/kernels.def"
  };
  LLVMModuleRef module = LLVMModuleCreateWithNameInContext("kernels", context);
  Arena *arena = arena_create();
  Emitter e = emitter_new(arena, module, plan->target);
  for (size_t i = 0; i < plan->kernels.n; i++) {
    const PlannedKernel *kernel = &plan->kernels.items[i];
    if (!LLVMGetNamedFunction(module, kernel->name)) families[kernel->spec.family](&e, &kernel->spec, kernel->name);
  }
  emitter_destroy(&e);
  arena_destroy(arena);
  return module;
}
