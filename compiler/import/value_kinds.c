/* Kinds of values of JSON. See value_kinds.h. */
#include "import/value_kinds.h"

#include <string.h>

#include "base/strbuf.h"
#include "import/json_file.h"

// ---- lists of words ----

Word next_word(const char **at, char separator) {
  while (**at == separator) (*at)++;
  const char *end = strchr(*at, separator);
  const Word word = {*at, end ? (size_t)(end - *at) : strlen(*at)};
  *at += word.length;
  return word;
}

bool is_word(Word word, const char *text) {
  return strlen(text) == word.length && strncmp(word.start, text, word.length) == 0;
}

// ---- kinds ----

static bool is_null(const json_t *value) { return json_is_null(value); }
static bool is_bool(const json_t *value) { return json_is_boolean(value); }
static bool is_int(const json_t *value) { return json_is_integer(value); }
static bool is_float(const json_t *value) { return json_is_real(value); }
static bool is_from_0(const json_t *value) { return json_is_number(value) && json_number_value(value) >= 0; }
static bool is_share(const json_t *value) { return is_from_0(value) && json_number_value(value) <= 1; }
static bool is_int_from_0(const json_t *value) { return is_int(value) && is_from_0(value); }
static bool is_int_share(const json_t *value) { return is_int(value) && is_share(value); }
static bool is_float_from_0(const json_t *value) { return is_float(value) && is_from_0(value); }
static bool is_float_share(const json_t *value) { return is_float(value) && is_share(value); }
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
    {"int[0,)", "a whole number from 0 on", is_int_from_0},
    {"int[0,1]", "0 or 1", is_int_share},
    {"float[0,)", "a number with a fraction (1.0, not 1) from 0.0 on", is_float_from_0},
    {"float[0,1]", "a number with a fraction (1.0, not 1) from 0.0 to 1.0", is_float_share},
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

bool value_is_of(const json_t *value, const char *words) {
  for (Word word = next_word(&words, '|'); word.length; word = next_word(&words, '|'))
    if (fits(value, word)) return true;
  return false;
}

const char *kinds_described(Arena *arena, const char *words) {
  StrBuf out = strbuf_new(arena);
  for (Word word = next_word(&words, '|'); word.length; word = next_word(&words, '|')) {
    const char *text = arena_strndup(arena, word.start, word.length);
    for (size_t i = 0; i < N_KINDS; i++)
      if (is_word(word, kinds[i].word)) text = kinds[i].text;
    strbuf_printf(&out, "%s%s", out.length ? " or " : "", text);
  }
  return out.text;
}
