/* tfmc._core.Decoder: rows of tokens that join, leave and step, over the incremental form of a model.
 *
 * One caller at a time: a second one is refused, not queued. The model keeps a list of its decoders and ends them when
 * it is closed. Refused: decoders of models without an incremental form, of a closed model, and in the child of a
 * fork; what tfm/decode.h refuses. */
#include "core.h"

#include <string.h>

enum { MOST_ROWS = 1 << 16 };

// ---- one caller at a time ----

/* The GIL protects `busy`; the model's close() waits for who is in. */
bool decoder_enter(DecoderObject *self) {
  if (!self->decoder) return raise_status(TFM_E_USAGE, "the decoder is closed"), false;
  if (self->generation != shared.generation)
    return raise_status(TFM_E_USAGE, "the decoder was made before this process was forked"), false;
  if (self->busy) return raise_status(TFM_E_USAGE, "another thread is using the decoder"), false;
  if (!model_enter(self->model)) return false;
  self->busy = true;
  return true;
}

void decoder_leave(DecoderObject *self) {
  self->busy = false;
  model_leave(self->model);
}

/* What a function of tfm/decode.h returned, as None or an exception. */
static PyObject *ended(DecoderObject *self, tfm_status status, const tfm_error *error) {
  decoder_leave(self);
  if (status) return raise_error(error);
  Py_RETURN_NONE;
}

// ---- beginning and ending ----

void decoder_end(DecoderObject *self) {
  if (self->decoder && self->generation == shared.generation) tfm_decoder_destroy(self->decoder);
  self->decoder = NULL;
  for (int32_t i = 0; i < self->n_choosers; i++) tfm_chooser_destroy(self->choosers[i]);
  free(self->choosers);
  self->choosers = NULL;
  self->n_choosers = 0;
  for (DecoderObject **at = &self->model->decoders; *at; at = &(*at)->next)
    if (*at == self) {
      *at = self->next;
      break;
    }
}

/* Rows without sources, or whose sources come later. */
static tfm_status begin_or_open(DecoderObject *self, const tfm_value *inputs, const tfm_decoder_limits *limits,
                                tfm_error *error) {
  const bool waits = limits->items || !tfm_model_decoding(self->model->model)->encoder;
  if (waits && limits->rows > 0) return tfm_decoder_open(self->decoder, limits, error);
  return tfm_decoder_begin(self->decoder, inputs, limits->rows, limits->length, error);
}

/* The inputs of the encoder program, in its order; None or nothing if everything depends on the tokens. */
static tfm_status begin(DecoderObject *self, PyObject *given, const tfm_decoder_limits *limits, tfm_error *error) {
  const tfm_program *encoder = tfm_model_decoding(self->model->model)->encoder;
  const uint32_t n = encoder && !limits->items ? encoder->n_inputs : 0;
  PyObject *objects[MOST_TENSORS];
  Array arrays[MOST_TENSORS];
  tfm_value values[MOST_TENSORS];
  Slot copies = {0}; /* only its scratch is used */
  tfm_status status = TFM_E_USAGE;
  for (uint32_t i = 0; i < n; i++) {
    objects[i] = PyTuple_GetItem(given, i);
    arrays[i].held = false;
  }
  if (arrays_read(&copies, arrays, objects, encoder ? encoder->inputs : NULL, n)) {
    for (uint32_t i = 0; i < n; i++) values[i] = arrays[i].value;
    Py_BEGIN_ALLOW_THREADS status = begin_or_open(self, n ? values : NULL, limits, error);
    Py_END_ALLOW_THREADS
  }
  for (uint32_t i = 0; i < n; i++) array_release(&arrays[i]);
  free(copies.scratch);
  return status;
}

static bool create(DecoderObject *self, ModelObject *model) {
  tfm_error error;
  tfm_context_options options = {.struct_size = sizeof options, .pool = pool_get(model->pool)};
  if (!options.pool) return false;
  if (tfm_model_decoder(model->model, &options, &self->decoder, &error)) return raise_error(&error), false;
  Py_INCREF((PyObject *)model);
  self->model = model;
  self->generation = shared.generation;
  self->next = model->decoders;
  model->decoders = self;
  return true;
}

/* What the sizes of sources may be, all the same; the caller frees it. */
static int64_t *sizes_of_sources(const tfm_decoding *decoding, int64_t length) {
  const uint32_t n = decoding->encoder->n_symbols;
  int64_t *sizes = PyMem_Calloc((size_t)n + 1, sizeof *sizes);
  for (uint32_t i = 0; sizes && i < n; i++) sizes[i] = length;
  if (!sizes) PyErr_NoMemory();
  return sizes;
}

