/* In: inputs of a step graph. Out: the numbers in their names, "cache.N" and "source.N". */
#include <ctype.h>
#include <string.h>

#include "passes/incremental.h"

enum { MAX_DIGITS = 9 };

static int32_t number_after(const Node *input, const char *prefix) {
  size_t length = strlen(prefix);
  if (input->op != OP_INPUT || strncmp(input->attr.name, prefix, length) != 0) return -1;
  const char *digits = input->attr.name + length;
  size_t n = strlen(digits);
  if (n == 0 || n > MAX_DIGITS) return -1;
  int32_t number = 0;
  for (size_t i = 0; i < n; i++) {
    if (!isdigit((unsigned char)digits[i])) return -1;
    number = number * 10 + (digits[i] - '0');
  }
  return number;
}

int32_t incremental_cache_number(const Node *input) { return number_after(input, "cache."); }
int32_t incremental_source_number(const Node *input) { return number_after(input, "source."); }
