/* Arena: memory with one lifetime.
 *
 * In: sizes. Out: zeroed memory, aligned to 16 bytes, valid until the arena is destroyed or reset.
 * A function that allocates takes the Arena it allocates from; there is no free of single objects.
 * Running out of memory is the one fatal exit of the compiler: message on stderr, exit code 4. */
#ifndef TFM_BASE_ARENA_H
#define TFM_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_create(void);
void arena_destroy(Arena *arena); /* NULL is ignored */
void arena_reset(Arena *arena);   /* everything allocated so far becomes invalid */

/* `size` bytes of zeroes; size 0 gives a valid pointer. */
void *arena_alloc(Arena *arena, size_t size);
/* `count * size` bytes of zeroes; an overflow counts as out of memory. */
void *arena_array(Arena *arena, size_t count, size_t size);
/* A copy of `size` bytes. */
void *arena_copy(Arena *arena, const void *bytes, size_t size);
char *arena_strndup(Arena *arena, const char *text, size_t length);
char *arena_strdup(Arena *arena, const char *text);
char *arena_printf(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *arena, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* What memory is taken for from now on, in words that follow "out of memory": "for input \"x\"", "while reading the
 * model"; NULL: nothing that the user would know. The text must stay valid. Returns what it was before. */
const char *arena_set_purpose(Arena *arena, const char *purpose);
/* Prints "tfmc: error: out of memory", the purpose, and how many bytes were asked for (0: not known), and ends the
 * process with exit code 4. */
_Noreturn void out_of_memory(const char *purpose, size_t bytes);

#define ARENA_NEW(arena, Type) ((Type *)arena_alloc((arena), sizeof(Type)))
#define ARENA_ARRAY(arena, Type, count) ((Type *)arena_array((arena), (size_t)(count), sizeof(Type)))

#endif
