/* Codegen: the host, target machines, and objects from modules.
 *
 * In: a module of kernels. Out: an object file in memory or assembly text, which the caller disposes of. No IR passes
 * run: the IR is emitted as it should be, and a pass could reassociate or contract what decides bits, or take seconds
 * for a large model. Only code generation (level Default) runs. Refused: targets that this LLVM has no back end for. */
#ifndef TFM_CODEGEN_CODEGEN_H
#define TFM_CODEGEN_CODEGEN_H

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "diag/diag.h"
#include "target/target.h"

/* Returns the best target of targets[] that this CPU can run. */
const TargetInfo *host_target(void);
/* Returns NULL if the host can run code for `target`, else the name of the first feature that it lacks, or of the
 * machine that it is not. */
const char *host_lacks(const TargetInfo *target);
/* The same in words that follow "cannot run here: ", and in a sentence of its own. */
const char *host_why_not(Arena *arena, const TargetInfo *target);
const char *host_refuses(Arena *arena, const TargetInfo *target);
const char *host_cpu_name(Arena *arena);

LLVMTargetMachineRef target_machine(Diag *diag, const TargetInfo *target); /* NULL after an error */
/* Verifies the module first; a fault there is an error of ours. Sets the data layout and the triple of the module. The
 * buffer belongs to the caller. NULL after an error. */
LLVMMemoryBufferRef emit_object(Diag *diag, LLVMModuleRef module, LLVMTargetMachineRef machine, bool assembly);

#endif
