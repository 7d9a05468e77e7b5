/* tfm/tfm.h: running compiled models. C99 and C++.
 *
 * A model is constant and may be shared by any number of threads; a context belongs to one caller at a time. No
 * function prints, exits, installs handlers or keeps global state. Every fallible function returns a tfm_status and
 * fills the caller's tfm_error (which may be NULL); on failure outputs are untouched and the context stays usable. */
#ifndef TFM_TFM_H
#define TFM_TFM_H

#include "tfm/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A context for a program and its packed weights (both must outlive it; weights 64-byte aligned). */
TFM_API tfm_status tfm_context_create(const struct tfm_program *program, const void *weights,
                                      const tfm_context_options *options, tfm_context **context, tfm_error *error);
TFM_API void tfm_context_destroy(tfm_context *context); /* NULL is ignored */

/* Binds the run-time sizes from the shapes of the inputs (in the program's order), checks shapes, types, the model's
 * own checks and ids, and makes room. After it, tfm_context_output_dims is valid. Values are looked at for ids only. */
TFM_API tfm_status tfm_context_bind(tfm_context *context, const tfm_value *inputs, tfm_error *error);
/* The dims of output number `output` for the bound sizes; valid until the next bind. */
TFM_API const int64_t *tfm_context_output_dims(const tfm_context *context, uint32_t output, int32_t *rank);
/* Computes. `outputs[i].data` NULL: not wanted; else room for all elements of output i (dims are not read). */
TFM_API tfm_status tfm_context_run(tfm_context *context, const tfm_value *inputs, const tfm_value *outputs,
                                   tfm_error *error);
/* Bytes of workspace for the bound sizes. */
TFM_API uint64_t tfm_context_workspace_bytes(const tfm_context *context);
/* Threads that work on a large run: may be fewer than asked for if the system gave no more. */
TFM_API int32_t tfm_context_threads(const tfm_context *context);
/* From now on each run adds the nanoseconds of each step to nanoseconds[step]; NULL: no longer. */
TFM_API void tfm_context_profile(tfm_context *context, uint64_t *nanoseconds);

/* --- Models from libraries, without their headers ------------------------------------------------------------------ */

/* Opens a library made by `tfmc compile` (path: libx.so) and its weights (NULL: x.tfmw beside it, or embedded ones).
 * Loading a library runs its code: open only what you trust. */
TFM_API tfm_status tfm_model_open(const char *library_path, const char *weights_path, tfm_model **model,
                                  tfm_error *error);
TFM_API void tfm_model_close(tfm_model *model); /* NULL is ignored. Its contexts keep what they need */
TFM_API const struct tfm_program *tfm_model_program(const tfm_model *model);
TFM_API const struct tfm_library *tfm_model_library(const tfm_model *model);
TFM_API tfm_status tfm_model_context(tfm_model *model, const tfm_context_options *options, tfm_context **context,
                                     tfm_error *error);

/* Ends the run that is under way in this context, from any thread or signal handler: before the next step it returns
 * TFM_E_CANCELLED, outputs untouched. A run that already writes its outputs goes on to its end and succeeds. Without a
 * run under way nothing happens: the next run is not affected. */
TFM_API void tfm_context_cancel(tfm_context *context);

/* Threads for contexts that name the pool in their options. It works for one run at a time: a run that finds it busy does
 * all its work in the thread that called it, with the same bits. `threads` as in tfm_context_options. */
TFM_API tfm_status tfm_pool_create(int32_t threads, tfm_pool **pool, tfm_error *error);
TFM_API void tfm_pool_destroy(tfm_pool *pool); /* NULL is ignored */

#ifdef __cplusplus
}
#endif
#endif
