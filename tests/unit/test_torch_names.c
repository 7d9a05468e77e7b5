/* Names of PyTorch: each row of the table is a name that the language does not have, and whoever writes it, as a function
 * or as a member of a tensor, is told what to write instead. */
#include "../support/compiled_graph.h"

TestSuite(torch_names, .init = setup, .fini = teardown);

static const char *const names[][2] = {
#define TORCH_NAME(name, hint) {name, hint},
#define TORCH_ARGUMENT(name, hint)
#include "elaborate/torch_names.def"
};

static void refused(const char *text, const char *name, const char *hint) {
  Diag own = diag_new(arena);
  Graph *graph = elaborate_text(arena, &own, text, &(ElaborateOptions){0});
  const char *said = first_message(&own);
  cr_expect(!graph && strstr(said, name) && strstr(said, hint), "%s: %s", name, said);
}

/* As a function and as a member. */
static void expect(const char *name, const char *hint) {
  refused(arena_printf(arena, "model M { forward(x: f32[n, 4]) { return y = %s(x) } }", name), name, hint);
  refused(arena_printf(arena, "model M { forward(x: f32[n, 4]) { return y = x.%s } }", name), name, hint);
}

Test(torch_names, are_answered) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) expect(names[i][0], names[i][1]);
}

/* What is advised computes what PyTorch computes, where another name of the language is near. */
Test(torch_names, advice_computes_the_same) {
  static const char *const advised[][2] = {
      {"exp2", "2 ** x"}, {"log2", "/ log(2)"}, {"log10", "/ log(10)"}, {"softmin", "softmax(-x"}, {"new_zeros", "m], 0)"},
      {"std", "sqrt(mean("}, {"celu", "* alpha"}, {"isinf", "abs(x) == inf"}, {"cosh", "+ exp(-x)"}, {"acos", "no such"},
      {"argmin", "argmax(-x)"}, {"median", "topk"}, {"lerp", "x + (y - x)"}, {"less", "x < y"}, {"conj", "complex"}};
  for (size_t i = 0; i < sizeof advised / sizeof *advised; i++) expect(advised[i][0], advised[i][1]);
}

/* Those that people wrote in trials, with words of the answer. */
Test(torch_names, that_people_wrote) {
  static const char *const wrote[][2] = {
      {"cat", "concat"}, {"matmul", "@"}, {"bmm", "@"}, {"permute", "transpose"}, {"view", "reshape"},
      {"unsqueeze", "none"}, {"squeeze", "[:, 0]"}, {"flatten", "reshape"}, {"chunk", "slices"}, {"zeros", "full"},
      {"einsum", "@"}, {"eye", "arange"}, {"size", "shape"}, {"float", "f32"}, {"T", "transpose"}, {"values", "topk"},
      {"scaled_dot_product_attention", "softmax"}, {"LSTM", "recurrent"}, {"ReLU", "relu"}, {"GRU", "recurrent"},
      {"tril", "causal_mask"}};
  for (size_t i = 0; i < sizeof wrote / sizeof *wrote; i++) expect(wrote[i][0], wrote[i][1]);
  refused("model M { forward(x: f32[n]) { y = x ^ 2 return y } }", "^", "**");
  refused("model M { forward(x: f32[n]) { x += 1 return y = x } }", "'+'", "x = x + y");
  refused("model M { forward(x: f32[n]) { x *= 2 return y = x } }", "'*'", "x = x + y");
}
