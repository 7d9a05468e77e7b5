/* Emit: one function per family of kernels (plan/kernels.def), called by kernel_module.c through the table.
 *
 * In: an emitter, a spec of that family, the name of the function. Out: the function in the emitter's module,
 * complete. Refuses nothing; a spec that plan cannot make is a CHECK. */
#ifndef TFM_KERNELS_EMIT_H
#define TFM_KERNELS_EMIT_H

#include "codegen/emitter.h"
#include "plan/kernel_spec.h"

#define KERNEL(Enum, text, Type, letters, line) void emit_##Enum(Emitter *e, const KernelSpec *spec, const char *name);
#include "plan/kernels.def"

/* Begins the function of a kernel: emit_function, with the type of the row in kernels.def. */
LLVMValueRef emit_kernel(Emitter *e, KernelFamily family, const char *name);

/* x times the scale of its value, 0 times anything being 0: a weight of attention in whole numbers. Any vectors. */
LLVMValueRef emit_weighed(Emitter *e, LLVMValueRef x, LLVMValueRef scale);

#endif
