/* Drawings: which boxes and edges a picture has, at each depth. */
#include <criterion/criterion.h>
#include <string.h>

#include "graph/build.h"
#include "draw/drawing.h"

static Arena *arena;

static void setup(void) { arena = arena_create(); }
static void teardown(void) { arena_destroy(arena); }
TestSuite(drawing, .init = setup, .fini = teardown);

/* x -> layers.0 {exp, neg} -> layers.1 {exp, neg} -> layers.2 {exp, `last`} -> y, a mask from x to every layer. */
static Drawing *three_layers(const char *last) {
  Drawing *drawing = drawing_new(arena, "Model");
  drawing_add_item(drawing, DRAW_PORT, "x", "");
  uint32_t mask = drawing_add_item(drawing, DRAW_OPERATION, "eq", ""), before = 0;
  drawing_add_edge(drawing, 0, mask, "x i32[n]");
  for (int i = 0; i < 3; i++) {
    const char *path = arena_printf(arena, "layers.%d", i);
    drawing_add_weight(drawing, path, "weight f32[3]", 3);
    uint32_t first = drawing_add_item(drawing, DRAW_OPERATION, "exp", path);
    uint32_t second = drawing_add_item(drawing, DRAW_OPERATION, i == 2 ? last : "neg", path);
    drawing_add_edge(drawing, before, first, "f32[n]");
    drawing_add_edge(drawing, mask, first, "bool[n]");
    drawing_add_edge(drawing, first, second, "inner");
    before = second;
  }
  drawing_add_edge(drawing, before, drawing_add_item(drawing, DRAW_PORT, "y", ""), "out");
  return drawing;
}

static const char *printed(Drawing *drawing, uint32_t depth, uint32_t boxes) {
  StrBuf out = strbuf_new(arena);
  cr_assert_eq(drawing_print(&out, drawing, depth), boxes, "%s", out.text);
  return out.text;
}

static int count(const char *text, const char *word) {
  int n = 0;
  while ((text = strstr(text, word))) n++, text += strlen(word);
  return n;
}

Test(drawing, a_closed_module_says_what_is_in_it) {
  const char *text = printed(three_layers("neg"), 1, 4); /* x, eq, layers, y */
  cr_assert(strstr(text, "label=\"layers\\n0 to 2 (\u00d7 3)\\n6 operations\\n3 weights, 9\""), "%s", text);
  cr_assert_eq(count(text, " -> "), 4); /* x to eq, x and eq to layers, layers to y */
  cr_assert_not(strstr(text, "inner"));
}

Test(drawing, equal_siblings_are_drawn_once) {
  const char *text = printed(three_layers("neg"), 2, 4);
  cr_assert(strstr(text, "0 to 2 (\u00d7 3)\\n2 operations\\n1 weight, 3"), "%s", text);
  cr_assert_eq(count(text, "shape=box3d"), 1);
  cr_assert_eq(count(text, " -> "), 6); /* x and eq come in at points; none from one layer to the next */
  text = printed(three_layers("neg"), 3, 5);
  cr_assert_eq(count(text, "label=\"exp\""), 1);
  cr_assert_eq(count(text, "inner"), 1);
  cr_assert(strstr(text, "weight f32[3]"));
}

Test(drawing, siblings_that_differ_are_drawn_apart) {
  const char *text = printed(three_layers("abs"), 2, 5);
  cr_assert(strstr(text, "0 to 1 (\u00d7 2)"), "%s", text);
  cr_assert_eq(count(text, "shape=box3d"), 2);
  cr_assert_eq(count(text, " -> "), 8);
  cr_assert_eq(count(text, "shape=point"), 2);
}

Test(drawing, depth_0_closes_the_model) {
  const char *text = printed(three_layers("neg"), 0, 1);
  cr_assert(strstr(text, "label=\"Model\\n9 operations\\n3 weights, 9\""), "%s", text);
  cr_assert_eq(count(text, " -> "), 0);
}

Test(drawing, a_very_deep_path_is_drawn_in_the_module_at_the_limit) {
  StrBuf path = strbuf_new(arena);
  for (int i = 0; i < 20000; i++) strbuf_add(&path, "a.");
  strbuf_add(&path, "a");
  Drawing *drawing = drawing_new(arena, "Model");
  drawing_add_item(drawing, DRAW_OPERATION, "exp", path.text);
  cr_assert(strstr(printed(drawing, 101, 1), "label=\"exp\""));
}

