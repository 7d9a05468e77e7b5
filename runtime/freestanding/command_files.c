/* Files of a command: read and written through WASI, tensors as safetensors.
 *
 * In: paths in folders that the engine has opened, of which the first that has the file counts; bytes of anybody. Out:
 * bytes and tensors in memory. Refused, by ending the process: what cannot be opened, read or written; a file that is
 * no safetensors file or has tensors that lie outside of it, of other types or of too many axes. */
#include "base/numbers.h"
#include "freestanding/command.h"
#include "freestanding/freestanding.h"
#include "freestanding/wasi.h"

enum { STANDARD_INPUT, STANDARD_OUTPUT, STANDARD_ERROR, FIRST_FOLDER, LEAST_READ = 1 << 16, MESSAGE = 700 };

static bool write_whole(uint32_t file, const char *data, uint64_t size) {
  while (size) {
    const WasiBytes part = {data, (uint32_t)size};
    uint32_t done = 0;
    if (wasi_fd_write(file, &part, 1, &done) || !done) return false;
    data += done;
    size -= done;
  }
  return true;
}

void command_fail(tfm_status code, const char *format, ...) {
  char text[MESSAGE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text - 1, format, arguments);
  va_end(arguments);
  const size_t n = strlen(text);
  text[n] = '\n';
  write_whole(STANDARD_ERROR, text, n + 1);
  wasi_proc_exit(code == TFM_E_INPUT ? 1 : code == TFM_E_USAGE ? 2 : code == TFM_E_NOMEM ? 4 : 3);
}

// ---- bytes ----

static uint32_t open_in_folders(const char *path, bool writes) {
  if (strcmp(path, "-") == 0) return writes ? STANDARD_OUTPUT : STANDARD_INPUT;
  const uint64_t rights = writes ? WASI_WRITE : WASI_READ | WASI_ASK;
  uint32_t file, error = WASI_NO_FILE;
  for (uint32_t folder = FIRST_FOLDER;; folder++) {
    const uint32_t how = writes ? WASI_CREATES | WASI_TRUNCATES : 0;
    error = wasi_path_open(folder, 1, path, (uint32_t)strlen(path), how, rights, 0, 0, &file);
    if (!error) return file;
    if (error == WASI_NO_FILE) break; /* that was no folder, so there are no more */
  }
  command_fail(TFM_E_ENV, "%s cannot be opened: is its folder one that the engine gives (wasmtime run --dir=.)?", path);
}

/* The room for what comes: a file's size and one byte more, so that its end is seen. */
static uint64_t room_for(uint32_t file) {
  WasiFile info;
  if (wasi_fd_filestat_get(file, &info) || info.size < LEAST_READ) return LEAST_READ;
  return info.size + 1;
}

static char *grown(char *data, uint64_t size, uint64_t room, const char *path) {
  enum { ALIGNMENT = 64 }; /* of weights */
  char *more = room < UINT32_MAX ? aligned_alloc(ALIGNMENT, (size_t)room) : NULL;
  if (!more) command_fail(TFM_E_NOMEM, "no memory for %s", path);
  if (size) memcpy(more, data, (size_t)size);
  free(data);
  return more;
}

CommandBytes command_read(const char *path) {
  const uint32_t file = open_in_folders(path, false);
  uint64_t room = room_for(file);
  CommandBytes bytes = {grown(NULL, 0, room, path), 0};
  for (uint32_t got = 1;; bytes.size += got) {
    if (bytes.size == room) {
      room *= 2;
      bytes.data = grown(bytes.data, bytes.size, room, path);
    }
    const WasiBytes part = {bytes.data + bytes.size, (uint32_t)(room - bytes.size)};
    if (wasi_fd_read(file, &part, 1, &got)) command_fail(TFM_E_ENV, "%s cannot be read", path);
    if (!got) return bytes;
  }
}

// ---- the header of a safetensors file: JSON ----

