/* Rows nobody uses: models that look at some rows of their last layer compute these only, and compute the same. */
#include "../support/compiled_graph.h"
#include "../support/same_values.h"

static PassLog row_log;

static void setup_log(void) {
  setup();
  row_log = (PassLog){.arena = arena};
}
TestSuite(narrow_rows, .init = setup_log, .fini = teardown);

/* The plan of a model whose outputs were computed before and after the passes. */
static const Plan *narrowed(const char *text) {
  Graph *graph = elaborated(text);
  Graph *after = graph_clone(arena, graph);
  cr_assert(passes_run(after, &diag, &(PassOptions){.level = 2, .verify_each = true}, &row_log), "%s", fault());
  cr_assert(same_values(arena, graph, after));
  return planned(after, "x86-64-v4");
}

/* The rows of every product with a weight, in the order of the steps. */
static void expect_rows(const Plan *plan, const char *want) {
  StrBuf out = strbuf_new(arena);
  for (uint32_t i = 0; i < plan->program.n_steps; i++) {
    const tfm_step *step = &plan->program.steps[i];
    if (step->kind != TFM_STEP_GEMM) continue;
    if (out.text[0]) strbuf_add(&out, ", ");
    plan_print_size(&out, plan, plan->program.gemms[step->index].rows);
  }
  cr_assert_str_eq(out.text, want, "%s", out.text);
}

static unsigned recorded(void) {
  unsigned n = 0;
  for (size_t i = 0; i < row_log.records.n; i++) n += row_log.records.items[i].fusion == FUSION_ROWS;
  return n;
}

Test(narrow_rows, a_classifier_computes_one_row_of_its_last_layer) {
  const Plan *plan = narrowed(
      "model M(d = 8) { layers = 2 * EncoderLayer(d, 2, 16, gelu)  head = Linear(d, 3)\n"
      "  forward(x: f32[batch, time, d], pad: bool[batch, time]) {\n"
      "    hidden = layers(x, src_key_padding_mask = pad)  return y = head(hidden[:, 0]) } }");
  /* Queries, keys and values as one, projection, two of the feed-forward; queries alone, keys and values, the rest. */
  expect_rows(plan, "batch*time, batch*time, batch*time, batch*time, "
                    "batch, batch*time, batch, batch, batch, batch");
  cr_assert_eq(recorded(), 6);
}

Test(narrow_rows, the_last_position_of_a_causal_model) {
  const Plan *plan = narrowed(
      "model M(d = 8) { layers = 2 * EncoderLayer(d, 2, 16, norm_first = true)  head = Linear(d, 11)\n"
      "  forward(x: f32[batch, time, d]) { return y = head(layers(x, is_causal = true))[:, -1] } }");
  expect_rows(plan, "batch*time, batch*time, batch*time, batch*time, "
                    "batch, batch*time, batch, batch, batch, batch");
}

Test(narrow_rows, what_is_an_output_too_keeps_its_rows) {
  const Plan *plan = narrowed(
      "model M(d = 8) { layers = EncoderLayer(d, 2, 16)  head = Linear(d, 3)\n"
      "  forward(x: f32[batch, time, d]) { hidden = layers(x)  return y = head(hidden[:, 0]), hidden } }");
  expect_rows(plan, "batch*time, batch*time, batch*time, batch*time, batch");
  cr_assert_eq(recorded(), 0);
}

Test(narrow_rows, rotated_heads) {
  const Plan *plan = narrowed(
      "model M(d = 16) { q = Linear(d, d)  k = Linear(d, d)\n"
      "  forward(x: f32[batch, 6, d]) {\n"
      "    at = positions(x, 1)  a = rotary(split_heads(q(x), 2), at)  b = rotary(split_heads(k(x), 2), at)\n"
      "    p = softmax(a @ transpose(b, -1, -2))  return y = merge_heads(p @ b)[:, 2:5] } }");
  expect_rows(plan, "3*batch, 6*batch");
}
