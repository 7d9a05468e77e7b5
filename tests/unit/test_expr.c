/* Expressions: text form, sharing, equality, renaming. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "graph/graph.h"

static Arena *arena;
static SizeTable *sizes;

static void setup(void) {
  arena = arena_create();
  sizes = size_table_new(arena);
  size_symbol(sizes, "time");
}
static void teardown(void) { arena_destroy(arena); }
TestSuite(expr, .init = setup, .fini = teardown);

static const DType inputs[] = {DTYPE_F32, DTYPE_I32, DTYPE_BOOL, DTYPE_F32};

static const char *text_of(const Expr *expr) {
  StrBuf out = strbuf_new(arena);
  expr_print(&out, sizes, expr);
  return out.text;
}

static Expr *read(const char *text) {
  const char *error;
  Expr *expr = expr_read(arena, sizes, &text, 4, inputs, &error);
  return expr && !*text ? expr : NULL;
}

Test(expr, text_is_read_back) {
  const char *texts[] = {
      "gelu(add(acc, $0))",
      "where(gt(index0, index1), -inf, mul(acc, 0.125))",
      "where($2, gather($0, $1), 1e-12)",
      "mul(to_f32(size(i32, time)), size(f32, 2*time + 1))",
      "add(add($1, -2147483648), size(i32, time))",
      "and(not($2), eq($1, 3))",
      "or(true, false)",
      "t0 = exp($0); add(t0, t0)",
      "t0 = exp($0); t1 = mul(t0, t0); sub(t1, add(t1, acc))",
      "add(1.0, mul(0.1, nan))",
      "add(16777216.0, 1.1754944e-38)",
      "inf",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    Expr *expr = read(texts[i]);
    cr_assert_not_null(expr, "%s", texts[i]);
    cr_assert_str_eq(text_of(expr), texts[i]);
  }
}

Test(expr, every_float_survives_its_text) {
  const float numbers[] = {0.1f, 1.0f / 3, 3.4028235e38f, 1e-45f, -0.0f, 123456.789f, 0.70710677f};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    Expr *back = read(text_of(expr_number(arena, (double)numbers[i])));
    cr_assert_not_null(back);
    float number = (float)back->number;
    cr_assert_eq(memcmp(&number, &numbers[i], sizeof number), 0, "%s", text_of(back));
  }
}

Test(expr, faults_are_refused) {
  const char *texts[] = {"", "add(1.0)", "add($0, $1)", "gelu($1)", "$4", "$-1", "t0", "t1 = exp($0); t1", "index",
                         "foo(1.0)", "add(1.0, 2.0", "add(1.0 2.0)", "linear($0, $0)", "size(f64, time)", "size(i32, x)",
                         "gather($0)", "1e", "where($0, $0, $0)", "exp(exp)", "99999999999999999999"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) cr_assert_null(read(texts[i]), "%s", texts[i]);
}

Test(expr, equality_ignores_how_it_is_shared) {
  Expr *shared = read("t0 = exp($0); add(t0, t0)"), *twice = read("add(exp($0), exp($0))");
  cr_assert(expr_equal(shared, twice));
  cr_assert_eq(expr_count(shared), 2);
  cr_assert_eq(expr_count(twice), 3);
  cr_assert_not(expr_equal(read("add($0, $3)"), read("add($3, $0)")));
  cr_assert_not(expr_equal(read("index0"), read("index1")));
  cr_assert(expr_equal(read("nan"), read("nan")));
  cr_assert_not(expr_equal(read("0.0"), read("-0.0")));
}

Test(expr, deep_sharing_costs_nothing) {
  Expr *expr = expr_acc(arena);
  for (int i = 0; i < 60; i++) expr = expr_op(arena, OP_MUL, DTYPE_F32, expr, expr, NULL);
  cr_assert_eq(expr_count(expr), 60);
  cr_assert(expr_uses_acc(expr));
  uint32_t same[] = {0, 1, 2, 3};
  Expr *copy = expr_rename(arena, expr, same, NULL);
  cr_assert(expr_equal(expr, copy));
  Expr *back = read(text_of(expr));
  cr_assert(expr_equal(expr, back));
  cr_assert_eq(expr_count(back), 60);
}

Test(expr, renaming) {
  uint32_t names[] = {3, 1, 2, 0};
  Expr *acc = expr_op(arena, OP_NEG, DTYPE_F32, expr_acc(arena), NULL, NULL);
  Expr *expr = expr_rename(arena, read("add(acc, where(gt(acc, 0.0), $0, gather($3, $1)))"), names, acc);
  cr_assert_str_eq(text_of(expr), "t0 = neg(acc); add(t0, where(gt(t0, 0.0), $3, gather($0, $1)))");
}
