/* Diagnostics: places in a text, what is collected, how it is rendered, the nearest name. */
#include <jansson.h>

#include "../support/compiled_graph.h"
#include "diag/render.h"
#include "diag/source.h"

TestSuite(diag, .init = setup, .fini = teardown);

static Source *source_of(const char *text) { return source_new(arena, "model.tfm", text, (uint32_t)strlen(text)); }

/* The span of `part` in the source. */
static SrcSpan span_of(Source *source, const char *part) {
  const char *at = strstr(source->text, part);
  cr_assert_not_null(at, "no '%s' in the text", part);
  uint32_t begin = (uint32_t)(at - source->text);
  return (SrcSpan){source, begin, begin + (uint32_t)strlen(part)};
}

static const char *rendered(bool with_color) {
  StrBuf out = strbuf_new(arena);
  render_text(&out, &diag, with_color);
  return out.text;
}

static void expect_text(const char *want) {
  const char *got = rendered(false);
  cr_expect(strcmp(got, want) == 0, "got\n%s\nwant\n%s", got, want);
}

// ---- places ----

static void expect_place(Source *source, uint32_t offset, uint32_t line, uint32_t column) {
  SrcPlace place = source_place(source, offset);
  cr_expect(place.line == line && place.column == column, "offset %u is at %u:%u, want %u:%u", offset, place.line,
            place.column, line, column);
}

Test(diag, places_with_every_line_end) {
  Source *source = source_of("ab\ncd\r\nef\rgh");
  expect_place(source, 0, 1, 1);
  expect_place(source, 2, 1, 3);
  expect_place(source, 3, 2, 1);
  expect_place(source, 7, 3, 1);
  expect_place(source, 10, 4, 1);
  expect_place(source, 12, 4, 3);
  uint32_t length;
  cr_expect(strncmp(source_line(source, 2, &length), "cd", 2) == 0 && length == 2);
  cr_expect(strncmp(source_line(source, 3, &length), "ef", 2) == 0 && length == 2);
  source_line(source, 5, &length);
  cr_expect(length == 0);
}

Test(diag, place_in_an_empty_text) {
  Source *source = source_of("");
  expect_place(source, 0, 1, 1);
  expect_place(source, 99, 1, 100);
}

Test(diag, place_after_a_byte_order_mark) { expect_place(source_of("\xef\xbb\xbfmodel"), 3, 1, 1); }

// ---- text ----

Test(diag, error_with_line_caret_and_note) {
  Source *source = source_of("weight w_q: [3]\n\nh = matmul(x, w_k)\n");
  diag_error(&diag, span_of(source, "w_k"), DIAG_UNKNOWN_NAME, "unknown name '%s', did you mean 'w_q'?", "w_k");
  diag_note(&diag, span_of(source, "w_q"), "'w_q' is declared here");
  expect_text(
      "model.tfm:3:15: error: unknown name 'w_k', did you mean 'w_q'? [E0202]\n"
      "    3 | h = matmul(x, w_k)\n"
      "      |               ^~~\n"
      "model.tfm:1:8: note: 'w_q' is declared here\n");
}

Test(diag, tabs_stay_and_wide_characters_count_twice) {
  Source *source = source_of("\tx = \"\xe6\xb3\xa8\xe6\x84\x8f\" * bad\n");
  diag_error(&diag, span_of(source, "bad"), DIAG_KIND, "no");
  expect_text(
      "model.tfm:1:17: error: no [E0204]\n"
      "    1 | \tx = \"\xe6\xb3\xa8\xe6\x84\x8f\" * bad\n"
      "      | \t             ^~~\n");
}

Test(diag, combining_marks_count_nothing) {
  Source *source = source_of("e\xcc\x81 bad");
  diag_error(&diag, span_of(source, "bad"), DIAG_KIND, "no");
  expect_text("model.tfm:1:5: error: no [E0204]\n    1 | e\xcc\x81 bad\n      |   ^~~\n");
}

