/* Graphs: building, uses, replacing, deleting, what is static, and every fault that graph_verify must find. */
#include "../support/compiled_graph.h"
#include "graph/attributes.h"
#include "graph/build.h"
#include "graph/infer.h"

static Graph *graph;
static Builder b;
static const Size *batch, *time_;

static const Size *number(int64_t value) { return size_const(graph->sizes, value); }

static void setup_graph(void) {
  setup();
  graph = graph_new(arena, "G");
  b = (Builder){.graph = graph, .origin = {.path = "layers.0"}};
  batch = size_symbol(graph->sizes, "batch");
  time_ = size_symbol(graph->sizes, "time");
}
TestSuite(graph, .init = setup_graph, .fini = teardown);

static const char *shape(const Node *node) {
  StrBuf out = strbuf_new(arena);
  node_print_shape(&out, graph->sizes, node);
  return out.text;
}

static Node *tensor(const char *name, DType dtype, uint32_t rank, const Size *x, const Size *y, const Size *z) {
  return build_input(&b, name, dtype, rank, (const Size *const[]){x, y, z});
}

Test(graph, shapes_of_results) {
  Node *x = tensor("x", DTYPE_F32, 3, batch, time_, number(64));
  Node *w = build_weight(&b, "w", 2, (const Size *const[]){number(8), number(64)});
  cr_assert_str_eq(shape(build_linear(&b, x, w)), "f32[batch, time, 8]");
  cr_assert_str_eq(shape(build_transpose(&b, x, 1, 2)), "f32[batch, 64, time]");
  cr_assert_str_eq(shape(build_matmul(&b, x, build_transpose(&b, w, 0, 1))), "f32[batch, time, 8]");
  cr_assert_str_eq(shape(build_reduce(&b, OP_SUM, x, 1, false)), "f32[batch, 64]");
  cr_assert_str_eq(shape(build_reduce(&b, OP_ARGMAX, x, 2, false)), "i32[batch, time]");
  Node *two[] = {x, x};
  cr_assert_str_eq(shape(build_concat(&b, 2, two, 1)), "f32[batch, 2*time, 64]");
  Node *ids = tensor("ids", DTYPE_I32, 2, batch, time_, NULL);
  cr_assert_str_eq(shape(build_gather(&b, w, ids)), "f32[batch, time, 64]");
  cr_assert_str_eq(shape(build_sinusoid(&b, build_positions(&b, time_), 7, 1e4, true)), "f32[time, 7]");
  cr_assert_str_eq(shape(build_binary(&b, OP_LT, ids, build_scalar(&b, DTYPE_I32, 0, 3))), "bool[batch, time]");
  cr_assert_str_eq(shape(build_unary(&b, OP_TO_F32, ids)), "f32[batch, time]");
  const Size *dims[] = {size_mul(graph->sizes, batch, time_), number(64)};
  cr_assert_str_eq(shape(build_reshape(&b, x, 2, dims)), "f32[batch*time, 64]");
  cr_assert(graph_verify(graph, &diag));
}

Test(graph, the_size_that_is_no_constant_wins) {
  Node *x = tensor("x", DTYPE_F32, 1, time_, NULL, NULL), *y = tensor("y", DTYPE_F32, 1, number(5), NULL, NULL);
  cr_assert_str_eq(shape(build_binary(&b, OP_ADD, x, y)), "f32[time]");
  cr_assert_str_eq(shape(build_binary(&b, OP_ADD, y, x)), "f32[time]");
  Node *z = tensor("z", DTYPE_F32, 1, number(4), NULL, NULL);
  NodeType type = type_of(y);
  cr_assert_not(infer_broadcast(graph->sizes, &type, z->rank, (const Size *const *)z->dims));
}

