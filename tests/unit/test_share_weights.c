/* Several plans with one block of packed weights: equal recipes have one place, others their own. */
#include "../support/compiled_graph.h"
#include "plan/plan_memory.h"
#include "weights/pack.h"

static int n_lookups;

TestSuite(share_weights, .init = setup, .fini = teardown);

static Plan *plan_of(const char *text) { return planned(read_graph(text), "x86-64-v3"); }

/* y = x aT, then a table that is read plainly; `more` are further lines, which use %y : f32[n, 16]. */
static Plan *plan_with(const char *name, const char *more) {
  return plan_of(arena_printf(arena,
                              "graph %s(sizes n) {\n  %%0 = input \"x\" : f32[n, 16]\n  %%1 = weight \"a\" : f32[16, 16]\n"
                              "  %%2 = linear %%0, %%1 : f32[n, 16]\n%s}\n",
                              name, more));
}

static const WeightRecipe *recipe(const Plan *plan, size_t i) {
  cr_assert_lt(i, plan->recipes.n);
  return &plan->recipes.items[i];
}

/* Weight "a" is full of 1, "b" of 2 ... */
static const Tensor *find(void *context, const char *name) {
  const int64_t dims[] = {16, 16};
  (void)context;
  n_lookups++;
  Tensor *tensor = tensor_new(arena, DTYPE_F32, 2, dims);
  for (int i = 0; i < 256; i++) ((float *)tensor->data)[i] = (float)(*name - 'a' + 1);
  return tensor;
}

static void expect_agreement(const Plan *plan, uint64_t bytes) {
  cr_assert_eq(plan->program.weights_bytes, bytes);
  for (size_t i = 0; i < plan->recipes.n; i++) {
    cr_assert_eq(plan->program.weights[i].offset, recipe(plan, i)->offset);
    cr_assert_eq(plan->program.weights[i].bytes, recipe(plan, i)->bytes);
    cr_assert_eq(plan->program.weights[i].offset % 64, 0);
  }
}

static const char *const second_product = "  %3 = weight \"b\" : f32[16, 16]\n  %4 = linear %2, %3 : f32[n, 16]\n  output y = %4\n";

Test(share_weights, equal_recipes_have_one_place) {
  Plan *first = plan_with("First", second_product), *second = plan_with("Second", "  output y = %2\n");
  share_weights(arena, (Plan *[]){first, second}, 2);
  cr_assert_eq(recipe(first, 0)->offset, 0);
  cr_assert_eq(recipe(first, 1)->offset, recipe(first, 0)->bytes);
  cr_assert_eq(recipe(second, 0)->offset, 0);
  cr_assert(!recipe(first, 0)->is_shared && !recipe(first, 1)->is_shared && recipe(second, 0)->is_shared);
  uint64_t bytes = 2 * recipe(first, 0)->bytes + 64;
  expect_agreement(first, bytes);
  expect_agreement(second, bytes);
}

Test(share_weights, the_first_plan_decides_the_order) {
  Plan *first = plan_with("First", second_product), *second = plan_with("Second", "  output y = %2\n");
  share_weights(arena, (Plan *[]){second, first}, 2);
  cr_assert_eq(recipe(second, 0)->offset, 0);
  cr_assert_eq(recipe(first, 0)->offset, 0);
  cr_assert_eq(recipe(first, 1)->offset, recipe(first, 0)->bytes);
  cr_assert(recipe(first, 0)->is_shared && !recipe(first, 1)->is_shared);
}

/* The same weights in another layout, sliced, or with another expression are something else. */
Test(share_weights, what_differs_is_packed_for_itself) {
  Plan *first = plan_with("First", "  output y = %2\n");
  Plan *others[] = {
      plan_of("graph Slice(sizes n) {\n  %0 = input \"x\" : f32[n, 16]\n  %1 = weight \"a\" : f32[32, 16]\n"
              "  %2 = slice %1, starts=[16, 0] : f32[16, 16]\n  %3 = linear %0, %2 : f32[n, 16]\n  output y = %3\n}\n"),
      plan_of("graph Exp(sizes n) {\n  %0 = input \"x\" : f32[n, 16]\n  %1 = weight \"a\" : f32[16, 16]\n"
              "  %2 = exp %1 : f32[16, 16]\n  %3 = linear %0, %2 : f32[n, 16]\n  output y = %3\n}\n"),
      plan_of("graph Log(sizes n) {\n  %0 = input \"x\" : f32[n, 16]\n  %1 = weight \"a\" : f32[16, 16]\n"
              "  %2 = log %1 : f32[16, 16]\n  %3 = linear %0, %2 : f32[n, 16]\n  output y = %3\n}\n")};
  uint64_t end = recipe(first, 0)->bytes;
  for (size_t i = 0; i < 3; i++) {
    Plan *pair[] = {first, others[i]};
    share_weights(arena, pair, 2);
    cr_assert_eq(recipe(others[i], 0)->offset, end, "plan %zu", i);
    cr_assert_not(recipe(others[i], 0)->is_shared);
  }
  Plan *both = plan_with("Both", "  output y = %2\n  output a = %1\n");
  share_weights(arena, (Plan *[]){first, both}, 2);
  cr_assert(recipe(both, 0)->is_shared && !recipe(both, 1)->is_shared);
}

Test(share_weights, what_is_shared_is_packed_once) {
  Plan *first = plan_with("First", second_product), *second = plan_with("Second", "  output y = %2\n");
  share_weights(arena, (Plan *[]){first, second}, 2);
  float *packed = arena_alloc(arena, first->program.weights_bytes);
  cr_assert(pack_weights(&diag, first, &(WeightReader){.whole = find}, (char *)packed));
  cr_assert_eq(n_lookups, 2);
  cr_assert(pack_weights(&diag, second, &(WeightReader){.whole = find}, (char *)packed));
  cr_assert_eq(n_lookups, 2);
  cr_assert_eq(packed[0], 1);
  cr_assert_eq(packed[recipe(first, 1)->offset / sizeof *packed], 2);
}

Test(share_weights, a_value_that_is_used_often_is_printed_once) {
  StrBuf more = strbuf_new(arena);
  strbuf_add(&more, "  %3 = exp %1 : f32[16, 16]\n");
  for (int i = 4; i < 44; i++) strbuf_printf(&more, "  %%%d = add %%%d, %%%d : f32[16, 16]\n", i, i - 1, i - 1);
  strbuf_add(&more, "  %44 = linear %2, %43 : f32[n, 16]\n  output y = %44\n");
  Plan *plan = plan_with("Deep", more.text);
  StrBuf text = strbuf_new(arena);
  recipe_print(&text, plan->graph->sizes, recipe(plan, 1));
  cr_assert_lt(text.length, 4000);
}
