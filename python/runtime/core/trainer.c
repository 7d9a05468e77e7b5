/* tfmc._core.Trainer: a tfm_trainer, what it was compiled from, and arrays that are its own memory.
 *
 * In: a text to compile, a .tfmm file or a library that trains; options that the package has checked. Out: the trainer,
 * what it says of its objective, checkpoints, models with the weights of now. Arrays and models keep the trainer alive.
 * Refused: a trainer in the child of a fork, because its threads stayed behind; one that was made already. */
#include "core.h"

#include <string.h>

bool trainer_ready(const TrainerObject *self) {
  if (!self->trainer) return raise_status(TFM_E_USAGE, "the trainer was not made"), false;
  if (self->generation == shared.generation) return true;
  return raise_status(TFM_E_USAGE, "the process forked: make a trainer in the child (Trainer.resume)"), false;
}

static bool is_new(const TrainerObject *self) {
  const bool is_so = !self->compiled && !self->library && !self->trainer;
  if (!is_so) raise_status(TFM_E_USAGE, "the trainer is made already");
  return is_so;
}

// ---- what it is made of ----

/* _compile(options, on_message) */
static PyObject *compile_text(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  if (!is_new(self)) return NULL;
  tfm_compiled *compiled = compile_of(args);
  if (!compiled) return NULL;
  self->compiled = compiled;
  Py_RETURN_NONE;
}

/* _map(path): a .tfmm file, by its path as bytes. */
static PyObject *map_file(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  const char *path;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "y", &path) || !is_new(self)) return NULL;
  tfm_status status;
  tfm_compiled *compiled = NULL;
  Py_BEGIN_ALLOW_THREADS status = tfm_model_map(path, &compiled, &error);
  Py_END_ALLOW_THREADS if (status) return raise_error(&error);
  if (tfm_compiled_model(compiled)) {
    tfm_compiled_free(compiled);
    return raise_status(TFM_E_ENV, "%s does not train: it was compiled without --training", path);
  }
  self->compiled = compiled;
  Py_RETURN_NONE;
}

/* _open(path): a library, which is loaded when the trainer is made. */
static PyObject *open_library(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  const char *path;
  if (!PyArg_ParseTuple(args, "y", &path) || !is_new(self)) return NULL;
  self->library = strdup(path);
  if (!self->library) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

// ---- making it ----

/* _begin(pool, seed, state, shards, rank, ranks, exchange): state is the path of a state.tfmt as bytes, or None; exchange is
 * a function, or None if there is one rank. */
static PyObject *begin(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  PyObject *pool;
  unsigned long long seed;
  const char *state;
  Py_ssize_t state_size;
  int shards, rank, ranks;
  PyObject *exchange;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "O!Kz#iiiO", shared.pool_type, &pool, &seed, &state, &state_size, &shards, &rank, &ranks,
                        &exchange))
    return NULL;
  if (self->trainer || (!self->compiled && !self->library))
    return raise_status(TFM_E_USAGE, "the trainer is made already, or nothing was compiled");
  tfm_trainer_options options = {
      .struct_size = sizeof options, .seed = seed, .shards = shards, .rank = rank, .ranks = ranks, .user = self};
  if (!(options.pool = pool_get((PoolObject *)pool))) return NULL;
  if (exchange != Py_None) {
    options.exchange = trainer_exchange;
    Py_INCREF(exchange);
    self->exchange = exchange;
  }
  tfm_status status;
  Py_BEGIN_ALLOW_THREADS if (self->compiled) status =
      tfm_compiled_trainer(self->compiled, state, &options, &self->trainer, &error);
  else status = tfm_trainer_open(self->library, state, &options, &self->trainer, &error);
  if (!status && self->compiled) status = tfm_compiled_release_weights(self->compiled, &error); /* it has its own */
  Py_END_ALLOW_THREADS if (status) return raise_error(&error);
  Py_INCREF(pool);
  self->pool = (PoolObject *)pool;
  self->generation = shared.generation;
  self->inputs = tfm_trainer_inputs(self->trainer, &self->n_inputs);
  if (self->n_inputs > MOST_TENSORS)
    return raise_status(TFM_E_USAGE, "an objective has at most %d inputs in Python", (int)MOST_TENSORS);
  Py_RETURN_NONE;
}

static size_t bytes_in(const int64_t *dims, int32_t rank) {
  size_t bytes = sizeof(float);
  for (int32_t axis = 0; axis < rank; axis++) bytes *= (size_t)dims[axis];
  return bytes;
}

