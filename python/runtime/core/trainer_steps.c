/* Steps of a trainer: arrays in, results out; Ctrl-C ends a step.
 *
 * In: parts of a step, an array for each input of the objective. Out: how many steps are done, loss, norm, rate and
 * results. The GIL is released. In the main thread, where handlers of Python run, SIGINT cancels the call before its
 * usual handler sees it: if that raises, as for Ctrl-C, weights are as before the step; if not, the step is done anew. */
#include "core.h"

#include <signal.h>
#include <string.h>

typedef enum How { STEP, GRADIENTS, EVALUATE, UPDATE } How;

typedef struct Work {
  TrainerObject *self;
  How how;
  tfm_value *values; /* [n][n_inputs] */
  int64_t n, first_item;
  tfm_step_result result;
  tfm_error error;
  tfm_status status;
} Work;

static void do_work(Work *w) {
  tfm_trainer *trainer = w->self->trainer;
  w->result = (tfm_step_result){.struct_size = sizeof w->result};
  switch (w->how) {
    case STEP: w->status = tfm_trainer_step(trainer, w->values, w->n, w->first_item, &w->result, &w->error); break;
    case GRADIENTS:
      w->status = tfm_trainer_gradients(trainer, w->values, w->n, w->first_item, &w->result, &w->error);
      break;
    case EVALUATE: w->status = tfm_trainer_evaluate(trainer, w->values, w->n, &w->result, &w->error); break;
    case UPDATE: w->status = tfm_trainer_update(trainer, &w->result, &w->error); break;
  }
}

// ---- Ctrl-C ----

/* Of the main thread, which makes one call at a time. */
static tfm_trainer *volatile interrupted;
static struct sigaction usual;

static void on_interrupt(int number, siginfo_t *info, void *context) {
  if (interrupted) tfm_trainer_cancel(interrupted);
  if (usual.sa_flags & SA_SIGINFO) usual.sa_sigaction(number, info, context);
  else usual.sa_handler(number);
}

/* Where nobody handles the signal, it does what it does. */
static void do_and_listen(Work *w) {
  struct sigaction ours = {.sa_sigaction = on_interrupt};
  sigaction(SIGINT, NULL, &usual);
  if (!(usual.sa_flags & SA_SIGINFO) && (usual.sa_handler == SIG_DFL || usual.sa_handler == SIG_IGN)) {
    do_work(w);
    return;
  }
  ours.sa_mask = usual.sa_mask;
  ours.sa_flags = usual.sa_flags | SA_SIGINFO;
  interrupted = w->self->trainer;
  sigaction(SIGINT, &ours, NULL);
  do_work(w);
  sigaction(SIGINT, &usual, NULL);
  interrupted = NULL;
}

static bool is_main_thread(void) {
  PyObject *threading = PyImport_ImportModule("threading");
  PyObject *main = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
  PyObject *id = main ? PyObject_GetAttrString(main, "ident") : NULL;
  const bool is_main = id && PyLong_AsUnsignedLong(id) == PyThread_get_thread_ident();
  Py_XDECREF(threading);
  Py_XDECREF(main);
  Py_XDECREF(id);
  PyErr_Clear();
  return is_main;
}

// ---- several processes ----

/* Copies, because what the function keeps would outlive the call. */
static bool exchange_bytes(TrainerObject *self, int32_t peer, const void *out, void *in, int64_t bytes) {
  char *data;
  Py_ssize_t n;
  PyObject *sent = PyBytes_FromStringAndSize(out, (Py_ssize_t)bytes);
  PyObject *got = sent ? PyObject_CallFunction(self->exchange, "iO", (int)peer, sent) : NULL;
  bool good = got && !PyBytes_AsStringAndSize(got, &data, &n);
  if (good && n != bytes) {
    raise_status(TFM_E_ENV, "rank %d sent %lld bytes where %lld were expected: it does something else", (int)peer,
                 (long long)n, (long long)bytes);
    good = false;
  }
  if (good) memcpy(in, data, (size_t)bytes);
  Py_XDECREF(sent);
  Py_XDECREF(got);
  return good;
}

