/* In: safetensors files, tensors. Out: an index of tensors, whose shape, type and offsets agree; files. The header is
 * JSON, read byte by byte (json_cursor.h): memory grows with what has been read and never with what a number in it
 * claims. See safetensors.h. */
#include "weights/safetensors.h"

#include <string.h>

#include "base/checked_size.h"
#include "weights/files.h"
#include "weights/json_cursor.h"

typedef struct HeaderReader {
  Arena *arena;
  TensorFile *file;
  JsonCursor cursor;
  StrBuf text; /* of the last string */
} HeaderReader;

// ---- one tensor ----

enum { KEY_DTYPE, KEY_SHAPE, KEY_OFFSETS, N_KEYS };

static const char *const keys[N_KEYS] = {"dtype", "shape", "data_offsets"};

/* 64 bytes are far more than any type's name. A name with a NUL in it is unknown, whatever stands before the NUL. */
static bool read_dtype(HeaderReader *reader, FileTensor *tensor) {
  size_t length;
  int64_t at = reader->cursor.at;
  if (!cursor_string(&reader->cursor, &reader->text, 64, &length)) return false;
  if (length > 64)
    return cursor_fail(&reader->cursor, at, "tensor \"%s\": the name of the type is too long", tensor->name);
  tensor->dtype_name = arena_strndup(reader->arena, reader->text.text, length);
  tensor->dtype = strlen(tensor->dtype_name) == length ? file_dtype_find(tensor->dtype_name) : FILE_UNKNOWN;
  return true;
}

/* Reads a list of whole numbers. Its length is bounded by that of the header. */
static bool read_numbers(HeaderReader *reader, uint32_t *n, const int64_t **numbers) {
  JsonCursor *cursor = &reader->cursor;
  VEC(int64_t) found = {0};
  if (!cursor_expect(cursor, '[')) return false;
  bool more = cursor_peek(cursor) != ']';
  if (!more) cursor->at++;
  while (more) {
    int64_t number;
    if (!cursor_integer(cursor, &number) || !cursor_separator(cursor, ']', &more)) return false;
    vec_push(reader->arena, &found, number);
  }
  *n = (uint32_t)found.n;
  *numbers = found.items;
  return true;
}

/* Whether they run forwards and lie in the file is checked once the whole entry has been read, because keys may come
 * in any order. */
static bool read_offsets(HeaderReader *reader, FileTensor *tensor) {
  uint32_t n;
  const int64_t *offsets;
  int64_t at = reader->cursor.at;
  if (!read_numbers(reader, &n, &offsets)) return false;
  if (n != 2)
    return cursor_fail(&reader->cursor, at, "tensor \"%s\": data_offsets has %u numbers, it must have 2", tensor->name,
                       n);
  tensor->begin = offsets[0];
  tensor->end = offsets[1];
  return true;
}

/* Strings are compared with their lengths: one with a NUL inside would otherwise pass for its beginning. */
static bool read_entry(HeaderReader *reader, FileTensor *tensor, int64_t *seen) {
  JsonCursor *cursor = &reader->cursor;
  size_t length;
  cursor_peek(cursor);
  int64_t at = cursor->at;
  if (!cursor_string(cursor, &reader->text, 64, &length)) return false;
  int key = 0;
  while (key < N_KEYS && (strcmp(reader->text.text, keys[key]) != 0 || length != strlen(keys[key]))) key++;
  if (key == N_KEYS)
    return cursor_fail(cursor, at, "tensor \"%s\": unknown key \"%s\"; there are dtype, shape and data_offsets",
                     tensor->name, reader->text.text);
  if (seen[key] >= 0)
    return cursor_fail(cursor, at, "tensor \"%s\": duplicate key \"%s\", which stands at byte %lld too", tensor->name,
                     keys[key], (long long)seen[key]);
  seen[key] = at;
  if (!cursor_expect(cursor, ':')) return false;
  if (key == KEY_DTYPE) return read_dtype(reader, tensor);
  if (key == KEY_SHAPE) return read_numbers(reader, &tensor->rank, &tensor->dims);
  return read_offsets(reader, tensor);
}

