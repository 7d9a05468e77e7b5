/* tfm/tfm.h: running compiled models. C99 and C++.
 *
 * Threads: a model is constant and may be shared by any number of threads. A context belongs to one caller at a time;
 * only tfm_context_cancel may be called while another function works with it.
 *
 * Errors: every function that can fail returns a tfm_status and fills the caller's tfm_error, which may be NULL. After
 * a failure the outputs are untouched and the context stays usable. No function prints, exits, installs handlers or
 * keeps global state. Sizes and dims count elements unless the text says bytes. */
#ifndef TFM_TFM_H
#define TFM_TFM_H

#include "tfm/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- Contexts --- */

/* Creates a context for a program and its packed weights. Both must outlive the context; the weights must be aligned
 * to 64 bytes and may be NULL only if the program has none. `options` NULL: the defaults. The caller owns *context and
 * ends it with tfm_context_destroy; *context is NULL after a failure. TFM_E_ENV: the program has another version than
 * this runtime. The function does not compare the program's instruction set with the CPU; tfm_model_open does. */
TFM_API tfm_status tfm_context_create(const struct tfm_program *program, const void *weights,
                                      const tfm_context_options *options, tfm_context **context, tfm_error *error);
/* Frees the context and its workspace and ends its own threads. NULL is ignored. No other call may be using the
 * context. */
TFM_API void tfm_context_destroy(tfm_context *context);

/* Binds the run-time sizes: reads them from the shapes of the inputs (one tfm_value for each, in the program's order),
 * checks types, shapes, the model's own checks and the ids among the inputs, and makes room. Data is read for ids
 * only, and nothing of `inputs` is kept. TFM_E_INPUT: an input, size or id is refused. TFM_E_NOMEM: there is no memory
 * for these sizes. Binding the same sizes again costs only the check of the ids. */
TFM_API tfm_status tfm_context_bind(tfm_context *context, const tfm_value *inputs, tfm_error *error);
/* The dims of output number `output` for the bound sizes, *rank of them (`rank` may be NULL); NULL: nothing is bound,
 * or there is no such output. The array belongs to the context and is valid until the next bind. */
TFM_API const int64_t *tfm_context_output_dims(const tfm_context *context, uint32_t output, int32_t *rank);
/* Computes the outputs. The inputs must have the shapes that were bound (else TFM_E_USAGE). outputs[i].data points to
 * room for all elements of output i, row-major, of any alignment; NULL: the output is not wanted, and what only it
 * needs is not computed. The other members of `outputs` are not read. Outputs must not overlap each other or an
 * input. */
TFM_API tfm_status tfm_context_run(tfm_context *context, const tfm_value *inputs, const tfm_value *outputs,
                                   tfm_error *error);
/* Ends the run that is under way in this context, from any thread or signal handler: the run stops before its next
 * step and returns TFM_E_CANCELLED, its outputs untouched. A run that already writes outputs goes on to its end and
 * succeeds. Without a run under way nothing happens, and the next run is not affected. */
TFM_API void tfm_context_cancel(tfm_context *context);

/* Bytes of workspace for the bound sizes; 0 if nothing is bound. */
TFM_API uint64_t tfm_context_workspace_bytes(const tfm_context *context);
/* Threads that work on a large run, the caller included. There may be fewer than asked for if the system gave no
 * more. */
TFM_API int32_t tfm_context_threads(const tfm_context *context);
/* From now on each run adds the nanoseconds of each step to nanoseconds[step], an array of program->n_steps numbers
 * that must stay valid while it is set. NULL ends this. */
TFM_API void tfm_context_profile(tfm_context *context, uint64_t *nanoseconds);

/* --- Threads that contexts share --- */

/* A pool of threads for contexts that name it in their options; it must outlive them. It works for one run at a time:
 * a run that finds it busy does all its work in the thread that called, with the same bits. `threads` has the meaning
 * that it has in tfm_context_options. */
TFM_API tfm_status tfm_pool_create(int32_t threads, tfm_pool **pool, tfm_error *error);
TFM_API void tfm_pool_destroy(tfm_pool *pool); /* NULL is ignored */

/* --- Models from libraries, without their headers --- */

/* Opens a library made by `tfmc compile` (library_path: "libx.so") and its weights. weights_path NULL: the weights
 * that the library holds, else x.tfmw beside it. The caller owns *model and ends it with tfm_model_close; *model is
 * NULL after a failure. TFM_E_ENV: a file cannot be read, is damaged, or is not meant for this runtime or this CPU.
 * Loading a library runs its code: open only what you trust. */
TFM_API tfm_status tfm_model_open(const char *library_path, const char *weights_path, tfm_model **model,
                                  tfm_error *error);
/* NULL is ignored. Contexts of the model stay usable: what they need is freed with the last of them. */
TFM_API void tfm_model_close(tfm_model *model);
/* The program for this CPU, and what the library says of itself (tfm/program.h, tfm/library.h). Both belong to the
 * model. */
TFM_API const struct tfm_program *tfm_model_program(const tfm_model *model);
TFM_API const struct tfm_library *tfm_model_library(const tfm_model *model);
/* A context for the model, as tfm_context_create makes it. */
TFM_API tfm_status tfm_model_context(tfm_model *model, const tfm_context_options *options, tfm_context **context,
                                     tfm_error *error);

#ifdef __cplusplus
}
#endif
#endif
