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

static const char *floor_text(const char *text, int64_t divisor) {
  const Size *size = size_floor_div(table, read(text), divisor);
  return size ? text_of(size) : "none";
}

Test(size, rounded_down_in_a_normal_form) {
  cr_assert_str_eq(floor_text("2*time + 1", 2), "time");
  cr_assert_str_eq(floor_text("time", 1), "time");
  cr_assert_str_eq(floor_text("7", 2), "3");
  cr_assert_str_eq(floor_text("-7", 2), "-4");
  cr_assert_str_eq(floor_text("time", 2), "time//2");
  cr_assert_str_eq(floor_text("time + 5", 2), "(time + 1)//2 + 2");
  cr_assert_str_eq(floor_text("7*time - 1", 3), "2*time + (time + 2)//3 - 1");
  cr_assert_str_eq(floor_text("-time", 2), "-time + time//2");
  cr_assert_str_eq(floor_text("6*batch*time + 4*time + 3", 8), "(3*batch*time + 2*time + 1)//4");
  cr_assert_str_eq(floor_text("4*time + 3", 6), "(2*time + 1)//3");
  cr_assert_str_eq(floor_text("4*time + 1", 6), "(2*time)//3");
  cr_assert_str_eq(floor_text("-9223372036854775808*time", 3), "-3074457345618258603*time + time//3");
}

Test(size, rounded_down_twice_is_rounded_down_once) {
  cr_assert_str_eq(floor_text("time//2 + 1", 2), "(time + 2)//4");
  cr_assert_str_eq(floor_text("(time + 1)//2", 3), "(time + 1)//6");
  cr_assert_str_eq(floor_text("time//2 + 7", 2), "(time + 2)//4 + 3");
  cr_assert_str_eq(floor_text("3*(time//2) + 7", 2), "time//2 + (time + 2)//4 + 3");
  cr_assert_str_eq(floor_text("5*(time//2) + 7", 3), "time//2 + (2*(time//2) + 1)//3 + 2");
  cr_assert_str_eq(floor_text("time//2 + batch", 3), "(batch + time//2)//3");
  cr_assert_eq(size_floor_div(table, read("time//2 + 1"), 2), read("(time + 2)//4"));
  cr_assert_eq(size_mul(table, size_const(table, 4), read("time//2//2")), read("4*(time//4)"));
  cr_assert_neq(size_mul(table, size_const(table, 2), read("time//2")), read("time"));
}

/* The normal form may be another polynomial, but never another number. */
Test(size, rounding_agrees_with_numbers) {
  const char *texts[] = {"time",
                         "time//2",
                         "3*time - 7",
                         "time//2 + 1",
                         "2*(time//3) + 5*batch - 9",
                         "batch*(time//2)",
                         "-3*time + 4*(batch//2)",
                         "(2*(time//3) + batch)//2 + 3*batch",
                         "time*time - batch*time - 1"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const Size *size = read(texts[i]);
    cr_assert_not_null(size, "%s", texts[i]);
    for (int64_t divisor = 1; divisor < 13; divisor++) {
      const Size *floor = size_floor_div(table, size, divisor);
      for (int64_t symbols[] = {0, 0}; symbols[0] < 6; symbols[1] == 20 ? symbols[0]++, symbols[1] = 0 : symbols[1]++) {
        int64_t value, rounded;
        cr_assert(size_value(size, symbols, &value) && size_value(floor, symbols, &rounded));
        int64_t wanted = value / divisor - (value % divisor < 0);
        cr_assert_eq(rounded, wanted, "(%s)//%d of %d, %d", texts[i], (int)divisor, (int)symbols[0], (int)symbols[1]);
      }
    }
  }
}

