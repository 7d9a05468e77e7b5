/* Calling a model: its inputs by place or name, its outputs as new arrays of numpy's or in arrays of the caller's.
 *
 * The GIL is released while the model runs, and while it is bound if there are many ids to check. Refused: inputs that
 * are missing, unknown or given twice; what arrays.c refuses; outputs that overlap inputs or each other; what the
 * model itself refuses. */
#include "core.h"

#include <string.h>

typedef struct Call {
  ModelObject *model;
  Slot *slot;
  bool alone; /* without the threads of the pool */
  uint32_t n_inputs, n_outputs;
  PyObject *apart;               /* the arguments with names, where nested ones were taken apart; NULL: none were */
  PyObject *given[MOST_TENSORS]; /* borrowed */
  PyObject *out[MOST_TENSORS];   /* borrowed; NULL: a new array */
  bool unwanted[MOST_TENSORS];
  Array inputs[MOST_TENSORS], outputs[MOST_TENSORS];
  PyObject *results[MOST_TENSORS];
} Call;

/* Only what the model has is cleared: a Call is large. */
static void begin(Call *call, ModelObject *model, bool alone) {
  call->model = model;
  call->alone = alone;
  call->slot = NULL;
  call->apart = NULL;
  call->n_inputs = model->program->n_inputs;
  call->n_outputs = model->program->n_outputs;
  for (uint32_t i = 0; i < call->n_inputs; i++) call->given[i] = NULL, call->inputs[i].held = false;
  for (uint32_t i = 0; i < call->n_outputs; i++) {
    call->out[i] = call->results[i] = NULL;
    call->unwanted[i] = call->outputs[i].held = false;
  }
}

static void end(Call *call) {
  for (uint32_t i = 0; i < call->n_inputs; i++) array_release(&call->inputs[i]);
  for (uint32_t i = 0; i < call->n_outputs; i++) {
    array_release(&call->outputs[i]);
    Py_XDECREF(call->results[i]);
  }
  Py_XDECREF(call->apart);
  if (call->slot) slot_give(call->model, call->slot);
}

// ---- running ----

enum { MANY_BYTES = 1 << 14 }; /* of ids: from here on others may use the GIL while they are checked */

static bool bind(const Call *call, tfm_value *values) {
  tfm_error error;
  tfm_status status;
  int64_t bytes = 0;
  for (uint32_t i = 0; i < call->n_inputs; i++) {
    values[i] = call->given[i] ? call->inputs[i].value : (tfm_value){0}; /* left out */
    if (call->given[i] && values[i].dtype == TFM_I32) bytes += call->inputs[i].view.len;
  }
  PyThreadState *state = bytes >= MANY_BYTES ? PyEval_SaveThread() : NULL;
  status = tfm_context_bind(call->slot->context, values, &error);
  if (state) PyEval_RestoreThread(state);
  return status ? raise_error(&error), false : true;
}

static bool overlap(const Array *a, const Array *b) {
  const uintptr_t first = (uintptr_t)a->view.buf, second = (uintptr_t)b->view.buf;
  if (!a->held || !b->held || !a->view.len || !b->view.len) return false;
  return first < second ? second - first < (uintptr_t)a->view.len : first - second < (uintptr_t)b->view.len;
}

static bool check_overlap(const Call *call, uint32_t output) {
  const tfm_program *program = call->model->program;
  for (uint32_t i = 0; i < call->n_inputs; i++)
    if (overlap(&call->outputs[output], &call->inputs[i]))
      return raise_status(TFM_E_USAGE, "out[\"%s\"] overlaps input \"%s\"", program->outputs[output].name,
                          program->inputs[i].name), false;
  for (uint32_t i = 0; i < output; i++)
    if (overlap(&call->outputs[output], &call->outputs[i]))
      return raise_status(TFM_E_USAGE, "out[\"%s\"] overlaps out[\"%s\"]", program->outputs[output].name,
                          program->outputs[i].name), false;
  return true;
}

static bool make_outputs(Call *call, tfm_value *values) {
  for (uint32_t i = 0; i < call->n_outputs; i++) {
    const tfm_tensor_info *info = &call->model->program->outputs[i];
    values[i] = (tfm_value){0};
    if (call->unwanted[i]) continue;
    int32_t rank;
    const int64_t *dims = tfm_context_output_dims(call->slot->context, i, &rank);
    if (call->out[i]) {
      if (!array_read_output(&call->outputs[i], call->out[i], info, dims) || !check_overlap(call, i)) return false;
      Py_INCREF(call->out[i]);
      call->results[i] = call->out[i];
    } else if (!(call->results[i] = array_new(&call->outputs[i], info->dtype, rank, dims))) {
      return false;
    }
    values[i] = call->outputs[i].value;
  }
  return true;
}

