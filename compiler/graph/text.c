/* In: a pointer into a text, or a number. Out: the word there, or the number's digits. See text.h. Numbers are printed
 * with the fewest digits that read back to the same value, so that text forms are stable and exact. */
#include "graph/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked_size.h"

// ---- words ----

static bool begins_name(char c) { return isalpha((unsigned char)c) || c == '_'; }
static bool continues_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

void scan_blanks(const char **text) {
  for (;; ++*text) {
    if (**text == '#') {
      while (**text && **text != '\n' && **text != '\r') ++*text;
    }
    if (!**text || !strchr(" \t\r\n", **text)) return;
  }
}

bool scan_char(const char **text, char c) {
  const char *p = *text;
  scan_blanks(&p);
  if (!c || *p != c) return false;
  *text = p + 1;
  return true;
}

/* Names may have points inside, as in "time.past", but not at the end. */
bool scan_name(const char **text, const char **begin, size_t *length) {
  const char *p = *text;
  scan_blanks(&p);
  if (!begins_name(*p)) return false;
  *begin = p;
  while (continues_name(*p) || (*p == '.' && continues_name(p[1]))) p++;
  *length = (size_t)(p - *begin);
  *text = p;
  return true;
}

bool scan_word(const char **text, const char *word) {
  const char *p = *text, *begin;
  size_t length;
  if (!scan_name(&p, &begin, &length) || length != strlen(word) || memcmp(begin, word, length) != 0) return false;
  *text = p;
  return true;
}

/* Refuses what overflows, and what goes on as a name or a decimal: "3" is no integer in "3.5" or "3x". */
bool scan_integer(const char **text, int64_t *value) {
  const char *p = *text;
  scan_blanks(&p);
  bool negative = *p == '-';
  if (negative) p++;
  if (!isdigit((unsigned char)*p)) return false;
  int64_t result = 0;
  for (; isdigit((unsigned char)*p); p++) {
    int64_t digit = *p - '0';
    if (!checked_mul(result, 10, &result) || !checked_add(result, negative ? -digit : digit, &result)) return false;
  }
  if (*p == '.' || continues_name(*p)) return false;
  *value = result;
  *text = p;
  return true;
}

/* The end of a decimal number with a point or an exponent that begins at `p`; NULL if there is none. */
static const char *end_of_decimal(const char *p) {
  bool real = false;
  if (!isdigit((unsigned char)*p)) return NULL;
  while (isdigit((unsigned char)*p)) p++;
  if (*p == '.') {
    real = true;
    for (p++; isdigit((unsigned char)*p); p++) continue;
  }
  if (*p == 'e') {
    real = true;
    p++;
    if (*p == '+' || *p == '-') p++;
    if (!isdigit((unsigned char)*p)) return NULL;
    while (isdigit((unsigned char)*p)) p++;
  }
  return real && !continues_name(*p) ? p : NULL;
}

/* strtod reads what end_of_decimal has accepted, so its wider grammar (hex, spaces) does no harm. */
bool scan_number(const char **text, double *value) {
  const char *p = *text;
  scan_blanks(&p);
  const char *begin = p;
  if (*p == '-') p++;
  const char *word = p;
  const char *end = scan_word(&p, "inf") || scan_word(&p, "nan") ? p : end_of_decimal(word);
  if (!end) return false;
  *value = strtod(begin, NULL);
  *text = end;
  return true;
}

static int hex_digit(char c) { return isdigit((unsigned char)c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* One character of a string; false if it may not stand there. */
static bool scan_escaped(const char **p, StrBuf *out) {
  char c = *(*p)++;
  if (c != '\\') {
    strbuf_add_char(out, c);
    return c && c != '\n' && c != '\r';
  }
  c = *(*p)++;
  if (c == 'x') {
    int high = hex_digit(**p), low = high < 0 ? -1 : hex_digit((*p)[1]);
    if (low < 0 || high + low == 0) return false;
    *p += 2;
    strbuf_add_char(out, (char)(high * 16 + low));
    return true;
  }
  const char *known = "n\nt\t\"\"\\\\";
  for (; *known; known += 2) {
    if (c != known[0]) continue;
    strbuf_add_char(out, known[1]);
    return true;
  }
  return false;
}

bool scan_string(Arena *arena, const char **text, const char **value) {
  const char *p = *text;
  if (!scan_char(&p, '"')) return false;
  StrBuf out = strbuf_new(arena);
  while (*p != '"') {
    if (!scan_escaped(&p, &out)) return false;
  }
  *text = p + 1;
  *value = out.text;
  return true;
}

bool text_is_name(const char *text) {
  if (!begins_name(*text)) return false;
  while (continues_name(*text)) text++;
  return !*text;
}

// ---- numbers ----

static void add_digits(StrBuf *out, const char *digits) {
  strbuf_add(out, digits);
  if (!strpbrk(digits, ".e")) strbuf_add(out, ".0");
}

/* Numbers that are not written in the shortest form: nan, inf, and moderate integers in full. */
static bool add_special(StrBuf *out, double number) {
  if (isnan(number)) strbuf_add(out, "nan");
  else if (fabs(number) < 1e7 && number == floor(number)) strbuf_printf(out, "%.1f", number);
  else if (isinf(number)) strbuf_add(out, number < 0 ? "-inf" : "inf");
  else return false;
  return true;
}

/* Nine digits tell any two f32 apart, so the loop ends. */
void print_f32(StrBuf *out, double number) {
  float value = (float)number;
  if (add_special(out, value)) return;
  char digits[40];
  for (int precision = 1;; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, (double)value);
    if ((float)strtod(digits, NULL) == value || precision == 9) break;
  }
  add_digits(out, digits);
}

/* Seventeen digits tell any two doubles apart. */
void print_f64(StrBuf *out, double number) {
  if (add_special(out, number)) return;
  char digits[40];
  for (int precision = 1;; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, number);
    if (strtod(digits, NULL) == number || precision == 17) break;
  }
  add_digits(out, digits);
}