/* Checks that the shape, the type and the offsets agree and lie within the data. Every product and sum is checked for
 * overflow; after that, end - begin bytes are safe to allocate and to read. The size of an element whose type is
 * unknown cannot be checked; such a tensor is never read. */
static bool check_tensor(HeaderReader *reader, FileTensor *tensor) {
  JsonCursor *cursor = &reader->cursor;
  int64_t at = tensor->header_offset, bits = 0;
  FileBlock block = {1, 0, -1};
  if (tensor->dtype != FILE_UNKNOWN) block = file_blocks[tensor->dtype];
  tensor->elements = 1;
  bool fits = true;
  for (uint32_t i = 0; i < tensor->rank; i++)
    fits = fits && checked_mul(tensor->elements, tensor->dims[i], &tensor->elements);
  fits = fits && checked_mul(tensor->elements, 8 * block.bytes / block.elements, &bits);
  if (!fits) return cursor_fail(cursor, at, "tensor \"%s\": the product of its shape overflows", tensor->name);
  long long begin = tensor->begin, end = tensor->end, size = reader->file->data_size;
  if (begin > end)
    return cursor_fail(cursor, at, "tensor \"%s\": offsets [%lld, %lld) run backwards", tensor->name, begin, end);
  if (end > size)
    return cursor_fail(cursor, at, "tensor \"%s\": offsets [%lld, %lld) end after the data, which has %lld bytes",
                     tensor->name, begin, end, size);
  if (tensor->dtype == FILE_UNKNOWN) return true;
  if (bits % 8 == 0 && bits / 8 == end - begin) return true;
  StrBuf shape = strbuf_new(cursor->diag->arena);
  print_dims(&shape, tensor->dims, tensor->rank);
  return cursor_fail(cursor, at, "tensor \"%s\": %s%s takes %lld bits, but offsets [%lld, %lld) hold %lld bytes",
                   tensor->name, tensor->dtype_name, shape.text, (long long)bits, begin, end, end - begin);
}

/* All three keys must be there, each once. */
static bool read_tensor(HeaderReader *reader, FileTensor *tensor) {
  JsonCursor *cursor = &reader->cursor;
  int64_t seen[N_KEYS] = {-1, -1, -1};
  if (!cursor_expect(cursor, '{')) return false;
  bool more = cursor_peek(cursor) != '}';
  if (!more) cursor->at++;
  while (more)
    if (!read_entry(reader, tensor, seen) || !cursor_separator(cursor, '}', &more)) return false;
  for (int key = 0; key < N_KEYS; key++)
    if (seen[key] < 0)
      return cursor_fail(cursor, tensor->header_offset, "tensor \"%s\" has no %s", tensor->name, keys[key]);
  return check_tensor(reader, tensor);
}

// ---- names ----

/* Names appear in messages and on terminals, so control characters are refused. */
static bool check_name(JsonCursor *cursor, int64_t at, const StrBuf *name, size_t length) {
  if (length == 0) return cursor_fail(cursor, at, "an empty name");
  if (length > SAFETENSORS_MAX_NAME)
    return cursor_fail(cursor, at, "a name of %zu bytes; at most 4,096 are allowed", length);
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)name->text[i] < 0x20 || name->text[i] == 0x7f)
      return cursor_fail(cursor, at, "control byte 0x%02x in a name", (unsigned)name->text[i]);
  return true;
}

// ---- metadata ----

