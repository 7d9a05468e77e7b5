/* Printing a tree gives text that parses to the same tree: all models of tests/goldens and examples, and corners. */
#define _XOPEN_SOURCE 700 /* nftw */
#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>

#include "diag/render.h"
#include "parse/parse.h"

static Ast *parsed(Arena *arena, Diag *diag, const char *path, const char *text) {
  Map *names = ARENA_NEW(arena, Map);
  *names = map_new(arena);
  return parse_file(arena, names, diag, source_new(arena, path, text, (uint32_t)strlen(text)));
}

static bool is_equal_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool is_equal(const Ast *a, const Ast *b) {
  if (!a || !b) return a == b;
  if (a->kind != b->kind || a->flag != b->flag || a->n_children != b->n_children || a->depth != b->depth) return false;
  if (!is_equal_text(a->name, b->name) || !is_equal_text(a->text, b->text)) return false;
  if (a->is_integer != b->is_integer || a->integer != b->integer || a->number != b->number) return false;
  for (uint32_t i = 0; i < a->n_children; i++)
    if (!is_equal(a->children[i], b->children[i])) return false;
  return true;
}

static void check_round_trip(const char *path, const char *text) {
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  StrBuf once = strbuf_new(arena), twice = strbuf_new(arena), problems = strbuf_new(arena);
  const Ast *first = parsed(arena, &diag, path, text);
  if (first) {
    ast_print(&once, first);
    const Ast *second = parsed(arena, &diag, path, once.text);
    render_text(&problems, &diag, false);
    cr_expect(second && is_equal(first, second), "%s: another tree after printing\n%s", path, problems.text);
    if (second) ast_print(&twice, second);
    cr_expect(strcmp(once.text, twice.text) == 0, "%s: another text after printing twice", path);
  }
  arena_destroy(arena);
}

static void expect_printed(const char *text, const char *want) {
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  StrBuf got = strbuf_new(arena), problems = strbuf_new(arena);
  const Ast *ast = parsed(arena, &diag, "model.tfm", text);
  render_text(&problems, &diag, false);
  cr_assert(ast, "%s", problems.text);
  ast_print(&got, ast);
  cr_expect(strcmp(got.text, want) == 0, "got\n%s\nwant\n%s", got.text, want);
  check_round_trip("model.tfm", text);
  arena_destroy(arena);
}

// ---- files of the project ----

static unsigned n_files;

static int check_file(const char *path, const struct stat *status, int kind, struct FTW *walk) {
  (void)status, (void)walk;
  size_t length = strlen(path);
  if (kind != FTW_F || length < 4 || strcmp(path + length - 4, ".tfm") != 0) return 0;
  static char text[1 << 20];
  FILE *file = fopen(path, "rb");
  cr_assert(file != NULL, "%s", path);
  size_t size = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[size] = '\0';
  check_round_trip(path, text);
  n_files++;
  return 0;
}

Test(ast_print, every_model_of_the_project) {
  nftw(TFM_SOURCE_DIR "/compiler/elaborate/std", check_file, 16, FTW_PHYS);
  cr_expect(n_files == 3);
  nftw(TFM_SOURCE_DIR "/tests/goldens", check_file, 16, FTW_PHYS);
  cr_expect(n_files > 150, "only %u models", n_files);
  nftw(TFM_SOURCE_DIR "/examples", check_file, 16, FTW_PHYS);
}

// ---- corners ----

Test(ast_print, layout) {
  expect_printed(
      "include \"a\\\"b.tfm\" layer A{} model M(a:f32[n,ragged t],b=1.0){weight weight:[2]as\"\" x=a[:,1:,:2,...]"
      "if a{}else if b{y=1}else{z=2} forward(q)=q fn f(){return a,b=2 c,d=f()}generate g from h{i=1}"
      "train f{lr=1}adapt[\"q\"]{rank=2}weight w:[]=normal(0)as\"v\" weight*=0}",
      "include \"a\\\"b.tfm\"\n\nlayer A {\n}\n\nmodel M(a: f32[n, ragged t], b = 1.0) {\n"
      "  weight weight: [2] as \"\"\n  x = a[:, 1 :, :2, ...]\n  if a {\n  } else if b {\n    y = 1\n"
      "  } else {\n    z = 2\n  }\n  forward(q) = q\n  fn f() {\n    return a, b = 2\n    c, d = f()\n  }\n"
      "  generate g from h {\n    i = 1\n  }\n  train f {\n    lr = 1\n  }\n"
      "  adapt [\"q\"] {\n    rank = 2\n  }\n"
      "  weight w: [] = normal(0) as \"v\"\n  weight * = 0\n}\n");
}

Test(ast_print, numbers_keep_their_kind) {
  expect_printed("layer A { a = [1, 1.0, 1e5, 1e300, 0.1, 1e-5, inf, 5e-324, 0.0] }",
                 "layer A {\n  a = [1, 1.0, 1e+05, 1e+300, 0.1, 1e-05, inf, 5e-324, 0.0]\n}\n");
  expect_printed("layer A { a = 2 .x b = 2.5 .x }", "layer A {\n  a = 2 .x\n  b = 2.5 .x\n}\n");
}

Test(ast_print, brackets_stay) {
  expect_printed("layer A { a = x -> (f(b)) c = ((d)) e = -(-f) g = (if a then b else c)(d) }",
                 "layer A {\n  a = x -> (f(b))\n  c = (d)\n  e = -(-f)\n  g = (if a then b else c)(d)\n}\n");
}

Test(ast_print, powers_steps_lists_and_loops) {
  expect_printed(
      "fn f(x)=-x**2**-y*(a**b)**c fn g(x){for i in[1,2]{x=x[::2,a:b:c,::i,1::2]}return x}"
      "layer A{a=[f(i)as\"b{i}\"for i in n]b=[[c as\"d\",e],[i for i in 3]]}",
      "fn f(x) = -x ** 2 ** -y * (a ** b) ** c\n\n"
      "fn g(x) {\n  for i in [1, 2] {\n    x = x[::2, a : b : c, ::i, 1 : : 2]\n  }\n  return x\n}\n\n"
      "layer A {\n  a = [f(i) as \"b{i}\" for i in n]\n  b = [[c as \"d\", e], [i for i in 3]]\n}\n");
}