static bool run(Call *call) {
  tfm_value inputs[MOST_TENSORS], outputs[MOST_TENSORS];
  call->slot = slot_take(call->model, call->alone);
  if (!call->slot ||
      !arrays_read(call->slot, call->inputs, call->given, call->model->program->inputs, call->n_inputs) ||
      !bind(call, inputs) || !make_outputs(call, outputs))
    return false;
  tfm_error error;
  tfm_status status;
  Py_BEGIN_ALLOW_THREADS
  status = tfm_context_run(call->slot->context, inputs, outputs, &error);
  Py_END_ALLOW_THREADS
  return status ? raise_error(&error), false : true;
}

// ---- model(*inputs, **named) ----

static PyObject *name_of(const Call *call, uint32_t i) { return PyTuple_GetItem(call->model->inputs, i); }

/* Called if the numbers do not agree: some name is unknown, or names an input that its place gave already. */
static bool refuse_names(const Call *call, Py_ssize_t n_places, PyObject *named) {
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(named, &at, &name, &value);) {
    int known = PySequence_Contains(call->model->inputs, name);
    if (known < 0) return false;
    if (!known) return raise_status(TFM_E_USAGE, "there is no input \"%U\"; the inputs are %R", name,
                                    call->model->inputs), false;
    for (Py_ssize_t i = 0; i < n_places; i++)
      if (PyUnicode_Compare(name, name_of(call, (uint32_t)i)) == 0)
        return raise_status(TFM_E_USAGE, "input \"%U\" is given by its place and by its name", name), false;
  }
  return raise_status(TFM_E_USAGE, "the inputs do not fit"), false;
}

/* Nested arguments as the flat ones of the model, in call->apart. False: there are none, or an exception is set. */
static bool take_apart(Call *call, PyObject *named) {
  if (call->apart) return false;
  PyObject *apart = PyObject_CallMethod((PyObject *)call->model, "_apart", "O", named);
  if (apart && apart != Py_None) return call->apart = apart, true;
  Py_XDECREF(apart);
  return false;
}

/* None for an input that has a default is no input, as in PyTorch. */
static void leave_out(Call *call) {
  for (uint32_t i = 0; i < call->n_inputs; i++)
    if (call->given[i] == Py_None && call->model->program->inputs[i].has_default) call->given[i] = NULL;
}

static bool read_arguments(Call *call, PyObject *args, PyObject *named) {
  const Py_ssize_t n_places = PyTuple_Size(args), n_named = named ? PyDict_Size(named) : 0;
  Py_ssize_t used = 0;
  if (n_places > (Py_ssize_t)call->n_inputs)
    return raise_status(TFM_E_USAGE, "%zd inputs are given, the model has %u: %R", n_places, call->n_inputs,
                        call->model->inputs), false;
  for (uint32_t i = 0; i < call->n_inputs; i++) {
    if ((Py_ssize_t)i < n_places) call->given[i] = PyTuple_GetItem(args, i);
    else if (n_named) call->given[i] = PyDict_GetItemWithError(named, name_of(call, i)), used += !!call->given[i];
  }
  if (PyErr_Occurred()) return false;
  if (used != n_named && take_apart(call, named)) return read_arguments(call, args, call->apart);
  if (PyErr_Occurred()) return false;
  if (used != n_named) return refuse_names(call, n_places, named);
  leave_out(call);
  for (uint32_t i = 0; i < call->n_inputs; i++)
    if (!call->given[i] && !call->model->program->inputs[i].has_default)
      return raise_status(TFM_E_USAGE, "input \"%U\" is missing: %s", name_of(call, i),
                          call->model->program->inputs[i].shape), false;
  return true;
}

/* One output as it is; several in the model's own named tuple. The references are given away. */
static PyObject *result_of(Call *call) {
  if (call->n_outputs == 1) {
    PyObject *result = call->results[0];
    call->results[0] = NULL;
    return result;
  }
  PyObject *all = PyTuple_New(call->n_outputs);
  for (uint32_t i = 0; all && i < call->n_outputs; i++) {
    PyTuple_SetItem(all, i, call->results[i]);
    call->results[i] = NULL;
  }
  PyObject *result = all ? PyObject_Call(call->model->outputs_type, all, NULL) : NULL;
  Py_XDECREF(all);
  return result;
}