Test(graph, uses_follow_every_change) {
  Node *x = tensor("x", DTYPE_F32, 1, time_, NULL, NULL), *y = tensor("y", DTYPE_F32, 1, time_, NULL, NULL);
  Node *sum = build_binary(&b, OP_ADD, x, x), *neg = build_unary(&b, OP_NEG, sum);
  vec_push(arena, &graph->outputs, (GraphOutput){.name = "sum", .node = sum});
  cr_assert_eq(x->users.n, 2);
  graph_set_input(sum, 1, y);
  cr_assert(x->users.n == 1 && y->users.n == 1);
  graph_replace_uses(graph, x, y);
  cr_assert(x->users.n == 0 && y->users.n == 2 && sum->inputs.items[0] == y);
  b.before = neg;
  Node *exp = build_unary(&b, OP_EXP, y);
  cr_assert_eq(exp->next, neg);
  graph_replace_uses(graph, sum, exp);
  cr_assert(neg->inputs.items[0] == exp && graph_is_output(graph, exp) && !graph_is_output(graph, sum));
  graph_delete(graph, sum);
  cr_assert(sum->deleted && y->users.n == 1);
  graph_set_inputs(graph, neg, 1, &y);
  cr_assert(exp->users.n == 0 && y->users.n == 2);
  graph_move_before(graph, neg, exp);
  cr_assert_eq(neg->next, exp);
  graph_renumber(graph);
  cr_assert(graph_verify(graph, &diag));
  cr_assert_eq(graph_count(graph), 4);
  cr_assert_eq(graph->last->id, 3);
}

Test(graph, replacing_a_node_used_twice_by_one_user) {
  Node *x = tensor("x", DTYPE_F32, 1, time_, NULL, NULL), *y = tensor("y", DTYPE_F32, 1, time_, NULL, NULL);
  Node *pair[] = {x, x, y, x}, *all = build_concat(&b, 4, pair, 0);
  graph_replace_uses(graph, x, y);
  for (int i = 0; i < 4; i++) cr_assert_eq(all->inputs.items[i], y);
  cr_assert_eq(y->users.n, 4);
  cr_assert(graph_verify(graph, &diag));
}

Test(graph, what_is_static) {
  Node *w = build_weight(&b, "w", 1, (const Size *const[]){number(4)});
  Node *twice = build_binary(&b, OP_MUL, w, build_scalar(&b, DTYPE_F32, 2, 0));
  Node *x = tensor("x", DTYPE_F32, 1, number(4), NULL, NULL);
  Node *mixed = build_binary(&b, OP_ADD, twice, x), *size = build_size(&b, DTYPE_F32, time_);
  Node *full = build_full(&b, 1, 1, &time_), *constant = build_size(&b, DTYPE_F32, number(3));
  cr_assert(node_is_static(twice) && node_is_static(constant));
  cr_assert(!node_is_static(mixed) && !node_is_static(size) && !node_is_static(full));
  Node *chain = twice;
  for (int i = 0; i < 60; i++) chain = build_binary(&b, OP_ADD, chain, chain);
  cr_assert(node_is_static(chain));
  bool *flags = graph_static_flags(arena, graph);
  for (Node *node = graph->first; node; node = node->next) cr_assert_eq(flags[node->id], node_is_static(node));
}

// ---- faults ----

/* Reads a graph, verifies it, and expects this many faults, the first of which has this text. */
static void faults_of(const char *text, int n, const char *words) {
  diag = diag_new(arena);
  Graph *read = graph_from_text(text);
  cr_assert_not_null(read, "%s: %s", text, fault());
  cr_assert_not(graph_verify(read, &diag), "%s", text);
  cr_assert_eq(diag.n_errors, n, "%s: %d, %s", text, diag.n_errors, diag.messages.items[0].text);
  cr_assert_eq(diag.messages.items[0].code, DIAG_GRAPH_INVALID);
  cr_assert(strstr(diag.messages.items[0].text, words), "%s: %s", text, diag.messages.items[0].text);
}

static void faults(const char *body, int n, const char *words) {
  faults_of(arena_printf(arena, "graph F(sizes batch, time) {\n%s\n}\n", body), n, words);
}

#define X "%0 = input \"x\" : f32[batch, time, 8]\n"
#define I "%1 = input \"i\" : i32[batch, time]\n"
#define W "%2 = weight \"w\" : f32[4, 8]\n"

