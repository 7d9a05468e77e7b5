/* Vec: a growing array in an arena, of any type.
 *
 *   VEC(int) numbers = {0};
 *   vec_push(arena, &numbers, 7);
 *   for (size_t i = 0; i < numbers.n; i++) use(numbers.items[i]);
 *
 * Growing leaves the old memory to the arena; pointers to items are invalid after a push. */
#ifndef TFM_BASE_VEC_H
#define TFM_BASE_VEC_H

#include "base/arena.h"

#define VEC(Type) \
  struct {        \
    Type *items;  \
    size_t n;     \
    size_t cap;   \
  }

#define vec_push(arena, vec, ...)                                                                            \
  do {                                                                                                       \
    if ((vec)->n == (vec)->cap)                                                                              \
      (vec)->items = vec_grow((arena), (vec)->items, (vec)->n, &(vec)->cap, sizeof *(vec)->items);           \
    (vec)->items[(vec)->n++] = (__VA_ARGS__);                                                                \
  } while (0)

/* The items in memory for at least twice as many; `cap` is updated. */
void *vec_grow(Arena *arena, void *items, size_t n, size_t *cap, size_t item_size);

#endif
