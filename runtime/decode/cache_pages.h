/* Pages of caches: a pool of equal blocks of memory with reference counts, lists of pages, and writing into pages.
 *
 * In: lengths of rows, keys and values of new positions. Out: lists of pages, which attention reads
 * (loops/paged_attention.c). Refuses nothing: the caller must not take more pages than are left, which row_caches.c
 * counts before a step. One thread at a time may change a pool; page_write may be called by several threads for
 * different pages. The decoder owns the memory; the pool only hands it out.
 *
 * Rows that go on from the same beginning (beams, forks) have lists that name the same pages; only the last page of a
 * list has room, and who writes to it while others name it gets a copy of it first (page_list_extend):
 *
 *   row 0, 37 tokens   [p0] [p1] [p2: 5 of 16 positions]       references: p0 2, p1 2, p2 1, p3 1
 *   row 1, 35 tokens   [p0] [p1] [p3: 3 of 16 positions]
 *
 * A page has all caches of its kind of list (tfm_cache), one behind the other, and then its tail:
 *
 *   keys            [columns][16]   of each head a panel, which tiles of q kT read where it is
 *   values          [16][columns]   rows, which tiles of weights times v read where they are
 *   keys in INT8    of each head [ceil(h / 4)][16][4] bytes, 16 scales
 *   values in INT8  of each head [4][h, rounded up to 8][4] bytes: four positions together; 16 scales
 *   tail            whether a value was ever infinite or NaN
 *
 * Another form needs a writer as page_write_int8 is, for new positions (loops/append.c) and for sources
 * (source_batch.c), a PageKind in loops/paged_attention.c, its drivers in drivers.def, and the plan's word for it
 * (compiler/plan/caches.c): docs/architecture.md, "A form of caches", has a patch of one.
 *
 * Pages of a source are no pool's: they are filled once, and lists of all rows that read the source are one
 * (source_batch.c). */
#ifndef TFM_RUNTIME_CACHE_PAGES_H
#define TFM_RUNTIME_CACHE_PAGES_H

#include <stdbool.h>

#include "steps/attention_strip.h"

typedef struct PagePool {
  char *memory;
  int64_t memory_bytes, page_bytes; /* page_bytes: a multiple of 64 */
  int64_t n_pages, n_free, n_touched; /* n_touched: pages from here on were not taken since the pool was placed */
  int64_t n_cleared;       /* pages from here on were never taken in this memory; setting `memory` to NULL resets it */
  uint32_t *references;    /* of each page */
  uint32_t *free_pages;    /* the first n_free of them: numbers of pages that were given back */
} PagePool;

/* What follows the numbers of a page. */
typedef struct PageTail {
  _Atomic uint32_t has_infinite; /* an infinite value or NaN was written to the page; never cleared but with the page */
} PageTail;

/* Bytes of a page of `floats` numbers and its tail. */
int64_t cache_page_bytes(int64_t floats);
static inline PageTail *page_tail(float *page, int64_t floats) { return (PageTail *)(page + floats); }

/* Bytes of the arrays of a pool of n pages; page_pool_place puts them at `arrays`. */
int64_t page_pool_array_bytes(int64_t n_pages);
/* Starts a pool in this memory: no page is taken. The memory is not touched. */
void page_pool_place(PagePool *pool, char *memory, int64_t page_bytes, int64_t n_pages, char *arrays);

/* Returns a page with one reference. A page that was never taken before is filled with zeroes, because random memory
 * may hold subnormal numbers, which make tiles slow; any other has its old contents. */
void *page_take(PagePool *pool);
void page_keep(PagePool *pool, const void *page); /* one more reference */
void page_drop(PagePool *pool, const void *page); /* one less */
bool page_is_shared(const PagePool *pool, const void *page);

/* Pages that can be taken. */
static inline int64_t page_pool_left(const PagePool *pool) { return pool->n_free + pool->n_pages - pool->n_touched; }

/* The pages of a row, in order; `pages` has room for all that a row can have. */
typedef struct PageList {
  float **pages;
  int64_t n;
} PageList;

/* `list` becomes a copy of `from` that shares its pages. What was in `list` is not given back. */
void page_list_copy(PagePool *pool, PageList *list, const PageList *from);
/* Keeps the pages of the first `length` positions and gives the others back. */
void page_list_cut(PagePool *pool, PageList *list, int64_t length);
/* Makes the positions from `length` to `wanted` writable: a shared page among them is replaced by a copy. */
void page_list_extend(PagePool *pool, PageList *list, int64_t length, int64_t wanted);
/* How many pages that takes, at most. */
int64_t page_list_needs(const PagePool *pool, const PageList *list, int64_t length, int64_t wanted);

/* Positions of one cache that lie in one page: numbers[n][columns], whose strides are given in bytes. */
typedef struct PageSlice {
  const tfm_cache *cache;
  const tfm_context *context;     /* of the step program */
  float *page;
  int64_t floats;       /* of a page */
  int64_t first, n;     /* positions in the page */
} PageSlice;
/* Writes columns [column, column + columns) of the slice's positions. `source` is the first column at the first
 * position; strides are in bytes. page_write_int8 (drivers.def): the same of a cache of form INT8, where these are
 * whole heads. */
void page_write(const PageSlice *slice, int64_t column, int64_t columns, const char *source, int64_t position_stride,
                int64_t column_stride);

/* Where a column lies in a page; of a cache of form INT8, a head. */
static inline int64_t page_place(const tfm_cache *cache, int64_t number) {
  return cache->offset + number * cache->stride;
}

#endif
