/* modules.json and the files of its modules. See sentence.h.
 *
 * Read is a Transformer in the folder itself, a Pooling, and a Normalize behind it; or a Transformer alone, whose task
 * is then that of its class (a cross encoder). */
#include "import/sentence.h"

#include <string.h>

#include "import/expression.h"
#include "import/json_file.h"

typedef enum SentenceFile { Modules, Pooling, Normalize, Bert, Encoder } SentenceFile;
typedef enum KeyRule { READ, NOTHING, ONLY } KeyRule;

typedef struct SentenceKey {
  SentenceFile file;
  const char *key;
  KeyRule rule;
  const char *values;
} SentenceKey;

static const SentenceKey sentence_keys[] = {
#define SENTENCE_KEY(file, key, rule, values) {file, key, rule, values},
#include "import/sentence_keys.def"
};

typedef struct Reader {
  Arena *arena;
  Diag *diag;
  const char *folder;
  const Map *ignored;
  json_t *sentence; /* what is found */
} Reader;

// ---- an account of keys ----

static const SentenceKey *key_row(SentenceFile file, const char *key) {
  for (size_t i = 0; i < sizeof sentence_keys / sizeof *sentence_keys; i++)
    if (sentence_keys[i].file == file && strcmp(sentence_keys[i].key, key) == 0) return &sentence_keys[i];
  return NULL;
}

/* Whether the value is one of some, JSON with | between. */
static bool is_one_of(Arena *arena, const json_t *value, const char *values) {
  bool found = false;
  for (const char *begin = values; !found && *begin;) {
    size_t length = strcspn(begin, "|");
    json_t *one = json_loads(arena_strndup(arena, begin, length), JSON_DECODE_ANY, NULL);
    found = one && json_equal(one, value);
    json_decref(one);
    begin += length + (begin[length] == '|');
  }
  return found;
}

static void check_keys(const Reader *r, SentenceFile file, const char *path, const json_t *object) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    const SentenceKey *row = key_row(file, key);
    if (json_is_null(value) || (r->ignored && map_has(r->ignored, key))) continue;
    if (row && (row->rule != ONLY || is_one_of(r->arena, value, row->values))) continue;
    StrBuf shown = strbuf_new(r->arena);
    value_print(&shown, value);
    if (row)
      diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"%s\" is %s; only %s is computed here", key, shown.text,
                    row->values);
    else
      diag_error_at(r->diag, path, DIAG_CHECKPOINT,
                    "nothing reads \"%s\" (%s): if it changes what the model computes, the result is wrong; "
                    "--ignore %s says that it does not",
                    key, shown.text, key);
  }
}

/* The keys of a file that may be missing; the caller owns what is returned, which is NULL then. */
static json_t *checked_file(const Reader *r, SentenceFile file, const char *path) {
  json_t *object = file_exists(path) ? read_json(r->arena, r->diag, path, JSON_OBJECT) : NULL;
  if (object) check_keys(r, file, path, object);
  return object;
}

// ---- modules ----

/* "mean" of {"pooling_mode_mean_tokens": true, ...}, or of {"pooling_mode": "mean"}; "other" if several are set. */
static const char *pooling_of(const json_t *pooling) {
  static const char *const modes[][2] = {{"pooling_mode_cls_token", "cls"},
                                         {"pooling_mode_mean_tokens", "mean"},
                                         {"pooling_mode_max_tokens", "max"},
                                         {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len"},
                                         {"pooling_mode_weightedmean_tokens", "weightedmean"},
                                         {"pooling_mode_lasttoken", "lasttoken"}};
  const json_t *named = json_object_get(pooling, "pooling_mode");
  const char *found = json_is_array(named) && json_array_size(named) == 1
                          ? json_string_value(json_array_get(named, 0))
                          : json_string_value(named);
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    if (json_is_true(json_object_get(pooling, modes[i][0])))
      found = found && strcmp(found, modes[i][1]) != 0 ? "other" : modes[i][1];
  return found ? found : "other";
}

/* What the type of a module says: "Pooling" of "sentence_transformers.models.Pooling"; other code's name as a whole. */
static const char *kind_of(const json_t *module) {
  const char *type = json_string_value(json_object_get(module, "type"));
  if (!type) return "without a type";
  const char *dot = strrchr(type, '.');
  return dot && strncmp(type, "sentence_transformers.", 22) == 0 ? dot + 1 : type;
}

static bool refuse_module(const Reader *r, const char *path, const char *kind, const char *why) {
  diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"type\": a module %s %s", kind, why);
  return false;
}

