/* Pages of caches: what is taken, shared and given back; the layouts of keys and values. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode/cache_pages.h"

enum { PAGES = 6, FLOATS = 3 * TFM_CACHE_PAGE * 2 + 16 };

typedef struct Room {
  PagePool pool;
  char *memory, *arrays;
} Room;

static Room room_new(void) {
  Room room = {.memory = aligned_alloc(64, (size_t)(PAGES * cache_page_bytes(FLOATS))),
               .arrays = aligned_alloc(64, (size_t)page_pool_array_bytes(PAGES))};
  memset(room.memory, 0x7f, (size_t)(PAGES * cache_page_bytes(FLOATS)));
  page_pool_place(&room.pool, room.memory, cache_page_bytes(FLOATS), PAGES, room.arrays);
  return room;
}

static void room_free(Room *room) {
  free(room->memory);
  free(room->arrays);
}

static int64_t in_use(const PagePool *pool) { return pool->n_touched - pool->n_free; }

Test(runtime_cache_pages, taken_and_given_back) {
  Room room = room_new();
  void *pages[PAGES];
  for (int i = 0; i < PAGES; i++) {
    pages[i] = page_take(&room.pool);
    cr_expect_eq((uintptr_t)pages[i] % 64, 0);
    for (int k = 0; k < FLOATS; k++) cr_expect_eq(((float *)pages[i])[k], 0, "a page is zero when it is taken for the first time");
    for (int k = 0; k < i; k++) cr_expect_neq(pages[i], pages[k]);
  }
  cr_expect_eq(in_use(&room.pool), PAGES);
  page_keep(&room.pool, pages[2]);
  cr_expect(page_is_shared(&room.pool, pages[2]));
  page_drop(&room.pool, pages[2]);
  cr_expect_not(page_is_shared(&room.pool, pages[2]));
  cr_expect_eq(in_use(&room.pool), PAGES);
  page_drop(&room.pool, pages[2]);
  cr_expect_eq(in_use(&room.pool), PAGES - 1);
  cr_expect_eq(page_take(&room.pool), pages[2]);
  room_free(&room);
}

Test(runtime_cache_pages, lists_share_and_copy_what_they_write) {
  Room room = room_new();
  float *first_pages[3], *second_pages[3];
  PageList first = {first_pages, 0}, second = {second_pages, 0};
  page_list_extend(&room.pool, &first, 0, 20);
  cr_expect_eq(first.n, 2);
  first.pages[1][5] = 7;
  page_list_copy(&room.pool, &second, &first);
  cr_expect_eq(in_use(&room.pool), 2);
  page_list_extend(&room.pool, &second, 20, 20);
  cr_expect_eq(second.pages[1], first.pages[1], "nothing is to be written");
  page_list_extend(&room.pool, &second, 20, 21);
  cr_expect_eq(second.pages[0], first.pages[0]);
  cr_expect_neq(second.pages[1], first.pages[1]);
  cr_expect_eq(second.pages[1][5], 7);
  float *own = first.pages[1];
  page_list_extend(&room.pool, &first, 20, 33);
  cr_expect_eq(first.pages[1], own, "nobody else has it any more");
  cr_expect_eq(first.n, 3);
  cr_expect_eq(in_use(&room.pool), 4);
  page_list_cut(&room.pool, &first, 16);
  cr_expect_eq(first.n, 1);
  page_list_cut(&room.pool, &first, 0);
  cr_expect_eq(in_use(&room.pool), 2);
  page_list_extend(&room.pool, &second, 32, 33);
  cr_expect_eq(second.n, 3);
  page_list_cut(&room.pool, &second, 0);
  cr_expect_eq(in_use(&room.pool), 0);
  room_free(&room);
}

/* Numbers x[position][column] with any strides end up where tiles look for them. */
Test(runtime_cache_pages, layouts_of_keys_and_values) {
  enum { COLUMNS = 3, POSITIONS = 5, AT = 9 };
  Room room = room_new();
  const tfm_cache keys = {
      .kind = TFM_CACHE_KEYS, .columns = COLUMNS, .head = 1, .round = TFM_NONE, .stride = TFM_CACHE_PAGE};
  const tfm_cache values = {.kind = TFM_CACHE_VALUES,
                            .number = 1,
                            .columns = COLUMNS,
                            .head = 1,
                            .round = TFM_NONE,
                            .stride = 1,
                            .offset = COLUMNS * TFM_CACHE_PAGE};
  float *page = page_take(&room.pool), numbers[POSITIONS * COLUMNS * 2];
  for (int i = 0; i < POSITIONS * COLUMNS * 2; i++) numbers[i] = (float)i + 1;
  for (int swapped = 0; swapped < 2; swapped++) {
    int64_t position_stride = swapped ? 4 : COLUMNS * 4, column_stride = swapped ? POSITIONS * 4 : 4;
    PageSlice slice = {&keys, NULL, page, FLOATS, AT, POSITIONS};
    page_write(&slice, 0, 2, (const char *)numbers, position_stride, column_stride);
    page_write(&slice, 2, 1, (const char *)numbers + 2 * column_stride, position_stride, column_stride);
    slice.cache = &values;
    page_write(&slice, 0, COLUMNS, (const char *)numbers, position_stride, column_stride);
    for (int p = 0; p < POSITIONS; p++)
      for (int c = 0; c < COLUMNS; c++) {
        float expected = numbers[(p * position_stride + c * column_stride) / 4];
        cr_expect_eq(page[c * TFM_CACHE_PAGE + AT + p], expected);
        cr_expect_eq(page[(COLUMNS + 0) * TFM_CACHE_PAGE + (AT + p) * COLUMNS + c], expected);
      }
    cr_expect_eq(page[AT - 1], 0);
    cr_expect_eq(page[AT + POSITIONS], 0);
  }
  PageTail *tail = page_tail(page, FLOATS);
  cr_expect_eq(tail->has_infinite, 0);
  numbers[3] = INFINITY;
  PageSlice slice = {&keys, NULL, page, FLOATS, 0, 2};
  page_write(&slice, 0, COLUMNS, (const char *)numbers, COLUMNS * 4, 4);
  cr_expect_eq(tail->has_infinite, 0, "of keys it doesn't matter");
  slice.cache = &values;
  page_write(&slice, 0, COLUMNS, (const char *)numbers, COLUMNS * 4, 4);
  cr_expect_eq(tail->has_infinite, 1);
  room_free(&room);
}

