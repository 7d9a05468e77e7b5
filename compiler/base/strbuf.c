/* Text that grows in an arena, and doubles as text that do not depend on the locale.
 *
 * In: bytes, formats, doubles. Out: text that always ends with a NUL. Nothing is refused; running out of memory is
 * the arena's business. */
#include "base/strbuf.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

StrBuf strbuf_new(Arena *arena) {
  StrBuf buf = {.arena = arena, .capacity = 64};
  buf.text = arena_alloc(arena, buf.capacity);
  return buf;
}

/* Room for `more` bytes and the NUL. Doubling keeps a long text linear in time; the outgrown copies stay in the
 * arena. */
static void reserve(StrBuf *buf, size_t more) {
  if (buf->capacity - buf->length > more) return;
  size_t capacity = buf->capacity * 2;
  if (capacity < buf->length + more + 1) capacity = buf->length + more + 1;
  char *wider = arena_alloc(buf->arena, capacity);
  memcpy(wider, buf->text, buf->length);
  buf->text = wider;
  buf->capacity = capacity;
}

void strbuf_add_n(StrBuf *buf, const char *text, size_t length) {
  reserve(buf, length);
  if (length) memcpy(buf->text + buf->length, text, length);
  buf->length += length;
  buf->text[buf->length] = '\0';
}

void strbuf_add(StrBuf *buf, const char *text) { strbuf_add_n(buf, text, strlen(text)); }

void strbuf_add_char(StrBuf *buf, char c) { strbuf_add_n(buf, &c, 1); }

void strbuf_printf(StrBuf *buf, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  if (length > 0) {
    reserve(buf, (size_t)length);
    vsnprintf(buf->text + buf->length, (size_t)length + 1, format, again);
    buf->length += (size_t)length;
  }
  va_end(again);
  va_end(args);
}

/* Bytes from 0x80 on pass as they are: the text forms that use this are UTF-8, and diag/render escapes for terminals.
 */
void strbuf_add_quoted(StrBuf *buf, const char *text) {
  strbuf_add_char(buf, '"');
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\') strbuf_printf(buf, "\\%c", *c);
    else if (*c == '\n') strbuf_add(buf, "\\n");
    else if (*c == '\t') strbuf_add(buf, "\\t");
    else if (*c < 0x20 || *c == 0x7f) strbuf_printf(buf, "\\x%02x", *c);
    else strbuf_add_char(buf, (char)*c);
  }
  strbuf_add_char(buf, '"');
}

/* JSON asks for escapes of quotes, backslashes and control characters only. The caller makes sure of UTF-8. */
void strbuf_add_json(StrBuf *buf, const char *text) {
  strbuf_add_char(buf, '"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') strbuf_add_char(buf, '\\');
    if ((unsigned char)*text < 0x20) strbuf_printf(buf, "\\u%04x", (unsigned)*text);
    else strbuf_add_char(buf, *text);
  }
  strbuf_add_char(buf, '"');
}

// ---- numbers ----

/* Switches this thread to the C locale; the caller hands both results to leave_c_locale. libtfm runs inside programs
 * of others, whose locale may write 0,5 for a half; uselocale touches this thread alone, where setlocale would race
 * with theirs. */
static locale_t enter_c_locale(locale_t *own) {
  *own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (*own == (locale_t)0) out_of_memory("for the C locale", 0);
  return uselocale(*own);
}

static void leave_c_locale(locale_t before, locale_t own) {
  uselocale(before);
  freelocale(own);
}

double number_read(const char *text) {
  locale_t own, before = enter_c_locale(&own);
  double value = strtod(text, NULL);
  leave_c_locale(before, own);
  return value;
}

/* Tries 1 to 17 digits and takes the first text that reads back as the same double; 17 always do. `.0` marks an
 * integral value as a double, since the language distinguishes 2 from 2.0. A NaN contains an `n` and so gets no `.0`.
 */
void number_add(StrBuf *out, double value) {
  if (isinf(value)) {
    strbuf_add(out, value < 0 ? "-inf" : "inf");
    return;
  }
  char text[40];
  locale_t own, before = enter_c_locale(&own);
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  leave_c_locale(before, own);
  strbuf_add(out, text);
  if (!strpbrk(text, ".en")) strbuf_add(out, ".0");
}
