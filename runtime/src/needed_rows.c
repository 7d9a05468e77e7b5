/* Runs of rows that are needed, read from the bytes of a mask. */
#include "needed_rows.h"

#include <string.h>

NeededRows needed_rows_of(const tfm_context *context, const Operand *mask, uint32_t number) {
  if (!number) return (NeededRows){0};
  const tfm_needed_rows *info = &context->program->needed[number - 1];
  return (NeededRows){.mask = operand_address(context, mask),
                      .stride = 1,
                      .where = info->where,
                      .zeroed = info->zeroed};
}

static bool is_needed(const NeededRows *needed, int64_t row) {
  return (needed->mask[row * needed->stride] != 0) == needed->where;
}

int64_t needed_count(const NeededRows *needed, int64_t rows) {
  int64_t n = 0;
  for (int64_t row = 0; row < rows; row++) n += needed->mask[row * needed->stride] != 0;
  return needed->where ? n : rows - n;
}

int64_t needed_run(const NeededRows *needed, bool wanted, int64_t row, int64_t end, int64_t *first) {
  while (row < end && is_needed(needed, row) != wanted) row++;
  *first = row;
  while (row < end && is_needed(needed, row) == wanted) row++;
  return row - *first;
}

void needed_seek(const NeededRows *needed, NeededCursor *cursor, int64_t rows, int64_t number) {
  if (number < cursor->before) *cursor = (NeededCursor){0};
  while (cursor->before < number) {
    int64_t first;
    needed_next(needed, cursor, rows, number - cursor->before, &first);
  }
}

int64_t needed_next(const NeededRows *needed, NeededCursor *cursor, int64_t rows, int64_t most, int64_t *first) {
  int64_t row = cursor->row;
  while (row < rows && !is_needed(needed, row)) row++;
  *first = row;
  int64_t end = least_of(rows, row + most);
  while (row < end && is_needed(needed, row)) row++;
  cursor->row = row;
  cursor->before += row - *first;
  return row - *first;
}
