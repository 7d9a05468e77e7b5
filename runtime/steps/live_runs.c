/* In: the mask of a step. Out: its runs, and which of the rows are a thread's. Once a step, so what is cold here is
 * small rather than fast. See live_runs.h. */
#include "steps/live_runs.h"

#include <string.h>

LiveRows live_rows_of(const tfm_context *context, const Operand *mask, uint32_t number) {
  return number ? live_rows_at(context, number, operand_address(context, mask), 1) : (LiveRows){0};
}

static bool is_live(const LiveRows *live, int64_t row) {
  return (live->mask[row * live->stride] != 0) == live->where;
}

bool live_all(const char *bytes, int64_t stride, int64_t n, bool value) {
  if (stride == 1) return (*bytes != 0) == value && !memcmp(bytes, bytes + 1, (size_t)n - 1);
  for (int64_t i = 0; i < n; i++)
    if ((bytes[i * stride] != 0) != value) return false;
  return true;
}

void live_unless_all(LiveRows *live, int64_t rows) {
  if (live->mask && rows > 0 && live_all(live->mask, live->stride, rows, live->where)) *live = (LiveRows){0};
}

int64_t live_count(const LiveRows *live, int64_t rows) {
  int64_t n = 0;
  for (int64_t row = 0; row < rows; row++) n += live->mask[row * live->stride] != 0;
  return live->where ? n : rows - n;
}

__attribute__((cold)) int64_t live_run(const LiveRows *live, bool wanted, int64_t row, int64_t end, int64_t *first) {
  while (row < end && is_live(live, row) != wanted) row++;
  *first = row;
  while (row < end && is_live(live, row) == wanted) row++;
  return row - *first;
}

/* A run of rows that are not live ends where an item does, if the item's last rows are among them. */
__attribute__((cold)) void live_clear(const LiveRows *live, int64_t row, int64_t end, const ClearJob *job) {
  int64_t first, rows;
  for (; (rows = live_run(live, false, row, end, &first)) > 0; row = first + rows) {
    const int64_t needed = job->item ? (first + rows) / job->item * job->item : first;
    for (int64_t i = greatest_of(first, needed); i < first + rows; i++)
      memset(job->rows + i * job->stride, 0, (size_t)job->bytes);
  }
}

/* The cursor only moves forwards; a number behind it starts again from row 0. */
__attribute__((cold)) void live_seek(const LiveRows *live, LiveCursor *cursor, int64_t rows, int64_t number) {
  if (number < cursor->before) *cursor = (LiveCursor){0};
  while (cursor->before < number) {
    int64_t first;
    live_next(live, cursor, rows, number - cursor->before, &first);
  }
}

int64_t live_next(const LiveRows *live, LiveCursor *cursor, int64_t rows, int64_t most, int64_t *first) {
  int64_t row = cursor->row;
  while (row < rows && !is_live(live, row)) row++;
  *first = row;
  int64_t end = least_of(rows, row + most);
  while (row < end && is_live(live, row)) row++;
  cursor->row = row;
  cursor->before += row - *first;
  return row - *first;
}

__attribute__((cold)) RowShare live_share(const LiveRows *live, int64_t rows, int32_t thread, int32_t threads) {
  const int64_t all = live->mask ? live_count(live, rows) : rows;
  RowShare share = {.first = all * thread / threads, .end = all * (thread + 1) / threads,
                    .row = rows * thread / threads, .end_row = rows * (thread + 1) / threads};
  if (live->mask) live_seek(live, &share.cursor, rows, share.first);
  return share;
}
