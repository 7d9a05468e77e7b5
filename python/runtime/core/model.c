/* tfmc._core.Model: a model, the stack of its contexts, and how calls, close() and forks share them.
 *
 * A call takes a context from the stack or makes one; if there are as many as there may be, it waits. close() waits
 * for all calls. In the child of a fork the contexts and threads of the parent are left behind, because their threads
 * do not exist there; code and weights are the same memory. Refused: calls of a model that is closed, closing it from
 * a callback of its own call. */
#include "core.h"

#include <stdlib.h>

_Thread_local CallbackScope *callbacks;

bool in_callback_of(const ModelObject *self) {
  for (const CallbackScope *scope = callbacks; scope; scope = scope->outer)
    if (scope->model == self) return true;
  return false;
}

// ---- contexts ----

/* What another thread of the parent held when it forked is free again here. */
static void forget_parent(ModelObject *self) {
  if (self->generation == shared.generation) return;
  pthread_mutex_init(&self->lock, NULL);
  pthread_cond_init(&self->changed, NULL);
  self->free[0] = self->free[1] = NULL;
  self->made[0] = self->made[1] = self->busy = 0;
  self->generation = shared.generation;
}

static void wait_for_change(ModelObject *self) {
  PyThreadState *state = PyEval_SaveThread();
  pthread_cond_wait(&self->changed, &self->lock);
  pthread_mutex_unlock(&self->lock); /* whoever has the GIL may want it */
  PyEval_RestoreThread(state);
  pthread_mutex_lock(&self->lock);
}

bool model_enter(ModelObject *self) {
  if (!self->model) return raise_status(TFM_E_USAGE, "the model is closed"), false;
  forget_parent(self);
  pthread_mutex_lock(&self->lock);
  self->busy++;
  pthread_mutex_unlock(&self->lock);
  return true;
}

void model_leave(ModelObject *self) {
  pthread_mutex_lock(&self->lock);
  self->busy--;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
}

static Slot *make_slot(ModelObject *self, bool alone) {
  tfm_error error;
  tfm_context_options options = {.struct_size = sizeof options, .threads = 1};
  if (!alone && !(options.pool = pool_get(self->pool))) return NULL;
  Slot *slot = calloc(1, sizeof *slot);
  if (!slot) PyErr_NoMemory();
  if (slot && tfm_model_context(self->model, &options, &slot->context, &error)) {
    raise_error(&error);
    free(slot);
    slot = NULL;
  }
  if (slot) slot->generation = shared.generation, slot->alone = alone;
  return slot;
}

/* A callback that calls its own model may go over the limit: the context that it waited for could be its own. */
Slot *slot_take(ModelObject *self, bool alone) {
  if (!model_enter(self)) return NULL;
  pthread_mutex_lock(&self->lock);
  while (!self->free[alone] && self->made[alone] >= self->most && !in_callback_of(self)) wait_for_change(self);
  Slot *slot = self->free[alone];
  if (slot) self->free[alone] = slot->next;
  else self->made[alone]++;
  pthread_mutex_unlock(&self->lock);
  if (slot) return slot;
  slot = make_slot(self, alone);
  if (slot) return slot;
  pthread_mutex_lock(&self->lock);
  self->made[alone]--;
  pthread_mutex_unlock(&self->lock);
  model_leave(self);
  return NULL;
}

/* A callback that forked comes back in the child too, where this context is of no use any more. */
void slot_give(ModelObject *self, Slot *slot) {
  if (slot->generation != shared.generation) return;
  pthread_mutex_lock(&self->lock);
  slot->next = self->free[slot->alone];
  self->free[slot->alone] = slot;
  self->busy--;
  pthread_cond_broadcast(&self->changed); /* who waits may wait for the other kind */
  pthread_mutex_unlock(&self->lock);
}

bool slot_reserve(Slot *slot, size_t bytes) {
  if (bytes <= slot->scratch_size) return true;
  char *more = aligned_alloc(64, bytes);
  if (!more) return PyErr_NoMemory(), false;
  free(slot->scratch);
  slot->scratch = more;
  slot->scratch_size = bytes;
  return true;
}

// ---- opening ----

static PyObject *names_of(const tfm_tensor_info *infos, uint32_t n) {
  PyObject *names = PyTuple_New(n);
  for (uint32_t i = 0; names && i < n; i++) {
    PyObject *name = PyUnicode_InternFromString(infos[i].name);
    if (!name) return Py_DECREF(names), NULL;
    PyTuple_SetItem(names, i, name);
  }
  return names;
}

