/* In: .npy files and tensors. Out: tensors and .npy files. See npy.h. Every number of the header is checked against
 * the size of the file before anything is read or allocated by it. */
#include "weights/npy.h"

#include <string.h>

#include "base/checked_size.h"
#include "weights/files.h"
#include "weights/safetensors.h"

// ---- the dictionary of the header ----

/* A reader for the one form of Python literal that NumPy writes; a general one would accept more than can be meant. */
typedef struct HeaderReader {
  NpyFile *npy;
  Diag *diag;
  const char *text;
  size_t at, size;
  bool is_fortran;
} HeaderReader;

enum { KEY_DESCR, KEY_FORTRAN, KEY_SHAPE, N_KEYS };

static const char *const keys[N_KEYS] = {"descr", "fortran_order", "shape"};

static bool header_fail(const HeaderReader *reader, const char *what) {
  diag_error_at(reader->diag, reader->npy->file.path, DIAG_NPY, "header byte %zu: %s", reader->at, what);
  return false;
}

/* Returns the next byte that is not blank, or -1 at the end. strchr would find the NUL of its own text, hence the last
 * test. */
static int peek(HeaderReader *reader) {
  while (reader->at < reader->size && strchr(" \t\n\r", reader->text[reader->at]) && reader->text[reader->at])
    reader->at++;
  return reader->at < reader->size ? (unsigned char)reader->text[reader->at] : -1;
}

static bool accept(HeaderReader *reader, char c) {
  if (peek(reader) != c) return false;
  reader->at++;
  return true;
}

/* Reads a string of at most 31 bytes in single or double quotes, without escapes. No key and no type that is accepted
 * is longer, so a longer one need not be stored. */
static bool read_quoted(HeaderReader *reader, char text[32]) {
  int quote = peek(reader);
  if (quote != '\'' && quote != '"') return header_fail(reader, "expected a string");
  size_t begin = reader->at + 1, end = begin;
  while (end < reader->size && reader->text[end] != quote && reader->text[end] != '\\') end++;
  if (end == reader->size || reader->text[end] != quote)
    return header_fail(reader, "a string without an end, or with an escape");
  if (end - begin > 31 || memchr(reader->text + begin, '\0', end - begin))
    return header_fail(reader, "a string that is no type or key");
  memcpy(text, reader->text + begin, end - begin);
  text[end - begin] = '\0';
  reader->at = end + 1;
  return true;
}

static bool read_word(HeaderReader *reader, const char *word) {
  size_t length = strlen(word);
  peek(reader);
  if (reader->size - reader->at < length || memcmp(reader->text + reader->at, word, length) != 0) return false;
  reader->at += length;
  return true;
}

/* Overflow is checked at every digit. A leading zero is refused, as Python refuses it. */
static bool read_dim(HeaderReader *reader, int64_t *dim) {
  int c = peek(reader);
  if (c < '0' || c > '9') return header_fail(reader, "expected a dimension, a whole number from 0 on");
  size_t begin = reader->at;
  for (*dim = 0; reader->at < reader->size; reader->at++) {
    c = (unsigned char)reader->text[reader->at];
    if (c < '0' || c > '9') break;
    if (!checked_mul(*dim, 10, dim) || !checked_add(*dim, c - '0', dim))
      return header_fail(reader, "a dimension over 2^63 - 1");
  }
  if (reader->text[begin] == '0' && reader->at > begin + 1)
    return header_fail(reader, "a dimension with a leading zero");
  return true;
}

/* "()", "(3,)", "(2, 3)", "(2, 3,)" */
static bool read_shape(HeaderReader *reader) {
  if (!accept(reader, '(')) return header_fail(reader, "expected the shape, a tuple");
  NpyFile *npy = reader->npy;
  bool comma = true;
  while (!accept(reader, ')')) {
    if (!comma) return header_fail(reader, "expected ',' or ')'");
    if (npy->rank == NPY_MAX_RANK) return header_fail(reader, "more than 32 dimensions");
    if (!read_dim(reader, &npy->dims[npy->rank])) return false;
    npy->rank++;
    comma = accept(reader, ',');
  }
  if (npy->rank == 1 && !comma) return header_fail(reader, "the shape is a number; a tuple of one ends with a comma");
  return true;
}