/* Metadata is text for people: nothing here depends on it, but its size is bounded like everything else. */
static bool read_metadata(HeaderReader *reader) {
  JsonCursor *cursor = &reader->cursor;
  Map seen = map_new(reader->arena);
  if (cursor_peek(cursor) != '{') return cursor_fail(cursor, cursor->at, "__metadata__ must be an object of strings");
  cursor->at++;
  bool more = cursor_peek(cursor) != '}';
  if (!more) cursor->at++;
  while (more) {
    size_t length;
    cursor_peek(cursor);
    int64_t at = cursor->at;
    if (!cursor_string(cursor, &reader->text, SAFETENSORS_MAX_NAME, &length)) return false;
    if (!check_name(cursor, at, &reader->text, length)) return false;
    if (map_find(&seen, reader->text.text, length))
      return cursor_fail(cursor, at, "duplicate key \"%s\" in __metadata__", reader->text.text);
    const char *key = map_put_n(&seen, reader->text.text, length, NULL)->key;
    if (seen.n > SAFETENSORS_MAX_TENSORS) return cursor_fail(cursor, at, "more than 1,000,000 entries in __metadata__");
    if (!cursor_expect(cursor, ':')) return false;
    if (cursor_peek(cursor) != '"')
      return cursor_fail(cursor, cursor->at, "__metadata__ \"%s\": expected a string", key);
    if (!cursor_string(cursor, &reader->text, SAFETENSORS_MAX_METADATA, &length)) return false;
    const char *value = arena_strndup(reader->arena, reader->text.text, reader->text.length);
    vec_push(reader->arena, &reader->file->metadata, (FileMetadata){key, value});
    if (!cursor_separator(cursor, '}', &more)) return false;
  }
  return true;
}

// ---- the header ----

/* A key that stands twice is refused: which of the two counts would differ from reader to reader. */
static bool read_member(HeaderReader *reader, int64_t *metadata_at) {
  JsonCursor *cursor = &reader->cursor;
  size_t length;
  cursor_peek(cursor);
  int64_t at = cursor->at;
  if (!cursor_string(cursor, &reader->text, SAFETENSORS_MAX_NAME, &length)) return false;
  if (!check_name(cursor, at, &reader->text, length)) return false;
  if (strcmp(reader->text.text, "__metadata__") == 0) {
    if (*metadata_at >= 0)
      return cursor_fail(cursor, at, "duplicate key \"__metadata__\", which stands at byte %lld too",
                       (long long)*metadata_at);
    *metadata_at = at;
    return cursor_expect(cursor, ':') && read_metadata(reader);
  }
  MapEntry *entry = map_find(&reader->file->by_name, reader->text.text, length);
  if (entry)
    return cursor_fail(cursor, at, "duplicate key \"%s\", which stands at byte %lld too", entry->key,
                       (long long)((FileTensor *)entry->value)->header_offset);
  if (reader->file->tensors.n == SAFETENSORS_MAX_TENSORS) return cursor_fail(cursor, at, "more than 1,000,000 tensors");
  FileTensor *tensor = ARENA_NEW(reader->arena, FileTensor);
  tensor->name = map_put_n(&reader->file->by_name, reader->text.text, length, tensor)->key;
  tensor->header_offset = at;
  vec_push(reader->arena, &reader->file->tensors, tensor);
  return cursor_expect(cursor, ':') && read_tensor(reader, tensor);
}

/* Nothing but blanks may follow the object: the format pads the header with spaces. */
static bool read_members(HeaderReader *reader) {
  JsonCursor *cursor = &reader->cursor;
  int64_t metadata_at = -1;
  if (!cursor_expect(cursor, '{')) return false;
  bool more = cursor_peek(cursor) != '}';
  if (!more && !cursor->failed) cursor->at++;
  while (more)
    if (!read_member(reader, &metadata_at) || !cursor_separator(cursor, '}', &more)) return false;
  if (cursor_peek(cursor) >= 0) return cursor_fail(cursor, cursor->at, "bytes after the closing brace");
  return !cursor->failed;
}

/* Fills tensors, metadata and by_name of `file`, whose data_begin and data_size are set. False after an error. The
 * cursor holds a piece of 32 KiB, so it is allocated and not put on the stack. */
static bool read_header(Arena *arena, Diag *diag, TensorFile *file, int64_t header_size) {
  Arena *scratch = arena_create(); /* holds the cursor and the last string */
  HeaderReader *reader = ARENA_NEW(scratch, HeaderReader);
  reader->arena = arena;
  reader->file = file;
  reader->text = strbuf_new(scratch);
  reader->cursor.diag = diag;
  reader->cursor.file = &file->file;
  reader->cursor.begin = 8;
  reader->cursor.size = header_size;
  bool read = read_members(reader);
  arena_destroy(scratch);
  return read;
}