Test(graph, verify_finds_wrong_types) {
  faults(X "%3 = neg %0, %0 : f32[batch, time, 8]", 1, "2 inputs");
  faults(X "%3 = neg %0 : i32[batch, time, 8]", 1, "should be f32[batch, time, 8]");
  faults(X "%3 = neg %0 : f32[batch, time, 7]", 1, "should be");
  faults(X I "%3 = exp %1 : f32[batch, time]", 1, "must be f32");
  faults(X I "%3 = add %0, %1 : f32[batch, time, 8]", 1, "different types");
  faults(X "%3 = full 1.0 : f32[7]\n%4 = add %0, %3 : f32[batch, time, 8]", 1, "do not agree");
  faults(X "%3 = where %0, %0, %0 : f32[batch, time, 8]", 1, "must be bool");
  faults("%0 = weight \"w\" : f32[time]", 1, "run-time");
  faults("%0 = weight \"w\" : i32[3]", 1, "f32");
  faults("%0 = full -1.0 : f32[-3]", 1, "negative");
  faults("%0 = full 3000000000 : i32[]", 1, "does not fit an i32");
  faults("%0 = positions : f32[time]", 1, "i32");
  faults("%0 = size time : bool[]", 1, "scalar");
  faults("%0 = size : f32[]", 1, "no size");
}

Test(graph, verify_finds_wrong_views) {
  faults(X "%3 = slice %0, starts=[0, 0, 4] : f32[batch, time, 5]", 1, "not within");
  faults(X "%3 = slice %0, starts=[0, -1, 0] : f32[batch, 1, 8]", 1, "not within");
  faults(X "%3 = slice %0, starts=[0, 0] : f32[batch, time]", 1, "keeps the axes");
  faults(W "%3 = reshape %2 : f32[31]", 1, "elements");
  faults(X "%3 = permute %0, axes=[0, 1, 1] : f32[batch, time, time]", 1, "not a permutation");
  faults(X I "%3 = concat %0, %1, axis=1 : f32[batch, 2*time, 8]", 1, "do not agree");
  faults(X "%3 = concat %0, axis=3 : f32[batch, time, 8]", 1, "no axis 3");
  faults(X W "%3 = gather %2, %0 : f32[batch, time, 8]", 1, "i32 ids");
  faults(X "%3 = sum %0, axis=7 : f32[batch]", 1, "axis 7");
  faults(X I "%3 = softmax %1, axis=1 : f32[batch, time]", 1, "f32");
  faults(X W "%3 = layer_norm %0, %2, weight=true, eps=0.1 : f32[batch, time, 8]", 1, "last axis");
  faults(X "%3 = layer_norm %0, weight=true, eps=0.1 : f32[batch, time, 8]", 1, "do not fit");
  faults(X "%3 = sinusoid %0, base=10.0 : f32[batch, time, 8]", 1, "adds an axis");
  faults(X "%3 = rotary %0, %0, base=10.0 : f32[batch, time, 8]", 1, "positions");
}

Test(graph, verify_finds_wrong_products_and_expressions) {
  faults(X W "%3 = matmul %0, %2 : f32[batch, time, 8]", 1, "other axes agree");
  faults(X "%3 = linear %0, %0 : f32[batch, time, 8]", 1, "[n, k]");
  faults(X W "%3 = linear %0, %2, %0 : f32[batch, time, 4]", 1, "no expression");
  faults(X W "%3 = linear %0, %2, %0, { add(acc, $2) } : f32[batch, time, 4]", 1, "does not broadcast");
  faults(X "%3 = pointwise %0, { add($0, acc) } : f32[batch, time, 8]", 1, "no acc");
  faults(X "%3 = pointwise %0, { $0 } : f32[batch, time, 1]", 1, "does not broadcast");
  faults(X "%3 = pointwise %0 : f32[batch, time, 8]", 1, "no expression");
  faults(X "%3 = pointwise { to_f32(index3) } : f32[batch, time, 8]", 1, "no such axis");
  faults(X I W "%3 = pointwise %1, %2, { gather($1, $0) } : f32[batch, time, 7]", 1, "gather");
  faults(X "%3 = reduce %0, reduction=add, axis=0, domain=[batch, time, 8], { $0 } : f32[time, 8]", 1, "reduction");
  faults(X "%3 = norm %0, reduction=sum, eps=0.1, { $0 } : f32[batch, time, 8]", 1, "layer_norm");
  faults(X W "%3 = weight \"k\" : f32[4, 7]\n%4 = attention %0, %3, %2, { acc } : f32[batch, time, 8]", 1, "other axes agree");
  faults(X "%3 = attention_weights %0 : f32[batch, time, time]", 1, "must be an attention");
}

