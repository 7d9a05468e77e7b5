/* Elaboration of small programs: the lines of the graph, the paths of weights, checks of the run, origins, warnings.
 * What is refused, and how, is in tests/errors. */
#include <stdio.h>

#include "../support/compiled_graph.h"
#include "elaborate/objective.h"

static ElaborateOptions options;
static Definition definitions[4];

static void setup_options(void) {
  setup();
  options = (ElaborateOptions){.definitions = definitions};
}
TestSuite(elaborate, .init = setup_options, .fini = teardown);

static void define(const char *name, const char *expression) {
  definitions[options.n_definitions++] = (Definition){name, expression};
}

static Graph *tried(const char *text) { return elaborate_text(arena, &diag, text, &options); }

static Graph *good(const char *text) {
  Graph *graph = tried(text);
  cr_assert(graph, "%s\n%s", text, messages());
  cr_assert(graph_verify(graph, &diag), "%s\n%s", text, messages());
  return graph;
}

/* The lines stand in the printed graph, in this order. */
static void expect_lines(const char *text, const char *const *lines) {
  const char *graph = printed(good(text)), *at = graph;
  for (; *lines; lines++) {
    const char *found = strstr(at, *lines);
    cr_expect(found, "%s\nlacks (here or after the line before)\n%s\nin\n%s", text, *lines, graph);
    if (found) at = found + strlen(*lines);
  }
}
#define LINES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect_weights(const char *text, const char *want) {
  Graph *graph = good(text);
  StrBuf got = strbuf_new(arena);
  for (size_t i = 0; i < graph->declared_weights.n; i++) {
    strbuf_printf(&got, "%s%s", i ? " " : "", graph->declared_weights.items[i].key);
  }
  cr_expect_str_eq(got.text, want, "%s", text);
}

static void expect_refused(const char *text, const char *message) {
  cr_expect(!tried(text), "%s", text);
  cr_expect(strstr(messages(), message), "%s\nlacks %s in\n%s", text, message, messages());
}

// ---- models ----

Test(elaborate, a_small_model) {
  Graph *graph = good("model Head(d = 4) { head = Linear(d, 2 * d)\n"
                      "forward(x: f32[batch, time, d]) { y = x -> head -> relu return y } }");
  cr_expect_str_eq(printed(graph),
                   "graph Head(sizes batch, time) {\n"
                   "  %0 = weight \"head.weight\" : f32[8, 4]\n"
                   "  %1 = weight \"head.bias\" : f32[8]\n"
                   "  %2 = input \"x\" : f32[batch, time, 4]\n"
                   "  %3 = linear %2, %0 : f32[batch, time, 8]\n"
                   "  %4 = add %3, %1 : f32[batch, time, 8]\n"
                   "  %5 = relu %4 : f32[batch, time, 8]\n"
                   "  output y = %5\n"
                   "}\n");
  cr_expect_eq(diag.messages.n, 0);
}

Test(elaborate, standard_layers_give_no_warnings) {
  good("model All { a = Linear(4, 4) b = Embedding(4, 4) c = LayerNorm(4) d = RMSNorm(4) e = PositionalEncoding(4)\n"
       "f = MultiheadAttention(4, 2) g = EncoderLayer(4, 2, 8) h = DecoderLayer(4, 2, 8) i = Encoder(4, 2, 1, 8)\n"
       "j = Decoder(4, 2, 1, 8) k = Transformer(4, 2, 1, 1, 8)\n"
       "forward(x: f32[batch, time, 4], ids: i32[batch, time]) {\n"
       "  y = x -> a -> c -> d -> e -> f -> g -> h(x) -> i -> j(x) -> k(x)\n"
       "  return y, z = b(ids) } }");
  cr_expect_eq(diag.messages.n, 0, "%s", messages());
}

Test(elaborate, outputs_of_every_kind) {
  expect_lines("model M { weight w: [3] forward(x: f32[n], i: i32[n], idle: bool[n]) {"
               " return x, again = x, i, w, first = w[0], c = full([2], 0.5) } }",
               LINES("input \"idle\"", "output x = %1", "output again = %1", "output i = %2", "output w = %0"));
}

