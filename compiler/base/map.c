#define _DEFAULT_SOURCE /* getentropy */
/* Arrays and maps that grow in an arena.
 *
 * In: items, keys. Out: room for more, entries. A map is a hash table with open addressing, whose entries stand in a
 * second array in order of insertion. Refuses nothing. See vec.h, map.h. */
#include "base/map.h"

#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/vec.h"

// ---- growing arrays ----

/* Doubling makes a push take constant time on average. The old items stay in the arena: together they are shorter
 * than the new array. */
void *vec_grow(Arena *arena, void *items, size_t n, size_t *cap, size_t item_size) {
  size_t wider = *cap ? *cap * 2 : 8;
  void *grown = arena_array(arena, wider, item_size);
  if (n) memcpy(grown, items, n * item_size);
  *cap = wider;
  return grown;
}

// ---- maps ----

/* Folded so that the high bits of the hash reach the mask. The seed differs from process to process, so that a model
 * cannot be written to make all its names collide; the order of entries does not depend on it. */
static uint64_t hash_of(const void *key, size_t length) {
  static uint64_t seed;
  if (!seed) {
    if (getentropy(&seed, sizeof seed)) seed = (uint64_t)time(NULL); /* a sandbox refuses it */
    seed |= 1;
  }
  const uint64_t hash = hash_bytes(HASH_BEGIN ^ seed, key, length);
  return hash ^ hash >> 29;
}

Map map_new(Arena *arena) { return (Map){.arena = arena}; }

/* The slot of a key, or the empty slot where it belongs. Linear probing ends because at least half of the slots are
 * empty; n_slots is a power of two, so the mask is the remainder. */
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

/* Twice the slots. The entries stay where they are, so iteration keeps the order of insertion. */
static void widen(Map *map) {
  map->n_slots = map->n_slots ? map->n_slots * 2 : 16;
  map->slots = ARENA_ARRAY(map->arena, unsigned, map->n_slots);
  for (size_t i = 0; i < map->n; i++) *slot_of(map, map->items[i].key, map->items[i].length) = (unsigned)i + 1;
}

/* The table widens before the new entry is counted: slot_of relies on an empty slot. The arena's NUL after the copied
 * key makes it a C string. */
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

/* The text itself is the key, so the copy that the map made of it serves as the one pointer for all equal texts. */
const char *map_intern(Map *map, const char *text, size_t length) {
  MapEntry *entry = map_find(map, text, length);
  return entry ? entry->key : map_put_n(map, text, length, NULL)->key;
}
