/* What the parser accepts and the trees it makes. Faults: test_parse_errors.c. */
#include <locale.h>
#include <math.h>

#include "../support/compiled_graph.h"

TestSuite(parse, .init = setup, .fini = teardown);

static Ast *parse_ok(const char *text) {
  ParsedProgram *program = parse_text(arena, &interned, &diag, "model.tfm", text, strlen(text));
  cr_assert(program && program->files.n == 1, "%s", messages());
  return program->files.items[0].ast;
}

static Ast *expression_ok(const char *text) {
  Source *source = source_new(arena, "-D x", text, (uint32_t)strlen(text));
  Ast *ast = parse_expression(arena, &interned, &diag, source);
  cr_assert(ast, "%s: %s", text, messages());
  return ast;
}

/* The tree as (kind child child); names and numbers as they are; - for what is left out. */
static void add_shape(StrBuf *out, const Ast *node) {
  if (!node) {
    strbuf_add(out, "-");
  } else if (node->kind == AST_NAME) {
    strbuf_add(out, node->name);
  } else if (node->kind == AST_NUMBER && node->is_integer) {
    strbuf_printf(out, "%lld", (long long)node->integer);
  } else {
    bool is_operator = node->kind == AST_BINARY || node->kind == AST_COMPARE;
    strbuf_printf(out, "(%s", is_operator ? node->name : ast_kind_text(node->kind));
    if (node->name && !is_operator) strbuf_printf(out, ":%s", node->name);
    if (node->text) strbuf_add_quoted(out, node->text);
    if (node->flag) strbuf_add(out, "!");
    for (uint32_t i = 0; i < node->n_children; i++) {
      strbuf_add_char(out, ' ');
      add_shape(out, node->children[i]);
    }
    strbuf_add_char(out, ')');
  }
}

static void expect_shape(const Ast *node, const char *text, const char *want) {
  StrBuf got = strbuf_new(arena);
  add_shape(&got, node);
  cr_expect(strcmp(got.text, want) == 0, "%s\n  got  %s\n  want %s", text, got.text, want);
}

static void expect_expression(const char *text, const char *want) { expect_shape(expression_ok(text), text, want); }
static void expect_file(const char *text, const char *want) { expect_shape(parse_ok(text), text, want); }

// ---- expressions ----

Test(parse, operators_bind_as_the_grammar_says) {
  expect_expression("a + b * c", "(+ a (* b c))");
  expect_expression("a - b - c", "(- (- a b) c)");
  expect_expression("a // b % c @ d", "(@ (% (// a b) c) d)");
  expect_expression("-a.b * c", "(* (negate (dot:b a)) c)");
  expect_expression("not a == b and c or d", "(or (and (not (== a b)) c) d)");
  expect_expression("a < b + c", "(< a (+ b c))");
  expect_expression("x -> f -> g * h", "(pipe (pipe x f) (* g h))");
  expect_expression("if a then b else if c then d else e", "(choice a b (choice c d e))");
}

Test(parse, brackets_are_marked) {
  expect_expression("x -> f(a)", "(pipe x (call f (arg a)))");
  expect_expression("x -> (f(a))", "(pipe x (call! f (arg a)))");
  expect_expression("(a + b) * c", "(* (+! a b) c)");
}

Test(parse, postfix) {
  expect_expression("f()(a, b, k = c,)", "(call (call f) (arg a) (arg b) (arg:k c))");
  expect_expression("x[0, a:b, :, 1:, ..., none]",
                    "(index x 0 (range a b -) (range - - -) (range 1 - -) (ellipsis) (none))");
  expect_expression("x[a:b:2, ::s, a::2, :b:2]",
                    "(index x (range a b 2) (range - - s) (range a - 2) (range - b 2))");
  expect_expression("m.weight[weight]", "(index (dot:weight m) weight)");
  expect_expression("[batch, 2 * d]", "(list batch (* 2 d))");
}

Test(parse, powers_bind_to_the_right_and_tighter_than_a_sign) {
  expect_expression("-a ** 2", "(negate (** a 2))");
  expect_expression("2 ** 3 ** 2", "(** 2 (** 3 2))");
  expect_expression("a * b ** -c.d[0]", "(* a (** b (negate (index (dot:d c) 0))))");
}

Test(parse, lists_of_anything) {
  expect_expression("[a as \"x\", f]", "(list (placed\"x\" a) f)");
  expect_expression("[f(i) as \"b{i}\" for i in [1, 2]]",
                    "(comprehension:i (placed\"b{i}\" (call f (arg i))) (list 1 2))");
  expect_expression("[[j for j in i] for i in n]", "(comprehension:i (comprehension:j j i) n)");
}

