/* Memory of the compiler, and the two ways in which the process ends by itself.
 *
 * In: sizes. Out: zeroed memory that lives as long as its arena. Chunks double from FIRST_CHUNK to LARGEST_CHUNK, so
 * a small model costs one malloc and a large one few. Nothing is freed singly. Running out of memory ends the process
 * with exit code 4, a failed CHECK with 70; nothing else below the command line ends it. */
#define _DEFAULT_SOURCE /* madvise */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

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
