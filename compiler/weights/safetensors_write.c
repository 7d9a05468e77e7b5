/* In: tensors and their names. Out: a safetensors file, complete or not at all. See safetensors.h. */
#include "weights/safetensors.h"

#include <string.h>

#include "base/checked_size.h"
#include "weights/files.h"
#include "weights/json_cursor.h"

static size_t bytes_of(const Tensor *tensor) {
  return (size_t)tensor_elements(tensor) * dtype_bytes[tensor->dtype];
}

/* Where the data of tensor i begin. Bools, of a byte each, come last, so that all others lie at multiples of 4. */
static size_t offset_of(const Tensor *tensors, uint32_t n, uint32_t i) {
  size_t offset = 0;
  bool last = dtype_bytes[tensors[i].dtype] == 1;
  for (uint32_t k = 0; k < n; k++) {
    bool is_byte = dtype_bytes[tensors[k].dtype] == 1;
    if (is_byte == last ? k < i : last) offset += bytes_of(&tensors[k]);
  }
  return offset;
}

static void write_data(OutFile *file, const Tensor *tensors, uint32_t n, bool bytes) {
  for (uint32_t i = 0; i < n; i++)
    if ((dtype_bytes[tensors[i].dtype] == 1) == bytes) out_file_write(file, tensors[i].data, bytes_of(&tensors[i]));
}

/* Padded with spaces to a multiple of 8, as the format recommends, so that the data that follow are aligned in a
 * mapped file. */
static StrBuf written_header(Arena *arena, const char *const *names, const Tensor *tensors, uint32_t n) {
  static const FileDType types[N_DTYPES] = {[DTYPE_F32] = FILE_F32, [DTYPE_I32] = FILE_I32, [DTYPE_BOOL] = FILE_BOOL};
  StrBuf header = strbuf_new(arena);
  strbuf_add_char(&header, '{');
  for (uint32_t i = 0; i < n; i++) {
    size_t begin = offset_of(tensors, n, i), end = begin + bytes_of(&tensors[i]);
    if (i) strbuf_add_char(&header, ',');
    strbuf_add_json(&header, names[i]);
    strbuf_printf(&header, ":{\"dtype\":\"%s\",\"shape\":[", file_dtype_names[types[tensors[i].dtype]]);
    for (uint32_t axis = 0; axis < tensors[i].rank; axis++)
      strbuf_printf(&header, "%s%lld", axis ? "," : "", (long long)tensors[i].dims[axis]);
    strbuf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", begin, end);
  }
  strbuf_add_char(&header, '}');
  while (header.length % 8) strbuf_add_char(&header, ' ');
  return header;
}

bool safetensors_write(Diag *diag, const char *path, const char *const *names, const Tensor *tensors, uint32_t n) {
  Arena *scratch = arena_create();
  OutFile *file = ARENA_NEW(scratch, OutFile);
  bool written = false;
  if (out_file_open(file, diag, path)) {
    StrBuf header = written_header(scratch, names, tensors, n);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header.length >> 8 * i);
    out_file_write(file, length, sizeof length);
    out_file_write(file, header.text, header.length);
    write_data(file, tensors, n, false);
    write_data(file, tensors, n, true);
    written = out_file_commit(file);
  }
  arena_destroy(scratch);
  return written;
}
