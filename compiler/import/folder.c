/* Reads the files of a checkpoint. See folder.h; what sentence transformers add is sentence.c's. */
#include "import/folder.h"

#include <ctype.h>
#include <glob.h>
#include <string.h>

#include "import/generation_keys.h"
#include "import/gguf_config.h"
#include "import/json_file.h"
#include "import/other_forms.h"
#include "import/sentence.h"
#include "import/text_part.h"
#include "weights/gguf.h"
#include "weights/packed_config.h"

// ---- files that may be missing ----

/* An empty object if there is no such file; NULL after an error. */
static json_t *read_optional(Arena *arena, Diag *diag, const char *path) {
  return file_exists(path) ? read_json(arena, diag, path, JSON_OBJECT) : json_object();
}

// ---- config.json ----

/* What stands behind the name of the model in the name of a class: "ForMaskedLM" of "XLMRobertaForMaskedLM", whose
 * model_type is "xlm-roberta". The name as a whole if it is not of that type, so that a class of other code is none of
 * the family's. `gemma3_text` names a part of Gemma3; "Model" is no part of CLIPText, though its type is
 * clip_text_model; the class of hunyuan_v1_dense is HunYuanDenseV1. */
static const char *architecture_of(const json_t *config) {
  const char *name = class_of_today(json_string_value(json_array_get(json_object_get(config, "architectures"), 0)));
  const char *type = json_string_value(json_object_get(config, "model_type"));
  const char *at = name;
  if (!name || !type) return name;
  if (strcmp(type, "hunyuan_v1_dense") == 0) type = "hunyuan_dense_v1";
  const size_t length = strlen(type);
  const char *end = type + length - (length > 6 && strcmp(type + length - 6, "_model") == 0 ? 6 : 0);
  for (; type < end && *at; type++) {
    if (!isalnum((unsigned char)*type)) continue;
    if (*at == '_') at++; /* Ernie4_5 */
    if (tolower((unsigned char)*at) != tolower((unsigned char)*type)) break;
    at++;
  }
  return type == end || strcmp(type, "text") == 0 || strcmp(type, "experts") == 0 ? at : name;
}

static bool same_value(const json_t *a, const json_t *b) {
  if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
  return json_equal(a, b);
}

static bool report_contradiction(Diag *diag, const Folder *folder, const char *older, const char *newer) {
  diag_error_at(diag, folder->config_path, DIAG_CHECKPOINT,
                "\"%s\" and \"%s\" are two spellings of one setting, and they contradict each other: take one out",
                older, newer);
  return false;
}

/* Gives the object a setting that it lacks. False: it has another value. */
static bool take_setting(json_t *object, const char *key, json_t *value) {
  const json_t *there = json_object_get(object, key);
  if (!value || json_is_null(value)) return true;
  if (there && !json_is_null(there)) return same_value(there, value);
  return json_object_set(object, key, value) == 0;
}

/* A copy in which the kind is called `rope_type`, as it is now, and rope_theta is that of the config if it has none. A
 * kind that is null is none, whatever `type` says.
 * NULL after an error; `name`: of the object. */
static json_t *rotary_copy(Arena *arena, Diag *diag, const Folder *folder, const char *name) {
  const json_t *object = json_object_get(folder->config, name);
  json_t *copy = json_is_object(object) ? json_copy((json_t *)object) : json_object();
  const json_t *kind = json_object_get(copy, "type");
  const bool is_null = kind && !json_is_null(kind) && json_is_null(json_object_get(copy, "rope_type"));
  if (is_null || !take_setting(copy, "rope_type", (json_t *)kind))
    report_contradiction(diag, folder, arena_printf(arena, "%s.type", name), arena_printf(arena, "%s.rope_type", name));
  json_object_del(copy, "type");
  if (!take_setting(copy, "rope_theta", json_object_get(folder->config, "rope_theta")))
    report_contradiction(diag, folder, "rope_theta", arena_printf(arena, "%s.rope_theta", name));
  if (!diag_has_errors(diag)) return copy;
  json_decref(copy);
  return NULL;
}

static bool is_nested(const json_t *rope) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)rope, key, value) if (json_is_object(value)) return true;
  return false;
}

