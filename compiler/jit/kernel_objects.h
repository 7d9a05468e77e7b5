/* Kernel objects: the machine code of a plan's kernels, in parts that many models have in common.
 *
 * In: a list of kernels, in which the same one may stand twice, and a cache of code or none. Out: objects in the arena
 * that define each kernel once, under its name, and need nothing from outside. The same list gives the same objects,
 * wherever they come from. Refused: what LLVM reports (DIAG_TOOL). */
#ifndef TFM_JIT_KERNEL_OBJECTS_H
#define TFM_JIT_KERNEL_OBJECTS_H

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "base/bytes.h"
#include "jit/code_cache.h"

/* The object code of a module, which this consumes. NULL data after an error. The bytes are copied to the arena,
 * because LLVM's buffer would have to be freed by everyone who drops them. */
Bytes object_bytes(Arena *arena, Diag *diag, LLVMModuleRef module, LLVMTargetMachineRef machine);

/* What the cache has not is generated and stored, by as many threads as the pool of a context would have
 * (TFM_NUM_THREADS, else the CPUs), at most 16. `cache` may be NULL. No items after an error. */
BytesList kernel_objects(Arena *arena, Diag *diag, const Plan *plan, const CodeCache *cache);

#endif