Test(elaborate, what_no_output_needs_is_gone) {
  Graph *graph = good("model M { a = Linear(2, 2) b = Linear(2, 3) forward(x: f32[n, 2]) {"
                      " dead = b(x) return y = a(x) } }");
  cr_expect_null(strstr(printed(graph), "b.weight"));
  cr_expect(map_has(&graph->declared_weights, "b.weight"));
}

Test(elaborate, models_are_chosen_by_name) {
  const char *text = "model One { forward(x: f32[n]) { return y = x } }\n"
                     "model Two { one = One() forward(x: f32[n]) { return y = one(x) * 2 } }";
  expect_refused(text, "choose one with --model");
  diag = diag_new(arena);
  options.model = "Two";
  cr_expect_str_eq(good(text)->name, "Two");
}

// ---- config ----

Test(elaborate, definitions_stand_where_the_defaults_would) {
  define("d", "2 * 3");
  define("heads", "d // 2");
  define("act", "silu");
  expect_lines("model M(d = 4, heads = 2, act = relu, wide = 2 * d) { forward(x: f32[batch, d]) {"
               " return y = act(x), h = full([heads], 1), w = full([wide], 1) } }",
               LINES("input \"x\" : f32[batch, 6]", "silu %0", "f32[3]", "f32[12]"));
}

Test(elaborate, the_last_definition_wins) {
  define("d", "3");
  define("d", "5");
  expect_lines("model M(d) { forward(x: f32[d]) { return x } }", LINES("f32[5]"));
}

/* The number that an expression gives. */
static void expect_number(const char *expression, double want) {
  char text[512];
  snprintf(text, sizeof text, "model M(a = 7) { forward(x: f32[n]) { return y = full([1], %s) } }", expression);
  Graph *graph = good(text);
  cr_expect_eq(graph->outputs.items[0].node->attr.number, want, "%s is %g", expression,
               graph->outputs.items[0].node->attr.number);
}

