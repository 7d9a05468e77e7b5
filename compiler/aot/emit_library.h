/* Emit library: everything in a compiled library that is not a kernel: its programs, its tfm_library, its exported
 * functions.
 *
 * In: plans for one or more instruction sets and what the library says of itself. Out: a module, which the caller
 * disposes of; it refers to the kernels as name + suffix and to the runtime's functions by their names. Refuses
 * nothing: what a library cannot generate with is found by generation_of. */
#ifndef TFM_AOT_EMIT_LIBRARY_H
#define TFM_AOT_EMIT_LIBRARY_H

#include <llvm-c/Core.h>

#include "aot/header.h"
#include "graph/graph.h"

/* Returns the generate block as the library holds it. NULL if there is none, or if the library could not generate with
 * it: the batch must be one run-time size or 1, the length a run-time size, the vocabulary a number. `defaults` and
 * `bos` are left as the runtime's own; the caller fills in what the block sets. */
tfm_generation *generation_of(Arena *arena, const Graph *graph);

/* Returns ".prefix.instruction_set", in which the names of the kernels end: several models and instruction sets may be
 * linked into one program. "" for modules, which are programs of their own. */
const char *library_kernel_suffix(Arena *arena, const Plan *forward);
LLVMModuleRef emit_library(Arena *arena, LLVMContextRef context, const LibraryParts *parts);

#endif
