/* Model._compile, Trainer._compile: tfm_compile with the options of a dict. The package has checked and filled it in, so that what is
 * here only turns objects of Python into C.
 *
 * In: {"path", "text", "model", "march", "quantize", "weights_path", "weights_prefix", "compiler", "recompute": bytes or None,
 * "definitions", "settings", "new": tuples of bytes, "weights": tuple of (name, dtype, dims, buffer), numbers}, and a function that gets
 * each message of the compiler. The GIL is released while the compiler works. */
#include "core.h"

#include <string.h>

typedef struct Request {
  tfm_compile_options options;
  PyObject *dict;
  const char **definitions, **settings, **new_weights;
  tfm_tensor *tensors;
  int64_t (*dims)[TFM_MAX_RANK];
  Py_buffer *views;
  size_t n_views;
  PyObject *on_message;  /* called for each message */
  PyThreadState *state;  /* without the GIL */
} Request;

// ---- the dict ----

/* The bytes of a text that belongs to the dict; NULL: None. */
static const char *text_of(const Request *request, const char *key) {
  PyObject *value = PyDict_GetItemString(request->dict, key);
  return value && value != Py_None ? PyBytes_AsString(value) : NULL;
}

static int64_t number_of(const Request *request, const char *key) {
  PyObject *value = PyDict_GetItemString(request->dict, key);
  return value && value != Py_None ? PyLong_AsLongLong(value) : 0;
}

/* The texts of a tuple, and how many there are; -1 after an exception. */
static Py_ssize_t read_texts(const Request *request, const char *key, const char ***texts) {
  PyObject *list = PyDict_GetItemString(request->dict, key);
  const Py_ssize_t n = list ? PyTuple_Size(list) : 0;
  if (n <= 0) return n;
  *texts = PyMem_Calloc((size_t)n, sizeof **texts);
  if (!*texts) return PyErr_NoMemory(), -1;
  for (Py_ssize_t i = 0; i < n; i++)
    if (!((*texts)[i] = PyBytes_AsString(PyTuple_GetItem(list, i)))) return -1;
  return n;
}

static bool read_definitions(Request *request) {
  const Py_ssize_t n = read_texts(request, "definitions", &request->definitions);
  const Py_ssize_t n_settings = n < 0 ? -1 : read_texts(request, "settings", &request->settings);
  const Py_ssize_t n_new = n_settings < 0 ? -1 : read_texts(request, "new", &request->new_weights);
  if (n_new < 0) return false;
  request->options.definitions = request->definitions;
  request->options.n_definitions = (size_t)n;
  request->options.settings = request->settings;
  request->options.n_settings = (size_t)n_settings;
  request->options.new_weights = request->new_weights;
  request->options.n_new_weights = (size_t)n_new;
  return true;
}

// ---- weights in memory ----

static bool read_tensor(Request *request, size_t number, PyObject *item) {
  tfm_tensor *tensor = &request->tensors[number];
  PyObject *dims, *buffer;
  if (!PyArg_ParseTuple(item, "yyO!O", &tensor->name, &tensor->dtype, &PyTuple_Type, &dims, &buffer)) return false;
  const Py_ssize_t rank = PyTuple_Size(dims);
  if (rank > TFM_MAX_RANK) return raise_status(TFM_E_INPUT, "weight %s has %zd axes", tensor->name, rank), false;
  tensor->rank = (int32_t)rank;
  tensor->dims = request->dims[number];
  for (Py_ssize_t i = 0; i < rank; i++)
    request->dims[number][i] = PyLong_AsLongLong(PyTuple_GetItem(dims, i));
  if (PyErr_Occurred() || PyObject_GetBuffer(buffer, &request->views[number], PyBUF_C_CONTIGUOUS)) return false;
  request->n_views = number + 1;
  tensor->data = request->views[number].buf;
  return true;
}

