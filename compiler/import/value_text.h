/* ValueText: a value of JSON in words, for messages and for the text of a model.
 *
 * In: any value. Out: its kind, or how the language writes it. */
#ifndef TFM_IMPORT_VALUE_TEXT_H
#define TFM_IMPORT_VALUE_TEXT_H

#include <jansson.h>

#include "base/strbuf.h"

/* A value as it is written in the language; {...} for objects, which it does not have. */
void value_print(StrBuf *out, const json_t *value);
/* "a string", "a whole number" ... */
const char *value_kind(const json_t *value);

#endif