static PyObject *call_with(ModelObject *model, PyObject *args, PyObject *named, bool alone) {
  Call call;
  if (!model->model || !model->outputs) return raise_status(TFM_E_USAGE, "the model is closed");
  begin(&call, model, alone);
  PyObject *result = read_arguments(&call, args, named) && run(&call) ? result_of(&call) : NULL;
  end(&call);
  return result;
}

PyObject *model_call(PyObject *self, PyObject *args, PyObject *named) {
  return call_with((ModelObject *)self, args, named, false);
}

PyObject *model_call_alone(PyObject *self, PyObject *args, PyObject *named) {
  return call_with((ModelObject *)self, args, named, true);
}

// ---- _run(inputs, wanted, out) ----

/* Tuples in the order of the model: all inputs; for each output None (not wanted), True, or the array to fill. */
PyObject *model_run(PyObject *self, PyObject *args) {
  ModelObject *model = (ModelObject *)self;
  PyObject *given, *wanted;
  Call call;
  if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &given, &PyTuple_Type, &wanted)) return NULL;
  if (!model->model || !model->outputs) return raise_status(TFM_E_USAGE, "the model is closed");
  begin(&call, model, false);
  if (PyTuple_Size(given) != (Py_ssize_t)call.n_inputs || PyTuple_Size(wanted) != (Py_ssize_t)call.n_outputs)
    return raise_status(TFM_E_USAGE, "the inputs or outputs do not fit");
  for (uint32_t i = 0; i < call.n_inputs; i++) call.given[i] = PyTuple_GetItem(given, i);
  leave_out(&call);
  for (uint32_t i = 0; i < call.n_outputs; i++) {
    PyObject *one = PyTuple_GetItem(wanted, i);
    call.unwanted[i] = one == Py_None;
    call.out[i] = one == Py_None || one == Py_True ? NULL : one;
  }
  PyObject *results = run(&call) ? PyTuple_New(call.n_outputs) : NULL;
  for (uint32_t i = 0; results && i < call.n_outputs; i++) {
    PyObject *one = call.unwanted[i] ? Py_None : call.results[i];
    Py_INCREF(one);
    PyTuple_SetItem(results, i, one);
  }
  end(&call);
  return results;
}

// ---- room for sizes ----

enum { MOST_SIZES = UINT8_MAX + 1 };

/* The args struct of the model with these sizes; NULL after an exception. */
static char *sizes_as_args(const ModelObject *model, PyObject *sizes) {
  const tfm_args_layout *layout = &model->library->args;
  const size_t bytes = layout->struct_size;
  if (PyTuple_Size(sizes) != (Py_ssize_t)model->program->n_symbols)
    return raise_status(TFM_E_USAGE, "the sizes do not fit"), NULL;
  char *args = PyMem_Calloc(1, bytes);
  if (!args) return PyErr_NoMemory(), NULL;
  memcpy(args, &bytes, sizeof bytes);
  for (uint32_t i = 0; i < model->program->n_symbols; i++) {
    int64_t size = PyLong_AsLongLong(PyTuple_GetItem(sizes, i));
    memcpy(args + layout->symbols[i], &size, sizeof size);
  }
  if (!PyErr_Occurred()) return args;
  PyMem_Free(args);
  return NULL;
}

PyObject *model_reserve(PyObject *self, PyObject *args) {
  ModelObject *model = (ModelObject *)self;
  PyObject *sizes;
  if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &sizes)) return NULL;
  if (!model->model) return raise_status(TFM_E_USAGE, "the model is closed");
  char *struct_args = sizes_as_args(model, sizes);
  Slot *slot = struct_args ? slot_take(model, false) : NULL;
  if (slot) {
    tfm_error error;
    if (tfm_library_reserve(slot->context, struct_args, &error)) raise_error(&error);
    slot_give(model, slot);
  }
  PyMem_Free(struct_args);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

PyObject *model_workspace_bytes(PyObject *self, PyObject *args) {
  ModelObject *model = (ModelObject *)self;
  PyObject *sizes;
  if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &sizes)) return NULL;
  if (!model_enter(model)) return NULL;
  char *struct_args = sizes_as_args(model, sizes);
  int64_t bytes = struct_args ? tfm_library_workspace_bytes(model->model, struct_args) : -1;
  PyMem_Free(struct_args);
  model_leave(model);
  if (PyErr_Occurred()) return NULL;
  if (bytes < 0) return raise_status(TFM_E_INPUT, "a size is negative or too large");
  return PyLong_FromLongLong(bytes);
}