/* Of a weight that is kept in 16 bits. One that is the same is not written: it may lie in a file that is mapped. */
static bool take_over_kept(tfm_trainer *to, tfm_trainer *from, const char *path, size_t bytes) {
  float *own = malloc(2 * bytes + 1), *other = own ? own + bytes / sizeof *own : NULL;
  if (!own) return false;
  tfm_trainer_read(to, path, own, NULL);
  tfm_trainer_read(from, path, other, NULL);
  if (memcmp(own, other, bytes)) tfm_trainer_write(to, path, other, NULL);
  free(own);
  return true;
}

/* Weights, moments and steps of another trainer of the same objective. False: there is no memory. */
static bool take_over(tfm_trainer *to, tfm_trainer *from) {
  const char *path;
  for (int64_t i = 0; (path = tfm_trainer_path(to, i)); i++)
    for (int which = TFM_TENSOR_WEIGHT; which <= TFM_TENSOR_MEAN; which++) {
      float *own, *other;
      int64_t dims[TFM_MAX_RANK];
      int32_t rank;
      if (which == TFM_TENSOR_GRADIENT) continue;
      const tfm_status status = tfm_trainer_tensor(to, path, which, &own, dims, &rank, NULL);
      if (status == TFM_E_USAGE && !take_over_kept(to, from, path, bytes_in(dims, rank))) return false;
      if (status || tfm_trainer_tensor(from, path, which, &other, NULL, NULL, NULL)) continue;
      const size_t bytes = bytes_in(dims, rank);
      if (memcmp(own, other, bytes)) memcpy(own, other, bytes);
    }
  tfm_trainer_set_steps(to, tfm_trainer_steps(from));
  return true;
}

static PyObject *note_in(const tfm_trainer *trainer) {
  int64_t size;
  const void *note = tfm_trainer_note(trainer, &size);
  if (!note) Py_RETURN_NONE;
  return PyBytes_FromStringAndSize(note, (Py_ssize_t)size);
}

/* _load(state, epoch): goes on from a state, in the arrays that it has. The state's note. */
static PyObject *load(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  const char *state;
  long long epoch;
  tfm_error error;
  tfm_trainer *other = NULL;
  tfm_trainer_options options = {.struct_size = sizeof options};
  if (!PyArg_ParseTuple(args, "yL", &state, &epoch) || !trainer_ready(self)) return NULL;
  if (!self->compiled) return raise_status(TFM_E_USAGE, "a trainer of a library cannot take over a run");
  if (!(options.pool = pool_get(self->pool))) return NULL;
  tfm_status status;
  bool has_memory = true;
  Py_BEGIN_ALLOW_THREADS status = tfm_compiled_trainer(self->compiled, state, &options, &other, &error);
  if (!status) has_memory = take_over(self->trainer, other);
  Py_END_ALLOW_THREADS if (status) return raise_error(&error);
  if (!has_memory) {
    tfm_trainer_destroy(other);
    return PyErr_NoMemory();
  }
  tfm_trainer_set_epoch(self->trainer, epoch);
  PyObject *note = note_in(other);
  tfm_trainer_destroy(other);
  return note;
}

// ---- what it says of itself ----

/* A list of what `next` gives for 0, 1 ... */
static PyObject *names_of(const tfm_trainer *trainer, const char *(*next)(const tfm_trainer *, int64_t)) {
  PyObject *names = PyList_New(0);
  const char *name;
  for (int64_t i = 0; names && (name = next(trainer, i)); i++) {
    PyObject *text = PyUnicode_FromString(name);
    if (!text || PyList_Append(names, text)) Py_CLEAR(names);
    Py_XDECREF(text);
  }
  return names;
}

static PyObject *inputs_of(const TrainerObject *self) {
  PyObject *inputs = PyList_New(0);
  for (uint32_t i = 0; inputs && i < self->n_inputs; i++) {
    PyObject *pair = Py_BuildValue("ss", self->inputs[i].name, self->inputs[i].shape);
    if (!pair || PyList_Append(inputs, pair)) Py_CLEAR(inputs);
    Py_XDECREF(pair);
  }
  return inputs;
}

