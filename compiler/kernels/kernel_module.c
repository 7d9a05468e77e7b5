/* In: a plan's list of kernels. Out: a module. See kernels.h. */
#include "kernels/kernel_module.h"

#include <string.h>

#include "base/check.h"
#include "kernels/emit.h"

static LLVMTypeRef type_of_letter(LLVMContextRef context, char letter) {
  if (letter == 'v') return LLVMVoidTypeInContext(context);
  if (letter == 'p') return LLVMPointerTypeInContext(context, 0);
  return letter == 'w' ? LLVMInt32TypeInContext(context) : LLVMInt64TypeInContext(context);
}

LLVMTypeRef kernel_function_type(LLVMContextRef context, KernelFamily family) {
  const char *letters = kernel_families[family].letters;
  const size_t n = strlen(letters) - 1;
  LLVMTypeRef parameters[9];
  CHECK(n <= sizeof parameters / sizeof *parameters, "a kernel of %zu parameters", n);
  for (size_t i = 0; i < n; i++) parameters[i] = type_of_letter(context, letters[i + 1]);
  return LLVMFunctionType(type_of_letter(context, letters[0]), parameters, (unsigned)n, false);
}

LLVMValueRef emit_kernel(Emitter *e, KernelFamily family, const char *name) {
  return emit_function(e, name, kernel_function_type(e->context, family));
}

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
#define KERNEL(Enum, text, Type, letters, line) [KERNEL_##Enum] = emit_##Enum,
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
