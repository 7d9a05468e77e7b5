/* Decoder.write: a step of many rows with their guesses and choices, in one call without the GIL.
 *
 * In: rows of the decoder with their choosers, how many tokens of the text are appended, guesses, masks of the tokens
 * that may be chosen. Out: of each row the tokens that were chosen, which the chooser's text then has too, and its own
 * error or None. Refused, before anything is computed: a chooser that is there twice or that another call has, guesses
 * or masks before the end of the text, ids that the model does not have, masks of another size; what tfm_decoder_write
 * refuses. */
#include "core.h"

#include <string.h>

typedef struct Write {
  DecoderObject *decoder;
  PyObject *list; /* a tuple of (row, chooser[, n[, guesses[, masks]]]) */
  Py_ssize_t n, entered; /* entered: choosers that are marked busy */
  tfm_write_row *rows;
  ChooserObject **choosers;
} Write;

// ---- what is given ----

/* Guesses stand behind the text until it is known which of them are right. */
static bool read_guesses(ChooserObject *chooser, PyObject *given, tfm_write_row *row) {
  PyObject *guesses = PySequence_Tuple(given);
  if (!guesses) return false;
  Py_ssize_t n = PyTuple_Size(guesses);
  const int64_t most = chooser->limit - chooser->length - 1; /* behind these the row has ended */
  if (n > MOST_GUESSES)
    return Py_DECREF(guesses), raise_status(TFM_E_INPUT, "%zd guesses; there may be %d", n, (int)MOST_GUESSES), false;
  if (n > most) n = most > 0 ? (Py_ssize_t)most : 0;
  bool good = chooser_reserve(chooser, chooser->length + n);
  for (Py_ssize_t i = 0; good && i < n; i++) {
    const long long token = PyLong_AsLongLong(PyTuple_GetItem(guesses, i));
    good = !PyErr_Occurred();
    if (good && (token < 0 || token >= chooser->vocab))
      good = (raise_status(TFM_E_INPUT, "the guess %lld is no id; the model has %lld tokens", token,
                           (long long)chooser->vocab), false);
    if (good) chooser->tokens[chooser->length + i] = (int32_t)token;
  }
  row->n_guesses = n;
  Py_DECREF(guesses);
  return good;
}

/* One mask for each choice, as tfm_choice_row.allowed has them. The list of rows keeps the bytes alive, and they lie
 * nowhere but behind a header of words, so they are aligned. */
static bool read_masks(const ChooserObject *chooser, PyObject *masks, bool is_whole, tfm_write_row *row) {
  if (!masks || masks == Py_None) return true;
  if (!PyBytes_Check(masks)) return PyErr_SetString(PyExc_TypeError, "masks are bytes"), false;
  if (!is_whole)
    return raise_status(TFM_E_USAGE, "row %lld: masks are for a row whose text is read to its end",
                        (long long)row->part.row), false;
  const int64_t wanted = (1 + row->n_guesses) * ((chooser->vocab + 31) / 32) * (int64_t)sizeof(uint32_t);
  if (PyBytes_Size(masks) != wanted)
    return raise_status(TFM_E_INPUT, "row %lld: masks of %zd bytes; %lld choices of %lld tokens have %lld",
                        (long long)row->part.row, PyBytes_Size(masks), (long long)row->n_guesses + 1,
                        (long long)chooser->vocab, (long long)wanted), false;
  row->choice.allowed = (const uint32_t *)(const void *)PyBytes_AsString(masks);
  return true;
}

/* `n` tokens of the text behind those that the row has; all of them lead to a choice. */
static bool read_tokens(const Write *write, ChooserObject *chooser, long long n, PyObject *guesses,
                        PyObject *masks, tfm_write_row *row) {
  const int64_t before = tfm_decoder_length(write->decoder->decoder, row->part.row), left = chooser->length - before;
  if (before < 0) return raise_status(TFM_E_INPUT, "there is no row %lld", (long long)row->part.row), false;
  if (n < 0) n = left;
  if (left < 1 || n < 1 || n > left)
    return raise_status(TFM_E_INPUT, "row %lld has %lld tokens and gets %lld: its text has %lld",
                        (long long)row->part.row, (long long)before, n, (long long)chooser->length), false;
  const bool is_whole = n == left;
  row->n_guesses = is_whole ? 0 : -1;
  if (guesses && guesses != Py_None) {
    if (!is_whole)
      return raise_status(TFM_E_USAGE, "row %lld: guesses are for a row whose text is read to its end",
                          (long long)row->part.row), false;
    if (!read_guesses(chooser, guesses, row)) return false;
  }
  row->part.tokens = chooser->tokens + before;
  row->part.n_tokens = n + (is_whole ? row->n_guesses : 0);
  row->chosen = chooser->chosen;
  row->choice = (tfm_choice_row){.options = &chooser->options, .tokens = chooser->tokens,
                                 .length = chooser->length + (is_whole ? row->n_guesses : 0), .start = chooser->start,
                                 .limit = chooser->limit, .stream = &chooser->stream, .n_top = chooser->n_top,
                                 .top = chooser->top};
  return read_masks(chooser, masks, is_whole, row);
}

static bool read_row(Write *write, Py_ssize_t i) {
  PyObject *given = PyTuple_GetItem(write->list, i), *chooser, *guesses = NULL, *masks = NULL;
  long long number, n = -1;
  if (!PyTuple_Check(given)) return raise_status(TFM_E_USAGE, "rows are tuples: (row, chooser, n, guesses, masks)"), false;
  if (!PyArg_ParseTuple(given, "LO!|LOO:write", &number, shared.chooser_type, &chooser, &n, &guesses, &masks))
    return false;
  ChooserObject *own = (ChooserObject *)chooser;
  if (own->busy) return raise_status(TFM_E_USAGE, "row %lld: its chooser is in use", number), false;
  own->busy = true;
  write->choosers[i] = own;
  write->entered = i + 1;
  write->rows[i].part.row = number;
  return read_tokens(write, own, n, guesses, masks, &write->rows[i]);
}

