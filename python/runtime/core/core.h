/* What the files of tfmc._core share. The extension is written against the limited API of Python 3.11, so that one
 * binary serves all later versions, and libtfm is linked into it.
 *
 * Locks: everything below is read and written with the GIL held, but for the number of calls under way and the stack
 * of contexts, which have a mutex of their own, because callers wait for them without the GIL. */
#ifndef TFMC_PYTHON_CORE_H
#define TFMC_PYTHON_CORE_H

#undef _POSIX_C_SOURCE /* Python.h defines a later one */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#pragma GCC diagnostic ignored "-Wpedantic" /* slots of types hold functions as void * */

#include "tfm/compile.h"
#include "tfm/write.h"
#include "tfm/abi/library.h"
#include "tfm/abi/program.h"

enum { MOST_TENSORS = 64 }; /* inputs, and outputs, of a model that is called from Python */

typedef struct Shared { /* of the one interpreter that may import the extension */
  PyObject *empty;      /* numpy.empty */
  PyObject *ndarray;    /* numpy.ndarray */
  PyObject *dtypes[3];  /* numpy's types, by tfm_dtype */
  PyObject *i64, *u8;
  PyObject *make_error; /* tfmc._errors.make(status, reason, message, place) */
  PyObject *convert;    /* tfmc._arrays.convert(object, dtype, name, shape) */
  PyTypeObject *pool_type, *model_type, *decoder_type, *chooser_type, *trainer_type, *trainer_array_type;
  unsigned long generation; /* one more in each child of a fork: contexts and pools of older ones have no threads */
} Shared;
extern Shared shared;

// ---- errors (module.c) ----

/* Raises what a tfm_error says; returns NULL. */
PyObject *raise_error(const tfm_error *error);
/* The same for faults that are found here: a status of tfm_status and a format of PyUnicode_FromFormat. */
PyObject *raise_status(tfm_status status, const char *format, ...);

// ---- threads that models share (pool.c) ----

typedef struct PoolObject {
  PyObject_HEAD
  tfm_pool *pool; /* made when it is first needed, and anew after a fork */
  int threads;
  unsigned long generation;
} PoolObject;

extern PyType_Spec pool_spec;
PoolObject *pool_new(int threads);
/* The pool's threads in this process; NULL after an exception. */
tfm_pool *pool_get(PoolObject *pool);

// ---- models (model.c) ----

typedef struct Slot { /* a context and its scratch: one call at a time */
  struct Slot *next;
  tfm_context *context;
  bool alone; /* it has no threads but its caller's */
  char *scratch; /* copies of ids and flags */
  size_t scratch_size;
  unsigned long generation; /* of the process that made it */
} Slot;

struct DecoderObject;

typedef struct ModelObject {
  PyObject_HEAD
  tfm_compiled *compiled; /* owns `model`; NULL: it was opened from a library, or is a trainer's */
  PyObject *trainer;      /* whose code and weights these are; NULL: nobody's */
  tfm_model *model;       /* NULL: closed, or not opened yet */
  const tfm_program *program;
  const tfm_library *library;
  PyObject *inputs, *outputs; /* tuples of names */
  PyObject *outputs_type;     /* what several outputs are returned in */
  PoolObject *pool;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Slot *free[2]; /* contexts: those with the threads of the pool, and those that are alone */
  int made[2], most;
  int busy;       /* calls and decoders that use the model */
  unsigned long generation;
  struct DecoderObject *decoders; /* that are open: the model ends them */
} ModelObject;

extern PyType_Spec model_spec;

typedef struct DecoderObject {
  PyObject_HEAD ModelObject *model;
  tfm_decoder *decoder; /* NULL: closed */
  struct DecoderObject *next;
  tfm_chooser **choosers; /* one for each thread, from the first write on */
  int32_t n_choosers;
  bool busy;
  unsigned long generation;
} DecoderObject;

extern PyType_Spec decoder_spec;
void decoder_end(DecoderObject *self);

/* Counts a call, so that close() waits for it. False after an exception: the model is closed. */
bool model_enter(ModelObject *self);
void model_leave(ModelObject *self);
/* The same with a context, which may have to be waited for. NULL after an exception. `alone`: the caller's thread computes
 * all; several such calls are faster than as many that use all threads one after the other. */
Slot *slot_take(ModelObject *self, bool alone);
void slot_give(ModelObject *self, Slot *slot);
/* Room for `bytes` at slot->scratch; false after an exception. */
bool slot_reserve(Slot *slot, size_t bytes);

/* This thread runs a callback of a call on the model: it must not wait for itself. */
typedef struct CallbackScope {
  ModelObject *model;
  struct CallbackScope *outer;
} CallbackScope;
extern _Thread_local CallbackScope *callbacks;
bool in_callback_of(const ModelObject *self);

// ---- arrays (arrays.c) ----

typedef struct Array { /* an array of the caller's, held as long as it is used */
  Py_buffer view;
  bool held;
  tfm_value value;
  int64_t dims[TFM_MAX_RANK];
  char kind; /* 'f': f32, 'i': i32, 'l': i64, '?': bool */
} Array;

/* Reads an input: f32 where it lies, if it can be. `info` says what is wanted. Afterwards value.data is the caller's
 * memory; array_copy_bytes tells how much room its copy needs. */
