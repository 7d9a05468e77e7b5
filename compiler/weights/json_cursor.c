/* In: a range of a file. Out: tokens of JSON, or the first fault. See json_cursor.h. */
#include "weights/json_cursor.h"

#include <string.h>

#include "base/checked_size.h"
#include "diag/source.h"

/* The first fault counts; those that follow from it would only confuse. */
bool cursor_fail(JsonCursor *cursor, int64_t at, const char *format, ...) {
  if (cursor->failed) return false;
  cursor->failed = true;
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(cursor->diag->arena, format, args);
  va_end(args);
  diag_error_at(cursor->diag, cursor->file->path, DIAG_SAFETENSORS, "header byte %lld: %s", (long long)at, text);
  return false;
}

// ---- bytes ----

/* Returns the next byte without consuming it, or -1 at the end and after a fault. Reads the next piece of the file
 * when the last one is used up. */
static int peek_byte(JsonCursor *cursor) {
  if (cursor->failed || cursor->at >= cursor->size) return -1;
  if (cursor->at >= cursor->piece_begin + (int64_t)cursor->piece_size) {
    int64_t rest = cursor->size - cursor->at;
    cursor->piece_begin = cursor->at;
    cursor->piece_size = rest < (int64_t)sizeof cursor->piece ? (size_t)rest : sizeof cursor->piece;
    if (!in_file_read(cursor->file, cursor->diag, cursor->begin + cursor->at, cursor->piece, cursor->piece_size)) {
      cursor->failed = true;
      return -1;
    }
  }
  return cursor->piece[cursor->at - cursor->piece_begin];
}

static int next_byte(JsonCursor *cursor) {
  int c = peek_byte(cursor);
  if (c >= 0) cursor->at++;
  return c;
}

/* Skips the four blanks that JSON has, no others. */
int cursor_peek(JsonCursor *cursor) {
  int c = peek_byte(cursor);
  while (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
    cursor->at++;
    c = peek_byte(cursor);
  }
  return c;
}

/* "'x'", "byte 0x80" or "the end", for messages. */
static const char *describe(const JsonCursor *cursor, int c) {
  if (c < 0) return "the end of the header";
  return arena_printf(cursor->diag->arena, c >= ' ' && c < 127 ? "'%c'" : "byte 0x%02x", c);
}

bool cursor_expect(JsonCursor *cursor, char c) {
  int found = cursor_peek(cursor);
  if (found != c) return cursor_fail(cursor, cursor->at, "expected '%c', found %s", c, describe(cursor, found));
  cursor->at++;
  return true;
}

bool cursor_separator(JsonCursor *cursor, char close, bool *more) {
  int found = cursor_peek(cursor);
  *more = found == ',';
  if (found != ',' && found != close)
    return cursor_fail(cursor, cursor->at, "expected ',' or '%c', found %s", close, describe(cursor, found));
  cursor->at++;
  return true;
}

// ---- strings ----

typedef struct StringOut {
  StrBuf *text;
  size_t limit, length;
} StringOut;

/* Stores nothing beyond the limit but counts on, so that the caller can say how long the string was. */
static void add_bytes(StringOut *out, const char *bytes, size_t n) {
  if (out->length + n <= out->limit) strbuf_add_n(out->text, bytes, n);
  out->length += n;
}

/* Encodes a character as UTF-8: the first byte says by its high bits how many follow, each of which has six bits. */
static void add_character(StringOut *out, uint32_t c) {
  char bytes[4];
  size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = n; i-- > 1; c >>= 6) bytes[i] = (char)(0x80 | (c & 0x3f));
  bytes[0] = (char)(n == 1 ? c : (0xf00u >> n & 0xff) | c);
  add_bytes(out, bytes, n);
}

static bool read_hex4(JsonCursor *cursor, uint32_t *value) {
  *value = 0;
  for (int i = 0; i < 4; i++) {
    int c = next_byte(cursor);
    int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (digit < 0) return cursor_fail(cursor, cursor->at - 1, "\\u wants four hexadecimal digits");
    *value = *value << 4 | (uint32_t)digit;
  }
  return true;
}

