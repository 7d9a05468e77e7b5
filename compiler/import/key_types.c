/* Kinds of values of keys. See key_types.h. */
#include "import/key_types.h"

#include <string.h>

#include "import/json_file.h"
#include "import/value_text.h"

// ---- lists of words ----

typedef struct Word {
  const char *start;
  size_t length;
} Word;

/* The next word of a list, of length 0 at its end; `at` moves behind it. */
static Word next_word(const char **at, char separator) {
  while (**at == separator) (*at)++;
  const char *end = strchr(*at, separator);
  const Word word = {*at, end ? (size_t)(end - *at) : strlen(*at)};
  *at += word.length;
  return word;
}

static bool is_word(Word word, const char *text) {
  return strlen(text) == word.length && strncmp(word.start, text, word.length) == 0;
}

// ---- kinds ----

static bool is_null(const json_t *value) { return json_is_null(value); }
static bool is_bool(const json_t *value) { return json_is_boolean(value); }
static bool is_int(const json_t *value) { return json_is_integer(value); }
static bool is_float(const json_t *value) { return json_is_real(value); }
static bool is_str(const json_t *value) { return json_is_string(value); }
static bool is_list(const json_t *value) { return json_is_array(value); }
static bool is_dict(const json_t *value) { return json_is_object(value); }

static bool are_all(const json_t *list, bool (*is_kind)(const json_t *)) {
  size_t i;
  json_t *item;
  json_array_foreach(list, i, item) if (!is_kind(item)) return false;
  return json_is_array(list);
}

static bool are_dicts(const json_t *value) {
  const char *key;
  json_t *item;
  json_object_foreach((json_t *)value, key, item) if (!json_is_object(item)) return false;
  return json_is_object(value);
}

static bool is_real(const json_t *value) { return json_is_real(value) || json_infinity(value); }
static bool are_reals(const json_t *value) { return are_all(value, is_real); }
static bool are_ints(const json_t *value) { return are_all(value, is_int); }
static bool are_strs(const json_t *value) { return are_all(value, is_str); }

static const struct {
  const char *word, *text;
  bool (*fits)(const json_t *value);
} kinds[] = {
    {"null", "null", is_null},
    {"bool", "true or false", is_bool},
    {"int", "a whole number", is_int},
    {"float", "a number with a fraction (1.0, not 1)", is_float},
    {"str", "a string", is_str},
    {"list", "a list", is_list},
    {"list[int]", "a list of whole numbers", are_ints},
    {"list[float]", "a list of numbers with fractions", are_reals},
    {"list[str]", "a list of strings", are_strs},
    {"dict", "an object", is_dict},
    {"dict[dict]", "an object of objects", are_dicts},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* A kind, or 'a text'. */
static bool fits(const json_t *value, Word word) {
  const char *text = json_string_value(value);
  if (*word.start == '\'')
    return text && strlen(text) == word.length - 2 && strncmp(word.start + 1, text, word.length - 2) == 0;
  for (size_t i = 0; i < N_KINDS; i++)
    if (is_word(word, kinds[i].word)) return kinds[i].fits(value);
  return false;
}

static bool fits_one(const json_t *value, const char *words) {
  for (Word word = next_word(&words, '|'); word.length; word = next_word(&words, '|'))
    if (fits(value, word)) return true;
  return false;
}

static const char *described(Arena *arena, const char *words) {
  StrBuf out = strbuf_new(arena);
  for (Word word = next_word(&words, '|'); word.length; word = next_word(&words, '|')) {
    const char *text = arena_strndup(arena, word.start, word.length);
    for (size_t i = 0; i < N_KINDS; i++)
      if (is_word(word, kinds[i].word)) text = kinds[i].text;
    strbuf_printf(&out, "%s%s", out.length ? " or " : "", text);
  }
  return out.text;
}

// ---- keys ----

typedef struct KeyType {
  const char *kinds, *types, *keys;
} KeyType;

static const KeyType rows[] = {
#define KEY_TYPE(kinds, types, keys) {kinds, types, keys},
#include "import/key_types.def"
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static void report(Arena *arena, Diag *diag, const Folder *folder, const char *name, const json_t *value,
                   const char *words) {
  const char *wanted = described(arena, words);
  StrBuf shown = strbuf_new(arena);
  value_print(&shown, value);
  if (json_is_null(value))
    diag_error_at(diag, folder->config_path, DIAG_CHECKPOINT,
                  "\"%s\" is null, and a value is needed: %s; take the key out, or --ignore %s", name, wanted, name);
  else
    diag_error_at(diag, folder->config_path, DIAG_CHECKPOINT,
                  "\"%s\" is %s (%s), and must be %s; --ignore %s passes over it", name, value_kind(value),
                  shown.text, wanted, name);
}

/* The keys of a row in an object; `path`: "" or that of the object with a dot behind it. */
static void check_row(Arena *arena, Diag *diag, const Folder *folder, const json_t *object, const char *path,
                      const KeyType *row) {
  const char *at = row->keys;
  for (Word word = next_word(&at, ' '); word.length; word = next_word(&at, ' ')) {
    const char *key = arena_strndup(arena, word.start, word.length), *name = arena_printf(arena, "%s%s", path, key);
    const json_t *value = json_object_get(object, key);
    if (!value || fits_one(value, row->kinds)) continue;
    if (!folder->ignored || !map_has(folder->ignored, name)) report(arena, diag, folder, name, value, row->kinds);
  }
}

/* A type of a row is the folder's, or it is that of an object of it: "clip.text_config". */
static void check_type(Arena *arena, Diag *diag, const Folder *folder, Word of, const KeyType *row) {
  const char *type = json_string_value(json_object_get(folder->written, "model_type"));
  const size_t length = strlen(type);
  if (is_word(of, type)) {
    check_row(arena, diag, folder, folder->written, "", row);
  } else if (of.length > length && strncmp(of.start, type, length) == 0 && of.start[length] == '.') {
    const char *part = arena_strndup(arena, of.start + length + 1, of.length - length - 1);
    const json_t *object = json_object_get(folder->written, part);
    if (json_is_object(object)) check_row(arena, diag, folder, object, arena_printf(arena, "%s.", part), row);
  }
}

bool key_types_check(Arena *arena, Diag *diag, const Folder *folder) {
  const int before = diag->n_errors;
  for (size_t i = 0; i < N_ROWS; i++) {
    const char *at = rows[i].types;
    for (Word word = next_word(&at, ' '); word.length; word = next_word(&at, ' '))
      check_type(arena, diag, folder, word, &rows[i]);
  }
  return diag->n_errors == before;
}
