#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/option_values.h"

// ---- reading the values of valid options ----

bool option_given(const Options *options, Option option) { return options->values[option].texts.n > 0; }

const char *option_text(const Options *options, Option option, const char *otherwise) {
  const OptionValues *values = &options->values[option];
  return values->texts.n ? values->texts.items[values->texts.n - 1] : otherwise;
}

uint64_t option_count(const Options *options, Option option, uint64_t otherwise) {
  const char *text = option_text(options, option, NULL);
  return text ? strtoull(text, NULL, 10) : otherwise;
}

double option_number(const Options *options, Option option, double otherwise) {
  const char *text = option_text(options, option, NULL);
  return text ? strtod(text, NULL) : otherwise;
}

bool option_is(const Options *options, Option option, const char *otherwise, const char *word) {
  const char *text = option_text(options, option, otherwise);
  return text && strcmp(text, word) == 0;
}

void option_error(Diag *diag, Option option, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag_error_at(diag, NULL, DIAG_USAGE, "%s: %s", option_spelling(diag->arena, option),
                arena_vprintf(diag->arena, format, args));
  va_end(args);
}

// ---- checking ----

/* Digits and nothing else, no more than 64 bits. */
static bool read_count(const char *text, uint64_t *count) {
  *count = 0;
  for (const char *c = text; *c; c++) {
    if (*c < '0' || *c > '9') return false;
    if (__builtin_mul_overflow(*count, (uint64_t)10, count)) return false;
    if (__builtin_add_overflow(*count, (uint64_t)(*c - '0'), count)) return false;
  }
  return *text != '\0';
}

static bool check_count(Diag *diag, Option option, const char *text) {
  const char *rule = option_table[option].rule, *dots = strstr(rule, "..");
  uint64_t count, least = strtoull(rule, NULL, 10), most = strtoull(dots + 2, NULL, 10);
  if (read_count(text, &count) && count >= least && count <= most) return true;
  option_error(diag, option, "\"%s\" is not a whole number from %llu to %llu", text, (unsigned long long)least,
               (unsigned long long)most);
  return false;
}

static bool check_number(Diag *diag, Option option, const char *text) {
  char *end;
  double number = strtod(text, &end);
  bool is_plain = *text && strspn(text, "0123456789.eE+-") == strlen(text);
  if (is_plain && !*end && number >= 0 && number < 1e300) return true;
  option_error(diag, option, "\"%s\" is not a number from 0 on", text);
  return false;
}

static bool check_choice(Diag *diag, Option option, const char *text) {
  const char *rule = option_table[option].rule, *words[16];
  size_t n = 0;
  for (const char *word = rule; n < 16; word++) {
    size_t length = strcspn(word, "|");
    words[n] = arena_strndup(diag->arena, word, length);
    if (strcmp(words[n++], text) == 0) return true;
    word += length;
    if (!*word) break;
  }
  const char *nearest = diag_nearest(text, words, n);
  StrBuf list = strbuf_new(diag->arena);
  for (size_t i = 0; i < n; i++) strbuf_printf(&list, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", words[i]);
  option_error(diag, option, "\"%s\" is none of its values: %s%s%s%s", text, list.text,
               nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
  return false;
}

bool option_check(Diag *diag, Option option, const char *text) {
  switch (option_table[option].kind) {
    case KIND_COUNT: return check_count(diag, option, text);
    case KIND_NUMBER: return check_number(diag, option, text);
    case KIND_CHOICE: return check_choice(diag, option, text);
    case KIND_ONCE:
    case KIND_MANY:
      if (*text) return true;
      option_error(diag, option, "its argument is empty");
      return false;
    default: return true;
  }
}
