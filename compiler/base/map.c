/* A hash table with open addressing over entries that stay in order of insertion. In and out: see map.h. Nothing is
 * refused; running out of memory is the arena's. */
#include "base/map.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

#include "base/vec.h"

/* FNV-1a with a seed of the process, so that chosen keys cannot collide on purpose. The order of entries does not
 * depend on it. */
static uint64_t hash_of(const void *key, size_t length) {
  static const char place;
  static uint64_t seed;
  if (!seed) seed = ((uint64_t)(uintptr_t)&place * 0x9e3779b97f4a7c15u ^ (uint64_t)time(NULL)) | 1;
  uint64_t hash = 0xcbf29ce484222325u ^ seed;
  for (size_t i = 0; i < length; i++) hash = (hash ^ ((const unsigned char *)key)[i]) * 0x100000001b3u;
  return hash ^ hash >> 29;
}

Map map_new(Arena *arena) { return (Map){.arena = arena}; }

static unsigned *slot_of(const Map *map, const void *key, size_t length) {
  for (size_t i = hash_of(key, length) & (map->n_slots - 1);; i = (i + 1) & (map->n_slots - 1)) {
    unsigned *slot = &map->slots[i];
    if (!*slot) return slot;
    const MapEntry *entry = &map->items[*slot - 1];
    if (entry->length == length && memcmp(entry->key, key, length) == 0) return slot;
  }
}

MapEntry *map_find(const Map *map, const void *key, size_t length) {
  if (!map->n_slots) return NULL;
  unsigned *slot = slot_of(map, key, length);
  return *slot ? &map->items[*slot - 1] : NULL;
}

static void widen(Map *map) {
  map->n_slots = map->n_slots ? map->n_slots * 2 : 16;
  map->slots = ARENA_ARRAY(map->arena, unsigned, map->n_slots);
  for (size_t i = 0; i < map->n; i++) *slot_of(map, map->items[i].key, map->items[i].length) = (unsigned)i + 1;
}

MapEntry *map_put_n(Map *map, const void *key, size_t length, void *value) {
  MapEntry *entry = map_find(map, key, length);
  if (entry) {
    entry->value = value;
    return entry;
  }
  if (2 * (map->n + 1) > map->n_slots) widen(map);
  vec_push(map->arena, map, (MapEntry){arena_strndup(map->arena, key, length), length, value});
  *slot_of(map, key, length) = (unsigned)map->n;
  return &map->items[map->n - 1];
}

void map_put(Map *map, const char *key, void *value) { map_put_n(map, key, strlen(key), value); }

void *map_get(const Map *map, const char *key) {
  MapEntry *entry = map_find(map, key, strlen(key));
  return entry ? entry->value : NULL;
}

bool map_has(const Map *map, const char *key) { return map_find(map, key, strlen(key)) != NULL; }

const char *map_intern(Map *map, const char *text, size_t length) {
  MapEntry *entry = map_find(map, text, length);
  return entry ? entry->key : map_put_n(map, text, length, NULL)->key;
}