/* Stands for the kernel: numbers that are whole already, and a scale that says which row it was. */
enum { HEAD = 6 };
static void as_bytes(const float *x, int64_t x_stride, int64_t rows, float *work, void *numbers, int64_t stride) {
  (void)work;
  for (int64_t row = 0; row < rows; row++) {
    const float *from = (const float *)((const char *)x + row * x_stride);
    int8_t *to = (int8_t *)numbers + row * stride;
    memset(to, 0, 8);
    for (int i = 0; i < HEAD; i++) to[i] = (int8_t)from[i];
    memcpy(to + 8, from, sizeof *from);
  }
}

/* Bytes of heads, with any strides and from any position on, end up where tiles look for them, and nothing else does.
 */
Test(runtime_cache_pages, layouts_in_8_bits) {
  enum { HEADS = 3, COLUMNS = HEADS * HEAD, MOST = 9 };
  Room room = room_new();
  tfm_context context = {0};
  void *kernels[] = {((union {
                       tfm_quantize_kernel function;
                       void *object;
                     }){as_bytes})
                         .object};
  const tfm_program program = {.kernels = kernels};
  context.program = &program;
  float numbers[MOST * COLUMNS], page[2 * HEADS * (16 + 16 + 16 + 16)];
  for (int i = 0; i < MOST * COLUMNS; i++) numbers[i] = (float)(i % 251 - 125);
  for (int at = 0; at < 7; at++)
    for (int n = 1; n <= MOST; n++)
      for (int swapped = 0; swapped < 2; swapped++) {
        const int64_t of_position = swapped ? 4 : COLUMNS * 4, of_column = swapped ? MOST * 4 : 4;
        tfm_cache cache = {.kind = TFM_CACHE_KEYS, .columns = COLUMNS, .head = HEAD, .stride = 3 * 16};
        const int64_t key_floats = tfm_head_floats(TFM_FORM_INT8, 1, HEAD),
                      value_floats = tfm_head_floats(TFM_FORM_INT8, 0, HEAD);
        cr_assert_eq(key_floats, 3 * 16);
        cr_assert_eq(value_floats, 3 * 16);
        const PageSlice slice = {&cache, &context, page, HEADS * (key_floats + value_floats), at, n};
        memset(page, 0, sizeof page);
        page_write_int8(&slice, 0, HEAD, (const char *)numbers, of_position, of_column);
        page_write_int8(&slice, HEAD, 2 * HEAD, (const char *)numbers + HEAD * of_column, of_position, of_column);
        cache.kind = TFM_CACHE_VALUES;
        cache.offset = HEADS * key_floats;
        page_write_int8(&slice, 0, COLUMNS, (const char *)numbers, of_position, of_column);
        for (int head = 0; head < HEADS; head++)
          for (int p = 0; p < TFM_CACHE_PAGE; p++) {
            const bool written = p >= at && p < at + n;
            const float *keys = page + head * key_floats, *values = page + cache.offset + head * value_floats;
            const float *x = (const float *)((const char *)numbers + (p - at) * of_position + head * HEAD * of_column);
            cr_expect_eq(keys[2 * 16 + p], written ? *x : 0);
            cr_expect_eq(values[2 * 16 + p], written ? *x : 0);
            for (int c = 0; c < 8; c++) {
              const int expected = written && c < HEAD ? (int)*(const float *)((const char *)x + c * of_column) : 0;
              const uint8_t key = ((const uint8_t *)keys)[c / 4 * 64 + p * 4 + c % 4];
              cr_expect_eq(key, written ? expected + 128 : 0, "key %d of %d from %d, column %d", p, n, at, c);
              if (c >= HEAD) continue;
              const int value = ((const int8_t *)values)[p / 4 * 32 + c * 4 + p % 4];
              cr_expect_eq(value, expected, "value %d of %d from %d, column %d", p, n, at, c);
            }
          }
      }
  room_free(&room);
}
