/* Runs of needed rows, against a look at every byte: counts, runs, the n-th needed row, forwards and backwards. */
#include <criterion/criterion.h>
#include <string.h>

#include "steps/live_runs.h"

enum { ROWS = 61, STRIDE = 3 };

static char bytes[ROWS * STRIDE];
static uint32_t seed;

static uint32_t next_random(void) { return (seed = seed * 1664525u + 1013904223u) >> 8; }

/* Of `of` rows about one is true; a true byte need not be 1. */
static LiveRows random_mask(uint32_t of, int64_t stride, bool where) {
  memset(bytes, 0, sizeof bytes);
  for (int64_t row = 0; row < ROWS; row++) bytes[row * stride] = next_random() % of == 0 ? (char)(1 + row % 2) : 0;
  return (LiveRows){.mask = bytes, .stride = stride, .where = where};
}

static bool is_live(const LiveRows *live, int64_t row) {
  return (live->mask[row * live->stride] != 0) == live->where;
}

static int64_t count(const LiveRows *live, int64_t rows) {
  int64_t n = 0;
  for (int64_t row = 0; row < rows; row++) n += is_live(live, row);
  return n;
}

static void check_runs(const LiveRows *live, bool wanted, int64_t begin, int64_t end) {
  int64_t row = begin, first, rows;
  while ((rows = live_run(live, wanted, row, end, &first)) > 0) {
    for (; row < first; row++) cr_assert_neq(is_live(live, row), wanted);
    for (; row < first + rows; row++) cr_assert_eq(is_live(live, row), wanted);
    cr_assert(row == end || is_live(live, row) != wanted, "the run ends too early");
  }
  for (; row < end; row++) cr_assert_neq(is_live(live, row), wanted, "a run is missing");
}

/* All needed rows once and in order, at most `most` at a time. */
static void check_walk(const LiveRows *live, int64_t most) {
  LiveCursor cursor = {0};
  int64_t total = count(live, ROWS), row = 0, first;
  while (cursor.before < total) {
    int64_t rows = live_next(live, &cursor, ROWS, most, &first);
    cr_assert(rows > 0 && rows <= most);
    for (; row < first; row++) cr_assert(!is_live(live, row));
    for (; row < first + rows; row++) cr_assert(is_live(live, row));
    cr_assert_eq(cursor.before, count(live, row));
  }
  cr_assert_eq(count(live, row), total);
}

static void check_seek(const LiveRows *live) {
  LiveCursor cursor = {0};
  int64_t total = count(live, ROWS), first;
  for (int i = 0; i < 20 && total > 0; i++) {
    int64_t number = next_random() % (uint32_t)total;
    live_seek(live, &cursor, ROWS, number);
    cr_assert_eq(live_next(live, &cursor, ROWS, 1, &first), 1);
    cr_assert(is_live(live, first));
    cr_assert_eq(count(live, first), number);
  }
}

Test(runtime_live_rows, runs) {
  for (uint32_t of = 1; of <= 20; of++) {
    for (int where = 0; where < 2; where++) {
      LiveRows needed = random_mask(of, 1 + (int64_t)of % STRIDE, where);
      cr_assert_eq(live_count(&needed, ROWS), count(&needed, ROWS));
      cr_assert_eq(live_count(&needed, 0), 0);
      check_runs(&needed, true, 0, ROWS);
      check_runs(&needed, false, 0, ROWS);
      check_runs(&needed, of % 2, of, ROWS - of);
      for (int64_t most = 1; most < ROWS; most += 7) check_walk(&needed, most);
      check_seek(&needed);
    }
  }
}

/* A mask of all rows is none. With gaps every pattern of true counts; without, it may be taken for a mask. */
Test(runtime_live_rows, masks_that_leave_nothing_out) {
  for (int where = 0; where < 2; where++)
    for (int64_t stride = 1; stride <= STRIDE; stride++)
      for (int64_t row = -1; row < ROWS; row++) {
        memset(bytes, where ? 1 : 0, sizeof bytes);
        if (row >= 0) bytes[row * stride] = !where;
        const LiveRows live = {.mask = bytes, .stride = stride, .where = where};
        for (int64_t rows = 1; rows <= ROWS; rows += 12) {
          LiveRows left = live;
          live_unless_all(&left, rows);
          cr_assert_eq(left.mask == NULL, count(&live, rows) == rows);
        }
      }
  LiveRows none = {0}, uneven = {.mask = bytes, .stride = 1, .where = true};
  live_unless_all(&none, ROWS);
  cr_assert_null(none.mask);
  memset(bytes, 1, sizeof bytes);
  bytes[0] = 2;
  live_unless_all(&uneven, ROWS);
  cr_assert_eq(uneven.mask, bytes);
}
