/* Settings that layers have of their own, by number ({"5": {"head_dim": 512}, "11": ...}), and the kinds of layers.
 *
 * In: such an object, and the list of kinds. Out: the value of a key that all layers of one kind have. Refused:
 * numbers of no layer, layers of another kind, layers of the kind that are left out or have another value, keys that
 * nothing reads. */
#ifndef TFM_IMPORT_LAYER_VALUES_H
#define TFM_IMPORT_LAYER_VALUES_H

#include <jansson.h>

#include "base/arena.h"

/* A borrowed value; NULL if no layer has the key, or with `fault` set. `keys`: those that the layers may have; the
 * first is the one that is asked for. */
const json_t *value_of_layers(Arena *arena, const json_t *layers, const json_t *kinds, const char *kind,
                              const json_t *keys, const char **fault);

#endif
