/* Options of generation from Python: names of the table, values of a dict.
 *
 * In: a dict that the package has looked through. Out: tfm_generate_options and the memory of their lists of tokens.
 * Refused: values of a wrong type; what lies out of its range is for libtfm. */
#include "core.h"

#include <stddef.h>
#include <string.h>

typedef enum Kind {
  KIND_count,
  KIND_real,
  KIND_flag,
  KIND_token,
  KIND_tokens,
  KIND_biases,
  KIND_early,
  KIND_seed,
  KIND_start,
  KIND_words,
  KIND_fallback,
  KIND_ignored
} Kind;

typedef struct Option {
  const char *name;
  size_t at;
  Kind kind;
} Option;

static const Option table[] = {
#define GENERATE_OPTION(name, member, kind, ...) {#name, offsetof(tfm_generate_options, member), KIND_##kind},
#define GENERATE_ALIAS(name, member, kind, accepted) {#name, offsetof(tfm_generate_options, member), KIND_##kind},
#include "tfm/abi/generate_options.def"
};
enum { N_OPTIONS = sizeof table / sizeof *table };

/* The names, for the package: {name: kind}. */
PyObject *option_names(PyObject *self, PyObject *unused) {
  static const char *const kinds[] = {"count", "real",  "flag",  "token",    "tokens", "biases", "early",
                                      "seed",  "start", "words", "fallback", "ignored"};
  (void)self, (void)unused;
  PyObject *names = PyDict_New();
  for (size_t i = 0; names && i < N_OPTIONS; i++) {
    PyObject *kind = PyUnicode_FromString(kinds[table[i].kind]);
    if (!kind || PyDict_SetItemString(names, table[i].name, kind)) Py_CLEAR(names);
    Py_XDECREF(kind);
  }
  return names;
}

/* One id, or a sequence of them. */
static bool read_tokens(PyObject *value, tfm_token_list *list, OptionLists *lists) {
  PyObject *all = PyLong_Check(value) ? PyTuple_Pack(1, value) : PySequence_Tuple(value);
  const Py_ssize_t n = all ? PyTuple_Size(all) : 0;
  int64_t *tokens = all && lists->n < MOST_OPTION_LISTS ? PyMem_Calloc((size_t)n + 1, sizeof *tokens) : NULL;
  if (!tokens) {
    Py_XDECREF(all);
    return PyErr_Occurred() ? false : (PyErr_NoMemory(), false);
  }
  lists->tokens[lists->n++] = tokens;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *number = PyNumber_Index(PyTuple_GetItem(all, i));
    tokens[i] = number ? PyLong_AsLongLong(number) : 0;
    Py_XDECREF(number);
  }
  *list = (tfm_token_list){tokens, (uint64_t)n};
  Py_DECREF(all);
  return !PyErr_Occurred();
}

/* A dict of ids and numbers. */
static bool read_biases(PyObject *value, tfm_bias_list *list, OptionLists *lists) {
  if (!PyDict_Check(value)) return raise_status(TFM_E_USAGE, "logit_bias is %R, not a dict of tokens", value), false;
  const size_t n = (size_t)PyDict_Size(value), words = sizeof(tfm_token_bias) / sizeof(int64_t);
  int64_t *room = lists->n < MOST_OPTION_LISTS ? PyMem_Calloc(words * n + 1, sizeof *room) : NULL;
  if (!room) return PyErr_NoMemory(), false;
  lists->tokens[lists->n++] = room;
  tfm_token_bias *biases = (tfm_token_bias *)(void *)room;
  PyObject *token, *bias;
  Py_ssize_t place = 0;
  for (size_t i = 0; i < n && PyDict_Next(value, &place, &token, &bias); i++) {
    PyObject *number = PyNumber_Index(token);
    biases[i].token = number ? PyLong_AsLongLong(number) : 0;
    Py_XDECREF(number);
    biases[i].bias = PyErr_Occurred() ? 0 : PyFloat_AsDouble(bias);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      return raise_status(TFM_E_INPUT, "logit_bias: %R: %R is not a token with a number", token, bias), false;
    }
  }
  *list = (tfm_bias_list){biases, n};
  return true;
}