/* `rope_scaling` is null or an object, whose kind was called `type` at first; with `rope_theta` it is what is now
 * `rope_parameters`. Exporters write both for readers of either age; transformers takes rope_scaling then, so they must
 * say the same. Settings of kinds of layers, objects in the object, are left as they are, and so is what has another
 * type, which nothing reads. False after an error. */
static bool join_rotary(Arena *arena, Diag *diag, const Folder *folder) {
  json_t *config = folder->config, *old = json_object_get(config, "rope_scaling");
  const json_t *new = json_object_get(config, "rope_parameters"), *theta = json_object_get(config, "rope_theta");
  const bool has_old = json_is_object(old), has_new = json_is_object(new);
  if (!has_old && !has_new && !theta) return true;
  if ((old && !has_old && !json_is_null(old)) || (new && !has_new && !json_is_null(new)) || is_nested(new)) return true;
  json_t *older = rotary_copy(arena, diag, folder, "rope_scaling");
  json_t *newer = older ? rotary_copy(arena, diag, folder, "rope_parameters") : NULL;
  bool is_good = newer && (!has_old || !has_new || json_equal(older, newer) ||
                           report_contradiction(diag, folder, "rope_scaling", "rope_parameters"));
  if (is_good) {
    json_object_del(config, "rope_theta");
    json_object_del(config, "rope_scaling");
    json_object_set(config, "rope_parameters", has_new ? newer : older);
  }
  json_decref(older);
  json_decref(newer);
  return is_good;
}

/* Whether the numbers that share a scale are said to be a block of other sizes than 128 by 128. */
static bool has_other_blocks(const json_t *quantized) {
  const json_t *block = json_object_get(quantized, "weight_block_size"), *scheme;
  const char *name;
  for (size_t i = 0; i < json_array_size(block); i++)
    if (json_integer_value(json_array_get(block, i)) != 128) return true;
  json_object_foreach((json_t *)json_object_get(quantized, "config_groups"), name, scheme) {
    const json_t *sides = json_object_get(json_object_get(scheme, "weights"), "block_structure");
    if (json_is_string(sides) && strcmp(json_string_value(sides), "128x128") != 0) return true;
    for (size_t i = 0; i < json_array_size(sides); i++)
      if (json_integer_value(json_array_get(sides, i)) != 128) return true;
  }
  return false;
}

/* What the weights are kept in if they are in few bits, as far as it is read here: 8 bits with scales beside them, or
 * packed. */
static bool is_read(Arena *arena, const json_t *quantized) {
  const char *method = json_string_value(json_object_get(quantized, "quant_method"));
  const char *format = json_string_value(json_object_get(quantized, "format"));
  if (!method || has_other_blocks(quantized)) return false;
  if (strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0) return true;
  static const char *const formats[] = {"int-quantized", "float-quantized", "naive-quantized"};
  for (size_t i = 0; format && i < sizeof formats / sizeof *formats; i++)
    if (strcmp(method, "compressed-tensors") == 0 && strcmp(format, formats[i]) == 0) return true;
  return packed_config(arena, quantized).method != PACKED_NONE;
}

/* What can be no model here whatever its family. */
static bool check_config(Arena *arena, Diag *diag, const Folder *folder) {
  const json_t *quantized = json_object_get(folder->config, "quantization_config");
  const char *fault = packed_config(arena, quantized).fault;
  if (!quantized || json_is_null(quantized) || (!fault && is_read(arena, quantized))) return true;
  const char *method = json_string_value(json_object_get(quantized, "quant_method"));
  diag_error_at(
      diag, folder->config_path, DIAG_CHECKPOINT,
      "\"quantization_config\": the weights are quantized (%s) in a way that is not read%s%s; import the original "
      "checkpoint, and choose fewer bits with `tfmc compile --quantize`",
      method ? method : "by an unknown method", fault ? ": " : "", fault ? fault : "");
  return false;
}

// ---- weights ----

