/* Vocabulary: what the language knows without being told: keywords, primitives, and PyTorch's names for them. */
#ifndef TFM_LSP_VOCABULARY_H
#define TFM_LSP_VOCABULARY_H

#include <stddef.h>

typedef struct Vocable {
  const char *name;
  const char *parameters; /* of a primitive: "x, axis = -1"; else NULL */
  const char *line;       /* what it does, or what to write instead; NULL: nothing is said */
} Vocable;

typedef struct Vocables {
  const Vocable *rows;
  size_t n;
} Vocables;

Vocables vocabulary_keywords(void);
Vocables vocabulary_primitives(void);
Vocables vocabulary_torch_names(void);
/* NULL: there is no such primitive. */
const Vocable *vocabulary_primitive(const char *name);

#endif
