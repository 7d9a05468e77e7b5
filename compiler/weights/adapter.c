/* Merges adapters of peft. See adapter.h; patterns of its config are adapter_config.c's. */
#include "weights/adapter.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "weights/adapter_config.h"
#include "weights/packed_set.h"
#include "weights/safetensors.h"

static const char root[] = "base_model.model.";

static bool exists(const char *path) {
  struct stat status;
  return stat(path, &status) == 0;
}

// ---- what belongs to what ----

typedef struct Merge {
  Arena *arena;
  Diag *diag;
  WeightSet *set;
  const TensorFile *file;
  const AdapterConfig *config;
  const char *turned, *plain, *square; /* modules that were seen: of weights [in, out], [out, in], either way */
} Merge;

__attribute__((format(printf, 2, 3))) static void refuse(const Merge *m, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(m->arena, format, args);
  va_end(args);
  diag_error_at(m->diag, m->file->file.path, DIAG_CHECKPOINT, "%s", text);
}

/* The module of a tensor, if its name is ROOT, module, ending; NULL: it is another. */
static const char *module_of(const Merge *m, const char *name, const char *ending) {
  const size_t length = strlen(name), begin = strlen(root), end = strlen(ending);
  if (length <= begin + end || strncmp(name, root, begin) != 0 || strcmp(name + length - end, ending) != 0) return NULL;
  return arena_printf(m->arena, "%.*s", (int)(length - begin - end), name + begin);
}

/* A tensor of the base by its name in the model that was adapted, whose head may stand around the body that the folder
 * has: "transformer.h.0" is h.0 of a folder without a head. */
static WeightEntry *find_in_base(const Merge *m, const char *name) {
  const WeightEntry *found = weight_set_find(m->set, name);
  const char *dot = strchr(name, '.');
  if (!found && dot) found = weight_set_find(m->set, dot + 1);
  return (WeightEntry *)found; /* the set is the caller's to change */
}

static const float *numbers_of(const Merge *m, const FileTensor *tensor) {
  float *values = ARENA_ARRAY(m->arena, float, (size_t)tensor->elements);
  if (!can_convert(tensor->dtype, DTYPE_F32)) {
    refuse(m, "tensor \"%s\": type %s; F32, F16 and BF16 are read", tensor->name, tensor->dtype_name);
    return NULL;
  }
  if (!tensor_file_read(m->file, m->diag, tensor, DTYPE_F32, values)) return NULL;
  for (int64_t i = 0; i < tensor->elements; i++) {
    if (isfinite(values[i])) continue;
    refuse(m, "tensor \"%s\": element %lld is not finite", tensor->name, (long long)i);
    return NULL;
  }
  return values;
}

static const char *shape_text(const Merge *m, const FileTensor *tensor) {
  StrBuf out = strbuf_new(m->arena);
  print_dims(&out, tensor->dims, tensor->rank);
  return out.text;
}

// ---- pairs ----

/* The delta of a pair; NULL after an error. */
static WeightDelta *delta_of(const Merge *m, const char *module, const FileTensor *a, const FileTensor *b) {
  const AdapterScale scale = adapter_scale(m->arena, m->diag, m->config, module);
  if (a->rank != 2 || b->rank != 2 || a->dims[0] != b->dims[1]) {
    refuse(m, "\"%s\" %s and \"%s\" %s are no pair of matrices", a->name, shape_text(m, a), b->name, shape_text(m, b));
    return NULL;
  }
  if (a->dims[0] != scale.rank) {
    refuse(m, "tensor \"%s\": %lld rows, and the rank of its module is %lld", a->name, (long long)a->dims[0],
           (long long)scale.rank);
    return NULL;
  }
  WeightDelta *delta = ARENA_NEW(m->arena, WeightDelta);
  *delta = (WeightDelta){.rank = a->dims[0], .rows = b->dims[0], .columns = a->dims[1], .scale = scale.factor};
  delta->number = m->set->n_adapters;
  delta->file = m->file;
  delta->tensors[0] = a;
  delta->tensors[1] = b;
  delta->a = numbers_of(m, a);
  delta->b = numbers_of(m, b);
  return delta->a && delta->b ? delta : NULL;
}

/* Which way round the weight lies: its shape says it, whatever the config does, because peft asks the class of the
 * module; of a square one the config alone says it. False: it lies neither way. */