Test(elaborate, numbers) {
  static const struct {
    const char *expression;
    double want;
  } cases[] = {
      {"a // 2", 3},
      {"-a // 2", -4},
      {"a // -2", -4},
      {"-a % 3", 2},
      {"a % -3", -2},
      {"a / 2", 3.5},
      {"2 * 3.5", 7},
      {"-7.5 // 2", -4},
      {"-7.5 % 2", 0.5},
      {"sqrt(16)", 4},
      {"maximum(2, 3.5)", 3.5},
      {"minimum(a, 3)", 3},
      {"i32(0.25 * 14)", 3},
      {"i32(-3.5)", -3},
      {"f32(a) / 2", 3.5},
      {"1e-5", 1e-5},
      {"if a > 3 and not (a == 8) then 1 else 2", 1},
      {"if a != 7 or a >= 8 then 1 else 2", 2},
      {"if a == 7.0 then 1 else 2", 1},
      {"if relu == relu then 1 else 2", 1},
      {"if \"a\" == \"b\" then 1 else 2", 2},
      {"if none == a then 1 else 2", 2},
      {"if [1, a] == [1, 7] then 1 else 2", 1},
      {"if true == 1 then 1 else 2", 2},
      {"rank(x)", 1},
      {"if dtype(x) == f32 then 1 else 2", 1},
      {"if true or missing then 1 else 2", 1},
      {"9223372036854775807 - 1 + 1", 9223372036854775807.0},
      {"-inf", -1.0 / 0.0},
      {"if 9007199254740993 > 9007199254740992 then 1 else 2", 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_number(cases[i].expression, cases[i].want);
}

Test(elaborate, sizes_are_polynomials) {
  expect_lines("model M { forward(x: f32[b, t, 8], y: f32[b, s, 8]) { n = t + s"
               " require shape(concat(x, y, axis = 1), 1) == n and 2 * t - t == t, \"never\""
               " return f = reshape(x, [b * t, 8]), g = full([2 * n, (4 * t) // 2], 0) } }",
               LINES("f32[b*t, 8]", "f32[2*t + 2*s, 2*t]"));
}

Test(elaborate, a_rest_that_is_a_number_is_rounded_off) {
  expect_lines("model M { forward(x: f32[t]) { return f = full([(2 * t + 1) // 2, (4 * t + 7) // 4, (6 * t - 1) // 3 + 1, "
               "(2 * t - 1) % 2 + 3], 0) } }",
               LINES("f32[t, t + 1, 2*t, 4]"));
}

Test(elaborate, sizes_are_rounded_down) {
  expect_lines(
      "model M { forward(x: f32[t, u]) { return f = full([t // 2, (t + 1) // 2 // 3, t % 2, (t - 1) // 3 * u], 0), "
      "g = x[::2, 1::3] } }",
      LINES("f32[t//2, (t + 1)//6, t - 2*(t//2), u*((t + 2)//3) - u]", "f32[(t + 1)//2, (u + 1)//3]"));
  expect_refused("model M { forward(x: f32[t]) { return f = full([7 // t], 0) } }", "7 // t is not a size");
}

/* How many conditions a model with this body has for a run to check. */
static size_t conditions(const char *body) {
  return good(arena_printf(arena, "model M { forward(x: f32[t, u]) { %s } }", body))->checks.n;
}

Test(elaborate, what_holds_in_every_run_is_no_condition) {
  cr_expect_eq(conditions("return y = x[: t // 2], z = x[t // 3 : t // 2], w = x[2 * (t // 2) :]"), 0);
  cr_expect_eq(conditions("return y = x[: t // 4 + t // 2], z = x[:, (u - u // 2) // 2 :], w = x[: t // 2][: t // 5]"),
               0);
  cr_expect_eq(conditions("return y = full([t - 2 * (t // 2) + u - u // 7, u * t - u * (t // 9)], 1)"), 0);
  cr_expect_eq(conditions("return y = conv1d(x[none], full([3, t, 3], 1), stride = 2, padding = 1)"), 1);
  cr_expect_eq(conditions("return y = x[: t // 2 + 1]"), 1);
  cr_expect_eq(conditions("return y = x[t // 2 : t // 3]"), 1);
  cr_expect_eq(conditions("return y = x[: 2 * (t // 2) + 1]"), 1);
  cr_expect_eq(conditions("return y = x[: t // 2 + (t + 1) // 2 + t // 100]"), 1);
  cr_expect_eq(conditions("return y = full([t // 2 - u // 2], 1)"), 1);
}

// ---- paths ----

Test(elaborate, paths_of_weights) {
  expect_weights(
      "layer Step(d) { proj = Linear(d, d, bias = false) as \"\"  weight scale: [d] as \"s\"  forward(x) = proj(x) * "
      "scale }\n"
      "model M { own = 2 * Step(2)  deep = Step(2) as \"a.b\"  flat = Step(2) as \"\"  shared = 3 * deep\n"
      "forward(x: f32[n, 2]) { return y = x -> own -> deep -> flat -> shared } }",
      "own.0.weight own.0.s own.1.weight own.1.s a.b.weight a.b.s weight s");
}

Test(elaborate, modules_without_a_name) {
  expect_weights("layer MyFFN(d) { forward(x) = x -> Linear(d, d, bias = false) -> relu -> Linear(d, d, false) }\n"
                 "model M { forward(x: f32[n, 2]) { return y = x -> MyFFN(2) -> 2 * RMSNorm(2) -> RMSNorm(2) } }",
                 "my_ffn.linear.weight my_ffn.linear_2.weight rms_norm.0.weight rms_norm.1.weight rms_norm_2.weight");
}

Test(elaborate, modules_given_as_config) {
  expect_weights("layer Wrap(inner, other) { forward(x) = x -> inner -> other }\n"
                 "model M { named = Linear(2, 2, false)  wrap = Wrap(Linear(2, 2, bias = false), named)\n"
                 "forward(x: f32[n, 2]) { return y = wrap(x) } }",
                 "named.weight wrap.inner.weight");
}

Test(elaborate, one_path_is_one_weight) {
  expect_lines("model M { a = Linear(2, 2, false) as \"w\"  b = Linear(2, 2, false) as \"w\"\n"
               "forward(x: f32[n, 2]) { return y = x -> a -> b } }",
               LINES("%0 = weight \"w.weight\"", "%1 = input", "%2 = linear %1, %0", "%3 = linear %2, %0"));
}

Test(elaborate, a_prefix_stands_before_every_path) {
  options.weights_prefix = "bert.";
  expect_weights("model M { a = Linear(2, 2, false) forward(x: f32[n, 2]) { return y = a(x) } }", "bert.a.weight");
}

Test(elaborate, members_are_found_before_weights_and_config) {
  expect_lines("layer Both(bias, w) { weight b: [3] as \"bias\"  n = 2  forward(x) = x + b * bias }\n"
               "model M { m = Both(5, 6) forward(x: f32[3]) { return y = m(x), b = m.bias, w = full([m.w, m.n], 0) } }",
               LINES("output b = %0"));
}

// ---- calls ----

Test(elaborate, repetitions_thread_and_stack) {
  expect_lines(
      "layer Step(d) { forward(x, by = 1) { h = x * by return x + h, h } }\n"
      "model M { own = 2 * Step(2)  none_ = 0 * Step(2)\n"
      "forward(x: f32[n]) { y, hs = own(x, by = 3)  return y, hs, same = none_(x), last = own[-1](x), z = x -> 2 * (2 "
      "* own) } }",
      LINES("mul", "add", "reshape", "f32[1, n]", "concat", "f32[2, n]", "output y", "output same = %0"));
}

/* What a list of equal layers compiles to is what a repetition compiles to: the graphs are the same, to the letter. */
Test(elaborate, a_comprehension_of_equal_layers_is_a_repetition) {
  static const char *const lists[] = {"3 * EncoderLayer(8, 2, 16)", "[EncoderLayer(8, 2, 16) for i in 3]",
                                      "[EncoderLayer(8, 2, 16), EncoderLayer(8, 2, 16), EncoderLayer(8, 2, 16)]",
                                      "2 * EncoderLayer(8, 2, 16) + [EncoderLayer(8, 2, 16)]"};
  const char *first = NULL;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const char *text = arena_printf(arena,
                                    "model M { layers = %s forward(x: f32[batch, time, 8]) "
                                    "{ y, maps = layers(x) return y, maps } }",
                                    lists[i]);
    const char *graph = printed(good(text));
    if (!first) first = graph;
    cr_expect_str_eq(graph, first, "%s", lists[i]);
  }
}

/* What travels from module to module may be given by the name that the first of them, at whatever depth, has for it. */
Test(elaborate, the_first_argument_of_a_list_may_be_named) {
  static const char *const calls[] = {"layers(x, 3)", "layers(x = x, by = 3)", "layers(by = 3, x = x)"};
  static const char *const lists[] = {"2 * L(n)", "[[L(n), L(n)], L(n)]"};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const char *first = NULL;
    for (size_t j = 0; j < sizeof calls / sizeof *calls; j++) {
      const char *graph = printed(good(arena_printf(arena,
                                                    "layer L(n) { weight w: [n]  forward(x, by = 1) = x * w * by }\n"
                                                    "model M(n = 4) { layers = %s  forward(x: f32[n]) { return y = %s } }",
                                                    lists[i], calls[j])));
      if (!first) first = graph;
      cr_expect_str_eq(graph, first, "%s", calls[j]);
    }
  }
}

