/* libtfm: trainers of what tfm_compile made, and where the weights are that they begin with.
 *
 * In: a compiled model that trains, and a state or nothing. Out: a trainer; the compiled model without its weights, or
 * with a trainer's in a file. What is frozen stays in the file that the compiler made, in memory, and each trainer maps
 * it; what is trained is copied, so that the weights to begin with can be released. Refused: models that do not train,
 * trainers without a state once the weights were released. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/api_compile.h"

/* Whether trainers map what is frozen. Where it is the smaller part they copy it, so that the file need not stay. */
static bool maps_frozen(const tfm_compiled *compiled) {
  const PartsHeader *header = parts_header(&compiled->parts);
  return compiled->file > 0 && header->frozen.size > header->weights.size;
}

/* Frozen weights as a trainer's own memory, which is the file's as long as nobody writes to it. Where pages are larger
 * than the file's ranges are aligned, it is a copy. NULL: there is no memory. */
static void *map_frozen(const tfm_compiled *compiled) {
  const PartsRange range = parts_header(&compiled->parts)->frozen;
  void *frozen = MAP_FAILED;
  if (maps_frozen(compiled))
    frozen = mmap(NULL, range.size, PROT_READ | PROT_WRITE, MAP_PRIVATE, compiled->file, (off_t)range.offset);
  if (frozen != MAP_FAILED) return frozen;
  frozen = mmap(NULL, range.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (frozen == MAP_FAILED) return NULL;
  return memcpy(frozen, compiled->parts.data + range.offset, range.size);
}

/* Initial values for what no file had, such as adapters. */
static tfm_status draw_new(const tfm_compiled *compiled, tfm_trainer *trainer, tfm_error *error) {
  const PartsRange range = parts_header(&compiled->parts)->drawn;
  const char *drawn = compiled->parts.data + range.offset;
  tfm_status status = TFM_OK;
  for (uint32_t i = 0; i < range.size && !status; i++)
    if (drawn[i]) status = tfm_trainer_draw_one(trainer, i, error);
  return status;
}

/* From the file that the compiler made, which has all weights. A state has those that are trained, and perhaps all. */
static tfm_status begin_with(const tfm_compiled *compiled, const char *state, const tfm_trainer_options *given,
                             tfm_trainer **trainer, tfm_error *error) {
  const PartsHeader *header = parts_header(&compiled->parts);
  tfm_trainer_begin begin = {.frozen_mapping = header->frozen.size};
  tfm_trainer_options options = {0};
  if (given) memcpy(&options, given, given->struct_size < sizeof options ? given->struct_size : sizeof options);
  options.struct_size = sizeof options;
  options.fills = 1;
  const void *trained = compiled->parts.data + header->weights.offset;
  if (header->weights.size) begin.trained = trained;
  if (header->frozen.size && !(begin.frozen = map_frozen(compiled)))
    return api_fault(error, TFM_E_NOMEM, "not enough memory for %llu bytes of frozen weights",
                     (unsigned long long)header->frozen.size);
  const tfm_status status =
      tfm_library_trainer_begin(compiled->training, &begin, state, &options, trainer, error);
  return status || state ? status : draw_new(compiled, *trainer, error);
}

tfm_status tfm_compiled_trainer(const tfm_compiled *compiled, const char *state, const tfm_trainer_options *options,
                                tfm_trainer **trainer, tfm_error *error) {
  if (!compiled || !trainer)
    return api_fault(error, TFM_E_USAGE, "the model or the place for the trainer is a null pointer");
  *trainer = NULL;
  if (!compiled->training)
    return api_fault(error, TFM_E_USAGE, "the model was not compiled to be trained: set `training` of the options");
  if (compiled->is_released && !state)
    return api_fault(error, TFM_E_USAGE, "the weights that training begins with were released: give a state");
  const PartsHeader *header = parts_header(&compiled->parts);
  const bool has_weights = !compiled->is_released && (header->weights.size || header->frozen.size);
  if (has_weights) return begin_with(compiled, state, options, trainer, error);
  return tfm_library_trainer_new(compiled->training, state, options, trainer, error);
}

// ---- without the weights to begin with ----

static uint64_t later(uint64_t end, PartsRange range) {
  const uint64_t own = (range.offset + range.size + PARTS_ALIGNMENT - 1) / PARTS_ALIGNMENT * PARTS_ALIGNMENT;
  return own > end ? own : end;
}

/* Where the code ends: weights lie behind it. */
static uint64_t end_of_code(const PartsHeader *header) {
  uint64_t end = later(PARTS_ALIGNMENT, header->symbol);
  for (uint32_t i = 0; i < header->n_objects; i++) end = later(end, header->objects[i]);
  return end;
}

/* The code, with room for `more` bytes behind it. NULL: there is no memory. */
static char *copy_code(const tfm_compiled *compiled, uint64_t more) {
  const uint64_t end = end_of_code(parts_header(&compiled->parts)), all = compiled->parts.size;
  char *copy = mmap(NULL, end + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return copy == MAP_FAILED ? NULL : memcpy(copy, compiled->parts.data, end < all ? end : all);
}

tfm_status tfm_compiled_release_weights(tfm_compiled *compiled, tfm_error *error) {
  if (!compiled || !compiled->training)
    return api_fault(error, TFM_E_USAGE, "there is no model that was compiled to be trained");
  const PartsHeader *header = parts_header(&compiled->parts);
  const bool has_none = compiled->is_released || (!header->weights.size && !header->frozen.size);
  if (has_none || maps_frozen(compiled) || compiled->training->base_is_apart) return TFM_OK;
  char *code = copy_code(compiled, 0);
  if (!code) return api_fault(error, TFM_E_NOMEM, "not enough memory for the code");
  const uint64_t end = end_of_code(header);
  mapping_free(&compiled->parts);
  if (compiled->file > 0) close(compiled->file);
  compiled->file = 0;
  compiled->parts = (Mapping){code, end};
  compiled->is_released = 1;
  return TFM_OK;
}

/* The code with the weights of a trainer behind it; data NULL: there is no memory. */
static Mapping parts_with(const tfm_compiled *compiled, const tfm_trainer_weights *all) {
  const uint64_t end = end_of_code(parts_header(&compiled->parts));
  const PartsRange weights = {all->trained_bytes ? end : 0, all->trained_bytes};
  const uint64_t behind = later(end, weights);
  const PartsRange frozen = {all->frozen_bytes ? behind : 0, all->frozen_bytes};
  const uint64_t size = later(behind, frozen);
  char *copy = copy_code(compiled, size - end);
  if (!copy) return (Mapping){0};
  PartsHeader *header = (PartsHeader *)(void *)copy;
  header->weights = weights;
  header->frozen = frozen;
  header->drawn = (PartsRange){0, 0};
  if (weights.size) memcpy(copy + weights.offset, all->trained, weights.size);
  if (frozen.size) memcpy(copy + frozen.offset, all->frozen, frozen.size);
  return (Mapping){copy, size};
}

tfm_status tfm_compiled_save_trainer(const tfm_compiled *compiled, const tfm_trainer *trainer, const char *path,
                                     tfm_error *error) {
  if (!compiled || !compiled->training || !trainer || !path)
    return api_fault(error, TFM_E_USAGE, "a model that was compiled to be trained, its trainer and a path are needed");
  const tfm_trainer_weights all = tfm_trainer_all_weights(trainer);
  const PartsHeader *header = parts_header(&compiled->parts);
  if (all.trained_bytes != compiled->training->floats * sizeof(float) ||
      all.frozen_bytes != compiled->training->frozen_bytes)
    return api_fault(error, TFM_E_USAGE, "the trainer is of another model");
  if (!compiled->is_released && !header->weights.size && !header->frozen.size)
    return parts_save(&compiled->parts, path, error);
  Mapping parts = parts_with(compiled, &all);
  if (!parts.data) return api_fault(error, TFM_E_NOMEM, "not enough memory for a copy of the weights");
  const tfm_status status = parts_save(&parts, path, error);
  mapping_free(&parts);
  return status;
}
