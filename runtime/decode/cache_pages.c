/* The pages that hold cached keys and values: a pool that counts references, the lists of rows, and writing new
 * positions, in f32 or rounded to 8 bits, each position and head by itself. See cache_pages.h. */
#include "decode/cache_pages.h"

#include <string.h>

#include "steps/attention_int8.h"
#include "tfm/abi/pages.h"

// ---- the pool ----

_Static_assert(sizeof(PageTail) == sizeof(uint32_t), "the word behind a page's numbers");

int64_t cache_page_bytes(int64_t floats) { return tfm_page_bytes(floats); }

/* Two arrays of n_pages numbers: reference counts and free pages. */
int64_t page_pool_array_bytes(int64_t n_pages) { return 2 * round_up(n_pages * (int64_t)sizeof(uint32_t), ALIGNMENT); }

/* Pages that were cleared in the same memory stay cleared, so a new batch in it touches nothing again. */
void page_pool_place(PagePool *pool, char *memory, int64_t page_bytes, int64_t n_pages, char *arrays) {
  if (pool->memory != memory || pool->page_bytes != page_bytes) pool->n_cleared = 0;
  pool->memory = memory;
  pool->page_bytes = page_bytes;
  pool->n_pages = n_pages;
  pool->n_free = pool->n_touched = 0;
  pool->references = (uint32_t *)arrays;
  pool->free_pages = (uint32_t *)(arrays + page_pool_array_bytes(n_pages) / 2);
}

static uint32_t page_number(const PagePool *pool, const void *page) {
  return (uint32_t)(((const char *)page - pool->memory) / pool->page_bytes);
}

/* Pages that were given back come first: their memory is there already. */
void *page_take(PagePool *pool) {
  bool fresh = pool->n_free == 0;
  uint32_t number = fresh ? (uint32_t)pool->n_touched++ : pool->free_pages[--pool->n_free];
  char *page = pool->memory + number * pool->page_bytes;
  if (number >= pool->n_cleared) {
    memset(page, 0, (size_t)pool->page_bytes);
    pool->n_cleared = (int64_t)number + 1;
  }
  pool->references[number] = 1;
  return page;
}

void page_keep(PagePool *pool, const void *page) { pool->references[page_number(pool, page)]++; }

void page_drop(PagePool *pool, const void *page) {
  uint32_t number = page_number(pool, page);
  if (--pool->references[number] == 0) pool->free_pages[pool->n_free++] = number;
}

bool page_is_shared(const PagePool *pool, const void *page) { return pool->references[page_number(pool, page)] > 1; }

// ---- lists ----

void page_list_copy(PagePool *pool, PageList *list, const PageList *from) {
  list->n = from->n;
  for (int64_t i = 0; i < from->n; i++) {
    list->pages[i] = from->pages[i];
    page_keep(pool, from->pages[i]);
  }
}

void page_list_cut(PagePool *pool, PageList *list, int64_t length) {
  int64_t n = ceil_div(length, TFM_CACHE_PAGE);
  while (list->n > n) page_drop(pool, list->pages[--list->n]);
}

/* Only the last page of a list can be shared and still have room: pages before it are full and never written again. */
void page_list_extend(PagePool *pool, PageList *list, int64_t length, int64_t wanted) {
  int64_t last = length / TFM_CACHE_PAGE;
  if (wanted > length && last < list->n && page_is_shared(pool, list->pages[last])) {
    float *shared = list->pages[last];
    page_drop(pool, shared);
    list->pages[last] = page_take(pool); /* another one: `shared` is still referred to */
    memcpy(list->pages[last], shared, (size_t)pool->page_bytes);
  }
  for (int64_t n = ceil_div(wanted, TFM_CACHE_PAGE); list->n < n;) list->pages[list->n++] = page_take(pool);
}

int64_t page_list_needs(const PagePool *pool, const PageList *list, int64_t length, int64_t wanted) {
  const int64_t last = length / TFM_CACHE_PAGE;
  const bool copies = wanted > length && last < list->n && page_is_shared(pool, list->pages[last]);
  return copies + greatest_of(0, ceil_div(wanted, TFM_CACHE_PAGE) - list->n);
}

// ---- writing ----

/* The exponent has all bits set: infinite or NaN. */
static bool is_infinite(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits & 0x7f800000) == 0x7f800000;
}

static float read_float(const char *source) {
  float x;
  memcpy(&x, source, sizeof x);
  return x;
}

/* Keys are stored [columns][TFM_CACHE_PAGE], so each column is on a cache line of its own; fetching all lines first
 * hides the time that memory takes. */
static void write_keys(const PageSlice *slice, int64_t column, int64_t columns, const char *source,
                       int64_t position_stride, int64_t column_stride) {
  float *target = slice->page + slice->cache->offset + column * TFM_CACHE_PAGE + slice->first;
  for (int64_t i = 0; i < columns; i++) __builtin_prefetch(target + i * TFM_CACHE_PAGE, 1); /* a line for each */
  for (int64_t i = 0; i < columns; i++, target += TFM_CACHE_PAGE, source += column_stride)
    for (int64_t position = 0; position < slice->n; position++)
      target[position] = read_float(source + position * position_stride);
}

