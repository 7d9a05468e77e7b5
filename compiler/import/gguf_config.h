/* A GGUF file as a checkpoint: what its metadata say, as a config.json.
 *
 * In: a file that is open, whose architecture gguf_names.def has. Out: the object that transformers would have saved
 * for the same model, with its tokens. Refused: other architectures, keys that are missing or of another kind, keys of
 * the architecture that nothing here reads (`ignored` says that one changes nothing), settings that the family does not
 * compute: windows, experts, heads that turn in part, factors of rotation that are not those of Llama 3. */
#ifndef TFM_IMPORT_GGUF_CONFIG_H
#define TFM_IMPORT_GGUF_CONFIG_H

#include <jansson.h>

#include "weights/weight_set.h"

/* NULL after an error; the caller owns the object. `ignored` may be NULL. */
json_t *gguf_config(Arena *arena, Diag *diag, const TensorFile *file, const Map *ignored);

#endif
