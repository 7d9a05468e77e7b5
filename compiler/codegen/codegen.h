/* Codegen: the host, target machines, and objects from modules.
 *
 * In: a module of kernels. Out: an object file in memory or assembly text. No IR passes: the IR is emitted as it should
 * be; only code generation (level Default) runs. */
#ifndef TFM_CODEGEN_CODEGEN_H
#define TFM_CODEGEN_CODEGEN_H

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "diag/diag.h"
#include "target/target.h"

/* The best target of targets[] that this CPU can run. */
const TargetInfo *host_target(void);
/* NULL if the host can run code for `target`, else the first feature it lacks. */
const char *host_lacks(const TargetInfo *target);
const char *host_cpu_name(Arena *arena);

LLVMTargetMachineRef target_machine(Diag *diag, const TargetInfo *target); /* NULL after an error */
/* Verifies the module first (a fault there is an internal error). The buffer is the caller's. NULL after an error. */
LLVMMemoryBufferRef emit_object(Diag *diag, LLVMModuleRef module, LLVMTargetMachineRef machine, bool assembly);

#endif
