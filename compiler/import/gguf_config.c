/* Reads the metadata of a GGUF file as a config.json. See gguf_config.h; the keys are those of gguf_keys.def. */
#include "import/gguf_config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tfm/abi/double_functions.h"
#include "weights/gguf_names.h"

typedef enum GgufKind { WHOLE, REAL, TEXT, TRUTH } GgufKind;
typedef enum GgufNeed { NEEDED, OPTIONAL, ONLY, NOTHING } GgufNeed;

typedef struct GgufKey {
  const char *key, *config;
  GgufKind kind;
  GgufNeed need;
} GgufKey;

static const GgufKey keys[] = {
#define GGUF_KEY(key, config, kind, need) {key, config, kind, need},
#include "import/gguf_keys.def"
};

enum { N_KEYS = sizeof keys / sizeof *keys };

typedef struct Reader {
  Arena *arena;
  Diag *diag;
  const TensorFile *file;
  const GgufArchitecture *architecture;
  json_t *config;
} Reader;

__attribute__((format(printf, 2, 3))) static void refuse(const Reader *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(r->arena, format, args);
  va_end(args);
  diag_error_at(r->diag, r->file->file.path, DIAG_CHECKPOINT, "%s", text);
}

static const char *key_of(const Reader *r, const char *key) {
  return arena_printf(r->arena, "%s.%s", r->architecture->name, key);
}

// ---- values ----

/* The shortest number that is the same in f32, which the file has it in: 1e-05, not 9.99999975e-06. */
static double shortest(const char *text) {
  const float wanted = strtof(text, NULL);
  char shown[32];
  for (int digits = 1; digits <= 9; digits++) {
    snprintf(shown, sizeof shown, "%.*g", digits, (double)wanted);
    if (strtof(shown, NULL) == wanted) break;
  }
  return strtod(shown, NULL);
}

/* A number from 0 on that is whole; -1: it is none. */
static long long whole(const char *text) {
  char *end;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  return errno || end == text || *end || value < 0 || value > INT32_MAX ? -1 : value;
}

/* NULL: the text is no value of the kind. */
static json_t *value_of(GgufKind kind, const char *text) {
  char *end;
  switch (kind) {
    case WHOLE: return whole(text) >= 0 ? json_integer(whole(text)) : NULL;
    case REAL: {
      const double value = strtod(text, &end);
      return end != text && !*end && isfinite(value) ? json_real(shortest(text)) : NULL;
    }
    case TRUTH: {
      const bool is_true = strcmp(text, "true") == 0;
      return is_true || strcmp(text, "false") == 0 ? json_boolean(is_true) : NULL;
    }
    default: return json_string(text);
  }
}

/* Into the object, or into one within it. */
static void put(const Reader *r, const char *path, json_t *value) {
  const char *dot = strchr(path, '.');
  if (!dot) {
    json_object_set_new(r->config, path, value);
    return;
  }
  const char *name = arena_strndup(r->arena, path, (size_t)(dot - path));
  if (!json_object_get(r->config, name)) json_object_set_new(r->config, name, json_object());
  json_object_set_new(json_object_get(r->config, name), dot + 1, value);
}

static void read_key(const Reader *r, const GgufKey *row) {
  static const char *const kinds[] = {
      [WHOLE] = "a whole number", [REAL] = "a number", [TEXT] = "a text", [TRUTH] = "true or false"};
  const char *key = key_of(r, row->key), *text = tensor_file_metadata(r->file, key);
  if (!text && row->need == NEEDED) {
    refuse(r, "the key \"%s\" is missing, or is not %s", key, kinds[row->kind]);
    return;
  }
  if (!text || row->need == NOTHING) return;
  json_t *value = value_of(row->kind, text);
  if (!value)
    refuse(r, "\"%s\" is %s, which is not %s", key, text, kinds[row->kind]);
  else if (*row->config)
    put(r, row->config, value);
  else
    json_decref(value);
}

// ---- an account of the keys ----

static bool is_known(const char *key) {
  for (int i = 0; i < N_KEYS; i++)
    if (strcmp(keys[i].key, key) == 0) return true;
  return false;
}

static void account_for_key(const Reader *r, const char *key, const char *value, const Map *ignored) {
  const size_t length = strlen(r->architecture->name);
  if (strncmp(key, r->architecture->name, length) != 0 || key[length] != '.') return;
  if ((ignored && map_has(ignored, key)) || (value && is_known(key + length + 1))) return;
  refuse(r,
         "nothing reads \"%s\" (%s): if it changes what the model computes, the result is wrong; --ignore %s says that "
         "it does not",
         key, value ? value : "a list", key);
}

// ---- what must hold ----

static long long number(const Reader *r, const char *key, long long otherwise) {
  const char *text = tensor_file_metadata(r->file, key_of(r, key));
  return text ? whole(text) : otherwise;
}