/* The kind of the first module of modules.json, in the arena, or NULL. */
static const char *first_module(Arena *arena, const char *folder) {
  Diag unheard = diag_new(arena);
  json_t *modules = read_json(arena, &unheard, folder_file(arena, folder, "modules.json"), JSON_ARRAY);
  const char *type = json_string_value(json_object_get(json_array_get(modules, 0), "type"));
  const char *dot = type ? strrchr(type, '.') : NULL;
  const char *kind = dot ? arena_strdup(arena, dot + 1) : NULL;
  json_decref(modules);
  return kind;
}

/* Python that writes pickled weights again: all that the folder is, so a head and the modules behind a model too.
 * `config`: NULL if there is none. */
static const char *python_for_safetensors(Arena *arena, const char *folder, const json_t *config) {
  const char *class = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
  if (first_module(arena, folder)) return "sentence_transformers.SentenceTransformer(FOLDER).save(NEW_FOLDER)";
  return arena_printf(arena, "transformers.%s.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)",
                      class ? class : "AutoModel");
}

/* Where people are sent whose folder has no weights that can be read. */
static void report_no_weights(Arena *arena, Diag *diag, const char *folder, const json_t *config) {
  if (file_exists(folder_file(arena, folder, "adapter_config.json")))
    diag_error_at(diag, folder, DIAG_CHECKPOINT,
                  "this is an adapter of another model, whose folder is named first: tfmc import BASE --adapter %s",
                  folder);
  else if (file_exists(folder_file(arena, folder, "pytorch_model.bin")) ||
           file_exists(folder_file(arena, folder, "pytorch_model.bin.index.json")))
    diag_error_at(diag, folder, DIAG_CHECKPOINT, "the weights are pickled, not safetensors; in Python: %s",
                  python_for_safetensors(arena, folder, config));
  else
    diag_error_at(diag, folder, DIAG_CHECKPOINT, "there is no model.safetensors and no model.safetensors.index.json");
}

// ---- what is no such folder ----

/* A file of the folder that ends so; NULL: there is none. */
static const char *file_that_ends(Arena *arena, const char *folder, const char *ending) {
  glob_t found;
  const char *name = NULL;
  if (glob(arena_printf(arena, "%s/*%s", folder, ending), 0, NULL, &found) == 0) {
    const char *slash = strrchr(found.gl_pathv[0], '/');
    name = arena_strdup(arena, slash ? slash + 1 : found.gl_pathv[0]);
    globfree(&found);
  }
  return name;
}

/* Sentence transformers keep a table of vectors without a config.json. */
static bool is_static_embedding(Arena *arena, const char *folder) {
  const char *kind = first_module(arena, folder);
  return kind && strcmp(kind, "StaticEmbedding") == 0;
}

/* A name of the hub: one slash, and neither a folder of that name nor one that it could lie in. */
static bool is_hub_name(Arena *arena, const char *path) {
  const char *slash = strchr(path, '/');
  if (!slash || slash == path || !slash[1] || strchr(slash + 1, '/') || *path == '.' || *path == '~') return false;
  return !file_exists(arena_strndup(arena, path, (size_t)(slash - path)));
}

/* Why there is no config.json, and what helps. */
static void report_no_config(Arena *arena, Diag *diag, const char *folder, const char *config) {
  const char *gguf = file_that_ends(arena, folder, ".gguf");
  if (!file_exists(folder) && is_hub_name(arena, folder))
    diag_error_at(diag, config, DIAG_FILE,
                  "there is no such folder; a name of the Hugging Face hub is downloaded first: "
                  "`hf download %s --local-dir %s`, then `tfmc import %s`",
                  folder, strchr(folder, '/') + 1, strchr(folder, '/') + 1);
  else if (!file_exists(folder))
    diag_error_at(diag, config, DIAG_FILE, "there is no such folder (No such file or directory)");
  else if (file_exists(folder_file(arena, folder, "adapter_config.json")))
    report_no_weights(arena, diag, folder, NULL);
  else if (gguf)
    diag_error_at(diag, config, DIAG_CHECKPOINT,
                  "there is no such file; \"%s\" is a GGUF file, which has settings of its own: tfmc import %s", gguf,
                  folder_file(arena, folder, gguf));
  else if (file_exists(folder_file(arena, folder, "0_Transformer/config.json")))
    diag_error_at(diag, config, DIAG_CHECKPOINT,
                  "there is no such file; this folder of sentence transformers keeps its model in 0_Transformer: copy "
                  "the files of 0_Transformer beside modules.json, and write \"path\": \"\" for it there");
  else if (first_module(arena, folder))
    diag_error_at(diag, config, DIAG_CHECKPOINT,
                  "there is no such file; modules.json begins with a module %s, and a Transformer or a "
                  "StaticEmbedding is computed",
                  first_module(arena, folder));
  else
    diag_error_at(diag, config, DIAG_FILE, "there is no such file (No such file or directory); a checkpoint of "
                  "Hugging Face has one, and save_pretrained writes it");
}

