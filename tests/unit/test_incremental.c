/* The incremental form of models that write: what is kept, what is computed once, what is refused, and that a step gives
 * the scores of the whole model however the row is cut into steps. */
#include <math.h>

#include "../support/compiled_graph.h"
#include "../support/same_values.h"
#include "incremental/incremental.h"

enum { ROWS = 2, LENGTH = 6, SOURCE = 3 };

TestSuite(incremental, .init = setup, .fini = teardown);

static Graph *attention_model(const char *mask) {
  return elaborated(arena_printf(
      arena,
      "model M(d = 4) { embed = Embedding(3, d)  q = Linear(d, d)  k = Linear(d, d)  v = Linear(d, d)\n"
      "  forward(ids: i32[batch, time]) { x = embed(ids)\n"
      "    s = split_heads(q(x), 2) @ transpose(split_heads(k(x), 2), 2, 3)\n"
      "    s = %s\n"
      "    return y = linear(x + merge_heads(softmax(s) @ split_heads(v(x), 2)), embed.weight) }\n"
      "  generate ids from y { bos = 1 } }",
      mask));
}

// ---- what is kept ----

static const char *inputs_of(Graph *graph) {
  StrBuf out = strbuf_new(arena);
  for (size_t i = 0; i < graph->inputs.n; i++) {
    strbuf_printf(&out, "%s%s ", i ? ", " : "", graph->inputs.items[i]->attr.name);
    node_print_shape(&out, graph->sizes, graph->inputs.items[i]);
  }
  return out.text;
}

static void expect_inputs(const Graph *graph, const char *source, const char *step) {
  const Incremental parts = incremental_derive(arena, &diag, graph, NULL);
  cr_assert_not_null(parts.step, "%s", parts.reason);
  cr_assert_str_eq(inputs_of(parts.step), step, "%s", inputs_of(parts.step));
  cr_assert_eq(parts.encoder != NULL, source != NULL);
  if (source) cr_assert_str_eq(inputs_of(parts.encoder), source, "%s", inputs_of(parts.encoder));
}

Test(incremental, keys_and_values_are_kept_as_they_are_projected) {
  expect_inputs(attention_model("where(causal_mask(x, x), -inf, s)"), NULL,
                "ids i32[batch, time.fresh], cache.0 f32[batch, time.past, 4], cache.1 f32[batch, time.past, 4]");
}

Test(incremental, a_mask_made_of_ids_is_kept_as_truths) {
  expect_inputs(attention_model("where(causal_mask(x, x) or (ids == 0)[:, none, none], -inf, s)"), NULL,
                "ids i32[batch, time.fresh], cache.0 f32[batch, time.past, 4], cache.1 bool[batch, time.past], "
                "cache.2 f32[batch, time.past, 4]");
}

Test(incremental, conversions_of_a_mask_are_not_kept) {
  expect_inputs(attention_model("where(causal_mask(x, x), -inf, s * f32(ids == 0)[:, none, none] + "
                                "f32(ids == 0)[:, none, none])"),
                NULL,
                "ids i32[batch, time.fresh], cache.0 f32[batch, time.past, 4], cache.1 bool[batch, time.past], "
                "cache.2 f32[batch, time.past, 4]");
}

// ---- states ----

static Graph *carried_model(const char *body) {
  return elaborated(arena_printf(arena,
                                 "model M(d = 4) { embed = Embedding(3, d)\n"
                                 "  forward(ids: i32[batch, time]) { x = embed(ids)\n%s"
                                 "    return y = linear(x, embed.weight) }\n"
                                 "  generate ids from y { bos = 1 } }",
                                 body));
}

Test(incremental, what_goes_on_from_position_to_position_has_a_state) {
  expect_inputs(carried_model("x = linear_attention(x[..., :3], x[..., :3], x, x[..., :1])\n"), NULL,
                "ids i32[batch, time.fresh], state.0 f32[batch, 3, 4]");
  expect_inputs(carried_model("x = cumsum(x, 1) + f32(cumsum(ids, 1))[..., none]\n"), NULL,
                "ids i32[batch, time.fresh], sum.0 f32[batch, 1, 4], sum.1 i32[batch, 1]");
}

