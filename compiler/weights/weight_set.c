/* In: a weight file, an index of several, the folder of a checkpoint. Out: their tensors by name. See weight_set.h. */
#include "weights/weight_set.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#include "weights/gguf.h"
#include "weights/safetensors.h"

// ---- sets of files ----

enum { MAX_INDEX_BYTES = 100000000 }; /* as for a header of safetensors: bounds the tree that jansson builds */

const WeightEntry *weight_set_find(const WeightSet *set, const char *name) {
  uintptr_t index = (uintptr_t)map_get(&set->by_name, name);
  return index ? &set->entries.items[index - 1] : NULL;
}

static void add_entry(Arena *arena, WeightSet *set, const TensorFile *file, const FileTensor *tensor) {
  vec_push(arena, &set->entries, (WeightEntry){file, tensor, tensor->name});
  map_put(&set->by_name, tensor->name, (void *)(uintptr_t)set->entries.n);
}

/* Of either kind, as its first bytes say: no length of a safetensors header reads "GGUF". */
static TensorFile *open_file(Arena *arena, Diag *diag, const char *path) {
  return is_gguf(path) ? gguf_open(arena, diag, path) : safetensors_open(arena, diag, path);
}

static bool add_single(Arena *arena, Diag *diag, WeightSet *set, const char *path) {
  TensorFile *file = open_file(arena, diag, path);
  if (!file) return false;
  vec_push(arena, &set->files, file);
  for (size_t i = 0; i < file->tensors.n; i++) add_entry(arena, set, file, file->tensors.items[i]);
  return true;
}

// ---- an index ----

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

static TensorFile *open_shard(Arena *arena, Diag *diag, WeightSet *set, Map *shards, const char *folder,
                              const char *name) {
  if (map_has(shards, name)) return map_get(shards, name);
  TensorFile *file = NULL;
  if (!is_contained(name))
    diag_error_at(diag, set->path, DIAG_SAFETENSORS, "file \"%s\": files of an index must lie in its folder", name);
  else
    file = open_file(arena, diag, arena_printf(arena, "%s%s", folder, name));
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
  TensorFile *file = open_shard(arena, diag, set, shards, folder, name);
  if (!file) return;
  const FileTensor *tensor = tensor_file_find(file, tensor_name);
  if (tensor)
    add_entry(arena, set, file, tensor);
  else
    diag_error_at(diag, set->path, DIAG_SAFETENSORS, "tensor \"%s\" is not in \"%s\"", tensor_name, name);
}

/* Duplicate keys are refused, as in a header. Every fault of the map is reported, not only the first. */
static bool add_index(Arena *arena, Diag *diag, WeightSet *set, const char *path) {
  size_t size;
  const char *text = in_file_text(diag, path, MAX_INDEX_BYTES, DIAG_SAFETENSORS, &size);
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

const char *weight_set_path(Arena *arena, const char *path) {
  struct stat status;
  if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) return path;
  const size_t length = strlen(path);
  const char *slash = length && path[length - 1] == '/' ? "" : "/";
  const char *single = arena_printf(arena, "%s%smodel.safetensors", path, slash);
  const char *index = arena_printf(arena, "%s.index.json", single);
  return stat(single, &status) != 0 && stat(index, &status) == 0 ? index : single;
}

/* PyTorch's name of a weight of a norm that has TensorFlow's; NULL: it has another. */
static const char *name_in_pytorch(Arena *arena, const char *name) {
  static const char *const names[][2] = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const size_t length = strlen(name), end = strlen(names[i][0]);
    if (length < end || strcmp(name + length - end, names[i][0]) != 0) continue;
    if (length == end || name[length - end - 1] == '.')
      return arena_printf(arena, "%.*s%s", (int)(length - end), name, names[i][1]);
  }
  return NULL;
}

static void add_names_in_pytorch(Arena *arena, WeightSet *set) {
  for (size_t i = 0; i < set->entries.n; i++) {
    const char *name = name_in_pytorch(arena, set->entries.items[i].tensor->name);
    if (!name || map_has(&set->by_name, name)) continue;
    set->entries.items[i].name = name;
    map_put(&set->by_name, name, (void *)(uintptr_t)(i + 1));
  }
}

WeightSet *weight_set_open(Arena *arena, Diag *diag, const char *path) {
  path = weight_set_path(arena, path);
  WeightSet *set = ARENA_NEW(arena, WeightSet);
  set->path = path;
  set->by_name = map_new(arena);
  size_t length = strlen(path);
  bool is_index = length > 5 && strcmp(path + length - 5, ".json") == 0;
  if (!(is_index ? add_index(arena, diag, set, path) : add_single(arena, diag, set, path))) {
    weight_set_close(set);
    return NULL;
  }
  add_names_in_pytorch(arena, set);
  return set;
}

void weight_set_close(WeightSet *set) {
  for (size_t i = 0; set && i < set->files.n; i++) tensor_file_close(set->files.items[i]);
}
