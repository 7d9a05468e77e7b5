/* TextPart: the model of text in a folder of a model that reads pictures or sounds as well.
 *
 * In: config.json. Out: the settings of its part for text, in the place of the whole ones, where text_parts.def has the
 * type; else nothing happens. Refused: no text_config, a part of another type, keys of the whole that contradict those
 * of the part. A key that neither the part nor the table knows becomes one of the part's, which the account names. */
#ifndef TFM_IMPORT_TEXT_PART_H
#define TFM_IMPORT_TEXT_PART_H

#include <jansson.h>
#include <stdbool.h>

#include "diag/diag.h"

/* The settings of the part, a new reference; NULL if the config is of another type, or after an error. `path`: of
 * config.json, for messages. */
json_t *text_part(Diag *diag, const json_t *config, const char *path);
/* The token for padding of a whole that has one for itself, where no generation_config.json says it; NULL. */
const json_t *text_padding(const json_t *whole);
/* Whether a type that no family is for is one of such models, as far as its config shows. */
bool has_text_part(const json_t *config);

#endif