Test(incremental, shifts_of_a_value_share_a_window) {
  expect_inputs(carried_model("x = x + shift(x, 1) + shift(x, 5) + where(shift(ids == 1, 2, 1), 1, 0.5)[..., none]\n"),
                NULL, "ids i32[batch, time.fresh], state.0 f32[batch, 5, 4], state.1 bool[batch, 2]");
}

Test(incremental, what_depends_on_no_token_has_no_state) {
  expect_inputs(carried_model("x = x + f32(cumsum(positions(ids, 1), 0))[:, none]\n"), NULL,
                "ids i32[batch, time.fresh]");
}

static void expect_no_states(const char *body, const char *reason) {
  const Incremental parts = incremental_derive(arena, &diag, carried_model(body), NULL);
  cr_assert_null(parts.step);
  cr_expect_str_eq(parts.reason, reason, "%s", parts.reason);
}

Test(incremental, states_that_cannot_be_followed) {
  expect_no_states("x = shift(x, -1)\n", "shift moves later positions to earlier ones");
  expect_no_states("x = shift(x, 5000)\n",
                   "shift by 5000 positions would keep as many rows; 4096 are kept at most");
  expect_no_states("x = shift(x, 1, axis = 0)\n", "shift looks from one row of the batch at others");
  expect_no_states("x = x + sum(cumsum(x @ transpose(x, 1, 2), 1), keepdim = true)\n",
                   "sum over positions whose later ones are not masked");
}

Test(incremental, a_factor_on_keys_stays_outside) {
  Graph *graph = elaborated(
      "model M(d = 4) { embed = Embedding(3, d)  k = Linear(d, d)\n"
      "  forward(ids: i32[batch, time]) { x = embed(ids)\n"
      "    s = where(causal_mask(x, x), -inf, x @ transpose(k(x) * 0.3, 1, 2))\n"
      "    return y = linear(softmax(s) @ (x * 0.7), embed.weight) }\n"
      "  generate ids from y { bos = 1 } }");
  const Incremental parts = incremental_derive(arena, &diag, graph, NULL);
  cr_assert_not_null(parts.step, "%s", parts.reason);
  for (size_t i = 2; i < parts.step->outputs.n; i++) { /* of the keys below their factor, of the values above theirs */
    const Node *cache = parts.step->outputs.items[i].node;
    bool is_keys = cache->users.n == 1 && cache->users.items[0]->op == OP_MUL;
    cr_expect_eq(cache->inputs.items[1]->op, is_keys ? OP_ADD : OP_MUL);
  }
}

Test(incremental, what_depends_on_the_source_is_computed_once) {
  expect_inputs(elaborated("model M(d = 4) { embed = Embedding(3, d)  k = Linear(d, d)\n"
                           "  forward(src: i32[batch, source], ids: i32[batch, time], unused: f32[batch]) {\n"
                           "    x = embed(ids)  m = embed(src)\n"
                           "    s = where((src == 0)[:, none], -inf, x @ transpose(k(m), 1, 2))\n"
                           "    return y = linear(softmax(s) @ m, embed.weight) }\n"
                           "  generate ids from y { bos = 1 } }"),
                "src i32[batch, source], unused f32[batch]",
                "ids i32[batch, time.fresh], encoded.0 f32[batch, source, 4], encoded.1 bool[batch, source], "
                "encoded.2 f32[batch, source, 4]");
}

Test(incremental, positions_alone_keep_nothing) {
  expect_inputs(elaborated("model M(d = 4) { embed = Embedding(3, d)  weight table: [9, d]\n"
                           "  forward(ids: i32[batch, time]) {\n"
                           "    x = embed(ids) + table[2:2 + shape(ids, 1)] -> PositionalEncoding(d)\n"
                           "    return y = linear(x, embed.weight) }\n"
                           "  generate ids from y { bos = 1 } }"),
                NULL, "ids i32[batch, time.fresh]");
}

Test(incremental, the_graph_is_not_changed) {
  Graph *graph = attention_model("where(causal_mask(x, x), -inf, s)");
  StrBuf before = strbuf_new(arena), after = strbuf_new(arena);
  graph_print(&before, graph);
  incremental_derive(arena, &diag, graph, NULL);
  graph_print(&after, graph);
  cr_assert_str_eq(before.text, after.text);
}

// ---- what is refused ----

