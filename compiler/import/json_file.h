/* JsonFile: a file of JSON in the folder of a checkpoint.
 *
 * In: a path. Out: what it says. Refused, with the line: what is no JSON, with the key if Python wrote NaN, or an
 * infinity in another file than config.json; keys that stand twice; files that are too large. */
#ifndef TFM_IMPORT_JSON_FILE_H
#define TFM_IMPORT_JSON_FILE_H

#include <jansson.h>

#include "base/arena.h"
#include "diag/diag.h"

/* The path of a file in a folder. */
const char *folder_file(Arena *arena, const char *folder, const char *name);
bool file_exists(const char *path);
/* NULL after an error. `kind`: JSON_OBJECT or JSON_ARRAY. */
json_t *read_json(Arena *arena, Diag *diag, const char *path, json_type kind);
/* config.json: an infinity, which JSON does not have, is the object that transformers writes for it. */
json_t *read_config(Arena *arena, Diag *diag, const char *path);
/* 1 or -1 if the value is the object that stands for an infinity, else 0. */
int json_infinity(const json_t *value);

#endif
