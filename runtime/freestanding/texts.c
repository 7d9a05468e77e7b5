/* Bytes and texts for machines without a C library, and vsnprintf for the messages of the runtime: the conversions
 * that freestanding.h names, without widths. In: a format and its arguments. Out: the text, cut to what fits, with a
 * NUL; the length that all of it has. A conversion that is not known is written as it stands. */
#include "freestanding/freestanding.h"

// ---- string.h: copies are instructions ----

void *memcpy(void *to, const void *from, size_t n) { return __builtin_memcpy(to, from, n); }
void *memmove(void *to, const void *from, size_t n) { return __builtin_memmove(to, from, n); }
void *memset(void *to, int byte, size_t n) { return __builtin_memset(to, byte, n); }

int memcmp(const void *a, const void *b, size_t n) {
  const uint8_t *x = a, *y = b;
  for (size_t i = 0; i < n; i++)
    if (x[i] != y[i]) return x[i] - y[i];
  return 0;
}

size_t strlen(const char *text) {
  size_t n = 0;
  while (text[n]) n++;
  return n;
}

int strncmp(const char *a, const char *b, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (a[i] != b[i] || !a[i]) return (uint8_t)a[i] - (uint8_t)b[i];
  return 0;
}

int strcmp(const char *a, const char *b) { return strncmp(a, b, SIZE_MAX); }

// ---- stdio.h ----

typedef struct Text {
  char *to;
  size_t size, length; /* length: of all, what does not fit too */
} Text;

static void add(Text *text, char c) {
  if (text->length + 1 < text->size) text->to[text->length] = c;
  text->length++;
}

static void add_text(Text *text, const char *from, size_t most) {
  for (size_t i = 0; i < most && from[i]; i++) add(text, from[i]);
}

static void add_digits(Text *text, uint64_t value, int least) {
  char digits[24];
  int n = 0;
  while (value || n < least || !n) {
    digits[n++] = (char)('0' + value % 10);
    value /= 10;
  }
  while (n) add(text, digits[--n]);
}

static void add_signed(Text *text, int64_t value) {
  if (value < 0) add(text, '-');
  add_digits(text, value < 0 ? -(uint64_t)value : (uint64_t)value, 1);
}

// ---- %g: six digits, without zeroes at the end ----

enum { DIGITS = 6, LARGEST = 1000000 };

/* The digits of a positive finite number as a whole number of six of them, and its decimal exponent. Scaling by powers
 * of ten is not exact: of numbers far from 1 the last digit may be one too large or small, which messages bear. */
static uint32_t six_digits(double value, int *exponent) {
  int e = 0;
  while (value >= 10) value /= 10, e++;
  while (value < 1) value *= 10, e--;
  uint32_t digits = (uint32_t)(value * (LARGEST / 10) + 0.5);
  if (digits == LARGEST) digits /= 10, e++;
  *exponent = e;
  return digits;
}

static void add_fraction(Text *text, uint32_t digits, int n) {
  while (n && digits % 10 == 0) digits /= 10, n--;
  if (!n) return;
  add(text, '.');
  add_digits(text, digits, n);
}

static uint32_t power_of_ten(int n) { return n ? 10 * power_of_ten(n - 1) : 1; }

static void add_real(Text *text, double value) {
  int e;
  if (value != value) return add_text(text, "nan", SIZE_MAX);
  if (signbit(value)) add(text, '-');
  value = fabs(value);
  if (value == 0) return add(text, '0');
  if (isinf(value)) return add_text(text, "inf", SIZE_MAX);
  const uint32_t digits = six_digits(value, &e);
  if (e < -4 || e >= DIGITS) {
    add_digits(text, digits / (LARGEST / 10), 1);
    add_fraction(text, digits % (LARGEST / 10), DIGITS - 1);
    add_text(text, e < 0 ? "e-" : "e+", 2);
    add_digits(text, (uint64_t)(e < 0 ? -e : e), 2);
  } else if (e >= 0) {
    const uint32_t behind = power_of_ten(DIGITS - 1 - e);
    add_digits(text, digits / behind, 1);
    add_fraction(text, digits % behind, DIGITS - 1 - e);
  } else {
    add(text, '0');
    add_fraction(text, digits, DIGITS - 1 - e);
  }
}

// ---- formats ----

typedef struct Conversion {
  char letter;
  int n_long; /* of l */
  size_t most; /* characters of a text */
} Conversion;

static void add_number(Text *text, Conversion c, va_list *arguments) {
  if (c.letter == 'd') add_signed(text, c.n_long > 1 ? va_arg(*arguments, int64_t) : va_arg(*arguments, int32_t));
  else add_digits(text, c.n_long > 1 ? va_arg(*arguments, uint64_t) : va_arg(*arguments, uint32_t), 1);
}

/* `format` stands behind a %. Returns where it goes on. */
static const char *convert(Text *text, const char *format, va_list *arguments) {
  const char *begin = format - 1;
  Conversion c = {.most = SIZE_MAX};
  if (format[0] == '.' && format[1] == '*') {
    const int most = va_arg(*arguments, int);
    c.most = most < 0 ? SIZE_MAX : (size_t)most;
    format += 2;
  }
  for (; *format == 'l' || *format == 'z'; format++) c.n_long += *format == 'l'; /* size_t and long have 32 bits */
  c.letter = *format++;
  if (c.letter == 's') add_text(text, va_arg(*arguments, const char *), c.most);
  else if (c.letter == 'c') add(text, (char)va_arg(*arguments, int));
  else if (c.letter == 'g') add_real(text, va_arg(*arguments, double));
  else if (c.letter == 'd' || c.letter == 'u') add_number(text, c, arguments);
  else if (c.letter == '%') add(text, '%');
  else add_text(text, begin, (size_t)(--format - begin));
  return format;
}

int vsnprintf(char *to, size_t size, const char *format, va_list given) {
  Text text = {to, size, 0};
  va_list arguments;
  va_copy(arguments, given);
  while (*format) {
    if (*format == '%') format = convert(&text, format + 1, &arguments);
    else add(&text, *format++);
  }
  va_end(arguments);
  if (size) to[text.length < size ? text.length : size - 1] = 0;
  return (int)text.length;
}

int snprintf(char *text, size_t size, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int n = vsnprintf(text, size, format, arguments);
  va_end(arguments);
  return n;
}