static bool place_delta(Merge *m, const char *module, const FileTensor *weight, WeightDelta *delta) {
  if (weight->rank != 2) return false;
  const bool is_plain = weight->dims[0] == delta->rows && weight->dims[1] == delta->columns;
  const bool is_turned = weight->dims[0] == delta->columns && weight->dims[1] == delta->rows;
  delta->is_turned = is_plain && is_turned ? m->config->fan_in_fan_out : is_turned;
  if (is_plain && is_turned) m->square = module;
  else if (is_turned) m->turned = module;
  else if (is_plain) m->plain = module;
  return is_plain || is_turned;
}

static void check_squares(const Merge *m) {
  const char *other = m->config->fan_in_fan_out ? m->plain : m->turned;
  if (m->square && other)
    refuse(m,
           "module \"%s\" is square, and \"fan_in_fan_out\" (%s), which says how it lies, does not hold for module "
           "\"%s\": merge_and_unload() of peft, then save_pretrained",
           m->square, m->config->fan_in_fan_out ? "true" : "false", other);
}

static void add_pair(Merge *m, const char *module, const FileTensor *a) {
  const FileTensor *b = tensor_file_find(m->file, arena_printf(m->arena, "%s%s.lora_B.weight", root, module));
  WeightEntry *entry = find_in_base(m, arena_printf(m->arena, "%s.weight", module));
  if (!b) {
    refuse(m, "tensor \"%s\": there is no lora_B beside it", a->name);
    return;
  }
  if (!adapter_names_module(m->arena, m->diag, m->config, module)) {
    refuse(m, "tensor \"%s\": target_modules does not name its module", a->name);
    return;
  }
  if (!entry) {
    refuse(m, "tensor \"%s\": the base has no tensor \"%s.weight\"", a->name, module);
    return;
  }
  WeightDelta *delta = delta_of(m, module, a, b);
  const FileTensor *weight = entry->tensor;
  if (!delta) return;
  if (!place_delta(m, module, weight, delta)) {
    refuse(m, "module \"%s\": its change is [%lld, %lld], and the base has %s", module, (long long)delta->rows,
           (long long)delta->columns, shape_text(m, weight));
    return;
  }
  delta->before = entry->delta;
  entry->delta = delta;
}

static void put_whole(const Merge *m, const FileTensor *tensor, const char *name) {
  WeightEntry *entry = find_in_base(m, name);
  if (!entry) {
    weight_set_add(m->arena, m->set, m->file, tensor, name);
    return;
  }
  bool is_same = entry->tensor->rank == tensor->rank;
  for (uint32_t i = 0; is_same && i < tensor->rank; i++) is_same = entry->tensor->dims[i] == tensor->dims[i];
  if (!is_same) {
    refuse(m, "tensor \"%s\" is %s, and the base has %s", tensor->name, shape_text(m, tensor),
           shape_text(m, entry->tensor));
    return;
  }
  *entry = (WeightEntry){.file = m->file, .tensor = tensor, .name = entry->name, .is_of_adapter = m->config != NULL};
}

/* What the adapter holds whole takes the place of the base's, or stands beside it, as the head of another task. */
static void add_whole(const Merge *m, const FileTensor *tensor) {
  static const char inner[] = ".base_layer.";
  const char *name = tensor->name + strlen(root), *at = strstr(name, inner);
  if (at) name = arena_printf(m->arena, "%.*s.%s", (int)(at - name), name, at + strlen(inner));
  put_whole(m, tensor, name);
}

static void add_tensor(Merge *m, const FileTensor *tensor) {
  const char *module = module_of(m, tensor->name, ".lora_A.weight");
  if (module) {
    add_pair(m, module, tensor);
    return;
  }
  const char *of_b = module_of(m, tensor->name, ".lora_B.weight");
  if (of_b) {
    if (!tensor_file_find(m->file, arena_printf(m->arena, "%s%s.lora_A.weight", root, of_b)))
      refuse(m, "tensor \"%s\": there is no lora_A beside it", tensor->name);
    return;
  }
  const bool is_strange = strncmp(tensor->name, root, strlen(root)) != 0 || strstr(tensor->name, ".lora_") ||
                          strstr(tensor->name, "original_module");
  if (is_strange)
    refuse(m,
           "tensor \"%s\" is none of a LoRA that is read: MODULE.lora_A.weight, MODULE.lora_B.weight, and tensors of "
           "the model that are kept whole",
           tensor->name);
  else
    add_whole(m, tensor);
}