Test(diag, control_bytes_and_malformed_bytes_are_escaped) {
  Source *source = source_of("\x1b[31m \xff bad");
  diag_error(&diag, span_of(source, "bad"), DIAG_KIND, "say '\x1b[2J\n\xe2\x80\xae'");
  expect_text(
      "model.tfm:1:9: error: say '\\x1b[2J\\n\\u202e' [E0204]\n"
      "    1 | \\x1b[31m \\xff bad\n"
      "      |               ^~~\n");
}

/* The first and the last of both ranges of control characters, and what stands beside them. */
Test(diag, only_control_characters_are_escaped) {
  diag_error(&diag, span_of(source_of("bad"), "bad"), DIAG_KIND, "%s", "\1\x1f ~\x7f \xc2\x80\xc2\x9f\xc2\xa0\xc2\xa1");
  expect_text(
      "model.tfm:1:1: error: \\x01\\x1f ~\\x7f \\u0080\\u009f\xc2\xa0\xc2\xa1 [E0204]\n"
      "    1 | bad\n"
      "      | ^~~\n");
}

Test(diag, a_place_without_source) {
  diag_error_at(&diag, "w.safetensors", DIAG_WEIGHT_MISSING, "no tensor \"a\"");
  diag_error_at(&diag, NULL, DIAG_USAGE, "unknown verb");
  expect_text("w.safetensors: error: no tensor \"a\" [E0403]\ntfmc: error: unknown verb [E0601]\n");
}

Test(diag, caret_at_the_end_of_the_text) {
  Source *source = source_of("model");
  diag_error(&diag, (SrcSpan){source, 5, 5}, DIAG_SYNTAX, "no");
  expect_text("model.tfm:1:6: error: no [E0101]\n    1 | model\n      |      ^\n");
}

Test(diag, a_span_over_lines_is_marked_on_the_first) {
  Source *source = source_of("a = f(1,\n2)");
  diag_error(&diag, (SrcSpan){source, 4, 11}, DIAG_SYNTAX, "no");
  expect_text("model.tfm:1:5: error: no [E0101]\n    1 | a = f(1,\n      |     ^~~~\n");
}

Test(diag, long_lines_are_cut_around_the_caret) {
  enum { LENGTH = 1 << 20, AT = 500000 };
  char *text = arena_alloc(arena, LENGTH + 1);
  memset(text, 'a', LENGTH);
  text[AT] = '$';
  Source *source = source_of(text);
  diag_error(&diag, (SrcSpan){source, AT, AT + 1}, DIAG_SYNTAX, "no");
  const char *got = rendered(false), *line = strstr(got, "| ...a"), *dollar = strchr(got, '$');
  const char *caret = strchr(got, '^'), *marks = strstr(got, "      | ");
  cr_assert(line && dollar && caret && marks && strlen(got) < 400);
  cr_expect(dollar - line == caret - (marks + 6), "%s", got);
}

Test(diag, color) {
  diag_error_at(&diag, NULL, DIAG_USAGE, "no");
  cr_expect(strcmp(rendered(true), "\033[1mtfmc: \033[0m\033[1;31merror: \033[0mno [E0601]\n") == 0);
}

// ---- limits and summary ----

static void expect_summary(const char *want) {
  StrBuf out = strbuf_new(arena);
  render_summary(&out, &diag, ", no output written");
  cr_expect(strcmp(out.text, want) == 0, "got %s", out.text);
}

Test(diag, summary) {
  expect_summary("");
  diag_warning_at(&diag, "w", DIAG_WEIGHT_EXTRA, "extra");
  expect_summary("tfmc: 1 warning, no output written\n");
  cr_expect(diag.exit_code == 0 && !diag_has_errors(&diag));
  diag_error_at(&diag, "w", DIAG_FILE, "no");
  diag_error_at(&diag, "w", DIAG_SYNTAX, "no");
  expect_summary("tfmc: 2 errors, 1 warning, no output written\n");
  cr_expect(diag.exit_code == 3);
}