static void expect(const Reader *r, const char *key, long long wanted, const char *why) {
  if (number(r, key, wanted) != wanted)
    refuse(r, "\"%s\" is %s, not %lld: %s", key_of(r, key), tensor_file_metadata(r->file, key_of(r, key)), wanted, why);
}

static const FileTensor *tensor_of(const Reader *r, const char *name) { return tensor_file_find(r->file, name); }

static void check_settings(const Reader *r) {
  const long long heads = number(r, "attention.head_count", 0), width = number(r, "embedding_length", 0);
  if (heads <= 0 || width <= 0) {
    refuse(r, "\"%s\" or \"%s\" is 0", key_of(r, "attention.head_count"), key_of(r, "embedding_length"));
    return;
  }
  const long long head = number(r, "attention.key_length", width / heads), most = number(r, "context_length", 0);
  const FileTensor *words = tensor_of(r, "token_embd.weight");
  expect(r, "attention.value_length", head, "values are as wide as keys");
  expect(r, "rope.dimension_count", head, "heads are turned whole");
  expect(r, "expert_count", 0, "mixtures of experts are read from safetensors");
  if (number(r, "attention.sliding_window", most) < most)
    refuse(r, "\"%s\": windows are read from safetensors", key_of(r, "attention.sliding_window"));
  const char *causal = tensor_file_metadata(r->file, key_of(r, "attention.causal"));
  if (causal && strcmp(causal, "true") != 0) refuse(r, "\"%s\" is %s", key_of(r, "attention.causal"), causal);
  const char *loud = tensor_file_metadata(r->file, key_of(r, "rope.scaling.attn_factor"));
  if (loud && strtod(loud, NULL) != 1) refuse(r, "\"%s\" is %s, not 1", key_of(r, "rope.scaling.attn_factor"), loud);
  if (!words || words->rank != 2)
    refuse(r, "there is no table of words, tensor \"token_embd.weight\" of two axes");
  else
    expect(r, "vocab_size", words->dims[0], "so many rows has the table of words");
}

// ---- positions ----

/* The factors of Llama 3.1 and later, which stand in a tensor: pairs that turn slowly turn so many times slower. */
static bool is_llama3(const Reader *r, const float *values, int64_t half, double factor) {
  const json_t *rotation = json_object_get(r->config, "rope_parameters");
  const json_t *given = json_object_get(rotation, "rope_theta");
  const double base = given ? json_number_value(given) : 10000;
  for (int64_t i = 0; i < half; i++) {
    /* within 8,192 tokens */
    const double turns = 8192 * double_pow(base, -(double)i / (double)half) / 6.283185307179586;
    const double smooth = (turns - 1) / (4 - 1);
    const double wanted = turns > 4 ? 1 : turns < 1 ? factor : 1 / ((1 - smooth) / factor + smooth);
    if (!(fabs(values[i] - wanted) <= 1e-4 * wanted)) return false;
  }
  return true;
}

static void read_factors(const Reader *r) {
  const FileTensor *tensor = tensor_of(r, "rope_freqs.weight");
  if (!tensor) return;
  static const double known[] = {8, 32};
  const long long width = number(r, "embedding_length", 0), heads = number(r, "attention.head_count", 1);
  const long long half = number(r, "attention.key_length", width / heads) / 2;
  float *values = ARENA_ARRAY(r->arena, float, half > 0 ? (size_t)half : 1);
  if (tensor->dtype != FILE_F32 || tensor->elements != half) {
    refuse(r, "\"rope_freqs.weight\" is not F32 of %lld numbers, one for each pair of a head's columns", half);
    return;
  }
  if (!tensor_file_read(r->file, r->diag, tensor, DTYPE_F32, values)) return;
  for (size_t i = 0; i < 2; i++) {
    if (!is_llama3(r, values, half, known[i])) continue;
    put(r, "rope_parameters.rope_type", json_string("llama3"));
    put(r, "rope_parameters.factor", json_real(known[i]));
    put(r, "rope_parameters.low_freq_factor", json_real(1));
    put(r, "rope_parameters.high_freq_factor", json_real(4));
    put(r, "rope_parameters.original_max_position_embeddings", json_integer(8192));
    return;
  }
  refuse(r, "\"rope_freqs.weight\" has other factors than Llama 3.1 (8) and 3.2 (32): import the folder of "
         "safetensors");
}

/* NULL: none. llama.cpp takes a factor without a type for linear, and one of 0, or none, for no scaling. */
static const char *scaling_of(const Reader *r, json_t *rotation) {
  const char *type = json_string_value(json_object_get(rotation, "rope_type"));
  const double factor = json_number_value(json_object_get(rotation, "factor"));
  if (type && strcmp(type, "linear") != 0) return strcmp(type, "none") == 0 ? NULL : arena_strdup(r->arena, type);
  return factor != 0 ? "linear" : NULL;
}

