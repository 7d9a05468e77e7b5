/* In: the path of a weight file or of an index. Out: tensors by name. See weight_set.h. */
#include "weights/weight_set.h"

#include <jansson.h>
#include <string.h>

enum { MAX_INDEX_BYTES = 100000000 }; /* as for a header of safetensors: bounds the tree that jansson builds */

const WeightEntry *weight_set_find(const WeightSet *set, const char *name) {
  uintptr_t index = (uintptr_t)map_get(&set->by_name, name);
  return index ? &set->entries.items[index - 1] : NULL;
}

static void add_entry(Arena *arena, WeightSet *set, const SafeTensors *file, const StTensor *tensor) {
  vec_push(arena, &set->entries, (WeightEntry){file, tensor});
  map_put(&set->by_name, tensor->name, (void *)(uintptr_t)set->entries.n);
}

static bool add_single(Arena *arena, Diag *diag, WeightSet *set, const char *path) {
  SafeTensors *file = safetensors_open(arena, diag, path);
  if (!file) return false;
  vec_push(arena, &set->files, file);
  for (size_t i = 0; i < file->tensors.n; i++) add_entry(arena, set, file, file->tensors.items[i]);
  return true;
}

// ---- an index ----

/* Returns the whole text of the index, or NULL after an error. Its size is checked before memory is allocated for
 * it. */
static char *read_text(Arena *arena, Diag *diag, const char *path, size_t *size) {
  InFile file;
  if (!in_file_open(&file, diag, path)) return NULL;
  char *text = NULL;
  if (file.size > MAX_INDEX_BYTES) {
    diag_error_at(diag, path, DIAG_SAFETENSORS, "the index has %lld bytes; at most 100,000,000 are allowed",
                  (long long)file.size);
  } else {
    text = arena_alloc(arena, (size_t)file.size + 1);
    *size = (size_t)file.size;
    if (!in_file_read(&file, diag, 0, text, *size)) text = NULL;
  }
  in_file_close(&file);
  return text;
}

/* Whether the name itself stays below the folder: relative, no empty part, no `.` or `..`. An index comes with the
 * weights, perhaps from a stranger, so a name must not choose a file elsewhere. Symbolic links below the folder are
 * followed: whoever keeps the folder made them, and the cache of Hugging Face has every shard behind one. */
static bool is_contained(const char *path) {
  for (const char *part = path;; part++) {
    size_t length = strcspn(part, "/");
    if (length == 0 || strncmp(part, "..", length) == 0) return false; /* "", "." and ".." */
    part += length;
    if (!*part) return true;
  }
}

static SafeTensors *open_shard(Arena *arena, Diag *diag, WeightSet *set, Map *shards, const char *folder,
                               const char *name) {
  if (map_has(shards, name)) return map_get(shards, name);
  SafeTensors *file = NULL;
  if (!is_contained(name))
    diag_error_at(diag, set->path, DIAG_SAFETENSORS, "file \"%s\": files of an index must lie in its folder", name);
  else
    file = safetensors_open(arena, diag, arena_printf(arena, "%s%s", folder, name));
  map_put(shards, name, file);
  if (file) vec_push(arena, &set->files, file);
  return file;
}

/* A name with a NUL in it is no file name, whatever stands before the NUL. */
static void add_mapped(Arena *arena, Diag *diag, WeightSet *set, Map *shards, const char *folder,
                       const char *tensor_name, const json_t *file_name) {
  const char *name = json_string_value(file_name);
  if (!name || strlen(name) != json_string_length(file_name)) {
    diag_error_at(diag, set->path, DIAG_SAFETENSORS, "weight_map \"%s\": expected the name of a file", tensor_name);
    return;
  }
  SafeTensors *file = open_shard(arena, diag, set, shards, folder, name);
  if (!file) return;
  const StTensor *tensor = safetensors_find(file, tensor_name);
  if (tensor) add_entry(arena, set, file, tensor);
  else diag_error_at(diag, set->path, DIAG_SAFETENSORS, "tensor \"%s\" is not in \"%s\"", tensor_name, name);
}

/* Duplicate keys are refused, as in a header. Every fault of the map is reported, not only the first. */
static bool add_index(Arena *arena, Diag *diag, WeightSet *set, const char *path) {
  size_t size;
  char *text = read_text(arena, diag, path, &size);
  if (!text) return false;
  json_error_t error;
  json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  const json_t *map = json_object_get(json, "weight_map");
  if (!json)
    diag_error_at(diag, path, DIAG_SAFETENSORS, "the index is not JSON: byte %d: %s", error.position, error.text);
  else if (!json_is_object(map))
    diag_error_at(diag, path, DIAG_SAFETENSORS, "the index has no object \"weight_map\"");
  const char *slash = strrchr(path, '/'), *tensor_name;
  const char *folder = slash ? arena_strndup(arena, path, (size_t)(slash - path) + 1) : "";
  Map shards = map_new(arena);
  json_t *file_name;
  json_object_foreach((json_t *)map, tensor_name, file_name)
    add_mapped(arena, diag, set, &shards, folder, tensor_name, file_name);
  json_decref(json);
  return !diag_has_errors(diag);
}

WeightSet *weight_set_open(Arena *arena, Diag *diag, const char *path) {
  WeightSet *set = ARENA_NEW(arena, WeightSet);
  set->path = path;
  set->by_name = map_new(arena);
  size_t length = strlen(path);
  bool is_index = length > 5 && strcmp(path + length - 5, ".json") == 0;
  if (is_index ? add_index(arena, diag, set, path) : add_single(arena, diag, set, path)) return set;
  weight_set_close(set);
  return NULL;
}

void weight_set_close(WeightSet *set) {
  for (size_t i = 0; set && i < set->files.n; i++) safetensors_close(set->files.items[i]);
}
