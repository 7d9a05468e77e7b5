/* What the functions behind <model>_forward, <model>_generate and the like share: one caller at a time, and reading
 * args. */
#ifndef TFM_RUNTIME_EXPORTS_H
#define TFM_RUNTIME_EXPORTS_H

#include "library/handle.h"

/* Refuses a caller whose header has another struct of args than the library, which is not read. */
tfm_status library_check_layout(const char *model, uint64_t of_library, uint64_t of_header, tfm_error *error);
/* Checks args and reads their run-time sizes into context->asked. */
tfm_status library_read_sizes(tfm_context *context, const void *args, tfm_error *error);
/* Reads the inputs of args into context->given, with the dims that the context has. Only input number `optional` may
 * be a null pointer. */
tfm_status library_read_inputs(tfm_context *context, const void *args, uint32_t optional, tfm_error *error);
/* The pointer at this offset of args. */
void *library_pointer(const void *args, uint32_t offset);
/* The lengths that the items have of a size, from args; NULL: all items have all of it. For generative models. */
static inline const int64_t *library_lengths(const tfm_library *library, const void *args, uint32_t symbol) {
  const uint32_t *places = library->args.lengths;
  return places && places[symbol] ? library_pointer(args, places[symbol]) : NULL;
}

/* library_generate.c: <model>_begin for a context that is the caller's. */
tfm_status library_begin(tfm_context *context, const void *args, int64_t max_rows, int64_t max_length,
                         tfm_error *error);

#endif
