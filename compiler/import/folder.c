/* Reads the files of a checkpoint. See folder.h.
 *
 * Sentence transformers keep a list of modules in modules.json. What matters of them is one object: `pooling` ("mean",
 * "cls" ...), `normalize`, `max_seq_length`, and `others`, the kinds of modules that nothing here knows. */
#include "import/folder.h"

#include <string.h>
#include <sys/stat.h>

#include "import/generation.h"

enum { MAX_CONFIG_BYTES = 16 << 20 };

static const char *path_in(Arena *arena, const char *folder, const char *name) {
  size_t length = strlen(folder);
  return arena_printf(arena, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
}

static bool exists(const char *path) {
  struct stat status;
  return stat(path, &status) == 0;
}

// ---- files of JSON ----

/* NULL after an error. `kind`: JSON_OBJECT or JSON_ARRAY. A key that stands twice is refused: readers differ in which
 * one they take. */
static json_t *read_json(Arena *arena, Diag *diag, const char *path, json_type kind) {
  size_t size;
  const char *text = in_file_text(diag, path, MAX_CONFIG_BYTES, DIAG_CHECKPOINT, &size);
  if (!text) return NULL;
  json_error_t error;
  json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  if (json && json_typeof(json) == kind) return json;
  const char *place = error.line > 0 ? arena_printf(arena, "%s:%d:%d", path, error.line, error.column) : path;
  if (!json)
    diag_error_at(diag, place, DIAG_CHECKPOINT, "this is not JSON: %s", error.text);
  else
    diag_error_at(diag, path, DIAG_CHECKPOINT, "%s is expected", kind == JSON_OBJECT ? "an object" : "a list");
  json_decref(json);
  return NULL;
}

/* An empty object if there is no such file; NULL after an error. */
static json_t *read_optional(Arena *arena, Diag *diag, const char *path) {
  return exists(path) ? read_json(arena, diag, path, JSON_OBJECT) : json_object();
}

// ---- config.json ----

/* The part of a class name that says what stands on the body: "ForMaskedLM" of "BertForMaskedLM". */
static const char *architecture_of(const json_t *config) {
  static const char *const heads[] = {"For", "LMHead", "MTModel", "Model"};
  const char *name = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
  for (size_t i = 0; name && i < sizeof heads / sizeof *heads; i++) {
    const char *found = strstr(name, heads[i]);
    if (found) return found;
  }
  return NULL;
}

static void move_key(json_t *from, const char *key, json_t *to, const char *new_key) {
  json_t *value = json_object_get(from, key);
  if (!value) return;
  if (!json_is_null(value) && !json_object_get(to, new_key)) json_object_set(to, new_key, value);
  json_object_del(from, key);
}

/* `rope_scaling` is null or an object, whose kind was called `type` at first. */
static void join_rotary(json_t *config) {
  if (json_object_get(config, "rope_parameters")) return;
  json_t *rope = json_object_get(config, "rope_scaling");
  if (!rope && !json_object_get(config, "rope_theta")) return;
  if (rope && !json_is_object(rope) && !json_is_null(rope)) return; /* a wrong type: reported as a key nobody reads */
  rope = json_is_object(rope) ? json_incref(rope) : json_object();
  move_key(rope, "type", rope, "rope_type");
  move_key(config, "rope_theta", rope, "rope_theta");
  json_object_del(config, "rope_scaling");
  json_object_set_new(config, "rope_parameters", rope);
}

/* What the weights are kept in if they are in few bits, as far as it is read here: 8 bits with scales beside them. */
static bool is_read(const json_t *quantized) {
  const char *method = json_string_value(json_object_get(quantized, "quant_method"));
  const char *format = json_string_value(json_object_get(quantized, "format"));
  const json_t *block = json_object_get(quantized, "weight_block_size");
  for (size_t i = 0; i < json_array_size(block); i++)
    if (json_integer_value(json_array_get(block, i)) != 128) return false;
  if (!method) return false;
  if (strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0) return true;
  static const char *const formats[] = {"int-quantized", "float-quantized", "naive-quantized"};
  for (size_t i = 0; format && i < sizeof formats / sizeof *formats; i++)
    if (strcmp(method, "compressed-tensors") == 0 && strcmp(format, formats[i]) == 0) return true;
  return false;
}

/* What can be no model here whatever its family. */
static bool check_config(Diag *diag, const Folder *folder) {
  const json_t *quantized = json_object_get(folder->config, "quantization_config");
  if (!quantized || json_is_null(quantized) || is_read(quantized)) return true;
  const char *method = json_string_value(json_object_get(quantized, "quant_method"));
  diag_error_at(
      diag, folder->config_path, DIAG_CHECKPOINT,
      "\"quantization_config\": the weights are quantized (%s) in a way that is not read; import the original "
      "checkpoint, and choose fewer bits with `tfmc compile --quantize`",
      method ? method : "by an unknown method");
  return false;
}

// ---- sentence transformers ----

static const char *last_part(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot ? dot + 1 : name;
}

/* "mean" of {"pooling_mode_mean_tokens": true, ...}, or of {"pooling_mode": "mean"}; "other" if several are set. */
static const char *pooling_of(const json_t *pooling) {
  static const char *const modes[][2] = {{"pooling_mode_cls_token", "cls"},
                                         {"pooling_mode_mean_tokens", "mean"},
                                         {"pooling_mode_max_tokens", "max"},
                                         {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len"},
                                         {"pooling_mode_weightedmean_tokens", "weightedmean"},
                                         {"pooling_mode_lasttoken", "lasttoken"}};
  const char *found = json_string_value(json_object_get(pooling, "pooling_mode"));
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    if (json_is_true(json_object_get(pooling, modes[i][0]))) found = found ? "other" : modes[i][1];
  return found ? found : "other";
}

/* Adds what one module does. False after an error. */
static bool add_module(Arena *arena, Diag *diag, const Folder *folder, const json_t *module, json_t *sentence) {
  const char *type = json_string_value(json_object_get(module, "type"));
  const char *path = json_string_value(json_object_get(module, "path"));
  const char *kind = type ? last_part(type) : "none";
  if (strcmp(kind, "Transformer") == 0) return true;
  if (strcmp(kind, "Normalize") == 0) return json_object_set_new(sentence, "normalize", json_true()) == 0;
  if (strcmp(kind, "Pooling") != 0 || !path || !*path || strchr(path, '/') || *path == '.') {
    json_object_set_new(sentence, "others", json_string(kind));
    return true;
  }
  json_t *pooling =
      read_json(arena, diag, path_in(arena, path_in(arena, folder->path, path), "config.json"), JSON_OBJECT);
  if (!pooling) return false;
  json_object_set_new(sentence, "pooling", json_string(pooling_of(pooling)));
  json_decref(pooling);
  return true;
}

/* An empty object if the folder is no sentence transformer; NULL after an error. */
static json_t *read_sentence(Arena *arena, Diag *diag, const Folder *folder) {
  json_t *sentence = json_object(), *module;
  const char *path = path_in(arena, folder->path, "modules.json");
  if (!exists(path)) return sentence;
  json_t *modules = read_json(arena, diag, path, JSON_ARRAY);
  bool is_good = modules != NULL;
  size_t i;
  json_object_set_new(sentence, "normalize", json_false());
  json_array_foreach(modules, i, module) is_good = is_good && add_module(arena, diag, folder, module, sentence);
  json_decref(modules);
  if (is_good) return sentence;
  json_decref(sentence);
  return NULL;
}

// ---- weights ----

/* Where people are sent whose folder has no weights that can be read. */
static void report_no_weights(Arena *arena, Diag *diag, const char *folder) {
  if (exists(path_in(arena, folder, "adapter_config.json")))
    diag_error_at(
        diag, folder, DIAG_CHECKPOINT,
        "this is an adapter: merge it into its model first (merge_and_unload() of peft), then save_pretrained");
  else if (exists(path_in(arena, folder, "pytorch_model.bin")) ||
           exists(path_in(arena, folder, "pytorch_model.bin.index.json")))
    diag_error_at(diag, folder, DIAG_CHECKPOINT,
                  "the weights are pickled, not safetensors; in Python: model = "
                  "transformers.AutoModel.from_pretrained(FOLDER); model.save_pretrained(NEW_FOLDER)");
  else
    diag_error_at(diag, folder, DIAG_CHECKPOINT, "there is no model.safetensors and no model.safetensors.index.json");
}

static WeightSet *open_weights(Arena *arena, Diag *diag, const char *folder) {
  const char *path = weight_set_path(arena, folder);
  if (!exists(path)) {
    report_no_weights(arena, diag, folder);
    return NULL;
  }
  return weight_set_open(arena, diag, path);
}

// ---- all of it ----

static bool read_names(Arena *arena, Diag *diag, Folder *folder) {
  const char *path = path_in(arena, folder->path, "generation_config.json");
  json_t *file = read_optional(arena, diag, path);
  json_t *generation = file ? generation_settings(exists(path) ? file : NULL, folder->config) : NULL;
  json_decref(file);
  folder->generation_path = exists(path) ? path : folder->config_path;
  json_t *sentence = generation ? read_sentence(arena, diag, folder) : NULL;
  const char *architecture = architecture_of(folder->config);
  folder->names = json_copy(folder->config);
  json_object_set_new(folder->names, "architecture", architecture ? json_string(architecture) : json_null());
  if (generation) json_object_set_new(folder->names, "generation", generation);
  if (sentence) json_object_set_new(folder->names, "sentence", sentence);
  return generation && sentence;
}

Folder *folder_open(Arena *arena, Diag *diag, const char *path) {
  Folder *folder = ARENA_NEW(arena, Folder);
  folder->path = path;
  folder->config_path = path_in(arena, path, "config.json");
  if (!exists(folder->config_path) && exists(path_in(arena, path, "adapter_config.json"))) {
    report_no_weights(arena, diag, path);
    return NULL;
  }
  folder->config = read_json(arena, diag, folder->config_path, JSON_OBJECT);
  if (!folder->config) return NULL;
  join_rotary(folder->config);
  if (check_config(diag, folder) && read_names(arena, diag, folder) &&
      (folder->weights = open_weights(arena, diag, path)))
    return folder;
  folder_close(folder);
  return NULL;
}

void folder_close(Folder *folder) {
  if (!folder) return;
  weight_set_close(folder->weights);
  json_decref(folder->names);
  json_decref(folder->config);
}
