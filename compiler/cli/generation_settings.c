/* In: the generate block of a model, a generation_config.json, the command line. Out: the options of the runtime's
 * loop and the start token. See generation_settings.h for which wins.
 *
 * Each source is turned into a JSON object first, and one reader applies them all, so a value is checked and converted
 * in one place whatever it was written as. The table of settings is generate_options.def; what else a config says must
 * change nothing (generation_keys.def). */
#include "cli/generation_settings.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/option_rules.h"
#include "import/generation_keys.h"
#include "weights/files.h"

// ---- where settings come from, and where they go ----

/* One source of settings: a JSON object, whatever it was written as. */
typedef struct Layer {
  Session *session;
  const json_t *object;
  const char *place; /* the file; NULL: the command line */
} Layer;

typedef struct Reader {
  Session *session;
  GenerationSettings *settings;
  int64_t fallback; /* TFM_NO_TOKEN: none */
} Reader;

// ---- values: one reader for each kind of generate_options.def ----

/* JSON does not tell 2 from 2.0, and some exporters write the latter. Numbers of 2^53 and more are not exact as
 * doubles. */
static bool read_integer(const json_t *value, int64_t *to) {
  if (json_is_integer(value)) *to = json_integer_value(value);
  else if (json_is_real(value) && fabs(json_real_value(value)) < 0x1p53 &&
           trunc(json_real_value(value)) == json_real_value(value))
    *to = (int64_t)json_real_value(value);
  else return false;
  return true;
}

static bool read_count(Reader *reader, const json_t *value, void *member) {
  (void)reader;
  return read_integer(value, member);
}

static bool read_real(Reader *reader, const json_t *value, void *member) {
  (void)reader;
  if (json_is_number(value)) *(double *)member = json_number_value(value);
  return json_is_number(value);
}

/* true, false, 1 or 0: the block of a model has numbers only. */
static bool read_flag(Reader *reader, const json_t *value, void *member) {
  int64_t number;
  (void)reader;
  if (json_is_boolean(value)) number = json_is_true(value);
  else if (!read_integer(value, &number) || number < 0 || number > 1) return false;
  *(int32_t *)member = (int32_t)number;
  return true;
}

static bool read_early(Reader *reader, const json_t *value, void *member) {
  tfm_early_stopping *to = member;
  int32_t flag;
  if (json_is_string(value) && strcmp(json_string_value(value), "never") == 0) *to = TFM_EARLY_NEVER;
  else if (read_flag(reader, value, &flag)) *to = flag ? TFM_EARLY_TRUE : TFM_EARLY_FALSE;
  else return false;
  return true;
}

/* A single id is a list of one. */
static bool read_tokens(Reader *reader, const json_t *value, void *member) {
  size_t n = json_is_array(value) ? json_array_size(value) : 1;
  int64_t *tokens = ARENA_ARRAY(reader->session->arena, int64_t, n);
  for (size_t i = 0; i < n; i++)
    if (!read_integer(json_is_array(value) ? json_array_get(value, i) : value, &tokens[i])) return false;
  *(tfm_token_list *)member = (tfm_token_list){tokens, n};
  return true;
}

static bool is_eos(const tfm_generate_options *options, int64_t token) {
  for (uint64_t i = 0; i < options->eos_token_ids.n; i++)
    if (options->eos_token_ids.tokens[i] == token) return true;
  return false;
}

/* Words of one token each are forbidden tokens; longer words are refused, since the loop looks at single tokens. An
 * end token stays allowed even if it is listed: rows could not end otherwise. */
static bool read_words(Reader *reader, const json_t *value, void *member) {
  int64_t *tokens = ARENA_ARRAY(reader->session->arena, int64_t, json_array_size(value));
  uint64_t n = 0;
  for (size_t i = 0; i < json_array_size(value); i++) {
    const json_t *word = json_array_get(value, i);
    if (json_array_size(word) != 1 || !read_integer(json_array_get(word, 0), &tokens[n])) return false;
    if (!is_eos(&reader->settings->options, tokens[n])) n++;
  }
  *(tfm_token_list *)member = (tfm_token_list){tokens, n};
  return json_is_array(value);
}

