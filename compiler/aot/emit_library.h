/* The part of a compiled library that is no kernel: its programs, its tfm_library, its exported functions. */
#ifndef TFM_AOT_EMIT_LIBRARY_H
#define TFM_AOT_EMIT_LIBRARY_H

#include <llvm-c/Core.h>

#include "aot/library_plans.h"
#include "aot/model_text.h"
#include "aot/names.h"
#include "tfm/library.h"

typedef struct LibraryParts {
  const LibraryPlans *plans; /* one per instruction set, the best first; the same but for kernels and tiles */
  uint32_t n_plans;
  const ArgsNames *names;
  const tfm_generation *generation; /* NULL: the model doesn't write */
  const char *not_incremental;      /* why the plans have no decoding, if they have none */
  const char *ragged;               /* the length of what it writes, if it is ragged; NULL: it is not */
  const bool *ragged_sources;       /* by the sizes of forward: other ragged ones; NULL: none */
  const void *weights;      /* packed, to be embedded; NULL: none */
  const char *version;
  const ModelText *text;    /* for `tfmc pack` */
} LibraryParts;

/* What a library can do; each kind has the functions of those before it. */
typedef enum LibraryKind {
  LIBRARY_ANY,
  LIBRARY_WRITES, /* generate */
  LIBRARY_DECODES /* begin, step ...: what it has computed is kept */
} LibraryKind;

LibraryKind library_kind(const LibraryParts *parts);
/* A module that refers to the kernels of plans i as name + library_kernel_suffix(forward of i), and to the runtime. */
LLVMModuleRef emit_library(Arena *arena, LLVMContextRef context, const LibraryParts *parts);
const char *library_kernel_suffix(Arena *arena, const Plan *forward);

#endif