/* Model._decoder(sources, max_rows, max_length, step_rows, step_kept, cache_bytes, items, source_length); 0: no such
 * limit; items: sources at a time, which come later */
PyObject *model_decoder(PyObject *object, PyObject *args) {
  ModelObject *model = (ModelObject *)object;
  PyObject *given;
  tfm_decoder_limits limits = {.struct_size = sizeof limits};
  long long max_rows, max_length, step_rows, step_kept, items, source_length;
  unsigned long long cache_bytes;
  if (!PyArg_ParseTuple(args, "O!LLLLKLL", &PyTuple_Type, &given, &max_rows, &max_length, &step_rows, &step_kept,
                        &cache_bytes, &items, &source_length))
    return NULL;
  limits.rows = max_rows, limits.length = max_length;
  limits.step_rows = step_rows, limits.step_kept = step_kept, limits.cache_bytes = cache_bytes;
  limits.items = items;
  if (!model_enter(model)) return NULL;
  const tfm_decoding *decoding = tfm_model_decoding(model->model);
  const bool encodes = decoding && decoding->encoder;
  const uint32_t n = encodes && !items ? decoding->encoder->n_inputs : 0;
  int64_t *sizes = NULL;
  DecoderObject *self = NULL;
  if (!decoding)
    raise_status(TFM_E_USAGE, "the model has no incremental form");
  else if (PyTuple_Size(given) != (Py_ssize_t)n)
    raise_status(TFM_E_USAGE, "the sources do not fit");
  else if (encodes && !items && (step_rows || step_kept || cache_bytes))
    raise_status(TFM_E_USAGE, "step_rows, step_kept and cache_bytes are for rows without sources, or whose sources come "
                              "later: items");
  else if (items && !encodes)
    raise_status(TFM_E_USAGE, "items are of models whose rows have sources");
  else if (items && !(limits.source_sizes = sizes = sizes_of_sources(decoding, source_length)))
    self = NULL;
  else
    self = (DecoderObject *)((allocfunc)PyType_GetSlot(shared.decoder_type, Py_tp_alloc))(shared.decoder_type, 0);
  tfm_error error = {.message = ""};
  if (self && (!create(self, model) || begin(self, given, &limits, &error))) {
    if (!PyErr_Occurred()) raise_error(&error);
    Py_DECREF((PyObject *)self);
    self = NULL;
  }
  PyMem_Free(sizes);
  model_leave(model);
  return (PyObject *)self;
}

static PyObject *close_decoder(PyObject *object, PyObject *unused) {
  DecoderObject *self = (DecoderObject *)object;
  (void)unused;
  if (self->busy) return raise_status(TFM_E_USAGE, "another thread is using the decoder");
  if (self->decoder) decoder_end(self);
  Py_RETURN_NONE;
}

static void drop(PyObject *object) {
  DecoderObject *self = (DecoderObject *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (self->decoder) decoder_end(self);
  Py_XDECREF((PyObject *)self->model);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

// ---- rows ----

static PyObject *join(PyObject *object, PyObject *args) {
  DecoderObject *self = (DecoderObject *)object;
  long long item = 0;
  int64_t row = -1;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "|L:join", &item) || !decoder_enter(self)) return NULL;
  const tfm_status status = tfm_decoder_join(self->decoder, item, &row, &error);
  decoder_leave(self);
  return status ? raise_error(&error) : PyLong_FromLongLong(row);
}

static PyObject *fork_row(PyObject *object, PyObject *args) {
  DecoderObject *self = (DecoderObject *)object;
  long long row;
  int64_t copy = -1;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "L:fork", &row) || !decoder_enter(self)) return NULL;
  const tfm_status status = tfm_decoder_fork(self->decoder, row, &copy, &error);
  decoder_leave(self);
  return status ? raise_error(&error) : PyLong_FromLongLong(copy);
}

static PyObject *leave_row(PyObject *object, PyObject *args) {
  DecoderObject *self = (DecoderObject *)object;
  long long row;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "L:leave", &row) || !decoder_enter(self)) return NULL;
  return ended(self, tfm_decoder_leave(self->decoder, row, &error), &error);
}

static PyObject *truncate_row(PyObject *object, PyObject *args) {
  DecoderObject *self = (DecoderObject *)object;
  long long row, length;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "LL:truncate", &row, &length) || !decoder_enter(self)) return NULL;
  return ended(self, tfm_decoder_truncate(self->decoder, row, length, &error), &error);
}