static void expect_refusal(const Graph *graph, unsigned line, const char *reason) {
  PassLog log = {.arena = arena};
  const Incremental parts = incremental_derive(arena, &diag, graph, &log);
  cr_assert_null(parts.step, "it should be refused: %s", reason);
  cr_assert_null(parts.encoder);
  cr_expect(strstr(parts.reason, reason), "%s", parts.reason);
  const SrcSpan place = origin_place(&parts.origin);
  cr_expect_eq(source_place(place.source, place.begin).line, line);
  cr_assert_eq(log.records.n, 1);
  cr_expect(!log.records.items[0].done && !strcmp(log.records.items[0].reason, parts.reason));
}

#define ADDED "softmax over positions whose later ones are not masked by -inf: the mask adds -1e+09, a finite number; with -inf, " \
              "or where(mask, -inf, scores), the model is incremental"

Test(incremental, masks_that_let_something_through) {
  static const char *const masks[] = {
      "s", "where(transpose(causal_mask(x, x), 0, 1), -inf, s)",
      "where(not causal_mask(x, x), -inf, s)", "where(causal_mask(x, x) and (ids == 0)[:, none, none], -inf, s)",
      "where(positions(x, 1) > positions(x, 1)[:, none] + 1, -inf, s)",
      "where(positions(x, 1) // 2 > (positions(x, 1) // 2)[:, none], -inf, s)", "s + where(causal_mask(x, x), -1e9, 0)",
      "where(positions(x, 1) == positions(x, 1)[:, none] + 1, s, -inf)",
      "where(causal_mask(x, x), -inf, s) * x[..., :1][:, none]", "abs(where(causal_mask(x, x), -inf, s))"};
  for (size_t i = 0; i < sizeof masks / sizeof *masks; i++)
    expect_refusal(attention_model(masks[i]), 5, "softmax over positions whose later ones are not masked");
  expect_refusal(attention_model("s + where(causal_mask(x, x), -1e9, 0)"), 5, ADDED);
  expect_refusal(attention_model("s + f32(causal_mask(x, x)) * -1e9"), 5, ADDED);
  expect_refusal(attention_model("where((ids == 0)[:, none, none], -inf, (s + (f32(causal_mask(x, x)) + x[:1, :1, :1]) * 2 + "
                                 "where(causal_mask(x, x), -1e9, 0)) / 2)"), 5, ADDED);
  expect_refusal(attention_model("where(causal_mask(x, x), -1e9, s)"), 5, "masked by -1e+09, not by -inf");
  expect_refusal(attention_model("where(causal_mask(x, x), 0, s)"), 5, "masked by 0, not by -inf");
  expect_refusal(attention_model("maximum(where(causal_mask(x, x), -inf, s), 0)"), 5, "masked by 0, not by -inf");
}

Test(incremental, masks_that_let_nothing_through) {
  static const char *const masks[] = {
      "where(causal_mask(x, x), -inf, s)", "s + where(causal_mask(x, x), -inf, 0)",
      "where(not causal_mask(x, x), s, -inf)", "where((ids == 0)[:, none, none] or causal_mask(x, x), -inf, s)",
      "where(positions(x, 1) > positions(x, 1)[:, none], -inf, s)",
      "where(positions(x, 1)[:, none] - positions(x, 1) < 0, -inf, s)",
      "where(f32(positions(x, 1)) - f32(positions(x, 1)[:, none]) > 0.0, -inf, s)",
      "where(positions(x, 1) >= positions(x, 1)[:, none], -inf, s)",
      "where(positions(x, 1) == positions(x, 1)[:, none] - 1, s, -inf)",
      "where(positions(x, 1) + 2 != positions(x, 1)[:, none], -inf, s)",
      "where((ids == 0)[:, none, none], 1, where(causal_mask(x, x), -inf, s)) + where(causal_mask(x, x), -inf, 0)",
      "s + log(f32(not causal_mask(x, x)))", "minimum(s, where(causal_mask(x, x), -inf, 5))"};
  for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
    const Incremental parts = incremental_derive(arena, &diag, attention_model(masks[i]), NULL);
    cr_expect_not_null(parts.step, "%s: %s", masks[i], parts.reason);
  }
}

/* What is done to the rows x of a model, in its line 2. */
static Graph *row_model(const char *rows) {
  return elaborated(arena_printf(arena,
                                 "model M(d = 4) { embed = Embedding(3, d) forward(ids: i32[batch, time]) { x = embed(ids)\n"
                                 "    x = %s\n"
                                 "    return y = linear(x, embed.weight) }\n"
                                 "  generate ids from y { bos = 1 } }",
                                 rows));
}

