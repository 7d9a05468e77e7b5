/* The text form of graphs: what is printed is read back to the same text; what is no graph is refused with its place. */
#include "../support/compiled_graph.h"
#include "graph/build.h"
#include "graph/graph.h"

TestSuite(graph_text, .init = setup, .fini = teardown);

/* Reads, verifies, and compares the text. */
static void same(const char *text) {
  Graph *graph = read_graph(text);
  cr_assert_str_eq(printed(graph), text);
  cr_assert_str_eq(printed(graph_clone(arena, graph)), text);
}

Test(graph_text, every_operation) {
  same("graph All(sizes batch, time; ragged time of batch) {\n"
       "  %0 = input \"ids\" : i32[batch, time]\n"
       "  %1 = input \"x\" : f32[batch, time, 64]\n"
       "  %2 = input \"keep\" : bool[batch, time]\n"
       "  %3 = weight \"table\" : f32[100, 64]\n"
       "  %4 = weight \"b\" : f32[64]\n"
       "  %5 = full 0.5 : f32[batch, 1]\n"
       "  %6 = full -3 : i32[]\n"
       "  %7 = full true : bool[]\n"
       "  %8 = size 2*batch*time + 1 : f32[]\n"
       "  %9 = positions : i32[time]\n"
       "  %10 = causal_mask : bool[time, time]\n"
       "  %11 = neg %0 : i32[batch, time]\n"
       "  %12 = gelu %1 : f32[batch, time, 64]\n"
       "  %13 = not %2 : bool[batch, time]\n"
       "  %14 = to_f32 %0 : f32[batch, time]\n"
       "  %15 = to_i32 %14 : i32[batch, time]\n"
       "  %16 = add %1, %4 : f32[batch, time, 64]\n"
       "  %17 = floordiv %0, %6 : i32[batch, time]\n"
       "  %18 = le %0, %15 : bool[batch, time]\n"
       "  %19 = and %18, %7 : bool[batch, time]\n"
       "  %20 = where %19, %5, %14 : f32[batch, time]\n"
       "  %21 = slice %1, starts=[0, 0, 8] : f32[batch, time, 16]\n"
       "  %22 = reshape %1 : f32[batch, time, 4, 16]\n"
       "  %23 = permute %22, axes=[0, 2, 1, 3] : f32[batch, 4, time, 16]\n"
       "  %24 = permute %22, axes=[0, 2, 3, 1] : f32[batch, 4, 16, time]\n"
       "  %25 = concat %1, %16, %12, axis=2 : f32[batch, time, 192]\n"
       "  %26 = gather %3, %0 : f32[batch, time, 64]\n"
       "  %27 = sum %1, axis=2 : f32[batch, time]\n"
       "  %28 = max %1, axis=1, keepdim=true : f32[batch, 1, 64]\n"
       "  %29 = argmax %1, axis=2 : i32[batch, time]\n"
       "  %30 = softmax %1, axis=1 : f32[batch, time, 64]\n"
       "  %31 = log_softmax %1, axis=2 : f32[batch, time, 64]\n"
       "  %32 = layer_norm %1, %4, %4, weight=true, bias=true, eps=1e-05 : f32[batch, time, 64]\n"
       "  %33 = layer_norm %1, %4, bias=true, eps=1e-12 : f32[batch, time, 64]\n"
       "  %34 = rms_norm %1, eps=1e-06 : f32[batch, time, 64]\n"
       "  %35 = sinusoid %9, base=10000.0, interleaved=true : f32[time, 7]\n"
       "  %36 = rotary %23, %9, base=10000.0 : f32[batch, 4, time, 16]\n"
       "  %37 = rotary_table %9, base=500000.0 : f32[time, 2, 8]\n"
       "  %38 = matmul %23, %24 : f32[batch, 4, time, time]\n"
       "  %39 = linear %1, %3 : f32[batch, time, 100]\n"
       "  %40 = linear %1, %3, %5, { gelu(add(acc, mul($2, 2.0))) } : f32[batch, time, 100]\n"
       "  %41 = pointwise %1, %4, { where(gt(index0, index1), $0, $1) } : f32[batch, time, 64]\n"
       "  %42 = pointwise { to_f32(index0) } : f32[time]\n"
       "  %43 = reduce %1, %4, reduction=mean, axis=2, domain=[batch, time, 64], { add($0, $1) } : f32[batch, time]\n"
       "  %44 = reduce %1, reduction=softmax, axis=2, domain=[batch, time, 64], { neg($0) } : f32[batch, time, 64]\n"
       "  %45 = norm %1, %26, %4, reduction=rms_norm, weight=true, eps=1e-05, { add($0, $1) } : f32[batch, time, 64]\n"
       "  %46 = matmul_fused %23, %24, %10, { where($2, -inf, acc) } : f32[batch, 4, time, time]\n"
       "  %47 = attention %23, %23, %23, %10, { where($3, -inf, mul(acc, 0.25)) } : f32[batch, 4, time, 16]\n"
       "  %48 = attention_weights %47 : f32[batch, 4, time, time]\n"
       "  %49 = pointwise %0, %3, { gather($1, $0) } : f32[batch, time, 64]\n"
       "  check time <= 5000 and (not batch == 0), \"the sequence is {time} long, {{not}} {time=}\"\n"
       "  output logits = %26\n"
       "  output maps = %48\n"
       "  generate ids from logits { bos = 1, eos = [2, 3], scale = 0.5 }\n"
       "}\n");
}

