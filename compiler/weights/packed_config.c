/* In: `quantization_config`. Out: the layout of packed weights. See packed_config.h. */
#include "weights/packed_config.h"

#include <string.h>
#include <strings.h>

#include "weights/files.h"
#include "weights/weight_folder.h"

static const char *text_at(const json_t *object, const char *key) {
  return json_string_value(json_object_get(object, key));
}

static bool is_empty(const json_t *value) {
  return !value || json_is_null(value) || json_is_false(value) || (json_is_object(value) && !json_object_size(value)) ||
         (json_is_array(value) && !json_array_size(value));
}

static bool is_one_of(const char *text, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strcasecmp(text, names[i]) == 0) return true;
  return false;
}

/* The first key of a list whose value says more than nothing. */
static const char *key_that_speaks(const json_t *object, const char *const *keys, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!is_empty(json_object_get(object, keys[i]))) return keys[i];
  return NULL;
}

static const char *fault_of_bits(Arena *arena, int bits) {
  if (bits == 2 || bits == 4 || bits == 8) return NULL;
  if (!bits) return "in how many bits they are is not said";
  return arena_printf(arena, "weights of %d bits are not read; 2, 4 and 8 bits are", bits);
}

static const char *fault_of_key(Arena *arena, const char *key) {
  return key ? arena_printf(arena, "its \"%s\" changes more than how weights are kept", key) : NULL;
}

static PackedConfig gptq(Arena *arena, const json_t *quantized) {
  static const char *const changes[] = {"dynamic", "rotation", "adapter", "is_marlin_format"};
  PackedConfig c = {.method = PACKED_GPTQ};
  const char *format = text_at(quantized, "checkpoint_format");
  if (!format) format = text_at(quantized, "format");
  c.bits = (int)json_integer_value(json_object_get(quantized, "bits"));
  c.group = json_integer_value(json_object_get(quantized, "group_size"));
  c.needs_zeros = true;
  c.needs_order = json_is_true(json_object_get(quantized, "desc_act"));
  if (format && strcmp(format, "gptq_v2") == 0) c.method = PACKED_GPTQ_V2;
  else if (format && strcmp(format, "gptq") != 0)
    c.fault = arena_printf(arena, "the format \"%s\" of GPTQ is not read; gptq and gptq_v2 are", format);
  const char *words = text_at(quantized, "pack_dtype");
  if (words && strcmp(words, "int32") != 0) c.fault = arena_printf(arena, "words of %s are not read; int32 are", words);
  if (!c.fault) c.fault = fault_of_bits(arena, c.bits);
  if (!c.fault) c.fault = fault_of_key(arena, key_that_speaks(quantized, changes, sizeof changes / sizeof *changes));
  return c;
}

static PackedConfig awq(Arena *arena, const json_t *quantized) {
  PackedConfig c = {.method = PACKED_AWQ, .needs_zeros = true};
  const char *format = text_at(quantized, "version");
  if (!format) format = text_at(quantized, "format");
  const json_t *bits = json_object_get(quantized, "bits"), *group = json_object_get(quantized, "group_size");
  c.bits = (int)json_integer_value(bits ? bits : json_object_get(quantized, "w_bit"));
  c.group = json_integer_value(group ? group : json_object_get(quantized, "q_group_size"));
  const char *backend = text_at(quantized, "backend");
  if (format && strcasecmp(format, "gemm") != 0)
    c.fault = arena_printf(arena, "the format \"%s\" of AWQ is not read; gemm is", format);
  else if (backend && strcmp(backend, "llm-awq") == 0)
    c.fault = "the layout of llm-awq is not read; that of AutoAWQ's gemm is";
  else if (c.bits != 4)
    c.fault = arena_printf(arena, "AWQ of %d bits is not read; 4 bits are", c.bits);
  else if (json_is_false(json_object_get(quantized, "zero_point")))
    c.fault = "AWQ without zero points (\"zero_point\": false) is not read";
  return c;
}

/* Columns that share a scale, as in PackedConfig. */
static int64_t group_of_scheme(const json_t *weights) {
  const char *strategy = text_at(weights, "strategy");
  const bool is_group = !strategy || strcmp(strategy, "group") == 0;
  return is_group ? json_integer_value(json_object_get(weights, "group_size")) : -1;
}