bool array_read(Array *array, PyObject *object, const tfm_tensor_info *info);
/* Ids and flags are copied before they are used: another thread of Python may write to the caller's array meanwhile. */
size_t array_copy_bytes(const Array *array);
bool array_copy(Array *array, char *to, const tfm_tensor_info *info);
/* Reads an array that is written to: it must have exactly this type and these dims. */
bool array_read_output(Array *array, PyObject *object, const tfm_tensor_info *info, const int64_t *dims);
void array_release(Array *array);
/* A new array of numpy's with its memory held in `array`. */
PyObject *array_new(Array *array, int dtype, int32_t rank, const int64_t *dims);
/* Reads n inputs and copies ids and flags into the slot; false after an exception. All are released by the caller. */
bool arrays_read(Slot *slot, Array *arrays, PyObject *const *objects, const tfm_tensor_info *infos, uint32_t n);

// ---- options of generation (dict_options.c) ----

enum { MOST_OPTION_LISTS = 16 };

typedef struct OptionLists { /* memory of their lists of tokens */
  int64_t *tokens[MOST_OPTION_LISTS];
  int n;
} OptionLists;

/* Sets the options that a dict has; false after an exception. dict_options_free afterwards in either case. */
bool dict_options_read(PyObject *given, tfm_generate_options *options, OptionLists *lists);
/* Copies the lists that are not the caller's into `lists`. */
bool dict_options_keep(tfm_generate_options *options, OptionLists *lists);
void dict_options_free(OptionLists *lists);

// ---- rows that are written many at a time (chooser.c, decoder_write.c) ----

enum { MOST_GUESSES = 15 }; /* of a row in a step */

typedef struct ChooserObject { /* a row that is written: its tokens, what its next ones are chosen by */
  PyObject_HEAD
  tfm_generate_options options;
  OptionLists lists;
  tfm_stream stream;
  int32_t *tokens; /* [room] */
  int64_t length, room, start, limit, vocab, n_top;
  tfm_best_token *top; /* [1 + MOST_GUESSES][n_top] */
  tfm_choice chosen[1 + MOST_GUESSES];
  bool busy; /* a write is under way */
} ChooserObject;

extern PyType_Spec chooser_spec;
PyObject *model_chooser(PyObject *self, PyObject *args);
/* Room for so many tokens; false after an exception. */
bool chooser_reserve(ChooserObject *self, int64_t length);
struct DecoderObject;
PyObject *decoder_write(PyObject *self, PyObject *rows);
PyObject *decoder_add_source(PyObject *self, PyObject *inputs); /* decoder_sources.c */
PyObject *decoder_drop_source(PyObject *self, PyObject *args);
/* One caller at a time: false after an exception. */
bool decoder_enter(struct DecoderObject *self);
void decoder_leave(struct DecoderObject *self);

// ---- trainers (trainer.c, trainer_steps.c) ----

typedef struct TrainerObject {
  PyObject_HEAD tfm_compiled *compiled; /* NULL: opened from a library, or not opened yet */
  char *library;                        /* its path, until the trainer is made */
  tfm_trainer *trainer;                 /* NULL: not made yet */
  PoolObject *pool;
  const tfm_tensor_info *inputs;
  uint32_t n_inputs;
  unsigned long generation;
  PyObject *exchange; /* of several processes: called with a rank and bytes, gives that rank's bytes; NULL: there is one */
  PyObject *fault;    /* what it raised */
} TrainerObject;

extern PyType_Spec trainer_spec, trainer_array_spec;
/* tfm_exchange of a TrainerObject, on the thread that called it. */
tfm_status trainer_exchange(void *user, int32_t peer, const void *out, void *in, int64_t bytes);
/* Whether the trainer is there in this process; false after an exception. */
bool trainer_ready(const TrainerObject *self);
/* _run(how, parts): 0 a step, 1 gradients, 2 an evaluation, of a tuple of tuples of arrays. (steps, loss, norm, rate, results) */
PyObject *trainer_run(PyObject *self, PyObject *args);
/* _update() */
PyObject *trainer_update(PyObject *self, PyObject *unused);
/* Model._of(trainer): with the weights of now. */
PyObject *model_of_trainer(PyObject *self, PyObject *trainer);

/* What tfm_compile makes of a dict and a function that gets its messages; NULL after an exception. */
tfm_compiled *compile_of(PyObject *args);

// ---- calls (call.c), compiling (compile.c), generation (generate.c), decoders (decoder.c) ----

PyObject *model_call(PyObject *self, PyObject *args, PyObject *named);
PyObject *model_call_alone(PyObject *self, PyObject *args, PyObject *named);
PyObject *model_run(PyObject *self, PyObject *args);
PyObject *model_reserve(PyObject *self, PyObject *args);
PyObject *model_workspace_bytes(PyObject *self, PyObject *args);
PyObject *model_compile(PyObject *self, PyObject *args);
PyObject *model_generate(PyObject *self, PyObject *args);
PyObject *model_decoder(PyObject *self, PyObject *args);
PyObject *model_sources(PyObject *self, PyObject *unused);
PyObject *option_names(PyObject *module, PyObject *unused);
PyObject *setting_names(PyObject *module, PyObject *unused);

#endif