Test(graph, verify_finds_wrong_names_and_reports_all) {
  faults("%0 = input \"x\" : f32[]\n%1 = input \"x\" : f32[]", 1, "two inputs");
  faults("%0 = full 1.0 : f32[]\noutput a = %0\noutput a = %0", 1, "two outputs");
  faults("%0 = weight \"w\" : f32[3]\n%1 = weight \"w\" : f32[4]", 1, "another shape");
  faults("%0 = full 1.0 : f32[]\ngenerate ids from logits {}", 2, "no input 'ids'");
  faults(X "%3 = neg %0 : i32[batch, time, 8]\n%4 = sum %0, axis=7 : f32[]", 2, "should be");
}

#define STEP "graph S(sizes batch as rows, time.past as past, time.fresh as fresh, time.kept as kept) {\n"
#define TOKENS "%0 = input \"ids\" as tokens : i32[batch, time.fresh]\n"
#define CACHE "%1 = input \"k\" as cache 0 : f32[batch, time.past, 8]\n"
#define NEW "%2 = input \"new\" : f32[batch, time.fresh, 8]\n"
#define JOINED "%3 = concat %1, %2, axis=1 : f32[batch, time.past + time.fresh, 8]\n"

Test(graph, verify_finds_wrong_roles) {
  cr_assert_not_null(read_graph(STEP TOKENS CACHE NEW JOINED "output k as cache 0 = %3\n}"));
  faults_of(STEP CACHE NEW JOINED "output k as cache 0 = %3\n}", 1, "without an input that is tokens");
  faults_of(STEP "%0 = input \"ids\" as tokens : i32[batch, time.past]\n}", 1, "i32[rows, fresh]");
  faults_of(STEP "%0 = input \"ids\" as tokens : i32[1, time.fresh]\n}", 1, "i32[rows, fresh]");
  faults_of(STEP TOKENS CACHE "}", 1, "no output is cache 0");
  faults_of(STEP TOKENS NEW "output k as cache 0 = %2\n}", 1, "no input is cache 0");
  faults_of(STEP TOKENS CACHE "output k as cache 0 = %1\n}", 1, "does not add the new positions");
  faults_of(STEP TOKENS CACHE NEW "%4 = input \"v\" as cache 0 : f32[batch, time.past, 8]\n" JOINED
                                  "output k as cache 0 = %3\n}", 1, "'k' and 'v' are both cache 0");
  faults_of(STEP TOKENS "%1 = input \"k\" as cache 1 : f32[batch, time.past, 8]\n" NEW JOINED
                        "output k as cache 1 = %3\n}", 2, "'k' is cache 1, but their number is 1");
  faults_of(STEP TOKENS "%1 = input \"x\" as logits : f32[batch, time.kept, 8]\n}", 1, "'x' cannot be logits here");
  faults_of(STEP TOKENS NEW "output y as logits = %2\n}", 1, "logits are f32[rows, kept, a constant]");
  faults_of(STEP TOKENS NEW "output y as logsumexp = %2\n}", 1, "logsumexp is f32[rows, kept]");
  faults_of(STEP TOKENS NEW "output y as encoded 0 = %2\n}", 1, "'y' cannot be encoded 0 here");
  faults_of("graph S(sizes b as rows, p as past, f as fresh) {}", 1, "past, fresh and kept");
  faults_of("graph S(sizes p as past, p as fresh, k as kept) {}", 1, "one size has the roles past and fresh");
  faults_of("graph S(sizes batch, time) {" X "output y as logits = %0\n}", 1, "'y' cannot be logits here");
  faults_of("graph S(sizes batch, time) { %0 = input \"x\" as tokens : i32[batch, time]\n}", 1, "cannot be tokens here");
  faults_of("graph S(sizes batch as rows) { %0 = input \"x\" : i32[batch]\n output x = %0 generate x from x {} }", 1,
            "a size with the role rows in a graph with a generate block");
}

Test(graph, verify_finds_broken_structure) {
  Node *x = tensor("x", DTYPE_F32, 1, time_, NULL, NULL);
  Node *y = build_unary(&b, OP_EXP, x), *z = build_unary(&b, OP_NEG, y);
  cr_assert(graph_verify(graph, &diag));
  graph_move_before(graph, z, y);
  cr_assert_not(graph_verify(graph, &diag));
  cr_assert(strstr(diag.messages.items[0].text, "not computed before"));
  graph_move_before(graph, y, z);
  y->users.n = 0;
  diag = diag_new(arena);
  cr_assert_not(graph_verify(graph, &diag));
  y->users.n = 1;
  z->id = y->id;
  diag = diag_new(arena);
  cr_assert_not(graph_verify(graph, &diag));
}

