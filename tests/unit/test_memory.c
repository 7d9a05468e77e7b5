/* Workspace, as the runtime places it: what lives at the same time does not overlap, an encoder needs no more than the
 * best layout by hand, and what is measured beforehand is what a run takes. */
#include "../support/compiled_graph.h"
#include "../support/workspace.h"

#include <stdlib.h>

TestSuite(memory, .init = setup, .fini = teardown);

static Plan *plan_model(const char *text, int level) { return planned(optimized(elaborated(text), level), "x86-64-v4"); }

static const char *const encoder =
    "model M() {\n"
    "  layers = 6 * EncoderLayer(512, 8, 2048, gelu)\n"
    "  last = LayerNorm(512)\n"
    "  forward(x: f32[batch, time, 512]) { return y = last(layers(x + 1)) }\n"
    "}\n";

static int64_t bytes_of(const Plan *plan, const tfm_buffer *buffer, const int64_t *symbols) {
  return (plan_evaluate(plan, buffer->elements, symbols) * (int64_t)dtype_bytes[buffer->dtype] + 63) / 64 * 64;
}

static bool live_together(const tfm_buffer *a, const tfm_buffer *b) {
  return a->persistent || b->persistent || (a->first_step <= b->last_step && b->first_step <= a->last_step);
}

static void expect_apart(const Plan *plan, const int64_t *symbols) {
  for (int threads = 1; threads <= 2; threads++) {
    const Workspace found = workspace_of(plan, symbols, threads);
    const int64_t *offsets = found.offsets;
    for (uint32_t i = 0; i < plan->program.n_buffers; i++) {
      const tfm_buffer *a = &plan->program.buffers[i];
      const int64_t bytes = bytes_of(plan, a, symbols);
      cr_assert(a->first_step <= a->last_step && a->last_step < plan->program.n_steps);
      cr_assert(offsets[i] % 64 == 0 && offsets[i] + bytes <= found.buffers);
      for (uint32_t j = 0; j < i; j++) {
        const tfm_buffer *b = &plan->program.buffers[j];
        bool apart = offsets[i] + bytes <= offsets[j] || offsets[j] + bytes_of(plan, b, symbols) <= offsets[i];
        cr_assert(!live_together(a, b) || apart, "buffers %u and %u", i, j);
      }
    }
    free(found.offsets);
  }
}

/* Residual, its norm and a hidden layer of 4 d: 6 d floats per token, and the space between rows. */
Test(memory, an_encoder_needs_six_d_per_token) {
  const Plan *plan = plan_model(encoder, 2);
  const int64_t symbols[] = {1, 128};
  cr_assert_leq(workspace_of(plan, symbols, 1).buffers, (4 * 512 + 16 + 2 * (512 + 16)) * 128 * 4);
  expect_apart(plan, symbols);
}

Test(memory, depth_needs_no_more) {
  const int64_t symbols[] = {2, 100};
  int64_t six = workspace_of(plan_model(encoder, 2), symbols, 1).buffers;
  char *deeper = arena_strdup(arena, encoder);
  *strchr(deeper, '6') = '9';
  cr_assert_eq(workspace_of(plan_model(deeper, 2), symbols, 1).buffers, six);
}

/* With two threads small buffers share memory with their like alone, which takes more. */
Test(memory, what_is_measured_is_what_a_run_takes) {
  const Plan *plan = plan_model(encoder, 2);
  const int64_t sizes[][2] = {{1, 1}, {1, 128}, {2, 100}, {4, 512}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int threads = 1; threads <= 3; threads++) {
      const Workspace found = workspace_of(plan, sizes[i], threads);
      cr_assert_eq(found.measured, found.used, "%d threads", threads);
      cr_assert_gt(found.measured, found.buffers);
      free(found.offsets);
    }
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
  cr_assert_leq(workspace_of(plan, symbols, 1).buffers, 2 * 512 * (4 * 16 + 16) * 4);
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
