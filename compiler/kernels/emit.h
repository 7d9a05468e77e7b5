/* Emit: one function per family of kernels (kernels.def), each in the file of its name.
 *
 * In: an emitter, a spec of that family, the name of the function. Out: the function in the emitter's module. */
#ifndef TFM_KERNELS_EMIT_H
#define TFM_KERNELS_EMIT_H

#include "codegen/emitter.h"
#include "plan/kernel_spec.h"

void emit_TILE(Emitter *e, const KernelSpec *spec, const char *name);
void emit_ROW(Emitter *e, const KernelSpec *spec, const char *name);
void emit_PACK(Emitter *e, const KernelSpec *spec, const char *name);
void emit_SOFTMAX(Emitter *e, const KernelSpec *spec, const char *name);
void emit_FINITE(Emitter *e, const KernelSpec *spec, const char *name);

#endif
