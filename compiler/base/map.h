/* Map: from byte strings to pointers, in an arena. Iteration follows the order of insertion, so what is printed from
 * a map is the same in every run although the hash is seeded. Keys are copied, values are not. There is no removal. */
#ifndef TFM_BASE_MAP_H
#define TFM_BASE_MAP_H

#include <stdbool.h>

#include "base/arena.h"

typedef struct MapEntry {
  const char *key; /* ends with a NUL that `length` does not count */
  size_t length;
  void *value;
} MapEntry;

typedef struct Map {
  Arena *arena;
  MapEntry *items; /* in order of insertion */
  size_t n, cap;
  unsigned *slots; /* 0 = empty, else index of the entry + 1 */
  size_t n_slots;
} Map;

Map map_new(Arena *arena);
/* NULL if the key is absent (a value may be NULL too: map_has tells). */
void *map_get(const Map *map, const char *key);
bool map_has(const Map *map, const char *key);
MapEntry *map_find(const Map *map, const void *key, size_t length);
/* Adds or replaces. */
void map_put(Map *map, const char *key, void *value);
MapEntry *map_put_n(Map *map, const void *key, size_t length, void *value);

/* Interning: equal texts give the same pointer. The map serves as the set of texts. */
const char *map_intern(Map *map, const char *text, size_t length);

#endif
