/* Memory of the compiler, arrays and maps that grow in it, and the two ways in which the process ends by itself.
 *
 * In: sizes. Out: zeroed memory that lives as long as its arena. Chunks double from FIRST_CHUNK to LARGEST_CHUNK, so
 * a small model costs one malloc and a large one few. Nothing is freed singly. Running out of memory ends the process
 * with exit code 4, a failed CHECK with 70; nothing else below the command line ends it. A map is a hash table with
 * open addressing, whose entries stand in a second array in order of insertion; see map.h. */
#define _DEFAULT_SOURCE /* madvise */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/vec.h"

typedef struct Chunk Chunk;
struct Chunk {
  Chunk *next;
  size_t size, used;
  _Alignas(64) char bytes[];
};

struct Arena {
  Chunk *chunks; /* the newest first */
  const char *purpose;
};

/* Bytes. A chunk is at most 4 MiB, since what is left of it when the next one begins is lost. 16 bytes are the
 * strictest alignment that a C type needs (max_align_t), so one rule serves every caller. What is large may be the
 * numbers of a tensor, whose vectors must not lie across two cache lines; what is very large is read faster from huge
 * pages. */
enum {
  FIRST_CHUNK = 64 * 1024,
  LARGEST_CHUNK = 4 * 1024 * 1024,
  ALIGNMENT = 16,
  CACHE_LINE = 64,
  LARGE = 4096,
  HUGE_PAGE = 2 * 1024 * 1024
};

_Noreturn void out_of_memory(const char *purpose, size_t bytes) {
  fprintf(stderr, "tfmc: error: out of memory%s%s", purpose ? " " : "", purpose ? purpose : "");
  if (bytes == SIZE_MAX)
    fputs(": more bytes are needed than can be addressed", stderr);
  else if (bytes)
    fprintf(stderr, ": %zu bytes more are needed", bytes);
  fputs("\n", stderr);
  exit(4);
}

const char *arena_set_purpose(Arena *arena, const char *purpose) {
  const char *before = arena->purpose;
  arena->purpose = purpose;
  return before;
}

Arena *arena_create(void) {
  Arena *arena = calloc(1, sizeof *arena);
  if (!arena) out_of_memory(NULL, sizeof *arena);
  return arena;
}

static void free_chunks(Chunk *chunk) {
  while (chunk) {
    Chunk *next = chunk->next;
    free(chunk);
    chunk = next;
  }
}

void arena_destroy(Arena *arena) {
  if (!arena) return;
  free_chunks(arena->chunks);
  free(arena);
}

void arena_reset(Arena *arena) {
  free_chunks(arena->chunks);
  arena->chunks = NULL;
}

/* A chunk with room for `size` bytes. The rest of the previous one is given up: searching older chunks for room would
 * make allocation slower than malloc. */
static Chunk *add_chunk(Arena *arena, size_t size) {
  size_t capacity = arena->chunks ? arena->chunks->size * 2 : FIRST_CHUNK;
  if (capacity > LARGEST_CHUNK) capacity = LARGEST_CHUNK;
  if (capacity < size) capacity = size;
  if (capacity > SIZE_MAX - sizeof(Chunk) - HUGE_PAGE) out_of_memory(arena->purpose, SIZE_MAX);
  const size_t unit = size >= HUGE_PAGE ? HUGE_PAGE : CACHE_LINE;
  const size_t bytes = (sizeof(Chunk) + capacity + unit - 1) / unit * unit;
  Chunk *chunk = aligned_alloc(unit, bytes);
  if (!chunk) out_of_memory(arena->purpose, capacity);
  if (unit == HUGE_PAGE) madvise(chunk, bytes, MADV_HUGEPAGE); /* only faster */
  chunk->size = capacity;
  chunk->used = 0;
  chunk->next = arena->chunks;
  return arena->chunks = chunk;
}

/* Memory is cleared here rather than by calloc of a chunk: pages that are never handed out are never touched. */
void *arena_alloc(Arena *arena, size_t size) {
  if (size > SIZE_MAX - ALIGNMENT) out_of_memory(arena->purpose, SIZE_MAX);
  size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  const size_t alignment = size >= LARGE ? CACHE_LINE : ALIGNMENT;
  Chunk *chunk = arena->chunks;
  size_t begin = chunk ? (chunk->used + alignment - 1) / alignment * alignment : 0;
  if (!chunk || begin > chunk->size || chunk->size - begin < size) chunk = add_chunk(arena, size), begin = 0;
  void *memory = chunk->bytes + begin;
  chunk->used = begin + size;
  return memset(memory, 0, size);
}

void *arena_array(Arena *arena, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) out_of_memory(arena->purpose, SIZE_MAX);
  return arena_alloc(arena, bytes);
}

void *arena_copy(Arena *arena, const void *bytes, size_t size) {
  void *copy = arena_alloc(arena, size);
  if (size) memcpy(copy, bytes, size);
  return copy;
}

char *arena_strndup(Arena *arena, const char *text, size_t length) {
  char *copy = arena_alloc(arena, length + 1);
  if (length) memcpy(copy, text, length);
  return copy;
}

char *arena_strdup(Arena *arena, const char *text) { return arena_strndup(arena, text, strlen(text)); }

/* Formats twice, first to measure. The arguments are consumed by the first pass, hence the copy. An encoding error of
 * vsnprintf gives "". */
char *arena_vprintf(Arena *arena, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  char *text = arena_alloc(arena, length < 0 ? 1 : (size_t)length + 1);
  if (length >= 0) vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

char *arena_printf(Arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = arena_vprintf(arena, format, args);
  va_end(args);
  return text;
}

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

// ---- broken invariants ----

/* 70 is EX_SOFTWARE of sysexits.h, so scripts can tell our faults from the user's (1 to 5). */
_Noreturn void internal_error(const char *file, int line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "tfmc: internal error at %s:%d: ", file, line);
  vfprintf(stderr, format, args);
  fputs("\nThis is a fault of tfmc, not of the model. Please report it with the model that shows it.\n", stderr);
  va_end(args);
  exit(70);
}

// ---- maps ----

/* Folded so that the high bits of the hash reach the mask. The seed differs from process to process, so that a model
 * cannot be written to make all its names collide; the order of entries does not depend on it. */
static uint64_t hash_of(const void *key, size_t length) {
  static const char place;
  static uint64_t seed;
  if (!seed) seed = ((uint64_t)(uintptr_t)&place * 0x9e3779b97f4a7c15u ^ (uint64_t)time(NULL)) | 1;
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
