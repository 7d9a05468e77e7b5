/* The module tfmc._core: its types, what it takes from numpy and from the package, and how errors become exceptions.
 *
 * Refused: a second interpreter of the same process, because types and functions of the first are kept in one place. */
#include "core.h"

#include <stdarg.h>
#include <string.h>

Shared shared;

// ---- errors ----

/* The package makes the exception, so that the classes and their texts are Python. An exception that is under way, of
 * the memory that is gone, stays. */
static PyObject *raise_made(tfm_status status, int reason, PyObject *message, const char *place) {
  PyObject *made = message ? PyObject_CallFunction(shared.make_error, "iiOz", (int)status, reason, message, place) : NULL;
  Py_XDECREF(message);
  if (!made) return NULL;
  PyErr_SetObject((PyObject *)Py_TYPE(made), made);
  Py_DECREF(made);
  return NULL;
}

PyObject *raise_error(const tfm_error *error) {
  PyObject *message = PyUnicode_DecodeUTF8(error->message, (Py_ssize_t)strnlen(error->message, sizeof error->message),
                                           "replace");
  return raise_made(error->status, (int)error->reason, message, error->place);
}

PyObject *raise_status(tfm_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  PyObject *message = PyUnicode_FromFormatV(format, args);
  va_end(args);
  return raise_made(status, TFM_REASON_OTHER, message, NULL);
}

// ---- functions ----

static PyObject *version(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  return PyUnicode_FromString(tfm_version());
}

static PyObject *sentence_files(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  static const char *const names[] = {
#define SENTENCE_FILE(name) name,
#include "import/sentence_files.def"
  };
  enum { N = sizeof names / sizeof *names };
  PyObject *list = PyList_New(N);
  for (Py_ssize_t i = 0; list && i < N; i++) {
    PyObject *name = PyUnicode_FromString(names[i]);
    if (!name || PyList_SetItem(list, i, name)) Py_CLEAR(list);
  }
  return list;
}

/* Threads do not survive a fork: what belongs to them is made anew when it is needed. */
static PyObject *after_fork(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  shared.generation++;
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"version", version, METH_NOARGS, "The version of libtfm."},
    {"options", option_names, METH_NOARGS, "Options of generation, with their kinds."},
    {"settings", setting_names, METH_NOARGS, "What else a config of generation may say, with what changes nothing."},
    {"sentence_files", sentence_files, METH_NOARGS, "Files that say how sentence transformers takes texts, in their order."},
    {"after_fork", after_fork, METH_NOARGS, "To be called in the child of a fork."},
    {NULL, NULL, 0, NULL},
};

// ---- the module ----

static PyObject *from_module(const char *module, const char *name) {
  PyObject *imported = PyImport_ImportModule(module);
  PyObject *found = imported ? PyObject_GetAttrString(imported, name) : NULL;
  Py_XDECREF(imported);
  return found;
}

static bool take_from_others(void) {
  const struct {
    PyObject **place;
    const char *module, *name;
  } wanted[] = {
      {&shared.empty, "numpy", "empty"},
      {&shared.ndarray, "numpy", "ndarray"},
      {&shared.make_error, "tfmc._errors", "make"},
      {&shared.convert, "tfmc._arrays", "convert"},
      {&shared.dtypes[TFM_F32], "tfmc._arrays", "F32"},
      {&shared.dtypes[TFM_I32], "tfmc._arrays", "I32"},
      {&shared.dtypes[TFM_BOOL], "tfmc._arrays", "BOOL"},
      {&shared.i64, "tfmc._arrays", "I64"},
      {&shared.u8, "tfmc._arrays", "U8"},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    if (!(*wanted[i].place = from_module(wanted[i].module, wanted[i].name))) return false;
  return true;
}

static bool add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type) {
  *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
  return *type && !PyModule_AddType(module, *type);
}

static int fill(PyObject *module) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(PyExc_ImportError, "tfmc cannot be imported in a subinterpreter");
    return -1;
  }
  return take_from_others() && add_type(module, &pool_spec, &shared.pool_type) &&
                 add_type(module, &model_spec, &shared.model_type) &&
                 add_type(module, &decoder_spec, &shared.decoder_type) &&
                 add_type(module, &chooser_spec, &shared.chooser_type) &&
                 add_type(module, &trainer_spec, &shared.trainer_type) &&
                 add_type(module, &trainer_array_spec, &shared.trainer_array_type)
             ? 0
             : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};
static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "tfmc._core", .m_methods = functions, .m_slots = slots};
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
