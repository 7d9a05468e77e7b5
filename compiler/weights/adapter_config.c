/* Reads adapter_config.json. See adapter_config.h. */
#include "weights/adapter_config.h"

#include <math.h>
#include <regex.h>
#include <string.h>

#include "base/strbuf.h"
#include "weights/files.h"

enum { MOST_BYTES = 1 << 24 };

typedef enum KeyRule { READ, EMPTY, NOTHING } KeyRule;

static const struct {
  const char *name;
  KeyRule rule;
} keys[] = {
#define ADAPTER_KEY(name, rule) {name, rule},
#include "weights/adapter_keys.def"
};

__attribute__((format(printf, 3, 4))) static bool refuse(Diag *diag, const AdapterConfig *config, const char *format,
                                                         ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(diag->arena, format, args);
  va_end(args);
  diag_error_at(diag, config->path, DIAG_CHECKPOINT, "%s", text);
  return false;
}

// ---- patterns ----

/* What stands for one character of Python's expression in POSIX's; how many of its characters that took; 0: it has no
 * counterpart. */
static size_t translate(const char *at, bool in_class, bool behind_count, StrBuf *out) {
  if (at[0] == '\\') {
    if (at[1] == 'd') strbuf_add(out, in_class ? "0-9" : "[0-9]");
    else if (at[1] == 'w' && !in_class) strbuf_add(out, "[A-Za-z0-9_]");
    else if (at[1] && strchr(".-_/+*?()[]{}|^$", at[1]) && !in_class) strbuf_printf(out, "\\%c", at[1]);
    else if (at[1] && strchr("._-/", at[1]) && in_class) strbuf_add_char(out, at[1]);
    else return 0;
    return 2;
  }
  if (!in_class && strncmp(at, "(?:", 3) == 0) {
    strbuf_add_char(out, '(');
    return 3;
  }
  if (!in_class && strncmp(at, "(?", 2) == 0) return 0;
  if (!in_class && behind_count && *at == '+') return 0;
  if (!in_class && behind_count && *at == '?') return 1; /* what is matched whole is the same, lazily or not */
  strbuf_add_char(out, *at);
  return 1;
}

/* Whether the whole text matches, with `prefix` in front of the pattern. -1: the pattern is not understood. */
static int matches(Arena *arena, const char *prefix, const char *pattern, const char *text) {
  StrBuf out = strbuf_new(arena);
  strbuf_printf(&out, "^(%s(", prefix);
  bool in_class = false, behind_count = false;
  for (const char *at = pattern; *at;) {
    const size_t n = translate(at, in_class, behind_count, &out);
    if (!n) return -1;
    behind_count = !in_class && n == 1 && strchr("*+?}", *at) && !behind_count;
    if (*at == '[') in_class = true;
    if (*at == ']') in_class = false;
    at += n;
  }
  strbuf_add(&out, "))$");
  regex_t compiled;
  if (regcomp(&compiled, out.text, REG_EXTENDED | REG_NOSUB) != 0) return -1;
  const int found = regexec(&compiled, text, 0, NULL, 0) == 0;
  regfree(&compiled);
  return found;
}

/* Behind any modules or at the beginning, as peft looks for keys of its patterns. */
static bool matches_key(Arena *arena, Diag *diag, const AdapterConfig *config, const char *pattern,
                        const char *module) {
  const int found = matches(arena, "(.*\\.)?", pattern, module);
  if (found < 0) refuse(diag, config, "the pattern \"%s\" is not understood here", pattern);
  return found > 0;
}

/* A text is an expression for the whole name; of a list, a name is the module's or its last parts. */
static bool is_listed(Arena *arena, Diag *diag, const AdapterConfig *config, const json_t *value, const char *module) {
  if (json_is_string(value)) {
    if (strcmp(json_string_value(value), "all-linear") == 0) return true;
    const int found = matches(arena, "", json_string_value(value), module);
    if (found < 0) refuse(diag, config, "the pattern \"%s\" is not understood here", json_string_value(value));
    return found > 0;
  }
  const json_t *name;
  size_t i;
  json_array_foreach((json_t *)value, i, name) {
    const char *text = json_string_value(name);
    const size_t length = strlen(module), end = text ? strlen(text) : 0;
    if (!text || length < end || strcmp(module + length - end, text) != 0) continue;
    if (length == end || module[length - end - 1] == '.') return true;
  }
  return false;
}

bool adapter_names_module(Arena *arena, Diag *diag, const AdapterConfig *config, const char *module) {
  const json_t *targets = json_object_get(config->json, "target_modules");
  const json_t *excluded = json_object_get(config->json, "exclude_modules");
  return is_listed(arena, diag, config, targets, module) && !is_listed(arena, diag, config, excluded, module);
}

// ---- how far it counts ----

/* The value of the first pattern that the module has; else that of the key. */
static double value_for(Arena *arena, Diag *diag, const AdapterConfig *config, const char *patterns, const char *key,
                        const char *module) {
  const char *pattern;
  json_t *value;
  json_object_foreach(json_object_get(config->json, patterns), pattern, value) {
    if (matches_key(arena, diag, config, pattern, module)) return json_number_value(value);
  }
  return json_number_value(json_object_get(config->json, key));
}

