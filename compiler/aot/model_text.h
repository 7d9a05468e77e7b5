/* ModelText: all that a plan is made from, as a library carries it and `tfmc pack` reads it again.
 *
 * Names of files are relative to the folder of the model, so that a library does not depend on where it was made. The
 * standard layers and the compiler itself are not part of it: whoever makes the plan again compares the layouts. */
#ifndef TFM_AOT_MODEL_TEXT_H
#define TFM_AOT_MODEL_TEXT_H

#include <jansson.h>

#include "elaborate/elaborate.h"
#include "passes/passes.h"

typedef struct ModelText {
  const ParsedProgram *program;
  ElaborateOptions options;
  PassOptions passes; /* level, only, disabled, stop_after */
} ModelText;

json_t *model_text_write(const ModelText *text);
/* False if the JSON is not what model_text_write makes, or after an error of the program. */
bool model_text_read(Arena *arena, Map *names, Diag *diag, const json_t *json, ModelText *text);

#endif
