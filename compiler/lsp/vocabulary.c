/* The tables of words. See vocabulary.h. */
#include "lsp/vocabulary.h"

#include <string.h>

static const Vocable keywords[] = {
#define WORD(name, group) {name, NULL, NULL},
#include "parse/words.def"
};

static const Vocable primitives[] = {
#define PRIMITIVE(name, parameters, function, line) {#name, parameters, line},
#include "elaborate/primitives.def"
};

static const Vocable torch_names[] = {
#define TORCH_NAME(name, hint) {name, NULL, hint},
#define TORCH_ARGUMENT(name, hint)
#include "elaborate/torch_names.def"
};

#define ROWS(table) ((Vocables){table, sizeof table / sizeof *table})

Vocables vocabulary_keywords(void) { return ROWS(keywords); }
Vocables vocabulary_primitives(void) { return ROWS(primitives); }
Vocables vocabulary_torch_names(void) { return ROWS(torch_names); }

const Vocable *vocabulary_primitive(const char *name) {
  for (size_t i = 0; i < sizeof primitives / sizeof *primitives; i++)
    if (strcmp(primitives[i].name, name) == 0) return &primitives[i];
  return NULL;
}
