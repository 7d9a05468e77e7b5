/* The constants of a library whose model writes: its generate block, and its incremental form. */
#ifndef TFM_AOT_EMIT_DECODING_H
#define TFM_AOT_EMIT_DECODING_H

#include <llvm-c/Core.h>

#include "plan/decoding.h"
#include "tfm/library.h"

/* A private constant tfm_decoding with its two programs. Kernels are referred to as name + suffix. */
LLVMValueRef emit_decoding(Arena *arena, LLVMModuleRef module, const DecodingPlan *plan, const char *suffix);
/* A private constant tfm_generation of a model with this program. */
LLVMValueRef emit_generation(Arena *arena, LLVMModuleRef module, const tfm_generation *generation,
                             const tfm_program *forward);

#endif