/* _describe(): inputs with their types, results, paths, settings */
static PyObject *describe(PyObject *object, PyObject *unused) {
  const TrainerObject *self = (TrainerObject *)object;
  (void)unused;
  if (!trainer_ready(self)) return NULL;
  tfm_train_settings s;
  tfm_trainer_settings(self->trainer, &s);
  static const char *const schedules[] = {"constant", "linear", "cosine", "exponential", "noam", "inverse_sqrt"};
  PyObject *settings = Py_BuildValue(
      "{s:d,s:(dd),s:d,s:d,s:d,s:O,s:d,s:d,s:d,s:d,s:d,s:d,s:s}", "lr", s.lr, "betas", s.beta1, s.beta2, "eps", s.eps,
      "weight_decay", s.weight_decay, "momentum", s.momentum, "nesterov", s.nesterov ? Py_True : Py_False, "clip_norm",
      s.clip_norm, "warmup", s.warmup, "steps", s.steps, "final_lr", s.final_lr, "model_size", s.model_size, "gamma",
      s.gamma, "schedule", schedules[s.schedule]);
  return Py_BuildValue("NNNN", inputs_of(self), names_of(self->trainer, tfm_trainer_result),
                       names_of(self->trainer, tfm_trainer_path), settings);
}

static PyObject *steps_of(PyObject *object, PyObject *unused) {
  const TrainerObject *self = (TrainerObject *)object;
  (void)unused;
  return trainer_ready(self) ? PyLong_FromLongLong(tfm_trainer_steps(self->trainer)) : NULL;
}

static PyObject *set_epoch(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  long long epoch;
  if (!PyArg_ParseTuple(args, "L", &epoch) || !trainer_ready(self)) return NULL;
  tfm_trainer_set_epoch(self->trainer, epoch);
  Py_RETURN_NONE;
}

/* What a function says of a batch whose inputs have these dims, a tuple for each. */
static PyObject *measure(TrainerObject *self, PyObject *given,
                         int64_t (*function)(const tfm_trainer *, const tfm_value *)) {
  tfm_value values[MOST_TENSORS];
  int64_t dims[MOST_TENSORS][TFM_MAX_RANK];
  if (!trainer_ready(self)) return NULL;
  for (uint32_t i = 0; i < self->n_inputs; i++) {
    PyObject *row = PyTuple_GetItem(given, i);
    values[i] = (tfm_value){NULL, self->inputs[i].dtype, self->inputs[i].rank, dims[i]};
    for (int k = 0; row && k < self->inputs[i].rank; k++) dims[i][k] = PyLong_AsLongLong(PyTuple_GetItem(row, k));
  }
  return PyErr_Occurred() ? NULL : PyLong_FromLongLong(function(self->trainer, values));
}

/* _bytes(dims) of a part, the trainer's own with it; _mixture_bytes(dims) of what mixes a batch of several parts. */
static PyObject *bytes_of(PyObject *object, PyObject *given) {
  return measure((TrainerObject *)object, given, tfm_trainer_bytes);
}

static PyObject *mixture_bytes(PyObject *object, PyObject *given) {
  return measure((TrainerObject *)object, given, tfm_trainer_mixture_bytes);
}

static PyObject *state_bytes(PyObject *object, PyObject *unused) {
  const TrainerObject *self = (TrainerObject *)object;
  (void)unused;
  return trainer_ready(self) ? PyLong_FromLongLong(tfm_trainer_state_bytes(self->trainer)) : NULL;
}

// ---- checkpoints ----

/* _save(folder, note): bytes, and bytes or None. */
static PyObject *save(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  const char *folder, *note;
  Py_ssize_t size;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "yz#", &folder, &note, &size) || !trainer_ready(self)) return NULL;
  tfm_status status;
  Py_BEGIN_ALLOW_THREADS status = tfm_trainer_save(self->trainer, folder, note, size, &error);
  Py_END_ALLOW_THREADS if (status) return raise_error(&error);
  Py_RETURN_NONE;
}

/* _save_adapter(folder, base): bytes, and a str or None. */
static PyObject *save_adapter(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  const char *folder, *base;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "yz", &folder, &base) || !trainer_ready(self)) return NULL;
  tfm_status status;
  Py_BEGIN_ALLOW_THREADS status = tfm_trainer_save_adapter(self->trainer, folder, base, &error);
  Py_END_ALLOW_THREADS if (status) return raise_error(&error);
  Py_RETURN_NONE;
}

static PyObject *has_adapter(PyObject *object, PyObject *unused) {
  const TrainerObject *self = (TrainerObject *)object;
  (void)unused;
  return trainer_ready(self) ? PyBool_FromLong(tfm_trainer_has_adapter(self->trainer)) : NULL;
}

static PyObject *base_is_apart(PyObject *object, PyObject *unused) {
  const TrainerObject *self = (TrainerObject *)object;
  (void)unused;
  return trainer_ready(self) ? PyBool_FromLong(tfm_trainer_base_is_apart(self->trainer)) : NULL;
}

static PyObject *no_adapter(PyObject *object, PyObject *unused) {
  const TrainerObject *self = (TrainerObject *)object;
  (void)unused;
  if (!trainer_ready(self)) return NULL;
  const char *why = tfm_trainer_no_adapter(self->trainer);
  return why ? PyUnicode_FromString(why) : Py_NewRef(Py_None);
}

