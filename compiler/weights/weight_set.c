/* In: a weight file, an index of several, the folder of a checkpoint. Out: their tensors by name. See weight_set.h. */
#include "weights/weight_set.h"

#include <jansson.h>
#include <string.h>

#include "weights/gguf.h"
#include "weights/gguf_names.h"
#include "weights/safetensors.h"
#include "weights/weight_folder.h"

// ---- sets of files ----

enum { MAX_INDEX_BYTES = 100000000 }; /* as for a header of safetensors: bounds the tree that jansson builds */

const WeightEntry *weight_set_find(const WeightSet *set, const char *name) {
  uintptr_t index = (uintptr_t)map_get(&set->by_name, name);
  return index ? &set->entries.items[index - 1] : map_get(&set->turned, name);
}

static void add_entry(Arena *arena, WeightSet *set, const TensorFile *file, const FileTensor *tensor) {
  vec_push(arena, &set->entries, (WeightEntry){.file = file, .tensor = tensor, .name = tensor->name});
  map_put(&set->by_name, tensor->name, (void *)(uintptr_t)set->entries.n);
}

void weight_set_add(Arena *arena, WeightSet *set, const TensorFile *file, const FileTensor *tensor, const char *name) {
  FileTensor *named = ARENA_NEW(arena, FileTensor);
  *named = *tensor;
  named->name = name;
  add_entry(arena, set, file, named);
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

typedef struct Shards {
  Arena *arena;
  Diag *diag;
  WeightSet *set;
  Map *files; /* by name */
  const char *folder;
} Shards;

/* A name with a NUL in it is no file name, whatever stands before the NUL. */
static void add_mapped(const Shards *s, const char *tensor_name, const json_t *file_name) {
  Arena *arena = s->arena;
  Diag *diag = s->diag;
  WeightSet *set = s->set;
  const char *name = json_string_value(file_name);
  if (!name || strlen(name) != json_string_length(file_name)) {
    diag_error_at(diag, set->path, DIAG_SAFETENSORS, "weight_map \"%s\": expected the name of a file", tensor_name);
    return;
  }
  TensorFile *file = open_shard(arena, diag, set, s->files, s->folder, name);
  if (!file) return;
  const FileTensor *tensor = tensor_file_find(file, tensor_name);
  if (tensor)
    add_entry(arena, set, file, tensor);
  else
    diag_error_at(diag, set->path, DIAG_SAFETENSORS, "tensor \"%s\" is not in \"%s\"", tensor_name, name);
}

/* Tensors of a shard that the map leaves out are read, too, as transformers reads them; of a tensor that stands in two
 * shards it takes the last, whatever the map says: such a folder is refused. */
static void add_unmapped(const Shards *s, const json_t *map) {
  WeightSet *set = s->set;
  for (size_t i = 0; i < set->files.n; i++) {
    TensorFile *file = set->files.items[i];
    for (size_t k = 0; k < file->tensors.n; k++) {
      const FileTensor *tensor = file->tensors.items[k];
      const WeightEntry *known = weight_set_find(set, tensor->name);
      if (!known && !json_object_get(map, tensor->name))
        add_entry(s->arena, set, file, tensor);
      else if (known && known->file != file)
        diag_error_at(s->diag, set->path, DIAG_SAFETENSORS, "tensor \"%s\" is in two files, \"%s\" and \"%s\"",
                      tensor->name, known->file->file.path, file->file.path);
    }
  }
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
  Map files = map_new(arena);
  const Shards shards = {arena, diag, set, &files, folder};
  json_t *file_name;
  json_object_foreach((json_t *)map, tensor_name, file_name)
      add_mapped(&shards, tensor_name, file_name);
  add_unmapped(&shards, map);
  json_decref(json);
  return !diag_has_errors(diag);
}

// ---- a folder ----

/* Weights of modules of sentence transformers, NAME of the folder F as F.NAME. */
static bool add_modules(Arena *arena, Diag *diag, WeightSet *set, const char *folder) {
  const ModuleFolders modules = module_folders(arena, folder);
  for (size_t i = 0; i < modules.n; i++) {
    TensorFile *file = open_file(arena, diag, modules.items[i].path);
    if (!file) return false;
    vec_push(arena, &set->files, file);
    for (size_t k = 0; k < file->tensors.n; k++) {
      FileTensor *tensor = ARENA_NEW(arena, FileTensor);
      *tensor = *file->tensors.items[k];
      tensor->name = arena_printf(arena, "%s.%s", modules.items[i].name, tensor->name);
      if (!map_has(&set->by_name, tensor->name)) add_entry(arena, set, file, tensor);
    }
  }
  return true;
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

/* A tensor whose rows stand in another order in the file is itself by the file's name, and what it is in PyTorch by
 * that of PyTorch. */
static void add_names_of_gguf(Arena *arena, WeightSet *set) {
  for (size_t i = 0; i < set->entries.n; i++) {
    WeightEntry *entry = &set->entries.items[i];
    GgufName name;
    if (!entry->file->is_gguf || !gguf_name_in_pytorch(arena, entry->file, entry->tensor, &name)) continue;
    if (map_has(&set->by_name, name.text) || map_has(&set->turned, name.text)) continue;
    entry->name = name.text;
    if (!name.turned_heads) {
      map_put(&set->by_name, name.text, (void *)(uintptr_t)(i + 1));
      continue;
    }
    FileTensor *tensor = ARENA_NEW(arena, FileTensor);
    *tensor = *entry->tensor;
    tensor->turned_heads = name.turned_heads;
    WeightEntry *turned = ARENA_NEW(arena, WeightEntry);
    *turned = (WeightEntry){.file = entry->file, .tensor = tensor, .name = name.text};
    map_put(&set->turned, name.text, turned);
  }
}

/* `tfmc train -o` calls the weights after.PATH, since it writes gradients and losses beside them: they are found
 * without that too. */
static void add_names_of_training(WeightSet *set) {
  static const char prefix[] = "after.";
  for (size_t i = 0; i < set->entries.n; i++) {
    const char *name = set->entries.items[i].tensor->name;
    if (strncmp(name, prefix, strlen(prefix)) != 0 || map_has(&set->by_name, name + strlen(prefix))) continue;
    map_put(&set->by_name, name + strlen(prefix), (void *)(uintptr_t)(i + 1));
  }
}

// ---- weights that are quantized already ----

enum { SCALE_BLOCK = 128 }; /* what DeepSeek and transformers write, and what compressed-tensors calls a block */

static WeightEntry *find_part(WeightSet *set, const char *name) {
  uintptr_t index = (uintptr_t)map_get(&set->by_name, name);
  return index ? &set->entries.items[index - 1] : NULL;
}

static int64_t parts_of(int64_t n, int64_t size) { return n / size + (n % size != 0); }

/* Which numbers share a factor, by the shapes of both; false: they do not belong together. Blocks are asked for first,
 * because a matrix of one block of rows could pass for one with groups. */
static bool place_scale(const FileTensor *tensor, WeightScale *scale) {
  const int64_t n = tensor->dims[0], k = tensor->dims[1], *dims = scale->tensor->dims;
  const uint32_t rank = scale->tensor->rank;
  const int64_t rows = rank > 0 ? dims[0] : 1, columns = rank > 1 ? dims[1] : 1;
  scale->rows = 1;
  scale->columns = k;
  if (rank > 2) return false;
  if (rows == 1 && columns == 1) {
    scale->rows = n;
  } else if (rows == parts_of(n, SCALE_BLOCK) && columns == parts_of(k, SCALE_BLOCK) && rank == 2) {
    scale->rows = scale->columns = SCALE_BLOCK;
  } else {
    if (rows != n || columns == 0 || k % columns) return false;
    scale->columns = k / columns;
  }
  return true;
}

static const char *scale_fault(Arena *arena, const WeightEntry *entry, WeightScale *scale) {
  StrBuf shape = strbuf_new(arena);
  const FileTensor *tensor = scale->tensor;
  print_dims(&shape, tensor->dims, tensor->rank);
  if (tensor->dtype != FILE_F32 && tensor->dtype != FILE_BF16 && tensor->dtype != FILE_F16)
    return arena_printf(arena, "its scale \"%s\" has the type %s; F32, BF16 and F16 are read", tensor->name,
                        tensor->dtype_name);
  if (entry->tensor->rank != 2)
    return arena_printf(arena, "only weights of two axes may have a scale (\"%s\")", tensor->name);
  if (place_scale(entry->tensor, scale)) return NULL;
  return arena_printf(arena,
                      "its scale \"%s\" has the shape %s; one number is read, one for each row, for each group of "
                      "columns or for each block of 128 by 128",
                      tensor->name, shape.text);
}

/* What a scale alone does not say. */
static const char *other_fault(Arena *arena, WeightSet *set, const char *name) {
  static const char *const parts[][2] = {{"_zero_point", "is not symmetric"},
                                         {"_g_idx", "has its columns in another order"}};
  const char *fault = NULL;
  for (size_t i = 0; i < 2; i++) {
    WeightEntry *part = find_part(set, arena_printf(arena, "%s%s", name, parts[i][0]));
    if (!part) continue;
    part->is_part = true;
    fault =
        arena_printf(arena,
                     "it %s (\"%s\"); what is read is symmetric, in order: take another checkpoint, or the original "
                     "and --quantize=int8",
                     parts[i][1], part->tensor->name);
  }
  return fault;
}

/* Scales of activations are of no use: a row of x is rounded while the model runs, if --quantize says so. */
static void mark_scales_of_activations(Arena *arena, WeightSet *set, const char *name) {
  static const char *const parts[] = {"input_scale", "output_scale", "input_zero_point", "output_zero_point"};
  const char *dot = strrchr(name, '.');
  for (size_t i = 0; dot && i < sizeof parts / sizeof *parts; i++) {
    WeightEntry *part = find_part(set, arena_printf(arena, "%.*s%s", (int)(dot + 1 - name), name, parts[i]));
    if (part) part->is_part = true;
  }
}

/* The scale of a weight without one, under a name by which it is not read; NULL: there is none. */
static const char *strange_scale(Arena *arena, WeightSet *set, const char *name) {
  static const char *const parts[] = {"qscale_weight", "scale_weight", "weight_scales", "scales", "scale"};
  const char *dot = strrchr(name, '.');
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const char *part = arena_printf(arena, "%.*s%s", (int)(dot ? dot + 1 - name : 0), name, parts[i]);
    if (find_part(set, part)) return part;
  }
  return NULL;
}

static void add_scale(Arena *arena, WeightSet *set, WeightEntry *entry) {
  static const char *const endings[] = {"_scale", "_scale_inv"};
  const char *name = entry->tensor->name;
  for (size_t i = 0; i < 2; i++) {
    WeightEntry *found = find_part(set, arena_printf(arena, "%s%s", name, endings[i]));
    if (!found || entry->scale) continue;
    found->is_part = true;
    WeightScale *scale = ARENA_NEW(arena, WeightScale);
    *scale = (WeightScale){.file = found->file, .tensor = found->tensor};
    const char *other = other_fault(arena, set, name);
    entry->fault = other ? other : scale_fault(arena, entry, scale);
    entry->scale = scale;
    mark_scales_of_activations(arena, set, name);
  }
  const char *strange = entry->scale ? NULL : strange_scale(arena, set, name);
  if (strange)
    entry->fault = arena_printf(arena, "its scale seems to be \"%s\"; it is read under the name \"%s_scale\"", strange,
                                name);
  else if (!entry->scale && entry->tensor->dtype == FILE_I8)
    entry->fault =
        arena_printf(arena, "whole numbers are a weight only with a scale, but there is no \"%s_scale\"", name);
}

bool weight_entry_lacks_scale(const WeightEntry *entry) {
  return entry->tensor->dtype == FILE_F8_E4M3 && entry->tensor->rank == 2 && !entry->scale;
}

static void add_scales(Arena *arena, WeightSet *set) {
  bool has_some = false;
  for (size_t i = 0; i < set->entries.n; i++) {
    WeightEntry *entry = &set->entries.items[i];
    const FileDType dtype = entry->tensor->dtype;
    if ((dtype == FILE_F8_E4M3 || dtype == FILE_I8) && !entry->file->is_gguf) add_scale(arena, set, entry);
    has_some |= entry->scale != NULL;
  }
  for (size_t i = 0; has_some && i < set->entries.n; i++)
    if (weight_entry_lacks_scale(&set->entries.items[i]) && !set->entries.items[i].fault)
      set->entries.items[i].fault = "there is no scale beside it, as others of the file have one";
}

bool weight_entry_is_readable(const WeightEntry *entry) {
  return !entry->fault && (entry->scale || entry->packed || can_convert(entry->tensor->dtype, DTYPE_F32));
}

/* Multiplies runs of elements that share a factor. `factors` begins with the row of the scale that `first` has. */
static void multiply(const WeightEntry *entry, int64_t first, int64_t n, const float *factors, float *out) {
  const WeightScale *scale = entry->scale;
  const int64_t k = entry->tensor->dims[1], in_row = parts_of(k, scale->columns), begin = first / k / scale->rows;
  for (int64_t i = 0; i < n;) {
    const int64_t row = (first + i) / k, column = (first + i) % k;
    int64_t run = scale->columns - column % scale->columns;
    if (run > k - column) run = k - column;
    if (run > n - i) run = n - i;
    const float factor = factors[(row / scale->rows - begin) * in_row + column / scale->columns];
    for (const int64_t end = i + run; i < end; i++) out[i] *= factor;
  }
}

static bool read_scaled(const WeightEntry *entry, Diag *diag, int64_t first, int64_t n, float *out) {
  const WeightScale *scale = entry->scale;
  if (entry->packed) return packed_weight_read(entry->packed, diag, first, n, out);
  const FileTensorPart numbers = {entry->tensor, first, n};
  if (!tensor_file_read_part(entry->file, diag, numbers, DTYPE_F32, out)) return false;
  if (!scale || !n) return true;
  const int64_t k = entry->tensor->dims[1], in_row = parts_of(k, scale->columns), begin = first / k / scale->rows;
  const int64_t factors = ((first + n - 1) / k / scale->rows - begin + 1) * in_row;
  Arena *scratch = arena_create();
  float *values = ARENA_ARRAY(scratch, float, (size_t)factors);
  const FileTensorPart part = {scale->tensor, begin * in_row, factors};
  bool read = tensor_file_read_part(scale->file, diag, part, DTYPE_F32, values);
  if (read) multiply(entry, first, n, values, out);
  arena_destroy(scratch);
  return read;
}

// ---- adapters ----

/* Elements [first, first + n) of row i of B A, as sums over the rank in its order. */
static void delta_row(const WeightDelta *delta, int64_t i, int64_t first, int64_t n, double *out) {
  memset(out, 0, (size_t)n * sizeof *out);
  for (int64_t k = 0; k < delta->rank; k++) {
    const double b = (double)delta->b[i * delta->rank + k];
    const float *a = delta->a + k * delta->columns + first;
    for (int64_t j = 0; j < n; j++) out[j] += b * (double)a[j];
  }
}

/* The same of a transpose: of column `column` of B A. */
static void delta_column(const WeightDelta *delta, int64_t column, int64_t first, int64_t n, double *out) {
  for (int64_t i = 0; i < n; i++) {
    const float *b = delta->b + (first + i) * delta->rank, *a = delta->a + column;
    out[i] = 0;
    for (int64_t k = 0; k < delta->rank; k++) out[i] += (double)b[k] * (double)a[k * delta->columns];
  }
}

/* Each adapter is rounded by itself, as merging one after the other would do. */
static void add_delta(const WeightDelta *delta, int64_t first, int64_t n, float *out) {
  enum { PIECE = 512 };
  double sums[PIECE];
  if (delta->before) add_delta(delta->before, first, n, out);
  const int64_t width = delta->is_turned ? delta->rows : delta->columns;
  for (int64_t at = 0; at < n;) {
    const int64_t row = (first + at) / width, begin = (first + at) % width;
    int64_t piece = width - begin < n - at ? width - begin : n - at;
    if (piece > PIECE) piece = PIECE;
    if (delta->is_turned) delta_column(delta, row, begin, piece, sums);
    else delta_row(delta, row, begin, piece, sums);
    for (int64_t k = 0; k < piece; k++) out[at + k] = (float)((double)out[at + k] + delta->scale * sums[k]);
    at += piece;
  }
}

bool weight_entry_read_part(const WeightEntry *entry, Diag *diag, int64_t first, int64_t n, float *out) {
  if (!read_scaled(entry, diag, first, n, out)) return false;
  if (entry->delta) add_delta(entry->delta, first, n, out);
  return true;
}

// ---- opening ----

WeightSet *weight_set_open_base(Arena *arena, Diag *diag, const char *path) {
  const char *folder = is_weight_folder(path) ? path : NULL;
  path = weight_set_path(arena, path);
  WeightSet *set = ARENA_NEW(arena, WeightSet);
  set->path = path;
  set->by_name = map_new(arena);
  set->turned = map_new(arena);
  size_t length = strlen(path);
  bool is_index = length > 5 && strcmp(path + length - 5, ".json") == 0;
  bool is_read = is_index ? add_index(arena, diag, set, path) : add_single(arena, diag, set, path);
  if (!is_read || (folder && !add_modules(arena, diag, set, folder))) {
    weight_set_close(set);
    return NULL;
  }
  add_names_in_pytorch(arena, set);
  add_names_of_gguf(arena, set);
  add_names_of_training(set);
  add_scales(arena, set);
  return set;
}

void weight_set_close(WeightSet *set) {
  for (size_t i = 0; set && i < set->files.n; i++) tensor_file_close(set->files.items[i]);
  if (set) packed_cache_close(&set->packed);
}
