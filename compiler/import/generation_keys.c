/* Settings of generation in a checkpoint's folder. See generation_keys.h.
 *
 * transformers takes them from generation_config.json alone if there is such a file, even if the file lacks tokens that
 * config.json names: then nothing ends a row, or the end is what rows are filled with. Without the file it takes them
 * from config.json. An option that the family's block does not set itself is written into the `generate` block of what
 * is imported, so that the model writes as its checkpoint says. */
#include "import/generation_keys.h"

#include <string.h>

#include "import/expression.h"
#include "import/value_kinds.h"
#include "import/value_text.h"

// ---- the options, and what is none ----

static const char *const of_block[] = {
#define BLOCK_ALL(name) #name,
#define BLOCK_NO_FLAG BLOCK_ALL
#define BLOCK_NOT_BLOCK(name)
#define BLOCK_CONFIG(name)
#define BLOCK_C(name)
#define GENERATE_OPTION(name, member, kind, initial, range, accepted, ...) BLOCK_##accepted(name)
#include "tfm/abi/generate_options.def"
};
enum { N_OF_BLOCK = sizeof of_block / sizeof *of_block };

typedef struct OtherKey {
  const char *key, *kinds; /* of its values, NULL: any */
  const char *neutral;     /* a value or a list of them; NULL: every value is */
  bool is_token;           /* which the families read by name */
} OtherKey;

static const OtherKey others[] = {
#define TOKEN(key, kinds) {key, kinds, NULL, true},
#define HARMLESS(key, kinds) {key, kinds, NULL, false},
#define NEUTRAL(key, json) {key, NULL, json, false},
#include "tfm/abi/generation_keys.def"
};
enum { N_OTHERS = sizeof others / sizeof *others };

static const OtherKey *other_key(const char *key) {
  for (size_t i = 0; i < N_OTHERS; i++)
    if (strcmp(others[i].key, key) == 0) return &others[i];
  return NULL;
}

static bool is_of_block(const char *key) {
  for (size_t i = 0; i < N_OF_BLOCK; i++)
    if (strcmp(of_block[i], key) == 0) return true;
  return false;
}

static bool is_one_of(const json_t *value, const json_t *neutral) {
  size_t i;
  const json_t *one;
  json_array_foreach(neutral, i, one) if (values_are_equal(value, one)) return true;
  return values_are_equal(value, neutral);
}

static bool changes_nothing(const OtherKey *other, const json_t *value) {
  if (!other) return false;
  json_t *neutral = other->neutral ? json_loads(other->neutral, JSON_DECODE_ANY, NULL) : NULL;
  const bool is_neutral = !neutral || is_one_of(value, neutral);
  json_decref(neutral);
  return is_neutral;
}

bool generation_has_key(const char *key) { return other_key(key) || is_of_block(key); }

// ---- where they come from ----

static bool is_missing(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return !value || json_is_null(value);
}

json_t *generation_written(json_t *file, const json_t *config) {
  if (file) return json_incref(file);
  json_t *settings = json_object(), *value;
  const char *key;
  json_object_foreach((json_t *)config, key, value) if (generation_has_key(key)) json_object_set(settings, key, value);
  return settings;
}

json_t *generation_completed(json_t *written) {
  json_t *settings = json_copy(written);
  json_t *eos = json_object_get(settings, "eos_token_id");
  json_t *first = json_is_array(eos) ? json_array_get(eos, 0) : eos;
  if (is_missing(settings, "pad_token_id"))
    json_object_set_new(settings, "pad_token_id", first && !json_is_null(first) ? json_incref(first) : json_array());
  if (is_missing(settings, "eos_token_id")) json_object_set_new(settings, "eos_token_id", json_array());
  if (is_missing(settings, "decoder_start_token_id") && !is_missing(settings, "bos_token_id"))
    json_object_set(settings, "decoder_start_token_id", json_object_get(settings, "bos_token_id"));
  return settings;
}

// ---- the account ----

/* Whether the block can say it: numbers, flags, and lists of tokens. */
static bool can_be_written(const json_t *value) {
  size_t i;
  const json_t *item;
  json_array_foreach(value, i, item) if (!json_is_integer(item)) return false;
  return json_is_number(value) || json_is_boolean(value) || json_is_array(value);
}

static bool ends_a_row(const json_t *settings, const json_t *token) {
  const json_t *eos = json_object_get(settings, "eos_token_id"), *one;
  size_t i;
  json_array_foreach(eos, i, one) if (values_are_equal(one, token)) return true;
  return values_are_equal(eos, token);
}

/* Words of one token each are tokens that are never chosen, but that an end may not be forbidden so. NULL if one is
 * longer, or none such list; an empty list is refused by whoever reads it. */
static json_t *single_words(const json_t *settings) {
  const json_t *words = json_object_get(settings, "bad_words_ids");
  json_t *list = json_array();
  size_t i;
  const json_t *word;
  json_array_foreach(words, i, word) {
    if (json_array_size(word) == 1 && json_is_integer(json_array_get(word, 0))) {
      if (!ends_a_row(settings, json_array_get(word, 0))) json_array_append(list, json_array_get(word, 0));
      continue;
    }
    json_decref(list);
    return NULL;
  }
  return list;
}

const char *generation_wrong_kind(Arena *arena, const char *key, const json_t *value) {
  const OtherKey *other = other_key(key);
  if (!other || !other->kinds || value_is_of(value, other->kinds)) return NULL;
  StrBuf shown = strbuf_new(arena);
  value_print(&shown, value);
  return arena_printf(arena, "it is %s (%s), and must be %s", value_kind(value), shown.text,
                      kinds_described(arena, other->kinds));
}

const char *generation_fault(const json_t *settings, const char *key, const json_t *value) {
  const OtherKey *other = other_key(key);
  if (strcmp(key, "bad_words_ids") == 0) {
    json_t *words = single_words(settings);
    bool fits = json_array_size(value) && words && is_missing(settings, "suppress_tokens");
    json_decref(words);
    return fits ? NULL : "only words of one token each are forbidden, at least one, and not beside \"suppress_tokens\"";
  }
  if (other && other->is_token) return NULL; /* what families do not read, no row has */
  if (is_of_block(key))
    return can_be_written(value) ? NULL : "the value is not one that a generate block takes";
  return changes_nothing(other, value) ? NULL : "it changes the tokens in a way that is not computed here";
}

// ---- what is written ----

static bool sets(const Ast *block, const char *name) {
  for (uint32_t i = 0; i < block->n_children; i++)
    if (strcmp(block->children[i]->name, name) == 0) return true;
  return false;
}

static void write_one(StrBuf *out, const char *name, const json_t *value) {
  strbuf_printf(out, "  %s = ", name);
  value_print(out, value);
}

void generation_write(StrBuf *out, const Ast *block, const json_t *settings) {
  for (size_t i = 0; i < N_OF_BLOCK; i++) {
    const json_t *value = json_object_get(settings, of_block[i]);
    bool is_said = value && !json_is_null(value) && !(json_is_array(value) && !json_array_size(value));
    if (!is_said || sets(block, of_block[i])) continue;
    write_one(out, of_block[i], value);
  }
  json_t *words = single_words(settings);
  if (words && json_array_size(words) && !sets(block, "suppress_tokens")) write_one(out, "suppress_tokens", words);
  json_decref(words);
}