bool adapter_add(Arena *arena, Diag *diag, WeightSet *set, const char *folder) {
  const int before = diag->n_errors;
  AdapterConfig config;
  if (!adapter_config_read(arena, diag, folder, &config)) return false;
  const char *path = arena_printf(arena, "%s/adapter_model.safetensors", folder);
  if (!exists(path)) {
    diag_error_at(diag, path, DIAG_CHECKPOINT,
                  "there is no such file; adapter_model.bin is a pickle: save_pretrained of peft writes safetensors");
    return false;
  }
  TensorFile *file = safetensors_open(arena, diag, path);
  if (!file) return false;
  vec_push(arena, &set->files, file);
  set->n_adapters++;
  Merge m = {.arena = arena, .diag = diag, .set = set, .file = file, .config = &config};
  for (size_t i = 0; i < file->tensors.n; i++) add_tensor(&m, file->tensors.items[i]);
  check_squares(&m);
  json_decref(config.json);
  return diag->n_errors == before;
}

// ---- adapters that the model has itself ----

static const GraphAdapter *adapter_of(const Graph *graph, const WeightEntry *entry) {
  for (size_t i = 0; i < graph->adapters.n; i++) {
    const char *name = graph->adapters.items[i].weight;
    if (strcmp(name, entry->name) == 0 || strcmp(name, entry->tensor->name) == 0) return &graph->adapters.items[i];
  }
  return NULL;
}

/* False if the model's adapter is another one. */
static bool is_same_adapter(Diag *diag, const WeightEntry *entry, const GraphAdapter *of) {
  const WeightDelta *delta = entry->delta;
  const char *path = delta->file->file.path;
  if (!of)
    diag_error_at(diag, path, DIAG_CHECKPOINT,
                  "tensor \"%s\": the model's line `adapt` names no such weight; it must have those of the file",
                  delta->tensors[0]->name);
  else if (fabs(of->scale - delta->scale) > 1e-9 * fabs(delta->scale))
    diag_error_at(diag, path, DIAG_CHECKPOINT,
                  "tensor \"%s\": it counts %g times, by alpha and rank of its config, and %g times by the model's "
                  "line `adapt`",
                  delta->tensors[0]->name, delta->scale, of->scale);
  else
    return true;
  return false;
}

bool adapter_take_apart(Arena *arena, Diag *diag, WeightSet *set, const Graph *graph) {
  const size_t n = set->entries.n;
  bool good = true;
  for (size_t i = 0; i < n && graph->adapters.n; i++) {
    WeightEntry *entry = &set->entries.items[i];
    const WeightDelta *delta = entry->delta;
    if (!delta || delta->number != set->n_adapters) continue;
    const GraphAdapter *of = adapter_of(graph, entry);
    good &= is_same_adapter(diag, entry, of);
    if (!of) continue;
    entry->delta = delta->before;
    weight_set_add(arena, set, delta->file, delta->tensors[0], of->a);
    weight_set_add(arena, set, delta->file, delta->tensors[1], of->b);
  }
  return good;
}

// ---- opening ----

/* The weights of a file take the place of those of the same names, or come beside them. */
static bool add_file(Arena *arena, Diag *diag, WeightSet *set, const char *path) {
  const int before = diag->n_errors;
  TensorFile *file = safetensors_open(arena, diag, path);
  if (!file) return false;
  vec_push(arena, &set->files, file);
  const Merge m = {.arena = arena, .diag = diag, .set = set, .file = file};
  for (size_t i = 0; i < file->tensors.n; i++) put_whole(&m, file->tensors.items[i], file->tensors.items[i]->name);
  return diag->n_errors == before;
}

static bool is_file_of_weights(const char *path) {
  static const char ending[] = ".safetensors";
  const size_t length = strlen(path), n = sizeof ending - 1;
  return length > n && strcmp(path + length - n, ending) == 0 && exists(path);
}

/* "BASE+ADAPTER" or "BASE+FILE", if it is no file or folder itself: the last "+" behind which the folder of an adapter
 * or a file of weights stands. */
static bool split(Arena *arena, const char *path, const char **base, const char **adapter) {
  if (exists(path)) return false;
  for (const char *plus = path + strlen(path); plus > path; plus--) {
    if (*plus != '+') continue;
    if (!is_file_of_weights(plus + 1) && !exists(arena_printf(arena, "%s/adapter_config.json", plus + 1))) continue;
    *base = arena_strndup(arena, path, (size_t)(plus - path));
    *adapter = plus + 1;
    return true;
  }
  return false;
}

WeightSet *weight_set_open(Arena *arena, Diag *diag, const char *path) {
  const char *base, *adapter;
  if (!split(arena, path, &base, &adapter)) {
    WeightSet *only = weight_set_open_base(arena, diag, path);
    if (only) packed_set_add(arena, diag, only, only->path);
    return only;
  }
  WeightSet *set = weight_set_open(arena, diag, base);
  if (!set || (is_file_of_weights(adapter) ? add_file : adapter_add)(arena, diag, set, adapter)) return set;
  weight_set_close(set);
  return NULL;
}