Test(elaborate, lists_of_modules_have_paths) {
  expect_weights(
      "layer L(n) { weight w: [n]  forward(x) = x * sum(w) }\n"
      "model M { part = \"p\"  a = [L(i) as \"b{i}\" for i in [1, 3]] as \"enc\"\n"
      "b = [L(1), [L(2), relu], a[0]]  c = L(1) as \"{part}.q\"  d = [L(1), L(2)] as \"\"\n"
      "forward(x: f32[n]) { return y = x -> a -> b -> c -> d } }\n",
      "enc.b1.w enc.b3.w b.0.w b.1.0.w p.q.w 0.w 1.w");
}

Test(elaborate, loops_are_unrolled) {
  expect_lines(
      "fn steps(x, n) { for i in n { x = x + i } if i == 2 { return x } }\n"
      "model M { forward(x: f32[n]) { return y = steps(x, 3) } }",
      LINES("full 0.0", "add", "full 1.0", "add", "full 2.0", "add", "output y"));
  expect_lines(
      "fn first(x, list) { for i in list { if i > 1 { return x * i } } return x }\n"
      "model M { forward(x: f32[n]) { return y = first(x, [0, 1, 5, 7]) } }",
      LINES("full 5.0", "mul", "output y"));
}

Test(elaborate, lists_are_values) {
  expect_number("len([1, 2, 3] + [i for i in 4])", 7);
  expect_number("sum([i * i for i in [1, 2, 3]])", 14);
  expect_number("max([3, 7, 5]) - min([3, 7, 5])", 4);
  expect_number("sum([])", 0);
  expect_number("[1, [2, 3]][1][-1]", 3);
  expect_number("[10, 11, 12, 13, 14][1:][::2][1]", 13);
  expect_number("if [1, [2]] == [1, [2]] and is_list([]) and not is_list(1) then 1 else 0", 1);
}