Test(parse, loops_and_functions_of_a_file) {
  expect_file("fn f(x) { for i in n { x = i } return x }",
              "(file (fn:f (params (param:x - -)) (block (for:i n (block (assign (names x) i))) (return (result x)))))");
}

Test(parse, the_times_sign_is_a_star) { expect_expression("a \xc3\x97 b", "(* a b)"); }

Test(parse, names_that_begin_with_keywords) { expect_expression("iffy + notch + inf_", "(+ (+ iffy notch) inf_)"); }

Test(parse, names_are_interned) {
  Ast *sum = expression_ok("alpha + alpha");
  cr_expect(sum->children[0]->name == sum->children[1]->name);
  cr_expect(sum->name == expression_ok("a + b")->name);
}

// ---- numbers and strings ----

static void expect_number(const char *text, bool is_integer, double want) {
  Ast *number = expression_ok(text);
  cr_expect(number->kind == AST_NUMBER && number->is_integer == is_integer && number->number == want, "%s", text);
}

Test(parse, D11_numbers) {
  expect_number("12", true, 12);
  expect_number("007", true, 7);
  expect_number("0.5", false, 0.5);
  expect_number("1e-5", false, 1e-5);
  expect_number("2.5E+3", false, 2500);
  expect_number("0e999", false, 0);
  expect_number("1.7976931348623157e308", false, 1.7976931348623157e308);
  expect_number("5e-324", false, 5e-324);
  expect_number("inf", false, INFINITY);
  cr_expect(expression_ok("9223372036854775807")->integer == INT64_MAX);
  cr_expect(expression_ok("9007199254740993")->integer == 9007199254740993);
}

Test(parse, D12_numbers_do_not_depend_on_the_locale) {
  if (!setlocale(LC_ALL, "de_DE.UTF-8")) cr_skip_test("this machine has no locale with a decimal comma");
  expect_number("0.5", false, 0.5);
  StrBuf out = strbuf_new(arena);
  ast_print(&out, expression_ok("0.25"));
  cr_expect(strcmp(out.text, "0.25") == 0, "%s", out.text);
}

Test(parse, strings) {
  cr_expect_str_eq(expression_ok("\"a \\\"b\\\" \\\\ \\n # c\"")->text, "a \"b\" \\ \n # c");
  cr_expect_str_eq(expression_ok("\"\"")->text, "");
}

Test(parse, D10_limits_of_names_and_strings) {
  char *name = arena_alloc(arena, 1025), *string = arena_alloc(arena, 4099);
  memset(name, 'a', 1024);
  memset(string, 'b', 4098);
  string[0] = string[4097] = '"';
  cr_expect(strlen(expression_ok(name)->name) == 1024);
  cr_expect(strlen(expression_ok(string)->text) == 4096);
}

// ---- files ----

Test(parse, D01_nothing_but_blanks_and_comments) {
  expect_file("", "(file)");
  expect_file(" \t\r\n\f # comment\n", "(file)");
  expect_file("# no newline at the end", "(file)");
}

Test(parse, D03_a_byte_order_mark_is_skipped) {
  Ast *file = parse_ok("\xef\xbb\xbfmodel M { }");
  SrcPlace place = source_place(file->children[0]->span.source, file->children[0]->span.begin);
  cr_expect(place.line == 1 && place.column == 1);
}

Test(parse, D04_every_line_end) {
  static const char *const texts[] = {"layer A {\n  b = 1\n}", "layer A {\r\n  b = 1\r\n}\r\n",
                                      "layer A {\r  b = 1\r}"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const Ast *member = parse_ok(texts[i])->children[0]->children[1]->children[0];
    SrcPlace place = source_place(member->span.source, member->span.begin);
    cr_expect(place.line == 2 && place.column == 3, "text %zu: %u:%u", i, place.line, place.column);
  }
}

Test(parse, layers) {
  expect_file("layer A { }", "(file (layer:A (params) (block)))");
  expect_file("model M(a, b = 2,) { }", "(file (layer:M! (params (param:a - -) (param:b - 2)) (block)))");
  expect_file("layer A { m = B(1) as \"x.y\" n = 2 as \"\" weight weight: [a, 2] as \"w\" weight v: [] }",
              "(file (layer:A (params) (block (member:m\"x.y\" (call B (arg 1))) (member:n\"\" 2) "
              "(weight:weight\"w\" (list a 2) -) (weight:v (list) -))))");
  expect_file("layer A { if a { b = 1 } else if c { } else { d = 2 } require a, \"t\" }",
              "(file (layer:A (params) (block (if a (block (member:b 1)) (if c (block) (block (member:d 2)))) "
              "(require\"t\" a))))");
}