/* Characters beyond U+FFFF are a pair of surrogates; one alone is no character. */
static bool read_unicode_escape(JsonCursor *cursor, StringOut *out, int64_t at) {
  uint32_t high, low;
  if (!read_hex4(cursor, &high)) return false;
  if (high >= 0xdc00 && high < 0xe000) return cursor_fail(cursor, at, "a lone surrogate");
  if (high >= 0xd800 && high < 0xdc00) {
    if (next_byte(cursor) != '\\' || next_byte(cursor) != 'u') return cursor_fail(cursor, at, "a lone surrogate");
    if (!read_hex4(cursor, &low)) return false;
    if (low < 0xdc00 || low >= 0xe000) return cursor_fail(cursor, at, "a lone surrogate");
    high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }
  add_character(out, high);
  return true;
}

/* The letter after the backslash stands at the same index in both texts. A NUL would find the end of `letters` and is
 * no escape, hence c > 0. */
static bool read_escape(JsonCursor *cursor, StringOut *out) {
  static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  int64_t at = cursor->at - 1;
  int c = next_byte(cursor);
  if (c == 'u') return read_unicode_escape(cursor, out, at);
  const char *letter = c > 0 ? strchr(letters, c) : NULL;
  if (!letter) return cursor_fail(cursor, at, "an escape that JSON does not have");
  add_bytes(out, &meanings[letter - letters], 1);
  return true;
}

/* utf8_decode refuses overlong forms, surrogates and what lies beyond U+10FFFF. */
static bool read_multibyte(JsonCursor *cursor, StringOut *out, int first) {
  int64_t at = cursor->at - 1;
  char bytes[4] = {(char)first};
  size_t n = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  for (size_t i = 1; i < n; i++) {
    int c = next_byte(cursor);
    if (c < 0x80) return cursor_fail(cursor, at, "the text is not UTF-8");
    bytes[i] = (char)c;
  }
  uint32_t character;
  if (utf8_decode(bytes, n, &character) != n) return cursor_fail(cursor, at, "the text is not UTF-8");
  add_bytes(out, bytes, n);
  return true;
}

bool cursor_string(JsonCursor *cursor, StrBuf *text, size_t limit, size_t *length) {
  StringOut out = {text, limit, 0};
  text->length = 0;
  text->text[0] = '\0';
  int found = cursor_peek(cursor);
  if (found != '"') return cursor_fail(cursor, cursor->at, "expected a string, found %s", describe(cursor, found));
  int64_t at = cursor->at++;
  for (;;) {
    int c = next_byte(cursor);
    if (c == '"') break;
    if (c < 0) return cursor_fail(cursor, at, "a string without an end");
    if (c < 0x20) return cursor_fail(cursor, cursor->at - 1, "control byte 0x%02x in a string", (unsigned)c);
    if (c == '\\') {
      if (!read_escape(cursor, &out)) return false;
    } else if (c >= 0x80) {
      if (!read_multibyte(cursor, &out, c)) return false;
    } else {
      add_bytes(&out, &(char){(char)c}, 1);
    }
  }
  *length = out.length;
  return true;
}

// ---- numbers ----

/* Overflow is checked before each digit is taken, so a number of any length is refused and not wrapped. Fractions and
 * exponents are refused even if their value is whole: no writer makes them, and a double would round. */
bool cursor_integer(JsonCursor *cursor, int64_t *value) {
  int c = cursor_peek(cursor);
  int64_t at = cursor->at;
  *value = 0;
  if (c < '0' || c > '9') return cursor_fail(cursor, at, "expected a whole number, found %s", describe(cursor, c));
  bool leading_zero = c == '0';
  for (c = peek_byte(cursor); c >= '0' && c <= '9'; c = peek_byte(cursor)) {
    if (leading_zero && cursor->at > at) return cursor_fail(cursor, at, "a number with a leading zero");
    if (!checked_mul(*value, 10, value) || !checked_add(*value, c - '0', value))
      return cursor_fail(cursor, at, "the number is larger than 2^63 - 1");
    cursor->at++;
  }
  if (c == '.' || c == 'e' || c == 'E') return cursor_fail(cursor, at, "the number is not written as a whole number");
  return !cursor->failed;
}
