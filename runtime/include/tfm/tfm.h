/* tfm/tfm.h: running compiled models, and training them. C99 and C++.
 *
 * Threads: a model is constant and may be shared by any number of threads. A context, or a trainer, belongs to one
 * caller at a time; only tfm_context_cancel or tfm_trainer_cancel may be called while another function works with it.
 *
 * Errors: every function that can fail returns a tfm_status and fills the caller's tfm_error, which may be NULL. After
 * a failure the outputs are untouched and the context stays usable. No function prints, exits, installs handlers or
 * keeps global state. Sizes and dims count elements unless the text says bytes. */
#ifndef TFM_TFM_H
#define TFM_TFM_H

#include "tfm/train_types.h"
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
/* The program for this CPU, and what the library says of itself (abi/program.h, abi/library.h). Both belong to the
 * model. */
TFM_API const struct tfm_program *tfm_model_program(const tfm_model *model);
TFM_API const struct tfm_library *tfm_model_library(const tfm_model *model);
/* A context for the model, as tfm_context_create makes it. */
TFM_API tfm_status tfm_model_context(tfm_model *model, const tfm_context_options *options, tfm_context **context,
                                     tfm_error *error);

/* --- Training, without the header of a library --- */

/* Weights, their gradients and the moments of the optimizer, for the objective that the model's train block names.
 * Numbers are f32, results are double. tfm_compiled_trainer (tfm/compile.h) makes one of a text. */
typedef struct tfm_trainer tfm_trainer;

/* A trainer of a library made by `tfmc compile --training`, which it keeps loaded. `state` NULL: the weights have their
 * initial values for options->seed; else the path of a state.tfmt that tfm_trainer_save, `tfmc train` or `tfmc pack
 * --training` wrote: the next step is as if the run had never stopped, with the seed of the file. `options` NULL: the
 * defaults. The caller owns *trainer and ends it with tfm_trainer_destroy; *trainer is NULL after a failure.
 * TFM_E_ENV: a file cannot be read, is damaged or of another model, the library does not train, or it is not meant for
 * this runtime or this CPU. TFM_E_INPUT: settings out of range, a weight without an initial value (options->fills
 * makes it zeroes). Loading a library runs its code: open only what you trust. */
TFM_API tfm_status tfm_trainer_open(const char *library_path, const char *state, const tfm_trainer_options *options,
                                    tfm_trainer **trainer, tfm_error *error);
/* NULL is ignored. Models that tfm_trainer_model gave stay usable. */
TFM_API void tfm_trainer_destroy(tfm_trainer *trainer);

/* The inputs of the objective, *n of them, in its order: their names, types and shapes (tfm/abi/program.h). The array
 * belongs to the trainer. */
TFM_API const struct tfm_tensor_info *tfm_trainer_inputs(const tfm_trainer *trainer, uint32_t *n);
/* The name of result number 0 (the loss), 1 ... of the objective; NULL: there are no more. */
TFM_API const char *tfm_trainer_result(const tfm_trainer *trainer, int64_t result);
/* The path of weight number 0, 1 ...; NULL: there are no more. Weights that are not trained are among them. */
TFM_API const char *tfm_trainer_path(const tfm_trainer *trainer, int64_t weight);
/* The settings that the trainer has: those of the train block, or those of its options. */
TFM_API void tfm_trainer_settings(const tfm_trainer *trainer, tfm_train_settings *settings);

/* One step: gradients over n parts, then the update. parts[n][inputs] are values of the inputs, in the order of
 * tfm_trainer_inputs, whose data and dims are read during the call only; their order of axes is row-major. The parts
 * count as one batch, whose first item is number `first_item` of the step (0, unless several processes share it): with
 * one part or many, the step has the same bits. `result` may be NULL; else the caller sets its struct_size, and `norm`
 * is that of the gradient before clipping, `rate` the learning rate. After an error the weights are as before.
 * TFM_E_INPUT: an input, size or id is refused, or no label counts. TFM_E_DIVERGED: the loss or the norm is not
 * finite. TFM_E_NOMEM: there is no memory for these sizes. */
TFM_API tfm_status tfm_trainer_step(tfm_trainer *trainer, const tfm_value *parts, int64_t n, int64_t first_item,
                                    tfm_step_result *result, tfm_error *error);
/* The halves of a step; between them gradients can be read and changed (tfm_trainer_tensor). `norm` and `rate` come
 * from the second. TFM_E_USAGE: an update without gradients. */
TFM_API tfm_status tfm_trainer_gradients(tfm_trainer *trainer, const tfm_value *parts, int64_t n, int64_t first_item,
                                         tfm_step_result *result, tfm_error *error);
TFM_API tfm_status tfm_trainer_update(tfm_trainer *trainer, tfm_step_result *result, tfm_error *error);
/* The results of the objective over n parts, without dropout; no weight changes. */
TFM_API tfm_status tfm_trainer_evaluate(tfm_trainer *trainer, const tfm_value *parts, int64_t n,
                                        tfm_step_result *result, tfm_error *error);

