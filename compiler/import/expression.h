/* Expression: what the right sides of a `checkpoint` block say about a checkpoint.
 *
 * In: an expression of the language and a Facts, which says what names mean and which weights there are. Out: a value
 * of JSON. Names are keys; `a.b` goes into objects, and what is missing is null, at any depth. Functions:
 * has("weight"), dims("weight", axis), same("weight", "other"), fits("pattern", size, ...), first(a, b, ...),
 * absent(key), one_of(x, a, ...), all_of(list, a, ...), letters(text), of_layers(object, kinds, kind, key, ...).
 * Refused, at the place in the text and with the key that is to blame: arithmetic on what is no number, other calls,
 * and everything that needs tensors. */
#ifndef TFM_IMPORT_EXPRESSION_H
#define TFM_IMPORT_EXPRESSION_H

#include <jansson.h>

#include "ast/ast.h"
#include "base/map.h"
#include "diag/diag.h"
#include "weights/weight_set.h"

typedef struct Facts {
  Arena *arena;
  Diag *diag;
  const json_t *names; /* an object: what names mean; one that it lacks is null */
  const char *file;    /* where the names come from, for messages: "DIR/config.json" */
  const WeightSet *weights;
  json_t *values; /* an array, which owns what was computed */
  Map *copies;    /* tensors that `same` found to be copies of others; NULL: they are not wanted */
  const char *misfit; /* the tensor and the two shapes of the last `fits` that did not hold; NULL: there was none */
} Facts;

/* Returns NULL after a fault; otherwise it lives as long as `names` and `values`. */
json_t *expression_value(Facts *facts, const Ast *node);
/* The truth of a condition: 1, 0, or -1 after a fault. */
int expression_truth(Facts *facts, const Ast *node);
/* The keys that an expression names, for messages: "hidden_size, head_dim". */
const char *expression_keys(Arena *arena, const Ast *node);
/* Whether its value depends on the weights. */
bool expression_needs_weights(const Ast *node);
/* Adds the paths of the keys that an expression names, "a.b" and then "a" too, whatever its value needs. */
void expression_add_keys(Map *keys, const Ast *node);
/* Numbers are compared as numbers: 1 equals 1.0. */
bool values_are_equal(const json_t *a, const json_t *b);

// ---- between expression.c, expression_calls.c and expression_keys.c ----

/* The value now belongs to the facts. */
json_t *facts_keep(Facts *f, json_t *value);
/* Adds an error at a node and returns NULL. */
json_t *facts_fault(Facts *f, const Ast *node, const char *format, ...) __attribute__((format(printf, 3, 4)));
const Ast *call_argument(const Ast *call, uint32_t i);
/* The value of a call, of the values of its arguments; NULL after a fault. */
json_t *checkpoint_call(Facts *f, const Ast *call, json_t **given, uint32_t n);

#endif