/* Byte order is part of the type; only what needs no swapping is read. */
static bool read_type(HeaderReader *reader) {
  static const struct {
    const char *descr;
    FileDType dtype;
  } types[] = {{"<f4", FILE_F32}, {"<i4", FILE_I32}, {"<i8", FILE_I64}, {"|b1", FILE_BOOL}, {"|u1", FILE_U8}};
  char text[32];
  if (peek(reader) == '[') return header_fail(reader, "elements with fields (a structured type) are not supported");
  if (!read_quoted(reader, text)) return false;
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

static bool read_value(HeaderReader *reader, int key) {
  if (key == KEY_DESCR) return read_type(reader);
  if (key == KEY_SHAPE) return read_shape(reader);
  reader->is_fortran = read_word(reader, "True");
  return reader->is_fortran || read_word(reader, "False") || header_fail(reader, "fortran_order must be True or False");
}

/* Python would take the last of two equal keys; here neither is. */
static bool read_entry(HeaderReader *reader, bool seen[N_KEYS]) {
  char text[32];
  if (!read_quoted(reader, text)) return false;
  int key = 0;
  while (key < N_KEYS && strcmp(text, keys[key]) != 0) key++;
  if (key == N_KEYS) return header_fail(reader, "unknown key; there are descr, fortran_order and shape");
  if (seen[key]) return header_fail(reader, "a key that stands twice");
  seen[key] = true;
  return accept(reader, ':') ? read_value(reader, key) : header_fail(reader, "expected ':'");
}

/* Sets dtype, rank and dims. False after an error. */
static bool read_dictionary(NpyFile *npy, Diag *diag, const char *text, size_t size) {
  HeaderReader reader = {.npy = npy, .diag = diag, .text = text, .size = size};
  bool seen[N_KEYS] = {false}, comma = true;
  if (!accept(&reader, '{')) return header_fail(&reader, "expected '{'");
  while (!accept(&reader, '}')) {
    if (!comma) return header_fail(&reader, "expected ',' or '}'");
    if (!read_entry(&reader, seen)) return false;
    comma = accept(&reader, ',');
  }
  if (peek(&reader) >= 0) return header_fail(&reader, "bytes after the dictionary");
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

// ---- opening ----

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static bool fail(const NpyFile *npy, Diag *diag, const char *text) {
  diag_error_at(diag, npy->file.path, DIAG_NPY, "%s", text);
  return false;
}

/* Finds where the dictionary begins and how long it is. The length has 2 bytes in version 1 and 4 after it. */
static bool read_preamble(NpyFile *npy, Diag *diag, int64_t *begin, int64_t *length) {
  unsigned char bytes[12] = {0};
  int64_t size = npy->file.size;
  if (!in_file_read(&npy->file, diag, 0, bytes, size < 12 ? (size_t)size : 12)) return false;
  if (size >= 2 && bytes[0] == 'P' && bytes[1] == 'K')
    return fail(npy, diag, ".npz archives are not supported; give one .npy per tensor");
  if (size < 10 || memcmp(bytes, magic, sizeof magic) != 0)
    return fail(npy, diag, "this is no .npy file: it does not begin with \\x93NUMPY");
  if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
    diag_error_at(diag, npy->file.path, DIAG_NPY, "version %u.%u of the format; 1.0, 2.0 and 3.0 are supported",
                  (unsigned)bytes[6], (unsigned)bytes[7]);
    return false;
  }
  *length = bytes[8] | bytes[9] << 8;
  if (bytes[6] > 1) *length |= (int64_t)bytes[10] << 16 | (int64_t)bytes[11] << 24;
  *begin = bytes[6] > 1 ? 12 : 10;
  if (*length > NPY_MAX_HEADER || *length > size - *begin) {
    diag_error_at(diag, npy->file.path, DIAG_NPY,
                  "the header length is %lld; at most 10,000 and what the file has are allowed", (long long)*length);
    return false;
  }
  return true;
}

/* The shape must account for exactly the bytes that follow: fewer would be read past the end, more would mean that the
 * shape is wrong. A shape with a 0 has no elements even if the product of the others overflows. */
static bool check_size(NpyFile *npy, Diag *diag) {
  int64_t bytes = file_blocks[npy->dtype].bytes, rest = npy->file.size - npy->data_begin;
  npy->elements = 1;
  bool fits = true, empty = false;
  for (uint32_t i = 0; i < npy->rank; i++) {
    empty = empty || npy->dims[i] == 0;
    fits = fits && checked_mul(npy->elements, npy->dims[i], &npy->elements);
  }
  if (empty) npy->elements = 0;
  fits = fits || empty;
  if (fits && checked_mul(npy->elements, bytes, &bytes) && bytes == rest) return true;
  StrBuf shape = strbuf_new(diag->arena);
  print_dims(&shape, npy->dims, npy->rank);
  if (!fits) {
    diag_error_at(diag, npy->file.path, DIAG_NPY, "the product of the shape %s overflows", shape.text);
    return false;
  }
  diag_error_at(diag, npy->file.path, DIAG_NPY, "shape %s of %s does not take the %lld bytes that follow the header",
                shape.text, file_dtype_names[npy->dtype], (long long)rest);
  return false;
}

/* The header is bounded by 10,000 bytes before it is read, so it fits on the stack. */
static bool read_header(NpyFile *npy, Diag *diag) {
  char text[NPY_MAX_HEADER];
  int64_t begin, length;
  if (!read_preamble(npy, diag, &begin, &length)) return false;
  if (!in_file_read(&npy->file, diag, begin, text, (size_t)length)) return false;
  npy->data_begin = begin + length;
  return read_dictionary(npy, diag, text, (size_t)length) && check_size(npy, diag);
}

bool npy_open(NpyFile *npy, Diag *diag, const char *path) {
  *npy = (NpyFile){.file.fd = -1};
  if (!in_file_open(&npy->file, diag, path)) return false;
  if (read_header(npy, diag)) return true;
  npy_close(npy);
  return false;
}

void npy_close(NpyFile *npy) { in_file_close(&npy->file); }

// ---- reading ----

/* Elements are converted in pieces that stay in L2; a tensor that needs conversion takes no second copy of itself. */
enum { PIECE_BYTES = 1 << 16 };

bool npy_read(const NpyFile *npy, Diag *diag, DType dtype, void *out) {
  unsigned char piece[PIECE_BYTES];
  size_t bytes = (size_t)file_blocks[npy->dtype].bytes;
  for (int64_t at = 0; at < npy->elements;) {
    int64_t rest = npy->elements - at, most = PIECE_BYTES / (int64_t)bytes;
    size_t n = (size_t)(rest < most ? rest : most);
    if (!in_file_read(&npy->file, diag, npy->data_begin + at * (int64_t)bytes, piece, n * bytes)) return false;
    int64_t value = 0;
    size_t done = convert_elements(npy->dtype, dtype, n, piece, (char *)out + (size_t)at * dtype_bytes[dtype], &value);
    at += (int64_t)done;
    if (done == n) continue;
    diag_error_at(diag, npy->file.path, DIAG_NPY, "element %lld is %lld, which is no %s", (long long)at,
                  (long long)value, dtype == DTYPE_BOOL ? "bool (0 or 1)" : "i32");
    return false;
  }
  return true;
}

// ---- writing ----

/* Everything before the data, padded so that the data begin at a multiple of 64, as NumPy does it. */
static StrBuf header_of(Arena *arena, const Tensor *tensor) {
  static const char *const types[N_DTYPES] = {[DTYPE_F32] = "<f4", [DTYPE_I32] = "<i4", [DTYPE_BOOL] = "|b1"};
  StrBuf header = strbuf_new(arena);
  strbuf_add_n(&header, (const char *)magic, sizeof magic);
  strbuf_add_n(&header, "\x01\x00\x00\x00", 4);
  strbuf_printf(&header, "{'descr': '%s', 'fortran_order': False, 'shape': (", types[tensor->dtype]);
  for (uint32_t i = 0; i < tensor->rank; i++)
    strbuf_printf(&header, i ? ", %lld" : "%lld", (long long)tensor->dims[i]);
  strbuf_add(&header, tensor->rank == 1 ? ",), }" : "), }");
  while (header.length % 64 != 63) strbuf_add_char(&header, ' ');
  strbuf_add_char(&header, '\n');
  size_t length = header.length - 10;
  header.text[8] = (char)(length & 255);
  header.text[9] = (char)(length >> 8);
  return header;
}

bool npy_write(Diag *diag, const char *path, const Tensor *tensor) {
  Arena *scratch = arena_create();
  OutFile *file = ARENA_NEW(scratch, OutFile);
  bool written = false;
  if (out_file_open(file, diag, path)) {
    StrBuf header = header_of(scratch, tensor);
    out_file_write(file, header.text, header.length);
    out_file_write(file, tensor->data, (size_t)tensor_elements(tensor) * dtype_bytes[tensor->dtype]);
    written = out_file_commit(file);
  }
  arena_destroy(scratch);
  return written;
}
