/* Options of generation from Python: names of the table, values of a dict.
 *
 * In: a dict that the package has looked through. Out: tfm_generate_options and the memory of their lists of tokens.
 * Refused: values of a wrong type, and limits of -1, which say in C that none is given. What else lies out of its range
 * is for libtfm. */
#include "core.h"

#include <stddef.h>
#include <string.h>

typedef enum Kind {
  KIND_count,
  KIND_limit,
  KIND_real,
  KIND_flag,
  KIND_token,
  KIND_tokens,
  KIND_biases,
  KIND_early,
  KIND_seed,
  KIND_start,
  KIND_words,
  KIND_fallback
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
  static const char *const kinds[] = {"count",  "limit", "real", "flag",  "token", "tokens",
                                      "biases", "early", "seed", "start", "words", "fallback"};
  (void)self, (void)unused;
  PyObject *names = PyDict_New();
  for (size_t i = 0; names && i < N_OPTIONS; i++) {
    PyObject *kind = PyUnicode_FromString(kinds[table[i].kind]);
    if (!kind || PyDict_SetItemString(names, table[i].name, kind)) Py_CLEAR(names);
    Py_XDECREF(kind);
  }
  return names;
}

/* What a config may say besides, for the package: {name: JSON of the values that change nothing, None: all}. */
PyObject *setting_names(PyObject *self, PyObject *unused) {
  static const struct {
    const char *name, *neutral;
  } others[] = {
#define TOKEN(key, kinds) {key, NULL},
#define HARMLESS(key, kinds) {key, NULL},
#define NEUTRAL(key, json) {key, json},
#include "tfm/abi/generation_keys.def"
  };
  (void)self, (void)unused;
  PyObject *names = PyDict_New();
  for (size_t i = 0; names && i < sizeof others / sizeof *others; i++) {
    PyObject *neutral = Py_BuildValue("z", others[i].neutral);
    if (!neutral || PyDict_SetItemString(names, others[i].name, neutral)) Py_CLEAR(names);
    Py_XDECREF(neutral);
  }
  return names;
}

// ---- values ----

/* A bool is an int in Python, and no id or number in a config. */
static PyObject *whole_number(PyObject *value) { return PyBool_Check(value) ? NULL : PyNumber_Index(value); }

static bool wrong(const Option *option, PyObject *value, const char *wanted) {
  PyErr_Clear();
  raise_status(TFM_E_USAGE, "%s is %R, not %s", option->name, value, wanted);
  return false;
}

/* One id, or a sequence of them. */
static bool read_tokens(const Option *option, PyObject *value, tfm_token_list *list, OptionLists *lists) {
  const bool is_word = PyUnicode_Check(value) || PyDict_Check(value);
  PyObject *all = is_word ? NULL : PyLong_Check(value) ? PyTuple_Pack(1, value) : PySequence_Tuple(value);
  if (!all) return wrong(option, value, "a token or a list of tokens");
  const Py_ssize_t n = PyTuple_Size(all);
  int64_t *tokens = lists->n < MOST_OPTION_LISTS ? PyMem_Calloc((size_t)n + 1, sizeof *tokens) : NULL;
  bool is_good = true;
  if (!tokens) {
    Py_DECREF(all);
    return PyErr_NoMemory(), false;
  }
  lists->tokens[lists->n++] = tokens;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *number = whole_number(PyTuple_GetItem(all, i));
    tokens[i] = number ? PyLong_AsLongLong(number) : 0;
    is_good &= number && !PyErr_Occurred();
    Py_XDECREF(number);
  }
  *list = (tfm_token_list){tokens, (uint64_t)n};
  Py_DECREF(all);
  return is_good || wrong(option, value, "a token or a list of tokens");
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

/* -1 of a limit says in C that none is given. */
static bool read_number(const Option *option, PyObject *value, char *to) {
  PyObject *number = whole_number(value);
  bool is_unset = false;
  if (!number) return wrong(option, value, "a whole number");
  if (option->kind == KIND_seed) {
    const uint64_t seed = PyLong_AsUnsignedLongLong(number);
    memcpy(to, &seed, sizeof seed);
  } else {
    const int64_t count = PyLong_AsLongLong(number);
    memcpy(to, &count, sizeof count);
    is_unset = option->kind == KIND_limit && count == -1;
  }
  Py_DECREF(number);
  if (!is_unset && !PyErr_Occurred()) return true;
  PyErr_Clear();
  return raise_status(TFM_E_INPUT, "%s is %R, which is out of range", option->name, value), false;
}

/* True, False, 1 or 0, of numpy too. */
static bool read_flag(const Option *option, PyObject *value, char *to) {
  const bool is_one = !PySequence_Check(value); /* a bool is an int; item() is numpy's */
  PyObject *plain = PyLong_Check(value) ? Py_NewRef(value) : is_one ? PyObject_CallMethod(value, "item", NULL) : NULL;
  const long number = plain && PyLong_Check(plain) ? PyLong_AsLong(plain) : -1;
  const int32_t flag = number == 1;
  Py_XDECREF(plain);
  if (number != 0 && number != 1) return wrong(option, value, "True or False");
  memcpy(to, &flag, sizeof flag);
  return true;
}

static bool read_real(const Option *option, PyObject *value, char *to) {
  const double real = PyBool_Check(value) ? -1 : PyFloat_AsDouble(value);
  if (PyBool_Check(value) || PyErr_Occurred()) return wrong(option, value, "a number");
  memcpy(to, &real, sizeof real);
  return true;
}

static bool read_option(const Option *option, PyObject *value, tfm_generate_options *options, OptionLists *lists) {
  char *to = (char *)options + option->at;
  if (option->kind == KIND_tokens) return read_tokens(option, value, (tfm_token_list *)(void *)to, lists);
  if (option->kind == KIND_biases) return read_biases(value, (tfm_bias_list *)(void *)to, lists);
  if (option->kind == KIND_early) return read_early(value, (tfm_early_stopping *)(void *)to);
  if (option->kind == KIND_real) return read_real(option, value, to);
  if (option->kind == KIND_flag) return read_flag(option, value, to);
  if (option->kind == KIND_count || option->kind == KIND_limit || option->kind == KIND_token ||
      option->kind == KIND_seed)
    return read_number(option, value, to);
  return true; /* the package has seen to the others */
}

/* A limit replaces all that the block has. */
static void unset_limits(PyObject *given, tfm_generate_options *options) {
  bool is_given = false;
  for (size_t i = 0; i < N_OPTIONS; i++)
    is_given |= table[i].kind == KIND_limit && PyDict_GetItemString(given, table[i].name);
  for (size_t i = 0; i < N_OPTIONS && is_given; i++)
    if (table[i].kind == KIND_limit) memcpy((char *)options + table[i].at, &(int64_t){-1}, sizeof(int64_t));
}

bool dict_options_read(PyObject *given, tfm_generate_options *options, OptionLists *lists) {
  unset_limits(given, options);
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