Test(graph_text, roles) {
  same("graph Step(sizes batch as rows, time.past as past, time.fresh as fresh, time.kept as kept) {\n"
       "  %0 = input \"ids\" as tokens : i32[batch, time.fresh]\n"
       "  %1 = input \"cache.0\" as cache 0 : f32[batch, time.past, 4]\n"
       "  %2 = input \"encoded.0\" as encoded 0 : f32[9, 4]\n"
       "  %3 = gather %2, %0 : f32[batch, time.fresh, 4]\n"
       "  %4 = concat %1, %3, axis=1 : f32[batch, time.past + time.fresh, 4]\n"
       "  %5 = slice %3, starts=[0, time.fresh - time.kept, 0] : f32[batch, time.kept, 4]\n"
       "  %6 = sum %5, axis=2 : f32[batch, time.kept]\n"
       "  output y as logits = %5\n"
       "  output logsumexp as logsumexp = %6\n"
       "  output \"cache.0\" as cache 0 = %4\n"
       "}\n");
  same("graph Encoder(sizes batch as rows, source) {\n"
       "  %0 = input \"src\" : f32[batch, source]\n"
       "  output \"encoded.0\" as encoded 0 = %0\n"
       "}\n");
}

/* A condition and a size may both begin with a bracket. */
Test(graph_text, sizes_that_are_rounded_down) {
  same(
      "graph Floors(sizes batch, time) {\n"
      "  %0 = input \"x\" : f32[batch, time, 64]\n"
      "  %1 = input \"y\" : f32[2*((time + 1)//3), (batch*time)//2]\n"
      "  %2 = slice %0, starts=[0, (time + 1)//2, 0] : f32[batch, time - (time + 1)//2, 64]\n"
      "  %3 = pointwise %2, { add($0, size(f32, batch*(time//2) - (time + 1)//4)) } : "
      "f32[batch, time - (time + 1)//2, 64]\n"
      "  check (time + 1)//2 <= time, \"half of {time=} is {(time + 1)//2}\"\n"
      "  check not ((time + 1)//2 > 4 and (batch == 1 or (time + 2*(batch//3))//5 < 7)), \"no\"\n"
      "  check ((time + 1)//2 > 4 or (batch + time)//2 == batch) and (time//2 != 3 or (not batch == 2)), \"no\"\n"
      "  output y = %3\n"
      "}\n");
}

Test(graph_text, a_hostile_name_survives) {
  const char *hostile = "a\"b\\c\n\t\x01\x7f # { } %0 = input \xc3\xa9";
  Graph *graph = graph_new(arena, hostile);
  Builder b = {.graph = graph, .origin = {.path = hostile}};
  const Size *dims[] = {size_const(graph->sizes, 2)};
  Node *x = build_input(&b, hostile, DTYPE_F32, 1, dims);
  Node *y = build_binary(&b, OP_ADD, x, build_weight(&b, hostile, 1, dims));
  vec_push(arena, &graph->outputs, (GraphOutput){.name = hostile, .node = y});
  graph->generate_input = graph->generate_output = hostile;
  vec_push(arena, &graph->generate_settings, (GenerateSetting){.name = hostile});
  Check check = {.condition = arena_copy(arena, &(Cond){.op = OP_EQ, .left = dims[0], .right = dims[0]}, sizeof(Cond))};
  vec_push(arena, &check.message, (CheckPart){.text = hostile});
  vec_push(arena, &graph->checks, check);
  const char *text = printed(graph);
  Graph *back = graph_from_text(text);
  cr_assert_not_null(back, "%s", diag.messages.items[0].text);
  cr_assert_str_eq(printed(back), text);
  cr_assert_str_eq(back->inputs.items[0]->attr.name, hostile);
  cr_assert_str_eq(back->outputs.items[0].name, hostile);
  StrBuf out = strbuf_new(arena);
  graph_print_with_origins(&out, graph);
  back = graph_from_text(out.text);
  cr_assert_not_null(back, "%s", diag.messages.items[0].text);
  cr_assert_str_eq(printed(back), text);
}