AdapterScale adapter_scale(Arena *arena, Diag *diag, const AdapterConfig *config, const char *module) {
  const double rank = value_for(arena, diag, config, "rank_pattern", "r", module);
  const double alpha = value_for(arena, diag, config, "alpha_pattern", "lora_alpha", module);
  const bool is_rslora = json_is_true(json_object_get(config->json, "use_rslora"));
  return (AdapterScale){(int64_t)rank, alpha / (is_rslora ? sqrt(rank) : rank)};
}

// ---- the file ----

static bool is_empty(const json_t *value) {
  return json_is_null(value) || json_is_false(value) || (json_is_object(value) && !json_object_size(value)) ||
         (json_is_array(value) && !json_array_size(value));
}

static int rule_of(const char *key) {
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(keys[i].name, key) == 0) return (int)keys[i].rule;
  return -1;
}

static void check_key(Arena *arena, Diag *diag, const AdapterConfig *config, const char *key, const json_t *value) {
  const int rule = rule_of(key);
  char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  const char *text = arena_strdup(arena, shown ? shown : "?");
  free(shown);
  if (rule < 0)
    refuse(diag, config, "nothing reads \"%s\" (%s): if it changes what the adapter does, the result is wrong", key,
           text);
  if (rule == EMPTY && !is_empty(value))
    refuse(diag, config, "\"%s\" is %s, and such adapters are not merged here: merge_and_unload() of peft, then "
           "save_pretrained", key, text);
}

static bool are_numbers(const json_t *object) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value)
    if (!json_is_number(value) || !(json_number_value(value) > 0)) return false;
  return true;
}

/* PiSSA and its like change the base when they begin: the change of an adapter is none of the base as it was. */
static bool leaves_base(const json_t *value) {
  static const char *const ways[] = {"gaussian", "orthogonal", "eva"};
  const char *text = json_string_value(value);
  for (size_t i = 0; text && i < sizeof ways / sizeof *ways; i++)
    if (strcmp(text, ways[i]) == 0) return true;
  return !value || json_is_boolean(value) || json_is_null(value);
}

static void check_values(Diag *diag, AdapterConfig *config) {
  const json_t *json = config->json, *rank = json_object_get(json, "r"), *alpha = json_object_get(json, "lora_alpha");
  const json_t *targets = json_object_get(json, "target_modules"), *type = json_object_get(json, "peft_type");
  if (!json_is_string(type) || strcmp(json_string_value(type), "LORA") != 0)
    refuse(diag, config, "\"peft_type\" is %s; LORA is merged",
           json_is_string(type) ? json_string_value(type) : "missing");
  if (!json_is_integer(rank) || json_integer_value(rank) < 1 || json_integer_value(rank) > INT32_MAX)
    refuse(diag, config, "\"r\" is no whole number from 1 on");
  if (!json_is_number(alpha)) refuse(diag, config, "\"lora_alpha\" is no number");
  if (!json_is_string(targets) && !json_is_array(targets))
    refuse(diag, config, "\"target_modules\" is neither a text nor a list");
  static const char *const patterns[] = {"rank_pattern", "alpha_pattern"};
  for (size_t i = 0; i < 2; i++)
    if (!are_numbers(json_object_get(json, patterns[i])))
      refuse(diag, config, "\"%s\": a value is no number above 0", patterns[i]);
  if (!leaves_base(json_object_get(json, "init_lora_weights")))
    refuse(diag, config,
           "\"init_lora_weights\" changes the weights of the base itself: merge_and_unload() of peft, then "
           "save_pretrained");
  static const char *const flags[] = {"fan_in_fan_out", "use_rslora"};
  for (size_t i = 0; i < 2; i++) {
    const json_t *flag = json_object_get(json, flags[i]);
    if (flag && !json_is_boolean(flag)) refuse(diag, config, "\"%s\" is neither true nor false", flags[i]);
  }
  config->fan_in_fan_out = json_is_true(json_object_get(json, "fan_in_fan_out"));
}

bool adapter_config_read(Arena *arena, Diag *diag, const char *folder, AdapterConfig *config) {
  size_t size;
  const int before = diag->n_errors;
  *config = (AdapterConfig){.path = arena_printf(arena, "%s/adapter_config.json", folder)};
  const char *text = in_file_text(diag, config->path, MOST_BYTES, DIAG_CHECKPOINT, &size);
  if (!text) return false;
  json_error_t error;
  config->json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  if (!json_is_object(config->json)) {
    json_decref(config->json);
    return refuse(diag, config, "this is no object of JSON: line %d: %s", error.line, error.text);
  }
  const char *key;
  json_t *value;
  json_object_foreach(config->json, key, value) check_key(arena, diag, config, key, value);
  check_values(diag, config);
  if (diag->n_errors == before) return true;
  json_decref(config->json);
  return false;
}
