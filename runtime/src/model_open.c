/* Opening a compiled library by its path, for those who don't have its header. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "elf_exports.h"
#include "model.h"

/* "dir/libx.so" and "dir/x.so" give "dir/x.tfmw", as `tfmc compile` names it. NULL: no memory. */
static char *weights_beside(const char *library) {
  const char *slash = strrchr(library, '/'), *name = slash ? slash + 1 : library;
  size_t folder = (size_t)(name - library);
  if (strncmp(name, "lib", 3) == 0 && name[3]) name += 3;
  const char *end = strrchr(name, '.');
  size_t length = end && end != name ? (size_t)(end - name) : strlen(name);
  char *path = malloc(folder + length + sizeof ".tfmw");
  if (!path) return NULL;
  memcpy(path, library, folder);
  memcpy(path + folder, name, length);
  memcpy(path + folder + length, ".tfmw", sizeof ".tfmw");
  return path;
}

static tfm_status no_memory(tfm_error *error) {
  return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "no memory to open a library");
}

/* The loader searches its own folders for names without a slash: "libx.so" becomes "./libx.so". */
static void *load(const char *path, tfm_error *error) {
  char *local = NULL;
  if (!strchr(path, '/')) {
    local = malloc(strlen(path) + 3);
    if (!local) return no_memory(error), NULL;
    memcpy(local, "./", 2);
    strcpy(local + 2, path);
  }
  void *handle = dlopen(local ? local : path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "%s: cannot be loaded: %s", path, dlerror());
  free(local);
  return handle;
}

static tfm_status open_with_weights(const tfm_library *library, const char *library_path, const char *weights_path,
                                    tfm_model **model, tfm_error *error) {
  bool beside = !weights_path && library && library->abi == TFM_LIBRARY_ABI && !library->weights &&
                library->n_programs && library->programs[0]->weights_bytes;
  if (!beside) return tfm_library_open(library, weights_path, model, error);
  char *path = weights_beside(library_path);
  if (!path) return no_memory(error);
  tfm_status status = tfm_library_open(library, path, model, error);
  free(path);
  return status;
}

tfm_status tfm_model_open(const char *library_path, const char *weights_path, tfm_model **model, tfm_error *error) {
  if (!model) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "there is no place for the model");
  *model = NULL;
  if (!library_path) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the path is a null pointer");
  char *symbol = NULL;
  tfm_status status = elf_find_export(library_path, "_program", &symbol, error);
  if (status) return status;
  void *handle = load(library_path, error);
  union { /* converting a pointer to an object into one to a function is no C */
    void *object;
    const tfm_library *(*function)(void);
  } program = {handle ? dlsym(handle, symbol) : NULL};
  free(symbol);
  if (!handle) return TFM_E_ENV;
  status = open_with_weights(program.object ? program.function() : NULL, library_path, weights_path, model, error);
  if (status) {
    dlclose(handle);
    return status;
  }
  (*model)->handle = handle;
  (*model)->unload = dlclose;
  return TFM_OK;
}