Test(parse, functions) {
  expect_file(
      "layer A { fn f(x, y = none) = x + y forward(ids: i32[batch, ragged time]) { a, b = f(ids) return y = a, b } }",
      "(file (layer:A (params) (block (fn:f (params (param:x - -) (param:y - (none))) (+ x y)) "
      "(fn:forward! (params (param:ids (type:i32 batch (ragged time)) -)) "
      "(block (assign (names a b) (call f (arg ids))) (return (result:y a) (result b)))))))");
}

Test(parse, train_and_initial_values) {
  expect_file("model M { weight w: [2] = normal() as \"v\" weight * = 0 weight train: [] train f { lr = 1 } "
              "fn f(x) = x.train -> forward forward(x) = x }",
              "(file (layer:M! (params) (block (weight:w\"v\" (list 2) (call normal)) (initial 0) (weight:train (list) -) "
              "(train:f (setting:lr 1)) (fn:f (params (param:x - -)) (pipe (dot:train x) forward)) "
              "(fn:forward! (params (param:x - -)) x))))");
}

Test(parse, adapt_is_a_name_elsewhere) {
  expect_file("model M { adapt [\"*.q\"] { rank = 8 also = [] } adapt = [1] b = adapt[0] + x.adapt fn adapt(adapt) = adapt[1] "
              "weight adapt: [2] }",
              "(file (layer:M! (params) (block (adapt (list (string\"*.q\")) (setting:rank 8) (setting:also (list))) "
              "(member:adapt (list 1)) (member:b (+ (index adapt 0) (dot:adapt x))) "
              "(fn:adapt (params (param:adapt - -)) (index adapt 1)) (weight:adapt (list 2) -))))");
}

Test(parse, generate) {
  expect_file("model M { generate tgt from logits { bos = 1 eos = [2, 3] } }",
              "(file (layer:M! (params) (block (generate:tgt\"logits\" (setting:bos 1) (setting:eos (list 2 3))))))");
}

Test(parse, statements_need_no_separator) {
  expect_file("layer A { fn f(x) { a = x b = a if b { c = 1 } return c } }",
              "(file (layer:A (params) (block (fn:f (params (param:x - -)) (block (assign (names a) x) "
              "(assign (names b) a) (if b (block (assign (names c) 1)) -) (return (result c)))))))");
}

// ---- spans and limits ----

Test(parse, spans_of_declarations_end_with_the_name) {
  const char *text = "layer Name(a: f32[n]) { member = 1 }";
  const Ast *layer = parse_ok(text)->children[0];
  cr_expect(layer->span.begin == 0 && layer->span.end == 10);
  const Ast *member = layer->children[1]->children[0];
  cr_expect(strncmp(text + member->span.begin, "member", member->span.end - member->span.begin) == 0);
  const Ast *call = expression_ok("1 + f(a)")->children[1];
  cr_expect(call->span.begin == 4 && call->span.end == 8);
}

static const char *repeated(const char *before, const char *part, unsigned n, const char *after) {
  StrBuf text = strbuf_new(arena);
  strbuf_add(&text, before);
  for (unsigned i = 0; i < n; i++) strbuf_add(&text, part);
  strbuf_add(&text, after);
  return text.text;
}

Test(parse, D05_nesting_at_the_limit) {
  const char *text = repeated(repeated("", "(", 256, "x"), ")", 256, "");
  cr_expect(expression_ok(text)->kind == AST_NAME);
}

Test(parse, D06_a_long_sum) {
  Ast *sum = expression_ok(repeated("a", "+a", AST_MAX_DEPTH - 1, ""));
  cr_expect(sum->depth == AST_MAX_DEPTH);
}

Test(parse, D07_a_long_list) {
  Ast *call = expression_ok(repeated("f(a", ",a", 300000, ")"));
  cr_expect(call->n_children == 300002);
}

Test(parse, else_if_a_thousand_times) {
  const char *body = repeated("layer A { if a { }", " else if b { }", 1000, " }");
  cr_expect(parse_ok(body)->depth > 1000);
}

Test(parse, dump_names_every_node) {
  StrBuf out = strbuf_new(arena);
  ast_dump(&out, arena, parse_ok("layer A(x = 2) {\n  y = (x) as \"p\"\n}"));
  cr_expect_str_eq(out.text,
                   "file  # 1:1\n  layer A  # 1:1\n    params  # 1:8\n      param x  # 1:9\n        -\n"
                   "        number 2  # 1:13\n    block  # 1:16\n      member y \"p\"  # 2:3\n"
                   "        name x (bracketed)  # 2:7\n");
}

Test(parse, a_dump_of_a_deep_tree_stays_short) {
  StrBuf out = strbuf_new(arena);
  ast_dump(&out, arena, expression_ok(repeated("a", "+a", AST_MAX_DEPTH - 1, "")));
  cr_expect(out.length < 300 * AST_MAX_DEPTH && strstr(out.text, "[3999] name a"));
}
