#include "weights/npy.h"

#include <string.h>

#include "base/checked_size.h"
#include "weights/npy_header.h"
#include "weights/out_file.h"
#include "weights/safetensors.h"

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static bool fail(const NpyFile *npy, Diag *diag, const char *text) {
  diag_error_at(diag, npy->file.path, DIAG_NPY, "%s", text);
  return false;
}

// ---- opening ----

/* The length of the header; *begin is where it begins. */
static bool read_preamble(NpyFile *npy, Diag *diag, int64_t *begin, int64_t *length) {
  unsigned char bytes[12] = {0};
  int64_t size = npy->file.size;
  if (!in_file_read(&npy->file, diag, 0, bytes, size < 12 ? (size_t)size : 12)) return false;
  if (size >= 2 && bytes[0] == 'P' && bytes[1] == 'K') return fail(npy, diag, ".npz archives are not supported; give one .npy per tensor");
  if (size < 10 || memcmp(bytes, magic, sizeof magic) != 0) return fail(npy, diag, "this is no .npy file: it does not begin with \\x93NUMPY");
  if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
    diag_error_at(diag, npy->file.path, DIAG_NPY, "version %u.%u of the format; 1.0, 2.0 and 3.0 are supported",
                  (unsigned)bytes[6], (unsigned)bytes[7]);
    return false;
  }
  *length = bytes[8] | bytes[9] << 8;
  if (bytes[6] > 1) *length |= (int64_t)bytes[10] << 16 | (int64_t)bytes[11] << 24;
  *begin = bytes[6] > 1 ? 12 : 10;
  if (*length > NPY_MAX_HEADER || *length > size - *begin) {
    diag_error_at(diag, npy->file.path, DIAG_NPY, "the header length is %lld; at most 10,000 and what the file has are allowed",
                  (long long)*length);
    return false;
  }
  return true;
}

static bool check_size(NpyFile *npy, Diag *diag) {
  int64_t bytes = file_dtype_bits[npy->dtype] / 8, rest = npy->file.size - npy->data_begin;
  npy->elements = 1;
  bool fits = true, empty = false;
  for (uint32_t i = 0; i < npy->rank; i++) {
    empty = empty || npy->dims[i] == 0;
    fits = fits && checked_mul(npy->elements, npy->dims[i], &npy->elements);
  }
  if (fits && checked_mul(npy->elements, bytes, &bytes) && bytes == rest) return true;
  StrBuf shape = strbuf_new(diag->arena);
  print_dims(&shape, npy->dims, npy->rank);
  if (!fits && !empty) {
    diag_error_at(diag, npy->file.path, DIAG_NPY, "the product of the shape %s overflows", shape.text);
    return false;
  }
  diag_error_at(diag, npy->file.path, DIAG_NPY, "shape %s of %s does not take the %lld bytes that follow the header",
                shape.text, file_dtype_names[npy->dtype], (long long)rest);
  return false;
}

static bool read_header(NpyFile *npy, Diag *diag) {
  char text[NPY_MAX_HEADER];
  int64_t begin, length;
  if (!read_preamble(npy, diag, &begin, &length)) return false;
  if (!in_file_read(&npy->file, diag, begin, text, (size_t)length)) return false;
  npy->data_begin = begin + length;
  return npy_read_dictionary(npy, diag, text, (size_t)length) && check_size(npy, diag);
}

bool npy_open(NpyFile *npy, Diag *diag, const char *path) {
  *npy = (NpyFile){.file.fd = -1};
  if (!in_file_open(&npy->file, diag, path, true)) return false;
  if (read_header(npy, diag)) return true;
  npy_close(npy);
  return false;
}

void npy_close(NpyFile *npy) { in_file_close(&npy->file); }

// ---- reading ----

enum { PIECE_BYTES = 1 << 16 };

bool npy_read(const NpyFile *npy, Diag *diag, DType dtype, void *out) {
  unsigned char piece[PIECE_BYTES];
  size_t bytes = file_dtype_bits[npy->dtype] / 8;
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

/* The whole header up to the data, whose address is a multiple of 64. */
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
