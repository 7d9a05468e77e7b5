/* The reference interpreter: each operation on values computed by hand, with NaN, infinities, empty axes and faults. */
#include "eval_case.h"

TestSuite(eval, .init = setup, .fini = teardown);

// ---- pointwise ----

/* One operation on x: f32[n]. */
static void unary(const char *op) {
  run(arena_printf(arena, "%%0 = input \"x\" : f32[3]\n%%1 = %s %%0 : f32[3]\noutput y = %%1", op));
}

Test(eval, unary_operations) {
  static const struct {
    const char *op;
    float x[3], y[3];
  } cases[] = {
      {"neg", {1, -2, 0}, {-1, 2, 0}},
      {"exp", {0, 1, -INFINITY}, {1, 2.7182818f, 0}},
      {"log", {1, 0, -1}, {0, -INFINITY, NAN}},
      {"sqrt", {4, 2, -1}, {2, 1.4142135f, NAN}},
      {"rsqrt", {4, 0, INFINITY}, {0.5f, INFINITY, 0}},
      {"abs", {-3, 3, NAN}, {3, 3, NAN}},
      {"floor", {2.7f, -2.3f, NAN}, {2, -3, NAN}},
      {"floor", {8388609.0f, -0.25f, -INFINITY}, {8388609.0f, -1, -INFINITY}},
      {"ceil", {2.3f, -2.7f, 0.5f}, {3, -2, 1}},
      {"round", {2.5f, -3.5f, 0.49999997f}, {2, -4, 0}},
      {"sin", {0, 1, INFINITY}, {0, 0.84147098f, NAN}},
      {"cos", {0, 1, 0}, {1, 0.54030231f, 1}},
      {"tanh", {0, 1, -INFINITY}, {0, 0.76159416f, -1}},
      {"sigmoid", {0, -INFINITY, 1000}, {0.5f, 0, 1}},
      {"erf", {0, 0.5f, INFINITY}, {0, 0.52049988f, 1}},
      {"relu", {-1, 2, NAN}, {0, 2, NAN}},
      {"silu", {1, 0, -2}, {0.73105858f, 0, -0.23840584f}},
      {"gelu", {1, 0, -1}, {0.84134475f, 0, -0.15865525f}},
      {"gelu", {INFINITY, -INFINITY, -100}, {INFINITY, NAN, 0}},
      {"gelu_tanh", {1, 0, -1}, {0.84119199f, 0, -0.15880801f}},
      {"gelu_tanh", {INFINITY, -INFINITY, -100}, {INFINITY, NAN, 0}},
      {"quick_gelu", {1, 0, -1}, {0.84579580f, 0, -0.15420423f}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    give("x", DTYPE_F32, SHAPE(3), cases[i].x);
    unary(cases[i].op);
    check_f32(SHAPE(3), cases[i].y);
  }
}

Test(eval, conversions) {
  F32("x", SHAPE(6), 2.9f, -2.9f, NAN, 3e9f, -2147483648.0f, INFINITY);
  run("%0 = input \"x\" : f32[6]\n%1 = to_i32 %0 : i32[6]\noutput y = %1");
  WANT_I32(SHAPE(6), 2, -2, INT_MIN, INT_MIN, INT_MIN, INT_MIN);
  I32("x", SHAPE(2), 16777217, INT_MIN);
  run("%0 = input \"x\" : i32[2]\n%1 = to_f32 %0 : f32[2]\noutput y = %1");
  WANT_F32(SHAPE(2), 16777216, -2147483648.0f);
  I32("x", SHAPE(2), 16777217, INT_MIN);
  run("%0 = input \"x\" : i32[2]\n%1 = to_i32 %0 : i32[2]\noutput y = %1");
  WANT_I32(SHAPE(2), 16777217, INT_MIN);
  BOOL("x", SHAPE(2), 1, 0);
  run("%0 = input \"x\" : bool[2]\n%1 = to_f32 %0 : f32[2]\noutput y = %1");
  WANT_F32(SHAPE(2), 1, 0);
}

static void binary(const char *op, const char *operands, const char *result) {
  run(arena_printf(arena, "%%0 = input \"x\" : %s[4]\n%%1 = input \"y\" : %s[4]\n%%2 = %s %%0, %%1 : %s[4]\noutput z = %%2",
                   operands, operands, op, result));
}

Test(eval, binary_operations_on_f32) {
  static const struct {
    const char *op;
    float z[4];
  } cases[] = {{"add", {5, NAN, INFINITY, 0}},     {"sub", {-3, NAN, -INFINITY, -4}}, {"mul", {4, NAN, NAN, -4}},
               {"div", {0.25f, NAN, 0, -1}},       {"maximum", {4, NAN, INFINITY, 2}}, {"minimum", {1, NAN, 0, -2}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    F32("x", SHAPE(4), 1, NAN, 0, -2);
    F32("y", SHAPE(4), 4, 1, INFINITY, 2);
    binary(cases[i].op, "f32", "f32");
    check_f32(SHAPE(4), cases[i].z);
  }
  F32("x", SHAPE(4), 1, 2, NAN, 3);
  F32("y", SHAPE(4), NAN, 1, NAN, 3);
  binary("maximum", "f32", "f32");
  WANT_F32(SHAPE(4), NAN, 2, NAN, 3);
}

Test(eval, binary_operations_on_i32) {
  static const struct {
    const char *op;
    int32_t z[4];
  } cases[] = {{"add", {9, -5, -9, INT_MIN}},    {"sub", {5, -9, -5, INT_MAX - 1}}, {"mul", {14, -14, 14, INT_MAX}},
               {"floordiv", {3, -4, 3, INT_MAX}}, {"floormod", {1, 1, -1, 0}},       {"maximum", {7, 2, -2, INT_MAX}},
               {"minimum", {2, -7, -7, 1}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    I32("x", SHAPE(4), 7, -7, -7, INT_MAX);
    I32("y", SHAPE(4), 2, 2, -2, 1);
    binary(cases[i].op, "i32", "i32");
    check_i32(SHAPE(4), cases[i].z);
  }
  I32("x", SHAPE(4), INT_MIN, INT_MIN, 5, -5);
  I32("y", SHAPE(4), -1, 1, -3, 3);
  binary("floordiv", "i32", "i32");
  WANT_I32(SHAPE(4), INT_MIN, INT_MIN, -2, -2);
  I32("x", SHAPE(4), INT_MIN, 0, 5, -5);
  I32("y", SHAPE(4), -1, 1, -3, 3);
  binary("floormod", "i32", "i32");
  WANT_I32(SHAPE(4), 0, 0, -1, 1);
}

Test(eval, division_by_zero_is_an_error) {
  I32("x", SHAPE(2), 4, 2);
  I32("y", SHAPE(2), 2, 0);
  fails("", "%0 = input \"x\" : i32[2]\n%1 = input \"y\" : i32[2]\n%2 = floormod %0, %1 : i32[2]\noutput z = %2",
        DIAG_RUN_ARITHMETIC, "division by zero");
  I32("x", SHAPE(1), 4);
  fails("", "%0 = input \"x\" : i32[1]\n%1 = pointwise %0, { floordiv($0, 0) } : i32[1]\noutput z = %1",
        DIAG_RUN_ARITHMETIC, "division by zero");
}

Test(eval, comparisons_and_logic) {
  static const struct {
    const char *op;
    int32_t z[4];
  } cases[] = {{"eq", {0, 1, 0, 0}}, {"ne", {1, 0, 1, 1}}, {"lt", {1, 0, 0, 0}},
               {"gt", {0, 0, 1, 0}}, {"le", {1, 1, 0, 0}}, {"ge", {0, 1, 1, 0}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    F32("x", SHAPE(4), 1, 2, 3, NAN);
    F32("y", SHAPE(4), 2, 2, 2, 2);
    binary(cases[i].op, "f32", "bool");
    check_i32(SHAPE(4), cases[i].z);
  }
  BOOL("x", SHAPE(4), 0, 0, 1, 1);
  BOOL("y", SHAPE(4), 0, 1, 0, 1);
  binary("and", "bool", "bool");
  WANT_I32(SHAPE(4), 0, 0, 0, 1);
  BOOL("x", SHAPE(4), 0, 0, 1, 1);
  BOOL("y", SHAPE(4), 0, 1, 0, 1);
  binary("or", "bool", "bool");
  WANT_I32(SHAPE(4), 0, 1, 1, 1);
}

Test(eval, broadcasting_and_where) {
  F32("x", SHAPE(2, 1), 1, 2);
  F32("y", SHAPE(3), 10, 20, NAN);
  run("%0 = input \"x\" : f32[2, 1]\n%1 = input \"y\" : f32[3]\n%2 = add %0, %1 : f32[2, 3]\noutput z = %2");
  WANT_F32(SHAPE(2, 3), 11, 21, NAN, 12, 22, NAN);
  BOOL("c", SHAPE(3), 1, 1, 0);
  F32("y", SHAPE(3), 10, 20, NAN);
  run("%0 = input \"c\" : bool[3]\n%1 = input \"y\" : f32[3]\n%2 = full -1.0 : f32[]\n"
      "%3 = where %0, %1, %2 : f32[3]\n%4 = not %0 : bool[3]\noutput z = %3");
  WANT_F32(SHAPE(3), 10, 20, -1);
}

// ---- sources and views ----

Test(eval, sources) {
  cr_assert(run_sized("", "%0 = full 0.5 : f32[2, 2]\noutput z = %0"));
  WANT_F32(SHAPE(2, 2), 0.5f, 0.5f, 0.5f, 0.5f);
  run("%0 = positions : i32[3]\noutput z = %0");
  WANT_I32(SHAPE(3), 0, 1, 2);
  run("%0 = causal_mask : bool[2, 3]\noutput z = %0");
  WANT_I32(SHAPE(2, 3), 0, 1, 1, 0, 0, 1);
  F32("x", SHAPE(3, 2), 0, 0, 0, 0, 0, 0);
  cr_assert(run_sized("sizes a, b", "%0 = input \"x\" : f32[a, b]\n%1 = size 2*a*b + 1 : f32[]\noutput z = %1"));
  WANT_F32(SCALAR, 13);
}

Test(eval, views) {
#define MATRIX "%0 = input \"x\" : f32[2, 3]\n"
  F32("x", SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
  run(MATRIX "%1 = slice %0, starts=[0, 1] : f32[2, 2]\noutput z = %1");
  WANT_F32(SHAPE(2, 2), 2, 3, 5, 6);
  F32("x", SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
  run(MATRIX "%1 = reshape %0 : f32[3, 2]\noutput z = %1");
  WANT_F32(SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
  F32("x", SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
  run(MATRIX "%1 = permute %0, axes=[1, 0] : f32[3, 2]\noutput z = %1");
  WANT_F32(SHAPE(3, 2), 1, 4, 2, 5, 3, 6);
  F32("x", SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
  run(MATRIX "%1 = slice %0, starts=[0, 2] : f32[2, 1]\n%2 = concat %0, %1, axis=1 : f32[2, 4]\noutput z = %2");
  WANT_F32(SHAPE(2, 4), 1, 2, 3, 3, 4, 5, 6, 6);
  F32("x", SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
  run(MATRIX "%1 = concat %0, %0, axis=0 : f32[4, 3]\n%2 = slice %1, starts=[2, 0] : f32[0, 3]\noutput z = %2");
  WANT_F32(SHAPE(0, 3), 0);
}

Test(eval, gather_and_its_ids) {
  F32("table", SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
  I32("ids", SHAPE(2, 2), 2, 0, 1, 2);
#define GATHER "%0 = input \"table\" : f32[3, 2]\n%1 = input \"ids\" : i32[2, 2]\n"
  run(GATHER "%2 = gather %0, %1 : f32[2, 2, 2]\noutput z = %2");
  WANT_F32(SHAPE(2, 2, 2), 5, 6, 1, 2, 3, 4, 5, 6);
  F32("table", SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
  I32("ids", SHAPE(2, 2), 2, 0, 3, 2);
  fails("", GATHER "%2 = reshape %1 : i32[4]\n%3 = gather %0, %2 : f32[4, 2]\noutput z = %3", DIAG_INPUT_VALUE,
        "input \"ids\"[1,0] = 3, legal range is [0, 3)");
  F32("table", SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
  I32("ids", SHAPE(2, 2), 2, 0, -1, 2);
  fails("", GATHER "%2 = neg %1 : i32[2, 2]\n%3 = gather %0, %2 : f32[2, 2, 2]\noutput z = %3", DIAG_INPUT_VALUE,
        "id -2 is not in [0, 3)");
  F32("table", SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
  I32("ids", SHAPE(2, 2), 2, 0, 1, 9);
  fails("", GATHER "%2 = pointwise %0, %1, { gather($0, $1) } : f32[2, 2, 2]\noutput z = %2", DIAG_INPUT_VALUE, "[1,1] = 9");
  F32("table", SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
  I32("ids", SHAPE(2, 2), 2, 0, 1, 9);
  run(GATHER "%2 = slice %1, starts=[0, 0] : i32[2, 1]\n%3 = gather %0, %2 : f32[2, 1, 2]\noutput z = %3");
  WANT_F32(SHAPE(2, 1, 2), 5, 6, 3, 4);
}

// ---- reductions and norms ----

static void reduction(const char *attributes, const char *result) {
  run(arena_printf(arena, "%%0 = input \"x\" : f32[2, 3]\n%%1 = %s : %s\noutput z = %%1", attributes, result));
}

Test(eval, reductions) {
#define GIVE F32("x", SHAPE(2, 3), 1, 5, 3, -4, NAN, 6)
  GIVE, reduction("sum %0, axis=1", "f32[2]");
  WANT_F32(SHAPE(2), 9, NAN);
  GIVE, reduction("mean %0, axis=0, keepdim=true", "f32[1, 3]");
  WANT_F32(SHAPE(1, 3), -1.5f, NAN, 4.5f);
  GIVE, reduction("max %0, axis=1", "f32[2]");
  WANT_F32(SHAPE(2), 5, NAN);
  GIVE, reduction("min %0, axis=0", "f32[3]");
  WANT_F32(SHAPE(3), -4, NAN, 3);
  GIVE, reduction("argmax %0, axis=1", "i32[2]");
  WANT_I32(SHAPE(2), 1, 1);
  F32("x", SHAPE(2, 3), 2, 7, 7, -INFINITY, -INFINITY, -INFINITY);
  reduction("argmax %0, axis=1", "i32[2]");
  WANT_I32(SHAPE(2), 1, 0);
}

Test(eval, reductions_of_nothing) {
  F32("x", SHAPE(2, 0), 0);
  cr_assert(run_sized("sizes n", "%0 = input \"x\" : f32[2, n]\n%1 = sum %0, axis=1 : f32[2]\noutput z = %1"));
  WANT_F32(SHAPE(2), 0, 0);
  F32("x", SHAPE(2, 0), 0);
  cr_assert(run_sized("sizes n", "%0 = input \"x\" : f32[2, n]\n%1 = mean %0, axis=1 : f32[2]\noutput z = %1"));
  WANT_F32(SHAPE(2), NAN, NAN);
  F32("x", SHAPE(2, 0), 0);
  cr_assert(run_sized("sizes n", "%0 = input \"x\" : f32[2, n]\n%1 = max %0, axis=1 : f32[2]\noutput z = %1"));
  WANT_F32(SHAPE(2), -INFINITY, -INFINITY);
}

Test(eval, softmax_rows) {
  F32("x", SHAPE(2, 3), 0, 0.69314718f, -INFINITY, -INFINITY, -INFINITY, -INFINITY);
  reduction("softmax %0, axis=1", "f32[2, 3]");
  WANT_F32(SHAPE(2, 3), 0.33333333f, 0.66666667f, 0, 0, 0, 0);
  F32("x", SHAPE(2, 3), 0, 0.69314718f, -INFINITY, -INFINITY, -INFINITY, -INFINITY);
  reduction("log_softmax %0, axis=1", "f32[2, 3]");
  WANT_F32(SHAPE(2, 3), -1.0986123f, -0.40546511f, -INFINITY, NAN, NAN, NAN);
  F32("x", SHAPE(2, 3), 1000, 0, NAN, 1000, 0, 1);
  reduction("softmax %0, axis=0", "f32[2, 3]");
  WANT_F32(SHAPE(2, 3), 0.5f, 0.5f, NAN, 0.5f, 0.5f, NAN);
  F32("x", SHAPE(2, 3), -1e10f, -1e10f, -1e10f, INFINITY, 0, 0);
  reduction("softmax %0, axis=1", "f32[2, 3]");
  WANT_F32(SHAPE(2, 3), 0.33333333f, 0.33333333f, 0.33333333f, NAN, NAN, NAN);
}

Test(eval, norms) {
  F32("x", SHAPE(1, 2), 1, 3);
  F32("w", SHAPE(2), 2, 10);
  run("%0 = input \"x\" : f32[1, 2]\n%1 = input \"w\" : f32[2]\n"
      "%2 = layer_norm %0, %1, %1, weight=true, bias=true, eps=3.0 : f32[1, 2]\noutput z = %2");
  WANT_F32(SHAPE(1, 2), 1, 15);
  F32("x", SHAPE(1, 2), 1, 3);
  run("%0 = input \"x\" : f32[1, 2]\n%1 = rms_norm %0, eps=11.0 : f32[1, 2]\noutput z = %1");
  WANT_F32(SHAPE(1, 2), 0.25f, 0.75f);
  F32("x", SHAPE(1, 2), 1, 3);
  F32("y", SHAPE(2), 0, -2);
  run("%0 = input \"x\" : f32[1, 2]\n%1 = input \"y\" : f32[2]\n"
      "%2 = norm %0, %1, %1, reduction=layer_norm, bias=true, eps=0.0, { add($0, mul($1, 2.0)) } : f32[1, 2]\noutput z = %2");
  WANT_F32(SHAPE(1, 2), 1, -3);
}

// ---- positions ----

Test(eval, sinusoid_and_rotary) {
  run("%0 = positions : i32[2]\n%1 = sinusoid %0, base=100.0, interleaved=true : f32[2, 3]\noutput z = %1");
  WANT_F32(SHAPE(2, 3), 0, 1, 0, sinf(1), cosf(1), (float)sin(exp(-2.0 / 3 * log(100))));
  run("%0 = positions : i32[2]\n%1 = sinusoid %0, base=100.0 : f32[2, 4]\noutput z = %1");
  WANT_F32(SHAPE(2, 4), 0, 0, 1, 1, sinf(1), sinf(0.1f), cosf(1), cosf(0.1f));
  F32("x", SHAPE(2, 4), 1, 2, 3, 4, 1, 2, 3, 4);
  run("%0 = input \"x\" : f32[2, 4]\n%1 = positions : i32[2]\n%2 = rotary %0, %1, base=1.0 : f32[2, 4]\noutput z = %2");
  float c = cosf(1), s = sinf(1);
  WANT_F32(SHAPE(2, 4), 1, 2, 3, 4, c - 3 * s, 2 * c - 4 * s, 3 * c + s, 4 * c + 2 * s);
  F32("x", SHAPE(2, 4), 1, 2, 3, 4, 1, 2, 3, 4);
  run("%0 = input \"x\" : f32[2, 4]\n%1 = positions : i32[2]\n"
      "%2 = rotary %0, %1, base=1.0, interleaved=true : f32[2, 4]\noutput z = %2");
  WANT_F32(SHAPE(2, 4), 1, 2, 3, 4, c - 2 * s, 2 * c + s, 3 * c - 4 * s, 4 * c + 3 * s);
  run("%0 = positions : i32[2]\n%1 = rotary_table %0, base=1.0 : f32[2, 2, 1]\noutput z = %1");
  WANT_F32(SHAPE(2, 2, 1), 1, 0, c, s);
}

// ---- products ----

Test(eval, products) {
  F32("x", SHAPE(2, 2), 1, 2, 3, 4);
  F32("y", SHAPE(2, 3), 1, 0, 2, 0, 1, 1);
  run("%0 = input \"x\" : f32[2, 2]\n%1 = input \"y\" : f32[2, 3]\n%2 = matmul %0, %1 : f32[2, 3]\noutput z = %2");
  WANT_F32(SHAPE(2, 3), 1, 2, 4, 3, 4, 10);
  F32("x", SHAPE(2, 1, 2), 1, 2, 3, 4);
  F32("y", SHAPE(3, 2, 1), 1, 0, 0, 1, 1, 1);
  run("%0 = input \"x\" : f32[2, 1, 2]\n%1 = input \"y\" : f32[3, 2, 1]\n%2 = reshape %0 : f32[2, 1, 1, 2]\n"
      "%3 = matmul %2, %1 : f32[2, 3, 1, 1]\noutput z = %3");
  WANT_F32(SHAPE(2, 3, 1, 1), 1, 2, 3, 3, 4, 7);
  F32("x", SHAPE(2), 1, 2);
  F32("w", SHAPE(3, 2), 1, 0, 0, 1, 1, 1);
  run("%0 = input \"x\" : f32[2]\n%1 = input \"w\" : f32[3, 2]\n%2 = linear %0, %1 : f32[3]\noutput z = %2");
  WANT_F32(SHAPE(3), 1, 2, 3);
  F32("x", SHAPE(2), 1, 2);
  F32("w", SHAPE(3, 2), 1, 0, 0, 1, 1, 1);
  run("%0 = input \"x\" : f32[2]\n%1 = input \"w\" : f32[3, 2]\n%2 = full 10.0 : f32[1]\n"
      "%3 = linear %0, %1, %2, { gt(add(acc, $2), 12.0) } : bool[3]\noutput z = %3");
  WANT_I32(SHAPE(3), 0, 0, 1);
}

Test(eval, a_sum_is_not_rounded_between) {
  F32("x", SHAPE(1, 3), 16777216, 1, -16777216);
  F32("y", SHAPE(3, 1), 1, 1, 1);
  run("%0 = input \"x\" : f32[1, 3]\n%1 = input \"y\" : f32[3, 1]\n%2 = matmul %0, %1 : f32[1, 1]\noutput z = %2");
  WANT_F32(SHAPE(1, 1), 1);
}

#define SCORES "%0 = input \"x\" : f32[1, 2]\n%1 = input \"y\" : f32[2, 1]\n"

static void give_scores(void) {
  F32("x", SHAPE(1, 2), 0, -INFINITY);
  F32("y", SHAPE(2, 1), 3, NAN);
}

Test(eval, a_weight_of_zero_contributes_nothing) {
  give_scores();
  run(SCORES "%2 = softmax %0, axis=1 : f32[1, 2]\n%3 = matmul %2, %1 : f32[1, 1]\noutput z = %3");
  WANT_F32(SHAPE(1, 1), 3);
  give_scores();
  run(SCORES "%2 = softmax %0, axis=1 : f32[1, 2]\n%3 = reshape %2 : f32[1, 1, 2]\n%4 = matmul %3, %1 : f32[1, 1, 1]\n"
             "output z = %4");
  WANT_F32(SHAPE(1, 1, 1), 3);
  give_scores();
  run(SCORES "%2 = exp %0 : f32[1, 2]\n%3 = matmul %2, %1 : f32[1, 1]\noutput z = %3");
  WANT_F32(SHAPE(1, 1), NAN);
  give_scores();
  run(SCORES "%2 = reduce %0, reduction=softmax, axis=1, domain=[1, 2], { $0 } : f32[1, 2]\n"
             "%3 = matmul_fused %2, %1, { neg(acc) } : f32[1, 1]\noutput z = %3");
  WANT_F32(SHAPE(1, 1), -3);
}

// ---- fused ----

Test(eval, expressions_over_a_domain) {
  F32("x", SHAPE(2, 1), 1, 2);
  run("%0 = input \"x\" : f32[2, 1]\n%1 = pointwise %0, { where(gt(index0, index1), $0, to_f32(add(index0, 10))) } : f32[2, 3]\n"
      "output z = %1");
  WANT_F32(SHAPE(2, 3), 10, 1, 1, 10, 11, 2);
  F32("table", SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
  I32("ids", SHAPE(2, 1), 1, 0);
  run("%0 = input \"table\" : f32[2, 3]\n%1 = input \"ids\" : i32[2, 1]\n"
      "%2 = pointwise %0, %1, { mul(gather($0, $1), 2.0) } : f32[2, 2, 3]\noutput z = %2");
  WANT_F32(SHAPE(2, 2, 3), 8, 10, 12, 8, 10, 12, 2, 4, 6, 2, 4, 6);
  run("%0 = pointwise { t0 = add(1.0, 0.5); mul(t0, t0) } : f32[]\noutput z = %0");
  WANT_F32(SCALAR, 2.25f);
  F32("x", SHAPE(2, 2), 1, 2, 3, 4);
  run("%0 = input \"x\" : f32[2, 2]\n%1 = reduce %0, reduction=sum, axis=0, keepdim=true, domain=[2, 2], { mul($0, $0) } : f32[1, 2]\n"
      "output z = %1");
  WANT_F32(SHAPE(1, 2), 10, 20);
  F32("x", SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
  cr_assert(run_sized("sizes n", "%0 = input \"x\" : f32[n, 2]\n%1 = pointwise %0, { div($0, size(f32, n)) } : f32[n, 2]\noutput z = %1"));
  WANT_F32(SHAPE(3, 2), 1.0f / 3, 2.0f / 3, 1, 4.0f / 3, 5.0f / 3, 2);
}

Test(eval, attention_is_what_it_was_made_from) {
  const float q[] = {1, 2, -1, 0.5f, 0.25f, 3, -2, 1}, v[] = {1, 2, 3, NAN, 5, 6, 7, 8, 9, 10, 11, 12};
  for (int fused = 0; fused < 2; fused++) {
    give("q", DTYPE_F32, SHAPE(2, 2, 2), q);
    give("v", DTYPE_F32, SHAPE(2, 2, 3), v);
    run(fused ? "%0 = input \"q\" : f32[2, 2, 2]\n%1 = input \"v\" : f32[2, 2, 3]\n%2 = causal_mask : bool[2, 2]\n"
                "%3 = attention %0, %0, %1, %2, { where($3, -inf, mul(acc, 0.5)) } : f32[2, 2, 3]\n"
                "%4 = attention_weights %3 : f32[2, 2, 2]\noutput z = %3\noutput p = %4"
              : "%0 = input \"q\" : f32[2, 2, 2]\n%1 = input \"v\" : f32[2, 2, 3]\n%2 = causal_mask : bool[2, 2]\n"
                "%3 = permute %0, axes=[0, 2, 1] : f32[2, 2, 2]\n%4 = matmul %0, %3 : f32[2, 2, 2]\n"
                "%5 = full 0.5 : f32[]\n%6 = mul %4, %5 : f32[2, 2, 2]\n%7 = full -inf : f32[]\n"
                "%8 = where %2, %7, %6 : f32[2, 2, 2]\n%9 = softmax %8, axis=2 : f32[2, 2, 2]\n"
                "%10 = matmul %9, %1 : f32[2, 2, 3]\noutput z = %10\noutput p = %9");
    if (!fused) outputs[2] = outputs[0], outputs[3] = outputs[1];
  }
  cr_assert_eq(memcmp(outputs[0].data, outputs[2].data, 12 * sizeof(float)), 0);
  cr_assert_eq(memcmp(outputs[1].data, outputs[3].data, 8 * sizeof(float)), 0);
}
