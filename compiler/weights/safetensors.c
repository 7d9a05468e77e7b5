/* In: safetensors files, an index of several, tensors. Out: an index of tensors, tensors, files. The header is read by
 * safetensors_header.c. See safetensors.h, and weight_set.h for several files. */
#include "weights/safetensors.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#include "weights/files.h"
#include "weights/safetensors_header.h"
#include "weights/weight_set.h"

// ---- opening ----

/* Whether the first member of a zip archive is called NAME.npy: np.savez wrote it, not torch.save. */
static bool is_npz(Diag *diag, const SafeTensors *file) {
  enum { MOST = 256, NAME = 30 };
  char start[MOST + 1] = "";
  size_t n = file->file.size < MOST ? (size_t)file->file.size : MOST;
  if (n < NAME || !in_file_read(&file->file, diag, 0, start, n)) return false;
  return memcmp(start, "PK\3\4", 4) == 0 && strstr(start + NAME, ".npy");
}

/* How other files begin that people pass as safetensors. Read as a length, each of these beginnings is far too large,
 * so no valid file is mistaken for one of them. */
static const char *other_kind(Diag *diag, const SafeTensors *file, const unsigned char bytes[8]) {
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
static bool read_length(Diag *diag, SafeTensors *file, int64_t *header_size) {
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

static bool read_index(Arena *arena, Diag *diag, SafeTensors *file) {
  int64_t header_size;
  if (!read_length(diag, file, &header_size)) return false;
  file->by_name = map_new(arena);
  file->data_begin = 8 + header_size;
  file->data_size = file->file.size - file->data_begin;
  return safetensors_read_header(arena, diag, file, header_size) && safetensors_check_tiling(arena, diag, file);
}

SafeTensors *safetensors_open(Arena *arena, Diag *diag, const char *path) {
  SafeTensors *file = ARENA_NEW(arena, SafeTensors);
  if (!in_file_open(&file->file, diag, arena_strdup(arena, path))) return NULL;
  if (read_index(arena, diag, file)) return file;
  safetensors_close(file);
  return NULL;
}

void safetensors_close(SafeTensors *file) {
  if (file) in_file_close(&file->file);
}

const StTensor *safetensors_find(const SafeTensors *file, const char *name) { return map_get(&file->by_name, name); }

// ---- reading ----

/* Elements that need conversion are read in pieces, so that a tensor takes no second copy of itself. */
enum { PIECE_BYTES = 1 << 18 };

typedef struct PieceReader {
  const SafeTensors *file;
  Diag *diag;
  const StTensor *tensor;
  size_t element_bytes;
  unsigned char *bytes; /* PIECE_BYTES of them */
  int64_t end;          /* of the elements that are read */
  int64_t at;           /* the first element of the piece */
  size_t n;             /* elements in it; 0 at the end */
} PieceReader;

/* Moves to the next piece; n is 0 after the last one. */
static bool next_piece(PieceReader *reader) {
  reader->at += (int64_t)reader->n;
  int64_t rest = reader->end - reader->at, most = PIECE_BYTES / (int64_t)reader->element_bytes;
  reader->n = (size_t)(rest < most ? rest : most);
  return in_file_read(&reader->file->file, reader->diag,
                      reader->file->data_begin + reader->tensor->begin + reader->at * (int64_t)reader->element_bytes,
                      reader->bytes, reader->n * reader->element_bytes);
}

static bool convert_pieces(PieceReader *reader, DType dtype, unsigned char *out) {
  const StTensor *tensor = reader->tensor;
  const int64_t first = reader->at;
  for (;;) {
    if (!next_piece(reader)) return false;
    if (!reader->n) return true;
    int64_t value = 0;
    size_t done = convert_elements(tensor->dtype, dtype, reader->n, reader->bytes,
                                   out + (size_t)(reader->at - first) * dtype_bytes[dtype], &value);
    if (done == reader->n) continue;
    diag_error_at(reader->diag, reader->file->file.path, DIAG_SAFETENSORS,
                  "tensor \"%s\": element %lld is %lld, which is no %s", tensor->name,
                  (long long)(reader->at + (int64_t)done), (long long)value,
                  dtype == DTYPE_BOOL ? "bool (0 or 1)" : "i32");
    return false;
  }
}

bool safetensors_read(const SafeTensors *file, Diag *diag, const StTensor *tensor, DType dtype, void *out) {
  return safetensors_read_part(file, diag, tensor, 0, tensor->elements, dtype, out);
}

bool safetensors_read_part(const SafeTensors *file, Diag *diag, const StTensor *tensor, int64_t first, int64_t n,
                           DType dtype, void *out) {
  size_t element_bytes = file_dtype_bits[tensor->dtype] / 8;
  /* Elements that need no conversion are read straight to their destination. */
  if (tensor->dtype == FILE_F32 || tensor->dtype == FILE_I32)
    return in_file_read(&file->file, diag, file->data_begin + tensor->begin + first * (int64_t)element_bytes, out,
                        (size_t)n * element_bytes);
  Arena *scratch = arena_create();
  PieceReader reader = {file, diag, tensor, element_bytes, arena_alloc(scratch, PIECE_BYTES), first + n, first, 0};
  bool read = convert_pieces(&reader, dtype, out);
  arena_destroy(scratch);
  return read;
}

// ---- counting ----

/* Subnormals are counted because arithmetic on them may be slow or flushed to zero; f16 has its own smallest normal
 * number. */
static void count(StCounts *counts, const float *values, size_t n, float smallest_normal) {
  for (size_t i = 0; i < n; i++) {
    float magnitude = __builtin_fabsf(values[i]);
    counts->nan += __builtin_isnan(values[i]) != 0;
    counts->infinite += __builtin_isinf(values[i]) != 0;
    counts->subnormal += magnitude > 0 && magnitude < smallest_normal;
  }
}

bool safetensors_count(const SafeTensors *file, Diag *diag, const StTensor *tensor, StCounts *counts) {
  *counts = (StCounts){0};
  Arena *scratch = arena_create();
  PieceReader reader = {
      file, diag, tensor, file_dtype_bits[tensor->dtype] / 8, arena_alloc(scratch, PIECE_BYTES), tensor->elements,
      0,    0};
  float *values = ARENA_ARRAY(scratch, float, PIECE_BYTES / reader.element_bytes);
  float smallest_normal = tensor->dtype == FILE_F16 ? 0x1p-14f : 0x1p-126f;
  bool read;
  while ((read = next_piece(&reader)) && reader.n) {
    int64_t value;
    convert_elements(tensor->dtype, DTYPE_F32, reader.n, reader.bytes, values, &value);
    count(counts, values, reader.n, smallest_normal);
  }
  arena_destroy(scratch);
  return read;
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

// ---- sets of files ----

enum { MAX_INDEX_BYTES = 100000000 }; /* as for a header of safetensors: bounds the tree that jansson builds */

const WeightEntry *weight_set_find(const WeightSet *set, const char *name) {
  uintptr_t index = (uintptr_t)map_get(&set->by_name, name);
  return index ? &set->entries.items[index - 1] : NULL;
}

static void add_entry(Arena *arena, WeightSet *set, const SafeTensors *file, const StTensor *tensor) {
  vec_push(arena, &set->entries, (WeightEntry){file, tensor, tensor->name});
  map_put(&set->by_name, tensor->name, (void *)(uintptr_t)set->entries.n);
}

static bool add_single(Arena *arena, Diag *diag, WeightSet *set, const char *path) {
  SafeTensors *file = safetensors_open(arena, diag, path);
  if (!file) return false;
  vec_push(arena, &set->files, file);
  for (size_t i = 0; i < file->tensors.n; i++) add_entry(arena, set, file, file->tensors.items[i]);
  return true;
}

// ---- an index ----

/* Whether the name itself stays below the folder: relative, no empty part, no `.` or `..`. An index comes with the
 * weights, perhaps from a stranger, so a name must not choose a file elsewhere. Symbolic links below the folder are
 * followed: whoever keeps the folder made them, and the cache of Hugging Face has every shard behind one. */
static bool is_contained(const char *path) {
  for (const char *part = path;; part++) {
    size_t length = strcspn(part, "/");
    if (length == 0 || strncmp(part, "..", length) == 0) return false; /* "", "." and ".." */
    part += length;
    if (!*part) return true;
  }
}

static SafeTensors *open_shard(Arena *arena, Diag *diag, WeightSet *set, Map *shards, const char *folder,
                               const char *name) {
  if (map_has(shards, name)) return map_get(shards, name);
  SafeTensors *file = NULL;
  if (!is_contained(name))
    diag_error_at(diag, set->path, DIAG_SAFETENSORS, "file \"%s\": files of an index must lie in its folder", name);
  else
    file = safetensors_open(arena, diag, arena_printf(arena, "%s%s", folder, name));
  map_put(shards, name, file);
  if (file) vec_push(arena, &set->files, file);
  return file;
}

/* A name with a NUL in it is no file name, whatever stands before the NUL. */
static void add_mapped(Arena *arena, Diag *diag, WeightSet *set, Map *shards, const char *folder,
                       const char *tensor_name, const json_t *file_name) {
  const char *name = json_string_value(file_name);
  if (!name || strlen(name) != json_string_length(file_name)) {
    diag_error_at(diag, set->path, DIAG_SAFETENSORS, "weight_map \"%s\": expected the name of a file", tensor_name);
    return;
  }
  SafeTensors *file = open_shard(arena, diag, set, shards, folder, name);
  if (!file) return;
  const StTensor *tensor = safetensors_find(file, tensor_name);
  if (tensor) add_entry(arena, set, file, tensor);
  else diag_error_at(diag, set->path, DIAG_SAFETENSORS, "tensor \"%s\" is not in \"%s\"", tensor_name, name);
}

/* Duplicate keys are refused, as in a header. Every fault of the map is reported, not only the first. */
static bool add_index(Arena *arena, Diag *diag, WeightSet *set, const char *path) {
  size_t size;
  const char *text = in_file_text(diag, path, MAX_INDEX_BYTES, DIAG_SAFETENSORS, &size);
  if (!text) return false;
  json_error_t error;
  json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  const json_t *map = json_object_get(json, "weight_map");
  if (!json)
    diag_error_at(diag, path, DIAG_SAFETENSORS, "the index is not JSON: byte %d: %s", error.position, error.text);
  else if (!json_is_object(map))
    diag_error_at(diag, path, DIAG_SAFETENSORS, "the index has no object \"weight_map\"");
  const char *slash = strrchr(path, '/'), *tensor_name;
  const char *folder = slash ? arena_strndup(arena, path, (size_t)(slash - path) + 1) : "";
  Map shards = map_new(arena);
  json_t *file_name;
  json_object_foreach((json_t *)map, tensor_name, file_name)
    add_mapped(arena, diag, set, &shards, folder, tensor_name, file_name);
  json_decref(json);
  return !diag_has_errors(diag);
}

const char *weight_set_path(Arena *arena, const char *path) {
  struct stat status;
  if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) return path;
  const size_t length = strlen(path);
  const char *slash = length && path[length - 1] == '/' ? "" : "/";
  const char *single = arena_printf(arena, "%s%smodel.safetensors", path, slash);
  const char *index = arena_printf(arena, "%s.index.json", single);
  return stat(single, &status) != 0 && stat(index, &status) == 0 ? index : single;
}

/* PyTorch's name of a weight of a norm that has TensorFlow's; NULL: it has another. */
static const char *name_in_pytorch(Arena *arena, const char *name) {
  static const char *const names[][2] = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const size_t length = strlen(name), end = strlen(names[i][0]);
    if (length < end || strcmp(name + length - end, names[i][0]) != 0) continue;
    if (length == end || name[length - end - 1] == '.')
      return arena_printf(arena, "%.*s%s", (int)(length - end), name, names[i][1]);
  }
  return NULL;
}

static void add_names_in_pytorch(Arena *arena, WeightSet *set) {
  for (size_t i = 0; i < set->entries.n; i++) {
    const char *name = name_in_pytorch(arena, set->entries.items[i].tensor->name);
    if (!name || map_has(&set->by_name, name)) continue;
    set->entries.items[i].name = name;
    map_put(&set->by_name, name, (void *)(uintptr_t)(i + 1));
  }
}

WeightSet *weight_set_open(Arena *arena, Diag *diag, const char *path) {
  path = weight_set_path(arena, path);
  WeightSet *set = ARENA_NEW(arena, WeightSet);
  set->path = path;
  set->by_name = map_new(arena);
  size_t length = strlen(path);
  bool is_index = length > 5 && strcmp(path + length - 5, ".json") == 0;
  if (!(is_index ? add_index(arena, diag, set, path) : add_single(arena, diag, set, path))) {
    weight_set_close(set);
    return NULL;
  }
  add_names_in_pytorch(arena, set);
  return set;
}

void weight_set_close(WeightSet *set) {
  for (size_t i = 0; set && i < set->files.n; i++) safetensors_close(set->files.items[i]);
}
