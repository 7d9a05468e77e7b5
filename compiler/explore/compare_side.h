/* Compare: what one of two models has, module by module, as texts that can be compared. Private to explore/.
 *
 * In: the data of a model, one of its programs. Out: for each module its weights, operations, inputs and outputs, and
 * its steps. */
#ifndef TFM_EXPLORE_COMPARE_SIDE_H
#define TFM_EXPLORE_COMPARE_SIDE_H

#include "explore/explorer.h"

typedef VEC(const char *) Texts;
typedef VEC(uint32_t) Numbers;

typedef struct Entries { /* texts, each with the number of the operation or step that it is; NO_OPERATION: it is none */
  Texts texts;
  Numbers numbers;
} Entries;

static const uint32_t NO_OPERATION = UINT32_MAX;

typedef struct Side {
  const json_t *modules;
  Numbers *children;       /* by module */
  Entries *items, *steps;  /* by module */
  double *weight_bytes;    /* of the steps of a module */
  double *nanoseconds;     /* that these took, where they were measured */
  const char **signatures; /* all that is in a module, whatever numbers stand in names */
} Side;

/* `program`: its name; a side without it has modules alone. Weights belong to `whole`. */
Side compare_side(Arena *arena, const json_t *data, const char *program);
const json_t *program_named(const json_t *data, const char *name);
/* A member of an object. */
const char *member_text(const json_t *object, const char *name);

#endif
