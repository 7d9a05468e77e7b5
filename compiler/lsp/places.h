/* Places: between offsets of a source and the lines and characters of the protocol, and between paths and URIs.
 *
 * In: bytes of UTF-8, which may be malformed; lines from 0; characters counted as UTF-16 does, or as bytes where the
 * client offers that. Out: the other. A place behind the end of a line is its end, one behind the text is its end, as
 * the protocol says. A URI that is no file has no path. */
#ifndef TFM_LSP_PLACES_H
#define TFM_LSP_PLACES_H

#include <jansson.h>

#include "diag/source.h"

typedef enum PlaceUnits { UNITS_UTF16, UNITS_UTF8 } PlaceUnits;

json_t *place_of(Source *source, uint32_t offset, PlaceUnits units);
json_t *range_of(SrcSpan span, PlaceUnits units);
/* False if it is no place. */
bool offset_of(Source *source, const json_t *place, PlaceUnits units, uint32_t *offset);
/* The text as JSON; what is no UTF-8 is escaped as in messages. */
json_t *json_text(Arena *arena, const char *text);

/* NULL: it names no file of this machine. */
const char *path_of_uri(Arena *arena, const char *uri);
const char *uri_of_path(Arena *arena, const char *path);

#endif