tfm_status trainer_exchange(void *user, int32_t peer, const void *out, void *in, int64_t bytes) {
  TrainerObject *self = user;
  PyGILState_STATE state = PyGILState_Ensure();
  const bool good = exchange_bytes(self, peer, out, in, bytes);
  if (!good) {
    PyObject *type, *traceback;
    Py_CLEAR(self->fault);
    PyErr_Fetch(&type, &self->fault, &traceback);
    PyErr_NormalizeException(&type, &self->fault, &traceback);
    if (self->fault && traceback) PyException_SetTraceback(self->fault, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
  }
  PyGILState_Release(state);
  return good ? TFM_OK : TFM_E_ENV;
}

/* What the function raised is the cause of the error; what ends a program, such as KeyboardInterrupt, is it itself. */
static PyObject *raise_fault(TrainerObject *self, const tfm_error *error) {
  PyObject *type, *value, *traceback, *fault = self->fault;
  self->fault = NULL;
  if (!PyErr_GivenExceptionMatches(fault, PyExc_Exception)) {
    PyErr_SetObject((PyObject *)Py_TYPE(fault), fault);
    Py_DECREF(fault);
    return NULL;
  }
  raise_error(error);
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetCause(value, fault);
  PyErr_Restore(type, value, traceback);
  return NULL;
}

// ---- calls ----

/* The result as a tuple; NULL after an exception. With several processes a step is not cancelled, since others wait for
 * it: the signal is handled behind it. */
static PyObject *work(Work *w) {
  const bool listens = w->how != UPDATE && !w->self->exchange && is_main_thread();
  do {
    Py_BEGIN_ALLOW_THREADS if (listens) do_and_listen(w);
    else do_work(w);
    Py_END_ALLOW_THREADS if (PyErr_CheckSignals()) return NULL;
  } while (listens && w->status == TFM_E_CANCELLED);
  if (w->status && w->self->fault) return raise_fault(w->self, &w->error);
  if (w->status) return raise_error(&w->error);
  PyObject *results = PyList_New(0);
  for (int i = 0; results && i < TFM_MAX_RESULTS && tfm_trainer_result(w->self->trainer, i); i++) {
    PyObject *number = PyFloat_FromDouble(w->result.results[i]);
    if (!number || PyList_Append(results, number)) Py_CLEAR(results);
    Py_XDECREF(number);
  }
  return Py_BuildValue("LdddN", (long long)w->result.step, w->result.loss, w->result.norm, w->result.rate, results);
}

// ---- parts ----

typedef struct Parts {
  Py_ssize_t n;
  uint32_t n_inputs;
  Slot *copies; /* for each part: only its scratch is used */
  Array *arrays;
  PyObject **objects;
  tfm_value *values;
} Parts;

static bool read_parts(const TrainerObject *self, PyObject *given, Parts *parts) {
  const size_t n = (size_t)parts->n, each = self->n_inputs;
  parts->copies = PyMem_Calloc(n + 1, sizeof *parts->copies);
  parts->arrays = PyMem_Calloc(n * each + 1, sizeof *parts->arrays);
  parts->objects = PyMem_Calloc(each + 1, sizeof *parts->objects);
  parts->values = PyMem_Calloc(n * each + 1, sizeof *parts->values);
  if (!parts->copies || !parts->arrays || !parts->objects || !parts->values) return PyErr_NoMemory(), false;
  for (size_t part = 0; part < n; part++) {
    PyObject *row = PyTuple_GetItem(given, (Py_ssize_t)part);
    if (!row || !PyTuple_Check(row) || PyTuple_Size(row) != (Py_ssize_t)each)
      return raise_status(TFM_E_USAGE, "a part has an array for each of %d inputs", (int)each), false;
    Array *arrays = parts->arrays + part * each;
    for (size_t i = 0; i < each; i++) parts->objects[i] = PyTuple_GetItem(row, (Py_ssize_t)i);
    if (!arrays_read(&parts->copies[part], arrays, parts->objects, self->inputs, self->n_inputs)) return false;
    for (size_t i = 0; i < each; i++) parts->values[part * each + i] = arrays[i].value;
  }
  return true;
}

static void forget(Parts *parts) {
  for (size_t i = 0; parts->arrays && i < (size_t)parts->n * parts->n_inputs; i++) array_release(&parts->arrays[i]);
  for (Py_ssize_t i = 0; parts->copies && i < parts->n; i++) free(parts->copies[i].scratch);
  PyMem_Free(parts->copies);
  PyMem_Free(parts->arrays);
  PyMem_Free(parts->objects);
  PyMem_Free(parts->values);
}

PyObject *trainer_run(PyObject *object, PyObject *args) {
  TrainerObject *self = (TrainerObject *)object;
  int how;
  long long first_item;
  PyObject *given;
  if (!PyArg_ParseTuple(args, "iO!L", &how, &PyTuple_Type, &given, &first_item) || !trainer_ready(self)) return NULL;
  Parts parts = {.n = PyTuple_Size(given), .n_inputs = self->n_inputs};
  PyObject *result = NULL;
  if (read_parts(self, given, &parts)) {
    Work w = {.self = self, .how = (How)how, .values = parts.values, .n = parts.n, .first_item = first_item};
    result = work(&w);
  }
  forget(&parts);
  return result;
}

PyObject *trainer_update(PyObject *object, PyObject *unused) {
  TrainerObject *self = (TrainerObject *)object;
  (void)unused;
  Work w = {.self = self, .how = UPDATE};
  return trainer_ready(self) ? work(&w) : NULL;
}