/* As a graph in text form may have them: the interpreter would refuse it, a picture need not. */
Test(drawing, more_elements_than_an_integer_holds) {
  Graph *graph = graph_new(arena, "Large");
  const Size *dim = size_const(graph->sizes, (int64_t)1 << 40);
  Builder b = {.graph = graph, .origin.path = "m"};
  build_weight(&b, "w", 2, (const Size *const[]){dim, dim});
  build_unary(&b, OP_NEG, build_input(&b, "x", DTYPE_F32, 1, &dim));
  const char *text = printed(drawing_of_graph(arena, graph), 1, 1);
  cr_assert(strstr(text, "1 weight, 1208925819614629.2 G"), "%s", text);
}

/* Layers of two kinds in turns, each with a mask from outside. */
static Drawing *in_turns(int n) {
  Drawing *drawing = drawing_new(arena, "Model");
  uint32_t before = drawing_add_item(drawing, DRAW_PORT, "x", "");
  uint32_t mask = drawing_add_item(drawing, DRAW_OPERATION, "eq", "");
  for (int i = 0; i < n; i++) {
    uint32_t item = drawing_add_item(drawing, DRAW_OPERATION, i % 3 ? "gelu" : "relu", arena_printf(arena, "layers.%d", i));
    drawing_add_edge(drawing, before, item, "f32[n]");
    drawing_add_edge(drawing, mask, item, "bool[n]");
    before = item;
  }
  drawing_add_edge(drawing, before, drawing_add_item(drawing, DRAW_PORT, "y", ""), "out");
  return drawing;
}

Test(drawing, kinds_in_turns_are_two_boxes) {
  const char *text = printed(in_turns(96), 2, 5); /* x, eq, two kinds, y */
  cr_assert(strstr(text, "\"0, 3, 6 ... 93 (\u00d7 32)\\n1 operation\""), "%s", text);
  cr_assert(strstr(text, "\"1, 2, 4 ... 95 (\u00d7 64)\\n1 operation\""), "%s", text);
  /* x and eq come in at points, which eq goes on from to both; one to the other, one out */
  cr_assert_eq(count(text, " -> "), 7, "%s", text);
  printed(in_turns(96), 9, 5);
  cr_assert(strstr(printed(in_turns(4), 2, 5), "\"0, 3 (\u00d7 2)"));
  cr_assert(strstr(printed(in_turns(4), 2, 5), "\"1 to 2 (\u00d7 2)"));
}

Test(drawing, many_boxes_of_a_kind_are_one) {
  for (int n = 12; n <= 1000; n += 988) {
    Drawing *drawing = drawing_new(arena, "Model");
    drawing_add_item(drawing, DRAW_PORT, "x", "");
    for (int i = 0; i < n; i++) {
      const char *label = arena_printf(arena, "pointwise\nmul($0, %d.0)", i);
      uint32_t item = drawing_add_item(drawing, DRAW_OPERATION, label, "");
      drawing_add_edge(drawing, 0, item, "x f32[n]");
      drawing_add_edge(drawing, item, drawing_add_item(drawing, DRAW_PORT, arena_printf(arena, "y%d", i), ""), "f32[n]");
    }
    const char *text = printed(drawing, 1, n == 12 ? 25 : 3);
    cr_assert_eq(strstr(text, "\"y0 to y999 (\u00d7 1000)\"") != NULL, n == 1000, "%s", text);
    cr_assert_eq(strstr(text, "\"pointwise (\u00d7 1000)\"") != NULL, n == 1000, "%s", text);
    cr_assert_eq(count(text, " -> "), n == 12 ? 24 : 2);
  }
}

Test(drawing, long_expressions_are_cut_and_whole_in_the_tooltip) {
  Drawing *drawing = drawing_new(arena, "Model");
  drawing_add_item(drawing, DRAW_OPERATION, "pointwise\nadd(add(add(add(add($0, $1), $2), $3), $4), $5)", "");
  const char *text = printed(drawing, 1, 1);
  cr_assert(strstr(text, "label=\"pointwise\\nadd(add(add(add(ad ... $2), $3), $4), $5)\""), "%s", text);
  cr_assert(strstr(text, "tooltip=\"pointwise\\nadd(add(add(add(add($0, $1), $2), $3), $4), $5)\""), "%s", text);
}

