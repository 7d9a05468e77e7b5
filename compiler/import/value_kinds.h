/* Kinds of values of JSON, by the words of key_types.def.
 *
 * In: a value, and the words of the kinds that it may have, such as "int|list[int]". Out: whether it is of one of them,
 * and what they are called in a message. */
#ifndef TFM_IMPORT_VALUE_KINDS_H
#define TFM_IMPORT_VALUE_KINDS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/arena.h"

bool value_is_of(const json_t *value, const char *kinds);
const char *kinds_described(Arena *arena, const char *kinds);

typedef struct Word {
  const char *start;
  size_t length;
} Word;

/* The next word of a list, of length 0 at its end; `at` moves behind it. */
Word next_word(const char **at, char separator);
bool is_word(Word word, const char *text);

#endif
