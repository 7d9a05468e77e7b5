/* In: the tensors of a set. Out: entries for those that are packed. See packed_set.h.
 *
 * The config is read once, when the first name of words is met: most folders have none. */
#include "weights/packed_set.h"

#include <string.h>

static void find_parts(Arena *arena, WeightSet *set, PackedWeight *weight, const char *stem) {
  const PackedNames *names = &packed_names[weight->config.method];
  for (PackedRole role = 0; role < N_PACKED_ROLES; role++) {
    if (!names->endings[role]) continue;
    const char *name = arena_printf(arena, "%s%s", stem, names->endings[role]);
    const uintptr_t index = (uintptr_t)map_get(&set->by_name, name);
    if (!index) continue;
    WeightEntry *found = &set->entries.items[index - 1];
    found->is_part = true;
    weight->parts[role] = (PackedPart){found->file, found->tensor};
  }
}

/* The weight whose words an entry holds, unless the file has it as it is too. */
static void add_packed_weight(Arena *arena, Diag *diag, WeightSet *set, size_t index, const PackedConfig *config) {
  size_t ending;
  const WeightEntry *words = &set->entries.items[index];
  const PackedMethod method = packed_method(words->tensor->name, &ending);
  const bool is_method = method == config->method || (method == PACKED_GPTQ && config->method != PACKED_COMPRESSED &&
                                                      config->method != PACKED_MXFP4);
  if (method == PACKED_NONE || words->file->is_gguf) return;
  const char *name = words->tensor->name, *stem = arena_strndup(arena, name, strlen(name) - ending);
  FileTensor *tensor = ARENA_NEW(arena, FileTensor);
  tensor->name = arena_printf(arena, "%s%s", stem, packed_names[method].weight);
  if (map_has(&set->by_name, tensor->name)) return;
  tensor->dtype = words->tensor->dtype;
  tensor->dtype_name = words->tensor->dtype_name;
  PackedWeight *weight = ARENA_NEW(arena, PackedWeight);
  *weight = (PackedWeight){.name = tensor->name, .config = *config, .cache = &set->packed};
  WeightEntry entry = {.file = words->file, .tensor = tensor, .name = tensor->name, .packed = weight};
  if (!is_method || config->method == PACKED_NONE) {
    if (method == PACKED_MXFP4) return; /* other tensors may have such names */
    weight->config.method = method;
    entry.fault =
        "it is packed, and no \"quantization_config\" of a config.json beside it says how, in a way that is read";
  }
  find_parts(arena, set, weight, stem);
  if (!entry.fault) entry.fault = packed_weight_check(arena, diag, weight, tensor);
  vec_push(arena, &set->entries, entry);
  map_put(&set->by_name, tensor->name, (void *)(uintptr_t)set->entries.n);
}

void packed_set_add(Arena *arena, Diag *diag, WeightSet *set, const char *path) {
  const size_t n = set->entries.n;
  size_t ending;
  PackedConfig config = {0};
  bool is_asked = false;
  for (size_t i = 0; i < n; i++) {
    if (packed_method(set->entries.items[i].tensor->name, &ending) == PACKED_NONE) continue;
    if (!is_asked) config = packed_config_of(arena, path);
    is_asked = true;
    add_packed_weight(arena, diag, set, i, &config);
  }
}
