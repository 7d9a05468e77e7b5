/* Folder: a checkpoint as Hugging Face writes it.
 *
 * In: a folder. Out: what its files of JSON say and the names of its weights; nothing of the weights is read. Rotary
 * settings of older files (`rope_theta`, `rope_scaling`) are brought to the newer form, one object `rope_parameters`.
 * Refused, each with the way out: no config.json, no safetensors, adapters, quantized weights. */
#ifndef TFM_IMPORT_FOLDER_H
#define TFM_IMPORT_FOLDER_H

#include <jansson.h>

#include "weights/weight_set.h"

typedef struct Folder {
  const char *path, *config_path;
  json_t *config; /* of config.json */
  const char *generation_path; /* where the settings of generation are: generation_config.json or config.json */
  json_t *names;  /* the same, with `architecture`, `generation` and `sentence` */
  WeightSet *weights;
} Folder;

/* NULL after an error; otherwise folder_close when done. */
Folder *folder_open(Arena *arena, Diag *diag, const char *path);
void folder_close(Folder *folder); /* NULL is ignored */

#endif
