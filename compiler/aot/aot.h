/* AOT: a model compiled ahead of time, as a library that needs neither the compiler nor LLVM.
 *
 * In: plans of one model for one or more instruction sets, and packed weights if they are to be embedded. Out: object
 * code, a library and a header, as bytes in the arena; the caller writes the files. The same input gives the same
 * bytes: nothing of the machine, the time or the folder goes in. Refuses only what the tools refuse (DIAG_TOOL): LLVM
 * without a back end, a C compiler that cannot be started or cannot link. */
#ifndef TFM_AOT_AOT_H
#define TFM_AOT_AOT_H

#include "aot/description.h"
#include "aot/header.h"
#include "aot/link.h"
#include "aot/module_loader.h"

typedef struct AotRequest {
  const LibraryPlans *plans; /* one per instruction set, the best first */
  uint32_t n_plans;
  const tfm_generation *generation; /* NULL: the model has no generate block */
  const char *not_incremental;      /* why the plans have no decoding, if they have none */
  const char *ragged;               /* the name of the generated length if it is ragged, else NULL */
  const bool *ragged_sources;       /* by symbol of forward: the other ragged sizes; NULL: none */
  const void *weights;              /* packed, to be embedded; NULL: they come from a file */
  const TrainingParts *training;    /* NULL: the library does not train */
  const char *version;              /* of tfmc */
  const ModelText *text;            /* what the plans were made from; NULL: `tfmc pack` cannot use the library */
  const char *compiler;             /* the C compiler, which links; NULL: libraries are written without one */
} AotRequest;

/* Makes n_plans + 1 objects: the kernels of each instruction set, then the rest. NULL after an error. */
const Bytes *aot_objects(Arena *arena, Diag *diag, const AotRequest *request);
/* Makes a shared library with this soname. NULL data after an error. */
Bytes aot_library(Arena *arena, Diag *diag, const AotRequest *request, const char *soname);
/* Makes a WebAssembly module of one instruction set. NULL data after an error. */
Bytes aot_module(Arena *arena, Diag *diag, const AotRequest *request);
/* The JavaScript beside the modules of a model, and its types. */
void aot_module_texts(StrBuf *loader, StrBuf *types, const AotRequest *request, const ModuleFiles *files);
/* Makes one object, which the user links with the runtime archive. NULL data after an error. */
Bytes aot_object(Arena *arena, Diag *diag, const AotRequest *request);
void aot_header(StrBuf *out, const AotRequest *request);

/* Appends the kernels of a plan as LLVM IR or assembly. False after an error. */
bool code_text(Diag *diag, const Plan *plan, bool assembly, StrBuf *text);

#endif