static PyObject *note_of(PyObject *object, PyObject *unused) {
  const TrainerObject *self = (TrainerObject *)object;
  (void)unused;
  return trainer_ready(self) ? note_in(self->trainer) : NULL;
}

/* _save_compiled(path): what _map takes. */
static PyObject *save_compiled(PyObject *object, PyObject *args) {
  const TrainerObject *self = (TrainerObject *)object;
  const char *path;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "y", &path) || !trainer_ready(self)) return NULL;
  if (!self->compiled) return raise_status(TFM_E_USAGE, "the trainer is of a library: copy its file");
  tfm_status status;
  Py_BEGIN_ALLOW_THREADS status = tfm_compiled_save_trainer(self->compiled, self->trainer, path, &error);
  Py_END_ALLOW_THREADS if (status) return raise_error(&error);
  Py_RETURN_NONE;
}

// ---- models ----

PyObject *model_of_trainer(PyObject *object, PyObject *given) {
  ModelObject *self = (ModelObject *)object;
  TrainerObject *trainer = (TrainerObject *)given;
  tfm_error error;
  if (self->model) return raise_status(TFM_E_USAGE, "the model is open");
  if (!PyObject_TypeCheck(given, shared.trainer_type)) return raise_status(TFM_E_USAGE, "this is no trainer");
  if (!trainer_ready(trainer)) return NULL;
  tfm_status status;
  tfm_model *model = NULL;
  Py_BEGIN_ALLOW_THREADS status = tfm_trainer_model(trainer->trainer, &model, &error);
  Py_END_ALLOW_THREADS if (status) return raise_error(&error);
  Py_INCREF(given);
  self->trainer = given;
  self->model = model;
  Py_RETURN_NONE;
}

// ---- arrays that are the trainer's memory ----

typedef struct TrainerArray { /* a weight, gradient or moment, as a buffer that numpy takes */
  PyObject_HEAD PyObject *trainer;
  float *data;
  int ndim;
  Py_ssize_t shape[TFM_MAX_RANK], strides[TFM_MAX_RANK];
} TrainerArray;

/* _tensor(path, which): 0 to 3 as tfm_train_tensor; None: the trainer has no such tensor. */
static PyObject *tensor_of(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  const char *path;
  int which;
  float *data;
  int64_t dims[TFM_MAX_RANK];
  int32_t rank;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "si", &path, &which) || !trainer_ready(self)) return NULL;
  const tfm_status status = tfm_trainer_tensor(self->trainer, path, which, &data, dims, &rank, &error);
  if (status == TFM_E_INPUT) Py_RETURN_NONE;
  if (status) return raise_error(&error);
  TrainerArray *array = (TrainerArray *)((allocfunc)PyType_GetSlot(shared.trainer_array_type, Py_tp_alloc))(
      shared.trainer_array_type, 0);
  if (!array) return NULL;
  Py_INCREF(object);
  array->trainer = object;
  array->data = data;
  array->ndim = rank;
  Py_ssize_t stride = sizeof(float);
  for (int i = rank; i-- > 0; stride *= (Py_ssize_t)dims[i]) {
    array->shape[i] = (Py_ssize_t)dims[i];
    array->strides[i] = stride;
  }
  return (PyObject *)array;
}

static int give_buffer(PyObject *object, Py_buffer *view, int flags) {
  TrainerArray *self = (TrainerArray *)object;
  (void)flags; /* it is row-major and may be written to: all requests are met */
  Py_ssize_t n = sizeof(float);
  for (int i = 0; i < self->ndim; i++) n *= self->shape[i];
  *view = (Py_buffer){.buf = self->data, .obj = object, .len = n, .itemsize = sizeof(float), .ndim = self->ndim,
                      .format = (char *)(uintptr_t)"f", .shape = self->shape, .strides = self->strides};
  Py_INCREF(object);
  return 0;
}

