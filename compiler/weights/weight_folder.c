/* In: a path. Out: which files in the folder of a checkpoint are its weights. See weight_folder.h.
 *
 * Folders come from strangers: a name in modules.json must not choose a file elsewhere, and its text is read up to a
 * bound. Why a folder has no weights that can be read is import's to say, which knows what the modules are. */
#include "weights/weight_folder.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#include "weights/files.h"

bool is_weight_folder(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool is_file(const char *path) {
  struct stat status;
  return stat(path, &status) == 0;
}

const char *weight_set_path(Arena *arena, const char *path) {
  if (!is_weight_folder(path)) return path;
  const size_t length = strlen(path);
  const char *slash = length && path[length - 1] == '/' ? "" : "/";
  const char *single = arena_printf(arena, "%s%smodel.safetensors", path, slash);
  const char *index = arena_printf(arena, "%s.index.json", single);
  return !is_file(single) && is_file(index) ? index : single;
}

// ---- modules ----

enum { MAX_MODULES_BYTES = 1000000 };

/* Of a folder right below. */
static bool is_plain_name(const char *path) { return *path && *path != '.' && !strchr(path, '/'); }

static bool has_folder(const ModuleFolders *found, const char *name) {
  for (size_t i = 0; i < found->n; i++)
    if (strcmp(found->items[i].name, name) == 0) return true;
  return false;
}

ModuleFolders module_folders(Arena *arena, const char *folder) {
  ModuleFolders found = {0};
  const char *path = arena_printf(arena, "%s/modules.json", folder);
  if (!is_file(path)) return found;
  Diag unheard = diag_new(arena);
  size_t size = 0, i;
  const char *text = in_file_text(&unheard, path, MAX_MODULES_BYTES, DIAG_FILE, &size);
  json_t *modules = text ? json_loadb(text, size, 0, NULL) : NULL, *module;
  json_array_foreach(modules, i, module) {
    const char *name = json_string_value(json_object_get(module, "path"));
    if (!name || !is_plain_name(name) || has_folder(&found, name)) continue;
    const char *weights = arena_printf(arena, "%s/%s/model.safetensors", folder, name);
    if (is_file(weights)) vec_push(arena, &found, (ModuleFolder){arena_strdup(arena, name), weights});
  }
  json_decref(modules);
  return found;
}
