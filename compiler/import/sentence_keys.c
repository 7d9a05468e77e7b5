/* Keys of the files of sentence transformers. See sentence_keys.h. */
#include "import/sentence_keys.h"

#include <string.h>

#include "import/value_kinds.h"
#include "import/value_text.h"

typedef enum KeyRule { READ, NOTHING, ONLY, PYLATE } KeyRule;

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

static const SentenceKey *key_row(SentenceFile file, const char *key) {
  for (size_t i = 0; i < sizeof sentence_keys / sizeof *sentence_keys; i++)
    if (sentence_keys[i].file == file && strcmp(sentence_keys[i].key, key) == 0) return &sentence_keys[i];
  return NULL;
}

#define THE_BODY \
  "a copy of the folder without modules.json gives the states before it (--task hidden), the rest is for the program"
#define OF_TORCH                                                                                                  \
  "in Python tfmc.from_torch takes the torch modules: a module whose forward calls all of them on a dict of its " \
  "inputs"
#define ROUTES "chooses other modules for each task: import a folder with those of one, its modules.json listing them"

static const char *const other_modules[][2] = {
#define OTHER_MODULE(name, what) {name, what},
#include "import/other_modules.def"
};

const char *sentence_what_instead(const char *name) {
  for (size_t i = 0; i < sizeof other_modules / sizeof *other_modules; i++)
    if (strcmp(other_modules[i][0], name) == 0) return other_modules[i][1];
  return "is not known here; Transformer, Pooling, Dense, LayerNorm, Normalize, Dropout, LogitScore, SpladePooling, "
         "MultiVectorMask and StaticEmbedding are; " OF_TORCH;
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

/* Whether a value is one for its row, which is NULL if there is none. */
static bool is_fine(Arena *arena, SentenceFile file, const SentenceKey *row, const json_t *value) {
  if (!row) return json_is_null(value) && (file == Modules || file == Encoder);
  if (row->rule == PYLATE) return false;
  if (row->rule == ONLY) return is_one_of(arena, value, row->values);
  return !*row->values || value_is_of(value, row->values);
}

void sentence_check_keys(Arena *arena, Diag *diag, const Map *ignored, SentenceFile file, const char *path,
                         const json_t *object) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    const SentenceKey *row = key_row(file, key);
    if ((ignored && map_has(ignored, key)) || is_fine(arena, file, row, value)) continue;
    StrBuf shown = strbuf_new(arena);
    value_print(&shown, value);
    if (row && row->rule == ONLY)
      diag_error_at(diag, path, DIAG_CHECKPOINT, "\"%s\" is %s; only %s is computed here", key, shown.text,
                    row->values);
    else if (row && row->rule == PYLATE)
      diag_error_at(diag, path, DIAG_CHECKPOINT,
                    "\"%s\": PyLate wrote it, and sentence_transformers makes settings of its own of it; "
                    "sentence_transformers.MultiVectorEncoder(FOLDER).save_pretrained(NEW) writes them down",
                    key);
    else if (row)
      diag_error_at(diag, path, DIAG_CHECKPOINT, "\"%s\" is %s (%s), and must be %s; --ignore %s passes over it", key,
                    value_kind(value), shown.text, kinds_described(arena, row->values), key);
    else
      diag_error_at(diag, path, DIAG_CHECKPOINT,
                    "nothing reads \"%s\" (%s): if it changes what the model computes, the result is wrong; "
                    "--ignore %s says that it does not",
                    key, shown.text, key);
  }
}

void sentence_check_version(Diag *diag, const char *path, const json_t *encoder) {
  const json_t *said = json_object_get(json_object_get(encoder, "__version__"), "sentence_transformers");
  const char *text = json_string_value(said), *first = text && *text == 'v' ? text + 1 : text;
  const bool is_good = first && *first >= '0' && *first <= '9' &&
                       !first[strspn(first, "0123456789.+!-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")];
  if (said && !is_good)
    diag_error_at(diag, path, DIAG_CHECKPOINT, "\"__version__\": that of sentence_transformers is no version");
}

void sentence_check_expansion(Diag *diag, const char *path, const json_t *expansion) {
  static const char *const keys[] = {"strategy", "attend", "token", "length"};
  const json_t *attend = json_object_get(expansion, "attend"), *length = json_object_get(expansion, "length");
  const char *strategy = json_string_value(json_object_get(expansion, "strategy"));
  size_t n_known = 0;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) n_known += json_object_get(expansion, keys[i]) != NULL;
  const bool is_good = n_known == json_object_size(expansion) && (!attend || json_is_boolean(attend)) &&
                       json_is_integer(length) && json_integer_value(length) > 0 && strategy &&
                       (strcmp(strategy, "fixed") == 0 || strcmp(strategy, "min") == 0);
  if (expansion && !json_is_null(expansion) && !is_good)
    diag_error_at(diag, path, DIAG_CHECKPOINT,
                  "\"query_expansion\": a strategy (fixed or min), a length from 1 on, a token and attend (true or "
                  "false) are known");
}