Test(size, floors_are_no_symbols) {
  const Size *half = read("time//2");
  cr_assert_eq(size_symbol_of(half), -1);
  cr_assert(size_involves(half, 1) && !size_involves(half, 0));
  cr_assert(size_may_equal(table, half, read("time")));
  cr_assert_not(size_may_equal(table, half, read("time//2 + 1")));
  cr_assert_eq(size_with(table, read("batch*(time//2) + time//3"), 1, 7), read("3*batch + 2"));
  cr_assert_eq(size_with(table, read("(batch + time)//2"), 0, 3), read("(time + 1)//2 + 1"));
  cr_assert_eq(size_div(table, read("6*(time//2)*batch"), read("2*(time//2)")), read("3*batch"));
  int64_t symbols[] = {3, INT64_MAX}, value;
  cr_assert_not(size_value(read("(time + 1)//2"), symbols, &value));
}

Test(size, another_table_may_number_floors_otherwise) {
  const Size *x = read("batch*(time//2) + (time//3 + batch)//2 - 1");
  SizeTable *other = size_table_new(arena);
  size_symbol(other, "batch");
  size_symbol(other, "time");
  const char *text = "time//5";
  cr_assert_not_null(size_read(other, &text));
  StrBuf out = strbuf_new(arena);
  size_print(&out, other, size_copy(other, x));
  cr_assert_str_eq(out.text, text_of(x));
  const Size *of[] = {size_symbol(other, "batch"), size_const(other, 9)};
  text = "4*batch + (batch + 3)//2 - 1";
  cr_assert_eq(size_substitute(other, x, of), size_read(other, &text));
  of[0] = NULL;
  cr_assert_null(size_substitute(other, x, of));
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
  const char *texts[] = {"2*batch*time + 1",
                         "-time",
                         "batch*batch - 3*time - 7",
                         "0",
                         "-9223372036854775808",
                         "batch",
                         "time//2",
                         "-(time//2)",
                         "batch - time//2",
                         "2*(time//2)",
                         "batch*((time + 1)//2) - (2*time)//3",
                         "(batch + (2*(time//4) + 1)//3)//5",
                         "(batch*time)//2",
                         "-9223372036854775807*(time//2)"};
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
  static const char *const wrong[] = {"time//0", "time//batch", "time//", "time//-2", "(time", "()", "(time//2"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) cr_assert_null(read(wrong[i]), "%s", wrong[i]);
  cr_assert_eq(read("-time//2"), size_floor_div(table, read("-time"), 2));
  cr_assert_eq(read("batch - 7*time//2"), size_sub(table, read("batch"), read("(7*time)//2")));
  cr_assert_eq(read("batch - 7//2"), read("batch - 3"));
  cr_assert_eq(read("2*(batch + 1)*time"), read("2*batch*time + 2*time"));
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

Test(size, floors_have_limits) {
  const Size *time = size_symbol(table, "time");
  int64_t divisor = 2;
  for (; divisor < SIZE_MAX_FLOORS + 2; divisor++) cr_assert_not_null(size_floor_div(table, time, divisor));
  cr_assert_null(size_floor_div(table, time, divisor));
  cr_assert_not_null(size_floor_div(table, time, divisor - 1));
}

/* Each is made of the one before three times, so written out they would double in length again and again. */
Test(size, floors_of_floors_have_limits) {
  const Size *size = size_symbol(table, "time"), *batch = size_symbol(table, "batch");
  int n = 0;
  for (; n < 40; n++) {
    const Size *next = size_add(table, size_mul(table, size, batch), size);
    next = next ? size_floor_div(table, next, 7) : NULL;
    if (!next) break;
    size = next;
  }
  cr_assert_lt(n, 16);
  cr_assert_lt(strlen(text_of(size)), 100000);
  size = size_symbol(table, "time");
  for (n = 0; size && n < 40; n++)
    size = size_floor_div(table, size_add(table, size_mul(table, read("3"), size), batch), 7);
  cr_assert_null(size, "nested more than %d deep", SIZE_MAX_NESTING);
  cr_assert_null(size_floor_div(table, size_floor_div(table, read("time"), INT64_MAX), 2),
                 "the product of the divisors");
  char deep[200];
  memset(deep, '(', sizeof deep - 1);
  deep[sizeof deep - 1] = 0;
  cr_assert_null(read(deep));
}