/* Values are stored [TFM_CACHE_PAGE][columns]. Several threads may mark one page, always with the same value. */
static void write_values(const PageSlice *slice, int64_t column, int64_t columns, const char *source,
                         int64_t position_stride, int64_t column_stride) {
  float *target = slice->page + slice->cache->offset + slice->first * slice->cache->columns + column;
  bool infinite = false;
  for (int64_t position = 0; position < slice->n; position++) {
    if (column_stride == sizeof(float))
      memcpy(target, source, (size_t)columns * sizeof(float));
    else
      for (int64_t i = 0; i < columns; i++) target[i] = read_float(source + i * column_stride);
    for (int64_t i = 0; i < columns; i++) infinite |= is_infinite(target[i]);
    target += slice->cache->columns;
    source += position_stride;
  }
  if (infinite) atomic_store_explicit(&page_tail(slice->page, slice->floats)->has_infinite, 1, memory_order_relaxed);
}

void page_write(const PageSlice *slice, int64_t column, int64_t columns, const char *source, int64_t position_stride,
                int64_t column_stride) {
  (slice->cache->kind == TFM_CACHE_KEYS ? write_keys : write_values)(slice, column, columns, source, position_stride,
                                                                      column_stride);
}

// ---- writing 8 bits ----

enum { FOUR = 4 }; /* positions whose bytes lie together in a page of values, and that turn together in one of keys */

/* Rows of bytes of a head at up to four positions. */
typedef struct WholeRows {
  _Alignas(ALIGNMENT) float floats[FOUR * (TFM_ROW_HEAD + TFM_WHOLE_HEAD / FOUR + 16)];
  _Alignas(ALIGNMENT) float work[TFM_WHOLE_HEAD];
  const char *bytes[FOUR];
  float scales[FOUR];
} WholeRows;

/* Columns that are no neighbours are put together first. */
static void round_positions(const PageSlice *slice, const char *source, int64_t n, int64_t position_stride,
                            int64_t column_stride, WholeRows *rows) {
  const int64_t head = slice->cache->head, stride = tfm_whole_row_floats(1, head);
  float together[FOUR * TFM_WHOLE_HEAD];
  if (column_stride != sizeof(float)) {
    for (int64_t i = 0; i < n * head; i++)
      together[i] = read_float(source + i / head * position_stride + i % head * column_stride);
    source = (const char *)together;
    position_stride = head * (int64_t)sizeof(float);
  }
  KERNEL_OF(tfm_quantize_kernel, slice->context, slice->cache->round)
  ((const float *)(const void *)source, position_stride, n, rows->work, rows->floats + TFM_ROW_HEAD,
   stride * (int64_t)sizeof(float));
  for (int64_t i = 0; i < FOUR; i++) { /* rows that do not exist are of no use, but they can be read */
    const float *row = rows->floats + (i < n ? i : 0) * stride + TFM_ROW_HEAD;
    rows->bytes[i] = (const char *)row;
    rows->scales[i] = row[ceil_div(head, FOUR)];
  }
}

/* Bytes of a position stand in a column of the panel, four of the head together. */
static void put_keys(const PageSlice *slice, const WholeRows *rows, int64_t position, int64_t n, float *to) {
  const int64_t fours = ceil_div(slice->cache->head, FOUR);
  float *scales = to + fours * TFM_CACHE_PAGE + position;
  to += position;
  if (n == FOUR) int8_put_keys(rows->bytes, fours, TFM_CACHE_PAGE, to);
  for (int64_t k = 0; k < n; k++) {
    scales[k] = rows->scales[k];
    for (int64_t i = 0; n < FOUR && i < fours; i++) {
      uint32_t numbers;
      memcpy(&numbers, rows->bytes[k] + i * FOUR, sizeof numbers);
      numbers ^= 0x80808080u; /* + 128 */
      memcpy(to + i * TFM_CACHE_PAGE + k, &numbers, sizeof numbers);
    }
  }
}

/* Bytes of four positions stand together, column by column. */
static void put_values(const PageSlice *slice, const WholeRows *rows, int64_t position, int64_t n, float *to) {
  const int64_t head = slice->cache->head, columns = tfm_value_columns(head);
  char *bytes = (char *)(to + position / FOUR * columns) + position % FOUR;
  if (n == FOUR) int8_interleave(rows->bytes, columns, bytes);
  for (int64_t k = 0; k < n; k++) {
    to[TFM_CACHE_PAGE / FOUR * columns + position + k] = rows->scales[k];
    for (int64_t i = 0; n < FOUR && i < head; i++) bytes[i * FOUR + k] = rows->bytes[k][i];
  }
}

/* Head by head, the positions of a four at once. */
void page_write_int8(const PageSlice *slice, int64_t column, int64_t columns, const char *source,
                     int64_t position_stride, int64_t column_stride) {
  const bool is_keys = slice->cache->kind == TFM_CACHE_KEYS;
  WholeRows rows;
  for (int64_t head = 0; head < columns; head += slice->cache->head) {
    float *to = slice->page + page_place(slice->cache, (column + head) / slice->cache->head);
    for (int64_t i = 0, n; i < slice->n; i += n) {
      const int64_t position = slice->first + i;
      n = least_of(slice->n - i, FOUR - position % FOUR);
      round_positions(slice, source + head * column_stride + i * position_stride, n, position_stride, column_stride,
                      &rows);
      (is_keys ? put_keys : put_values)(slice, &rows, position, n, to);
    }
  }
}