static PyObject *keeps(PyObject *object, PyObject *args) {
  DecoderObject *self = (DecoderObject *)object;
  long long row, length;
  if (!PyArg_ParseTuple(args, "LL:keeps", &row, &length) || !decoder_enter(self)) return NULL;
  const int64_t kept = tfm_decoder_keeps(self->decoder, row, length);
  decoder_leave(self);
  return kept < 0 ? raise_status(TFM_E_INPUT, "there is no row %lld, or %lld is no length", row, length)
                  : PyLong_FromLongLong(kept);
}

static PyObject *length_of(PyObject *object, PyObject *args) {
  DecoderObject *self = (DecoderObject *)object;
  long long row;
  if (!PyArg_ParseTuple(args, "L:length", &row) || !decoder_enter(self)) return NULL;
  const int64_t length = tfm_decoder_length(self->decoder, row);
  decoder_leave(self);
  return length < 0 ? raise_status(TFM_E_INPUT, "there is no row %lld", row) : PyLong_FromLongLong(length);
}

static PyObject *pages_of(PyObject *object, PyObject *args) {
  DecoderObject *self = (DecoderObject *)object;
  long long tokens;
  int64_t left;
  if (!PyArg_ParseTuple(args, "L:pages", &tokens) || !decoder_enter(self)) return NULL;
  const int64_t taken = tfm_decoder_pages(self->decoder, tokens, &left);
  decoder_leave(self);
  return Py_BuildValue("LL", (long long)taken, (long long)left);
}

static PyObject *reorder(PyObject *object, PyObject *given) {
  DecoderObject *self = (DecoderObject *)object;
  PyObject *list = PySequence_Tuple(given);
  if (!list) return NULL;
  const Py_ssize_t n = PyTuple_Size(list);
  int64_t *parents = PyMem_Calloc((size_t)n + 1, sizeof *parents);
  for (Py_ssize_t i = 0; parents && i < n; i++) parents[i] = PyLong_AsLongLong(PyTuple_GetItem(list, i));
  Py_DECREF(list);
  if (!parents) return PyErr_NoMemory();
  tfm_error error;
  PyObject *result = NULL;
  if (!PyErr_Occurred() && decoder_enter(self))
    result = ended(self, tfm_decoder_reorder(self->decoder, n, parents, &error), &error);
  PyMem_Free(parents);
  return result;
}

// ---- steps ----

typedef struct Step {
  DecoderObject *decoder;
  Py_ssize_t n;
  PyObject *list; /* a tuple of (row, tokens) */
  tfm_decoder_row *rows;
  PyObject **tokens;
  Array *arrays;
  tfm_tensor_info info; /* of the tokens of a row */
  Slot copies;
} Step;

static bool read_rows(Step *step) {
  for (Py_ssize_t i = 0; i < step->n; i++) {
    PyObject *pair = PyTuple_GetItem(step->list, i);
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
      return raise_status(TFM_E_USAGE, "rows are pairs of a row and its tokens"), false;
    step->rows[i].row = PyLong_AsLongLong(PyTuple_GetItem(pair, 0));
    if (PyErr_Occurred()) return false;
    step->tokens[i] = PyTuple_GetItem(pair, 1);
  }
  size_t bytes = 0;
  for (Py_ssize_t i = 0; i < step->n; i++) {
    if (!array_read(&step->arrays[i], step->tokens[i], &step->info)) return false;
    if (step->arrays[i].value.rank != 1)
      return raise_status(TFM_E_INPUT, "the tokens of a row have %d %s, expected 1", (int)step->arrays[i].value.rank,
                          step->arrays[i].value.rank == 1 ? "axis" : "axes"),
             false;
    bytes += array_copy_bytes(&step->arrays[i]);
  }
  if (!slot_reserve(&step->copies, bytes)) return false;
  char *to = step->copies.scratch;
  for (Py_ssize_t i = 0; i < step->n; i++) {
    if (!array_copy(&step->arrays[i], to, &step->info)) return false;
    step->rows[i].tokens = step->arrays[i].value.data;
    step->rows[i].n_tokens = step->arrays[i].dims[0];
    to += array_copy_bytes(&step->arrays[i]);
  }
  return true;
}