Test(incremental, rows_that_look_at_others) {
  static const struct {
    const char *rows, *reason;
  } cases[] = {{"x + mean(x, axis = 1, keepdim = true)", "mean over all positions"},
               {"x + sum(x, axis = 1, keepdim = true)", "sum over positions whose later ones are not masked"},
               {"x + max(x, axis = 1, keepdim = true)", "max over positions"},
               {"x + f32(argmax(x, axis = 1))[:, none]", "argmax over all positions"},
               {"softmax(x, axis = 1)", "softmax over positions whose later ones are not masked"},
               {"x + concat(x[:, 1:], x[:, :1], axis = 1)", "concat along the positions"},
               {"x + x[:, :1]", "positions are cut out of a row"},
               {"x + x[:, -1:]", "positions are cut out of a row"},
               {"x * shape(x, 1)", "time is used as a number"},
               {"x + f32(positions(x, 1) - shape(x, 1))[:, none]", "time is used as a number"},
               {"reshape(transpose(x, 1, 2), [shape(x, 0), shape(x, 1), d])", "reshape moves positions"},
               {"x + tanh(transpose(x, 1, 2) @ x)[:, 0][:, none]", "a product over positions"},
               {"x + mean(x, axis = 0, keepdim = true)", "from one row of the batch at others"},
               {"x + f32(positions(x, 0))[:, none, none]", "from one row of the batch at others"},
               {"x + softmax(x, axis = 0)", "from one row of the batch at others"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_refusal(row_model(cases[i].rows), 2, cases[i].reason);
}

Test(incremental, keys_that_belong_to_no_position) {
  static const char *const configs[] = {"add_bias_kv = true", "add_zero_attn = true", "add_bias_kv = true, add_zero_attn = true"};
  for (int i = 0; i < 3; i++)
    expect_refusal(elaborated(arena_printf(arena,
                                           "model M(d = 4) { embed = Embedding(3, d)  attn = MultiheadAttention(d, 2, %s)\n"
                                           "  forward(ids: i32[batch, time]) { x = embed(ids)\n"
                                           "    return y = linear(attn(x, x, x, is_causal = true), embed.weight) }\n"
                                           "  generate ids from y { bos = 1 } }", configs[i])),
                   3, arena_printf(arena, "extra keys are appended to the key axis, which is of size time + %d: positions can "
                                          "only be followed on an axis of size time", i == 2 ? 2 : 1));
  expect_refusal(row_model("x + sum(concat(x, x[:, :1] * 0, axis = 1) * 1, axis = 1, keepdim = true)"), 2,
                 "an axis of size time + 1: positions can only be followed on an axis of size time");
}

Test(incremental, checks_speak_of_the_length_by_its_name) {
  Graph *graph = elaborated("model M(d = 4) { embed = Embedding(3, d)  weight table: [9, d]\n"
                            "  forward(ids: i32[batch, time]) { require 2 * time < 99, \"{time} of {batch}\"\n"
                            "    return y = linear(embed(ids) + table[2:2 + shape(ids, 1)], embed.weight) }\n"
                            "  generate ids from y { bos = 1 } }");
  const Incremental parts = incremental_derive(arena, &diag, graph, NULL);
  StrBuf text = strbuf_new(arena);
  graph_print(&text, parts.step);
  cr_expect(strstr(text.text, "\"{time.past + time.fresh} of {batch}\""), "%s", text.text);
  cr_expect(strstr(text.text, "\"the slice 2 : time + 2 = {time.past + time.fresh + 2} is not within an axis of 9\""), "%s",
            text.text);
}

/* What the forms are made of has ordinary sizes: one run is of items that have the same. */
Test(incremental, sources_of_different_lengths) {
  const char *text = "model M(d = 4) { embed = Embedding(3, d)\n"
                     "  forward(src: i32[batch, ragged source], n: i32[batch, ragged more], ids: i32[batch, ragged time]) {\n"
                     "    require source <= more * batch, \"{batch}\"\n"
                     "    x = embed(ids)  m = embed(src)  k = embed(n)\n"
                     "    return y = linear(softmax(x @ transpose(m, 1, 2)) @ m + softmax(x @ transpose(k, 1, 2)) @ k, embed.weight) }\n"
                     "  generate ids from y { bos = 1 } }";
  const Incremental parts = incremental_derive(arena, &diag, elaborated(text), NULL);
  cr_assert(parts.step && parts.encoder, "%s", parts.reason);
  cr_assert_eq(parts.n_ragged, 2);
  cr_expect_str_eq(parts.ragged[0], "source");
  cr_expect_str_eq(parts.ragged[1], "more");
  StrBuf step = strbuf_new(arena), source = strbuf_new(arena);
  graph_print(&step, parts.step);
  graph_print(&source, parts.encoder);
  cr_expect_null(strstr(step.text, "ragged"), "%s", step.text);
  cr_expect_null(strstr(source.text, "ragged"), "%s", source.text);
  cr_expect(strstr(source.text, "source <= more, \"{1}\""), "one item: %s", source.text);
}

/* The whole model checks what no step looks at. */
Test(incremental, sources_of_different_lengths_that_are_not_read) {
  expect_refusal(elaborated("model M(d = 4) { embed = Embedding(3, d)\n"
                            "  forward(src: i32[batch, ragged source], ids: i32[batch, time]) {\n"
                            "    return y = linear(embed(ids), embed.weight) }\n"
                            "  generate ids from y { bos = 1 } }"),
                 3, "a step needs the size of an input that it does not read");
}

Test(incremental, a_model_that_does_not_write) {
  const Incremental parts = incremental_derive(
      arena, &diag, elaborated("model M { forward(x: f32[batch, 4]) { return y = x + 1 } }"), NULL);
  cr_assert_null(parts.step);
  cr_assert_not_null(parts.reason);
}

// ---- the same scores ----

typedef struct Trial {
  Graph *whole;
  Incremental parts;
  RandomWeights weights;
  Tensor src, *want; /* of the whole model */
  Tensor *sources, *caches;
  int32_t ids[ROWS][LENGTH];
} Trial;

static Tensor tokens(const Trial *t, int64_t first, int64_t n) {
  Tensor tensor = *tensor_new(arena, DTYPE_I32, 2, (int64_t[]){ROWS, n});
  for (int64_t i = 0; i < ROWS; i++)
    memcpy((int32_t *)tensor.data + i * n, t->ids[i] + first, (size_t)n * sizeof(int32_t));
  return tensor;
}

static Trial trial(const char *whole, const char *text) {
  Trial t = {.whole = elaborated(whole)};
  for (int32_t i = 0; i < ROWS * LENGTH; i++) t.ids[i / LENGTH][i % LENGTH] = i * 7 % 5 % 3;
  t.parts = incremental_derive(arena, &diag, elaborated(text), NULL);
  cr_assert_not_null(t.parts.step, "%s", t.parts.reason);
  t.weights = (RandomWeights){.arena = arena, .graph = t.whole, .made = map_new(arena)};
  t.src = *tensor_new(arena, DTYPE_I32, 2, (int64_t[]){ROWS, SOURCE});
  for (int32_t i = 0; i < ROWS * SOURCE; i++) ((int32_t *)t.src.data)[i] = (i * 5 + 1) % 3;
  t.sources = ARENA_ARRAY(arena, Tensor, t.parts.n_encoded);
  t.caches = ARENA_ARRAY(arena, Tensor, t.parts.n_caches);
  t.want = ARENA_ARRAY(arena, Tensor, t.whole->outputs.n);
  return t;
}

static void run_whole(Trial *t) {
  const char *names[] = {"ids", "src"};
  const Tensor tensors[] = {tokens(t, 0, LENGTH), t->src};
  const EvalInputs inputs = {names, tensors, t->parts.encoder ? 2 : 1}, given = {names + 1, tensors + 1, 1};
  const EvalCall whole = {t->whole, random_weight, &t->weights, .inputs = &inputs};
  const EvalCall encoder = {t->parts.encoder, random_weight, &t->weights, .inputs = &given};
  cr_assert(graph_eval(arena, &diag, &whole, t->want), "%s", fault());
  if (!t->parts.encoder) return;
  cr_assert(graph_eval(arena, &diag, &encoder, t->sources), "%s", fault());
}

static Tensor no_positions(const Node *input) {
  int64_t sizes[SIZE_MAX_SYMBOLS] = {ROWS}, dims[MAX_RANK]; /* batch is the first */
  for (uint32_t i = 0; i < input->rank; i++) size_value(input->dims[i], sizes, &dims[i]);
  return *tensor_new(arena, input->dtype, input->rank, dims);
}

static EvalInputs step_inputs(Trial *t, int64_t past, int64_t fresh) {
  const Graph *step = t->parts.step;
  EvalInputs inputs = {NULL, NULL, (uint32_t)step->inputs.n};
  const char **names = ARENA_ARRAY(arena, const char *, inputs.n);
  Tensor *tensors = ARENA_ARRAY(arena, Tensor, inputs.n);
  for (uint32_t i = 0; i < inputs.n; i++) {
    const Node *node = step->inputs.items[i];
    const Role role = node->attr.role;
    names[i] = node->attr.name;
    if (role.kind == ROLE_CACHE) tensors[i] = past ? t->caches[role.number] : no_positions(node);
    else tensors[i] = role.kind == ROLE_ENCODED ? t->sources[role.number] : tokens(t, past, fresh);
  }
  return (EvalInputs){names, tensors, inputs.n};
}

static void compare(const Trial *t, const Tensor *got, int64_t end) {
  const int64_t kept = got[0].dims[1], vocab = got[0].dims[2];
  for (int64_t i = 0; i < ROWS * kept; i++) {
    double sum = 0;
    int64_t position = end - kept + i % kept;
    for (int64_t j = 0; j < vocab; j++) {
      double score = element_of(&got[0], i * vocab + j);
      cr_expect(near(score, element_of(t->want, ((i / kept) * LENGTH + position) * vocab + j)), "position %lld",
                (long long)position);
      sum += exp(score);
    }
    cr_expect(near(element_of(&got[1], i), log(sum)));
  }
}

/* Steps of these numbers of tokens. */
static void expect_same(const char *whole, const char *text, const int64_t *chunks) {
  Trial t = trial(whole, text);
  run_whole(&t);
  for (int64_t past = 0; past < LENGTH; past += *chunks++) {
    const int64_t kept = *chunks > 2 ? 2 : *chunks;
    const EvalSize sizes[] = {{"time.past", past}, {"time.kept", kept}};
    const EvalInputs inputs = step_inputs(&t, past, *chunks);
    const EvalCall step = {t.parts.step, random_weight, &t.weights, &inputs, {.sizes = sizes, .n_sizes = 2}};
    Tensor *outputs = ARENA_ARRAY(arena, Tensor, t.parts.step->outputs.n);
    cr_assert(graph_eval(arena, &diag, &step, outputs), "%s", fault());
    cr_assert_eq(outputs[0].dims[1], kept);
    compare(&t, outputs, past + *chunks);
    for (uint32_t i = 0; i < t.parts.n_caches; i++) t.caches[i] = outputs[2 + i];
  }
}

/* The steps of the model `text` give the scores of `whole`, which may give those of more positions. */
static void expect_scores_of(const char *whole, const char *text) {
  static const int64_t splits[][LENGTH + 1] = {{6}, {1, 1, 1, 1, 1, 1}, {3, 3}, {1, 5}, {4, 1, 1}};
  for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) expect_same(whole, text, splits[i]);
}

static void expect_same_scores(const char *text) { expect_scores_of(text, text); }

Test(incremental, a_translator) {
  expect_same_scores(
      "model M(d = 8) { embed = Embedding(3, d)  position = PositionalEncoding(d)  t = Transformer(d, 2, 1, 2, 12)\n"
      "  forward(src: i32[batch, source], ids: i32[batch, time]) {\n"
      "    hidden = t(embed(src) -> position, embed(ids) -> position, tgt_is_causal = true,\n"
      "               src_key_padding_mask = src == 0, tgt_key_padding_mask = ids == 0, memory_key_padding_mask = src == 0)\n"
      "    return y = linear(hidden, embed.weight) }\n"
      "  generate ids from y { bos = 1 } }");
}

Test(incremental, grouped_keys_that_are_rotated) {
  expect_same_scores(
      "model M(d = 8) { embed = Embedding(3, d)  q = Linear(d, 8)  k = Linear(d, 4)  v = Linear(d, 4)\n"
      "  forward(ids: i32[batch, time]) { x = embed(ids)\n"
      "    q = rotary(split_heads(q(x), 4), positions(x, 1))  k = rotary(split_heads(k(x), 2), positions(x, 1))\n"
      "    q = reshape(q, [shape(x, 0), 2, 2, shape(x, 1), 2])\n"
      "    s = where(causal_mask(q, q), -inf, q @ transpose(k, 2, 3)[:, :, none])\n"
      "    a = reshape(softmax(s) @ split_heads(v(x), 2)[:, :, none], [shape(x, 0), 4, shape(x, 1), 2])\n"
      "    return y = linear(x + merge_heads(a), embed.weight) }\n"
      "  generate ids from y { bos = 1 } }");
}

Test(incremental, sums_over_what_came_before) {
  expect_same_scores(
      "model M(d = 4) { embed = Embedding(3, d)  places = Embedding(9, d)\n"
      "  forward(ids: i32[batch, time]) { later = causal_mask(ids, axis = 1)\n"
      "    real = f32(ids != 0)[:, none]\n"
      "    x = embed(ids) + places(i32(sum(where(later, 0, real))))\n"
      "    s = where(later, 0, exp(x @ transpose(x, 1, 2)))\n"
      "    return y = linear(s @ x / sum(s, keepdim = true), embed.weight) }\n"
      "  generate ids from y { bos = 1 } }");
}

Test(incremental, attention_of_attention) {
  expect_same_scores(
      "model M(d = 4) { embed = Embedding(3, d)  mix = Linear(2, 2, bias = false)\n"
      "  forward(ids: i32[batch, time]) { x = embed(ids)\n"
      "    q = split_heads(x, 2)\n"
      "    a = softmax(where(causal_mask(q, q), -inf, q @ transpose(q, 2, 3)))\n"
      "    b = transpose(mix(transpose(a @ a, 1, 3)), 1, 3)\n"
      "    return y = linear(merge_heads(b @ q) + mean(b, axis = 1) @ x, embed.weight) }\n"
      "  generate ids from y { bos = 1 } }");
}

Test(incremental, rows_of_all_items_as_one) {
  expect_same_scores(
      "model M(d = 4) { embed = Embedding(3, d)  f = Linear(d, d)\n"
      "  forward(ids: i32[batch, time]) { x = embed(ids)\n"
      "    y = reshape(tanh(f(reshape(x, [batch * time, d]))), [batch, time, d])\n"
      "    a = softmax(where(causal_mask(x, y), -inf, x @ transpose(y, 1, 2)))\n"
      "    return y = linear(a @ y, embed.weight) }\n"
      "  generate ids from y { bos = 1 } }");
}

Test(incremental, probabilities_used_whole_and_in_part) {
  expect_same_scores(
      "model M(d = 4) { embed = Embedding(3, d)\n"
      "  forward(ids: i32[batch, time]) { x = embed(ids)\n"
      "    a = softmax(where(causal_mask(x, x), -inf, x @ transpose(x, 1, 2)))\n"
      "    back = sum(where(causal_mask(x, x), 0, transpose(a, 1, 2)))\n"
      "    return y = linear(a @ x + back[:, :, none], embed.weight) }\n"
      "  generate ids from y { bos = 1 } }");
}

Test(incremental, the_last_row_alone) {
  const Incremental parts = incremental_derive(
      arena, &diag,
      elaborated("model M(d = 4) { embed = Embedding(3, d)  head = Linear(d, 3)\n"
                 "  forward(ids: i32[batch, time]) { return y = head(relu(embed(ids)[:, -1:])) }\n"
                 "  generate ids from y { bos = 1 } }"),
      NULL);
  cr_assert_not_null(parts.step, "%s", parts.reason);
  StrBuf shape = strbuf_new(arena);
  node_print_shape(&shape, parts.step->sizes, parts.step->outputs.items[0].node);
  cr_assert_str_eq(shape.text, "f32[batch, time.kept, 3]");
}

#define LAST(positions)                                                           \
  "model M(d = 8) { embed = Embedding(3, d)  head = Linear(4, 3)\n"               \
  "  forward(ids: i32[batch, time]) { x = embed(ids)\n"                           \
  "    a = softmax(where(causal_mask(x, x), -inf, x @ transpose(x, 1, 2))) @ x\n" \
  "    return y = head(tanh(a[:, " positions                                      \
  ", 2:6])) }\n"                                                                  \
  "  generate ids from y { bos = 1 } }"

/* Columns are cut by the slice that cuts the last position, too. */
Test(incremental, some_columns_of_the_last_row) { expect_scores_of(LAST(":"), LAST("time - 1:")); }
