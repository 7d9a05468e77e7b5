/* Lines, characters and URIs. See places.h. */
#include "lsp/places.h"

#include <string.h>

#include "base/strbuf.h"

// ---- lines and characters ----

/* Of the character at `text`: its bytes and how many units it counts. A malformed byte counts one. */
static unsigned next_character(const char *text, size_t size, PlaceUnits units, unsigned *counts) {
  uint32_t character;
  const unsigned bytes = utf8_decode(text, size, &character);
  *counts = !bytes ? 1 : units == UNITS_UTF8 ? bytes : character > 0xffff ? 2 : 1;
  return bytes ? bytes : 1;
}

static uint32_t units_between(const char *text, uint32_t size, PlaceUnits units) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < size;) {
    unsigned counts;
    i += next_character(text + i, size - i, units, &counts);
    n += counts;
  }
  return n;
}

json_t *place_of(Source *source, uint32_t offset, PlaceUnits units) {
  uint32_t length;
  const SrcPlace place = source_place(source, offset < source->size ? offset : source->size);
  const char *line = source_line(source, place.line, &length);
  const uint32_t before = place.column - 1 < length ? place.column - 1 : length;
  return json_pack("{s:I, s:I}", "line", (json_int_t)place.line - 1, "character",
                   (json_int_t)units_between(line, before, units));
}

json_t *range_of(SrcSpan span, PlaceUnits units) {
  if (!span.source)
    return json_pack("{s:{s:i, s:i}, s:{s:i, s:i}}", "start", "line", 0, "character", 0, "end", "line", 0, "character",
                     0);
  return json_pack("{s:o, s:o}", "start", place_of(span.source, span.begin, units), "end",
                   place_of(span.source, span.end, units));
}

bool offset_of(Source *source, const json_t *place, PlaceUnits units, uint32_t *offset) {
  const json_t *line = json_object_get(place, "line"), *character = json_object_get(place, "character");
  if (!json_is_integer(line) || !json_is_integer(character)) return false;
  if (json_integer_value(line) < 0 || json_integer_value(character) < 0) return false;
  uint32_t length;
  source_place(source, source->size); /* makes the table of lines */
  if (json_integer_value(line) >= source->n_lines) {
    *offset = source->size;
    return true;
  }
  const char *text = source_line(source, (uint32_t)json_integer_value(line) + 1, &length);
  uint32_t at = 0;
  for (json_int_t n = 0; at < length;) {
    unsigned counts;
    const unsigned bytes = next_character(text + at, length - at, units, &counts);
    n += counts;
    if (n > json_integer_value(character)) break;
    at += bytes;
  }
  *offset = (uint32_t)(text - source->text) + at;
  return true;
}

json_t *json_text(Arena *arena, const char *text) {
  json_t *json = json_string(text);
  return json ? json : json_string(text_shown(arena, text));
}

// ---- URIs ----

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

const char *path_of_uri(Arena *arena, const char *uri) {
  static const char scheme[] = "file://", host[] = "localhost";
  if (strncmp(uri, scheme, sizeof scheme - 1) != 0) return NULL;
  uri += sizeof scheme - 1;
  if (strncmp(uri, host, sizeof host - 1) == 0) uri += sizeof host - 1;
  if (*uri != '/') return NULL;
  StrBuf path = strbuf_new(arena);
  for (; *uri && *uri != '?' && *uri != '#'; uri++) {
    const int high = *uri == '%' ? hex_digit(uri[1]) : -1, low = high >= 0 ? hex_digit(uri[2]) : -1;
    if (high == 0 && low == 0) return NULL;
    strbuf_add_char(&path, low >= 0 ? (char)(high * 16 + low) : *uri);
    if (low >= 0) uri += 2;
  }
  return path.text;
}

const char *uri_of_path(Arena *arena, const char *path) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  StrBuf uri = strbuf_new(arena);
  strbuf_add(&uri, "file://");
  for (; *path; path++) {
    if (strchr(plain, *path))
      strbuf_add_char(&uri, *path);
    else
      strbuf_printf(&uri, "%%%02X", (unsigned char)*path);
  }
  return uri.text;
}
