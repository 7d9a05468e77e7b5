/* In: the head of a GGUF file, piece by piece. Out: tensors whose shape, type and offset agree. See gguf.h. Memory
 * grows with what has been read and never with what a number in the file claims. */
#include "weights/gguf.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked_size.h"
#include "diag/source.h"

enum { MOST_ENTRIES = 1000000, MOST_NAME = 4096, MOST_AXES = 8, MOST_NESTING = 8 };

/* The types of values, by their numbers. */
enum { U8, I8, U16, I16, U32, I32, F32, BOOLEAN, STRING, ARRAY, U64, I64, F64, N_TYPES };

static const uint8_t type_bytes[N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; /* 0: they differ */

typedef struct GgufReader {
  Arena *arena;
  Diag *diag;
  TensorFile *file;
  int64_t at;
  int64_t piece_begin;
  size_t piece_size;
  unsigned char piece[1 << 15];
  Map keys;
  int64_t alignment;
  const char *what; /* that is read, for messages: `key "a"` */
} GgufReader;

__attribute__((format(printf, 3, 4))) static bool fail(GgufReader *reader, int64_t at, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(reader->diag->arena, format, args);
  va_end(args);
  diag_error_at(reader->diag, reader->file->file.path, DIAG_GGUF, "byte %lld: %s", (long long)at, text);
  return false;
}

// ---- bytes ----

static int64_t rest(const GgufReader *reader) { return reader->file->file.size - reader->at; }

static bool check_rest(GgufReader *reader, uint64_t size) {
  if (size <= (uint64_t)rest(reader)) return true;
  return fail(reader, reader->at, "%s takes %" PRIu64 " bytes, but only %lld follow; is the file cut off?",
              reader->what, size, (long long)rest(reader));
}

static bool read_bytes(GgufReader *reader, void *bytes, size_t size) {
  char *to = bytes;
  if (!check_rest(reader, size)) return false;
  while (size) {
    int64_t skipped = reader->at - reader->piece_begin;
    if (skipped < 0 || skipped >= (int64_t)reader->piece_size) {
      reader->piece_begin = reader->at;
      reader->piece_size = rest(reader) < (int64_t)sizeof reader->piece ? (size_t)rest(reader) : sizeof reader->piece;
      if (!in_file_read(&reader->file->file, reader->diag, reader->at, reader->piece, reader->piece_size)) return false;
      skipped = 0;
    }
    size_t n = reader->piece_size - (size_t)skipped < size ? reader->piece_size - (size_t)skipped : size;
    memcpy(to, reader->piece + skipped, n);
    to += n;
    size -= n;
    reader->at += (int64_t)n;
  }
  return true;
}

static bool read_u32(GgufReader *reader, uint32_t *number) { return read_bytes(reader, number, sizeof *number); }
static bool read_u64(GgufReader *reader, uint64_t *number) { return read_bytes(reader, number, sizeof *number); }

static bool is_utf8(const char *text, size_t size) {
  for (size_t i = 0, n; i < size; i += n) {
    uint32_t character;
    if (!(n = utf8_decode(text + i, size - i, &character))) return false;
  }
  return true;
}

/* A name or a key: it appears in messages and on terminals. */
static bool read_name(GgufReader *reader, const char **name, size_t *length) {
  uint64_t size;
  const int64_t at = reader->at;
  char text[MOST_NAME];
  if (!read_u64(reader, &size) || !check_rest(reader, size)) return false;
  if (size == 0) return fail(reader, at, "%s: an empty name", reader->what);
  if (size > MOST_NAME)
    return fail(reader, at, "%s: a name of %" PRIu64 " bytes; at most 4,096 are allowed", reader->what, size);
  if (!read_bytes(reader, text, (size_t)size)) return false;
  for (size_t i = 0; i < size; i++)
    if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
      return fail(reader, at, "control byte 0x%02x in a name", (unsigned)(unsigned char)text[i]);
  if (!is_utf8(text, (size_t)size)) return fail(reader, at, "a name is not UTF-8");
  *name = arena_strndup(reader->arena, text, (size_t)size);
  *length = (size_t)size;
  return true;
}

// ---- values of keys ----

/* What arrays of texts and of arrays hold is skipped one by one, since each has a length of its own. */
static bool skip_value(GgufReader *reader, uint32_t type, unsigned nesting) {
  uint32_t of = type;
  uint64_t n = 1;
  if (type == STRING) return read_u64(reader, &n) && check_rest(reader, n) && (reader->at += (int64_t)n, true);
  if (type == ARRAY && (!read_u32(reader, &of) || !read_u64(reader, &n))) return false;
  if (of >= N_TYPES) return fail(reader, reader->at, "%s has a value of the unknown type %u", reader->what, of);
  if (nesting > MOST_NESTING) return fail(reader, reader->at, "%s: arrays are nested deeper than 8", reader->what);
  if (type_bytes[of]) {
    const uint64_t most = UINT64_MAX / type_bytes[of], bytes = n > most ? UINT64_MAX : n * type_bytes[of];
    return check_rest(reader, bytes) && (reader->at += (int64_t)bytes, true);
  }
  for (uint64_t i = 0; i < n; i++)
    if (!skip_value(reader, of, nesting + 1)) return false;
  return true;
}

static void keep(GgufReader *reader, const char *key, const char *value) {
  vec_push(reader->arena, &reader->file->metadata, (FileMetadata){key, value});
}

/* Metadata are for people: a text that is not UTF-8 or has a NUL in it is left out. */
static bool read_text(GgufReader *reader, const char *key) {
  uint64_t size;
  char text[MOST_NAME];
  if (!read_u64(reader, &size) || !check_rest(reader, size)) return false;
  if (size > sizeof text) {
    vec_push(reader->arena, &reader->file->lists, key);
    reader->at += (int64_t)size;
    return true;
  }
  if (!read_bytes(reader, text, (size_t)size)) return false;
  if (!memchr(text, 0, (size_t)size) && is_utf8(text, (size_t)size))
    keep(reader, key, arena_strndup(reader->arena, text, (size_t)size));
  return true;
}

/* A number as text; `whole` is its value if it is an unsigned one, as the keys that matter here are. */
static bool read_number(GgufReader *reader, const char *key, uint32_t type, uint64_t *whole) {
  unsigned char bytes[8] = {0};
  if (!read_bytes(reader, bytes, type_bytes[type])) return false;
  uint64_t bits;
  float single;
  double real;
  memcpy(&bits, bytes, sizeof bits);
  memcpy(&single, bytes, sizeof single);
  memcpy(&real, bytes, sizeof real);
  const bool is_negative =
      (type == I8 || type == I16 || type == I32 || type == I64) && bytes[type_bytes[type] - 1] > 127;
  const uint64_t upper = type_bytes[type] < 8 ? ~(uint64_t)0 << 8 * type_bytes[type] : 0;
  *whole = bits;
  if (type == F32 || type == F64)
    keep(reader, key, arena_printf(reader->arena, "%.9g", type == F32 ? (double)single : real));
  else if (type == BOOLEAN)
    keep(reader, key, bits ? "true" : "false");
  else if (is_negative)
    keep(reader, key, arena_printf(reader->arena, "%" PRId64, (int64_t)(bits | upper)));
  else
    keep(reader, key, arena_printf(reader->arena, "%" PRIu64, bits));
  return true;
}

/* Two keys decide how the file is read. */
static bool take_key(GgufReader *reader, int64_t at, const char *key, uint32_t type, uint64_t value) {
  if (strcmp(key, "general.alignment") == 0) {
    if (type != U32 || value == 0 || (value & (value - 1)) != 0)
      return fail(reader, at, "general.alignment is not a power of two, as a U32");
    reader->alignment = (int64_t)value;
  }
  if (strcmp(key, "split.count") == 0 && (type == U16 || type == U32) && value > 1)
    return fail(reader, at,
                "this is one of %" PRIu64
                " parts of a model; `llama-gguf-split --merge FIRST_PART NEW_FILE` joins them",
                value);
  return true;
}

static bool read_key(GgufReader *reader) {
  const char *key;
  size_t length;
  uint32_t type;
  uint64_t value = 0;
  const int64_t at = reader->at;
  reader->what = "a key";
  if (!read_name(reader, &key, &length)) return false;
  if (map_find(&reader->keys, key, length)) return fail(reader, at, "the key \"%s\" stands twice", key);
  map_put_n(&reader->keys, key, length, NULL);
  reader->what = arena_printf(reader->arena, "key \"%s\"", key);
  if (!read_u32(reader, &type)) return false;
  if (type == STRING) return read_text(reader, key);
  if (type == ARRAY) vec_push(reader->arena, &reader->file->lists, key);
  if (type >= N_TYPES || type == ARRAY) return skip_value(reader, type, 0);
  return read_number(reader, key, type, &value) && take_key(reader, at, key, type, value);
}

// ---- tensors ----

static bool read_dims(GgufReader *reader, FileTensor *tensor) {
  const int64_t at = reader->at;
  if (!read_u32(reader, &tensor->rank)) return false;
  if (tensor->rank > MOST_AXES)
    return fail(reader, at, "%s has %u axes; at most 8 are allowed", reader->what, tensor->rank);
  int64_t *dims = ARENA_ARRAY(reader->arena, int64_t, tensor->rank);
  bool fits = true;
  tensor->elements = 1;
  for (uint32_t i = tensor->rank; i-- > 0;) {
    uint64_t dim;
    if (!read_u64(reader, &dim)) return false;
    dims[i] = (int64_t)dim;
    fits = fits && dim <= INT64_MAX && checked_mul(tensor->elements, dims[i], &tensor->elements);
  }
  tensor->dims = dims;
  return fits || fail(reader, at, "%s: the product of its shape overflows", reader->what);
}

/* A type that is not known has no size; such a tensor is never read. */
static bool read_type(GgufReader *reader, FileTensor *tensor, int64_t *bytes) {
  uint32_t number;
  const int64_t at = reader->at;
  if (!read_u32(reader, &number)) return false;
  tensor->dtype = file_dtype_of_gguf(number);
  *bytes = 0;
  if (tensor->dtype == FILE_UNKNOWN) {
    tensor->dtype_name = arena_printf(reader->arena, "number %u of GGUF", number);
    return true;
  }
  const FileBlock *block = &file_blocks[tensor->dtype];
  const int64_t row = tensor->rank ? tensor->dims[tensor->rank - 1] : 1;
  tensor->dtype_name = file_dtype_names[tensor->dtype];
  if (row % block->elements)
    return fail(reader, at, "%s: rows of %lld numbers are no whole blocks of %s, which have %d", reader->what,
                (long long)row, tensor->dtype_name, block->elements);
  return checked_mul(tensor->elements / block->elements, block->bytes, bytes) ||
         fail(reader, at, "%s: the product of its shape overflows", reader->what);
}

static bool read_offset(GgufReader *reader, FileTensor *tensor, int64_t bytes) {
  uint64_t begin;
  const int64_t at = reader->at;
  if (!read_u64(reader, &begin)) return false;
  if (begin % (uint64_t)reader->alignment)
    return fail(reader, at, "%s: offset %" PRIu64 " is no multiple of the alignment, %lld", reader->what, begin,
                (long long)reader->alignment);
  if (begin > INT64_MAX || !checked_add((int64_t)begin, bytes, &tensor->end))
    return fail(reader, at, "%s: its end overflows", reader->what);
  tensor->begin = (int64_t)begin;
  return true;
}

static bool read_tensor(GgufReader *reader) {
  FileTensor *tensor = ARENA_NEW(reader->arena, FileTensor);
  size_t length;
  int64_t bytes;
  reader->what = "a tensor";
  tensor->header_offset = reader->at;
  if (!read_name(reader, &tensor->name, &length)) return false;
  const MapEntry *entry = map_find(&reader->file->by_name, tensor->name, length);
  if (entry)
    return fail(reader, tensor->header_offset, "duplicate tensor \"%s\", which stands at byte %lld too", tensor->name,
                (long long)((FileTensor *)entry->value)->header_offset);
  map_put_n(&reader->file->by_name, tensor->name, length, tensor);
  vec_push(reader->arena, &reader->file->tensors, tensor);
  reader->what = arena_printf(reader->arena, "tensor \"%s\"", tensor->name);
  return read_dims(reader, tensor) && read_type(reader, tensor, &bytes) && read_offset(reader, tensor, bytes);
}

// ---- the file ----

static bool read_start(GgufReader *reader, uint64_t *n_tensors, uint64_t *n_keys) {
  struct {
    char magic[4];
    uint32_t version;
  } start;
  reader->what = "the start of a GGUF file";
  if (!read_bytes(reader, &start, sizeof start)) return false;
  if (memcmp(start.magic, "GGUF", 4) != 0) return fail(reader, 0, "this is no GGUF file");
  if (start.version && !(start.version & 0xffff))
    return fail(reader, 4, "the file is in big endian; convert the model anew without --bigendian");
  if (start.version != 2 && start.version != 3)
    return fail(reader, 4, "version %u; versions 2 and 3 are read. Convert the model anew with a llama.cpp of today",
                start.version);
  if (!read_u64(reader, n_tensors) || !read_u64(reader, n_keys)) return false;
  if (*n_tensors > MOST_ENTRIES)
    return fail(reader, 8, "%" PRIu64 " tensors; at most 1,000,000 are allowed", *n_tensors);
  return *n_keys <= MOST_ENTRIES || fail(reader, 16, "%" PRIu64 " keys; at most 1,000,000 are allowed", *n_keys);
}

/* The data begin at the next multiple of the alignment; a file without data may end before it. */
static bool place_data(GgufReader *reader) {
  TensorFile *file = reader->file;
  const int64_t size = file->file.size;
  file->data_begin = (reader->at + reader->alignment - 1) / reader->alignment * reader->alignment;
  if (file->data_begin > size) file->data_begin = size;
  file->data_size = size - file->data_begin;
  for (size_t i = 0; i < file->tensors.n; i++) {
    const FileTensor *tensor = file->tensors.items[i];
    if (tensor->end <= file->data_size) continue;
    return fail(reader, tensor->header_offset,
                "tensor \"%s\": offsets [%lld, %lld) end after the data, which has %lld bytes; is the file cut off?",
                tensor->name, (long long)tensor->begin, (long long)tensor->end, (long long)file->data_size);
  }
  return tensor_file_check_tiling(reader->arena, reader->diag, file, DIAG_GGUF, reader->alignment);
}

static bool read_file(GgufReader *reader) {
  uint64_t n_tensors, n_keys;
  if (!read_start(reader, &n_tensors, &n_keys)) return false;
  for (uint64_t i = 0; i < n_keys; i++)
    if (!read_key(reader)) return false;
  for (uint64_t i = 0; i < n_tensors; i++)
    if (!read_tensor(reader)) return false;
  return place_data(reader);
}

bool is_gguf(const char *path) {
  char start[4];
  Arena *scratch = arena_create();
  Diag silent = diag_new(scratch);
  InFile file;
  bool is = in_file_open(&file, &silent, path);
  is = is && file.size >= 4 && in_file_read(&file, &silent, 0, start, 4) && memcmp(start, "GGUF", 4) == 0;
  in_file_close(&file);
  arena_destroy(scratch);
  return is;
}

TensorFile *gguf_open(Arena *arena, Diag *diag, const char *path) {
  TensorFile *file = ARENA_NEW(arena, TensorFile);
  if (!in_file_open(&file->file, diag, arena_strdup(arena, path))) return NULL;
  file->by_name = map_new(arena);
  file->is_gguf = true;
  Arena *scratch = arena_create(); /* holds the reader with its piece, and the keys */
  GgufReader *reader = ARENA_NEW(scratch, GgufReader);
  reader->arena = arena;
  reader->diag = diag;
  reader->file = file;
  reader->alignment = 32;
  reader->keys = map_new(scratch);
  bool read = read_file(reader);
  arena_destroy(scratch);
  if (read) return file;
  tensor_file_close(file);
  return NULL;
}
