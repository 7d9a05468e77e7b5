#include "base/vec.h"

#include <string.h>

void *vec_grow(Arena *arena, void *items, size_t n, size_t *cap, size_t item_size) {
  size_t wider = *cap ? *cap * 2 : 8;
  void *grown = arena_array(arena, wider, item_size);
  if (n) memcpy(grown, items, n * item_size);
  *cap = wider;
  return grown;
}
