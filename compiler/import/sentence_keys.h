/* An account of the keys that stand in the files of sentence transformers, by sentence_keys.def.
 *
 * In: an object of such a file. Out: an error for each key that nobody knows, and for each value of another kind than
 * its reader or the package itself takes, or another than is computed here, and what to do where a module is not
 * computed. */
#ifndef TFM_IMPORT_SENTENCE_KEYS_H
#define TFM_IMPORT_SENTENCE_KEYS_H

#include <jansson.h>

#include "base/map.h"
#include "diag/diag.h"

typedef enum SentenceFile {
  Modules,
  Pooling,
  Normalize,
  Dense,
  Norm,
  Drop,
  Score,
  Splade,
  Mask,
  Bert,
  Encoder
} SentenceFile;
/* `ignored`: keys that the user leaves out, or NULL. `path` is the file's, for messages. */
void sentence_check_keys(Arena *arena, Diag *diag, const Map *ignored, SentenceFile file, const char *path,
                         const json_t *object);

/* Of a module that is not computed: why, and what to do instead, to stand behind its name. */
const char *sentence_what_instead(const char *name);

/* The version of the package that wrote a folder, where config_sentence_transformers.json says it, is one: the package
 * compares it with its own. */
void sentence_check_version(Diag *diag, const char *path, const json_t *encoder);

/* How short queries are filled, as MultiVectorEmbedder reads it. */
void sentence_check_expansion(Diag *diag, const char *path, const json_t *expansion);

#endif
