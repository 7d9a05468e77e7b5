/* Settings of layers. See layer_values.h. */
#include "import/layer_values.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_listed(const json_t *keys, const char *key) {
  for (size_t i = 0; i < json_array_size(keys); i++)
    if (strcmp(json_string_value(json_array_get(keys, i)), key) == 0) return true;
  return false;
}

/* The kind of the layer that a name is the number of; NULL: it is none. */
static const char *kind_of(const json_t *kinds, const char *name) {
  char *end;
  const unsigned long number = strtoul(name, &end, 10);
  const bool is_number = *name >= '0' && *name <= '9' && !*end && (*name != '0' || !name[1]);
  return is_number ? json_string_value(json_array_get(kinds, number)) : NULL;
}

static size_t count_of(const json_t *kinds, const char *kind) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(kinds); i++) {
    const char *own = json_string_value(json_array_get(kinds, i));
    n += own && strcmp(own, kind) == 0;
  }
  return n;
}

/* NULL: all is well with an entry. */
static const char *fault_of(Arena *arena, const char *name, const json_t *entry, const char *own, const char *kind,
                            const json_t *keys) {
  if (!own) return arena_printf(arena, "\"%s\" is the number of no layer", name);
  if (strcmp(own, kind) != 0) return arena_printf(arena, "layer %s is of the kind \"%s\", not \"%s\"", name, own, kind);
  if (!json_is_object(entry)) return arena_printf(arena, "the settings of layer %s are no object", name);
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)entry, key, value)
    if (!is_listed(keys, key)) return arena_printf(arena, "nothing reads \"%s\" of layer %s", key, name);
  return NULL;
}

const json_t *value_of_layers(Arena *arena, const json_t *layers, const json_t *kinds, const char *kind,
                              const json_t *keys, const char **fault) {
  const char *name, *wanted = json_string_value(json_array_get(keys, 0));
  json_t *entry;
  const json_t *found = NULL;
  size_t n = 0;
  json_object_foreach((json_t *)layers, name, entry) {
    *fault = fault_of(arena, name, entry, kind_of(kinds, name), kind, keys);
    if (*fault) return NULL;
    const json_t *value = json_object_get(entry, wanted);
    if (n && !(found == value || (found && value && json_equal(found, value))))
      *fault = arena_printf(arena, "layer %s has another \"%s\" than those before it", name, wanted);
    if (*fault) return NULL;
    found = value;
    n++;
  }
  if (n && n != count_of(kinds, kind)) {
    *fault = arena_printf(arena, "of the kind \"%s\" only some layers are named", kind);
    return NULL;
  }
  return found;
}
