#include "aot/describe.h"

#include <jansson.h>
#include <stdlib.h>

#include "aot/library_file.h"

static json_t *describe_tensors(const tfm_tensor_info *tensors, uint32_t n, const char **members) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++)
    json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", tensors[i].name, "type", tensors[i].shape, "member", members[i]));
  return list;
}

static json_t *describe_texts(const char *const *texts, uint32_t n) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++) json_array_append_new(list, json_string(texts[i]));
  return list;
}

/* Sizes that items of a batch have of their own, and what their lengths are called in C; NULL: there are none. */
static json_t *describe_ragged_sources(const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  if (!parts->ragged_sources) return NULL;
  json_t *list = json_array();
  for (uint32_t i = 0; i < p->n_symbols; i++)
    if (parts->ragged_sources[i])
      json_array_append_new(list, json_pack("{s:s, s:s}", "name", p->symbols[i], "member", parts->names->lengths[i]));
  return list;
}

/* How a model writes: its input and output, and what a token of a row costs of memory. NULL: it doesn't. */
static json_t *describe_generation(const LibraryParts *parts) {
  const tfm_generation *generation = parts->generation;
  const tfm_program *forward = &parts->plans[0].forward->program;
  const DecodingPlan *decoding = parts->plans[0].decoding;
  int64_t own = 0, source = 0;
  if (!generation) return NULL;
  for (uint32_t i = 0; decoding && i < decoding->step->program.n_caches; i++) {
    const tfm_cache *cache = &decoding->step->program.caches[i];
    *(cache->of_source ? &source : &own) += cache->columns * (int64_t)sizeof(float);
  }
  return json_pack("{s:s, s:s, s:b, s:s?, s:I, s:I, s:s*, s:o*}", "input", forward->inputs[generation->tokens].name, "output",
                   forward->outputs[generation->scores].name, "incremental", decoding != NULL, "reason",
                   decoding ? NULL : parts->not_incremental, "bytes_per_token", (json_int_t)own, "bytes_per_source_position",
                   (json_int_t)source, "ragged", parts->ragged, "ragged_sources", describe_ragged_sources(parts));
}

const char *describe_library(Arena *arena, const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  const char **sets = ARENA_ARRAY(arena, const char *, parts->n_plans);
  for (uint32_t i = 0; i < parts->n_plans; i++) sets[i] = parts->plans[i].forward->target->name;
  uint8_t layout[16];
  library_layout(arena, &parts->plans[0], layout);
  json_t *json = json_pack(
      "{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o?, s:I, s:b, s:s, s:o?}", "model", p->name, "prefix", parts->names->prefix, "version",
      parts->version, "instruction_sets", describe_texts(sets, parts->n_plans), "sizes",
      describe_texts(p->symbols, p->n_symbols), "inputs", describe_tensors(p->inputs, p->n_inputs, parts->names->inputs),
      "outputs", describe_tensors(p->outputs, p->n_outputs, parts->names->outputs), "generate", describe_generation(parts), "weights_bytes",
      (json_int_t)p->weights_bytes, "weights_embedded", parts->weights != NULL, "layout", layout_text(arena, layout),
      "source", parts->text ? model_text_write(parts->text) : NULL);
  char *text = json_dumps(json, JSON_COMPACT);
  char *copy = arena_strdup(arena, text ? text : "{}");
  free(text);
  json_decref(json);
  return copy;
}
