/* Model._generate: sequences of tokens, by tfm_library_generate.
 *
 * In: the inputs in the order of the model (None: the decoder input, if rows begin with the model's own token), lengths
 * of prompts and of ragged sizes, a dict of options, callbacks. Out: arrays of numpy's. Refused: shapes that do not
 * agree, options of a wrong type; what the options refuse is for libtfm. A callback that raises ends the generation,
 * and its exception arrives unchanged; without callbacks signals are looked for now and then. */
#include "core.h"

#include <string.h>
#include <time.h>

// ---- callbacks ----

typedef struct Watch {
  ModelObject *model;
  PyObject *on_token, *on_scores; /* NULL: none */
  PyThreadState *state;           /* without the GIL */
  CallbackScope scope;
  bool failed; /* an exception is under way */
  int64_t looked_ms;
  unsigned long generation;
} Watch;

enum { LOOK_MS = 20 };

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void enter_python(Watch *watch) {
  PyEval_RestoreThread(watch->state);
  watch->scope = (CallbackScope){watch->model, callbacks};
  callbacks = &watch->scope;
}

static void leave_python(Watch *watch) {
  callbacks = watch->scope.outer;
  if (!watch->failed && watch->generation != shared.generation) {
    raise_status(TFM_E_USAGE, "a callback forked: the child cannot go on with its parent's call");
    watch->failed = true;
  }
  watch->state = PyEval_SaveThread();
}

/* Without a callback the GIL is taken as seldom as a person notices. */
static int take_token(void *user, int64_t item, int32_t token) {
  Watch *watch = user;
  if (watch->failed) return 1;
  const int64_t now = now_ms();
  if (!watch->on_token && now - watch->looked_ms < LOOK_MS) return 0;
  watch->looked_ms = now;
  enter_python(watch);
  int stop = PyErr_CheckSignals() ? -1 : 0;
  if (!stop && watch->on_token) {
    PyObject *answer = PyObject_CallFunction(watch->on_token, "Li", (long long)item, (int)token);
    stop = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
  }
  watch->failed = stop < 0;
  leave_python(watch);
  return stop || watch->failed;
}

/* The callback gets copies: it may keep them. */
static bool call_on_scores(const Watch *watch, int64_t item, const int32_t *tokens, int64_t length, float *scores) {
  const int64_t vocab = watch->model->library->generation->vocab;
  Array row = {0}, values = {0};
  PyObject *given = array_new(&row, TFM_I32, 1, &length), *changed = array_new(&values, TFM_F32, 1, &vocab);
  PyObject *answer = NULL;
  if (given && changed) {
    memcpy(row.value.data, tokens, (size_t)length * sizeof *tokens);
    memcpy(values.value.data, scores, (size_t)vocab * sizeof *scores);
    answer = PyObject_CallFunction(watch->on_scores, "LOO", (long long)item, given, changed);
    memcpy(scores, values.value.data, (size_t)vocab * sizeof *scores);
  }
  array_release(&row);
  array_release(&values);
  Py_XDECREF(given);
  Py_XDECREF(changed);
  Py_XDECREF(answer);
  return answer != NULL;
}

static void change_scores(void *user, int64_t item, const int32_t *tokens, int64_t length, float *scores) {
  Watch *watch = user;
  if (watch->failed) return;
  enter_python(watch);
  watch->failed = !call_on_scores(watch, item, tokens, length, scores);
  leave_python(watch);
}

// ---- sizes ----

static int64_t value_of(const tfm_program *program, tfm_size index, const int64_t *sizes) {
  const tfm_polynomial *polynomial = &program->polynomials[index];
  int64_t sum = 0;
  for (uint32_t i = 0; i < polynomial->n_terms; i++) {
    const tfm_term *term = &program->terms[polynomial->first_term + i];
    int64_t product = term->coefficient;
    for (unsigned k = 0; k < term->degree; k++) {
      const uint8_t symbol = term->symbols[k];
      if (symbol < TFM_FIRST_FLOOR) {
        product *= sizes[symbol];
      } else {
        const tfm_floor *floor = &program->floors[symbol - TFM_FIRST_FLOOR];
        product *= value_of(program, floor->numerator, sizes) / floor->divisor;
      }
    }
    sum += product;
  }
  return sum;
}

/* The number of the size that an axis consists of; -1: it is something else. */
static int lone_size(const tfm_program *program, tfm_size index) {
  const tfm_polynomial *polynomial = &program->polynomials[index];
  if (polynomial->n_terms != 1) return -1;
  const tfm_term *term = &program->terms[polynomial->first_term];
  const bool is_size = term->coefficient == 1 && term->degree == 1 && term->symbols[0] < TFM_FIRST_FLOOR;
  return is_size ? term->symbols[0] : -1;
}

