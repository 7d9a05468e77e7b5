/* Kinds of values of the keys of config.json, by key_types.def.
 *
 * In: a folder whose family is one of models/. Out: an error for each key whose value is null or of another kind than
 * transformers takes, also where the key changes nothing; what the user says to ignore is left out. */
#ifndef TFM_IMPORT_KEY_TYPES_H
#define TFM_IMPORT_KEY_TYPES_H

#include "import/folder.h"

/* False after an error. Keys are seen as they stand in the file, before spellings are joined. */
bool key_types_check(Arena *arena, Diag *diag, const Folder *folder);

#endif