Test(diag, twenty_errors_are_kept) {
  for (int i = 0; i < 10000; i++) {
    diag_error_at(&diag, "f", DIAG_SYNTAX, "error %d", i);
    diag_note(&diag, NO_SPAN, "note %d", i);
  }
  cr_expect(diag.messages.n == DIAG_MAX_ERRORS && diag.n_errors == 10000);
  cr_expect(diag.messages.items[DIAG_MAX_ERRORS - 1].notes.n == 1);
  expect_summary("tfmc: too many errors, the first 20 are shown, no output written\n");
}

// ---- JSON ----

Test(diag, json_is_one_object_a_line) {
  Source *source = source_of("a\nbc d\n");
  diag_error(&diag, span_of(source, "bc"), DIAG_UNKNOWN_NAME, "a \"quote\" and \xff");
  diag_note(&diag, span_of(source, "d"), "here");
  diag_error_at(&diag, NULL, DIAG_USAGE, "no");
  StrBuf out = strbuf_new(arena);
  render_json(&out, &diag);
  char *end = strchr(out.text, '\n');
  json_t *first = json_loadb(out.text, (size_t)(end - out.text), 0, NULL), *second = json_loads(end + 1, 0, NULL);
  cr_assert(first && second);
  cr_expect(strcmp(json_string_value(json_object_get(first, "code")), "E0202") == 0);
  cr_expect(strcmp(json_string_value(json_object_get(first, "message")), "a \"quote\" and \\xff") == 0);
  cr_expect(json_integer_value(json_object_get(first, "line")) == 2);
  cr_expect(json_integer_value(json_object_get(first, "end_column")) == 3);
  cr_expect(json_array_size(json_object_get(first, "notes")) == 1);
  cr_expect(!json_object_get(second, "file"));
  json_decref(first);
  json_decref(second);
}

/* Wherever the first byte that is no ASCII stands, and whether or not it begins a character. */
Test(diag, json_escapes_what_is_no_utf8_and_nothing_else) {
  static const char *const texts[][2] = {{"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
                                         {"\xe2\x82\xac", "\xe2\x82\xac"},
                                         {"\xa9t", "\\xa9t"},
                                         {"\xff", "\\xff"},
                                         {"t\xc3", "t\\xc3"},
                                         {"", ""}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    diag = diag_new(arena);
    diag_error_at(&diag, texts[i][0], DIAG_USAGE, "%s", texts[i][0]);
    StrBuf out = strbuf_new(arena);
    render_json(&out, &diag);
    json_t *message = json_loads(out.text, 0, NULL);
    cr_assert(message, "%zu", i);
    cr_expect_str_eq(json_string_value(json_object_get(message, "message")), texts[i][1]);
    cr_expect_str_eq(json_string_value(json_object_get(message, "file")), texts[i][1]);
    json_decref(message);
  }
}

// ---- nearest ----

Test(diag, nearest) {
  static const char *const names[] = {"weight", "bias", "depth", "x", "heads", "d_model"};
  size_t n = sizeof names / sizeof *names;
  cr_expect_str_eq(diag_nearest("wieght", names, n), "weight");
  cr_expect_str_eq(diag_nearest("head", names, n), "heads");
  cr_expect_str_eq(diag_nearest("dmodel", names, n), "d_model");
  cr_expect_null(diag_nearest("y", names, n));
  cr_expect_null(diag_nearest("scale", names, n));
  cr_expect_null(diag_nearest("", names, n));
}

// ---- UTF-8 ----

Test(diag, utf8_refuses_what_is_malformed) {
  static const char *const bad[] = {"\x80",
                                    "\xc0\x80",
                                    "\xc1\xbf",
                                    "\xe0\x80\x80",
                                    "\xed\xa0\x80",
                                    "\xf0\x80\x80\x80",
                                    "\xf4\x90\x80\x80",
                                    "\xf8\x88\x80\x80\x80",
                                    "\xe2\x82",
                                    "\xff"};
  uint32_t character;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    cr_expect(utf8_decode(bad[i], strlen(bad[i]), &character) == 0, "case %zu", i);
  cr_expect(utf8_decode("\xf4\x8f\xbf\xbf", 4, &character) == 4 && character == 0x10ffff);
  cr_expect(utf8_decode("\xef\xbf\xbf", 3, &character) == 3 && character == 0xffff);
}
