/* Weight folder: where weights lie in the folder of a checkpoint.
 *
 * In: a path. Out: the file or the index of its weights, and the folders of its modules that have weights of their own:
 * those that modules.json names (2_Dense) with a model.safetensors. Nothing is refused here: a folder without
 * modules.json, or with one that is no list, has none, and what is missing is missed by the model. Only folders right
 * below are looked at. */
#ifndef TFM_WEIGHTS_WEIGHT_FOLDER_H
#define TFM_WEIGHTS_WEIGHT_FOLDER_H

#include <stdbool.h>

#include "base/vec.h"
#include "diag/diag.h"

bool is_weight_folder(const char *path);
/* The file of a folder of Hugging Face: model.safetensors or, if there is none, its index; another path is itself. */
const char *weight_set_path(Arena *arena, const char *path);

typedef struct ModuleFolder {
  const char *name; /* "2_Dense" */
  const char *path; /* of its weights */
} ModuleFolder;

typedef VEC(ModuleFolder) ModuleFolders;

/* Each once, in the order of modules.json. */
ModuleFolders module_folders(Arena *arena, const char *folder);

#endif
