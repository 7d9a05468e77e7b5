/* StrBuf: text that grows, in an arena. Always ends with a NUL; `length` does not count it. */
#ifndef TFM_BASE_STRBUF_H
#define TFM_BASE_STRBUF_H

#include "base/arena.h"

typedef struct StrBuf {
  Arena *arena;
  char *text; /* never NULL after strbuf_new */
  size_t length, capacity;
} StrBuf;

StrBuf strbuf_new(Arena *arena);
void strbuf_add(StrBuf *buf, const char *text);
void strbuf_add_n(StrBuf *buf, const char *text, size_t length);
void strbuf_add_char(StrBuf *buf, char c);
void strbuf_printf(StrBuf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text with quotes around it and control bytes, quotes and backslashes escaped (\n, \t, \xNN). */
void strbuf_add_quoted(StrBuf *buf, const char *text);
/* The text, which is UTF-8, as a JSON string. */
void strbuf_add_json(StrBuf *buf, const char *text);

// ---- doubles as text, the same under every locale ----

/* The double nearest to a decimal number, infinite if it is too large. */
double number_read(const char *text);
/* The shortest text that number_read gives `value` for; never one that looks like an integer. `inf` for infinity. */
void number_add(StrBuf *out, double value);

#endif
