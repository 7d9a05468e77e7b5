/* Packing: panels and plain tensors from weights directly, and what the interpreter must compute first. */
#include "../support/compiled_graph.h"
#include "weights/pack.h"

TestSuite(pack, .init = setup, .fini = teardown);

/* Weight "a" counts from 1000, "b" from 2000, and so on; "none" is missing. */
static const Tensor *find(void *context, const char *name) {
  const Graph *graph = context;
  if (strcmp(name, "none") == 0) {
    diag_error_at(&diag, "w.safetensors", DIAG_WEIGHT_MISSING, "no weight '%s'", name);
    return NULL;
  }
  for (const Node *node = graph->first; node; node = node->next) {
    if (node->op != OP_WEIGHT || strcmp(node->attr.name, name) != 0) continue;
    int64_t dims[MAX_RANK] = {0};
    for (uint32_t i = 0; i < node->rank; i++) size_is_const(node->dims[i], &dims[i]);
    Tensor *tensor = tensor_new(arena, DTYPE_F32, node->rank, dims);
    for (int64_t i = 0; i < tensor_elements(tensor); i++)
      ((float *)tensor->data)[i] = (float)(1000 * (*name - 'a' + 1) + i);
    return tensor;
  }
  return NULL;
}

typedef struct Packed {
  const Plan *plan;
  Graph *graph;
  char *bytes;
} Packed;

/* The plan of a graph and memory for its weights. */
static Packed packed_of(const char *text) {
  Packed packed;
  packed.graph = read_graph(text);
  packed.plan = planned(packed.graph, "x86-64-v4");
  packed.bytes = arena_alloc(arena, packed.plan->program.weights_bytes);
  return packed;
}

static const float *recipe_bytes(const Packed *packed, size_t i) {
  return (const float *)(const void *)(packed->bytes + packed->plan->recipes.items[i].offset);
}

/* Every recipe against the interpreter. */
static void expect_right(const Packed *packed) {
  cr_assert(pack_weights(&diag, packed->plan, &(WeightReader){.whole = find, .context = packed->graph}, packed->bytes));
  for (size_t r = 0; r < packed->plan->recipes.n; r++) {
    const WeightRecipe *recipe = &packed->plan->recipes.items[r];
    Tensor *value = graph_eval_static(arena, &diag, packed->graph, recipe->node, find, packed->graph);
    cr_assert_not_null(value);
    if (recipe->layout == WEIGHT_PLAIN) {
      cr_assert_eq(memcmp(recipe_bytes(packed, r), value->data, recipe->bytes), 0, "recipe %zu", r);
      continue;
    }
    int64_t n = value->dims[0], k = value->dims[1], width = recipe->width;
    for (int64_t i = 0; i < (n + width - 1) / width * width; i++)
      for (int64_t j = 0; j < k; j++) {
        float want = i < n ? ((float *)value->data)[i * k + j] : 0;
        cr_assert_eq(recipe_bytes(packed, r)[(i / width * k + j) * width + i % width], want, "recipe %zu [%lld][%lld]", r,
                     (long long)i, (long long)j);
      }
  }
}

static bool is_direct(const Packed *packed, size_t i) {
  RecipeRows rows;
  return recipe_rows(arena, packed->plan->recipes.items[i].node, &rows);
}

#define GRAPH(weights, n, k)                                             \
  "graph G(sizes t) {\n"                                                 \
  "  %0 = input \"x\" : f32[t, " #k "]\n" weights                        \
  "  %20 = linear %0, %19 : f32[t, " #n "]\n"                            \
  "  output y = %20\n"                                                   \
  "}\n"

Test(pack, panels_of_a_weight) {
  Packed packed = packed_of(GRAPH("  %19 = weight \"a\" : f32[100, 37]\n", 100, 37));
  cr_assert(is_direct(&packed, 0));
  expect_right(&packed);
}

Test(pack, several_blocks_of_k) {
  Packed packed = packed_of(GRAPH("  %19 = weight \"a\" : f32[50, 1700]\n", 50, 1700));
  expect_right(&packed);
}

/* Each of these takes several blocks of reading: lines of the file are longer than a block, or many. */
Test(pack, weights_of_many_blocks) {
  Packed wide = packed_of(GRAPH("  %19 = weight \"a\" : f32[70, 17000]\n", 70, 17000));
  expect_right(&wide);
  Packed long_one = packed_of(GRAPH("  %19 = weight \"a\" : f32[30011, 19]\n", 30011, 19));
  expect_right(&long_one);
  Packed transposed =
      packed_of(GRAPH("  %1 = weight \"a\" : f32[300, 3001]\n"
                      "  %2 = slice %1, starts=[3, 5] : f32[290, 2990]\n"
                      "  %19 = permute %2, axes=[1, 0] : f32[2990, 290]\n",
                      2990, 290));
  cr_assert(is_direct(&transposed, 0));
  expect_right(&transposed);
  Packed merged =
      packed_of(GRAPH("  %1 = weight \"a\" : f32[5003, 90]\n"
                      "  %2 = slice %1, starts=[1, 7] : f32[5001, 80]\n"
                      "  %3 = weight \"b\" : f32[5007, 80]\n"
                      "  %4 = full 0.1 : f32[]\n"
                      "  %5 = mul %3, %4 : f32[5007, 80]\n"
                      "  %6 = weight \"c\" : f32[80, 4000]\n"
                      "  %7 = permute %6, axes=[1, 0] : f32[4000, 80]\n"
                      "  %19 = concat %2, %5, %7, axis=0 : f32[14008, 80]\n",
                      14008, 80));
  cr_assert(is_direct(&merged, 0));
  expect_right(&merged);
}