Test(graph, a_picture_has_boxes_for_modules) {
  Node *x = tensor("x\"y", DTYPE_F32, 1, time_, NULL, NULL);
  vec_push(arena, &graph->outputs, (GraphOutput){.name = "out", .node = build_unary(&b, OP_EXP, x)});
  StrBuf out = strbuf_new(arena);
  drawing_print(&out, drawing_of_graph(arena, graph), 9);
  cr_assert(strstr(out.text, "label=\"layers\\l\""));
  cr_assert(strstr(out.text, "n0 -> n1 [label=\"x\\\"y f32[time]\"]"));
  cr_assert(strstr(out.text, "n1 -> n2 [label=\"f32[time]\"]"));
  cr_assert(strstr(out.text, "x\\\"y"));
}

/* The key of a node that has nothing but one member that is not 0. */
static StrBuf key_with(Attribute attribute) {
  NodeAttr attr = {0};
  StrBuf key = strbuf_new(arena);
  const AttributeType type = attribute_type(attribute);
  if (type == ATTRIBUTE_IS_TEXT) attr.name = "a name";
  else if (type == ATTRIBUTE_IS_RANGE) attr.range_text = "why";
  else memset(attribute_member(&attr, attribute), 1, 1);
  attributes_add_key(&key, &attr);
  return key;
}

/* A pass that takes equal nodes for one would else merge nodes that differ. */
Test(graph, every_attribute_tells_nodes_apart) {
  StrBuf plain = strbuf_new(arena);
  attributes_add_key(&plain, &(NodeAttr){0});
  for (Attribute i = 0; i < N_ATTRIBUTES; i++) {
    StrBuf key = key_with(i);
    cr_expect(key.length != plain.length || memcmp(key.text, plain.text, key.length), "%s", attribute_table[i].name);
    for (Attribute j = 0; j < i; j++) {
      StrBuf other = key_with(j);
      cr_expect(key.length != other.length || memcmp(key.text, other.text, key.length), "%s and %s",
                attribute_table[i].name, attribute_table[j].name);
    }
  }
}

/* What stands behind pointers belongs to the arena of the copy. */
Test(graph, every_attribute_is_copied_with_its_graph) {
  Node *x = tensor("x", DTYPE_F32, 1, batch, NULL, NULL);
  Node *size = graph_add(graph, NULL, OP_SIZE, DTYPE_I32, 0, NULL, 0, NULL, (Origin){.path = ""});
  size->attr.size = batch;
  Arena *other = arena_create();
  Graph *copy = graph_clone(other, graph);
  for (const Node *node = copy->first; node; node = node->next) {
    if (node->op == OP_SIZE) cr_expect_neq(node->attr.size, batch);
    if (node->op == OP_INPUT) {
      cr_expect_neq(node->attr.name, x->attr.name);
      cr_expect_str_eq(node->attr.name, "x");
    }
  }
  arena_destroy(other);
}

/* What takes the place of a product computes in all forms that the product has, and keeps what else it is. */
Test(graph, every_form_goes_to_what_takes_the_place) {
  NodeAttr from = {0}, to = {.axis = 3};
  uint32_t n = 0;
  for (Attribute i = 0; i < N_ATTRIBUTES; i++) {
    if (attribute_type(i) != ATTRIBUTE_IS_FORM) memset(attribute_member(&from, i), 1, 1);
    else *(tfm_form *)attribute_member(&from, i) = (tfm_form)(TFM_FORM_BF16 + n++);
  }
  cr_assert_gt(n, 0);
  attributes_take_forms(&to, &from);
  n = 0;
  for (Attribute i = 0; i < N_ATTRIBUTES; i++)
    if (attribute_type(i) == ATTRIBUTE_IS_FORM)
      cr_expect_eq(*(const tfm_form *)attribute_value(&to, i), TFM_FORM_BF16 + n++, "%s", attribute_table[i].name);
  cr_expect_eq(to.axis, 3);
}
