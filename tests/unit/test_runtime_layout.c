/* Arrays in one block: the same places whether the block is there or only its size is wanted; sizes that are too large. */
#include <criterion/criterion.h>

#include "base/allocate.h"

static int64_t take_three(Layout *layout, void *places[3]) {
  places[0] = layout_take(layout, 3, 4);
  places[1] = layout_take(layout, 0, 8);
  places[2] = layout_take(layout, 5, 16);
  return layout->bytes;
}

Test(runtime_layout, arrays_stand_one_behind_the_other) {
  char block[192];
  void *places[3];
  cr_assert_eq(take_three(&(Layout){0}, places), 192);
  for (int i = 0; i < 3; i++) cr_assert_null(places[i]);
  cr_assert_eq(take_three(&(Layout){.block = block}, places), 192);
  cr_assert_eq(places[0], block);
  cr_assert_eq(places[1], block + 64);
  cr_assert_eq(places[2], block + 64);
}

Test(runtime_layout, what_is_too_large_stays_so) {
  static const int64_t counts[][2] = {{INT64_MAX, 4}, {INT64_MAX / 8, 8}, {(int64_t)1 << 32, (int64_t)1 << 31}};
  for (int i = 0; i < 3; i++) {
    Layout layout = {0};
    layout_take(&layout, counts[i][0], counts[i][1]);
    cr_assert_eq(layout.bytes, -1);
    layout_take(&layout, 1, 1);
    cr_assert_eq(layout.bytes, -1);
  }
}

Test(runtime_layout, a_sum_that_is_too_large_is_refused) {
  Layout layout = {0};
  for (int i = 0; i < 63; i++) layout_take(&layout, INT64_MAX / 64 - 64, 1);
  cr_assert_gt(layout.bytes, 0);
  for (int i = 0; i < 3; i++) layout_take(&layout, INT64_MAX / 64 - 64, 1);
  cr_assert_eq(layout.bytes, -1);
}