static bool refuse_axis(const tfm_program *program, uint32_t input, int axis, int64_t dim, int64_t expected) {
  tfm_error error = {.status = TFM_E_INPUT, .reason = TFM_REASON_SHAPE};
  snprintf(error.message, sizeof error.message, "input \"%s\": axis %d is %lld, expected %lld: %s",
           program->inputs[input].name, axis, (long long)dim, (long long)expected, program->inputs[input].shape);
  return raise_error(&error), false;
}

/* The sizes that the inputs give; those that only a missing decoder input would give are 1. */
static bool read_sizes(const tfm_program *program, const Array *inputs, int64_t *sizes) {
  for (uint32_t i = 0; i < program->n_symbols; i++) sizes[i] = -1;
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    const tfm_tensor_info *info = &program->inputs[i];
    if (inputs[i].held && inputs[i].value.rank != info->rank)
      return raise_status(TFM_E_INPUT, "input \"%s\" has %d %s, expected %d: %s", info->name,
                          (int)inputs[i].value.rank, inputs[i].value.rank == 1 ? "axis" : "axes", (int)info->rank,
                          info->shape),
             false;
    for (int axis = 0; inputs[i].held && axis < info->rank; axis++) {
      const int size = lone_size(program, info->dims[axis]);
      if (size >= 0 && sizes[size] < 0) sizes[size] = inputs[i].dims[axis];
    }
  }
  for (uint32_t i = 0; i < program->n_symbols; i++)
    if (sizes[i] < 0) sizes[i] = 1;
  for (uint32_t i = 0; i < program->n_inputs; i++)
    for (int axis = 0; inputs[i].held && axis < program->inputs[i].rank; axis++) {
      const int64_t expected = value_of(program, program->inputs[i].dims[axis], sizes);
      if (inputs[i].dims[axis] != expected) return refuse_axis(program, i, axis, inputs[i].dims[axis], expected);
    }
  return true;
}

// ---- the call ----

typedef struct Call {
  ModelObject *model;
  Slot *slot;
  PyObject *given, *prompt_lengths, *size_lengths, *options, *on_token, *on_scores;
  PyObject *objects[MOST_TENSORS];
  Array inputs[MOST_TENSORS];
  Array lengths[MOST_TENSORS]; /* i64, of the prompts, then of the sizes */
  int n_lengths;
  char *args;
} Call;

/* n numbers of an array of i64 that the package made; NULL after an exception. */
static const int64_t *take_lengths(Call *call, PyObject *object, int64_t n) {
  Array *array = &call->lengths[call->n_lengths];
  if (call->n_lengths == MOST_TENSORS || PyObject_GetBuffer(object, &array->view, PyBUF_C_CONTIGUOUS)) return NULL;
  array->held = true;
  call->n_lengths++;
  if (array->view.len == n * (int64_t)sizeof(int64_t)) return array->view.buf;
  return raise_status(TFM_E_INPUT, "there are %zd lengths for %lld rows", array->view.len / 8, (long long)n), NULL;
}

static bool add_size_lengths(Call *call, const int64_t *sizes) {
  const tfm_program *program = call->model->program;
  const tfm_generation *generation = call->model->library->generation;
  const uint32_t *places = call->model->library->args.lengths;
  PyObject *name, *value;
  const int64_t rows = generation->batch == TFM_NONE ? 1 : sizes[generation->batch];
  for (Py_ssize_t at = 0; PyDict_Next(call->size_lengths, &at, &name, &value);) {
    uint32_t i = 0;
    while (i < program->n_symbols && PyUnicode_CompareWithASCIIString(name, program->symbols[i]) != 0) i++;
    if (i == program->n_symbols || !places || !places[i])
      return raise_status(TFM_E_INPUT, "rows cannot have lengths of their own in the size %R", name), false;
    const int64_t *lengths = take_lengths(call, value, rows);
    if (!lengths) return false;
    memcpy(call->args + places[i], &lengths, sizeof lengths);
  }
  return true;
}

static bool fill_args(Call *call, const int64_t **prompt_lengths) {
  const tfm_program *program = call->model->program;
  const tfm_args_layout *layout = &call->model->library->args;
  const tfm_generation *generation = call->model->library->generation;
  int64_t sizes[UINT8_MAX + 1];
  const size_t bytes = layout->struct_size;
  if (!read_sizes(program, call->inputs, sizes)) return false;
  call->args = PyMem_Calloc(1, bytes);
  if (!call->args) return PyErr_NoMemory(), false;
  memcpy(call->args, &bytes, sizeof bytes);
  for (uint32_t i = 0; i < program->n_symbols; i++) memcpy(call->args + layout->symbols[i], &sizes[i], sizeof *sizes);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    if (call->inputs[i].held) memcpy(call->args + layout->inputs[i], &call->inputs[i].value.data, sizeof(void *));
  *prompt_lengths = NULL;
  if (call->prompt_lengths == Py_None) return add_size_lengths(call, sizes);
  *prompt_lengths =
      take_lengths(call, call->prompt_lengths, generation->batch == TFM_NONE ? 1 : sizes[generation->batch]);
  return *prompt_lengths && add_size_lengths(call, sizes);
}

