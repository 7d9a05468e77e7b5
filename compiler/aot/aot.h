/* AOT: a model as a library, made before it is needed.
 *
 * In: plans of one model for one or more instruction sets, and packed weights if they are to be embedded. Out: object
 * code, library and header as bytes; who calls it writes files. The same input gives the same bytes. */
#ifndef TFM_AOT_AOT_H
#define TFM_AOT_AOT_H

#include "aot/library_plans.h"
#include "aot/link.h"
#include "aot/model_text.h"
#include "aot/names.h"
#include "base/strbuf.h"
#include "tfm/library.h"

typedef struct AotRequest {
  const LibraryPlans *plans; /* one per instruction set, the best first */
  uint32_t n_plans;
  const tfm_generation *generation; /* NULL: the model doesn't write */
  const char *not_incremental;      /* why the plans have no decoding, if they have none */
  const char *ragged;               /* the length of what it writes, if it is ragged; NULL: it is not */
  const bool *ragged_sources;       /* by the sizes of forward: other ragged ones; NULL: none */
  const void *weights;      /* packed, to be embedded; NULL: none */
  const char *version;      /* of tfmc */
  const ModelText *text;    /* what the plans were made from; NULL: `tfmc pack` cannot use the library */
  const char *compiler;     /* that links */
} AotRequest;

/* The objects: the kernels of each instruction set, then the rest. NULL after an error; n_plans + 1 of them. */
const Bytes *aot_objects(Arena *arena, Diag *diag, const AotRequest *request);
/* A library with the name `soname`. NULL data after an error. */
Bytes aot_library(Arena *arena, Diag *diag, const AotRequest *request, const char *soname);
/* One object, for linking with the runtime archive. NULL data after an error. */
Bytes aot_object(Arena *arena, Diag *diag, const AotRequest *request);
void aot_header(StrBuf *out, const AotRequest *request);

#endif
