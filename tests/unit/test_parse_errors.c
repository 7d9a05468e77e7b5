/* Faults in texts: what is reported, where, and that what follows is still read. D05 and so on are the cases of the
 * project's catalogue of bad inputs. */

#include "../support/compiled_graph.h"
#include "diag/render.h"

TestSuite(parse_errors, .init = setup, .fini = teardown);

static void parse_bad(const char *text, size_t size) {
  cr_assert(!parse_text(arena, &interned, &diag, "m", text, size), "no error in %.100s", text);
  cr_assert(diag_has_errors(&diag));
}

/* `want`: line:column: text, of each error in order, a line each. */
static void expect_errors(const char *text, const char *want) {
  parse_bad(text, strlen(text));
  StrBuf got = strbuf_new(arena);
  for (size_t i = 0; i < diag.messages.n; i++) {
    const DiagMessage *message = &diag.messages.items[i];
    SrcPlace at = source_place(message->span.source, message->span.begin);
    strbuf_printf(&got, "%u:%u: %s\n", at.line, at.column, message->text);
  }
  cr_expect(strcmp(got.text, want) == 0, "%s\ngot\n%swant\n%s", text, got.text, want);
  diag = diag_new(arena);
}

/* One error with this code at this offset. */
static void expect_fault(const char *text, size_t size, DiagCode code, uint32_t offset) {
  parse_bad(text, size);
  const DiagMessage *message = &diag.messages.items[0];
  cr_expect(diag.n_errors == 1 && message->code == code && message->span.begin == offset, "%s", messages());
  diag = diag_new(arena);
}

static const char *repeated(const char *before, const char *part, unsigned n, const char *after) {
  size_t length = strlen(part);
  char *text = arena_alloc(arena, strlen(before) + length * n + strlen(after) + 1), *end = text;
  end = stpcpy(end, before);
  for (unsigned i = 0; i < n; i++) end = stpcpy(end, part);
  stpcpy(end, after);
  return text;
}

// ---- characters ----

#define EXPECT_BYTES(text, code, offset) expect_fault(text, sizeof text - 1, code, offset)

Test(parse_errors, D02_nul) {
  EXPECT_BYTES("model M\0x { }", DIAG_ENCODING, 7);
  EXPECT_BYTES("model M { y = \"a\0b\" }", DIAG_ENCODING, 16);
  EXPECT_BYTES("# a\0b\nmodel M { }", DIAG_ENCODING, 3);
  EXPECT_BYTES("model M { }\0", DIAG_ENCODING, 11);
}

Test(parse_errors, D03_not_utf8) {
  EXPECT_BYTES("# \xff", DIAG_ENCODING, 2);
  EXPECT_BYTES("# \xc0\xaf", DIAG_ENCODING, 2);
  EXPECT_BYTES("# \xed\xa0\x80", DIAG_ENCODING, 2);
  EXPECT_BYTES("# \xe2\x82", DIAG_ENCODING, 2);
  EXPECT_BYTES("# \xe2\x80\xae", DIAG_ENCODING, 2);
  EXPECT_BYTES("# \xe2\x81\xa6", DIAG_ENCODING, 2);
  EXPECT_BYTES("# \x1b[31m", DIAG_ENCODING, 2);
  EXPECT_BYTES("# \xc2\x85", DIAG_ENCODING, 2);
  EXPECT_BYTES("\xff\xfem\0o\0", DIAG_ENCODING, 0);
}

Test(parse_errors, characters_of_other_languages) {
  expect_errors("layer A {\n  a = x && y\n  b = x; c = 'gelu'\n}",
                "2:9: unexpected character '&&'; write 'and'\n"
                "3:8: unexpected character ';'; statements need no end mark\n"
                "3:14: strings are written in double quotes: \"...\"\n");
}

// ---- words ----

Test(parse_errors, D09_unterminated_string) {
  expect_errors("layer A {\n  require a, \"no end\n  b = 1\n}", "2:14: the string that begins here is not closed\n");
  expect_errors("layer A { a = \"",
                "1:15: the string that begins here is not closed\n"
                "1:16: the text ends here, expected a member, 'as' or '}'\n");
}

Test(parse_errors, escapes) {
  expect_errors("layer A { a = \"\\t\" }", "1:16: unknown escape; there are \\n, \\\" and \\\\\n");
}