static PyObject *run_step(Step *step, long long kept) {
  DecoderObject *self = step->decoder;
  if (kept < 0 || kept > TFM_DECODER_MOST) return raise_status(TFM_E_INPUT, "kept is %lld", kept);
  const int64_t dims[] = {step->n, kept, tfm_model_decoding(self->model->model)->vocab};
  Array logits = {0};
  PyObject *result = array_new(&logits, TFM_F32, 3, dims);
  if (!result) return NULL;
  tfm_error error;
  tfm_status status;
  Py_BEGIN_ALLOW_THREADS status =
      tfm_decoder_step(self->decoder, step->n, step->rows, kept, kept ? logits.value.data : NULL, NULL, &error);
  Py_END_ALLOW_THREADS array_release(&logits);
  if (!status) return result;
  Py_DECREF(result);
  return raise_error(&error);
}

static PyObject *step_rows(PyObject *object, PyObject *args, PyObject *named) {
  static char *names[] = {"rows", "kept", NULL};
  PyObject *given, *result = NULL;
  long long kept = 1;
  if (!PyArg_ParseTupleAndKeywords(args, named, "O|L:step", names, &given, &kept)) return NULL;
  Step step = {.decoder = (DecoderObject *)object,
               .list = PySequence_Tuple(given),
               .info = {.name = "tokens", .dtype = TFM_I32, .rank = 1, .shape = "i32[tokens]"}};
  if (!step.list) return NULL;
  step.n = PyTuple_Size(step.list);
  step.rows = PyMem_Calloc((size_t)step.n + 1, sizeof *step.rows);
  step.tokens = PyMem_Calloc((size_t)step.n + 1, sizeof *step.tokens);
  step.arrays = PyMem_Calloc((size_t)step.n + 1, sizeof *step.arrays);
  if (!step.rows || !step.tokens || !step.arrays)
    PyErr_NoMemory();
  else if (step.n > MOST_ROWS)
    raise_status(TFM_E_USAGE, "too many rows");
  else if (read_rows(&step) && decoder_enter(step.decoder)) {
    result = run_step(&step, kept);
    decoder_leave(step.decoder);
  }
  for (Py_ssize_t i = 0; step.arrays && i < step.n; i++) array_release(&step.arrays[i]);
  free(step.copies.scratch);
  PyMem_Free(step.rows);
  PyMem_Free(step.tokens);
  PyMem_Free(step.arrays);
  Py_DECREF(step.list);
  return result;
}

// ---- the type ----

static PyObject *enter_with(PyObject *self, PyObject *unused) {
  (void)unused;
  Py_INCREF(self);
  return self;
}

static PyObject *leave_with(PyObject *self, PyObject *unused) { return close_decoder(self, unused); }

static PyMethodDef methods[] = {
    {"join", join, METH_VARARGS, "join(item=0): a new row, its number."},
    {"leave", leave_row, METH_VARARGS, "leave(row): the row is forgotten."},
    {"fork", fork_row, METH_VARARGS, "fork(row): a copy of the row, its number; all other rows stay."},
    {"truncate", truncate_row, METH_VARARGS,
     "truncate(row, length): the tokens from number `length` on are forgotten."},
    {"keeps", keeps, METH_VARARGS,
     "keeps(row, length): the greatest length up to `length` to which truncate can cut the row. With states (recurrences,\n"
     "running sums, shifts): 0, its length, and that before its last step."},
    {"length", length_of, METH_VARARGS, "length(row): its tokens."},
    {"reorder", reorder, METH_O, "reorder(parents): rows 0, 1 ... become copies of these rows; all others leave."},
    {"step", (PyCFunction)(void (*)(void))step_rows, METH_VARARGS | METH_KEYWORDS,
     "step([(row, tokens), ...], kept=1): appends tokens; the logits after the last `kept` of each, [n, kept, vocab]."},
    {"write", decoder_write, METH_O,
     "write([(row, chooser), (row, chooser, n, guesses, masks), ...]): appends what each chooser's text has more than\n"
     "the row (n: so many tokens of it), chooses what follows, and gives (tokens, error) of each; see Model.chooser."},
    {"add_source", decoder_add_source, METH_VARARGS,
     "add_source(*inputs): runs the encoder on a source of one item, whose number join takes."},
    {"drop_source", decoder_drop_source, METH_VARARGS, "drop_source(item): the source is forgotten."},
    {"pages", pages_of, METH_VARARGS, "pages(tokens): pages of caches that a row of so many takes, and those left."},
    {"close", close_decoder, METH_NOARGS, "Gives the caches back."},
    {"__enter__", enter_with, METH_NOARGS, NULL},
    {"__exit__", leave_with, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {{Py_tp_doc, "Rows of tokens with caches: made by Model.decoder."},
                              {Py_tp_dealloc, (void *)drop},
                              {Py_tp_methods, methods},
                              {0, NULL}};
PyType_Spec decoder_spec = {"tfmc.Decoder", sizeof(DecoderObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
