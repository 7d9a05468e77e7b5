/* tfm/compile.h: models from source text, compiled while a program runs. C99 and C++; link with libtfm.
 *
 * In: a text or file in the language of models, its configuration and its weights. Out: a tfm_model, as if it came
 * from a library, for the functions of tfm/tfm.h. Code is made in a child process, the command tfmc: whatever goes
 * wrong there, running out of memory or a fault of the code generator included, this process gets a status. No compiler
 * or linker of the system is needed. Nothing is printed, and no signal handler, thread, open file or setting of the
 * process remains. */
#ifndef TFM_COMPILE_H
#define TFM_COMPILE_H

#include "tfm/tfm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tfm_compiled tfm_compiled; /* a model with its code and its packed weights */

typedef struct tfm_tensor { /* a weight in memory: row-major, any alignment */
  const char *name;
  const char *dtype; /* as in safetensors files: "F32" (so NULL too), "F16", "BF16" */
  int32_t rank;
  const int64_t *dims;
  const void *data;
} tfm_tensor;

typedef struct tfm_compile_options {
  size_t struct_size;             /* sizeof(tfm_compile_options); 0: that of the first version */
  const char *path;               /* a .tfm file, whose includes are followed; beside `text`: its name in messages */
  const char *text;               /* the source itself, which can include nothing; NULL: `path` is read */
  size_t text_size;               /* 0: `text` ends with a NUL */
  const char *model;              /* NULL: the only one of the file */
  const char *const *definitions; /* "layers=2": values of the model's configuration */
  size_t n_definitions;
  const char *weights_path;       /* a safetensors file, or an index of several (.json); NULL: `weights` */
  const tfm_tensor *weights;      /* copied */
  size_t n_weights;
  const char *weights_prefix;     /* put before every weight path of the model; NULL: nothing */
  const char *march;              /* "x86-64-v3"; NULL: the best that this CPU runs */
  int32_t no_fusion;              /* not 0: as with -O0 */
  int32_t in_process;             /* not 0: no child process. A fault of the code generator, or memory running out while
                                     it works, then ends this process; deadline and memory_limit are not heeded */
  int64_t deadline_ms;            /* the child is stopped after it, and the status is TFM_E_CANCELLED; 0: none */
  uint64_t memory_limit;          /* bytes of address space that the child may use; 0: as many as there are */
  const char *compiler;           /* the command; NULL: the variable TFM_COMPILER, else tfmc as installed with libtfm */
  void (*message)(void *user, const char *json); /* called for each error and warning, before tfm_compile returns */
  void *message_user;
  const char *quantize;           /* rules as of `tfmc --quantize`: "int8,head=f32"; NULL: f32 */
  int (*stop)(void *user);        /* asked some 20 times a second, by the thread that called, while the child works: not
                                     0 stops it, and the status is TFM_E_CANCELLED; NULL: nobody is asked */
  void *stop_user;
  int32_t training; /* not 0: the model is compiled to be trained, as its train block says (tfm_compiled_trainer). Then
                       weights are those that training begins with; without any, initial values */
  const char *const *settings; /* "lr=1e-4": with `training`, settings in place of those of the train block */
  size_t n_settings;
  const char *recompute; /* "none", "cheap" or "layer": with `training`, what a step computes again in place of keeping
                            it; NULL: "cheap" */
  const char *const *new_weights; /* "head.*": with `training` and weights, patterns of paths of those that begin with
                                     initial values nevertheless; they need not be among the weights */
  size_t n_new_weights;
} tfm_compile_options;

/* TFM_E_INPUT: the model, a definition or the weights are wrong, error->message is the first fault. TFM_E_ENV: a file
 * cannot be read, or the command cannot be started. TFM_E_NOMEM, TFM_E_CANCELLED (deadline_ms), TFM_E_INTERNAL. */
TFM_API tfm_status tfm_compile(const tfm_compile_options *options, tfm_compiled **compiled, tfm_error *error);
/* The model; it belongs to `compiled` and must not be closed. NULL if it was compiled to be trained: then
 * tfm_trainer_model gives it. */
TFM_API tfm_model *tfm_compiled_model(const tfm_compiled *compiled);
/* A trainer for tfm_trainer_step and others of tfm/tfm.h; any number may be made. `state` is the path of a state.tfmt
 * as tfm_trainer_open takes it. NULL: the trainer begins with the weights that the model was compiled with, or with
 * initial values for options->seed. `options` NULL: the defaults. The caller owns *trainer and ends it with
 * tfm_trainer_destroy; it is NULL after a failure. TFM_E_USAGE: the model was not compiled to be trained. TFM_E_INPUT:
 * settings out of range, or a weight without an initial value. TFM_E_ENV: the state does not fit. TFM_E_NOMEM. */
TFM_API tfm_status tfm_compiled_trainer(const tfm_compiled *compiled, const char *state,
                                        const tfm_trainer_options *options, tfm_trainer **trainer, tfm_error *error);
/* Frees the weights that training begins with, once a trainer has its own: trainers that are made later need a state.
 * Nothing happens where trainers share them, as with adapters. */
TFM_API tfm_status tfm_compiled_release_weights(tfm_compiled *compiled, tfm_error *error);
/* NULL is ignored. The model's contexts must be gone, and so must trainers and the models that they gave. */
TFM_API void tfm_compiled_free(tfm_compiled *compiled);

/* Writes the model, code and packed weights in one file (by custom named .tfmm), for tfm_model_map on machines of the
 * same kind. The file is whole or absent: it is written beside and renamed. TFM_E_ENV: it cannot be written. */
TFM_API tfm_status tfm_compiled_save(const tfm_compiled *compiled, const char *path, tfm_error *error);
/* The same; if the model was compiled with weights, those that the trainer, made of it, has now take their place.
 * TFM_E_NOMEM: all of the file lies in memory for a moment. */
TFM_API tfm_status tfm_compiled_save_trainer(const tfm_compiled *compiled, const tfm_trainer *trainer, const char *path,
                                             tfm_error *error);
/* Opens such a file as tfm_compile would have made it. The weights are mapped, so that processes share them; the file
 * may be replaced by a rename, but must not be changed in place while it is open. TFM_E_ENV: the file cannot be read,
 * is no such file, is damaged, was made by another version, or its code is not for this CPU. Its code is run: open
 * only what you trust. */
TFM_API tfm_status tfm_model_map(const char *path, tfm_compiled **compiled, tfm_error *error);

/* "0.1.0" */
TFM_API const char *tfm_version(void);

#ifdef __cplusplus
}
#endif
#endif
