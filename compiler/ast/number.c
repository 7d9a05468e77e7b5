#include "ast/number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Switches this thread to the C locale; `*own` is to be given back to leave_c_locale. */
static locale_t enter_c_locale(locale_t *own) {
  *own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (*own == (locale_t)0) out_of_memory();
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