// ---- all of it ----

/* `theta`, `scaling`: the rope_theta and the rope_scaling that stood beside rope_parameters, or NULL. */
static bool read_names(Arena *arena, Diag *diag, Folder *folder, json_t *theta, json_t *scaling) {
  const char *path = folder_file(arena, folder->path, "generation_config.json");
  json_t *file = read_optional(arena, diag, path);
  folder->generation = file ? generation_written(file_exists(path) ? file : NULL, folder->config) : NULL;
  const json_t *padding = file && !file_exists(path) ? text_padding(folder->whole) : NULL;
  if (padding) json_object_set(folder->generation, "pad_token_id", (json_t *)padding);
  json_t *generation = file ? generation_completed(folder->generation) : NULL;
  json_decref(file);
  folder->generation_path = file_exists(path) ? path : folder->config_path;
  json_t *sentence = generation ? sentence_read(arena, diag, folder->path, folder->ignored) : NULL;
  const char *architecture = architecture_of(folder->config);
  folder->names = json_copy(folder->config);
  if (theta) json_object_set(folder->names, "rope_theta", theta);
  if (scaling) json_object_set(folder->names, "rope_scaling", scaling);
  json_object_set_new(folder->names, "architecture", architecture ? json_string(architecture) : json_null());
  if (generation) json_object_set_new(folder->names, "generation", generation);
  if (sentence) json_object_set_new(folder->names, "sentence", sentence);
  json_object_set_new(folder->names, "part_of", folder->part_of ? json_string(folder->part_of) : json_null());
  return generation && sentence;
}

/* A GGUF file is opened twice, here for its settings. */
static json_t *read_gguf(Arena *arena, Diag *diag, const char *path, const Map *ignored) {
  TensorFile *file = gguf_open(arena, diag, path);
  json_t *config = file ? gguf_config(arena, diag, file, ignored) : NULL;
  tensor_file_close(file);
  return config;
}

/* False after an error, which leaves no config. */
static bool take_text_part(Arena *arena, Diag *diag, Folder *folder) {
  json_t *part = text_part(diag, folder->config, folder->config_path);
  if (!part && !diag_has_errors(diag)) return true;
  if (part)
    folder->part_of = arena_strdup(arena, json_string_value(json_object_get(folder->config, "model_type")));
  if (part) folder->whole = folder->config;
  else json_decref(folder->config);
  folder->config = part;
  return part;
}

/* rope_scaling; an object without settings is as good as null. */
static json_t *take_scaling(json_t *config) {
  const json_t *scaling = json_object_get(config, "rope_scaling");
  if (json_is_object(scaling) && !json_object_size(scaling)) json_object_set_new(config, "rope_scaling", json_null());
  return json_object_get(config, "rope_scaling");
}