typedef struct Text {
  const char *at, *end, *path;
} Text;

static _Noreturn void broken(const Text *text) {
  command_fail(TFM_E_INPUT, "%s is no safetensors file, or it is damaged", text->path);
}

static char next(Text *text) {
  while (text->at < text->end && (*text->at == ' ' || *text->at == '\n' || *text->at == '\t' || *text->at == '\r'))
    text->at++;
  return text->at < text->end ? *text->at : 0;
}

static void expect(Text *text, char what) {
  if (next(text) != what) broken(text);
  text->at++;
}

static bool took(Text *text, char what) {
  if (next(text) != what) return false;
  text->at++;
  return true;
}

/* The characters between the quotes as they stand there: a name with escapes is none of a model. */
static const char *take_string(Text *text, uint32_t *length) {
  expect(text, '"');
  const char *from = text->at;
  while (text->at < text->end && *text->at != '"') text->at += *text->at == '\\' ? 2 : 1;
  if (text->at >= text->end) broken(text);
  *length = (uint32_t)(text->at++ - from);
  return from;
}

static int64_t take_count(Text *text) {
  int64_t value = 0;
  if (next(text) < '0' || next(text) > '9') broken(text);
  for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *text->at - '0', &value))
      broken(text);
  return value;
}

static uint32_t take_numbers(Text *text, int64_t *numbers, uint32_t most) {
  uint32_t n = 0;
  expect(text, '[');
  while (next(text) != ']') {
    if (n == most) broken(text);
    numbers[n++] = take_count(text);
    if (!took(text, ',')) break;
  }
  expect(text, ']');
  return n;
}

static bool is_text(const char *text, uint32_t length, const char *other) {
  return strlen(other) == length && memcmp(text, other, length) == 0;
}

static const struct {
  const char *name;
  uint32_t bytes;
} dtypes[] = {{"F32", 4}, {"I32", 4}, {"BOOL", 1}}; /* by tfm_dtype */
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

int64_t command_elements(const CommandTensor *tensor) {
  int64_t n = 1;
  for (int32_t i = 0; i < tensor->rank; i++)
    if (__builtin_mul_overflow(n, tensor->dims[i], &n)) return -1;
  return n;
}

/* {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, the members in any order. */
static void take_tensor(Text *text, CommandTensor *tensor, const CommandBytes *data) {
  int64_t offsets[2] = {0, -1};
  expect(text, '{');
  do {
    uint32_t length;
    const char *key = take_string(text, &length);
    expect(text, ':');
    if (is_text(key, length, "dtype")) {
      const char *dtype = take_string(text, &length);
      while (tensor->dtype < N_DTYPES && !is_text(dtype, length, dtypes[tensor->dtype].name)) tensor->dtype++;
      if (tensor->dtype == N_DTYPES)
        command_fail(TFM_E_INPUT, "%s: %.*s is %.*s; inputs are F32, I32 or BOOL", text->path, (int)tensor->length,
                     tensor->name, (int)length, dtype);
    } else if (is_text(key, length, "shape")) {
      tensor->rank = (int32_t)take_numbers(text, tensor->dims, TFM_MAX_RANK);
    } else if (is_text(key, length, "data_offsets")) {
      if (take_numbers(text, offsets, 2) != 2) broken(text);
    } else {
      broken(text);
    }
  } while (took(text, ','));
  expect(text, '}');
  const int64_t n = command_elements(tensor);
  const int64_t size = offsets[1] - offsets[0], width = dtypes[tensor->dtype].bytes;
  if (n < 0 || size < 0 || (uint64_t)offsets[1] > data->size || size / width != n || size % width) broken(text);
  tensor->data = data->data + offsets[0];
}

/* Texts by name, which are passed over. */
static void take_metadata(Text *text) {
  uint32_t length;
  expect(text, '{');
  while (next(text) == '"') {
    take_string(text, &length);
    expect(text, ':');
    take_string(text, &length);
    if (!took(text, ',')) break;
  }
  expect(text, '}');
}

