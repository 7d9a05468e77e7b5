/* Sentence: what sentence transformers keep beside a model.
 *
 * In: a folder with modules.json and the files of its modules. Out: one object; `modules` is a list with what each
 * module behind the transformer computes, itself a list as models/parts/sentence.tfm takes it, and `score` of a
 * cross encoder that writes the tokens whose logits it compares. Every key of these files
 * has a row in sentence_keys.def. Refused, with the file and the key: other modules, in another order, keys without a
 * row, values that nothing here computes. */
#ifndef TFM_IMPORT_SENTENCE_H
#define TFM_IMPORT_SENTENCE_H

#include <jansson.h>

#include "base/map.h"
#include "diag/diag.h"

/* Empty if the folder is no sentence encoder; NULL after an error. `ignored`: keys that the user leaves out; may be
 * NULL. */
json_t *sentence_read(Arena *arena, Diag *diag, const char *folder, const Map *ignored);

/* The parameter of a family that computes what the object says: "sentence", "scored", or NULL: there are no modules. */
const char *sentence_param(const json_t *sentence);

#endif
