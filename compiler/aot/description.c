/* In: parts of a library, or the JSON of one. Out: JSON, or the text of a model. See description.h. Members are
 * written in a fixed order, so equal libraries have equal descriptions. */
#include "aot/description.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aot/library_file.h"

// ---- the text of the model, written ----

/* JSON is UTF-8 and file names need not be; a name that is not is replaced, because only messages use it. */
static json_t *safe_string(const char *text) {
  json_t *json = json_string(text);
  return json ? json : json_string("model.tfm");
}

static json_t *write_files(const ParsedProgram *program) {
  json_t *files = json_array();
  for (size_t i = 0; i < program->files.n; i++) {
    const ParsedFile *file = &program->files.items[i];
    json_array_append_new(files,
                          json_pack("{s:o, s:o, s:b}", "name", safe_string(file->source->name), "text",
                                    json_stringn(file->source->text, file->source->size), "main", file->is_main));
  }
  return files;
}

static json_t *write_texts(const char *const *texts, uint32_t n) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++) json_array_append_new(list, json_string(texts[i]));
  return list;
}

static json_t *write_definitions(const ElaborateOptions *options) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < options->n_definitions; i++)
    json_array_append_new(list, json_pack("[s, s]", options->definitions[i].name, options->definitions[i].expression));
  return list;
}

json_t *model_text_write(const ModelText *text) {
  return json_pack("{s:o, s:s?, s:o, s:s?, s:i, s:o, s:o, s:o, s:s*, s:s?}",
                   "files", write_files(text->program),
                   "model", text->options.model,
                   "definitions", write_definitions(&text->options),
                   "weights_prefix", text->options.weights_prefix,
                   "level", text->passes.level,
                   "only", write_texts(text->passes.only, text->passes.n_only),
                   "disabled", write_texts(text->passes.disabled, text->passes.n_disabled),
                   "quantize", write_texts(text->quantize, text->n_quantize),
                   "stored", text->stored,
                   "stop_after", text->passes.stop_after);
}

// ---- the text of the model, read ----

static const char *read_text(Arena *arena, const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? arena_strdup(arena, text) : NULL;
}

/* A list that is no list has size 0, and an entry that is no text becomes an empty one; what such a list means is
 * refused where it is used. */
static const char *const *read_texts(Arena *arena, const json_t *list, uint32_t *n) {
  *n = (uint32_t)json_array_size(list);
  const char **texts = ARENA_ARRAY(arena, const char *, *n);
  for (uint32_t i = 0; i < *n; i++) {
    const char *text = json_string_value(json_array_get(list, i));
    texts[i] = arena_strdup(arena, text ? text : "");
  }
  return texts;
}

static bool read_definitions(Arena *arena, const json_t *list, ElaborateOptions *options) {
  options->n_definitions = (uint32_t)json_array_size(list);
  Definition *definitions = ARENA_ARRAY(arena, Definition, options->n_definitions);
  options->definitions = definitions;
  for (uint32_t i = 0; i < options->n_definitions; i++) {
    const char *name = json_string_value(json_array_get(json_array_get(list, i), 0));
    const char *expression = json_string_value(json_array_get(json_array_get(list, i), 1));
    if (!name || !expression) return false;
    definitions[i] = (Definition){arena_strdup(arena, name), arena_strdup(arena, expression)};
  }
  return true;
}

/* parse_texts copies what it needs of the texts. */
static bool read_files(Arena *arena, Map *names, Diag *diag, const json_t *list, ModelText *text) {
  size_t n = json_array_size(list);
  NamedText *files = ARENA_ARRAY(arena, NamedText, n);
  for (size_t i = 0; i < n; i++) {
    const json_t *file = json_array_get(list, i), *content = json_object_get(file, "text");
    files[i] = (NamedText){read_text(arena, file, "name"), json_string_value(content), json_string_length(content),
                           json_is_true(json_object_get(file, "main"))};
    if (!files[i].name || !files[i].text) return false;
  }
  text->program = n ? parse_texts(arena, names, diag, files, n) : NULL;
  return text->program != NULL;
}

bool model_text_read(Arena *arena, Map *names, Diag *diag, const json_t *json, ModelText *text) {
  *text = (ModelText){0};
  text->options.model = read_text(arena, json, "model");
  text->options.weights_prefix = read_text(arena, json, "weights_prefix");
  text->passes.level = (int)json_integer_value(json_object_get(json, "level"));
  text->passes.only = read_texts(arena, json_object_get(json, "only"), &text->passes.n_only);
  text->passes.disabled = read_texts(arena, json_object_get(json, "disabled"), &text->passes.n_disabled);
  text->quantize = read_texts(arena, json_object_get(json, "quantize"), &text->n_quantize);
  text->stored = read_text(arena, json, "stored");
  text->passes.stop_after = read_text(arena, json, "stop_after");
  return read_definitions(arena, json_object_get(json, "definitions"), &text->options) &&
         read_files(arena, names, diag, json_object_get(json, "files"), text);
}

// ---- the whole description ----

/* What each element of an input is that a caller leaves out. An infinity is no number in JSON: it becomes a text. */
static json_t *describe_default(const tfm_tensor_info *tensor) {
  float number;
  memcpy(&number, &tensor->fill, sizeof number);
  if (tensor->dtype == TFM_BOOL) return json_boolean(tensor->fill & 1);
  if (tensor->dtype == TFM_I32) return json_integer((int32_t)tensor->fill);
  return isfinite(number) ? json_real((double)number) : json_string(number > 0 ? "inf" : number < 0 ? "-inf" : "nan");
}

