/* In: a plan's list of kernels. Out: a module. See kernels.h. */
#include "kernels/kernel_module.h"

#include "kernels/emit.h"

typedef void (*EmitKernel)(Emitter *e, const KernelSpec *spec, const char *name);

/* A list that several plans were put into may hold the same kernel twice, and its name, which is a hash of the spec,
 * says so. Tiles that call others come behind these. */
static void emit_all(Emitter *e, const Plan *plan, const EmitKernel *families, bool calls_others) {
  for (size_t i = 0; i < plan->kernels.n; i++) {
    const PlannedKernel *kernel = &plan->kernels.items[i];
    if (!kernel->spec.of_one_row == !calls_others && !LLVMGetNamedFunction(e->module, kernel->name))
      families[kernel->spec.family](e, &kernel->spec, kernel->name);
  }
}

/* One module for all. */
LLVMModuleRef kernels_module(LLVMContextRef context, const Plan *plan) {
  static const EmitKernel families[N_KERNEL_FAMILIES] = {
#define KERNEL(Enum, text, Type, line) [KERNEL_##Enum] = emit_##Enum,
#include "plan/kernels.def"
  };
  LLVMModuleRef module = LLVMModuleCreateWithNameInContext("kernels", context);
  Arena *arena = arena_create();
  Emitter e = emitter_new(arena, module, plan->target);
  emit_all(&e, plan, families, false);
  emit_all(&e, plan, families, true);
  emitter_destroy(&e);
  arena_destroy(arena);
  return module;
}