Folder *folder_open(Arena *arena, Diag *diag, const char *path, const Map *ignored) {
  Folder *folder = ARENA_NEW(arena, Folder);
  *folder = (Folder){.path = path, .config_path = folder_file(arena, path, "config.json"), .ignored = ignored};
  folder->weights_path = path;
  const bool is_file = is_gguf(path);
  if (is_file) folder->config_path = path;
  const bool is_static = !file_exists(folder->config_path) && is_static_embedding(arena, path);
  if (is_static) folder->config_path = folder_file(arena, path, "modules.json");
  if (!file_exists(folder->config_path)) {
    report_no_config(arena, diag, path, folder->config_path);
    return NULL;
  }
  folder->config = is_file     ? read_gguf(arena, diag, path, ignored)
                   : is_static ? json_pack("{s:s}", "model_type", "static_embedding")
                               : read_config(arena, diag, folder->config_path);
  if (!folder->config || !take_text_part(arena, diag, folder)) return NULL;
  folder->written = json_copy(folder->config);
  take_own_type(folder->config);
  json_t *theta = json_incref(json_object_get(folder->config, "rope_theta"));
  json_t *scaling = json_incref(take_scaling(folder->config));
  const bool is_twice = json_is_object(scaling) && json_is_object(json_object_get(folder->config, "rope_parameters"));
  const bool is_good = check_other_forms(diag, folder->config, folder->config_path) &&
                       join_rotary(arena, diag, folder) && check_config(arena, diag, folder) &&
                       read_names(arena, diag, folder, theta, scaling);
  json_decref(theta);
  json_decref(scaling);
  if (is_good && is_twice) json_object_set_new(folder->names, "rope_twice", json_true());
  if (is_good) return folder;
  folder_close(folder);
  return NULL;
}

/* Modules that have weights have them as safetensors. */
static bool modules_have_weights(Arena *arena, Diag *diag, const Folder *folder) {
  const json_t *modules = json_object_get(json_object_get(folder->names, "sentence"), "modules"), *module;
  const int before = diag->n_errors;
  size_t i;
  json_array_foreach((json_t *)modules, i, module) {
    const char *place = json_string_value(json_array_get(module, 1));
    if (!place) continue;
    const char *inside = folder_file(arena, folder->path, place);
    const char *path = folder_file(arena, inside, "model.safetensors");
    if (file_exists(path)) continue;
    const bool is_pickled = file_exists(folder_file(arena, inside, "pytorch_model.bin"));
    diag_error_at(diag, path, DIAG_CHECKPOINT, "there is no such file%s",
                  is_pickled ? ": the module's weights are pickled; in Python, sentence_transformers."
                               "SentenceTransformer(FOLDER).save(NEW_FOLDER) writes safetensors"
                             : "");
  }
  return diag->n_errors == before;
}

/* A config that says how weights were rounded means factors, without which transformers has the numbers of nobody. */
static bool has_scales(Diag *diag, const Folder *folder) {
  const json_t *quantized = json_object_get(folder->config, "quantization_config");
  if (!quantized || json_is_null(quantized)) return true;
  for (size_t i = 0; i < folder->weights->entries.n; i++) {
    const WeightEntry *entry = &folder->weights->entries.items[i];
    if (!weight_entry_lacks_scale(entry)) continue;
    diag_error_at(diag, folder->config_path, DIAG_CHECKPOINT,
                  "\"quantization_config\": the weights of %s have scales, and there is none beside \"%s\"",
                  json_string_value(json_object_get(quantized, "quant_method")), entry->name);
    return false;
  }
  return true;
}

/* transformers computes with an adapter that lies beside the model, whoever asks for the model. */
static bool has_no_adapter(Arena *arena, Diag *diag, const Folder *folder) {
  const char *path = folder_file(arena, folder->path, "adapter_config.json");
  if (strcmp(folder->weights_path, folder->path) != 0 || !file_exists(path)) return true;
  diag_error_at(diag, path, DIAG_CHECKPOINT, "an adapter lies beside the model, and transformers computes with both: "
                "give --adapter %s, or take the file away for the model alone", folder->path);
  return false;
}

bool folder_open_weights(Arena *arena, Diag *diag, Folder *folder) {
  const char *path = weight_set_path(arena, folder->path);
  if (!has_no_adapter(arena, diag, folder)) return false;
  if (file_exists(path))
    folder->weights = weight_set_open(arena, diag, folder->weights_path);
  else
    report_no_weights(arena, diag, folder->path, folder->whole ? folder->whole : folder->config);
  if (folder->weights && !(has_scales(diag, folder) && modules_have_weights(arena, diag, folder))) {
    weight_set_close(folder->weights);
    folder->weights = NULL;
  }
  return folder->weights;
}

void folder_close(Folder *folder) {
  if (!folder) return;
  weight_set_close(folder->weights);
  json_decref(folder->names);
  json_decref(folder->whole);
  json_decref(folder->generation);
  json_decref(folder->written);
  json_decref(folder->config);
}