static json_t *describe_tensors(const tfm_tensor_info *tensors, uint32_t n, const char **members) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++) {
    json_t *tensor =
        json_pack("{s:s, s:s, s:s}", "name", tensors[i].name, "type", tensors[i].shape, "member", members[i]);
    if (tensors[i].has_default) json_object_set_new(tensor, "default", describe_default(&tensors[i]));
    json_array_append_new(list, tensor);
  }
  return list;
}

/* The members of the args struct in their order, behind struct_size: for each its group (args.def) and its name. */
static json_t *describe_args(const ArgsNames *names) {
  static const char *const groups[] = {
#define ARGS(group, per, which, name, text, number) #group,
#include "tfm/abi/args.def"
  };
  json_t *list = json_array();
  for (uint32_t i = 0; i < names->members.n; i++) {
    const ArgsMember member = names->members.items[i];
    json_array_append_new(list, json_pack("[s, s]", groups[member.group], names->of[member.group][member.index]));
  }
  return list;
}

/* The sizes of which every item of a batch has its own, and the C names of their lengths; NULL: there are none. */
static json_t *describe_ragged_sources(const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  if (!parts->ragged_sources) return NULL;
  json_t *list = json_array();
  for (uint32_t i = 0; i < p->n_symbols; i++)
    if (parts->ragged_sources[i])
      json_array_append_new(
          list, json_pack("{s:s, s:s}", "name", p->symbols[i], "member", parts->names->of[ARGS_lengths][i]));
  return list;
}

/* How the model generates: its input and output, and how much memory a token of a row takes. NULL: it does not
 * generate. The bytes are those of the caches in pages, which is what a user plans memory by. */
static json_t *describe_generation(const LibraryParts *parts) {
  const tfm_generation *generation = parts->generation;
  const tfm_program *forward = &parts->plans[0].forward->program;
  const DecodingPlan *decoding = parts->plans[0].decoding;
  int64_t own = 0, source = 0;
  if (!generation) return NULL;
  for (uint32_t i = 0; decoding && i < decoding->step->program.n_caches; i++) {
    const tfm_cache *cache = &decoding->step->program.caches[i];
    *(cache->of_encoder ? &source : &own) += tfm_cache_floats(cache) * (int64_t)sizeof(float) / TFM_CACHE_PAGE;
  }
  return json_pack("{s:s, s:s, s:b, s:s?, s:I, s:I, s:s*, s:o*}",
                   "input", forward->inputs[generation->tokens].name,
                   "output", forward->outputs[generation->scores].name,
                   "incremental", decoding != NULL,
                   "reason", decoding ? NULL : parts->not_incremental,
                   "bytes_per_token", (json_int_t)own,
                   "bytes_per_source_position", (json_int_t)source,
                   "ragged", parts->ragged,
                   "ragged_sources", describe_ragged_sources(parts));
}

/* Bytes of packed weights by their type. NULL: all are f32. */
static json_t *describe_types(const LibraryPlans *plans) {
  uint64_t bytes[TFM_N_FORMS] = {0};
  const PlanList list = library_plan_list(plans);
  for (uint32_t i = 0; i < list.n; i++)
    for (size_t k = 0; k < list.plans[i]->recipes.n; k++) {
      const WeightRecipe *recipe = &list.plans[i]->recipes.items[k];
      if (!recipe->is_shared) bytes[recipe->form] += recipe->bytes;
    }
  json_t *types = json_object();
  bool is_plain = true;
  for (uint8_t form = 0; form < TFM_N_FORMS; form++) {
    if (bytes[form]) json_object_set_new(types, tfm_form_name(form), json_integer((json_int_t)bytes[form]));
    is_plain = is_plain && (!bytes[form] || form == TFM_FORM_F32);
  }
  if (!is_plain) return types;
  json_decref(types);
  return NULL;
}

/* Compact and in a fixed order: the description is part of the library's bytes. */
const char *describe_library(Arena *arena, const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  const char **sets = ARENA_ARRAY(arena, const char *, parts->n_plans);
  for (uint32_t i = 0; i < parts->n_plans; i++) sets[i] = parts->plans[i].forward->target->name;
  uint8_t layout[16];
  library_layout(arena, &parts->plans[0], layout);
  json_t *json = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o?, s:I, s:o*, s:b, s:s, s:o?}",
                           "model", p->name,
                           "prefix", parts->names->prefix,
                           "version", parts->version,
                           "instruction_sets", write_texts(sets, parts->n_plans),
                           "sizes", write_texts(p->symbols, p->n_symbols),
                           "inputs", describe_tensors(p->inputs, p->n_inputs, parts->names->of[ARGS_inputs]),
                           "outputs", describe_tensors(p->outputs, p->n_outputs, parts->names->of[ARGS_outputs]),
                           "args", describe_args(parts->names),
                           "generate", describe_generation(parts),
                           "weights_bytes", (json_int_t)p->weights_bytes,
                           "weights_by_type", describe_types(&parts->plans[0]),
                           "weights_embedded", parts->weights != NULL,
                           "layout", layout_text(arena, layout),
                           "source", parts->text ? model_text_write(parts->text) : NULL);
  char *text = json_dumps(json, JSON_COMPACT);
  char *copy = arena_strdup(arena, text ? text : "{}");
  free(text);
  json_decref(json);
  return copy;
}