/* Scratch for each thread, made by the first call. */
static bool make_choosers(DecoderObject *self) {
  const int32_t threads = tfm_decoder_threads(self->decoder);
  const int64_t vocab = tfm_model_decoding(self->model->model)->vocab;
  tfm_error error;
  if (self->n_choosers == threads) return true;
  if (!self->choosers) self->choosers = calloc((size_t)threads, sizeof *self->choosers);
  if (!self->choosers) return PyErr_NoMemory(), false;
  for (; self->n_choosers < threads; self->n_choosers++)
    if (tfm_chooser_create(vocab, &self->choosers[self->n_choosers], &error)) return raise_error(&error), false;
  return true;
}

// ---- what is given back ----

/* (id, logprob, ((id, logprob), ...)) */
static PyObject *with_probabilities(const ChooserObject *chooser, int64_t i) {
  Py_ssize_t n = 0;
  const tfm_best_token *top = chooser->top + i * chooser->n_top;
  while (n < chooser->n_top && top[n].token != TFM_NO_TOKEN) n++;
  PyObject *likeliest = PyTuple_New(n);
  for (Py_ssize_t k = 0; likeliest && k < n; k++)
    if (PyTuple_SetItem(likeliest, k, Py_BuildValue("id", (int)top[k].token, (double)top[k].logit)))
      Py_CLEAR(likeliest);
  return likeliest ? Py_BuildValue("idN", (int)chooser->chosen[i].token, (double)chooser->chosen[i].logprob, likeliest)
                   : NULL;
}

static PyObject *error_of(const tfm_write_row *row) {
  if (row->status == TFM_OK) Py_RETURN_NONE;
  return PyObject_CallFunction(shared.make_error, "iisz", (int)row->status, (int)TFM_REASON_VALUE, row->message, NULL);
}

/* The chosen tokens stand where the guesses did. */
static PyObject *result_of(ChooserObject *chooser, const tfm_write_row *row) {
  const int64_t n = row->n_guesses < 0 ? 0 : row->n_chosen;
  PyObject *chosen = PyTuple_New((Py_ssize_t)n);
  for (int64_t i = 0; chosen && i < n; i++) {
    PyObject *one = chooser->n_top < 0 ? PyLong_FromLong(chooser->chosen[i].token) : with_probabilities(chooser, i);
    if (!one || PyTuple_SetItem(chosen, (Py_ssize_t)i, one)) Py_CLEAR(chosen);
  }
  PyObject *error = chosen ? error_of(row) : NULL;
  return error ? Py_BuildValue("NN", chosen, error) : (Py_XDECREF(chosen), NULL);
}

/* All texts grow before anything is made that could fail. */
static PyObject *results_of(const Write *write) {
  for (Py_ssize_t i = 0; i < write->n; i++) {
    ChooserObject *chooser = write->choosers[i];
    const int64_t n = write->rows[i].n_guesses < 0 ? 0 : write->rows[i].n_chosen;
    for (int64_t k = 0; k < n; k++) chooser->tokens[chooser->length++] = chooser->chosen[k].token;
  }
  PyObject *results = PyList_New(write->n);
  for (Py_ssize_t i = 0; results && i < write->n; i++) {
    PyObject *one = result_of(write->choosers[i], &write->rows[i]);
    if (!one || PyList_SetItem(results, i, one)) Py_CLEAR(results);
  }
  return results;
}

// ---- the call ----

static PyObject *run(Write *write) {
  DecoderObject *self = write->decoder;
  for (Py_ssize_t i = 0; i < write->n; i++)
    if (!read_row(write, i)) return NULL;
  for (Py_ssize_t i = 0; i < write->n; i++) /* one more token has room whatever happens */
    if (!chooser_reserve(write->choosers[i], write->choosers[i]->length + MOST_GUESSES + 1)) return NULL;
  for (Py_ssize_t i = 0; i < write->n; i++) { /* making room may have moved the texts */
    tfm_write_row *row = &write->rows[i];
    row->choice.tokens = write->choosers[i]->tokens;
    row->part.tokens = row->choice.tokens + tfm_decoder_length(self->decoder, row->part.row);
  }
  if (!make_choosers(self)) return NULL;
  tfm_error error;
  tfm_status status;
  Py_BEGIN_ALLOW_THREADS status = tfm_decoder_write(self->decoder, self->choosers, write->n, write->rows, &error);
  Py_END_ALLOW_THREADS return status ? raise_error(&error) : results_of(write);
}

PyObject *decoder_write(PyObject *object, PyObject *given) {
  Write write = {.decoder = (DecoderObject *)object, .list = PySequence_Tuple(given)};
  PyObject *result = NULL;
  if (!write.list) return NULL;
  write.n = PyTuple_Size(write.list);
  write.rows = PyMem_Calloc((size_t)write.n + 1, sizeof *write.rows);
  write.choosers = PyMem_Calloc((size_t)write.n + 1, sizeof(ChooserObject *));
  if (!write.rows || !write.choosers) {
    PyErr_NoMemory();
  } else if (decoder_enter(write.decoder)) {
    result = run(&write);
    decoder_leave(write.decoder);
  }
  for (Py_ssize_t i = 0; i < write.entered; i++) write.choosers[i]->busy = false;
  PyMem_Free(write.rows);
  PyMem_Free(write.choosers);
  Py_DECREF(write.list);
  return result;
}