/* _open(library, weights): a library's path as bytes, that of its weights as bytes or None. */
static PyObject *open_library(PyObject *object, PyObject *args) {
  ModelObject *self = (ModelObject *)object;
  const char *library;
  PyObject *given;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "yO", &library, &given)) return NULL;
  const char *weights = given == Py_None ? NULL : PyBytes_AsString(given);
  if (PyErr_Occurred()) return NULL;
  if (self->model) return raise_status(TFM_E_USAGE, "the model is open");
  tfm_status status;
  tfm_model *model = NULL;
  Py_BEGIN_ALLOW_THREADS
  status = tfm_model_open(library, weights, &model, &error);
  Py_END_ALLOW_THREADS
  if (status) return raise_error(&error);
  self->model = model;
  Py_RETURN_NONE;
}

/* _map(path): a .tfmm file, by its path as bytes. */
static PyObject *map_file(PyObject *object, PyObject *args) {
  ModelObject *self = (ModelObject *)object;
  const char *path;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "y", &path)) return NULL;
  if (self->model) return raise_status(TFM_E_USAGE, "the model is open");
  tfm_status status;
  tfm_compiled *compiled = NULL;
  Py_BEGIN_ALLOW_THREADS status = tfm_model_map(path, &compiled, &error);
  Py_END_ALLOW_THREADS if (status) return raise_error(&error);
  if (!tfm_compiled_model(compiled)) {
    tfm_compiled_free(compiled);
    return raise_status(TFM_E_ENV, "this file is for training: tfmc.Trainer(path)");
  }
  self->compiled = compiled;
  self->model = tfm_compiled_model(compiled);
  Py_RETURN_NONE;
}

/* _save(path) */
static PyObject *save_file(PyObject *object, PyObject *args) {
  ModelObject *self = (ModelObject *)object;
  const char *path;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "y", &path) || !model_enter(self)) return NULL;
  tfm_status status = TFM_E_USAGE;
  const tfm_compiled *compiled = self->compiled;
  if (compiled) {
    Py_BEGIN_ALLOW_THREADS status = tfm_compiled_save(compiled, path, &error);
    Py_END_ALLOW_THREADS
  }
  model_leave(self);
  if (!compiled)
    return raise_status(TFM_E_USAGE, self->trainer ? "the model belongs to a trainer: tfmc.compile(source, "
                                                     "weights=trainer.state_dict()) makes one that can be saved"
                                                   : "the model was loaded from a library: copy its .so and .tfmw files");
  if (status) return raise_error(&error);
  Py_RETURN_NONE;
}

/* _setup(pool, most) after the model was opened or compiled: its description, its instruction set, and of its
 * generation the size of the vocabulary and the first token (-1: none). */
static PyObject *set_up(PyObject *object, PyObject *args) {
  ModelObject *self = (ModelObject *)object;
  PyObject *pool;
  int most;
  if (!PyArg_ParseTuple(args, "O!i", shared.pool_type, &pool, &most)) return NULL;
  if (!self->model) return raise_status(TFM_E_USAGE, "the model is closed");
  self->program = tfm_model_program(self->model);
  self->library = tfm_model_library(self->model);
  if (self->program->n_inputs > MOST_TENSORS || self->program->n_outputs > MOST_TENSORS)
    return raise_status(TFM_E_USAGE, "a model has at most %d inputs and outputs in Python", (int)MOST_TENSORS);
  Py_INCREF(pool);
  self->pool = (PoolObject *)pool;
  self->most = most > 0 ? most : 1;
  self->inputs = names_of(self->program->inputs, self->program->n_inputs);
  self->outputs = names_of(self->program->outputs, self->program->n_outputs);
  if (!self->inputs || !self->outputs) return NULL;
  const tfm_generation *generation = self->library->generation;
  return Py_BuildValue("ssLL", self->library->description, self->program->isa,
                       generation ? (long long)generation->vocab : -1LL,
                       generation ? (long long)generation->bos : -1LL);
}

static PyObject *set_outputs_type(PyObject *object, PyObject *type) {
  ModelObject *self = (ModelObject *)object;
  Py_INCREF(type);
  Py_XDECREF(self->outputs_type);
  self->outputs_type = type;
  Py_RETURN_NONE;
}