Test(elaborate, tuples_stand_for_their_first) {
  expect_lines(
      "layer Two { forward(x) { return x * 2, x * 3 } }\n"
      "model M { two = Two() forward(x: f32[n]) { a, b = two(x) return y = x -> two -> relu, z = two(x) + 1, b } }",
      LINES("mul", "relu", "add"));
}

Test(elaborate, pipes_and_brackets) {
  expect_lines("model M { fn by(n) = if n == 1 then relu else tanh\n fn twice(x, f) = f(f(x))\n"
               "forward(x: f32[n]) { return a = x -> (by(1)), b = x -> (by(2)), c = x -> twice(f = sigmoid) } }",
               LINES("relu %0", "tanh %0", "sigmoid %0", "sigmoid %3"));
}

Test(elaborate, defaults_use_earlier_parameters) {
  expect_lines("model M { fn f(a, b = a * 2, c = none) { if c == none { return a + b } return b }\n"
               "forward(x: f32[n]) { return y = f(x), z = f(x, c = x, b = x) } }",
               LINES("mul %0", "add %0", "output z = %0"));
}

Test(elaborate, names_of_a_taken_branch_stay) {
  expect_lines("model M(k = 2) { if k == 1 { v = 1 } else if k == 2 { v = 5 } else { v = 7 }\n"
               "forward(x: f32[n]) { if k == 2 { y = x * v } else { z = x } return y } }",
               LINES("full 5"));
}

Test(elaborate, typed_parameters_name_free_sizes) {
  expect_lines("layer L(d) { forward(x: f32[rows, d]) = reshape(x, [d, rows]) }\n"
               "model M { l = L(4) forward(x: f32[batch, 4]) { return y = l(x) } }",
               LINES("reshape %0 : f32[4, batch]"));
}

// ---- tensors ----

Test(elaborate, slices) {
  expect_lines(
      "model M { forward(x: f32[b, t, 6], i: i32[t]) { return a = x[0], c = x[:, -1], d = x[..., 2:-1], e = x[:, none],"
      " f = x[...], g = x[:, 1:], h = i[-3:], k = x[0, :2, ..., none] } }",
      LINES("slice %0, starts=[0, 0, 0] : f32[1, t, 6]", "reshape %2 : f32[t, 6]",
            "slice %0, starts=[0, t - 1, 0] : f32[b, 1, 6]", "slice %0, starts=[0, 0, 2] : f32[b, t, 3]",
            "reshape %0 : f32[b, 1, t, 6]", "slice %0, starts=[0, 1, 0] : f32[b, t - 1, 6]",
            "slice %1, starts=[t - 3] : i32[3]", "f32[1, 2, 6]", "f32[2, 6, 1]", "output f = %0"));
}

Test(elaborate, heads_and_transposes) {
  expect_lines(
      "model M { forward(x: f32[b, t, 6]) { h = split_heads(x, 3) return h, y = merge_heads(h), z = transpose(x, 0, "
      "-1) } }",
      LINES("reshape %0 : f32[b, t, 3, 2]", "permute %1, axes=[0, 2, 1, 3] : f32[b, 3, t, 2]",
            "permute %2, axes=[0, 2, 1, 3] : f32[b, t, 3, 2]", "reshape %3 : f32[b, t, 6]",
            "permute %0, axes=[2, 1, 0] : f32[6, t, b]"));
}

