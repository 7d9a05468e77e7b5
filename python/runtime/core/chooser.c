/* tfmc._core.Chooser: a row that Decoder.write writes: its tokens, and what the next ones are chosen by.
 *
 * In: the ids of a prompt, options, a seed. Out: the ids of the row as it grows. Refused: ids that the model does not
 * have, options that tfm_generate refuses, beams, and a row that leaves no room for a token. */
#include "core.h"

#include <string.h>

// ---- making one ----

bool chooser_reserve(ChooserObject *self, int64_t length) {
  if (length <= self->room) return true;
  const int64_t room = length + length / 2 + 64;
  int32_t *tokens = PyMem_Realloc(self->tokens, (size_t)room * sizeof *tokens);
  if (!tokens) return PyErr_NoMemory(), false;
  self->tokens = tokens;
  self->room = room;
  return true;
}

static bool read_prompt(ChooserObject *self, PyObject *given) {
  PyObject *ids = PySequence_Tuple(given);
  if (!ids) return false;
  const Py_ssize_t n = PyTuple_Size(ids);
  bool good = chooser_reserve(self, n + 1);
  for (Py_ssize_t i = 0; good && i < n; i++) {
    const long long token = PyLong_AsLongLong(PyTuple_GetItem(ids, i));
    good = !PyErr_Occurred();
    if (good && (token < 0 || token >= self->vocab))
      good = (raise_status(TFM_E_INPUT, "token %zd of the prompt: %lld is no id; the model has %lld tokens", i, token,
                           (long long)self->vocab), false);
    if (good) self->tokens[i] = (int32_t)token;
  }
  Py_DECREF(ids);
  self->length = self->start = n;
  return good;
}

/* The model's own defaults, then what is given. The limit of the row is the caller's alone. */
static bool read_options(ChooserObject *self, const ModelObject *model, PyObject *given) {
  const tfm_library *library = model->library;
  tfm_error error;
  if (library->generation) tfm_library_generate_defaults(library, &self->options);
  else tfm_generate_defaults(&self->options);
  if (!dict_options_read(given, &self->options, &self->lists) || !dict_options_keep(&self->options, &self->lists))
    return false;
  if (self->options.num_beams != 1 || self->options.num_return_sequences != 1)
    return raise_status(TFM_E_USAGE, "a chooser is for one row: num_beams and num_return_sequences are 1"), false;
  self->options.max_new_tokens = -1;
  self->options.max_length = self->limit;
  self->options.return_token_scores = 0;
  if (tfm_options_check(&self->options, self->vocab, self->start, &error)) return raise_error(&error), false;
  return true;
}

static bool set_up(ChooserObject *self, const ModelObject *model, PyObject *prompt, PyObject *options) {
  self->vocab = tfm_model_decoding(model->model)->vocab;
  if (self->n_top < -1 || self->n_top > self->vocab)
    return raise_status(TFM_E_INPUT, "%lld likeliest tokens are wanted", (long long)self->n_top), false;
  if (!read_prompt(self, prompt) || !read_options(self, model, options)) return false;
  if (self->n_top < 1) return true;
  self->top = PyMem_Calloc((size_t)self->n_top * (1 + MOST_GUESSES), sizeof *self->top);
  return self->top || (PyErr_NoMemory(), false);
}

/* Model._chooser(prompt, limit, seed, number, n_top, options) */
PyObject *model_chooser(PyObject *object, PyObject *args) {
  ModelObject *model = (ModelObject *)object;
  PyObject *prompt, *options;
  long long limit, n_top;
  unsigned long long seed, number;
  if (!PyArg_ParseTuple(args, "OLKKLO!", &prompt, &limit, &seed, &number, &n_top, &PyDict_Type, &options)) return NULL;
  if (!model_enter(model)) return NULL;
  ChooserObject *self = NULL;
  if (!tfm_model_decoding(model->model)) raise_status(TFM_E_USAGE, "the model has no incremental form");
  else self = (ChooserObject *)((allocfunc)PyType_GetSlot(shared.chooser_type, Py_tp_alloc))(shared.chooser_type, 0);
  if (self) {
    self->limit = limit;
    self->n_top = n_top;
    self->stream = tfm_stream_begin(seed, number);
    if (!set_up(self, model, prompt, options)) {
      Py_DECREF((PyObject *)self);
      self = NULL;
    }
  }
  model_leave(model);
  return (PyObject *)self;
}

static void drop(PyObject *object) {
  ChooserObject *self = (ChooserObject *)object;
  PyTypeObject *type = Py_TYPE(object);
  dict_options_free(&self->lists);
  PyMem_Free(self->tokens);
  PyMem_Free(self->top);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

// ---- what it has ----

static PyObject *ids_from(PyObject *object, PyObject *args) {
  const ChooserObject *self = (ChooserObject *)object;
  long long first = 0;
  if (!PyArg_ParseTuple(args, "|L:ids", &first)) return NULL;
  if (first < 0 || first > self->length) first = self->length;
  PyObject *ids = PyList_New((Py_ssize_t)(self->length - first));
  for (int64_t i = first; ids && i < self->length; i++)
    if (PyList_SetItem(ids, (Py_ssize_t)(i - first), PyLong_FromLong(self->tokens[i]))) Py_CLEAR(ids);
  return ids;
}

static PyObject *ends_of(PyObject *object, PyObject *unused) {
  const tfm_token_list *ends = &((ChooserObject *)object)->options.eos_token_ids;
  (void)unused;
  PyObject *ids = PyList_New((Py_ssize_t)ends->n);
  for (uint64_t i = 0; ids && i < ends->n; i++)
    if (PyList_SetItem(ids, (Py_ssize_t)i, PyLong_FromLongLong(ends->tokens[i]))) Py_CLEAR(ids);
  return ids;
}

static PyObject *get_length(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromLongLong(((ChooserObject *)object)->length);
}

static PyObject *get_limit(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromLongLong(((ChooserObject *)object)->limit);
}

static PyMethodDef methods[] = {
    {"ids", ids_from, METH_VARARGS, "ids(first=0): the row's tokens from number `first` on."},
    {"ends", ends_of, METH_NOARGS, "ends(): the tokens that end the row."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef members[] = {{"length", get_length, NULL, "Tokens of the row, its prompt included.", NULL},
                                {"limit", get_limit, NULL, "Its greatest length.", NULL},
                                {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {{Py_tp_doc, "A row that Decoder.write writes: made by Model.chooser."},
                              {Py_tp_dealloc, (void *)drop},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, members},
                              {0, NULL}};
PyType_Spec chooser_spec = {"tfmc.Chooser", sizeof(ChooserObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
