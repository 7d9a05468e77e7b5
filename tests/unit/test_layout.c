/* Layouts: what slices, permutations and reshapes do to strides, and what has none. */
#include <criterion/criterion.h>

#include "plan/layout.h"

static Arena *arena;
static SizeMath math;

static void setup(void) {
  arena = arena_create();
  math = size_math(size_table_new(arena));
}
static void teardown(void) { arena_destroy(arena); }
TestSuite(layout, .init = setup, .fini = teardown);

static const Size *size(const char *text) {
  for (const char *c = text; *c; c++) {
    char name[2] = {*c, 0};
    if (*c >= 'a' && *c <= 'z') size_symbol(math.table, name);
  }
  const Size *result = size_read(math.table, &text);
  cr_assert_not_null(result);
  return result;
}

static uint32_t sizes(const char *text, const Size **into) {
  uint32_t n = 0;
  char part[64];
  while (*text) {
    uint32_t length = 0;
    while (*text && *text != ',') part[length++] = *text++;
    part[length] = 0;
    into[n++] = size(part);
    if (*text) text++;
  }
  return n;
}

static View rows(const char *dims, const char *row) {
  const Size *list[MAX_RANK];
  uint32_t rank = sizes(dims, list);
  return view_rows(&math, DTYPE_F32, rank, list, row ? size(row) : NULL, NULL);
}

static void expect(const View *view, const char *dims, const char *strides) {
  StrBuf got = strbuf_new(arena);
  for (uint32_t i = 0; i < view->rank; i++) {
    if (i) strbuf_add(&got, ",");
    size_print(&got, math.table, view->dims[i]);
  }
  strbuf_add(&got, " / ");
  for (uint32_t i = 0; i < view->rank; i++) {
    if (i) strbuf_add(&got, ",");
    size_print(&got, math.table, view->strides[i]);
  }
  cr_assert_str_eq(got.text, arena_printf(arena, "%s / %s", dims, strides));
}

static bool reshape(const View *view, const char *dims, View *result) {
  const Size *list[MAX_RANK];
  uint32_t rank = sizes(dims, list);
  return view_reshape(&math, view, rank, list, result);
}

Test(layout, rows_with_space_between_them) {
  const Size *dims[3] = {size("b"), size("t"), size("64")}, *elements;
  View view = view_rows(&math, DTYPE_F32, 3, dims, size("80"), &elements);
  expect(&view, "b,t,64", "80*t,80,1");
  cr_assert_eq(elements, size("80*b*t"));
}

Test(layout, axes_of_one_have_no_stride) {
  View view = rows("b,1,t,1", NULL);
  expect(&view, "b,1,t,1", "t,0,1,0");
}

Test(layout, slice_moves_the_offset) {
  View view = rows("b,t,64", NULL);
  const Size *starts[3] = {math.zero, size("t-1"), size("16")}, *dims[3] = {size("b"), size("1"), size("16")};
  View part = view_slice(&math, &view, starts, dims);
  expect(&part, "b,1,16", "64*t,0,1");
  cr_assert_eq(part.offset, size("64*t-48"));
}

Test(layout, unpermute_is_the_inverse) {
  View view = rows("b,t,4,16", NULL);
  const uint8_t axes[] = {0, 2, 3, 1};
  View permuted = view_permute(&view, axes), back = view_unpermute(&permuted, axes);
  expect(&permuted, "b,4,16,t", "64*t,16,1,64");
  cr_assert(view_equal(&view, &back));
}

Test(layout, split_heads_of_padded_rows) {
  View view = rows("b,t,64", "80"), split;
  cr_assert(reshape(&view, "b,t,4,16", &split));
  expect(&split, "b,t,4,16", "80*t,80,16,1");
  cr_assert(reshape(&split, "b,t,64", &view));
  expect(&view, "b,t,64", "80*t,80,1");
}

Test(layout, padded_rows_do_not_merge_with_columns) {
  View view = rows("b,t,64", "80"), merged;
  cr_assert_not(reshape(&view, "b,64*t", &merged));
  cr_assert(reshape(&view, "b*t,64", &merged));
  expect(&merged, "b*t,64", "80,1");
}

Test(layout, sums_of_sizes_stay_whole) {
  View view = rows("b,t+1,64", NULL), split;
  cr_assert(reshape(&view, "b,t+1,4,16", &split));
  expect(&split, "b,t + 1,4,16", "64*t + 64,64,16,1");
  cr_assert(reshape(&view, "b*t+b,64", &split));
  expect(&split, "b*t + b,64", "64,1");
}

Test(layout, pieces_match_across_several_axes) {
  View view = rows("6,b,4", NULL), other;
  cr_assert(reshape(&view, "2,3,b,2,2", &other));
  expect(&other, "2,3,b,2,2", "12*b,4*b,4,2,1");
  cr_assert(reshape(&view, "6*b,4", &other));
  cr_assert(reshape(&view, "1,6,1,b,4,1", &other));
  expect(&other, "1,6,1,b,4,1", "0,4*b,0,4,1,0");
}

Test(layout, permuted_axes_do_not_merge) {
  View view = rows("b,t,4,16", NULL), merged;
  View permuted = view_permute(&view, (const uint8_t[]){0, 2, 1, 3});
  cr_assert_not(reshape(&permuted, "b,4*t,16", &merged));
  cr_assert(reshape(&permuted, "b,2,2,t,16", &merged));
  expect(&merged, "b,2,2,t,16", "64*t,32,16,64,1");
}

Test(layout, nothing_reshapes_to_nothing) {
  View view = rows("b,0,4", NULL), other;
  cr_assert(reshape(&view, "0,7", &other));
  cr_assert(reshape(&view, "4,0,b", &other));
}

Test(layout, ranks_of_zero) {
  View view = rows("", NULL), other;
  cr_assert(reshape(&view, "1,1", &other));
  expect(&other, "1,1", "0,0");
  cr_assert(reshape(&other, "", &view));
  cr_assert_eq(view.rank, 0);
}

Test(layout, collapse) {
  const Size *n, *stride;
  View view = rows("b,t,64", "80");
  cr_assert(view_collapse(&math, &view, &n, &stride));
  cr_assert(n == size("b*t") && stride == size("80"));
  View permuted = view_permute(&view, (const uint8_t[]){1, 0, 2});
  cr_assert_not(view_collapse(&math, &permuted, &n, &stride));
  const Size *starts[3] = {math.zero, math.zero, math.zero}, *dims[3] = {size("b"), size("1"), size("64")};
  View first = view_slice(&math, &view, starts, dims);
  cr_assert(view_collapse(&math, &first, &n, &stride));
  cr_assert(n == size("b") && stride == size("80*t"));
}

Test(layout, overflow_is_remembered) {
  const Size *big = size("4611686018427387904*b");
  math_mul(&math, big, math_const(&math, 4));
  cr_assert(math.overflowed);
}