/* Makes room for parts with the dims of `largest`, a value for each input (data is not looked at): steps within them
 * allocate nothing, but for a second part the first time that a step has one. */
TFM_API tfm_status tfm_trainer_reserve(tfm_trainer *trainer, const tfm_value *largest, tfm_error *error);
/* Bytes of memory for steps with parts of these dims, that of the trainer included, without what evaluation takes; -1
 * if a dim is out of range. */
TFM_API int64_t tfm_trainer_bytes(const tfm_trainer *trainer, const tfm_value *largest);
/* Of these, bytes of what it keeps between steps: weights, gradients, moments. */
TFM_API int64_t tfm_trainer_state_bytes(const tfm_trainer *trainer);
/* Bytes that a step takes besides if its batch, with these dims as a whole, has several parts and the objective mixes
 * their items; 0: it does not. -1: a dim is out of range. */
TFM_API int64_t tfm_trainer_mixture_bytes(const tfm_trainer *trainer, const tfm_value *whole);

/* A tensor of the weight `path`, row-major, to be read or written between calls; it lies where it is until the trainer
 * is destroyed. `which`: a tfm_train_tensor. dims[8] and rank may be NULL. TFM_E_INPUT: there is no such weight, it is
 * not trained, or the optimizer keeps no such moment. */
TFM_API tfm_status tfm_trainer_tensor(tfm_trainer *trainer, const char *path, int32_t which, float **data,
                                      int64_t *dims, int32_t *rank, tfm_error *error);
/* Weights that are not trained may be kept in 16 bits, as the file had them or as `frozen` of the train block says:
 * then tfm_trainer_tensor has none (TFM_E_USAGE), and these functions give and take their numbers in f32, row-major.
 * What is written is rounded to the nearest number that is kept. They are for any weight. The form is "f32", "bf16" or
 * "f16"; NULL: there is no such weight. */
TFM_API const char *tfm_trainer_form(const tfm_trainer *trainer, const char *path);
TFM_API tfm_status tfm_trainer_read(tfm_trainer *trainer, const char *path, float *to, tfm_error *error);
TFM_API tfm_status tfm_trainer_write(tfm_trainer *trainer, const char *path, const float *from, tfm_error *error);
/* The model with the weights as they are now, which stay its own whatever the trainer does. The caller owns *model and
 * ends it with tfm_model_close; it may outlive the trainer. TFM_E_USAGE: the model keeps weights in fewer bits. */
TFM_API tfm_status tfm_trainer_model(tfm_trainer *trainer, tfm_model **model, tfm_error *error);
/* Writes folder/step-XXXXXXXX, whole or not at all: state.tfmt, and weights.safetensors for everybody else. `folder` is
 * made if it is not there. The note, which may be NULL, is the caller's own: note_bytes bytes. TFM_E_ENV: it cannot be
 * written. */
TFM_API tfm_status tfm_trainer_save(tfm_trainer *trainer, const char *folder, const void *note, int64_t note_bytes,
                                    tfm_error *error);
/* Writes the two files of the model's adapters (`adapt`) as peft has them, adapter_config.json and
 * adapter_model.safetensors, into the folder, which is made if it is not there; each is whole or not at all. `base`:
 * what the config calls the model that the adapters are for, such as the folder of its checkpoint; it may be NULL.
 * TFM_E_USAGE: the model has no adapters, or some of weights that no module of PyTorch has. TFM_E_ENV: a file cannot
 * be written. */
TFM_API tfm_status tfm_trainer_save_adapter(tfm_trainer *trainer, const char *folder, const char *base,
                                            tfm_error *error);
/* Whether states and weights.safetensors hold what is trained alone, as of a model with adapters: 1 or 0. */
TFM_API int32_t tfm_trainer_base_is_apart(const tfm_trainer *trainer);
/* Whether the model has such adapters: 1 or 0. */
TFM_API int32_t tfm_trainer_has_adapter(const tfm_trainer *trainer);
/* Why tfm_trainer_save_adapter cannot write the adapters that the model has; NULL: it can, or there are none. The text
 * belongs to the trainer. */
TFM_API const char *tfm_trainer_no_adapter(const tfm_trainer *trainer);
/* The note of the state that the trainer began with, *bytes long; NULL: there is none. It belongs to the trainer. */
TFM_API const void *tfm_trainer_note(const tfm_trainer *trainer, int64_t *bytes);

/* Steps that are done; a caller that sets weights and moments itself can set them too. */
TFM_API int64_t tfm_trainer_steps(const tfm_trainer *trainer);
TFM_API void tfm_trainer_set_steps(tfm_trainer *trainer, int64_t steps);
/* The epoch, from 0, for schedules that depend on it. */
TFM_API void tfm_trainer_set_epoch(tfm_trainer *trainer, int64_t epoch);
/* Ends the call that is under way with this trainer, from any thread or signal handler: it soon returns
 * TFM_E_CANCELLED, with the weights as before. */
TFM_API void tfm_trainer_cancel(tfm_trainer *trainer);

#ifdef __cplusplus
}
#endif
#endif