static PyObject *array_of(int dtype, int32_t rank, const int64_t *dims, const void *from) {
  if (!from) Py_RETURN_NONE;
  Array array = {0};
  PyObject *made = array_new(&array, dtype, rank, dims);
  if (made && array.view.len) memcpy(array.value.data, from, (size_t)array.view.len);
  array_release(&array);
  return made;
}

/* (sequences, lengths, scores, token_scores, n_tokens) */
static PyObject *result_of(const tfm_generated *g) {
  const int64_t dims[] = {g->n, g->width};
  PyObject *sequences = array_of(TFM_I32, 2, dims, g->sequences), *lengths = array_of(-1, 1, dims, g->lengths);
  PyObject *scores = array_of(TFM_F32, 1, dims, g->scores);
  PyObject *token_scores = array_of(TFM_F32, 2, dims, g->token_scores);
  if (sequences && lengths && scores && token_scores)
    return Py_BuildValue("NNNNL", sequences, lengths, scores, token_scores, (long long)g->n_tokens);
  Py_XDECREF(sequences);
  Py_XDECREF(lengths);
  Py_XDECREF(scores);
  Py_XDECREF(token_scores);
  return NULL;
}

static PyObject *run(Call *call, const int64_t *prompt_lengths, tfm_generate_options *options) {
  Watch watch = {.model = call->model, .generation = shared.generation, .looked_ms = now_ms()};
  watch.on_token = call->on_token == Py_None ? NULL : call->on_token;
  watch.on_scores = call->on_scores == Py_None ? NULL : call->on_scores;
  options->on_token = take_token;
  options->on_scores = watch.on_scores ? change_scores : NULL;
  options->on_token_user = options->on_scores_user = &watch;
  tfm_generated generated = {0};
  tfm_error error;
  watch.state = PyEval_SaveThread();
  tfm_status status =
      tfm_library_generate(call->slot->context, call->args, prompt_lengths, options, &generated, &error);
  PyEval_RestoreThread(watch.state);
  PyObject *result = NULL;
  if (watch.failed)
    result = NULL;
  else if (status)
    raise_error(&error);
  else
    result = result_of(&generated);
  tfm_generated_free(&generated);
  return result;
}

static PyObject *generate(Call *call, OptionLists *lists) {
  const tfm_program *program = call->model->program;
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    PyObject *one = PyTuple_GetItem(call->given, i);
    call->objects[i] = one == Py_None ? NULL : one;
    call->inputs[i].held = false;
  }
  tfm_generate_options options;
  tfm_library_generate_defaults(call->model->library, &options);
  const int64_t *prompt_lengths;
  call->slot = slot_take(call->model, false);
  if (!call->slot || !arrays_read(call->slot, call->inputs, call->objects, program->inputs, program->n_inputs) ||
      !fill_args(call, &prompt_lengths) || !dict_options_read(call->options, &options, lists))
    return NULL;
  return run(call, prompt_lengths, &options);
}

/* _generate(inputs, prompt_lengths, size_lengths, options, on_token, on_scores) */
PyObject *model_generate(PyObject *self, PyObject *args) {
  Call call = {.model = (ModelObject *)self};
  OptionLists lists = {0};
  if (!PyArg_ParseTuple(args, "O!OO!O!OO", &PyTuple_Type, &call.given, &call.prompt_lengths, &PyDict_Type,
                        &call.size_lengths, &PyDict_Type, &call.options, &call.on_token, &call.on_scores))
    return NULL;
  if (!call.model->model || !call.model->outputs) return raise_status(TFM_E_USAGE, "the model is closed");
  if (!call.model->library->generation) return raise_status(TFM_E_USAGE, "the model has no generate block");
  if (PyTuple_Size(call.given) != (Py_ssize_t)call.model->program->n_inputs)
    return raise_status(TFM_E_USAGE, "the inputs do not fit");
  PyObject *result = generate(&call, &lists);
  for (uint32_t i = 0; i < call.model->program->n_inputs; i++) array_release(&call.inputs[i]);
  for (int i = 0; i < call.n_lengths; i++) array_release(&call.lengths[i]);
  dict_options_free(&lists);
  PyMem_Free(call.args);
  if (call.slot) slot_give(call.model, call.slot);
  return result;
}
