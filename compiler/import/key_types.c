/* Kinds of values of keys, and values of keys that are missing. See key_types.h. */
#include "import/key_types.h"

#include <string.h>

#include "import/value_kinds.h"
#include "import/value_text.h"

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
  const char *wanted = kinds_described(arena, words);
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
    if (!value || value_is_of(value, row->kinds)) continue;
    if (!folder->ignored || !map_has(folder->ignored, name)) report(arena, diag, folder, name, value, row->kinds);
  }
}

/* A type of a row is the config's, or it is that of an object of it: "clip.text_config". */
static void check_type(Arena *arena, Diag *diag, const Folder *folder, const json_t *config, Word of,
                       const KeyType *row) {
  const char *type = json_string_value(json_object_get(config, "model_type"));
  const size_t length = strlen(type);
  if (is_word(of, type)) {
    check_row(arena, diag, folder, config, "", row);
  } else if (of.length > length && strncmp(of.start, type, length) == 0 && of.start[length] == '.') {
    const char *part = arena_strndup(arena, of.start + length + 1, of.length - length - 1);
    const json_t *object = json_object_get(config, part);
    if (json_is_object(object)) check_row(arena, diag, folder, object, arena_printf(arena, "%s.", part), row);
  }
}

bool key_types_check(Arena *arena, Diag *diag, const Folder *folder) {
  const int before = diag->n_errors;
  for (size_t i = 0; i < N_ROWS; i++) {
    const char *at = rows[i].types;
    for (Word word = next_word(&at, ' '); word.length; word = next_word(&at, ' ')) {
      check_type(arena, diag, folder, folder->written, word, &rows[i]);
      if (folder->whole) check_type(arena, diag, folder, folder->whole, word, &rows[i]);
    }
  }
  return diag->n_errors == before;
}

// ---- keys that are missing ----

static bool has_word(const char *words, const char *text) {
  for (Word word = next_word(&words, ' '); word.length; word = next_word(&words, ' '))
    if (is_word(word, text)) return true;
  return false;
}

json_t *key_default(const char *type, const char *key) {
  static const struct {
    const char *value, *types, *keys;
  } defaults[] = {
#define KEY_DEFAULT(value, types, keys) {value, types, keys},
#include "import/key_defaults.def"
  };
  for (size_t i = 0; type && i < sizeof defaults / sizeof *defaults; i++)
    if (has_word(defaults[i].types, type) && has_word(defaults[i].keys, key))
      return json_loads(defaults[i].value, JSON_DECODE_ANY, NULL);
  return NULL;
}
