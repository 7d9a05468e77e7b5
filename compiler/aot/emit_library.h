/* The part of a compiled library that is no kernel: its programs, its tfm_library, its exported functions. */
#ifndef TFM_AOT_EMIT_LIBRARY_H
#define TFM_AOT_EMIT_LIBRARY_H

#include <llvm-c/Core.h>

#include "aot/model_text.h"
#include "aot/names.h"
#include "plan/plan.h"

typedef struct LibraryParts {
  const Plan *const *plans; /* one per instruction set, the best first; the same but for kernels and tiles */
  uint32_t n_plans;
  const ArgsNames *names;
  const void *weights;      /* packed, to be embedded; NULL: none */
  const char *version;
  const ModelText *text;    /* for `tfmc pack` */
} LibraryParts;

/* A module that refers to the kernels of plan i as name + library_kernel_suffix(plan i), and to the runtime. */
LLVMModuleRef emit_library(Arena *arena, LLVMContextRef context, const LibraryParts *parts);
const char *library_kernel_suffix(Arena *arena, const Plan *plan);
/* Hash of how the weights are packed: equal exactly for libraries that can share a .tfmw file. */
void library_layout(Arena *arena, const Plan *plan, uint8_t layout[16]);

#endif