static bool read_weights(Request *request) {
  PyObject *list = PyDict_GetItemString(request->dict, "weights");
  const Py_ssize_t n = list && list != Py_None ? PyTuple_Size(list) : 0;
  if (n <= 0) return n == 0;
  request->tensors = PyMem_Calloc((size_t)n, sizeof *request->tensors);
  request->dims = PyMem_Calloc((size_t)n, sizeof *request->dims);
  request->views = PyMem_Calloc((size_t)n, sizeof *request->views);
  if (!request->tensors || !request->dims || !request->views) return PyErr_NoMemory(), false;
  for (Py_ssize_t i = 0; i < n; i++)
    if (!read_tensor(request, (size_t)i, PyTuple_GetItem(list, i))) return false;
  request->options.weights = request->tensors;
  request->options.n_weights = (size_t)n;
  return true;
}

static void forget(Request *request) {
  for (size_t i = 0; i < request->n_views; i++) PyBuffer_Release(&request->views[i]);
  PyMem_Free(request->definitions);
  PyMem_Free(request->settings);
  PyMem_Free(request->new_weights);
  PyMem_Free(request->tensors);
  PyMem_Free(request->dims);
  PyMem_Free(request->views);
}

// ---- while it works ----

/* The thread has no GIL here. An exception stays until tfm_compile has returned. */
static void pass_message(void *user, const char *json) {
  Request *request = user;
  PyEval_RestoreThread(request->state);
  if (!PyErr_Occurred()) {
    PyObject *text = PyUnicode_DecodeUTF8(json, (Py_ssize_t)strlen(json), "replace");
    PyObject *result = text ? PyObject_CallFunctionObjArgs(request->on_message, text, NULL) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(result);
  }
  request->state = PyEval_SaveThread();
}

/* Signals are looked at, so that Ctrl-C ends the compiler too. */
static int look_at_signals(void *user) {
  Request *request = user;
  PyEval_RestoreThread(request->state);
  const int stop = PyErr_CheckSignals();
  request->state = PyEval_SaveThread();
  return stop;
}

static bool fill(Request *request) {
  request->options = (tfm_compile_options){.struct_size = sizeof request->options,
                                           .path = text_of(request, "path"),
                                           .text = text_of(request, "text"),
                                           .model = text_of(request, "model"),
                                           .weights_path = text_of(request, "weights_path"),
                                           .weights_prefix = text_of(request, "weights_prefix"),
                                           .march = text_of(request, "march"),
                                           .quantize = text_of(request, "quantize"),
                                           .compiler = text_of(request, "compiler"),
                                           .recompute = text_of(request, "recompute"),
                                           .training = (int32_t)number_of(request, "training"),
                                           .in_process = (int32_t)number_of(request, "in_process"),
                                           .deadline_ms = number_of(request, "deadline_ms"),
                                           .memory_limit = (uint64_t)number_of(request, "memory_limit"),
                                           .message = pass_message,
                                           .message_user = request,
                                           .stop = look_at_signals,
                                           .stop_user = request};
  return !PyErr_Occurred() && read_definitions(request) && read_weights(request);
}

tfm_compiled *compile_of(PyObject *args) {
  Request request = {0};
  if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &request.dict, &request.on_message)) return NULL;
  tfm_error error;
  tfm_status status = TFM_E_USAGE;
  tfm_compiled *compiled = NULL;
  bool ok = fill(&request);
  if (ok) {
    request.state = PyEval_SaveThread();
    status = tfm_compile(&request.options, &compiled, &error);
    PyEval_RestoreThread(request.state);
  }
  forget(&request);
  if (PyErr_Occurred() || !ok) {
    tfm_compiled_free(compiled);
    return NULL;
  }
  if (status) raise_error(&error);
  return compiled;
}

/* _compile(options, on_message) */
PyObject *model_compile(PyObject *object, PyObject *args) {
  ModelObject *self = (ModelObject *)object;
  if (self->model) return raise_status(TFM_E_USAGE, "the model is open");
  tfm_compiled *compiled = compile_of(args);
  if (!compiled) return NULL;
  self->compiled = compiled;
  self->model = tfm_compiled_model(compiled);
  Py_RETURN_NONE;
}