static bool read_start(Reader *reader, const json_t *value, void *member) {
  (void)member;
  return read_integer(value, &reader->settings->start);
}

/* bos_token_id of a config: what decoder-only rows begin with, and others if nothing else is said. */
static bool read_fallback(Reader *reader, const json_t *value, void *member) {
  (void)member;
  return read_integer(value, &reader->fallback);
}

// ---- the table ----

typedef struct SettingKind {
  const char *wanted; /* what a value must be */
  bool (*read)(Reader *reader, const json_t *value, void *member);
} SettingKind;

static const SettingKind kind_count = {"a whole number", read_count}, kind_limit = {"a whole number", read_count},
                         kind_real = {"a number", read_real},
                         kind_flag = {"true or false", read_flag}, kind_token = {"a token's id", read_count},
                         kind_tokens = {"an id or a list of ids", read_tokens},
                         kind_early = {"true, false or \"never\"", read_early},
                         kind_words = {"a list of lists of one id each", read_words},
                         kind_start = {"a token's id", read_start}, kind_fallback = {"a token's id", read_fallback};

typedef struct Setting {
  const char *name;
  const SettingKind *kind;
  size_t offset; /* of the member of tfm_generate_options */
} Setting;

static const Setting settings_table[] = {
#define SETTING(name, member, kind) {#name, &kind_##kind, offsetof(tfm_generate_options, member)},
#define SETTING_ALL SETTING
#define SETTING_NO_FLAG SETTING
#define SETTING_NOT_BLOCK SETTING
#define SETTING_CONFIG SETTING
#define SETTING_C(...)
#define GENERATE_OPTION(name, member, kind, initial, range, accepted, ...) SETTING_##accepted(name, member, kind)
#define GENERATE_ALIAS(name, member, kind, accepted) SETTING_##accepted(name, member, kind)
#include "tfm/abi/generate_options.def"
};
enum { N_SETTINGS = sizeof settings_table / sizeof *settings_table };

/* The message names the setting as the user wrote it: a flag with hyphens, or a name of a config. */
static void refuse(const Layer *layer, const Setting *setting, const char *wanted) {
  Diag *diag = &layer->session->diag;
  const char *text = layer->place ? "" : "--";
  char *shown = arena_strdup(diag->arena, setting->name);
  for (char *c = shown; *c && !layer->place; c++)
    if (*c == '_') *c = '-';
  diag_error_at(diag, layer->place, layer->place ? DIAG_INPUT_TYPE : DIAG_USAGE, "%s%s must be %s", text, shown,
                wanted);
}

/* A limit of -1 says in C that none is given. Here it was. */
static bool is_unset(const Setting *setting, const void *member) {
  return setting->kind == &kind_limit && *(const int64_t *)member == -1;
}

static void apply(Reader *reader, const Layer *layer, const Setting *setting, const json_t *value) {
  void *member = (char *)&reader->settings->options + setting->offset;
  if (!setting->kind->read(reader, value, member)) refuse(layer, setting, setting->kind->wanted);
  else if (is_unset(setting, member)) refuse(layer, setting, "1 or more");
}

// ---- layers ----

