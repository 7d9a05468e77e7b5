/* Folder: a checkpoint as Hugging Face writes it.
 *
 * In: a folder, or a GGUF file, whose metadata are its config.json (gguf_config.h). Out: what its files of JSON say;
 * then, in a second step, the names of its weights, of which nothing is read. Rotary settings of older files
 * (`rope_theta`, `rope_scaling`) are brought to the newer form, one object `rope_parameters`. Refused, each with the
 * way out: no config.json, two spellings that contradict each other, modules of sentence transformers that nothing here
 * computes, no safetensors, adapters, quantized weights. */
#ifndef TFM_IMPORT_FOLDER_H
#define TFM_IMPORT_FOLDER_H

#include <jansson.h>

#include "weights/weight_set.h"

typedef struct Folder {
  const char *path, *config_path;
  json_t *written; /* config.json as it stands there, or its part for text */
  json_t *config;  /* the same, its rotary settings in the newer form */
  const char *part_of; /* the model_type of the whole, if the model is the text part of it; NULL */
  json_t *whole;       /* config.json then, of which `config` has that part */
  const char *generation_path; /* where the settings of generation are: generation_config.json or config.json */
  json_t *generation; /* the settings that stand there */
  json_t *names;  /* the same, with `architecture`, `generation`, `sentence` and the `rope_theta` that was joined */
  const Map *ignored; /* names that the user says change nothing: keys, and patterns of tensors */
  const char *weights_path; /* that of the folder, or with "+ADAPTER" behind it */
  WeightSet *weights; /* NULL until they are opened */
} Folder;

/* `ignored` may be NULL. NULL after an error; otherwise folder_close when done. */
Folder *folder_open(Arena *arena, Diag *diag, const char *path, const Map *ignored);
/* False after an error. */
bool folder_open_weights(Arena *arena, Diag *diag, Folder *folder);
void folder_close(Folder *folder); /* NULL is ignored */

#endif
