/* Workspace: what lives at the same time does not overlap, and an encoder needs no more than the best layout by hand. */
#include "../support/compiled_graph.h"

TestSuite(memory, .init = setup, .fini = teardown);

static Plan *plan_model(const char *text, int level) { return planned(optimized(elaborated(text), level), "x86-64-v4"); }

static const char *const encoder =
    "model M() {\n"
    "  layers = 6 * EncoderLayer(512, 8, 2048, gelu)\n"
    "  last = LayerNorm(512)\n"
    "  forward(x: f32[batch, time, 512]) { return y = last(layers(x + 1)) }\n"
    "}\n";

static uint64_t bytes_of(const Plan *plan, const tfm_buffer *buffer, const int64_t *symbols) {
  return ((uint64_t)plan_evaluate(plan, buffer->elements, symbols) * dtype_bytes[buffer->dtype] + 63) / 64 * 64;
}

static void expect_apart(const Plan *plan, const int64_t *symbols) {
  uint32_t n = plan->program.n_buffers;
  uint64_t *offsets = ARENA_ARRAY(arena, uint64_t, n);
  uint64_t all = plan_workspace_bytes(plan, symbols, offsets);
  for (uint32_t i = 0; i < n; i++) {
    const tfm_buffer *a = &plan->program.buffers[i];
    cr_assert(a->first_step <= a->last_step && a->last_step < plan->program.n_steps);
    cr_assert(offsets[i] % 64 == 0 && offsets[i] + bytes_of(plan, a, symbols) <= all);
    for (uint32_t j = 0; j < i; j++) {
      const tfm_buffer *b = &plan->program.buffers[j];
      bool together = a->persistent || b->persistent ||
                      (a->first_step <= b->last_step && b->first_step <= a->last_step);
      bool apart = offsets[i] + bytes_of(plan, a, symbols) <= offsets[j] ||
                   offsets[j] + bytes_of(plan, b, symbols) <= offsets[i];
      cr_assert(!together || apart, "buffers %u and %u", i, j);
    }
  }
}

/* Residual, its norm and a hidden layer of 4 d: 6 d floats per token, and the space between rows. */
Test(memory, an_encoder_needs_six_d_per_token) {
  const Plan *plan = plan_model(encoder, 2);
  const int64_t symbols[] = {1, 128};
  uint64_t best = (uint64_t)(4 * 512 + 16 + 2 * (512 + 16)) * 128 * 4;
  cr_assert_leq(plan_workspace_bytes(plan, symbols, NULL), best);
  expect_apart(plan, symbols);
}

Test(memory, depth_needs_no_more) {
  const int64_t symbols[] = {2, 100};
  uint64_t six = plan_workspace_bytes(plan_model(encoder, 2), symbols, NULL);
  char *deeper = arena_strdup(arena, encoder);
  *strchr(deeper, '6') = '9';
  cr_assert_eq(plan_workspace_bytes(plan_model(deeper, 2), symbols, NULL), six);
}

Test(memory, everything_materialized) {
  const Plan *plan = plan_model(
      "model M() {\n"
      "  one = EncoderLayer(64, 4, 100)\n"
      "  two = DecoderLayer(64, 4, 100)\n"
      "  pos = PositionalEncoding(64)\n"
      "  forward(x: f32[batch, source, 64], y: f32[batch, time, 64]) {\n"
      "    a, w = one(pos(x))\n"
      "    b, s, c = two(pos(y), a, tgt_is_causal = true)\n"
      "    return a, w, b, s, c\n"
      "  }\n"
      "}\n", 0);
  const int64_t sizes[][3] = {{1, 1, 1}, {3, 7, 2}, {2, 0, 5}, {0, 3, 4}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) expect_apart(plan, sizes[i]);
}

Test(memory, polynomials_saturate) {
  const Plan *plan = plan_model("model M() { forward(x: f32[a, b, c]) { return y = softmax(x + 1, 0) + x } }", 0);
  const int64_t huge[] = {INT64_MAX / 2, INT64_MAX / 2, 4};
  bool saturated = false;
  for (uint32_t i = 0; i < plan->program.n_polynomials; i++)
    saturated |= plan_evaluate(plan, i, huge) == INT64_MAX;
  cr_assert(saturated);
}

/* A transposed result is a layout that attention cannot write: it keeps its own, which is no larger. */
Test(memory, attention_in_a_layout_that_nobody_asked_for) {
  const Plan *plan = plan_model(
      "model M() {\n"
      "  forward(q: f32[batch, 4, time, 16], k: f32[batch, 4, time, 16], v: f32[batch, 4, time, 16]) {\n"
      "    y = softmax(q @ transpose(k, 2, 3) / 4) @ v\n"
      "    return y = transpose(y, 2, 3)\n"
      "  }\n"
      "}\n",
      2);
  const int64_t symbols[] = {2, 512};
  cr_assert_eq(plan->program.n_buffers, 1);
  cr_assert_leq(plan_workspace_bytes(plan, symbols, NULL), (uint64_t)2 * 512 * (4 * 16 + 16) * 4);
}

/* The numbers of a tensor lie in whole cache lines, whatever was asked for before it. */
Test(memory, large_pieces_begin_at_a_cache_line) {
  static const size_t sizes[] = {4096, 70000, 4097, 3 << 20, 5000, 9 << 20, 4096};
  Arena *own = arena_create();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    cr_assert((uintptr_t)arena_alloc(own, 16 * (i + 1)) % 16 == 0);
    char *large = arena_alloc(own, sizes[i]);
    cr_assert((uintptr_t)large % 64 == 0, "%zu bytes begin at %p", sizes[i], (void *)large);
    for (size_t at = 0; at < sizes[i]; at++) cr_assert(large[at] == 0);
  }
  arena_destroy(own);
}
