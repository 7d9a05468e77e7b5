/* Emit module: what a WebAssembly module has of functions that a shared library has not, and the other way round.
 *
 * In: the rows of library_functions.def and module_functions.def; the module of a library. Out: which rows go in; the
 * function <prefix>_fused, or that of a command. Refuses nothing. */
#ifndef TFM_AOT_EMIT_MODULE_H
#define TFM_AOT_EMIT_MODULE_H

#include <llvm-c/Core.h>
#include <stdbool.h>

#include "target/target.h"

typedef struct ModuleFunction { /* a row of module_functions.def */
  const char *suffix, *runtime, *result, *arguments;
} ModuleFunction;

extern const ModuleFunction module_functions[]; /* ends with a row whose suffix is NULL */

/* Whether modules have the function: there are no files, and there is one thread. `embeds`: the weights are in it. */
bool module_has(const char *suffix, bool embeds);
/* Pointers of a module have 4 bytes: said before blobs are made. */
void module_set_pointers(LLVMModuleRef module);
/* int32_t <prefix>_fused(void): 1 if products are fused with the sums that they are added to. The engine chooses, once
 * and for all, so it is asked with a product whose two results differ. */
void emit_fused(LLVMModuleRef module, const char *name, const TargetInfo *target);
/* void _start(void): runs the library as a command of WASI. `weights`: the file where the caller names none; NULL: they
 * are in the library. */
void emit_command(LLVMModuleRef module, LLVMValueRef library, const char *weights);

#endif
