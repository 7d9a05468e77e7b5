/* Sizes: polynomials of run-time sizes, interned; their arithmetic, values and text. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "graph/size.h"

static Arena *arena;
static SizeTable *table;

static void setup(void) {
  arena = arena_create();
  table = size_table_new(arena);
  size_symbol(table, "batch");
  size_symbol(table, "time");
}
static void teardown(void) { arena_destroy(arena); }
TestSuite(size, .init = setup, .fini = teardown);

static const char *text_of(const Size *size) {
  StrBuf out = strbuf_new(arena);
  size_print(&out, table, size);
  return out.text;
}

static const Size *read(const char *text) { return size_read(table, &text); }

Test(size, equal_polynomials_are_one_pointer) {
  const Size *b = size_symbol(table, "batch"), *t = size_symbol(table, "time");
  const Size *x = size_mul(table, size_add(table, b, size_const(table, 1)), t);
  const Size *y = size_add(table, t, size_mul(table, t, b));
  cr_assert_eq(x, y);
  cr_assert_str_eq(text_of(x), "batch*time + time");
  cr_assert_eq(size_sub(table, x, y), size_const(table, 0));
  cr_assert_str_eq(text_of(size_const(table, 0)), "0");
}

Test(size, a_size_that_is_a_symbol_and_nothing_more) {
  cr_assert_eq(size_symbol_of(read("batch")), 0);
  cr_assert_eq(size_symbol_of(read("time")), 1);
  static const char *const others[] = {"0", "1", "2*time", "-1*time", "time + 1", "batch*time", "time*time"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) cr_assert_eq(size_symbol_of(read(others[i])), -1, "%s", others[i]);
}

Test(size, division_must_come_out_even) {
  const Size *x = read("6*batch*time - 4*time");
  cr_assert_str_eq(text_of(size_div(table, x, read("2*time"))), "3*batch - 2");
  cr_assert_null(size_div(table, x, read("4*time")));
  cr_assert_null(size_div(table, x, read("batch")));
  cr_assert_null(size_div(table, x, read("batch + 1")));
  cr_assert_null(size_div(table, x, read("0")));
  const Size *product = size_mul(table, x, read("batch - 1"));
  cr_assert_eq(size_div(table, product, read("batch - 1")), x);
  cr_assert_eq(size_div(table, product, x), read("batch - 1"));
  cr_assert_null(size_div(table, size_add(table, product, read("1")), read("batch - 1")));
  cr_assert_eq(size_div(table, read("0"), read("time")), read("0"));
  cr_assert_null(size_div(table, size_const(table, INT64_MIN), size_const(table, -1)));
  cr_assert_eq(size_div(table, read("5*time"), read("-1")), read("-5*time"));
}

Test(size, values_and_overflow) {
  int64_t symbols[] = {3, 5}, value;
  cr_assert(size_value(read("2*batch*time + 1"), symbols, &value));
  cr_assert_eq(value, 31);
  int64_t large[] = {INT64_MAX, 2};
  cr_assert_not(size_value(read("batch*time"), large, &value));
  cr_assert_null(size_add(table, size_const(table, INT64_MAX), size_const(table, 1)));
  cr_assert_null(size_mul(table, size_const(table, INT64_MAX), size_const(table, 2)));
  cr_assert_null(read("time*time*time*time*time*time*time*time*time"));
  cr_assert_null(read("9223372036854775808"));
  cr_assert(size_equals(read("-9223372036854775808"), INT64_MIN));
}

Test(size, text_is_read_back) {
  const char *texts[] = {"2*batch*time + 1", "-time", "batch*batch - 3*time - 7", "0", "-9223372036854775808", "batch"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const char *rest = texts[i];
    const Size *size = size_read(table, &rest);
    cr_assert_not_null(size, "%s", texts[i]);
    cr_assert_str_eq(text_of(size), texts[i]);
    cr_assert_str_eq(rest, "");
  }
  cr_assert_null(read("unknown"));
  cr_assert_null(read("time +"));
  cr_assert_null(read("* 3"));
  const char *rest = "time, 4]";
  cr_assert_eq(size_read(table, &rest), size_symbol(table, "time"));
  cr_assert_str_eq(rest, ", 4]");
}

Test(size, questions) {
  cr_assert(size_involves(read("batch*time"), 1));
  cr_assert_not(size_involves(read("batch"), 1));
  cr_assert(size_may_equal(table, read("batch"), read("time")));
  cr_assert(size_may_equal(table, read("time"), read("5")));
  cr_assert_not(size_may_equal(table, read("time + 1"), read("time")));
  cr_assert_not(size_is_const(read("time"), NULL));
}

Test(size, a_number_in_place_of_a_symbol) {
  const Size *x = read("3*batch*batch*time - batch + 2*time + 5");
  cr_assert_eq(size_with(table, x, 0, 1), read("5*time + 4"));
  cr_assert_eq(size_with(table, x, 0, 2), read("14*time + 3"));
  cr_assert_eq(size_with(table, x, 1, 0), read("5 - batch"));
  cr_assert_eq(size_with(table, size_const(table, 7), 1, 0), size_const(table, 7));
  cr_assert_null(size_with(table, x, 0, INT64_MAX));
}

Test(size, there_are_limits) {
  char name[16];
  for (int i = 0; i < SIZE_MAX_SYMBOLS - 2; i++) {
    snprintf(name, sizeof name, "s%d", i);
    cr_assert_not_null(size_symbol(table, name));
  }
  cr_assert_null(size_symbol(table, "one_more"));
  cr_assert_not_null(size_symbol(table, "s7"));
  const Size *sum = size_const(table, 1), *product = sum;
  for (int i = 0; i < 3; i++) sum = size_add(table, sum, size_symbol(table, name)), product = sum;
  for (uint32_t i = 0; i < SIZE_MAX_SYMBOLS && sum; i++) sum = size_add(table, sum, size_symbol(table, table->symbols[i]));
  for (int i = 0; i < 4 && product; i++) product = size_mul(table, sum, product);
  cr_assert_null(product, "more than %d terms", SIZE_MAX_TERMS);
}