/* What the table lacks is known to change nothing, or refused: the tokens would be others than the config asks for. */
static void refuse_others(const Layer *layer) {
  Diag *diag = &layer->session->diag;
  const char *names[N_SETTINGS], *key;
  const json_t *value;
  for (size_t i = 0; i < N_SETTINGS; i++) names[i] = settings_table[i].name;
  json_object_foreach((json_t *)(uintptr_t)layer->object, key, value) {
    size_t i = 0;
    while (i < N_SETTINGS && strcmp(names[i], key) != 0) i++;
    if (i < N_SETTINGS || json_is_null(value)) continue;
    const char *fault = generation_wrong_kind(diag->arena, key, value);
    if (!fault && !generation_fault(layer->object, key, value)) continue;
    const char *nearest = generation_has_key(key) ? NULL : diag_nearest(key, names, N_SETTINGS);
    if (!fault) fault = "it is no option of generation here, and may change the tokens: take it out";
    diag_error_at(diag, layer->place, DIAG_INPUT_VALUE, "\"%s\": %s%s%s%s", key, fault,
                  nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
  }
}

static bool has(const json_t *object, const char *name) {
  const json_t *value = json_object_get(object, name);
  return value && !json_is_null(value);
}

static bool is_of_eos(const Setting *setting) {
  return setting->offset == offsetof(tfm_generate_options, eos_token_ids);
}

/* A limit replaces all earlier ones: max_length of a config must not cut off --max-new-tokens. */
static void unset_limits(tfm_generate_options *options, const json_t *given) {
  bool is_given = false;
  for (size_t i = 0; i < N_SETTINGS; i++)
    is_given |= settings_table[i].kind == &kind_limit && has(given, settings_table[i].name);
  for (size_t i = 0; i < N_SETTINGS && is_given; i++)
    if (settings_table[i].kind == &kind_limit)
      *(int64_t *)(void *)((char *)options + settings_table[i].offset) = -1;
}

/* The end tokens are read before everything else, because forbidden words must leave them allowed. */
static void apply_layer(Reader *reader, const Layer *layer) {
  unset_limits(&reader->settings->options, layer->object);
  for (size_t i = 0; i < 2 * N_SETTINGS; i++) {
    const Setting *setting = &settings_table[i % N_SETTINGS];
    if (is_of_eos(setting) == (i < N_SETTINGS) && has(layer->object, setting->name))
      apply(reader, layer, setting, json_object_get(layer->object, setting->name));
  }
  refuse_others(layer);
}

/* NULL for what JSON cannot say (infinity, NaN); the setting is null then, that is, not given. */
static json_t *number(double value) {
  if (fabs(value) < 0x1p53 && trunc(value) == value) return json_integer((json_int_t)value);
  return json_real(value); /* NULL for what JSON cannot say; then the setting is null, that is, not given */
}

/* A list of one value is the value, so `eos = 2` and `eos = [2]` mean the same. */
static json_t *of_block(const Graph *graph) {
  json_t *object = json_object();
  for (size_t i = 0; i < graph->generate_settings.n; i++) {
    const GenerateSetting *setting = &graph->generate_settings.items[i];
    json_t *list = json_array();
    for (size_t k = 0; k < setting->values.n; k++) json_array_append_new(list, number(setting->values.items[k]));
    json_object_set(object, setting->name, setting->values.n == 1 ? json_array_get(list, 0) : list);
    json_decref(list);
  }
  return object;
}

/* The config of a model, of at most 16 MiB: the file may be any. NULL after an error; the caller owns the object. */
static json_t *of_file(Session *session, const char *path) {
  enum { MOST_BYTES = 16 << 20 };
  size_t size;
  const char *text = in_file_text(&session->diag, path, MOST_BYTES, DIAG_INPUT_VALUE, &size);
  if (!text) return NULL;
  json_error_t error;
  json_t *object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  if (!object) diag_error_at(&session->diag, path, DIAG_INPUT_VALUE, "line %d: %s", error.line, error.text);
  if (!object || json_is_object(object)) return object;
  diag_error_at(&session->diag, path, DIAG_INPUT_VALUE, "a generation config must be a JSON object");
  json_decref(object);
  return NULL;
}

/* "4", "0.5", "never", "2,5" or "[2, 5]"; what is no JSON is a text, which the reader of the setting judges. */
static json_t *of_text(Arena *arena, const char *text) {
  json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
  if (!value && strchr(text, ',')) value = json_loads(arena_printf(arena, "[%s]", text), 0, NULL);
  return value ? value : json_string(text);
}

typedef enum Needs { NOTHING, SAMPLING, BEAMS } Needs;

typedef struct FlagInfo {
  const char *name; /* of the setting */
  Option option;
  Needs needs;
} FlagInfo;

static const FlagInfo flags[] = {
#define FLAG_ALL(name, needs) {#name, OPTION_GENERATE_##name, needs},
#define FLAG_NOT_BLOCK FLAG_ALL
#define FLAG_NO_FLAG(...)
#define FLAG_CONFIG(...)
#define FLAG_C(...)
#define GENERATE_OPTION(name, member, kind, initial, range, accepted, needs, ...) FLAG_##accepted(name, needs)
#include "tfm/abi/generate_options.def"
};
enum { N_FLAGS = sizeof flags / sizeof *flags };

static json_t *of_flags(Session *session) {
  json_t *object = json_object();
  for (size_t i = 0; i < N_FLAGS; i++) {
    if (!option_given(&session->options, flags[i].option)) continue;
    const char *text = option_text(&session->options, flags[i].option, "");
    json_object_set_new(object, flags[i].name, *text ? of_text(session->arena, text) : json_true());
  }
  return object;
}

/* What the settings together leave without effect. */
static void refuse_unread(Session *session, const tfm_generate_options *options) {
  const Options *given = &session->options;
  if (option_given(given, OPTION_SEED) && !options->do_sample && !options_have_random_input(given))
    option_error(&session->diag, OPTION_SEED,
                 "it would change nothing: no token is drawn (--do-sample), no input is random");
  if (option_given(given, OPTION_GENERATE_guesses) && options->num_beams > 1)
    option_error(&session->diag, OPTION_GENERATE_guesses, "it would change nothing: rows of beams are not guessed");
}

/* A flag without effect is probably a mistake; transformers warns of it, too. A temperature of 0 asks for no sampling
 * and needs no warning. */
static void warn_without_effect(Session *session, const tfm_generate_options *options) {
  for (size_t i = 0; i < N_FLAGS; i++) {
    const Needs needs = flags[i].needs;
    bool has_effect = needs == SAMPLING ? options->do_sample : needs == BEAMS ? options->num_beams > 1 : true;
    bool asks_for_none = flags[i].option == OPTION_GENERATE_temperature && options->temperature == 0;
    if (has_effect || asks_for_none || !option_given(&session->options, flags[i].option)) continue;
    diag_warning_at(&session->diag, NULL, DIAG_UNUSED, "%s has no effect without %s",
                    option_spelling(session->arena, flags[i].option),
                    needs == SAMPLING ? "--do-sample" : "--num-beams");
  }
}

/* Takes the object over; NULL, after an error, is skipped. */
static void read_layer(Reader *reader, json_t *object, const char *place) {
  const Layer layer = {reader->session, object, place};
  if (object) apply_layer(reader, &layer);
  json_decref(object);
}

bool generation_settings_of_block(Session *session, const Graph *graph, GenerationSettings *settings) {
  Reader reader = {session, settings, TFM_NO_TOKEN};
  tfm_generate_defaults(&settings->options);
  settings->start = TFM_NO_TOKEN;
  read_layer(&reader, of_block(graph), "generate");
  if (settings->start == TFM_NO_TOKEN) settings->start = reader.fallback;
  return !diag_has_errors(&session->diag);
}

/* As `config` of the Python package, which takes the folder of a checkpoint. */
static bool names_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The fallback start token counts between the config and the flags: a flag wins over it, while for decoder-only models
 * it wins over the decoder_start_token_id of a config, which is meant for models with an encoder. */
bool generation_settings_read(Session *session, const Graph *graph, bool is_decoder, GenerationSettings *settings) {
  Reader reader = {session, settings, TFM_NO_TOKEN};
  const char *path = option_text(&session->options, OPTION_GENERATION_CONFIG, NULL);
  tfm_generate_defaults(&settings->options);
  settings->start = TFM_NO_TOKEN;
  settings->options.seed = option_count(&session->options, OPTION_SEED, 0);
  read_layer(&reader, of_block(graph), "generate");
  if (path && names_folder(path)) path = arena_printf(session->arena, "%s/generation_config.json", path);
  if (path) read_layer(&reader, of_file(session, path), path);
  if (reader.fallback != TFM_NO_TOKEN && (is_decoder || settings->start == TFM_NO_TOKEN))
    settings->start = reader.fallback;
  read_layer(&reader, of_flags(session), NULL);
  warn_without_effect(session, &settings->options);
  refuse_unread(session, &settings->options);
  return !diag_has_errors(&session->diag);
}