static void drop_array(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  Py_XDECREF(((TrainerArray *)object)->trainer);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyType_Slot array_slots[] = {
    {Py_tp_dealloc, (void *)drop_array}, {Py_bf_getbuffer, (void *)give_buffer}, {0, NULL}};
PyType_Spec trainer_array_spec = {"tfmc._core.TrainerArray", sizeof(TrainerArray), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, array_slots};

// ---- weights that are kept in 16 bits ----

static bool shape_of(TrainerObject *self, const char *path, int64_t dims[TFM_MAX_RANK], int32_t *rank) {
  float *data;
  tfm_error error;
  const tfm_status status = tfm_trainer_tensor(self->trainer, path, TFM_TENSOR_WEIGHT, &data, dims, rank, &error);
  return !status || status == TFM_E_USAGE || (raise_error(&error), false);
}

/* _form(path): "f32", "bf16" or "f16", and the shape. */
static PyObject *form_of(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  const char *path;
  int64_t dims[TFM_MAX_RANK];
  int32_t rank;
  if (!PyArg_ParseTuple(args, "s", &path) || !trainer_ready(self) || !shape_of(self, path, dims, &rank)) return NULL;
  PyObject *shape = PyTuple_New(rank);
  for (int32_t i = 0; shape && i < rank; i++) {
    PyObject *dim = PyLong_FromLongLong(dims[i]);
    if (!dim || PyTuple_SetItem(shape, i, dim)) Py_CLEAR(shape);
  }
  return shape ? Py_BuildValue("sN", tfm_trainer_form(self->trainer, path), shape) : NULL;
}

/* _read(path): the numbers as bytes of f32. */
static PyObject *read_kept(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  const char *path;
  int64_t dims[TFM_MAX_RANK];
  int32_t rank;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "s", &path) || !trainer_ready(self) || !shape_of(self, path, dims, &rank)) return NULL;
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes_in(dims, rank));
  if (!bytes) return NULL;
  char *to = PyBytes_AsString(bytes);
  if (!tfm_trainer_read(self->trainer, path, (float *)(void *)to, &error)) return bytes;
  Py_DECREF(bytes);
  return raise_error(&error);
}

/* _write(path, numbers): a contiguous buffer of f32 of its size. */
static PyObject *write_kept(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  const char *path;
  int64_t dims[TFM_MAX_RANK];
  int32_t rank;
  Py_buffer numbers;
  tfm_error error;
  if (!trainer_ready(self) || !PyArg_ParseTuple(args, "sy*", &path, &numbers)) return NULL;
  const bool is_known = shape_of(self, path, dims, &rank);
  const bool fits = is_known && (size_t)numbers.len == bytes_in(dims, rank);
  const tfm_status status = fits ? tfm_trainer_write(self->trainer, path, numbers.buf, &error) : TFM_OK;
  PyBuffer_Release(&numbers);
  if (!is_known) return NULL;
  if (!fits) return raise_status(TFM_E_USAGE, "the weight %s has another size", path);
  if (status) return raise_error(&error);
  Py_RETURN_NONE;
}

// ---- the type ----

/* In the child of a fork its threads do not exist, so that it cannot be ended: its memory stays. */
static void drop(PyObject *object) {
  TrainerObject *self = (TrainerObject *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (!self->trainer || self->generation == shared.generation) {
    tfm_trainer_destroy(self->trainer);
    tfm_compiled_free(self->compiled);
  }
  free(self->library);
  Py_XDECREF((PyObject *)self->pool);
  Py_XDECREF(self->exchange);
  Py_XDECREF(self->fault);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"_compile", compile_text, METH_VARARGS, NULL}, {"_map", map_file, METH_VARARGS, NULL},
    {"_open", open_library, METH_VARARGS, NULL},    {"_begin", begin, METH_VARARGS, NULL},
    {"_load", load, METH_VARARGS, NULL},            {"_describe", describe, METH_NOARGS, NULL},     {"_steps", steps_of, METH_NOARGS, NULL},
    {"_set_epoch", set_epoch, METH_VARARGS, NULL},  {"_bytes", bytes_of, METH_O, NULL},
    {"_mixture_bytes", mixture_bytes, METH_O, NULL}, {"_state_bytes", state_bytes, METH_NOARGS, NULL},
    {"_save", save, METH_VARARGS, NULL},            {"_note", note_of, METH_NOARGS, NULL},
    {"_tensor", tensor_of, METH_VARARGS, NULL},     {"_run", trainer_run, METH_VARARGS, NULL},
    {"_update", trainer_update, METH_NOARGS, NULL}, {"_save_compiled", save_compiled, METH_VARARGS, NULL},
    {"_save_adapter", save_adapter, METH_VARARGS, NULL}, {"_has_adapter", has_adapter, METH_NOARGS, NULL},
    {"_no_adapter", no_adapter, METH_NOARGS, NULL}, {"_base_is_apart", base_is_apart, METH_NOARGS, NULL},
    {"_form", form_of, METH_VARARGS, NULL},         {"_read", read_kept, METH_VARARGS, NULL},
    {"_write", write_kept, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)drop}, {Py_tp_methods, methods}, {0, NULL}};
PyType_Spec trainer_spec = {"tfmc._core.Trainer", sizeof(TrainerObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                            slots};