Test(elaborate, numbers_beside_tensors) {
  expect_lines(
      "model M { forward(x: f32[n], i: i32[n], b: bool[n]) { return a = x * 2, c = i // 2, d = 1 / x, e = x + n, f = i "
      "* n,"
      " g = where(b, 1, 2.5), h = where(b, i, -1) } }",
      LINES("full 2.0 : f32[]", "full 2 : i32[]", "full 1.0", "size n : f32[]", "size n : i32[]", "where %2",
            "full -1 : i32[]"));
}

Test(elaborate, sizes_are_converted) {
  expect_lines("model M { forward(x: f32[n, 4]) { return a = f32(n) + 1, b = x[:i32(n) - 1, :i32(0.5 * 4)] } }",
               LINES("size n : f32[]", "slice %0, starts=[0, 0] : f32[n - 1, 2]"));
}

Test(elaborate, a_size_that_must_be_a_number_is_one) {
  expect_lines("model M { weight w: [8]  forward(x: f32[batch, d]) { return y = split_heads((x + w)[none], 4) } }",
               LINES("add", "f32[batch, d]", "reshape", "f32[batch, 8]", "f32[1, 4, batch, 2]", "check d == 8"));
}

// ---- checks of the run ----

Test(elaborate, checks_stand_once) {
  const char *graph = printed(
      good("layer L { forward(x, m) = x + m }\n"
           "model M { ls = 3 * L() forward(x: f32[b, t], m: f32[r, c]) { return y = ls(x, m)[:, 1:3][:, :] } }"));
  const char *first = strstr(graph, "check t == c"), *rows = strstr(graph, "check b == r");
  cr_expect(first && rows && !strstr(first + 1, "check t == c"), "%s", graph);
  cr_expect(strstr(graph, "[{b=}, {t=}] and [{r=}, {c=}]"), "%s", graph);
  cr_expect(strstr(graph, "check 3 <= "), "%s", graph);
  cr_expect_null(strstr(graph, "check 0 <="), "%s", graph);
}

Test(elaborate, require_fills_in_sizes) {
  expect_lines(
      "layer L(limit) { forward(x) { n = shape(x, 0) require n <= limit or not (n != 9), \"{n} of {limit}, {x}\" "
      "return x } }\n"
      "model M { l = L(5) forward(x: f32[time]) { return y = l(x) } }",
      LINES("check time <= 5 or", "\"{time} of 5, a tensor f32[{time=}]\""));
}

// ---- declarations ----

Test(elaborate, ragged_sizes) {
  expect_lines("model M { forward(x: f32[batch, ragged time, 2], y: i32[batch, time], z: f32[4]) {"
               " return a = mean(x, axis = 1), b = transpose(x, 0, 1), z } }",
               LINES("ragged time of batch", "f32[time, batch, 2]"));
}

Test(elaborate, generate_blocks) {
  Graph *graph = good(
      "model M(vocab = 9) { table = Embedding(vocab, vocab)\n"
      "forward(tgt: i32[batch, time], src: i32[batch, source]) { return logits = table(tgt) + f32(src[0, 0]) }\n"
      "generate tgt from logits { bos = vocab - 1  eos = [2, 3]  do_sample = true  pad = none } }");
  cr_expect_str_eq(graph->generate_input, "tgt");
  cr_expect_str_eq(graph->generate_output, "logits");
  cr_assert_eq(graph->generate_settings.n, 3);
  cr_expect_eq(graph->generate_settings.items[0].values.items[0], 8);
  cr_expect_eq(graph->generate_settings.items[1].values.n, 2);
  cr_expect_eq(graph->generate_settings.items[2].values.items[0], 1);
}

// ---- origins, messages ----

