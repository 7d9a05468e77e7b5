/* In: safetensors files, tensors. Out: an index of tensors, files. The header is read by
 * safetensors_header.c. See safetensors.h. */
#include "weights/safetensors.h"

#include <string.h>

#include "weights/files.h"
#include "weights/safetensors_header.h"

// ---- opening ----

/* Whether the first member of a zip archive is called NAME.npy: np.savez wrote it, not torch.save. */
static bool is_npz(Diag *diag, const TensorFile *file) {
  enum { MOST = 256, NAME = 30 };
  char start[MOST + 1] = "";
  size_t n = file->file.size < MOST ? (size_t)file->file.size : MOST;
  if (n < NAME || !in_file_read(&file->file, diag, 0, start, n)) return false;
  return memcmp(start, "PK\3\4", 4) == 0 && strstr(start + NAME, ".npy");
}

/* How other files begin that people pass as safetensors. Read as a length, each of these beginnings is far too large,
 * so no valid file is mistaken for one of them. */
static const char *other_kind(Diag *diag, const TensorFile *file, const unsigned char bytes[8]) {
  static const struct {
    const char *start, *what;
  } kinds[] = {
      {"PK\3\4", "a file of torch.save; safetensors.torch.save_file(model.state_dict(), ...) writes what is read here"},
      {"\x80\2\x8a\n",
       "a file of torch.save; safetensors.torch.save_file(model.state_dict(), ...) writes what is read here"},
      {"\x93NUMPY", "a .npy file, not a safetensors file"},
      {"GGUF", "a GGUF file, not a safetensors file"},
      {"version ", "not a safetensors file; if it came from git, 'git lfs pull' gets the file itself"},
  };
  if (is_npz(diag, file)) return "a .npz archive; safetensors.numpy.save_file writes what is read here";
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (memcmp(bytes, kinds[i].start, strlen(kinds[i].start)) == 0) return kinds[i].what;
  return NULL;
}

/* The length is compared with a limit and with the size of the file before it is used, as an unsigned number: 2^63 and
 * more must not become negative. */
static bool read_length(Diag *diag, TensorFile *file, int64_t *header_size) {
  unsigned char bytes[8];
  const char *path = file->file.path;
  if (file->file.size < 8) {
    diag_error_at(diag, path, DIAG_SAFETENSORS, "file too small for the header length (8 bytes): it has %lld",
                  (long long)file->file.size);
    return false;
  }
  if (!in_file_read(&file->file, diag, 0, bytes, sizeof bytes)) return false;
  uint64_t size = 0;
  for (int i = 8; i-- > 0;) size = size << 8 | bytes[i];
  const char *kind = size > SAFETENSORS_MAX_HEADER ? other_kind(diag, file, bytes) : NULL;
  if (kind) {
    diag_error_at(diag, path, DIAG_SAFETENSORS, "this is %s", kind);
    return false;
  }
  if (size > SAFETENSORS_MAX_HEADER) {
    diag_error_at(diag, path, DIAG_SAFETENSORS, "the header length is %llu; at most 100,000,000 bytes are allowed",
                  (unsigned long long)size);
    return false;
  }
  if ((int64_t)size > file->file.size - 8) {
    diag_error_at(diag, path, DIAG_SAFETENSORS, "the header length is %llu, but only %lld bytes follow",
                  (unsigned long long)size, (long long)(file->file.size - 8));
    return false;
  }
  *header_size = (int64_t)size;
  return true;
}

/* Nothing may be left before, between or after the tensors. */
static bool check_tiling(Arena *arena, Diag *diag, const TensorFile *file) {
  int64_t end = 0;
  if (!tensor_file_check_tiling(arena, diag, file, DIAG_SAFETENSORS, 1)) return false;
  for (size_t i = 0; i < file->tensors.n; i++)
    if (file->tensors.items[i]->end > end) end = file->tensors.items[i]->end;
  if (end == file->data_size) return true;
  diag_error_at(diag, file->file.path, DIAG_SAFETENSORS,
                "the tensors end at byte %lld of the data, but the file has %lld bytes of it", (long long)end,
                (long long)file->data_size);
  return false;
}

static bool read_index(Arena *arena, Diag *diag, TensorFile *file) {
  int64_t header_size;
  if (!read_length(diag, file, &header_size)) return false;
  file->by_name = map_new(arena);
  file->data_begin = 8 + header_size;
  file->data_size = file->file.size - file->data_begin;
  return safetensors_read_header(arena, diag, file, header_size) && check_tiling(arena, diag, file);
}

TensorFile *safetensors_open(Arena *arena, Diag *diag, const char *path) {
  TensorFile *file = ARENA_NEW(arena, TensorFile);
  if (!in_file_open(&file->file, diag, arena_strdup(arena, path))) return NULL;
  if (read_index(arena, diag, file)) return file;
  tensor_file_close(file);
  return NULL;
}

// ---- writing ----

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
