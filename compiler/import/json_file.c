/* Files of JSON in the folder of a checkpoint. See json_file.h. */
#include "import/json_file.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "weights/files.h"

/* A configuration has some kilobytes; a tokenizer.json, which is not read, has ten megabytes. */
enum { MAX_CONFIG_BYTES = 16 << 20 };

const char *folder_file(Arena *arena, const char *folder, const char *name) {
  size_t length = strlen(folder);
  return arena_printf(arena, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
}

bool file_exists(const char *path) {
  struct stat status;
  return stat(path, &status) == 0;
}

/* The key whose value stands at a place: the last string before it that a colon follows. "": there is none. */
static const char *key_before(Arena *arena, const char *text, size_t place) {
  while (place > 0 && text[place - 1] != ':') place--;
  while (place > 0 && text[place - 1] != '"') place--;
  size_t end = place ? place - 1 : 0, begin = end;
  while (begin > 0 && text[begin - 1] != '"' && text[begin - 1] != '\n') begin--;
  return arena_strndup(arena, text + begin, end - begin);
}

/* Python writes infinities and NaN into JSON, which has no such numbers. What is said of it, or "". */
static const char *not_finite(Arena *arena, const char *text, size_t size, size_t place) {
  static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
  if (place > size) place = size;
  while (place > 0 && (isalpha((unsigned char)text[place - 1]) || text[place - 1] == '-')) place--;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strncmp(text + place, words[i], strlen(words[i])) == 0)
      return arena_printf(arena, "; \"%s\" is %s, which is no number of JSON and which nothing here computes with",
                          key_before(arena, text, place), words[i]);
  return "";
}

// ---- numbers that JSON does not have ----

static bool is_infinity(const char *text, size_t left) {
  static const char word[] = "Infinity";
  return left >= sizeof word - 1 && memcmp(text, word, sizeof word - 1) == 0;
}

/* Infinities as the objects that transformers writes since 5.0, {"__float__": "Infinity"}, in place of Python's own
 * spelling. NULL: the text has none. */
static const char *with_tagged_infinities(Arena *arena, const char *text, size_t *length) {
  const size_t size = *length;
  StrBuf out = strbuf_new(arena);
  size_t copied = 0;
  bool in_string = false;
  for (size_t i = 0; i < size; i++) {
    if (in_string && text[i] == '\\') i++;
    else if (text[i] == '"') in_string = !in_string;
    if (in_string || i >= size || !is_infinity(text + i, size - i)) continue;
    const bool is_negative = i > copied && text[i - 1] == '-';
    strbuf_add_n(&out, text + copied, i - copied - is_negative);
    strbuf_printf(&out, "{\"__float__\": \"%sInfinity\"}", is_negative ? "-" : "");
    copied = i + strlen("Infinity");
    i = copied - 1;
  }
  if (!copied) return NULL;
  strbuf_add_n(&out, text + copied, size - copied);
  *length = out.length;
  return out.text;
}

int json_infinity(const json_t *value) {
  const char *text = json_is_object(value) && json_object_size(value) == 1
                         ? json_string_value(json_object_get(value, "__float__"))
                         : NULL;
  if (!text) return 0;
  return strcmp(text, "Infinity") == 0 ? 1 : strcmp(text, "-Infinity") == 0 ? -1 : 0;
}

/* A key that stands twice is refused: readers differ in which one they take. */
static json_t *parsed(Arena *arena, Diag *diag, const char *path, json_type kind, const char *text, size_t size) {
  json_error_t error;
  json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  if (json && json_typeof(json) == kind) return json;
  const char *place = error.line > 0 ? arena_printf(arena, "%s:%d:%d", path, error.line, error.column) : path;
  if (!json)
    diag_error_at(diag, place, DIAG_CHECKPOINT, "this is not JSON: %s%s", error.text,
                  not_finite(arena, text, size, error.position > 0 ? (size_t)error.position : 0));
  else
    diag_error_at(diag, path, DIAG_CHECKPOINT, "%s is expected", kind == JSON_OBJECT ? "an object" : "a list");
  json_decref(json);
  return NULL;
}

json_t *read_json(Arena *arena, Diag *diag, const char *path, json_type kind) {
  size_t size;
  const char *text = in_file_text(diag, path, MAX_CONFIG_BYTES, DIAG_CHECKPOINT, &size);
  return text ? parsed(arena, diag, path, kind, text, size) : NULL;
}

json_t *read_config(Arena *arena, Diag *diag, const char *path) {
  size_t size;
  const char *text = in_file_text(diag, path, MAX_CONFIG_BYTES, DIAG_CHECKPOINT, &size);
  const char *tagged = text ? with_tagged_infinities(arena, text, &size) : NULL;
  return text ? parsed(arena, diag, path, JSON_OBJECT, tagged ? tagged : text, size) : NULL;
}
