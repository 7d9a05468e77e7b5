#include "weights/npy_header.h"

#include <string.h>

#include "base/checked_size.h"

typedef struct Reader {
  NpyFile *npy;
  Diag *diag;
  const char *text;
  size_t at, size;
  bool is_fortran;
} Reader;

enum { KEY_DESCR, KEY_FORTRAN, KEY_SHAPE, N_KEYS };

static const char *const keys[N_KEYS] = {"descr", "fortran_order", "shape"};

static bool fail(const Reader *reader, const char *what) {
  diag_error_at(reader->diag, reader->npy->file.path, DIAG_NPY, "header byte %zu: %s", reader->at, what);
  return false;
}

// ---- the pieces of the dictionary ----

static int peek(Reader *reader) {
  while (reader->at < reader->size && strchr(" \t\n\r", reader->text[reader->at]) && reader->text[reader->at]) reader->at++;
  return reader->at < reader->size ? (unsigned char)reader->text[reader->at] : -1;
}

static bool accept(Reader *reader, char c) {
  if (peek(reader) != c) return false;
  reader->at++;
  return true;
}

/* A string in single or double quotes, without escapes; at most 31 bytes. */
static bool read_string(Reader *reader, char text[32]) {
  int quote = peek(reader);
  if (quote != '\'' && quote != '"') return fail(reader, "expected a string");
  size_t begin = reader->at + 1, end = begin;
  while (end < reader->size && reader->text[end] != quote && reader->text[end] != '\\') end++;
  if (end == reader->size || reader->text[end] != quote) return fail(reader, "a string without an end, or with an escape");
  if (end - begin > 31 || memchr(reader->text + begin, '\0', end - begin)) return fail(reader, "a string that is no type or key");
  memcpy(text, reader->text + begin, end - begin);
  text[end - begin] = '\0';
  reader->at = end + 1;
  return true;
}

static bool read_word(Reader *reader, const char *word) {
  size_t length = strlen(word);
  peek(reader);
  if (reader->size - reader->at < length || memcmp(reader->text + reader->at, word, length) != 0) return false;
  reader->at += length;
  return true;
}

static bool read_dim(Reader *reader, int64_t *dim) {
  int c = peek(reader);
  if (c < '0' || c > '9') return fail(reader, "expected a dimension, a whole number from 0 on");
  size_t begin = reader->at;
  for (*dim = 0; reader->at < reader->size; reader->at++) {
    c = (unsigned char)reader->text[reader->at];
    if (c < '0' || c > '9') break;
    if (!checked_mul(*dim, 10, dim) || !checked_add(*dim, c - '0', dim)) return fail(reader, "a dimension over 2^63 - 1");
  }
  if (reader->text[begin] == '0' && reader->at > begin + 1) return fail(reader, "a dimension with a leading zero");
  return true;
}

/* "()", "(3,)", "(2, 3)", "(2, 3,)" */
static bool read_shape(Reader *reader) {
  if (!accept(reader, '(')) return fail(reader, "expected the shape, a tuple");
  NpyFile *npy = reader->npy;
  bool comma = true;
  while (!accept(reader, ')')) {
    if (!comma) return fail(reader, "expected ',' or ')'");
    if (npy->rank == NPY_MAX_RANK) return fail(reader, "more than 32 dimensions");
    if (!read_dim(reader, &npy->dims[npy->rank])) return false;
    npy->rank++;
    comma = accept(reader, ',');
  }
  if (npy->rank == 1 && !comma) return fail(reader, "the shape is a number; a tuple of one ends with a comma");
  return true;
}

static bool read_type(Reader *reader) {
  static const struct {
    const char *descr;
    FileDType dtype;
  } types[] = {{"<f4", FILE_F32}, {"<i4", FILE_I32}, {"<i8", FILE_I64}, {"|b1", FILE_BOOL}, {"|u1", FILE_U8}};
  char text[32];
  if (peek(reader) == '[') return fail(reader, "elements with fields (a structured type) are not supported");
  if (!read_string(reader, text)) return false;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (strcmp(text, types[i].descr) != 0) continue;
    reader->npy->dtype = types[i].dtype;
    return true;
  }
  const char *what = strncmp(text, "|O", 2) == 0 ? "Python objects are not supported"
                     : *text == '>'              ? "big-endian elements are not supported"
                                                 : "this type is not supported";
  diag_error_at(reader->diag, reader->npy->file.path, DIAG_NPY, "type '%s': %s; there are <f4, <i4, <i8, |b1 and |u1",
                text, what);
  return false;
}

static bool read_value(Reader *reader, int key) {
  if (key == KEY_DESCR) return read_type(reader);
  if (key == KEY_SHAPE) return read_shape(reader);
  reader->is_fortran = read_word(reader, "True");
  return reader->is_fortran || read_word(reader, "False") || fail(reader, "fortran_order must be True or False");
}

// ---- the dictionary ----

static bool read_entry(Reader *reader, bool seen[N_KEYS]) {
  char text[32];
  if (!read_string(reader, text)) return false;
  int key = 0;
  while (key < N_KEYS && strcmp(text, keys[key]) != 0) key++;
  if (key == N_KEYS) return fail(reader, "unknown key; there are descr, fortran_order and shape");
  if (seen[key]) return fail(reader, "a key that stands twice");
  seen[key] = true;
  return accept(reader, ':') ? read_value(reader, key) : fail(reader, "expected ':'");
}

bool npy_read_dictionary(NpyFile *npy, Diag *diag, const char *text, size_t size) {
  Reader reader = {.npy = npy, .diag = diag, .text = text, .size = size};
  bool seen[N_KEYS] = {false}, comma = true;
  if (!accept(&reader, '{')) return fail(&reader, "expected '{'");
  while (!accept(&reader, '}')) {
    if (!comma) return fail(&reader, "expected ',' or '}'");
    if (!read_entry(&reader, seen)) return false;
    comma = accept(&reader, ',');
  }
  if (peek(&reader) >= 0) return fail(&reader, "bytes after the dictionary");
  for (int key = 0; key < N_KEYS; key++) {
    if (seen[key]) continue;
    diag_error_at(diag, npy->file.path, DIAG_NPY, "the header has no '%s'", keys[key]);
    return false;
  }
  if (!reader.is_fortran || npy->rank < 2) return true;
  diag_error_at(diag, npy->file.path, DIAG_NPY,
                "the elements are in column-major (Fortran) order; write them with numpy.ascontiguousarray");
  return false;
}