/* Of one group of modules. */
static const char *fault_of_scheme(Arena *arena, const json_t *scheme, int *bits) {
  static const char *const in_place[] = {"static", "weight"};
  static const char *const strategies[] = {"tensor", "channel", "group"};
  static const char *const rounded[] = {"input_activations", "output_activations"};
  const json_t *weights = json_object_get(scheme, "weights");
  const char *strategy = text_at(weights, "strategy"), *type = text_at(weights, "type");
  const char *format = text_at(scheme, "format"), *rounds = key_that_speaks(scheme, rounded, 2);
  const json_t *order = json_object_get(weights, "actorder");
  const int own = (int)json_integer_value(json_object_get(weights, "num_bits"));
  if (format && strcmp(format, "pack-quantized") != 0)
    return arena_printf(arena, "groups of different formats (\"%s\") are not read", format);
  if (type && strcmp(type, "int") != 0) return arena_printf(arena, "packed weights of type \"%s\" are not read", type);
  if (strategy && !is_one_of(strategy, strategies, sizeof strategies / sizeof *strategies))
    return arena_printf(arena, "scales by \"%s\" are not read; by tensor, channel and group they are", strategy);
  if (rounds) return arena_printf(arena, "\"%s\": the model rounds activations too, which is not computed", rounds);
  if (!is_empty(order) && !(json_is_string(order) && is_one_of(json_string_value(order), in_place, 2)))
    return "columns are in another order (\"actorder\"), which is not read";
  if (*bits && *bits != own) return "groups of modules in different numbers of bits are not read";
  *bits = own;
  return fault_of_bits(arena, own);
}

static PackedConfig compressed(Arena *arena, const json_t *quantized) {
  PackedConfig c = {.method = PACKED_COMPRESSED, .needs_zeros = true, .no_zeros = true};
  const json_t *scheme;
  const char *name;
  json_object_foreach((json_t *)json_object_get(quantized, "config_groups"), name, scheme) {
    const json_t *weights = json_object_get(scheme, "weights");
    const int64_t group = group_of_scheme(weights);
    if (!c.fault) c.fault = fault_of_scheme(arena, scheme, &c.bits);
    c.group = !c.group || c.group == group ? group : INT64_MIN;
    c.needs_zeros &= json_is_false(json_object_get(weights, "symmetric"));
    c.no_zeros &= !json_is_false(json_object_get(weights, "symmetric"));
  }
  if (c.group == INT64_MIN) c.group = 0;
  if (!c.fault) c.fault = fault_of_bits(arena, c.bits);
  return c;
}

/* What any format of compressed-tensors may ask for besides, those of whole bytes too. */
static const char *fault_of_more(Arena *arena, const json_t *quantized) {
  static const char *const changes[] = {"kv_cache_scheme", "transform_config"};
  const json_t *sparse = json_object_get(quantized, "sparsity_config");
  const char *sparsity = text_at(sparse, "format");
  if (!is_empty(sparse) && !(sparsity && strcmp(sparsity, "dense") == 0))
    return "weights that are sparse (\"sparsity_config\") are not read";
  return fault_of_key(arena, key_that_speaks(quantized, changes, 2));
}

static PackedConfig mxfp4(const json_t *quantized) {
  PackedConfig c = {.method = PACKED_MXFP4, .bits = 4};
  const json_t *others = json_object_get(quantized, "modules_to_not_convert");
  if (others && !json_is_null(others) && !json_is_array(others)) c.fault = "\"modules_to_not_convert\" is no list";
  return c;
}

PackedConfig packed_config(Arena *arena, const json_t *quantized) {
  const char *method = text_at(quantized, "quant_method"), *format = text_at(quantized, "format");
  if (!method) return (PackedConfig){0};
  if (strcmp(method, "gptq") == 0) return gptq(arena, quantized);
  if (strcmp(method, "awq") == 0) return awq(arena, quantized);
  if (strcmp(method, "mxfp4") == 0) return mxfp4(quantized);
  if (strcmp(method, "compressed-tensors") != 0) return (PackedConfig){0};
  PackedConfig config = {0};
  if (format && strcmp(format, "pack-quantized") == 0) config = compressed(arena, quantized);
  if (!config.fault) config.fault = fault_of_more(arena, quantized);
  return config;
}

PackedConfig packed_config_of(Arena *arena, const char *path) {
  enum { MAX_CONFIG_BYTES = 10000000 };
  const char *slash = strrchr(path, '/');
  const char *folder = is_weight_folder(path) ? path : slash ? arena_strndup(arena, path, (size_t)(slash - path)) : ".";
  if (!*folder) folder = "/";
  Diag quiet = diag_new(arena);
  size_t size;
  const char *text =
      in_file_text(&quiet, arena_printf(arena, "%s/config.json", folder), MAX_CONFIG_BYTES, DIAG_CHECKPOINT, &size);
  json_t *json = text ? json_loadb(text, size, 0, NULL) : NULL;
  const PackedConfig config = packed_config(arena, json_object_get(json, "quantization_config"));
  json_decref(json);
  return config;
}