void command_read_tensors(const char *path, CommandTensors *tensors) {
  const CommandBytes bytes = command_read(path);
  uint64_t size = 0;
  Text text = {.path = path};
  if (bytes.size < sizeof size) broken(&text);
  memcpy(&size, bytes.data, sizeof size);
  if (size > bytes.size - sizeof size) broken(&text);
  text.at = bytes.data + sizeof size;
  text.end = text.at + size;
  const CommandBytes data = {bytes.data + sizeof size + size, bytes.size - sizeof size - size};
  expect(&text, '{');
  while (next(&text) == '"') {
    CommandTensor *tensor = &tensors->items[tensors->n];
    if (tensors->n == MOST_COMMAND_TENSORS) command_fail(TFM_E_INPUT, "%s has too many tensors", path);
    *tensor = (CommandTensor){.dtype = 0};
    tensor->name = take_string(&text, &tensor->length);
    expect(&text, ':');
    if (is_text(tensor->name, tensor->length, "__metadata__")) {
      take_metadata(&text);
    } else {
      take_tensor(&text, tensor, &data);
      tensors->n++;
    }
    if (!took(&text, ',')) break;
  }
  expect(&text, '}');
}

// ---- writing ----

static void append_bytes(char **to, const char *text, size_t n) {
  memcpy(*to, text, n);
  *to += n;
}

/* "name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]} */
static void describe(char **to, const CommandTensor *tensor, int64_t *offset) {
  enum { NUMBER = 24 };
  char text[NUMBER * (TFM_MAX_RANK + 4)];
  append_bytes(to, "\"", 1);
  append_bytes(to, tensor->name, tensor->length);
  const char *dtype = dtypes[tensor->dtype].name;
  append_bytes(to, text, (size_t)snprintf(text, sizeof text, "\":{\"dtype\":\"%s\",\"shape\":[", dtype));
  for (int32_t i = 0; i < tensor->rank; i++)
    append_bytes(to, text, (size_t)snprintf(text, sizeof text, i ? ",%lld" : "%lld", (long long)tensor->dims[i]));
  const int64_t end = *offset + command_elements(tensor) * dtypes[tensor->dtype].bytes;
  const int n = snprintf(text, sizeof text, "],\"data_offsets\":[%lld,%lld]}", (long long)*offset, (long long)end);
  append_bytes(to, text, (size_t)n);
  *offset = end;
}

void command_write_tensors(const char *path, const CommandTensors *tensors) {
  enum { OF_EACH = 400, BEGIN = sizeof(uint64_t) };
  size_t room = BEGIN + 16;
  for (uint32_t i = 0; i < tensors->n; i++) room += tensors->items[i].length + OF_EACH;
  char *header = grown(NULL, 0, room, path), *at = header + BEGIN;
  int64_t offset = 0;
  append_bytes(&at, "{", 1);
  for (uint32_t i = 0; i < tensors->n; i++) {
    if (i) append_bytes(&at, ",", 1);
    describe(&at, &tensors->items[i], &offset);
  }
  append_bytes(&at, "}", 1);
  while ((at - header) % BEGIN) append_bytes(&at, " ", 1);
  const uint64_t size = (uint64_t)(at - header - BEGIN);
  memcpy(header, &size, sizeof size);
  const uint32_t file = open_in_folders(path, true);
  bool ok = write_whole(file, header, BEGIN + size);
  for (uint32_t i = 0; i < tensors->n && ok; i++) {
    const CommandTensor *tensor = &tensors->items[i];
    ok = write_whole(file, tensor->data, (uint64_t)command_elements(tensor) * dtypes[tensor->dtype].bytes);
  }
  if (!ok) command_fail(TFM_E_ENV, "%s cannot be written", path);
}