// ---- closing ----

static void free_slots(ModelObject *self) {
  for (int kind = 0; kind < 2; kind++) {
    for (Slot *slot = self->free[kind], *next; slot; slot = next) {
      next = slot->next;
      tfm_context_destroy(slot->context);
      free(slot->scratch);
      free(slot);
    }
    self->free[kind] = NULL;
    self->made[kind] = 0;
  }
}

/* In the child of a fork the contexts are left behind, and the model with them, whose users they are. */
static void end_model(ModelObject *self) {
  forget_parent(self);
  while (self->decoders) decoder_end(self->decoders);
  free_slots(self);
  if (self->compiled) tfm_compiled_free(self->compiled);
  else tfm_model_close(self->model);
  self->compiled = NULL;
  self->model = NULL;
  Py_XDECREF(self->trainer);
  self->trainer = NULL;
}

/* New calls are refused while those under way are waited for. */
static PyObject *close_model(PyObject *object, PyObject *unused) {
  ModelObject *self = (ModelObject *)object;
  (void)unused;
  if (!self->model) Py_RETURN_NONE;
  if (in_callback_of(self)) return raise_status(TFM_E_USAGE, "a callback cannot close the model that calls it");
  forget_parent(self);
  tfm_model *model = self->model;
  tfm_compiled *compiled = self->compiled;
  self->model = NULL;
  self->compiled = NULL;
  pthread_mutex_lock(&self->lock);
  while (self->busy) wait_for_change(self);
  pthread_mutex_unlock(&self->lock);
  self->model = model;
  self->compiled = compiled;
  end_model(self);
  Py_RETURN_NONE;
}

static PyObject *is_closed(PyObject *object, void *unused) {
  (void)unused;
  return PyBool_FromLong(!((ModelObject *)object)->model);
}

// ---- the type ----

static PyObject *new_model(PyTypeObject *type, PyObject *args, PyObject *named) {
  (void)args, (void)named;
  ModelObject *self = (ModelObject *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!self) return NULL;
  pthread_mutex_init(&self->lock, NULL);
  pthread_cond_init(&self->changed, NULL);
  self->generation = shared.generation;
  return (PyObject *)self;
}

/* Whoever calls holds the object, so nobody does; only a thread that the end of the interpreter caught in a call may
 * still be running, and then the memory is left to the end of the process. */
static void drop(PyObject *object) {
  ModelObject *self = (ModelObject *)object;
  PyTypeObject *type = Py_TYPE(object);
  forget_parent(self);
  if (self->model && !self->busy) end_model(self);
  Py_XDECREF(self->inputs);
  Py_XDECREF(self->outputs);
  Py_XDECREF(self->outputs_type);
  Py_XDECREF((PyObject *)self->pool);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"_open", open_library, METH_VARARGS, NULL},
    {"_compile", model_compile, METH_VARARGS, NULL},
    {"_map", map_file, METH_VARARGS, NULL},
    {"_of", model_of_trainer, METH_O, NULL},
    {"_save", save_file, METH_VARARGS, NULL},
    {"_generate", model_generate, METH_VARARGS, NULL},
    {"_decoder", model_decoder, METH_VARARGS, NULL},
    {"_chooser", model_chooser, METH_VARARGS, NULL},
    {"_sources", model_sources, METH_NOARGS, NULL},
    {"_setup", set_up, METH_VARARGS, NULL},
    {"_set_outputs_type", set_outputs_type, METH_O, NULL},
    {"_run", model_run, METH_VARARGS, NULL},
    {"_call_alone", (PyCFunction)(void (*)(void))model_call_alone, METH_VARARGS | METH_KEYWORDS, NULL},
    {"_reserve", model_reserve, METH_VARARGS, NULL},
    {"_workspace_bytes", model_workspace_bytes, METH_VARARGS, NULL},
    {"_close", close_model, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef members[] = {{"closed", is_closed, NULL, "Whether the model was closed.", NULL},
                                {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, (void *)new_model},   {Py_tp_dealloc, (void *)drop},
                              {Py_tp_call, (void *)model_call}, {Py_tp_methods, methods},
                              {Py_tp_getset, members},          {0, NULL}};
PyType_Spec model_spec = {"tfmc._core.Model", sizeof(ModelObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
