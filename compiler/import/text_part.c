/* The text part of a folder. See text_part.h. */
#include "import/text_part.h"

#include <string.h>

#include "base/strbuf.h"

typedef struct TextPart {
  const char *type, *part_type, *whole_class, *part_class;
  bool is_tied, is_flat, is_model;
  const char *keys;
} TextPart;

static const TextPart text_parts[] = {
#define TEXT_PART(type, part_type, whole_class, part_class, is_tied, is_flat, is_model, keys) \
  {type, part_type, whole_class, part_class, is_tied, is_flat, is_model, keys},
#include "import/text_parts.def"
};

/* The row of the type whose part is of that type; if none is, or the part does not say, the first row of the type. */
static const TextPart *part_of(const json_t *config, const char *part_type) {
  const char *type = json_string_value(json_object_get(config, "model_type"));
  const TextPart *first = NULL;
  for (size_t i = 0; type && i < sizeof text_parts / sizeof *text_parts; i++) {
    if (strcmp(text_parts[i].type, type) != 0) continue;
    if (part_type && strcmp(text_parts[i].part_type, part_type) == 0) return &text_parts[i];
    first = first ? first : &text_parts[i];
  }
  return first;
}

static bool is_listed(const char *keys, const char *key) {
  const size_t length = strlen(key);
  for (const char *at = strstr(keys, key); at; at = strstr(at + 1, key))
    if ((at == keys || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
  return false;
}

/* Keys that are given to the part one by one. */
static bool is_settled(const char *key) {
  return is_listed("text_config model_type architectures tie_word_embeddings", key);
}

/* Keys that the whole has as well as the part, each for itself; of some the part's own change nothing. */
static bool is_of_each(const char *key) {
  static const char keys[] =
      "_name_or_path transformers_version dtype torch_dtype "
      "use_cache output_attentions output_hidden_states initializer_range";
  return is_settled(key) || is_listed(keys, key);
}

/* The class of the part if the config names that of the whole; another class is left for the family to refuse. */
static json_t *class_of_part(const TextPart *row, const json_t *config) {
  json_t *classes = json_object_get(config, "architectures");
  const char *class = json_string_value(json_array_get(classes, 0));
  if (!class || strcmp(class, row->whole_class) != 0) return json_incref(classes);
  return json_pack("[s]", row->part_class);
}

/* Tokens that the whole says count where the part has null. */
static bool is_token(const char *key) { return is_listed("bos_token_id eos_token_id pad_token_id", key); }

/* Those that only rows that are written begin or end with: what the whole says of them counts in any case. */
static bool is_written(const char *key) { return is_listed("bos_token_id eos_token_id", key); }

/* Null is what the part says, too, such as that there is no window. */
static bool take_key(Diag *diag, const char *path, json_t *part, const char *key, json_t *value) {
  json_t *own = json_object_get(part, key);
  if (!own || (json_is_null(own) && is_token(key))) return json_object_set(part, key, value) == 0;
  if (json_is_null(value) || json_equal(own, value)) return true;
  if (is_written(key)) return json_object_set(part, key, value) == 0;
  diag_error_at(diag, path, DIAG_CHECKPOINT, "\"%s\" and \"text_config.%s\" contradict each other: take one out", key,
                key);
  return false;
}

static void report_other_part(Diag *diag, const char *path, const char *type) {
  StrBuf types = strbuf_new(diag->arena);
  for (size_t i = 0; i < sizeof text_parts / sizeof *text_parts; i++)
    if (strcmp(text_parts[i].type, type) == 0)
      strbuf_printf(&types, "%s\"%s\"", types.length ? " or " : "", text_parts[i].part_type);
  diag_error_at(diag, path, DIAG_CHECKPOINT, "\"text_config\" must be the settings of a %s", types.text);
}

json_t *text_part(Diag *diag, const json_t *config, const char *path) {
  const json_t *inside = json_object_get(config, "text_config");
  const char *type = json_string_value(json_object_get(inside, "model_type"));
  const TextPart *row = part_of(config, type);
  if (!row) return NULL;
  const bool is_flat = row->is_flat && !inside;
  if ((!is_flat && !json_is_object(inside)) || (type && strcmp(type, row->part_type) != 0)) {
    report_other_part(diag, path, row->type);
    return NULL;
  }
  const json_t *own_tie = json_object_get(inside, "tie_word_embeddings");
  const json_t *own_type = json_object_get(inside, "model_type");
  if ((own_tie && !json_is_boolean(own_tie)) || (own_type && !type && (!json_is_null(own_type) || row->is_model))) {
    diag_error_at(diag, path, DIAG_CHECKPOINT, own_tie && !json_is_boolean(own_tie)
                  ? "\"text_config.tie_word_embeddings\" must be true or false"
                  : "\"text_config.model_type\" must be a string");
    return NULL;
  }
  json_t *part = is_flat ? json_object() : json_copy((json_t *)inside), *value;
  json_object_set_new(part, "model_type", json_string(row->part_type));
  json_object_set_new(part, "tie_word_embeddings", json_boolean(row->is_tied)); /* that of the whole counts */
  json_t *tied = json_object_get(config, "tie_word_embeddings"), *classes = class_of_part(row, config);
  if (tied) json_object_set(part, "tie_word_embeddings", tied);
  if (classes) json_object_set_new(part, "architectures", classes);
  const char *key;
  bool is_good = true;
  json_object_foreach((json_t *)config, key, value) {
    if ((is_flat ? is_settled(key) : is_of_each(key)) || is_listed(row->keys, key)) continue;
    is_good = is_good && take_key(diag, path, part, key, value);
  }
  if (is_good) return part;
  json_decref(part);
  return NULL;
}

const json_t *text_padding(const json_t *whole) {
  const TextPart *row = part_of(whole, NULL);
  const json_t *token = row && is_listed(row->keys, "pad_token_id") ? json_object_get(whole, "pad_token_id") : NULL;
  return json_is_null(token) ? NULL : token;
}

bool has_text_part(const json_t *config) { return json_is_object(json_object_get(config, "text_config")); }
