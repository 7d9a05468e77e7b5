/* What the config classes of transformers say of the keys of config.json: kinds of values, by key_types.def, and values
 * of keys that are missing, by key_defaults.def.
 *
 * In: a folder whose family is one of models/. Out: an error for each key whose value is null or of another kind than
 * transformers takes, also where the key changes nothing; what the user says to ignore is left out. */
#ifndef TFM_IMPORT_KEY_TYPES_H
#define TFM_IMPORT_KEY_TYPES_H

#include "import/folder.h"

/* False after an error. Keys are seen as they stand in the file, before spellings are joined. */
bool key_types_check(Arena *arena, Diag *diag, const Folder *folder);

/* What the class of a type (NULL: none) has for a key that is missing, as a new value; NULL: no other than the model of
 * the family. */
json_t *key_default(const char *type, const char *key);

#endif
