/* Memory for machines without a C library: malloc and what belongs to it, over memory that only grows; and files that
 * are not there.
 *
 * Free regions form a list by rising addresses; the first that fits is taken, its rest stays free, and neighbours
 * become one again. A block has a head before it that says where it began. Out: blocks that are aligned to 16 bytes or
 * as asked for; NULL where the engine gives no more memory. One thread. */
#include "freestanding/freestanding.h"

enum { GRAIN = 16, PAGE = 65536 };

typedef struct Region { /* a free one, of at least GRAIN bytes */
  size_t bytes;
  struct Region *next;
} Region;

typedef struct Head { /* GRAIN bytes before the caller's */
  uintptr_t begin;    /* of the block, with what alignment took */
  size_t bytes;
  uintptr_t mark; /* MARK and the address of the head: a pointer that nobody was given has another */
  uintptr_t unused;
} Head;

enum { MARK = 0x6d66 };

extern char __heap_base[]; /* the end of the data, which the writer of the module knows */

static Region *first;
static uintptr_t heap_end; /* 0: nothing was asked for yet */

static uintptr_t round_to(uintptr_t value, uintptr_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/* Puts a region into the list, and makes one of neighbours. */
static void put_back(uintptr_t begin, size_t bytes) {
  Region **link = &first, *made = (Region *)begin, *before = NULL;
  while (*link && (uintptr_t)*link < begin) {
    before = *link;
    link = &(*link)->next;
  }
  *made = (Region){bytes, *link};
  *link = made;
  if (made->next && begin + bytes == (uintptr_t)made->next) {
    made->bytes += made->next->bytes;
    made->next = made->next->next;
  }
  if (before && (uintptr_t)before + before->bytes == begin) {
    before->bytes += made->bytes;
    before->next = made->next;
  }
}

/* Where a block lies in a region. Both ends are multiples of GRAIN; `end` 0: it does not fit. */
typedef struct Fit {
  uintptr_t payload, end;
} Fit;

static Fit fit(uintptr_t begin, uint64_t bytes, size_t alignment, size_t wanted) {
  const uint64_t payload = ((uint64_t)begin + GRAIN + alignment - 1) / alignment * alignment;
  const uint64_t end = payload + ((uint64_t)wanted + GRAIN - 1) / GRAIN * GRAIN;
  return end <= begin + bytes ? (Fit){(uintptr_t)payload, (uintptr_t)end} : (Fit){0};
}

static void *cut_out(Region **link, Fit place) {
  Region *region = *link;
  uintptr_t begin = (uintptr_t)region;
  const uintptr_t end = begin + region->bytes, head = place.payload - GRAIN;
  *link = region->next;
  if (place.end < end) put_back(place.end, end - place.end);
  if (begin < head) {
    put_back(begin, head - begin);
    begin = head;
  }
  *(Head *)head = (Head){.begin = begin, .bytes = place.end - begin, .mark = MARK ^ head};
  return (void *)place.payload;
}

static void *look(size_t alignment, size_t wanted) {
  for (Region **link = &first; *link; link = &(*link)->next) {
    const Fit place = fit((uintptr_t)*link, (*link)->bytes, alignment, wanted);
    if (place.end) return cut_out(link, place);
  }
  return NULL;
}

/* The last page is never asked for: ends of blocks are addresses too. */
static int grow(uint64_t bytes) {
  const uint64_t pages = (bytes + PAGE - 1) / PAGE;
  if (heap_end / PAGE + pages >= PAGE) return 0;
  if (__builtin_wasm_memory_grow(0, (size_t)pages) == SIZE_MAX) return 0;
  put_back(heap_end, (size_t)(pages * PAGE));
  heap_end += (uintptr_t)(pages * PAGE);
  return 1;
}

static void begin_heap(void) {
  const uintptr_t begin = round_to((uintptr_t)__heap_base, GRAIN);
  heap_end = (uintptr_t)(__builtin_wasm_memory_size(0) * PAGE);
  if (heap_end - begin >= GRAIN) put_back(begin, heap_end - begin);
}

/* Free bytes at the end of memory, which need not be asked for. */
static size_t free_at_end(void) {
  for (const Region *region = first; region; region = region->next)
    if ((uintptr_t)region + region->bytes == heap_end) return region->bytes;
  return 0;
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  if (!heap_end) begin_heap();
  if (alignment < GRAIN) alignment = GRAIN;
  void *found = look(alignment, bytes);
  if (found) return found;
  const uintptr_t begin = heap_end - free_at_end();
  const uint64_t payload = ((uint64_t)begin + GRAIN + alignment - 1) / alignment * alignment;
  const uint64_t end = payload + ((uint64_t)bytes + GRAIN - 1) / GRAIN * GRAIN;
  return grow(end - heap_end) ? look(alignment, bytes) : NULL;
}

void *malloc(size_t bytes) { return aligned_alloc(GRAIN, bytes); }

void *calloc(size_t n, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes)) return NULL;
  void *memory = malloc(bytes);
  return memory ? memset(memory, 0, bytes) : NULL;
}

void free(void *memory) {
  const uintptr_t address = (uintptr_t)memory;
  if (!address || address % GRAIN || address < (uintptr_t)__heap_base + GRAIN || address > heap_end) return;
  Head *head = (Head *)(address - GRAIN);
  if (head->mark != (MARK ^ (uintptr_t)head)) return;
  head->mark = 0;
  put_back(head->begin, head->bytes);
}

// ---- sys/mman.h ----

enum { LINE = 64 };

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  (void)at, (void)protection, (void)flags, (void)offset;
  void *memory = file < 0 ? aligned_alloc(LINE, bytes) : NULL;
  return memory ? memset(memory, 0, bytes) : MAP_FAILED;
}

int munmap(void *memory, size_t bytes) { return (void)bytes, free(memory), 0; }

// ---- files: there are none ----

int errno;
int open(const char *path, int flags, ...) { return (void)path, (void)flags, errno = ENOENT, -1; }
int fstat(int file, struct stat *info) { return (void)file, (void)info, -1; }
int close(int file) { return (void)file, -1; }
ssize_t pread(int file, void *to, size_t n, off_t offset) { return (void)file, (void)to, (void)n, (void)offset, -1; }
char *strerror(int number) { return number == ENOENT ? "there are no files here" : "it cannot be read"; }