Test(pack, plain_tensors_of_many_blocks) {
  Packed packed = packed_of(
      "graph G(sizes t) {\n"
      "  %0 = weight \"a\" : f32[900, 1000]\n"
      "  %1 = slice %0, starts=[1, 1] : f32[898, 998]\n"
      "  %2 = permute %0, axes=[1, 0] : f32[1000, 900]\n"
      "  %3 = full 0.1 : f32[]\n"
      "  %4 = mul %0, %3 : f32[900, 1000]\n"
      "  output a = %0\n"
      "  output b = %1\n"
      "  output c = %2\n"
      "  output d = %4\n"
      "}\n");
  for (size_t i = 0; i < packed.plan->recipes.n; i++) cr_assert(is_direct(&packed, i));
  expect_right(&packed);
}

Test(pack, projections_put_together_with_a_factor) {
  Packed packed = packed_of(GRAPH("  %1 = weight \"a\" : f32[96, 40]\n"
                                  "  %2 = full 0.1 : f32[]\n"
                                  "  %3 = slice %1, starts=[0, 0] : f32[32, 40]\n"
                                  "  %4 = mul %3, %2 : f32[32, 40]\n"
                                  "  %5 = slice %1, starts=[32, 0] : f32[64, 40]\n"
                                  "  %6 = weight \"b\" : f32[7, 40]\n"
                                  "  %7 = mul %2, %6 : f32[7, 40]\n"
                                  "  %8 = mul %7, %2 : f32[7, 40]\n"
                                  "  %19 = concat %4, %5, %8, axis=0 : f32[103, 40]\n",
                                  103, 40));
  cr_assert(is_direct(&packed, 0));
  expect_right(&packed);
}

Test(pack, transposed_matrices) {
  Packed packed = packed_of(GRAPH("  %1 = weight \"a\" : f32[30, 100]\n"
                                  "  %2 = slice %1, starts=[3, 5] : f32[20, 90]\n"
                                  "  %19 = permute %2, axes=[1, 0] : f32[90, 20]\n",
                                  90, 20));
  cr_assert(is_direct(&packed, 0));
  expect_right(&packed);
}

Test(pack, slices_across_pieces) {
  Packed packed = packed_of(GRAPH("  %1 = weight \"a\" : f32[30, 8]\n"
                                  "  %2 = weight \"b\" : f32[30, 8]\n"
                                  "  %3 = concat %1, %2, %1, axis=0 : f32[90, 8]\n"
                                  "  %19 = slice %3, starts=[25, 2] : f32[50, 6]\n",
                                  50, 6));
  cr_assert(is_direct(&packed, 0));
  expect_right(&packed);
}

Test(pack, other_subgraphs_are_computed) {
  Packed packed = packed_of(GRAPH("  %1 = weight \"a\" : f32[30, 8]\n"
                                  "  %2 = weight \"b\" : f32[8]\n"
                                  "  %3 = add %1, %2 : f32[30, 8]\n"
                                  "  %19 = concat %3, %1, axis=1 : f32[30, 16]\n",
                                  30, 16));
  cr_assert_not(is_direct(&packed, 0));
  expect_right(&packed);
}

Test(pack, plain_tensors_of_every_type) {
  Packed packed = packed_of("graph G(sizes t) {\n"
                            "  %0 = weight \"a\" : f32[2, 3, 4]\n"
                            "  %1 = weight \"b\" : f32[5]\n"
                            "  %2 = full 7 : i32[3]\n"
                            "  %3 = full true : bool[70]\n"
                            "  %4 = slice %1, starts=[1] : f32[3]\n"
                            "  %5 = full 2.5 : f32[2]\n"
                            "  %6 = concat %4, %5, axis=0 : f32[5]\n"
                            "  %7 = permute %0, axes=[2, 0, 1] : f32[4, 2, 3]\n"
                            "  %8 = full 1.5 : f32[]\n"
                            "  output a = %0\n"
                            "  output b = %2\n"
                            "  output c = %3\n"
                            "  output d = %6\n"
                            "  output e = %7\n"
                            "  output f = %8\n"
                            "}\n");
  expect_right(&packed);
}

Test(pack, a_weight_that_is_missing) {
  Packed packed = packed_of(GRAPH("  %19 = weight \"none\" : f32[10, 8]\n", 10, 8));
  cr_assert_not(
      pack_weights(&diag, packed.plan, &(WeightReader){.whole = find, .context = packed.graph}, packed.bytes));
  cr_assert_eq(diag.n_errors, 1);
}