Test(parse_errors, D10_a_token_of_16_MiB) {
  expect_fault(repeated("", "a", 16 * 1024 * 1024, ""), 16 * 1024 * 1024, DIAG_TOO_LONG, 0);
}

Test(parse_errors, D10_long_tokens) {
  const char *name = repeated("layer ", "a", 1025, " { }"), *string = repeated("layer A { a = \"", "b", 4097, "\" }");
  const char *digits = repeated("layer A { a = ", "1", 1000000, " }");
  expect_fault(name, strlen(name), DIAG_TOO_LONG, 6);
  expect_fault(string, strlen(string), DIAG_TOO_LONG, 14);
  expect_fault(digits, strlen(digits), DIAG_TOO_LONG, 14);
}

Test(parse_errors, D08_a_text_over_16_MiB) {
  parse_bad(repeated("", " ", 16 * 1024 * 1024 + 1, ""), 16 * 1024 * 1024 + 1);
  cr_expect(diag.messages.items[0].code == DIAG_TOO_LONG && diag.exit_code == 1);
}

Test(parse_errors, D11_numbers) {
  expect_errors("layer A { a = 99999999999999999999 }",
                "1:15: 99999999999999999999 is out of range, the largest integer is 9223372036854775807\n");
  expect_errors("layer A { a = 9223372036854775808 }",
                "1:15: 9223372036854775808 is out of range, the largest integer is 9223372036854775807\n");
  expect_errors("layer A { a = 0x1F }", "1:15: '0x1F' is not a number; numbers are decimal\n");
  expect_errors("layer A { a = 1e999 }", "1:15: 1e999 is too large for a double\n");
  expect_errors("layer A { a = 1e-999 }", "1:15: 1e-999 is too small for a double\n");
  expect_errors("layer A { a = 1.2.3 }", "1:18: '.3' is not a number; a digit must precede the point\n");
  expect_errors("layer A { b = .5 c = 1. d = 3x }",
                "1:15: '.5' is not a number; a digit must precede the point\n"
                "1:22: '1.' is not a number; a digit must follow the point\n"
                "1:29: '3x' is not a number\n");
}

// ---- nesting ----

Test(parse_errors, D05_nesting) {
  static const unsigned depths[] = {257, 300, 10001, 1000000};
  static const char *const brackets[] = {"(", "["};
  for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
    for (size_t j = 0; j < 2; j++) {
      const char *text = repeated("layer A { a = ", brackets[j], depths[i], "");
      expect_fault(text, strlen(text), DIAG_NESTING, 14 + 255);
    }
  const char *blocks = repeated("layer A { ", "if a { ", 1000000, "");
  expect_fault(blocks, strlen(blocks), DIAG_NESTING, 10 + 255 * 7 + 5);
}

Test(parse_errors, D06_a_sum_of_a_million_terms) {
  static const char *const parts[] = {"+a", " -> a", " or a", ".a", "()", "[0]", "@a"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const char *text = repeated("layer A { a = a", parts[i], 1000000, " }");
    expect_fault(text, strlen(text), DIAG_NESTING, 14);
  }
}

Test(parse_errors, D07_if_a_million_times) {
  static const char *const parts[] = {" if a then", " if a then b else"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const char *text = repeated("layer A { a =", parts[i], 900000, " c }");
    parse_bad(text, strlen(text));
    cr_expect(diag.n_errors == 1 && diag.messages.items[0].code == DIAG_NESTING, "%s", messages());
    diag = diag_new(arena);
  }
  const char *chain = repeated("layer A { if a { }", " else if b { }", 1000000, " }");
  parse_bad(chain, strlen(chain));
  cr_expect(diag.n_errors == 1 && diag.messages.items[0].code == DIAG_NESTING, "%s", messages());
}

Test(parse_errors, D07_more_than_a_million_nodes) {
  const char *text = repeated("layer A { a = [1", ",1", 2000000, "] }");
  parse_bad(text, strlen(text));
  cr_expect(diag.n_errors == 1 && diag.messages.items[0].code == DIAG_TOO_LONG, "%s", messages());
}

// ---- order of tokens ----

