/* Contexts of libraries: making one, holding off a second caller, and ending any context.
 *
 * In: a model and options. Out: a context whose owner is a LibraryHandle. Such a context is a user of the model, and
 * gives that up when it ends: with its last user the model ends too. Refused: missing pointers, and what
 * tfm_context_create refuses. */
#include "library/handle.h"

#include <string.h>

#include "base/allocate.h"
#include "library/open.h"

tfm_status tfm_library_context_new(tfm_model *model, const tfm_context_options *options, tfm_context **context,
                                   tfm_error *error) {
  if (!context) return tfm_refuse_call(error, "there is no place for the context");
  *context = NULL;
  if (!model) return tfm_refuse_call(error, "the model is a null pointer");
  tfm_context *made;
  tfm_status status = tfm_context_create(model->program, model->weights.packed, options, &made, error);
  if (status) return status;
  LibraryHandle *handle = allocate(&made->allocator, sizeof *handle, ALIGNMENT);
  if (!handle) {
    context_end(made);
    return tfm_no_memory(error, "a context");
  }
  memset(handle, 0, sizeof *handle);
  handle->table = model->library;
  handle->model = model;
  made->owner = handle;
  model_keep(model);
  *context = made;
  return TFM_OK;
}

tfm_status tfm_model_context(tfm_model *model, const tfm_context_options *options, tfm_context **context,
                             tfm_error *error) {
  return tfm_library_context_new(model, options, context, error);
}

// ---- one caller at a time ----

tfm_status library_enter(tfm_context *context, tfm_error *error) {
  if (!context) return tfm_refuse_call(error, "the context is a null pointer");
  if (!handle_of(context)) return tfm_refuse_call(error, "the context was not made from a compiled library");
  if (atomic_exchange_explicit(&handle_of(context)->running, true, memory_order_acquire))
    return tfm_refuse_call(error, "another thread is using this context");
  return TFM_OK;
}

void library_leave(tfm_context *context) {
  atomic_store_explicit(&handle_of(context)->running, false, memory_order_release);
}

// ---- the end ----

/* The decoder uses the context's pool, so it ends first; the model may unload the program, so it ends last. */
void tfm_context_destroy(tfm_context *context) {
  LibraryHandle *handle = context ? handle_of(context) : NULL;
  if (!handle) {
    context_end(context);
    return;
  }
  const tfm_allocator allocator = context->allocator;
  tfm_model *model = handle->model;
  if (handle->end_decoder) handle->end_decoder(handle);
  context_end(context);
  release(&allocator, handle, sizeof *handle);
  model_release(model);
}