Test(elaborate, nodes_know_where_they_come_from) {
  Graph *graph = good("layer Block { inner = Linear(2, 2, false)  forward(x) = inner(x) }\n"
                      "model M { blocks = 2 * Block()\n forward(x: f32[n, 2]) { return y = blocks(x) } }");
  const Node *node = graph->outputs.items[0].node;
  cr_expect_str_eq(node->origin.path, "blocks.1.inner");
  cr_expect_str_eq(node->origin.span.source->path, "<std>");
  cr_expect_str_eq(node->origin.frame->name, "Linear");
  cr_expect_str_eq(node->origin.frame->caller->name, "Block");
  cr_expect_str_eq(node->origin.frame->caller->caller->name, "M");
}

Test(elaborate, messages_say_which_calls_led_there) {
  expect_refused("layer Inner { proj = Linear(3, 3)  forward(x) = proj(x) }\n"
                 "layer Outer { inner = Inner()  forward(x) = x -> inner }\n"
                 "model M {\n  outer = Outer()\n  forward(x: f32[n, 4]) { return y = outer(x) }\n}",
                 "model.tfm:5:11: note: input 'x' is declared f32[n, 4] here\n"
                 "model.tfm:1:22: note: weight 'outer.inner.proj.weight' is declared f32[3, 3] here\n"
                 "<std>:9:16: note: here, in Linear\n"
                 "model.tfm:2:50: note: in Inner, called here\n"
                 "model.tfm:5:38: note: in Outer, called here\n");
}

Test(elaborate, faults_within_standard_layers_point_to_the_users_text) {
  expect_refused("layer Mine {\n  encoder = Encoder(10, 3, 2, 32)\n  forward(x) = encoder(x)\n}\n"
                 "model M {\n  mine = Mine()\n  forward(x: f32[b, t, 10]) { return y = mine(x) }\n}",
                 "model.tfm:2:13: error: embed_dim (10) must be a multiple of num_heads (3) [E0209]\n");
  cr_expect(strstr(messages(), "note: here, in layer MultiheadAttention\n<std>:"), "%s", messages());
  cr_expect(strstr(messages(), "note: called here, in layer Encoder\nmodel.tfm:6:10: note: in layer Mine, called here\n"),
            "%s", messages());
}

Test(elaborate, at_most_eight_calls_are_shown) {
  expect_refused(
      "model M { fn a(x) = y\n fn b(x) = a(x)\n fn c(x) = b(x)\n fn d(x) = c(x)\n fn e(x) = d(x)\n fn f(x) = e(x)\n"
      "fn g(x) = f(x)\n fn h(x) = g(x)\n fn i(x) = h(x)\n forward(x: f32[n]) { return z = i(x) } }",
      "in h, called here");
  cr_expect_null(strstr(messages(), "in i, called here"));
}

Test(elaborate, one_fault_is_said_once) {
  expect_refused(
      "layer L { w = oops  forward(x) = x + oops }\n"
      "model M { ls = 12 * L() forward(x: f32[n]) { y = ls(x)  z = ls(x) + y return z } }",
      "unknown name 'oops'");
  cr_expect_eq(diag.n_errors, 2, "%s", messages());
}

Test(elaborate, many_faults_stop_at_the_limit) {
  StrBuf text = strbuf_new(arena);
  strbuf_add(&text, "model M { forward(x: f32[n]) {");
  for (int i = 0; i < 10000; i++) strbuf_printf(&text, " a%d = b%d", i, i);
  strbuf_add(&text, " return x } }");
  cr_expect(!tried(text.text));
  cr_expect(diag.n_errors > DIAG_MAX_ERRORS);
}

Test(elaborate, long_chains_need_no_stack) {
  StrBuf text = strbuf_new(arena);
  strbuf_add(&text, "model M { forward(x: f32[n]) { y = x");
  for (int i = 0; i < 3000; i++) strbuf_add(&text, " + x");
  strbuf_add(&text, " return y } }");
  cr_expect_eq(graph_count(good(text.text)), 3001);
}

Test(elaborate, patterns_of_weight_paths) {
  static const char *texts[] = {"*.bias", "embed.*", "a"};
  const Patterns p = {.texts = {.items = texts, .n = 3}};
  cr_expect(patterns_match(&p, "layers.0.bias") && patterns_match(&p, "embed.weight") && patterns_match(&p, "a"));
  cr_expect(!patterns_match(&p, "bias") && !patterns_match(&p, "a.b") && !patterns_match(&p, "embedding.weight"));
}