// ---- the data ----

/* Tensors without elements may begin where another one does; the shorter range comes first, so that they tile too. */
static bool stands_before(const FileTensor *a, const FileTensor *b) {
  return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
}

/* Merge sort: stable, and n log n even for a file made to hurt. It recurses to a depth of 20 at most. */
static void sort_by_offset(const FileTensor **tensors, const FileTensor **scratch, size_t n) {
  if (n < 2) return;
  size_t half = n / 2;
  sort_by_offset(tensors, scratch, half);
  sort_by_offset(tensors + half, scratch, n - half);
  memcpy(scratch, tensors, half * sizeof *scratch);
  size_t i = 0, j = half, k = 0;
  while (i < half) tensors[k++] = j < n && stands_before(tensors[j], scratch[i]) ? tensors[j++] : scratch[i++];
}

static bool tiling_fault(Diag *diag, const TensorFile *file, DiagCode code, const FileTensor *tensor,
                         const char *fault) {
  diag_error_at(diag, file->file.path, code, "header byte %lld: tensor \"%s\": %s", (long long)tensor->header_offset,
                tensor->name, fault);
  return false;
}

/* Where a tensor of unknown type ends is unknown too, if its file does not say it: then anything may follow. */
bool tensor_file_check_tiling(Arena *arena, Diag *diag, const TensorFile *file, DiagCode code, int64_t alignment) {
  size_t n = file->tensors.n;
  const FileTensor **sorted = ARENA_ARRAY(arena, const FileTensor *, n);
  const FileTensor **scratch = ARENA_ARRAY(arena, const FileTensor *, n / 2 + 1);
  for (size_t i = 0; i < n; i++) sorted[i] = file->tensors.items[i];
  sort_by_offset(sorted, scratch, n);
  int64_t end = 0;
  bool is_known = true;
  for (size_t i = 0; i < n; end = sorted[i++]->end) {
    const FileTensor *tensor = sorted[i];
    long long begin = tensor->begin;
    if (begin < end)
      return tiling_fault(diag, file, code, tensor,
                          arena_printf(arena, "offsets [%lld, %lld) overlap \"%s\", which ends at %lld", begin,
                                       (long long)tensor->end, sorted[i - 1]->name, (long long)end));
    if (begin - end >= alignment && is_known)
      return tiling_fault(
          diag, file, code, tensor,
          arena_printf(arena, "a hole of %lld bytes before offset %lld", begin - (long long)end, begin));
    is_known = alignment == 1 || (tensor->dtype != FILE_UNKNOWN && (is_known || tensor->end > end));
  }
  return true;
}

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

/* No header is as long as eight letters say. */
static bool is_text(const unsigned char *bytes) {
  size_t n = 0;
  while (n < 8 && (bytes[n] == '\n' || bytes[n] == '\t' || (bytes[n] >= ' ' && bytes[n] < 0x7f))) n++;
  return n == 8;
}

static bool ends_in_tfm(const char *path) {
  const size_t n = strlen(path);
  return n > 4 && strcmp(path + n - 4, ".tfm") == 0;
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
  if (size > SAFETENSORS_MAX_HEADER && is_text(bytes)) {
    diag_error_at(diag, path, DIAG_SAFETENSORS, "this is a text, no safetensors file%s",
                  ends_in_tfm(path) ? ": `tfmc check` tells about a model" : "");
    return false;
  }
  if (size > SAFETENSORS_MAX_HEADER) {
    diag_error_at(diag, path, DIAG_SAFETENSORS,
                  "the header length is %llu; at most 100,000,000 bytes are allowed: is this a safetensors file?",
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
  return read_header(arena, diag, file, header_size) && check_tiling(arena, diag, file);
}

TensorFile *safetensors_open(Arena *arena, Diag *diag, const char *path) {
  TensorFile *file = ARENA_NEW(arena, TensorFile);
  if (!in_file_open(&file->file, diag, arena_strdup(arena, path))) return NULL;
  if (read_index(arena, diag, file)) return file;
  tensor_file_close(file);
  return NULL;
}