/* The error stands at this line and column. */
static void refused(const char *text, uint32_t line, uint32_t column) {
  diag = diag_new(arena);
  cr_assert_null(graph_from_text(text), "%s", text);
  cr_assert_eq(diag.n_errors, 1);
  const DiagMessage *message = &diag.messages.items[0];
  cr_assert_eq(message->code, DIAG_GRAPH_SYNTAX);
  SrcPlace place = source_place(message->span.source, message->span.begin);
  cr_assert(place.line == line && place.column == column, "%s: %u:%u %s", text, place.line, place.column, message->text);
}

Test(graph_text, what_is_no_graph_is_refused) {
  refused("", 1, 1);
  refused("graph", 1, 6);
  refused("graph G(sizes) {}", 1, 14);
  refused("graph G() {\n  %0 = input \"x\" : f32[time]\n}", 2, 24);
  refused("graph G() {\n  %0 = inputs \"x\" : f32[]\n}", 2, 8);
  refused("graph G() {\n  %0 = input \"x : f32[]\n}", 2, 14);
  refused("graph G() {\n  %0 = input \"x\" : f16[]\n}", 2, 20);
  refused("graph G() {\n  %0 = weight : f32[4]\n}", 3, 1);
  refused("graph G() {\n  %0 = neg %0 : f32[]\n}", 2, 12);
  refused("graph G() {\n  %0 = full 1.5 : i32[]\n}", 3, 1);
  refused("graph G() {\n  %0 = full 1.0 : f32[1,1,1,1,1,1,1,1,1]\n}", 2, 39);
  refused("graph G() {\n  %0 = full 1.0 : f32[]\n  %0 = full 1.0 : f32[]\n}", 3, 6);
  refused("graph G() {\n  %0 = full 1.0, axis=1 : f32[]\n}", 2, 23);
  refused("graph G() {\n  %0 = pointwise { $0 } : f32[]\n}", 2, 20);
  refused("graph G() {\n  %0 = pointwise { 1.0 : f32[]\n}", 2, 24);
  refused("graph G() {\n  output x = %0\n}", 2, 14);
  refused("graph G() {\n  check 1 <= 2, \"{x}\"\n}", 2, 17);
  refused("graph G() {\n", 2, 1);
  refused("graph G() {} x", 1, 14);
  refused("graph G(sizes a; ragged b of a) {}", 1, 25);
  refused("graph G(sizes a as length) {}", 1, 20);
  refused("graph G(sizes a as past, b as past) {}", 1, 35);
  refused("graph G() {\n  %0 = input \"x\" as key 0 : f32[]\n}", 2, 21);
  refused("graph G() {\n  %0 = input \"x\" as cache : f32[]\n}", 2, 27);
  refused("graph G() {\n  %0 = weight \"x\" as cache 0 : f32[]\n}", 2, 19);
  refused("graph G() {\n  %0 = full 1.0 : f32[]\n  output x as = %0\n}", 3, 15);
}

#define NODES "  %0 = input \"x\" : f32[batch, time]\n  %1 = exp %0 : f32[batch, time]\n"

Test(graph_text, ragged_sizes_become_ordinary_ones) {
  Graph *graph = read_graph("graph G(sizes batch, time; ragged time of batch) {\n" NODES
                            "  check batch*time <= 9 and (not batch > time), \"{batch*time=} of {batch}\"\n  output y = %1\n}\n");
  graph_make_uniform(graph);
  cr_assert(graph_verify(graph, &diag));
  cr_assert_str_eq(printed(graph), "graph G(sizes batch, time) {\n" NODES
                                   "  check time <= 9 and (not 1 > time), \"{time=} of {1}\"\n  output y = %1\n}\n");
  graph = read_graph("graph G(sizes batch, time) {\n" NODES "  check batch <= 9, \"{batch}\"\n  output y = %1\n}\n");
  const char *before = printed(graph);
  graph_make_uniform(graph);
  cr_assert_str_eq(printed(graph), before, "nothing is ragged");
}

Test(graph_text, no_prefix_of_a_graph_crashes) {
  const char *text = "graph G(sizes b, t; ragged t of b) {\n"
                     "  %0 = input \"x\" : f32[b, t, 4]\n"
                     "  %1 = slice %0, starts=[0, t - 1, 0] : f32[b, 1, 4]\n"
                     "  %2 = pointwise %0, { t0 = exp($0); mul(t0, add(t0, size(f32, t))) } : f32[b, t, 4]\n"
                     "  check t >= 1 or (t == 0 and b == 0), \"t is {t}\"\n"
                     "  output y = %2\n  generate x from y { bos = [1, 2.5] }\n}\n";
  for (size_t length = 0; length + 1 < strlen(text); length++) {
    char *prefix = arena_strndup(arena, text, length);
    diag = diag_new(arena);
    Graph *graph = graph_from_text(prefix);
    cr_assert(graph == NULL && diag.n_errors == 1, "%s", prefix);
  }
  cr_assert_not_null(graph_from_text(text));
}