/* Each with what is written here instead. */
Test(parse_errors, words_of_other_languages) {
  static const char *const rows[][2] = {
      {"def f(x) = x", "a function is 'fn name(x) = ...'"},
      {"class A { }", "a layer is 'layer Name(config) { ... }'"},
      {"layer A { f = lambda x: x }", "give a function a name"},
      {"layer A { forward(x) { if a { y = 1 } elif b { y = 2 } return y } }", "write 'else if'"},
      {"layer A { forward(x) { while x { y = 1 } } }", "a loop is 'for i in n'"},
      {"import torch", "files are included"},
      {"layer A { a = b if c else d }", "'if condition then a else b'"},
      {"layer A { a = b // the same\n weight w: [2] }", "a comment begins with '#'"},
      {"// nothing\nlayer A { }", "a comment begins with '#'"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    parse_bad(rows[i][0], strlen(rows[i][0]));
    cr_expect(strstr(messages(), rows[i][1]), "%s\ngot\n%s", rows[i][0], messages());
    diag = diag_new(arena);
  }
}

Test(parse_errors, what_was_expected) {
  expect_errors("layer A { a = ) }", "1:15: unexpected ')', expected an expression\n");
  expect_errors("layer 3 { }", "1:7: unexpected number 3, expected a name\n");
  expect_errors("model M {", "1:10: the text ends here, expected a member or '}'\n");
  expect_errors("x", "1:1: unexpected name 'x', expected the end of the text, 'include', 'layer', 'model', 'fn' or 'checkpoint'\n");
}

Test(parse_errors, a_bracket_that_is_not_closed) {
  const char *text = "model M {\n  forward(x: f32[n]) {\n    y = (x + 1\n    z = 2\n    return y\n  }\n}\n";
  parse_bad(text, strlen(text));
  cr_assert(diag.n_errors == 1 && diag.messages.items[0].notes.n == 1, "%s", messages());
  cr_expect(source_place(diag.messages.items[0].span.source, diag.messages.items[0].span.begin).line == 4);
  const DiagNote *note = &diag.messages.items[0].notes.items[0];
  cr_expect(source_place(note->span.source, note->span.begin).line == 3);
}

Test(parse_errors, a_keyword_is_no_name) {
  expect_errors("layer A { fn f(x) { then = x return x } }",
                "1:21: unexpected 'then', expected a statement or '}'; 'then' is a keyword and cannot be a name\n");
  expect_errors("layer A(from) { }",
                "1:9: unexpected 'from', expected a name or ')'; 'from' is a keyword and cannot be a name\n");
  expect_errors("layer A { fn return(x) = x }",
                "1:14: unexpected 'return', expected a name; 'return' is a keyword and cannot be a name\n");
}

Test(parse_errors, habits_of_other_languages) {
  expect_errors("layer A { if a = b { } }", "1:16: unexpected '=', expected '{'; a comparison is written '=='\n");
  expect_errors(
      "layer A { a = b < c < d }",
      "1:21: unexpected '<', expected a member, 'as' or '}'; comparisons do not chain, write 'a < b and b < c'\n");
  expect_errors("layer A { a = - - b }",
                "1:17: unexpected '-', expected an expression; a second '-' needs brackets, write '-(-x)'\n");
  expect_errors("layer A { forward(x) = x, y }", "1:25: unexpected ',', expected a member or '}'; several results are "
                                                 "written '{ return a, b }'\n");
  expect_errors("layer A { forward(x: [b, 4]) = x }",
                "1:22: unexpected '[', expected a name; a type begins with f32, i32 or bool\n");
  expect_errors("layer A { forward(x) { fn f(y) = y } }",
                "1:24: unexpected 'fn', expected a statement or '}'; a function stands beside 'forward', not within it\n");
}

Test(parse_errors, by_place_after_by_name) {
  expect_errors("layer A { a = f(b, c = 1, d) }", "1:27: a positional argument after 'c', which is given by name\n");
}

Test(parse_errors, D31_every_fault_is_reported_once) {
  expect_errors(
      "layer A(x = ) {\n"
      "  y = (1 + 2\n"
      "  z = 3 +\n"
      "  forward(x) {\n"
      "    if x = 3 { y = [ }\n"
      "    a = f(b,,\n"
      "          c,\n"
      "          d = 1)\n"
      "    return x\n"
      "  fn g(x y) = x\n"
      "  = 3\n"
      "}\n"
      "layer B { fn f(x) { return x\n"
      "layer C { weight [3] }\n",
      "1:13: unexpected ')', expected an expression\n"
      "3:3: unexpected name 'z', expected ')'\n"
      "4:3: unexpected 'forward', expected an expression\n"
      "5:10: unexpected '=', expected '{'; a comparison is written '=='\n"
      "6:13: unexpected ',', expected an expression or ')'\n"
      "10:3: unexpected 'fn', expected a statement, '}', ',' or '='; a function stands beside 'forward', not within "
      "it\n"
      "10:10: unexpected name 'y', expected ')', ',', ':' or '='\n"
      "11:3: unexpected '=', expected a member or '}'\n"
      "14:1: unexpected 'layer', expected a statement, '}', ',' or '='\n"
      "14:18: unexpected '[', expected a name, 'weight', 'train' or '*'\n");
}

Test(parse_errors, D31_broken_expressions) {
  expect_errors("layer A { a = ((*((* }", "1:17: unexpected '*', expected an expression\n");
  expect_errors("}", "1:1: unexpected '}', expected the end of the text, 'include', 'layer', 'model', 'fn' or 'checkpoint'\n");
}

Test(parse_errors, D25_many_errors) {
  const char *text = repeated("layer A {\n", "a = = 1\n", 10000, "}");
  parse_bad(text, strlen(text));
  cr_expect(diag.messages.n == DIAG_MAX_ERRORS && diag.n_errors > DIAG_MAX_ERRORS);
  StrBuf out = strbuf_new(arena);
  render_summary(&out, &diag, "");
  cr_expect(strstr(out.text, "too many errors"));
}

Test(parse_errors, D26_an_error_after_much_that_is_right) {
  const char *text = repeated("layer A {\n", "a = f(1, [2, 3], \"x\") * -y\n", 10000, "}}");
  expect_fault(text, strlen(text), DIAG_SYNTAX, (uint32_t)strlen(text) - 1);
}

// ---- -D ----

Test(parse_errors, a_definition_is_one_expression) {
  static const char *const bad[] = {"", "1 2", "a = 1", "(", ")", "layer A { }", "\xff", "\"a"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Source *source = source_new(arena, "-D x", bad[i], (uint32_t)strlen(bad[i]));
    cr_expect(!parse_expression(arena, &interned, &diag, source) && diag_has_errors(&diag), "%s", bad[i]);
    diag = diag_new(arena);
  }
}

/* What is skipped after a fault is looked at once: these texts would take hours if it were quadratic. */
Test(parse_errors, D25_recovery_takes_linear_time, .timeout = 60) {
  static const char *const parts[] = {"a ", "   ", "( ", "} ", "\n=,", "a=\n", ";", "$"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const char *text = repeated("layer A { a = f(= ", parts[i], 1000000, "");
    parse_bad(text, strlen(text));
    diag = diag_new(arena);
  }
}

/* Every prefix of a text, and the text with each byte replaced, ends with a tree or with messages. */
Test(parse_errors, D31_every_prefix_and_many_mutations) {
  const char *text =
      "layer A(x: f32[n, ragged t] = 1, y) {\n  weight w: [x, 2] as \"a.b\"\n  if x == 1 { b = -x } else if y { } "
      "fn f(a) = if a then [1] else a[0:, ...]\n  forward(q) { r, s = q -> f(1, k = 2) return r = s } }\n"
      "model M { generate a from b { eos = [1, 2] } require x or not y, \"t\\n\" }";
  size_t size = strlen(text);
  for (size_t n = 0; n < size; n++) {
    parse_text(arena, &interned, &diag, "m", text, n);
    diag = diag_new(arena);
  }
  static const char replacements[] = "(){}[]\"#=,x1-\n$\xff";
  for (size_t i = 0; i < size; i++)
    for (size_t j = 0; j < sizeof replacements; j++) {
      char *mutated = arena_strndup(arena, text, size);
      mutated[i] = replacements[j];
      ParsedProgram *program = parse_text(arena, &interned, &diag, "m", mutated, size);
      cr_assert((program != NULL) == (diag.n_errors == 0), "%s", mutated);
      diag = diag_new(arena);
    }
}
