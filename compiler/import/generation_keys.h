/* What a checkpoint says of generation: the settings that transformers would generate with.
 *
 * In: config.json and generation_config.json. Out: one object of settings, and text for the `generate` block. Refused:
 * a setting that is neither an option of generation here nor known to change nothing. */
#ifndef TFM_IMPORT_GENERATION_H
#define TFM_IMPORT_GENERATION_H

#include <jansson.h>

#include "ast/ast.h"
#include "base/strbuf.h"

/* The settings of the file; NULL: there is no file, and those of config.json count, as transformers takes them. With a
 * file config.json says nothing of generation. The caller owns the object. */
json_t *generation_written(json_t *file, const json_t *config);
/* Tokens that are missing are set to what transformers takes in their place: an empty list if there is none. The caller
 * owns the object. */
json_t *generation_completed(json_t *written);
/* Whether a key of config.json concerns generation alone. */
bool generation_has_key(const char *key);
/* Why a value is none for a setting, whoever reads it; NULL: it is of a kind that transformers takes. */
const char *generation_wrong_kind(Arena *arena, const char *key, const json_t *value);
/* Why a setting can be neither written into a generate block nor left out; NULL: it can. */
const char *generation_fault(const json_t *settings, const char *key, const json_t *value);
/* Writes what the settings add to a `generate` block, "  num_beams = 4", but for names that it sets itself. */
void generation_write(StrBuf *out, const Ast *block, const json_t *settings);

#endif
