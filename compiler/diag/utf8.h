/* UTF-8: one character of a byte string at a time.
 *
 * In: bytes that may be anything. Out: the character, how wide a terminal shows it, whether it may be shown at all.
 * Refuses overlong forms, surrogates, and what lies beyond U+10FFFF. */
#ifndef TFM_DIAG_UTF8_H
#define TFM_DIAG_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Bytes of the character at `text`, 0 if it is malformed or `size` ends inside it. */
unsigned utf8_decode(const char *text, size_t size, uint32_t *character);
/* Columns on a terminal: 0 for combining marks, 2 for wide characters, else 1. Not for control characters. */
unsigned utf8_width(uint32_t character);
/* Characters that change the direction of what follows, so that text reads otherwise than it is. */
bool utf8_is_bidi_control(uint32_t character);
/* Appends `text`, with every byte and character that a terminal should not get escaped: \n, \t, \x1b, \u202e. */
void utf8_add_escaped(StrBuf *out, const char *text, size_t size);
/* Appends one unit of a text, a character or a malformed byte, escaped if need be. Returns its bytes; `*width` gets
 * the columns of what was appended. */
unsigned utf8_add_unit(StrBuf *out, const char *text, size_t size, unsigned *width);

#endif