/* The module wants one of the two names of its width, though no number depends on it. */
static bool has_width(const json_t *pooling) {
  return json_object_get(pooling, "word_embedding_dimension") || json_object_get(pooling, "embedding_dimension");
}

static bool add_pooling(const Reader *r, const char *path) {
  json_t *pooling = checked_file(r, Pooling, path);
  if (!pooling) {
    if (!file_exists(path))
      diag_error_at(r->diag, path, DIAG_CHECKPOINT, "there is no such file; it says how is pooled");
    return false;
  }
  if (!has_width(pooling))
    diag_error_at(r->diag, path, DIAG_CHECKPOINT,
                  "\"word_embedding_dimension\" is missing; a Pooling is not made without it");
  json_object_set_new(r->sentence, "pooling", json_string(pooling_of(pooling)));
  json_decref(pooling);
  return true;
}

/* Adds what one module does; `i`: its place. False after an error. */
static bool add_module(const Reader *r, const char *modules, const json_t *module, size_t i) {
  static const char *const order[] = {"Transformer", "Pooling", "Normalize"};
  const char *kind = kind_of(module), *path = json_string_value(json_object_get(module, "path"));
  check_keys(r, Modules, modules, module);
  size_t known = 0;
  while (known < 3 && strcmp(kind, order[known]) != 0) known++;
  if (known == 3) return refuse_module(r, modules, kind, "is not known here; Transformer, Pooling and Normalize are");
  if (known != i)
    return refuse_module(r, modules, kind, "stands in another place than Transformer, Pooling, Normalize");
  if (!path || strchr(path, '/') || *path == '.' || (i == 1 && !*path))
    return refuse_module(r, modules, kind, "has no \"path\" of a folder in this one");
  if (i == 0 && *path)
    return refuse_module(r, modules, kind,
                         arena_printf(r->arena,
                                      "lies in \"%s\": copy the files of that folder beside modules.json, and write "
                                      "\"path\": \"\"",
                                      path));
  const char *config = folder_file(r->arena, folder_file(r->arena, r->folder, path), "config.json");
  if (i == 1) return add_pooling(r, config);
  if (i == 2) {
    json_decref(*path ? checked_file(r, Normalize, config) : NULL);
    json_object_set_new(r->sentence, "normalize", json_true());
  }
  return true;
}

/* A Transformer alone gives what its class gives, if that is said. */
static void check_alone(const Reader *r, const json_t *modules, const char *task, const char *path) {
  const bool is_alone = json_array_size(modules) < 2;
  const bool is_body = !task || strcmp(task, "feature-extraction") == 0;
  if (is_alone && (!task || strcmp(task, "sequence-classification") != 0))
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "there is no module Pooling, which makes one vector of a text");
  if (!is_alone && !is_body)
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"transformer_task\" of the model is %s; poolings are of "
                  "feature-extraction", task);
}

json_t *sentence_read(Arena *arena, Diag *diag, const char *folder, const Map *ignored) {
  const char *path = folder_file(arena, folder, "modules.json");
  Reader r = {arena, diag, folder, ignored, json_object()};
  if (!file_exists(path)) return r.sentence;
  json_t *modules = read_json(arena, diag, path, JSON_ARRAY), *module;
  bool is_good = modules != NULL;
  size_t i;
  json_object_set_new(r.sentence, "normalize", json_false());
  json_array_foreach(modules, i, module) is_good = is_good && add_module(&r, path, module, i);
  json_t *bert = checked_file(&r, Bert, folder_file(arena, folder, "sentence_bert_config.json"));
  const char *task = json_string_value(json_object_get(bert, "transformer_task"));
  if (is_good) check_alone(&r, modules, task, path);
  json_decref(bert);
  json_decref(checked_file(&r, Encoder, folder_file(arena, folder, "config_sentence_transformers.json")));
  json_decref(modules);
  if (is_good && !diag_has_errors(diag)) return r.sentence;
  json_decref(r.sentence);
  return NULL;
}
