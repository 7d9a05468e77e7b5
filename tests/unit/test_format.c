/* The layout of texts: what holds of it for all texts of the fuzz corpus and for what becomes of them when tokens and
 * bytes are put in, taken out and moved at random. TFM_FORMAT_TEXTS=N tries N of those in place of 1,500. */
#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "format_check.h"

static const char *const words[] = {"(",
                                    ")",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    ",",
                                    ":",
                                    ".",
                                    "...",
                                    "=",
                                    "->",
                                    "+",
                                    "-",
                                    "*",
                                    "//",
                                    "**",
                                    "@",
                                    "==",
                                    "<",
                                    " ",
                                    "\n",
                                    "\n\n",
                                    "\r\n",
                                    "\t",
                                    "# a remark\n",
                                    "#\n",
                                    " as \"p\"",
                                    "if ",
                                    " then ",
                                    " else ",
                                    "for i in ",
                                    "not ",
                                    " and ",
                                    " or ",
                                    "none",
                                    "1e-5",
                                    "weight ",
                                    "fn f(x) = x\n",
                                    "forward(x) { return y = x }",
                                    "require a, \"b\"\n",
                                    "layer L(d) { a = Linear(d, d) }\n",
                                    "train f { lr = 1 }",
                                    "\xc3\x97",
                                    "\xe2\x82\xac",
                                    "\"\xe2\x82\xac\\n\"",
                                    "x"};
enum { N_WORDS = sizeof words / sizeof *words };

/* What may stand wherever a blank does, and leaves a text that parses one that does. */
static const char *const gaps[] = {" ",  "\t\f ",         "\n",          "\n\n\n",          "\r\n",
                                   "\r", " # a remark\n", "\n# alone\n", "\n#\n\n#  two\n", "#\xe2\x82\xac\r\n"};
enum { N_GAPS = sizeof gaps / sizeof *gaps };

static unsigned state = 1;

static unsigned below(size_t n) {
  state = state * 1664525u + 1013904223u;
  return (unsigned)((state >> 8) % (n ? n : 1));
}

/* The text with up to three pieces put in, taken out or repeated. */
static StrBuf mutated(Arena *arena, const char *text, size_t size) {
  StrBuf now = strbuf_new(arena);
  strbuf_add_n(&now, text, size);
  for (unsigned n = 1 + below(3); n > 0; n--) {
    StrBuf next = strbuf_new(arena);
    const size_t at = below(now.length + 1), taken = below(3) ? 0 : below(now.length - at < 40 ? now.length - at : 40);
    const size_t from = below(now.length + 1),
                 n_moved = below(4) ? 0 : below(now.length - from < 60 ? now.length - from : 60);
    strbuf_add_n(&next, now.text, at);
    if (n_moved)
      strbuf_add_n(&next, now.text + from, n_moved);
    else
      strbuf_add(&next, words[below(N_WORDS)]);
    strbuf_add_n(&next, now.text + at + taken, now.length - at - taken);
    now = next;
  }
  return now;
}

/* The text with up to five blanks replaced. */
static StrBuf spaced(Arena *arena, const char *text, size_t size) {
  StrBuf now = strbuf_new(arena);
  for (size_t i = 0; i < size; i++) {
    const bool is_blank = text[i] == ' ' || text[i] == '\n';
    if (is_blank && below(size) < 5) strbuf_add(&now, gaps[below(N_GAPS)]);
    strbuf_add_char(&now, text[i]);
  }
  return now;
}

static StrBuf file_text(Arena *arena, const char *path) {
  StrBuf text = strbuf_new(arena);
  char piece[4096];
  FILE *file = fopen(path, "rb");
  cr_assert(file, "%s", path);
  for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;) strbuf_add_n(&text, piece, n);
  fclose(file);
  return text;
}

static void corpus(glob_t *found) {
  static const char *const patterns[] = {"/tests/fuzz/corpus_tfm/*", "/tests/fuzz/regressions/*",
                                         "/tests/errors/*.tfm",      "/compiler/elaborate/std/*.tfm",
                                         "/examples/*/*.tfm",        "/tests/goldens/*/*.tfm"};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    char pattern[4096];
    snprintf(pattern, sizeof pattern, "%s%s", TFM_SOURCE_DIR, patterns[i]);
    glob(pattern, i ? GLOB_APPEND : 0, NULL, found);
  }
  cr_assert_gt(found->gl_pathc, 200);
}

static void holds(Arena *arena, const StrBuf *text, const char *path, unsigned *laid_out) {
  const char *fault = format_fault(arena, text->text, text->length, laid_out);
  cr_assert_null(fault, "%s: %s:\n%s", path, fault, text->text);
}

Test(format, texts_of_the_corpus_and_random_changes_of_them) {
  glob_t found;
  corpus(&found);
  const char *wanted = getenv("TFM_FORMAT_TEXTS");
  const size_t n = wanted ? (size_t)strtoul(wanted, NULL, 10) : 1500;
  unsigned laid_out = 0, n_tried = 0;
  for (size_t i = 0; i < n || i < found.gl_pathc; i++) {
    Arena *arena = arena_create();
    const char *path = found.gl_pathv[i % found.gl_pathc];
    StrBuf text = file_text(arena, path);
    if (i < found.gl_pathc) {
      holds(arena, &text, path, &laid_out);
    } else if (text.length < 6000) { /* what is changed is small, so that much is tried */
      const StrBuf other = below(2) ? spaced(arena, text.text, text.length) : mutated(arena, text.text, text.length);
      holds(arena, &other, path, &laid_out);
      n_tried++;
    }
    arena_destroy(arena);
  }
  printf("%u of the %u changed texts and of the %zu others were laid out\n", laid_out, n_tried, (size_t)found.gl_pathc);
  cr_assert_gt(laid_out, n_tried / 4);
  globfree(&found);
}