/* Of a value that goes to many boxes the first edge says what it is. */
Test(drawing, a_value_is_named_once) {
  Drawing *drawing = drawing_new(arena, "Model");
  uint32_t mask = drawing_add_item(drawing, DRAW_OPERATION, "eq", "");
  for (int i = 0; i < 6; i++)
    drawing_add_edge(drawing, mask, drawing_add_item(drawing, DRAW_OPERATION, arena_printf(arena, "op%d", i), ""), "bool[n]");
  const char *text = printed(drawing, 1, 7);
  cr_assert_eq(count(text, "[label=\"bool[n]\"]"), 1, "%s", text);
  cr_assert_eq(count(text, "[tooltip=\"bool[n]\"]"), 3, "%s", text);
  cr_assert_eq(count(text, "[style=dotted, tooltip=\"bool[n]\"]"), 2, "%s", text);
}

/* x -> `n` open layers, in turns exp and neg, and a mask that each of them takes. */
static const char *open_layers(int n) {
  Drawing *drawing = drawing_new(arena, "Model");
  uint32_t before = drawing_add_item(drawing, DRAW_PORT, "x", "");
  uint32_t mask = drawing_add_item(drawing, DRAW_OPERATION, "eq", "masks");
  drawing_add_edge(drawing, 0, mask, "x f32[n]");
  for (int i = 0; i < n; i++) {
    const char *path = arena_printf(arena, "layer%d.inner", i);
    for (int k = 0; k < 2; k++) {
      uint32_t item = drawing_add_item(drawing, DRAW_OPERATION, k ? "exp" : "neg", path);
      drawing_add_edge(drawing, before, item, "f32[n]");
      if (k) drawing_add_edge(drawing, mask, item, "hidden bool[n]");
      before = item;
    }
  }
  return printed(drawing, 9, 2 + 2 * (uint32_t)n);
}

/* The line of the mask goes to the first layer alone, over two frames with a point in each; no name is crossed, as it
 * ends at the frame. */
Test(drawing, what_every_layer_takes_is_a_word_in_its_box) {
  const char *text = open_layers(3);
  cr_assert_eq(count(text, "label=\"exp\""), 1, "%s", text);
  cr_assert_eq(count(text, "label=\"exp\\n← masks: hidden\""), 2, "%s", text);
  cr_assert_eq(count(text, "label=\"hidden bool[n]\""), 1, "%s", text);
  cr_assert_eq(count(text, "tooltip=\"hidden bool[n]\""), 2, "%s", text);
  cr_assert_eq(count(text, "lhead=cluster_"), 2 * 4 + 1, "%s", text); /* x, one to each layer; the mask; x to the mask */
  cr_assert_eq(count(text, "shape=point"), 2 * 4 + 1, "%s", text);
}

/* A value that two boxes of a module take comes in once. */
Test(drawing, a_value_comes_into_a_module_once) {
  Drawing *drawing = drawing_new(arena, "Model");
  drawing_add_item(drawing, DRAW_PORT, "x", "");
  for (int i = 0; i < 2; i++)
    drawing_add_edge(drawing, 0, drawing_add_item(drawing, DRAW_OPERATION, i ? "exp" : "neg", "m"), "x f32[n]");
  const char *text = printed(drawing, 9, 3);
  cr_assert_eq(count(text, "n0 -> "), 1, "%s", text);
  cr_assert_eq(count(text, "p0 -> "), 2, "%s", text);
}

/* Views that follow one another, each for the next alone, are one box, and so are equal views of one value. */
Test(drawing, views_share_boxes) {
  static const char *const names[] = {"slice", "reshape", "permute"};
  Drawing *drawing = drawing_new(arena, "Model");
  drawing_add_item(drawing, DRAW_PORT, "x", "");
  uint32_t ends[2];
  for (int chain = 0; chain < 2; chain++) {
    uint32_t before = 0;
    for (int i = 0; i < 3; i++) {
      uint32_t view = drawing_add_item(drawing, DRAW_VIEW, names[i], "");
      drawing_add_edge(drawing, before, view, "f32[n]");
      before = view;
    }
    ends[chain] = before;
  }
  uint32_t sum = drawing_add_item(drawing, DRAW_OPERATION, "add", "");
  for (int chain = 0; chain < 2; chain++) drawing_add_edge(drawing, ends[chain], sum, "f32[n]");
  const char *text = printed(drawing, 1, 3);
  cr_assert(strstr(text, "label=\"slice\\nreshape\\npermute (× 2)\""), "%s", text);
  cr_assert_eq(count(text, " -> "), 2, "%s", text);
}
