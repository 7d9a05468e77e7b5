/* What a context of a library has beside its program: the model, one caller at a time, and of a generative model a
 * decoder. The context itself knows nothing of it. */
#ifndef TFM_RUNTIME_HANDLE_H
#define TFM_RUNTIME_HANDLE_H

#include "context/context.h"
#include "tfm/abi/library.h"

struct tfm_decoder;

typedef struct LibraryHandle {
  const tfm_library *table;
  tfm_model *model;            /* one of its users is the context */
  _Atomic uint32_t running;    /* 0 or 1: a call is working with the context; a second one is refused */
  struct tfm_decoder *decoder; /* made when it is first needed */
  bool decodes;                /* its rows are those of <model>_begin */
  /* Ends the decoder; NULL: there is none. A pointer, so that libraries of models that do not generate are linked
   * without a decoder. */
  void (*end_decoder)(struct LibraryHandle *handle);
} LibraryHandle;

/* NULL: the context was not made from a compiled library. */
static inline LibraryHandle *handle_of(const tfm_context *context) { return context->owner; }

/* Makes the context the caller's until library_leave. A second caller is refused, instead of both computing garbage. */
tfm_status library_enter(tfm_context *context, tfm_error *error);
void library_leave(tfm_context *context);

#endif