static void read_positions(const Reader *r) {
  json_t *rotation = json_object_get(r->config, "rope_parameters");
  if (!rotation || !json_object_get(rotation, "rope_theta")) put(r, "rope_parameters.rope_theta", json_real(10000));
  rotation = json_object_get(r->config, "rope_parameters");
  const char *type = scaling_of(r, rotation);
  json_object_set_new(rotation, "rope_type", json_string(type ? type : "default"));
  if (!type) json_object_del(rotation, "factor");
  if (type && strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
    refuse(r, "\"%s\" is \"%s\"; none, linear and yarn are read", key_of(r, "rope.scaling.type"), type);
  if (type && tensor_of(r, "rope_freqs.weight"))
    refuse(r, "\"rope_freqs.weight\" stands beside positions that are scaled (%s): one of both is read", type);
  else
    read_factors(r);
}

// ---- tokens ----

static json_t *token(const Reader *r, const char *name) {
  const char *key = arena_printf(r->arena, "tokenizer.ggml.%s_token_id", name);
  const char *text = tensor_file_metadata(r->file, key);
  if (!text) return NULL;
  const FileTensor *words = tensor_of(r, "token_embd.weight");
  if (whole(text) < 0 || (words && whole(text) >= words->dims[0]))
    refuse(r, "\"%s\" is %s, which is no row of the table of words", key, text);
  return json_integer(whole(text));
}

/* The end of a turn and that of a message end a text too. */
static void read_tokens(const Reader *r) {
  static const char *const ends[] = {"eos", "eot", "eom"};
  json_t *list = json_array(), *bos = token(r, "bos"), *pad = token(r, "padding");
  for (size_t i = 0; i < 3; i++) {
    json_t *end = token(r, ends[i]);
    bool is_new = end != NULL;
    for (size_t k = 0; k < json_array_size(list); k++) is_new = is_new && !json_equal(json_array_get(list, k), end);
    if (is_new) json_array_append(list, end);
    json_decref(end);
  }
  if (bos) put(r, "bos_token_id", bos);
  if (pad) put(r, "pad_token_id", pad);
  if (json_array_size(list) == 1) json_object_set(r->config, "eos_token_id", json_array_get(list, 0));
  if (json_array_size(list) > 1) json_object_set(r->config, "eos_token_id", list);
  json_decref(list);
}

// ---- all of it ----

/* What llama.cpp knows of the architecture, or of the tensors that are there. */
static void read_rest(const Reader *r) {
  const bool is_qwen2 = strcmp(r->architecture->model_type, "qwen2") == 0;
  const bool is_llama = strcmp(r->architecture->model_type, "llama") == 0;
  put(r, "model_type", json_string(r->architecture->model_type));
  put(r, "architectures", json_pack("[s]", r->architecture->class_name));
  put(r, "hidden_act", json_string("silu"));
  put(r, "tie_word_embeddings", json_boolean(!tensor_of(r, "output.weight")));
  const FileTensor *words = tensor_of(r, "token_embd.weight");
  if (words && words->rank == 2) put(r, "vocab_size", json_integer(words->dims[0]));
  if (!json_object_get(r->config, "num_key_value_heads"))
    json_object_set(r->config, "num_key_value_heads", json_object_get(r->config, "num_attention_heads"));
  if (!is_qwen2) put(r, "attention_bias", json_boolean(tensor_of(r, "blk.0.attn_q.bias") != NULL));
  if (is_llama) put(r, "mlp_bias", json_boolean(tensor_of(r, "blk.0.ffn_gate.bias") != NULL));
  else put(r, "use_sliding_window", json_false());
}

json_t *gguf_config(Arena *arena, Diag *diag, const TensorFile *file, const Map *ignored) {
  Reader r = {arena, diag, file, gguf_architecture(file), NULL};
  const char *name = tensor_file_metadata(file, "general.architecture");
  if (!r.architecture) {
    refuse(&r,
           "general.architecture is %s%s%s; %s are imported. Import the folder of safetensors that it was made from; "
           "as weights of a .tfm file of your own it is read: --weights",
           name ? "\"" : "", name ? name : "missing", name ? "\"" : "", gguf_architectures(arena));
    return NULL;
  }
  r.config = json_object();
  for (int i = 0; i < N_KEYS; i++) read_key(&r, &keys[i]);
  for (size_t i = 0; i < file->metadata.n; i++)
    account_for_key(&r, file->metadata.items[i].key, file->metadata.items[i].value, ignored);
  for (size_t i = 0; i < file->lists.n; i++) account_for_key(&r, file->lists.items[i], NULL, ignored);
  if (!diag_has_errors(diag)) check_settings(&r);
  if (!diag_has_errors(diag)) read_rest(&r);
  if (!diag_has_errors(diag)) read_positions(&r);
  if (!diag_has_errors(diag)) read_tokens(&r);
  if (!diag_has_errors(diag)) return r.config;
  json_decref(r.config);
  return NULL;
}
