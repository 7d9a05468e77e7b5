/* Description: what a library says of itself: JSON in a section of its own, written here and read by `tfmc info` and
 * `tfmc pack`.
 *
 * In: the parts of a library; or JSON of a file that is not trusted. Out: JSON; or the text of the model and every
 * option that decides the plan, in the arena, so that `tfmc pack` can make the same plan again. File names in it are
 * relative to the model's folder: a library does not depend on where it was made. The standard layers and the compiler
 * are not part of it; whoever plans again must compare the layouts.
 *
 * Refused on reading: JSON that model_text_write would not have made, and programs that no longer parse. */
#ifndef TFM_AOT_DESCRIPTION_H
#define TFM_AOT_DESCRIPTION_H

#include <jansson.h>

#include "aot/header.h"
#include "elaborate/elaborate.h"
#include "passes/passes.h"

struct ModelText {
  const ParsedProgram *program;
  ElaborateOptions options;
  PassOptions passes; /* level, only, disabled, stop_after */
  const char *const *quantize; /* rules of compile/quantize.h */
  uint32_t n_quantize;
  const char *stored; /* the types of the file, of compile/quantize.h; NULL: all f32, or unknown */
};

json_t *model_text_write(const ModelText *text);
/* False if the JSON is not what model_text_write makes, or after an error in the program. The texts are copied, so the
 * JSON may be released afterwards. */
bool model_text_read(Arena *arena, Map *names, Diag *diag, const json_t *json, ModelText *text);

/* {"model", "prefix", "version", "instruction_sets", "sizes", "inputs", "outputs", "generate", "weights_bytes",
 * "weights_by_type", "weights_embedded", "layout", "source"}: the same text for the same library. "weights_by_type" is
 * left out if all are f32, "source" is null if the model's text was to be left out. */
const char *describe_library(Arena *arena, const LibraryParts *parts);

#endif