static bool read_early(PyObject *value, tfm_early_stopping *early) {
  if (PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, "never") == 0)
    *early = TFM_EARLY_NEVER;
  else if (PyBool_Check(value))
    *early = value == Py_True ? TFM_EARLY_TRUE : TFM_EARLY_FALSE;
  else
    return raise_status(TFM_E_USAGE, "early_stopping is %R, not True, False or \"never\"", value), false;
  return true;
}

static bool read_number(const Option *option, PyObject *value, char *to) {
  PyObject *number = PyNumber_Index(value);
  if (!number) {
    PyErr_Clear();
    return raise_status(TFM_E_USAGE, "%s is %R, not a whole number", option->name, value), false;
  }
  if (option->kind == KIND_seed) {
    const uint64_t seed = PyLong_AsUnsignedLongLong(number);
    memcpy(to, &seed, sizeof seed);
  } else {
    const int64_t count = PyLong_AsLongLong(number);
    memcpy(to, &count, sizeof count);
  }
  Py_DECREF(number);
  if (!PyErr_Occurred()) return true;
  PyErr_Clear();
  return raise_status(TFM_E_INPUT, "%s is %R, which is out of range", option->name, value), false;
}

static bool read_option(const Option *option, PyObject *value, tfm_generate_options *options, OptionLists *lists) {
  char *to = (char *)options + option->at;
  if (option->kind == KIND_tokens) return read_tokens(value, (tfm_token_list *)(void *)to, lists);
  if (option->kind == KIND_biases) return read_biases(value, (tfm_bias_list *)(void *)to, lists);
  if (option->kind == KIND_early) return read_early(value, (tfm_early_stopping *)(void *)to);
  if (option->kind == KIND_real) {
    const double real = PyFloat_AsDouble(value);
    memcpy(to, &real, sizeof real);
    return !PyErr_Occurred();
  }
  if (option->kind == KIND_flag) {
    const int32_t flag = PyObject_IsTrue(value);
    memcpy(to, &flag, sizeof flag);
    return flag >= 0;
  }
  if (option->kind == KIND_count || option->kind == KIND_token || option->kind == KIND_seed)
    return read_number(option, value, to);
  return true; /* the package has seen to the others */
}

/* A limit of the length replaces the other one of the block. */
bool dict_options_read(PyObject *given, tfm_generate_options *options, OptionLists *lists) {
  if (PyDict_GetItemString(given, "max_length") || PyDict_GetItemString(given, "max_new_tokens"))
    options->max_length = options->max_new_tokens = -1;
  for (size_t i = 0; i < N_OPTIONS; i++) {
    PyObject *value = PyDict_GetItemString(given, table[i].name);
    if (value && value != Py_None && !read_option(&table[i], value, options, lists)) return false;
  }
  return true;
}

/* The defaults of a model lie in its memory, which may go before what was made of them does. */
bool dict_options_keep(tfm_generate_options *options, OptionLists *lists) {
  for (size_t i = 0; i < N_OPTIONS; i++) {
    if (table[i].kind != KIND_tokens) continue;
    tfm_token_list *list = (tfm_token_list *)(void *)((char *)options + table[i].at);
    bool is_own = list->n == 0;
    for (int k = 0; k < lists->n; k++) is_own |= list->tokens == lists->tokens[k];
    if (is_own) continue;
    int64_t *tokens = lists->n < MOST_OPTION_LISTS ? PyMem_Calloc((size_t)list->n, sizeof *tokens) : NULL;
    if (!tokens) return PyErr_NoMemory(), false;
    memcpy(tokens, list->tokens, (size_t)list->n * sizeof *tokens);
    lists->tokens[lists->n++] = tokens;
    list->tokens = tokens;
  }
  return true;
}

void dict_options_free(OptionLists *lists) {
  for (int i = 0; i < lists->n; i++) PyMem_Free(lists->tokens[i]);
  lists->n = 0;
}
